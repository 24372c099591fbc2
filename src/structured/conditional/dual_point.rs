//! The best dual point so far.

use super::penalty::ElasticNet;
use crate::dual::DualValue;
use crate::dual::rounding::{Bounded, gamma, norm_above};
use crate::linalg::vectors::dot;

/// Maximum number of Newton steps to find the best scale of a dual point.
const MAX_STEPS: usize = 8;

/// Step sizes towards another point that are tried if the penalty has an L1 term.
const STEPS: [f64; 4] = [1.0, 0.5, 0.25, 0.125];

/// The entropy and the weights of a mixture of distributions α, which determine its dual value.
#[derive(Debug, Clone, Default)]
pub struct DualMixture {
    /// The weighted entropy Σ p_i H(α_i), rounded down.
    pub linear: f64,
    /// An upper bound on the distance of the computed weights from w(α).
    pub error: f64,
    /// Weights w(α) of the dual point.
    pub weights: Vec<f64>,
}

impl DualMixture {
    /// Returns the dual value D of these distributions at λ/`factor`, rounded down.
    pub fn value_at(&self, lambda: f64, factor: f64) -> f64 {
        let norm = norm_above(&self.weights) + self.error;
        let value =
            DualValue::of(lambda, Bounded::exact(self.linear), norm * (1.0 + gamma(4)), 0.0);
        value.bound_at(factor)
    }

    /// Moves the point to λ/`factor`, which multiplies w(α) by `factor`.
    pub fn stretch(&mut self, factor: f64) {
        let rounding = gamma(4) * norm_above(&self.weights);
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        self.error = (self.error + rounding) * factor * (1.0 + gamma(8));
    }

    /// Moves towards another point if that raises the bound. Entropy is concave, so the entropy of a mixture of
    /// distributions is at least the mixture of their entropies.
    pub fn improve(&mut self, other: &Self, lambda: f64, penalty: ElasticNet) {
        let exact = [self.best_step(other, lambda)];
        let steps: &[f64] = if penalty.has_l1() { &STEPS } else { &exact };
        let mut value = self.bound(lambda, penalty);
        let mut best = None;
        for step in steps {
            let mixed = self.mixed(other, *step);
            let next = mixed.bound(lambda, penalty);
            if next > value {
                (value, best) = (next, Some(mixed));
            }
        }
        if let Some(best) = best {
            *self = best;
        }
    }

    /// Returns the step towards another point that maximises the dual value with an L2 penalty.
    fn best_step(&self, other: &Self, lambda: f64) -> f64 {
        let (own, cross) = (dot(&self.weights, &self.weights), dot(&self.weights, &other.weights));
        let length = own - 2.0 * cross + dot(&other.weights, &other.weights);
        let slope = other.linear - self.linear + lambda * (own - cross);
        // If rounding makes the difference of the points vanish, chooses the better point.
        let step = if length > 0.0 { slope / (lambda * length) } else { f64::from(slope > 0.0) };
        if step.is_nan() { 0.0 } else { step.clamp(0.0, 1.0) }
    }

    /// The mixture after a step towards another point.
    fn mixed(&self, other: &Self, step: f64) -> Self {
        let mut mixed = self.clone();
        let mix = |a: f64, b: f64| (1.0 - step) * a + step * b;
        let linear = mix(self.linear, other.linear);
        let size = self.linear.abs() + other.linear.abs();
        mixed.linear = linear - gamma(4) * size;
        let largest = |weights: &[f64]| norm_above(weights);
        let rounding = gamma(4) * (largest(&self.weights) + largest(&other.weights));
        mixed.error = (mix(self.error, other.error) + rounding) * (1.0 + gamma(8));
        mixed.weights.iter_mut().zip(&other.weights).for_each(|(a, b)| *a = mix(*a, *b));
        mixed
    }

    /// Returns a lower bound on the optimum. Without an L1 term, this is the dual value of α. With an L1 term, it is
    /// the dual value of the mixture s α + (1 − s) (true labels) for the best s in [0, 1]. The entropy of this mixture
    /// is at least s H(α), and its weights are s w(α).
    pub fn bound(&self, lambda: f64, penalty: ElasticNet) -> f64 {
        if !penalty.has_l1() {
            return self.value_at(lambda, 1.0);
        }
        let l1_ratio = penalty.l1_ratio();
        let scale = self.scale(lambda, l1_ratio);
        let entropy = Bounded::exact(scale) * Bounded::exact(self.linear);
        let value = if l1_ratio == 1.0 {
            entropy.lower()
        } else {
            let excess = |weight: &f64| (scale * weight.abs() - l1_ratio).max(0.0);
            let excess: Vec<f64> = self.weights.iter().map(excess).collect();
            let rounding = gamma(4) * scale * norm_above(&self.weights);
            let norm = norm_above(&excess) + rounding + scale * self.error;
            let lambda = lambda / (1.0 - l1_ratio) * (1.0 + gamma(8));
            DualValue::of(lambda, entropy, norm * (1.0 + gamma(8)), 0.0).bound()
        };
        // At s = 0 the value is 0.
        if value < 0.0 { 0.0 } else { value }
    }

    /// Returns the best scale s. With only an L1 penalty, this is the largest s for which |λ s w(α)| ≤ λ in all
    /// entries.
    fn scale(&self, lambda: f64, l1_ratio: f64) -> f64 {
        let larger = |most: f64, w: &f64| if w.abs() <= most { most } else { w.abs() };
        if l1_ratio == 1.0 {
            let largest = self.weights.iter().fold(0.0, larger) + self.error;
            return (1.0 - gamma(8)) / largest.max(1.0);
        }
        // The derivative of the value is decreasing and concave, so Newton's method from 1 does not overshoot.
        let mut scale = 1.0;
        for _ in 0..MAX_STEPS {
            let (mut slope, mut bend) = (0.0, 0.0);
            for weight in &self.weights {
                let excess = scale * weight.abs() - l1_ratio;
                if excess > 0.0 {
                    slope += weight.abs() * excess;
                    bend += weight * weight;
                }
            }
            let factor = lambda / (1.0 - l1_ratio);
            let slope = self.linear - factor * slope;
            if slope >= 0.0 || bend == 0.0 {
                break;
            }
            scale = (scale + slope / (factor * bend)).max(0.0);
        }
        scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(linear: f64, weights: &[f64]) -> DualMixture {
        DualMixture { linear, error: 0.0, weights: weights.to_vec() }
    }

    #[test]
    fn bounds_are_those_of_the_best_scale() {
        // With only an L1 penalty, no scaled entry may be larger than 1.
        let l1 = ElasticNet::new(1.0).unwrap();
        assert!((point(3.0, &[0.5, -4.0]).bound(0.1, l1) - 0.75).abs() < 1e-12);
        assert!((point(3.0, &[0.5, -0.9]).bound(0.1, l1) - 3.0).abs() < 1e-12);
        for l1_ratio in [0.1, 0.5, 0.9] {
            let net = ElasticNet::new(l1_ratio).unwrap();
            for (linear, lambda) in [(3.0, 0.1), (0.3, 2.0), (-1.0, 1.0)] {
                let value = |s: f64| {
                    let excess = |w: f64| (s * w - l1_ratio).max(0.0);
                    let square = excess(0.5).powi(2) + excess(4.0).powi(2) + excess(1.0).powi(2);
                    s * linear - lambda / (1.0 - l1_ratio) / 2.0 * square
                };
                let best = (0..=100_000).map(|i| value(f64::from(i) / 1e5)).fold(0.0, f64::max);
                let bound = point(linear, &[0.5, -4.0, 1.0]).bound(lambda, net);
                assert!((bound - best).abs() < 1e-6, "{bound} {best}");
            }
        }
    }
}
