//! What is minimised: Σ_i s_i ℓ(y_i, o(x_i)) + α/2 ‖W‖² subject to Ω(U) ≤ τ (SPEC 2, (5)).
//!
//! The sum is not divided by n. The linear weights W, intercepts among them, stand outside the ball,
//! under a ridge.

use super::kernel::{Augmented, Kernel};
use super::loss::{OutputLoss, Target};
use super::penalty::Penalty;
use crate::data::Rows;
use crate::error::{Error, Result};

/// Targets of all rows.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// A class per row.
    Classes(&'a [u32]),
    /// `n_outputs` values per row, one row after the other.
    Values(&'a [f64]),
}

impl<'a> Targets<'a> {
    /// The target of one row.
    pub fn row(&self, row: usize, n_outputs: usize) -> Target<'a> {
        match self {
            Self::Classes(classes) => Target::Class(classes[row] as usize),
            Self::Values(values) => Target::Values(&values[row * n_outputs..(row + 1) * n_outputs]),
        }
    }

    /// Checks the targets against the loss and the number of rows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `y`.
    pub fn check(&self, loss: &dyn OutputLoss, n_rows: usize, n_outputs: usize) -> Result<()> {
        let fail = |message: String| Err(Error::argument("y", message));
        match self {
            Self::Classes(classes) => {
                if !loss.takes_classes() {
                    return fail(format!("the loss {loss:?} needs values, not classes"));
                }
                if classes.len() != n_rows {
                    return fail(format!("{} labels for {n_rows} rows", classes.len()));
                }
                if classes.iter().any(|&class| class as usize >= n_outputs) {
                    return fail(format!("a label is not below the number of classes {n_outputs}"));
                }
            }
            Self::Values(values) => {
                if loss.takes_classes() {
                    return fail(format!("the loss {loss:?} needs classes, not values"));
                }
                if values.len() != n_rows * n_outputs {
                    return fail(format!(
                        "{} values for {n_rows} rows of {n_outputs}",
                        values.len()
                    ));
                }
                if values.iter().any(|value| !value.is_finite()) {
                    return fail("must not contain NaN or infinity".into());
                }
            }
        }
        Ok(())
    }
}

/// A checked training problem.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a, R> {
    /// The rows.
    pub rows: R,
    /// Their targets.
    pub targets: Targets<'a>,
    /// Number of outputs m.
    pub n_outputs: usize,
    /// Weight s_i of each row; 1 without.
    pub weights: Option<&'a [f64]>,
    /// The kernel.
    pub kernel: Kernel,
    /// Whether the basis sees a feature that is always 1.
    pub augmented: bool,
    /// Ridge α of the linear terms, if there are any.
    pub ridge: Option<f64>,
    /// The loss ℓ.
    pub loss: &'a dyn OutputLoss,
    /// The penalty Ω.
    pub penalty: &'a dyn Penalty,
    /// The radius τ.
    pub radius: f64,
}

impl<R: Rows + Copy> Problem<'_, R> {
    /// Checks shapes and parameters.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the argument.
    pub fn check(&self) -> Result<()> {
        if self.rows.n_rows() == 0 || self.n_outputs == 0 {
            return Err(Error::argument("X", "there must be at least one row and one output"));
        }
        self.targets.check(self.loss, self.rows.n_rows(), self.n_outputs)?;
        if !(self.radius.is_finite() && self.radius > 0.0) {
            return Err(Error::argument("radius", "must be a positive finite number"));
        }
        if self.ridge.is_some_and(|ridge| !(ridge.is_finite() && ridge > 0.0)) {
            return Err(Error::argument("alpha", "must be a positive finite number"));
        }
        if let Some(weights) = self.weights {
            if weights.len() != self.rows.n_rows() {
                return Err(Error::argument("sample_weight", "one weight per row is needed"));
            }
            if weights.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0)) {
                return Err(Error::argument("sample_weight", "must be finite and not negative"));
            }
        }
        Ok(())
    }

    /// The rows as the basis sees them.
    pub fn basis_rows(&self) -> Augmented<R> {
        Augmented { rows: self.rows, ones: self.augmented }
    }

    /// The rows as the linear weights see them: with the intercept's column.
    pub fn linear_rows(&self) -> Augmented<R> {
        Augmented { rows: self.rows, ones: true }
    }

    /// s_i.
    #[inline(always)]
    pub fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// α/2 ‖W‖².
    pub fn ridge_value(&self, linear: Option<&[f64]>) -> f64 {
        match (self.ridge, linear) {
            (Some(ridge), Some(linear)) => 0.5 * ridge * linear.iter().map(|w| w * w).sum::<f64>(),
            _ => 0.0,
        }
    }

    /// s_i ℓ(y_i, o).
    #[inline(always)]
    pub fn row_value(&self, row: usize, outputs: &[f64]) -> f64 {
        self.weight(row) * self.loss.value(self.targets.row(row, self.n_outputs), outputs)
    }

    /// s_i ℓ(y_i, o) and its gradient.
    #[inline(always)]
    pub fn row_loss(&self, row: usize, outputs: &[f64], gradient: &mut [f64]) -> f64 {
        let target = self.targets.row(row, self.n_outputs);
        let value = self.loss.value_and_gradient(target, outputs, gradient);
        match self.weights {
            None => value,
            Some(weights) => {
                gradient.iter_mut().for_each(|g| *g *= weights[row]);
                value * weights[row]
            }
        }
    }
}
