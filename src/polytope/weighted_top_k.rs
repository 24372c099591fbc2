use super::select::largest;
use super::{Polytope, Scratch, Weights};
use crate::error::Result;

/// The set conv({0} ∪ permutations of ρ) of the weighted top-k hinge max(0, Σ_j ρ_j v_(j)), v_(1) the
/// largest margin (SPEC 10.1).
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedTopK {
    weights: Weights,
}

impl WeightedTopK {
    /// The set of the weights ρ.
    pub fn new(weights: Weights) -> Self {
        Self { weights }
    }
}

impl Polytope for WeightedTopK {
    fn check(&self, n_classes: usize) -> Result<()> {
        self.weights.check(n_classes)
    }

    fn support(&self, v: &[f64], _: usize, scratch: &mut Scratch) -> f64 {
        let weights = self.weights.positive();
        largest(v, weights.len(), true, scratch);
        let loss: f64 = scratch.order.iter().zip(weights).map(|(&class, rho)| rho * v[class]).sum();
        loss.max(0.0)
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
            let sorted = scratch.order.iter().copied().zip(self.weights.positive().iter().copied());
            vertex.extend(sorted.filter(|&(class, _)| class != label));
        }
        loss
    }

    fn project(&self, _v: &[f64], _: usize, _bias: f64, _: &mut Scratch, _beta: &mut [f64]) {
        todo!()
    }

    fn radius(&self, _: usize) -> f64 {
        self.weights.sum()
    }
}
