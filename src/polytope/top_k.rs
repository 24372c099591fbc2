use super::select::largest;
use super::{Polytope, Scratch};
use crate::error::{Error, Result};

/// The set conv({0} ∪ permutations of (1/k, .., 1/k, 0, ..)) = {0 <= β_j <= 1ᵀβ/k, 1ᵀβ <= 1} of the
/// top-k hinge max(0, mean of the k largest v_j) (SPEC 10.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopK {
    k: usize,
}

impl TopK {
    /// The top-k set for k >= 1.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for k = 0.
    pub fn new(k: usize) -> Result<Self> {
        if k == 0 { Err(Error::argument("k", "must be at least 1")) } else { Ok(Self { k }) }
    }
}

/// That k leaves a last weight of 0 (SPEC 10.1).
pub(super) fn check_k(k: usize, n_classes: usize) -> Result<()> {
    if k < n_classes {
        return Ok(());
    }
    Err(Error::argument(
        "k",
        format!("must be below the number of classes (k = {k} with {n_classes} classes)"),
    ))
}

impl Polytope for TopK {
    fn check(&self, n_classes: usize) -> Result<()> {
        check_k(self.k, n_classes)
    }

    fn support(&self, v: &[f64], _: usize, scratch: &mut Scratch) -> f64 {
        largest(v, self.k, false, scratch);
        let sum: f64 = scratch.order.iter().map(|&class| v[class]).sum();
        (sum / self.k as f64).max(0.0)
    }

    fn vertex(
        &self,
        v: &[f64],
        label: usize,
        scratch: &mut Scratch,
        vertex: &mut Vec<(usize, f64)>,
    ) -> f64 {
        vertex.clear();
        let loss = self.support(v, label, scratch);
        if loss > 0.0 {
            let others = scratch.order.iter().filter(|class| **class != label);
            vertex.extend(others.map(|&class| (class, 1.0 / self.k as f64)));
        }
        loss
    }

    fn project(&self, _v: &[f64], _: usize, _bias: f64, _: &mut Scratch, _beta: &mut [f64]) {
        todo!()
    }

    fn radius(&self, _: usize) -> f64 {
        1.0
    }
}
