//! The problem of multinomial logistic regression.

use std::sync::Arc;

use super::columns::{ColumnStats, Squares, estimated_means};
use crate::data::{Data, Rows};
use crate::dual::Shares;
use crate::dual::rounding::{Bounded, Sum};
use crate::error::{Error, Result};
use crate::for_data;

/// Largest fraction of stored entries at which CSR rows count as sparse.
const SPARSE: f64 = 0.25;

/// Rows, labels, and a weight for each example's loss.
///
/// For two classes there is one weight vector: it gives the score of the second class, and the score of the first class
/// is 0.
#[derive(Debug, Clone)]
pub struct LogisticProblem<'a> {
    rows: Data<'a>,
    labels: &'a [u32],
    n_classes: usize,
    /// The weights that were given; c_i is `factor` times the weight of example i.
    weights: Arc<[f64]>,
    factor: f64,
    totals: LogisticTotals,
    spread: Arc<RowSpread>,
    digest: Option<u64>,
}

/// The distances of the rows from a point, in problems with an intercept.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSpread {
    /// The point μ: an approximate mean of dense rows, 0 for CSR rows and without an intercept.
    pub centre: Vec<f64>,
    /// Σ w_i ‖x_i − μ‖² and the largest ‖x_i − μ‖², with the weights that were given; 0 without an intercept.
    pub squares: Squares,
}

/// The quantities of a problem that a certificate needs in addition to sums over the examples.
#[derive(Debug, Clone, PartialEq)]
pub struct LogisticTotals {
    /// Number of examples.
    pub n_examples: usize,
    /// Whether there is an intercept.
    pub intercept: bool,
    /// Σ_i c_i.
    pub total: f64,
    /// Σ c_i over the examples of each class.
    pub class_totals: Vec<f64>,
    /// The largest absolute value of each column.
    pub column_sizes: Vec<f64>,
}

impl LogisticTotals {
    /// Number of scores: 1 for two classes, and otherwise one for each class.
    pub fn n_outputs(&self) -> usize {
        if self.class_totals.len() == 2 { 1 } else { self.class_totals.len() }
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.column_sizes.len()
    }
}

/// A linear model: scores W x + b, one for each output.
#[derive(Debug, Clone, PartialEq)]
pub struct LogisticModel {
    /// W, stored output by output.
    pub weights: Vec<f64>,
    /// b; zeros if there is no intercept.
    pub intercepts: Vec<f64>,
}

impl<'a> LogisticProblem<'a> {
    /// Creates a problem in which the loss of example i has the weight c_i.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `y`, `X` or `sample_weight`: for labels that are not below the number of
    /// classes, fewer than two classes, rows that are not finite, and weights that are negative, not finite or all 0.
    pub fn new(
        rows: Data<'a>,
        labels: &'a [u32],
        n_classes: usize,
        weights: Vec<f64>,
        intercept: bool,
    ) -> Result<Self> {
        Self::build((rows, labels), n_classes, weights, (intercept, false))
    }

    /// Does the same as [`Self::new`], and also computes the digest of dense rows in its pass over
    /// them.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub(crate) fn digested(
        rows: Data<'a>,
        labels: &'a [u32],
        n_classes: usize,
        weights: Vec<f64>,
        intercept: bool,
    ) -> Result<Self> {
        Self::build((rows, labels), n_classes, weights, (intercept, true))
    }

    fn build(
        (rows, labels): (Data<'a>, &'a [u32]),
        n_classes: usize,
        weights: Vec<f64>,
        (intercept, digested): (bool, bool),
    ) -> Result<Self> {
        let n_rows = rows.n_rows();
        if rows.n_cols() == 0 {
            return Err(Error::argument("X", "needs at least one column"));
        }
        if labels.len() != n_rows || weights.len() != n_rows {
            return Err(Error::argument("y", "needs a label and a weight for each row"));
        }
        if n_classes < 2 || labels.iter().any(|label| *label as usize >= n_classes) {
            return Err(Error::argument(
                "y",
                format!("labels must be below {n_classes}, the number of classes"),
            ));
        }
        if !weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0) {
            return Err(Error::argument("sample_weight", "must be finite and not negative"));
        }
        let (total, class_totals) = total_weights((labels, n_classes), weights.iter().copied())?;
        let centre = if intercept { estimated_means(rows) } else { vec![0.0; rows.n_cols()] };
        let measured = intercept.then_some((&centre[..], &weights[..]));
        let ColumnStats { sizes: column_sizes, squares, digest } =
            ColumnStats::of(rows, measured, digested);
        if column_sizes.iter().any(|size| !size.is_finite()) {
            return Err(rows.not_finite(0));
        }
        let square: f64 = column_sizes.iter().map(|size| size * size).sum();
        if !(square * n_rows as f64).is_finite() {
            check_squares(rows, &column_sizes)?;
        }
        let norm = (square + f64::from(u8::from(intercept))).sqrt();
        Shares::new(n_rows, 1.0 / total)?.with_features(std::iter::once(norm))?;
        let totals =
            LogisticTotals { n_examples: n_rows, intercept, total, class_totals, column_sizes };
        let (weights, spread) = (weights.into(), Arc::new(RowSpread { centre, squares }));
        Ok(Self { rows, labels, n_classes, weights, factor: 1.0, totals, spread, digest })
    }

    /// The same problem, in which c_i is the weight that was given for example i times a factor.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `sample_weight`: if the sum of the c_i is 0 or not finite.
    pub fn with_factor(&self, factor: f64) -> Result<Self> {
        let weights = self.weights.iter().map(|weight| factor * weight);
        let (total, class_totals) = total_weights((self.labels, self.n_classes), weights)?;
        Shares::new(self.n_examples(), 1.0 / total)?;
        let totals = LogisticTotals { total, class_totals, ..self.totals.clone() };
        Ok(Self { factor, totals, ..self.clone() })
    }

    /// The rows.
    pub fn rows(&self) -> Data<'a> {
        self.rows
    }

    /// The class of each example.
    pub fn labels(&self) -> &'a [u32] {
        self.labels
    }

    /// Number of examples.
    pub fn n_examples(&self) -> usize {
        self.labels.len()
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.rows.n_cols()
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Number of scores: 1 for two classes, and otherwise one for each class.
    pub fn n_outputs(&self) -> usize {
        self.totals.n_outputs()
    }

    /// c_i, the weight of example i.
    pub fn weight(&self, example: usize) -> f64 {
        self.factor * self.weights[example]
    }

    /// The c_i.
    pub fn weights(&self) -> impl Iterator<Item = f64> + '_ {
        self.weights.iter().map(|weight| self.factor * weight)
    }

    /// The largest c_i.
    pub fn largest_weight(&self) -> f64 {
        self.weights().fold(0.0, f64::max)
    }

    /// Whether there is an intercept.
    pub fn intercept(&self) -> bool {
        self.totals.intercept
    }

    /// Σ_i c_i.
    pub fn total(&self) -> f64 {
        self.totals.total
    }

    /// Σ c_i over the examples of each class.
    pub fn class_totals(&self) -> &[f64] {
        &self.totals.class_totals
    }

    /// The largest absolute value of each column.
    pub fn column_sizes(&self) -> &[f64] {
        &self.totals.column_sizes
    }

    /// The quantities that a certificate needs.
    pub fn totals(&self) -> &LogisticTotals {
        &self.totals
    }

    /// The distances of the rows from a point.
    pub(super) fn spread(&self) -> &RowSpread {
        &self.spread
    }

    /// Σ c_i ‖x_i − μ‖² / Σ c_i, for the point μ of [`Self::spread`].
    pub(super) fn mean_square(&self) -> f64 {
        self.factor * self.spread.squares.sum / self.total()
    }

    /// The digest of dense rows, computed just before the problem read them; None unless requested.
    pub(crate) fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// The model of zeros.
    pub fn zero_model(&self) -> LogisticModel {
        let n_outputs = self.n_outputs();
        LogisticModel {
            weights: vec![0.0; n_outputs * self.n_features()],
            intercepts: vec![0.0; n_outputs],
        }
    }
}

/// Adds up the c_i over all examples, and over the examples of each class.
fn total_weights(
    (labels, n_classes): (&[u32], usize),
    weights: impl Iterator<Item = f64> + Clone,
) -> Result<(f64, Vec<f64>)> {
    let mut class_totals = vec![0.0; n_classes];
    for (label, weight) in labels.iter().zip(weights.clone()) {
        class_totals[*label as usize] += weight;
    }
    let total = Sum::from_iter(weights.map(Bounded::exact)).total().value();
    if !(total > 0.0 && total.is_finite()) {
        let message =
            format!("C times the sum of all weights is {total}; it must be positive and finite");
        return Err(Error::argument("sample_weight", message));
    }
    Ok((total, class_totals))
}

/// Whether rows are CSR and store few of their entries.
pub(super) fn is_sparse(problem: &LogisticProblem<'_>) -> bool {
    let is_csr = problem.rows().is_sparse();
    let n_stored = for_data!(problem.rows(), rows => rows.n_stored());
    is_csr && n_stored as f64 <= SPARSE * problem.n_examples() as f64 * problem.n_features() as f64
}

/// Checks that the sum of the squares of all values does not overflow.
fn check_squares(rows: Data<'_>, column_sizes: &[f64]) -> Result<()> {
    let mut sum = 0.0;
    for row in 0..rows.n_rows() {
        for_data!(rows, rows => rows.visit_row(row, |_, value| sum += value * value));
    }
    if sum.is_finite() {
        return Ok(());
    }
    let largest = column_sizes.iter().copied().fold(0.0, f64::max);
    let message = format!(
        "values up to {largest:.3e} are too large for float64: the sum of their squares overflows; scale the data"
    );
    Err(Error::argument("X", message))
}
