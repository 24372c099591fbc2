//! Objectives with their bounds.

use crate::error::{Error, Result};

/// A primal value and a dual value that bounds the optimum from below: `dual <= optimum <= primal`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certificate {
    /// Objective of the current model.
    pub primal: f64,
    /// Lower bound on the objective of every model.
    pub dual: f64,
}

impl Certificate {
    /// The duality gap: how far from the optimum the current model can be.
    pub fn gap(&self) -> f64 {
        self.primal - self.dual
    }

    /// The gap in units of the objective: the model is at most this share above the best possible one.
    pub fn relative_gap(&self) -> f64 {
        if self.gap() == 0.0 { 0.0 } else { self.gap() / self.primal.abs() }
    }

    /// Refuses values that are no numbers, and a dual value above the primal one, which only lost digits can
    /// bring about.
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
