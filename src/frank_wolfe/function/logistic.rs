//! The sum of logistic losses.

use super::least_squares::{check_targets, checked_columns};
use super::{FunctionRounding, SmoothFunction};
use crate::data::Data;
use crate::dual::rounding::{gamma, root_above};
use crate::error::{Error, Result};
use crate::frank_wolfe::columns::Columns;

/// The function f(x) = Σ_i ln(1 + exp(−y_i ⟨a_i, x⟩)) for labels y_i in {−1, 1}.
#[derive(Debug, Clone)]
pub struct LogisticSum {
    columns: Columns,
    labels: Vec<f64>,
}

impl LogisticSum {
    /// Creates the function, with a copy of A stored by columns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `y` has −1 or 1 for each row of A, and A has a column and
    /// finite entries.
    pub fn new(a: &Data<'_>, y: &[f64]) -> Result<Self> {
        let columns = checked_columns(a)?;
        check_targets("y", &columns, y)?;
        match y.iter().find(|label| label.abs() != 1.0) {
            Some(label) => Err(Error::argument("y", format!("must be -1 or 1, got {label}"))),
            None => Ok(Self { columns, labels: y.to_vec() }),
        }
    }
}

impl SmoothFunction for LogisticSum {
    fn n_coordinates(&self) -> usize {
        self.columns.n_cols()
    }

    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let mut scores = vec![0.0; self.columns.n_rows()];
        self.columns.add_product(x.iter().copied().enumerate(), &mut scores);
        let mut value = 0.0;
        for (score, y) in scores.iter_mut().zip(&self.labels) {
            let margin = y * *score;
            let small = (-margin.abs()).exp();
            value += (-margin).max(0.0) + small.ln_1p();
            // Computes −y σ(−margin).
            let share = if margin > 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) };
            *score = -y * share;
        }
        self.columns.transposed_times(&scores, gradient);
        Ok(value)
    }

    fn rounding(&self, x: &[f64], value: f64) -> FunctionRounding {
        // The tangents at the computed scores bound f from below, so the errors of the scores enter only at x. The
        // curvature of a loss is at most 1/4; its slope is at most 1, and at most the loss. The library functions are
        // correct to a few units in the last place.
        let (size, n_terms) = self.columns.product_size(x);
        let scores = gamma(n_terms + 4) * size;
        let sums = gamma(self.columns.n_rows() + 16);
        let slopes = root_above((value * (1.0 + sums)).min(self.columns.n_rows() as f64));
        let products = self.columns.rounding() + gamma(16);
        FunctionRounding {
            value: (slopes * scores + scores * scores + sums * value) * (1.0 + gamma(8)),
            gradient: self.columns.largest_norm() * products * slopes * (1.0 + gamma(8)),
        }
    }
}
