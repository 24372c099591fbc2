//! The polytope of the weighted top-k hinge.

use super::distance::between;
use super::faces::face_between;
use super::root::root;
use super::select::largest;
use super::sorted::Sorted;
use super::{Polytope, Scratch, VERTICAL, Weights, replace_by_vertex};
use crate::dual::Curvatures;
use crate::error::Result;
use crate::linalg::Sparse;

/// The set conv({0} ∪ permutations of ρ) of the weighted top-k hinge max(0, Σ_j ρ_j v_(j)), where v_(1) is the largest
/// margin (Tajima et al. 2020, 2.7; docs/mathematics/polytopes.md#two-families).
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedTopK {
    weights: Weights,
}

impl WeightedTopK {
    /// The set for the weights ρ.
    pub fn new(weights: Weights) -> Self {
        Self { weights }
    }

    /// If rounding has moved a point with large margins out of the set, replaces the point by the vertex of the largest
    /// margins, which is then as good as the projection.
    fn replace_if_outside(
        &self,
        v: &[f64],
        label: usize,
        largest: f64,
        scratch: &mut Scratch,
        beta: &mut [f64],
    ) {
        if largest > VERTICAL * self.weights.sum() {
            replace_by_vertex(self, v, label, scratch, beta);
        }
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

    fn vertex(&self, v: &[f64], label: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let loss = self.support(v, label, scratch);
        if loss > 0.0 {
            let sorted = scratch.order.iter().copied().zip(self.weights.positive().iter().copied());
            let others = sorted.filter(|&(class, _)| class != label);
            vertex.extend(others.map(|(class, rho)| (class as u32, rho)));
        }
        loss
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let mut tau = scratch.take_guess();
        beta[label] = 0.0;
        if self.support(v, label, scratch) <= 0.0 {
            beta.fill(0.0);
            scratch.multiplier = 0.0;
            return;
        }
        let rho = self.weights.values();
        let cap = self.weights.sum();
        let mut sorted = Sorted::new(v, label, &mut scratch.order, &mut scratch.work);
        // The size ζ of the point, with β in ζ conv(Perm(ρ)), is found as for the unweighted set.
        let size = root(0.0, 1.0, 1.0, |size| {
            sorted.fit_between(rho, size);
            tau = sorted.multiplier(bias, size * cap, tau);
            sorted.pull(rho, size, bias, tau)
        });
        sorted.fit_between(rho, size);
        tau = sorted.multiplier(bias, size * cap, tau);
        let largest = sorted.margins.first().map_or(0.0, |margin| margin.abs());
        sorted.write(tau, &scratch.order, beta);
        scratch.multiplier = tau;
        self.replace_if_outside(v, label, largest, scratch, beta);
    }

    fn curvature(
        &self,
        beta: &[f64],
        label: usize,
        scratch: &mut Scratch,
        curvatures: &mut Curvatures,
    ) {
        let rho = self.weights.values().iter().copied();
        let room = (&mut scratch.order, &mut scratch.work);
        face_between(beta, label, rho, room, curvatures);
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, _: usize) -> f64 {
        between(beta, self.weights.values())
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, _: usize) -> f64 {
        self.weights.sum()
    }
}
