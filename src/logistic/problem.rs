//! The problem of multinomial logistic regression.

use rayon::prelude::*;

use crate::data::{Data, Rows};
use crate::dual::Shares;
use crate::dual::rounding::{Bounded, Sum};
use crate::error::{Error, Result};
use crate::for_data;
use crate::linalg::vectors::larger_or_nan;
use crate::parallel::parts;

/// Largest share of stored entries at which CSR rows count as sparse.
const SPARSE: f64 = 0.25;

/// Rows, labels, and a weight for each example's loss.
///
/// For two classes there is one weight vector: it gives the score of the second class, and the score of the first is 0.
#[derive(Debug, Clone)]
pub struct LogisticProblem<'a> {
    rows: Data<'a>,
    labels: &'a [u32],
    n_classes: usize,
    weights: Vec<f64>,
    intercept: bool,
    total: f64,
    class_totals: Vec<f64>,
    column_sizes: Vec<f64>,
}

/// A linear model: scores W x + b, one for each output.
#[derive(Debug, Clone, PartialEq)]
pub struct LogisticModel {
    /// W, output after output.
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
        let n_rows = rows.n_rows();
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
        let mut class_totals = vec![0.0; n_classes];
        for (label, weight) in labels.iter().zip(&weights) {
            class_totals[*label as usize] += weight;
        }
        let total = Sum::from_iter(weights.iter().copied().map(Bounded::exact)).total().value();
        if !(total > 0.0 && total.is_finite()) {
            let message =
                format!("C times all weights add up to {total}; must be positive and finite");
            return Err(Error::argument("sample_weight", message));
        }
        let column_sizes = column_sizes(rows);
        if let Some(column) = column_sizes.iter().position(|size| !size.is_finite()) {
            let message = format!("contains NaN or infinity, in column {column}");
            return Err(Error::argument("X", message));
        }
        let square: f64 = column_sizes.iter().map(|size| size * size).sum();
        let norm = (square + f64::from(u8::from(intercept))).sqrt();
        Shares::new(n_rows, 1.0 / total)?.with_features(std::iter::once(norm))?;
        Ok(Self { rows, labels, n_classes, weights, intercept, total, class_totals, column_sizes })
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
        if self.n_classes == 2 { 1 } else { self.n_classes }
    }

    /// The c_i.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Whether there is an intercept.
    pub fn intercept(&self) -> bool {
        self.intercept
    }

    /// Σ_i c_i.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Σ c_i over the examples of each class.
    pub fn class_totals(&self) -> &[f64] {
        &self.class_totals
    }

    /// The largest absolute value of each column.
    pub fn column_sizes(&self) -> &[f64] {
        &self.column_sizes
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

/// Whether rows are CSR and store few of their entries.
pub(super) fn is_sparse(problem: &LogisticProblem<'_>) -> bool {
    let is_csr = matches!(problem.rows(), Data::Csr32(_) | Data::Csr64(_));
    let n_stored = for_data!(problem.rows(), rows => rows.n_stored());
    is_csr && n_stored as f64 <= SPARSE * problem.n_examples() as f64 * problem.n_features() as f64
}

/// The largest absolute value of each column; NaN for columns that contain NaN.
fn column_sizes(rows: Data<'_>) -> Vec<f64> {
    let largest = |range: std::ops::Range<usize>| {
        let mut sizes = vec![0.0_f64; rows.n_cols()];
        for row in range {
            match rows {
                Data::Dense64(rows) => {
                    // Without bounds checks, the compiler vectorises over the columns.
                    let pairs = sizes.iter_mut().zip(rows.row(row));
                    pairs.for_each(|(size, value)| *size = larger_or_nan(*size, value.abs()));
                }
                _ => for_data!(rows, rows => rows.visit_row(row, |column, value| {
                    sizes[column] = larger_or_nan(sizes[column], value.abs());
                })),
            }
        }
        sizes
    };
    let found: Vec<Vec<f64>> = parts(rows.n_rows()).into_par_iter().map(largest).collect();
    let mut found = found.into_iter();
    let mut sizes = found.next().unwrap_or_default();
    for other in found {
        sizes.iter_mut().zip(other).for_each(|(a, b)| *a = larger_or_nan(*a, b));
    }
    sizes
}
