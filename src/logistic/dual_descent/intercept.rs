//! Updates of the intercept between passes. The intercept is the multiplier of the constraint Σ c_i (e_y − α_i) = 0.
//!
//! A pass treats the intercept minus a centre as the weight of a constant feature with square β². Between passes, the
//! centre moves to the current intercept. This is the method of multipliers (Hestenes 1969; Powell 1969).

use super::state::DualState;
use crate::logistic::LogisticProblem;

/// Initial β², in units of the mean squared norm of the rows.
const FIRST: f64 = 0.03;
/// The largest β² in these units.
const LARGEST: f64 = 0.3;
/// Factor by which β² grows when the violation of the constraint hardly falls.
const GROWTH: f64 = 2.0;

/// The method of multipliers between passes.
pub(super) struct Multiplier {
    /// Square β² of the constant feature, in units of the mean squared norm of the rows.
    square: f64,
    violation: f64,
}

impl Multiplier {
    /// Starts with β² = `FIRST`, and passes it to the state.
    pub fn new(state: &mut dyn DualState) -> Self {
        state.set_constant(FIRST);
        Self { square: FIRST, violation: f64::INFINITY }
    }

    /// Continues with another state.
    pub fn resume(&self, state: &mut dyn DualState) {
        state.set_constant(self.square);
    }

    /// Moves the centre to the current intercept. Returns an estimate of how much the violation of the constraint
    /// lowers the dual value.
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

/// The optimal intercepts at W = 0.
pub(super) fn at_zero(problem: &LogisticProblem<'_>) -> Vec<f64> {
    // A class whose examples have no weight has no optimal intercept.
    let least = 1e-6 * problem.total() / problem.n_classes() as f64;
    let logs: Vec<f64> = problem.class_totals().iter().map(|sum| sum.max(least).ln()).collect();
    if let [first, second] = logs[..] {
        return vec![second - first];
    }
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    logs.into_iter().map(|log| log - mean).collect()
}
