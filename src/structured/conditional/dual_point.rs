//! The best dual point so far.

use crate::dual::DualValue;
use crate::dual::rounding::{Bounded, gamma, norm_above};
use crate::linalg::vectors::dot;

/// The terms of distributions α in the dual: entropy and weights.
#[derive(Debug, Clone)]
pub struct DualMixture {
    /// Σ p_i H(α_i), rounded down.
    pub linear: f64,
    /// An upper bound on the distance of the computed weights from w(α).
    pub error: f64,
    /// w(α).
    pub weights: Vec<f64>,
}

impl DualMixture {
    /// D, rounded down.
    pub fn value(&self, lambda: f64) -> f64 {
        self.value_at(lambda, 1.0)
    }

    /// D of the same distributions at λ/`factor`, rounded down.
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

    /// Moves towards another point by the best step: entropy is concave, so the entropy of a
    /// mixture of distributions is at least the mixture of their entropies.
    pub fn improve(&mut self, other: &Self, lambda: f64) {
        let (own, cross) = (dot(&self.weights, &self.weights), dot(&self.weights, &other.weights));
        let length = own - 2.0 * cross + dot(&other.weights, &other.weights);
        let slope = other.linear - self.linear + lambda * (own - cross);
        // If rounding cancels the difference, takes the better one of the two points.
        let step = if length > 0.0 { slope / (lambda * length) } else { f64::from(slope > 0.0) };
        let step = if step.is_nan() { 0.0 } else { step.clamp(0.0, 1.0) };
        let before = self.value(lambda);
        let mut mixed = self.clone();
        let mix = |a: f64, b: f64| (1.0 - step) * a + step * b;
        let linear = mix(self.linear, other.linear);
        let size = self.linear.abs() + other.linear.abs();
        mixed.linear = linear - gamma(4) * size;
        let largest = |weights: &[f64]| norm_above(weights);
        let rounding = gamma(4) * (largest(&self.weights) + largest(&other.weights));
        mixed.error = (mix(self.error, other.error) + rounding) * (1.0 + gamma(8));
        mixed.weights.iter_mut().zip(&other.weights).for_each(|(a, b)| *a = mix(*a, *b));
        if mixed.value(lambda) > before {
            *self = mixed;
        }
    }
}
