//! The intercept between passes: the multiplier of its constraint Σ c_i (e_y − α_i) = 0.
//!
//! A pass treats the intercept as the weight of a constant feature of square β², counted from a centre: the method of
//! multipliers (Hestenes 1969; Powell 1969). Between passes the centre moves to the intercept.

use super::state::DualState;
use crate::logistic::LogisticProblem;

/// The first β², in units of the mean squared norm of the rows.
const FIRST: f64 = 0.03;
/// The largest β² in these units.
const LARGEST: f64 = 0.3;
/// Factor of β² when the violation of the constraint hardly falls.
const GROWTH: f64 = 2.0;

/// The method of multipliers between passes.
pub(super) struct Multiplier {
    /// β² in units of the mean squared norm of the rows.
    square: f64,
    violation: f64,
}

impl Multiplier {
    /// Starts at the first β².
    pub fn new(state: &mut dyn DualState) -> Self {
        state.set_constant(FIRST);
        Self { square: FIRST, violation: f64::INFINITY }
    }

    /// Goes on with another state.
    pub fn resume(&self, state: &mut dyn DualState) {
        state.set_constant(self.square);
    }

    /// Moves the centre; returns what the violation of the constraint takes from the dual value, roughly.
    pub fn step(&mut self, state: &mut dyn DualState) -> f64 {
        let (residual, variance) = state.residual();
        let pairs = residual.iter().zip(&variance);
        let violation: f64 =
            pairs.map(|(r, variance)| 0.5 * r * (r / variance.max(f64::MIN_POSITIVE))).sum();
        if violation > 0.25 * self.violation && self.square < LARGEST {
            self.square = (GROWTH * self.square).min(LARGEST);
            state.set_constant(self.square);
        }
        self.violation = violation;
        state.add_to_intercepts(&residual);
        violation
    }
}

/// The intercepts that are optimal at W = 0.
pub(super) fn at_zero(problem: &LogisticProblem<'_>) -> Vec<f64> {
    // A class without weight has no optimal intercept.
    let least = 1e-6 * problem.total() / problem.n_classes() as f64;
    let logs: Vec<f64> = problem.class_totals().iter().map(|sum| sum.max(least).ln()).collect();
    if let [first, second] = logs[..] {
        return vec![second - first];
    }
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    logs.into_iter().map(|log| log - mean).collect()
}
