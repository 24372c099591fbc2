//! The training problem: minimise F = Σ_i s_i ℓ(y_i, o(x_i)) + α/2 ‖W‖² subject to Ω(U) ≤ τ
//! (Blondel et al. 2017, (5)).
//!
//! The sum is not divided by n. The ball does not constrain the linear weights W, which include the
//! intercepts; they have a ridge penalty (docs/mathematics/polynomial-networks.md#problem).

use super::kernel::PolynomialKernel;
use super::loss::{LossTarget, OutputLoss};
use super::model::PolynomialModel;
use super::sparse_columns::{SparseColumns, is_wide};
use crate::data::{Augmented, Rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::vectors::squared_norm_in_order;
use crate::penalty::Penalty;
#[cfg(feature = "python")]
use crate::polynomial::spectral::side_by_side::VECTORS_PER_PASS;

/// Targets of all rows.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// A class per row.
    Classes(&'a [u32]),
    /// `n_outputs` values per row, row by row.
    Values(&'a [f64]),
}

impl<'a> Targets<'a> {
    /// The target of one row.
    pub fn row(&self, row: usize, n_outputs: usize) -> LossTarget<'a> {
        match self {
            Self::Classes(classes) => LossTarget::Class(classes[row] as usize),
            Self::Values(values) => {
                LossTarget::Values(&values[row * n_outputs..(row + 1) * n_outputs])
            }
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
                    return fail(format!("has {} labels, but X has {n_rows} rows", classes.len()));
                }
                if classes.iter().any(|&class| class as usize >= n_outputs) {
                    return fail(format!("labels must be below the number of classes {n_outputs}"));
                }
            }
            Self::Values(values) => {
                if loss.takes_classes() {
                    return fail(format!("the loss {loss:?} needs classes, not values"));
                }
                if values.len() != n_rows * n_outputs {
                    return fail(format!(
                        "has {} values, but X has {n_rows} rows with {n_outputs} outputs each",
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

/// The choices that define the objective.
#[derive(Debug, Clone, Copy)]
pub struct Objective<'a> {
    /// Number of outputs m.
    pub n_outputs: usize,
    /// The kernel.
    pub kernel: PolynomialKernel,
    /// Whether the basis vectors have an entry for a feature that is always 1.
    pub augmented: bool,
    /// Ridge α of the linear terms; None for a model without linear terms.
    pub ridge: Option<f64>,
    /// The loss ℓ.
    pub loss: &'a dyn OutputLoss,
    /// The penalty Ω.
    pub penalty: &'a dyn Penalty,
    /// The radius τ.
    pub radius: f64,
    /// The means that the caller subtracted from the targets and will add to the intercepts of the fitted model; empty
    /// if there are none. The bound on the rounding errors of the objective covers this addition.
    pub target_means: &'a [f64],
}

/// Number of bytes for a copy of the rows stored by columns and for the factors of each row in a sum over columns; 0 if
/// a problem stores neither.
#[cfg(feature = "python")]
pub(crate) fn column_memory(rows: impl Rows, n_outputs: usize) -> u128 {
    let rows = Augmented { rows, ones: true };
    if is_wide(&rows, n_outputs) {
        SparseColumns::bytes(&rows)
            + 8 * rows.n_rows() as u128 * n_outputs.max(VECTORS_PER_PASS) as u128
    } else {
        0
    }
}

/// A checked training problem.
#[derive(Debug, Clone)]
pub struct PolynomialProblem<'a, R> {
    pub(super) rows: R,
    /// A copy of the rows stored by columns, with a last column of ones. It exists if per-thread sums over the rows
    /// would take more memory than this copy.
    pub(super) columns: Option<SparseColumns>,
    targets: Targets<'a>,
    /// Sample weights s_i; None means that all are 1.
    weights: Option<&'a [f64]>,
    pub(super) objective: Objective<'a>,
}

impl<'a, R: Rows + Copy> PolynomialProblem<'a, R> {
    /// Checks shapes and parameters. `weights` holds the weight s_i of each row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the argument.
    pub fn new(
        rows: R,
        targets: Targets<'a>,
        weights: Option<&'a [f64]>,
        objective: Objective<'a>,
    ) -> Result<Self> {
        if rows.n_rows() == 0 || objective.n_outputs == 0 {
            return Err(Error::argument("X", "there must be at least one row and one output"));
        }
        if rows.n_cols() == 0 {
            return Err(Error::argument("X", "must have at least one column"));
        }
        targets.check(objective.loss, rows.n_rows(), objective.n_outputs)?;
        if !(objective.radius.is_finite() && objective.radius > 0.0) {
            return Err(Error::argument("radius", "must be a positive finite number"));
        }
        if objective.ridge.is_some_and(|ridge| !(ridge.is_finite() && ridge > 0.0)) {
            return Err(Error::argument("alpha", "must be a positive finite number"));
        }
        let means = objective.target_means;
        if !means.is_empty() && means.len() != objective.n_outputs
            || means.iter().any(|mean| !mean.is_finite())
        {
            return Err(Error::argument("target_means", "must be one finite number per output"));
        }
        if let Some(weights) = weights {
            if weights.len() != rows.n_rows() {
                return Err(Error::argument("sample_weight", "must have one weight for each row"));
            }
            if weights.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0)) {
                return Err(Error::argument("sample_weight", "must be finite and not negative"));
            }
        }
        Ok(Self { rows, columns: None, targets, weights, objective })
    }

    /// Stores a copy of the rows by columns if per-thread sums over the rows would take more memory than the copy.
    pub(super) fn keep_columns(&mut self, interrupt: &Interrupt) -> Result<()> {
        let rows = self.linear_rows();
        if self.columns.is_none() && is_wide(&rows, self.objective.n_outputs) {
            self.columns = SparseColumns::new(&rows, interrupt)?;
        }
        Ok(())
    }

    /// The model without basis vectors and with all linear weights 0.
    pub fn null_model(&self) -> PolynomialModel {
        let Objective { n_outputs, kernel, augmented, ridge, .. } = self.objective;
        let n_features = self.rows.n_cols();
        PolynomialModel::new(kernel, augmented, n_features, n_outputs, ridge.is_some())
    }

    /// The rows that the basis is multiplied by, with a column of ones if the basis is augmented.
    pub(super) fn basis_rows(&self) -> Augmented<R> {
        Augmented { rows: self.rows, ones: self.objective.augmented }
    }

    /// The rows that the linear weights are multiplied by, with a column of ones for the intercept.
    pub(super) fn linear_rows(&self) -> Augmented<R> {
        Augmented { rows: self.rows, ones: true }
    }

    /// Sample weight s_i of a row.
    #[inline(always)]
    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// The ridge term α/2 ‖W‖² of linear weights.
    pub(super) fn ridge_value(&self, linear: Option<&[f64]>) -> f64 {
        match (self.objective.ridge, linear) {
            (Some(ridge), Some(linear)) => 0.5 * ridge * squared_norm_in_order(linear),
            _ => 0.0,
        }
    }

    /// Returns the weighted loss s_i ℓ(y_i, o) of a row, and writes its gradient.
    #[inline(always)]
    pub(super) fn row_loss(&self, row: usize, outputs: &[f64], gradient: &mut [f64]) -> f64 {
        let target = self.targets.row(row, self.objective.n_outputs);
        let value = self.objective.loss.value_and_gradient(target, outputs, gradient);
        match self.weights {
            None => value,
            Some(weights) => {
                gradient.iter_mut().for_each(|g| *g *= weights[row]);
                value * weights[row]
            }
        }
    }
}
