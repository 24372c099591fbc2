//! Prior means for the factors of click models, from features.
//!
//! For a row with features x, the ridge pulls the factors z towards x B instead of towards 0. Given
//! the factors, the weights B minimise
//!
//! ```text
//! Σ ridge ‖z − x B‖² + η mean(ridge) ‖B‖²
//! ```
//!
//! over the rows that have pairs. A row without pairs has the factors x B.

use crate::data::{Csr, Rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::products::{multiply, multiply_squared_transposed, multiply_transposed};

/// Number of conjugate gradient steps after each sweep. The next sweep continues from the result.
const STEPS: usize = 5;

/// A column has converged when its squared residual, in the norm of the preconditioner, is below this fraction of its
/// initial value.
const SMALL: f64 = 1e-20;

/// Features of one side's rows, each row multiplied by the square root of its ridge, and the
/// features' weights.
#[derive(Debug)]
pub(super) struct ClickFeatures {
    d: usize,
    offsets: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
    n_cols: usize,
    /// Square root of the ridge of each row.
    roots: Vec<f64>,
    /// Ridge on the feature weights: η times the mean ridge of the rows.
    ridge: f64,
    /// Diagonal of the normal equations, one value per feature.
    diagonal: Vec<f64>,
    /// Feature weights B, with `d` values per feature.
    weights: Vec<f64>,
    /// Prior mean x B of each row, where x are the row's features.
    means: Vec<f64>,
}

impl Rows for ClickFeatures {
    fn n_rows(&self) -> usize {
        self.roots.len()
    }

    fn n_cols(&self) -> usize {
        self.n_cols
    }

    #[inline(always)]
    fn visit_row(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        for at in self.offsets[row]..self.offsets[row + 1] {
            visit(self.columns[at] as usize, self.values[at]);
        }
    }

    fn n_stored(&self) -> usize {
        self.values.len()
    }
}

impl ClickFeatures {
    /// Copies the features of the ids in `used`. `ridges` holds the ridge of each of these ids. All weights start at 0.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless each of the `n_ids` ids has a row of finite features;
    /// [`Error::Interrupted`].
    pub fn new(
        features: Csr<'_, f64>,
        (used, n_ids): (&[u32], usize),
        (ridges, eta): (&[f64], f64),
        d: usize,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if features.n_rows() != n_ids {
            let message = format!("has {} rows, but there are {n_ids} ids", features.n_rows());
            return Err(Error::argument("features", message));
        }
        if !(eta > 0.0 && eta.is_finite()) {
            return Err(Error::argument("feature_ridge", "must be a positive number"));
        }
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        let roots: Vec<f64> = ridges.iter().map(|ridge| ridge.sqrt()).collect();
        for (&id, root) in used.iter().zip(&roots) {
            features.visit_row(id as usize, |column, value| {
                columns.push(column as u32);
                values.push(value * root);
            });
            offsets.push(values.len());
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::argument("features", "must be finite numbers"));
        }
        let (n_cols, n_rows) = (features.n_cols(), used.len());
        let ridge = eta * ridges.iter().sum::<f64>() / n_rows.max(1) as f64;
        let mut result = Self {
            d,
            offsets,
            columns,
            values,
            n_cols,
            roots,
            ridge,
            diagonal: Vec::new(),
            weights: vec![0.0; n_cols * d],
            means: vec![0.0; n_rows * d],
        };
        let ones = vec![1.0; n_rows];
        result.diagonal = multiply_squared_transposed(&result, &ones, 1, interrupt)?;
        result.diagonal.iter_mut().for_each(|value| *value += ridge);
        Ok(result)
    }

    /// Prior mean of a row: its features times B.
    pub fn mean(&self, row: usize) -> &[f64] {
        &self.means[row * self.d..][..self.d]
    }

    /// Feature weights B, with a row of `d` values for each feature.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The penalty η mean(ridge) ‖B‖² on the feature weights.
    pub fn penalty(&self) -> f64 {
        self.ridge * self.weights.iter().map(|value| value * value).sum::<f64>()
    }

    /// Applies a linear map to the rows of B and to the means.
    pub fn map(&mut self, apply: impl Fn(Vec<f64>) -> Result<Vec<f64>>) -> Result<()> {
        self.weights = apply(std::mem::take(&mut self.weights))?;
        self.means = apply(std::mem::take(&mut self.means))?;
        Ok(())
    }

    /// Moves B towards its optimum for the given factors, by a few conjugate gradient steps on all
    /// columns at once.
    pub fn learn(&mut self, factors: &[f64], interrupt: &Interrupt) -> Result<()> {
        let d = self.d;
        let mut rest: Vec<f64> = factors.iter().zip(&self.means).map(|(z, m)| z - m).collect();
        for (row, root) in rest.chunks_exact_mut(d).zip(&self.roots) {
            row.iter_mut().for_each(|value| *value *= root);
        }
        let mut residual = multiply_transposed(self, &rest, d, interrupt)?;
        for (residual, weight) in residual.iter_mut().zip(&self.weights) {
            *residual -= self.ridge * weight;
        }
        let mut direction = self.preconditioned(&residual);
        let mut sizes = column_products(&residual, &direction, d);
        let enough: Vec<f64> = sizes.iter().map(|size| SMALL * size).collect();
        for _ in 0..STEPS {
            let image = multiply(self, &direction, d, interrupt)?;
            let mut product = multiply_transposed(self, &image, d, interrupt)?;
            for (product, direction) in product.iter_mut().zip(&direction) {
                *product += self.ridge * direction;
            }
            let curvatures = column_products(&direction, &product, d);
            let active = |c: usize| sizes[c] > enough[c] && curvatures[c] > 0.0;
            let lengths: Vec<f64> =
                (0..d).map(|c| if active(c) { sizes[c] / curvatures[c] } else { 0.0 }).collect();
            add_columns(&mut self.weights, &lengths, 1.0, &direction);
            add_columns(&mut residual, &lengths, -1.0, &product);
            let solved = self.preconditioned(&residual);
            let next = column_products(&residual, &solved, d);
            let shares: Vec<f64> =
                (0..d).map(|c| if active(c) { next[c] / sizes[c] } else { 0.0 }).collect();
            let before = std::mem::replace(&mut direction, solved);
            add_columns(&mut direction, &shares, 1.0, &before);
            sizes = next;
        }
        self.means = multiply(self, &self.weights, d, interrupt)?;
        for (row, root) in self.means.chunks_exact_mut(d).zip(&self.roots) {
            row.iter_mut().for_each(|value| *value /= root);
        }
        Ok(())
    }

    /// Returns the residual, with each feature's row divided by the feature's diagonal entry.
    fn preconditioned(&self, residual: &[f64]) -> Vec<f64> {
        let rows = residual.chunks_exact(self.d).zip(&self.diagonal);
        rows.flat_map(|(row, diagonal)| row.iter().map(move |value| value / diagonal)).collect()
    }
}

/// Inner products of the corresponding columns of two tables with `d` columns.
fn column_products(a: &[f64], b: &[f64], d: usize) -> Vec<f64> {
    let mut sums = vec![0.0; d];
    for (a, b) in a.chunks_exact(d).zip(b.chunks_exact(d)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums
}

/// Adds column c of `from`, multiplied by `sign` · scales_c, to column c of `to`.
fn add_columns(to: &mut [f64], scales: &[f64], sign: f64, from: &[f64]) {
    let d = scales.len();
    for (to, from) in to.chunks_exact_mut(d).zip(from.chunks_exact(d)) {
        for ((to, scale), from) in to.iter_mut().zip(scales).zip(from) {
            *to += sign * scale * from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_solve_the_weighted_ridge_regression() {
        // Rows of the ids 0, 2 and 3, with two features; id 1 has no pairs.
        let (offsets, columns) = ([0, 2, 3, 4, 6], [0, 1, 0, 1, 0, 1]);
        let values = [1.0, 0.5, 9.0, -1.0, 0.3, 2.0];
        let features = Csr::new(&offsets, &columns, &values, 2).unwrap();
        let (used, ridges, eta, d) = ([0, 2, 3], [1.0, 4.0, 2.0], 0.1, 8);
        let interrupt = Interrupt::default();
        let mut fit =
            ClickFeatures::new(features, (&used, 4), (&ridges, eta), d, &interrupt).unwrap();
        let factors: Vec<f64> = (0..3 * d)
            .map(|at| if at % d < 3 { (at * 7 % 11) as f64 - 5.0 } else { 0.0 })
            .collect();
        fit.learn(&factors, &interrupt).unwrap();
        let x = [[1.0, 0.5], [0.0, -1.0], [0.3, 2.0]];
        for c in 0..d {
            let b = [fit.weights()[c], fit.weights()[d + c]];
            for feature in 0..2 {
                let mut gradient = -eta * ridges.iter().sum::<f64>() / 3.0 * b[feature];
                for (row, x) in x.iter().enumerate() {
                    let mean = x[0] * b[0] + x[1] * b[1];
                    assert!((fit.mean(row)[c] - mean).abs() < 1e-12);
                    gradient += ridges[row] * x[feature] * (factors[row * d + c] - mean);
                }
                assert!(gradient.abs() < 1e-9, "{c}, {feature}: {gradient}");
            }
        }
        let wrong = ClickFeatures::new(features, (&used, 5), (&ridges, eta), d, &interrupt);
        assert!(wrong.is_err());
    }
}
