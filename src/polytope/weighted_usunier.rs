//! The polytope of Usunier's weighted loss.

use super::distance::{below, partial_sums};
use super::faces::face_below;
use super::select::largest;
use super::sorted::Sorted;
use super::{Polytope, STEEP, Scratch, Weights};
use crate::dual::Curvatures;
use crate::error::Result;
use crate::linalg::Sparse;

/// The set {β >= 0 : the j largest sum to at most ρ_1 + .. + ρ_j} of Usunier's weighted loss Σ_j
/// ρ_j max(0, v_(j)), where v_(1) is the largest margin (Tajima et al. 2020, 2.8;
/// docs/mathematics/polytopes.md#two-families).
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedUsunier {
    weights: Weights,
}

impl WeightedUsunier {
    /// The set for the weights ρ.
    pub fn new(weights: Weights) -> Self {
        Self { weights }
    }

    /// Shrinks a point if rounding has moved it out of the set.
    fn shrink_into_set(&self, beta: &mut [f64]) {
        let sparse: Sparse = (0..).zip(beta.iter().copied()).filter(|(_, b)| *b > 0.0).collect();
        let ratios = partial_sums(&sparse, self.weights.values(), sparse.len());
        let size = ratios.map(|(sum, bound)| sum / bound).fold(0.0, f64::max);
        if size > 1.0 {
            beta.iter_mut().for_each(|beta| *beta /= size);
        }
    }

    /// (class, weight) pairs of the positive margins, in decreasing order of the margins.
    fn counted<'a>(
        &'a self,
        v: &'a [f64],
        scratch: &'a mut Scratch,
    ) -> impl Iterator<Item = (usize, f64)> + 'a {
        let weights = self.weights.positive();
        largest(v, weights.len(), true, scratch);
        let sorted = scratch.order.iter().copied().zip(weights.iter().copied());
        sorted.take_while(|&(class, _)| v[class] > 0.0)
    }
}

impl Polytope for WeightedUsunier {
    fn check(&self, n_classes: usize) -> Result<()> {
        self.weights.check(n_classes)
    }

    fn support(&self, v: &[f64], _: usize, scratch: &mut Scratch) -> f64 {
        self.counted(v, scratch).map(|(class, rho)| rho * v[class]).sum()
    }

    fn vertex(&self, v: &[f64], _: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        vertex.extend(self.counted(v, scratch).map(|(class, rho)| (class as u32, rho)));
        vertex.iter().map(|&(class, rho)| rho * v[class as usize]).sum()
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let guess = scratch.take_guess();
        let mut sorted = Sorted::new(v, label, &mut scratch.order, &mut scratch.work);
        sorted.fit_below(self.weights.values());
        let cap = self.weights.sum();
        let tau = sorted.multiplier(bias, cap, guess);
        let steep = sorted.margins.first().is_some_and(|largest| *largest > STEEP * cap);
        sorted.write(tau, &scratch.order, beta);
        scratch.multiplier = tau;
        beta[label] = 0.0;
        if steep {
            self.shrink_into_set(beta);
        }
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
        face_below(beta, label, rho, room, curvatures);
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, _: usize) -> f64 {
        below(beta, self.weights.values())
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, _: usize) -> f64 {
        self.weights.sum()
    }
}
