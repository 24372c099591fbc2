//! Objectives with bounds on the optimum.

use crate::error::{Error, Result};

/// A primal value, and a dual value that is a lower bound on the optimum: `dual <= optimum <=
/// primal`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certificate {
    /// Objective of the current model.
    pub primal: f64,
    /// Lower bound on the objective of every model.
    pub dual: f64,
}

impl Certificate {
    /// The duality gap: an upper bound on the current model's distance from the optimum.
    pub fn gap(&self) -> f64 {
        self.primal - self.dual
    }

    /// The gap divided by the objective: the optimum is lower than the objective by at most this fraction of the
    /// objective.
    pub fn relative_gap(&self) -> f64 {
        if self.gap() == 0.0 { 0.0 } else { self.gap() / self.primal.abs() }
    }

    /// Checks that the primal value is finite, the dual value is not NaN, and the dual value is not
    /// above the primal value. Only rounding errors can raise the dual value above the primal value.
    ///
    /// # Errors
    /// [`Error::Numerical`].
    pub fn check(&self) -> Result<()> {
        let Self { primal, dual } = *self;
        if !primal.is_finite() || dual.is_nan() {
            return Err(no_longer_finite());
        }
        if dual > primal {
            return Err(Error::numerical(format!(
                "the lower bound {dual:e} is above the objective {primal:e}: the numbers have lost their \
                 precision"
            )));
        }
        Ok(())
    }
}

/// The error for an objective that is not a number, or infinite.
pub fn no_longer_finite() -> Error {
    Error::numerical("the objective is no longer finite")
}
