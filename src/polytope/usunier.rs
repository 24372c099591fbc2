//! The polytope of Usunier's loss.

use super::capped::Capped;
use super::distance::{excess, overshoot, parts};
use super::faces::box_face;
use super::select::largest;
use super::top_k::check_k;
use super::{CappedBox, Polytope, Scratch};
use crate::dual::Curvatures;
use crate::error::{Error, Result};
use crate::linalg::Sparse;

/// The capped simplex {0 <= β_j <= 1/k, 1ᵀβ <= 1} of Usunier's loss: the sum of the k largest
/// max(0, v_j), divided by k (Tajima et al. 2020, 2.6 and 2.12; docs/mathematics/polytopes.md#the-sets).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usunier {
    k: usize,
}

impl Usunier {
    /// Usunier's set for k >= 1.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for k = 0.
    pub fn new(k: usize) -> Result<Self> {
        if k == 0 { Err(Error::argument("k", "must be at least 1")) } else { Ok(Self { k }) }
    }
}

impl Polytope for Usunier {
    fn check(&self, n_classes: usize) -> Result<()> {
        check_k(self.k, n_classes)
    }

    fn support(&self, v: &[f64], _: usize, scratch: &mut Scratch) -> f64 {
        largest(v, self.k, false, scratch);
        let sum: f64 = scratch.order.iter().map(|&class| v[class].max(0.0)).sum();
        sum / self.k as f64
    }

    fn vertex(&self, v: &[f64], label: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let loss = self.support(v, label, scratch);
        let counted = scratch.order.iter().filter(|class| v[**class] > 0.0);
        vertex.extend(counted.map(|&class| (class as u32, 1.0 / self.k as f64)));
        loss
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let set = Capped { upper: 1.0 / self.k as f64, floor: 0.0, cap: 1.0, bias };
        let tau = set.multiplier(v, scratch.take_guess());
        scratch.multiplier = tau;
        set.write(v, tau, beta);
        beta[label] = 0.0;
    }

    fn curvature(&self, beta: &[f64], label: usize, _: &mut Scratch, curvatures: &mut Curvatures) {
        box_face(beta, label, (1.0 / self.k as f64, 1.0), curvatures);
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, _: usize) -> f64 {
        let (sum, negative) = parts(beta);
        // The computed 1/k may be rounded up, so the next smaller number serves as the upper bound.
        overshoot(beta, (1.0 / self.k as f64).next_down()) + excess(sum, 1.0) + negative
    }

    fn capped_box(&self) -> Option<CappedBox> {
        Some(CappedBox { floor: 0.0, upper: 1.0 / self.k as f64, cap: 1.0 })
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, _: usize) -> f64 {
        1.0
    }
}
