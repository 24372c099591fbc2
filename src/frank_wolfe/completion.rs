//! The squared error of a matrix on its observed entries.

use std::ops::Range;

use super::function::{FunctionRounding, SmoothFunction};
use super::vertex::Vertex;
use crate::dual::rounding::{gamma, norm_above};
use crate::error::{Error, Result};

/// f(X) = ½ Σ over observed (i, j) of (X_ij − m_ij)², for matrices stored row after row.
///
/// Over a [`NuclearNormBall`](super::NuclearNormBall),
/// [`FrankWolfeOptions::complete`](super::FrankWolfeOptions::complete) keeps X as a product of
/// factors.
#[derive(Debug, Clone)]
pub struct MatrixCompletion {
    shape: (usize, usize),
    /// The index of the first entry of each row.
    pub(super) row_starts: Vec<usize>,
    pub(super) columns: Vec<u32>,
    pub(super) values: Vec<f64>,
    /// The same entries by column: the index of the first entry of each column, and for each entry
    /// its row and its index in the order by rows.
    pub(super) column_starts: Vec<usize>,
    pub(super) rows: Vec<u32>,
    pub(super) places: Vec<u32>,
}

impl MatrixCompletion {
    /// Creates the function for a matrix with the observed `values` at (`rows`, `columns`).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless the three slices have the same length, the indices are
    /// inside the shape, no position occurs twice, and the values are finite.
    pub fn new(
        shape: (usize, usize),
        rows: &[u32],
        columns: &[u32],
        values: &[f64],
    ) -> Result<Self> {
        let n = values.len();
        if rows.len() != n || columns.len() != n {
            let message =
                format!("must have one entry for each value, got {} for {n} values", rows.len());
            return Err(Error::argument("rows", message));
        }
        let limit = u32::MAX as usize;
        if shape.0 == 0 || shape.1 == 0 || shape.0 > limit || shape.1 > limit || n > limit {
            return Err(Error::argument(
                "shape",
                format!("must be positive and below 2**32, got {shape:?}"),
            ));
        }
        for (name, indices, size) in [("rows", rows, shape.0), ("columns", columns, shape.1)] {
            if let Some(index) = indices.iter().find(|index| **index as usize >= size) {
                let message = format!("must be below the size {size} of the matrix, got {index}");
                return Err(Error::argument(name, message));
            }
        }
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(Error::argument("values", format!("must be finite, got {value}")));
        }
        // The entries are sorted by column first, so that the stable sort by row leaves each row in
        // the order of the columns.
        let given: Vec<u32> = (0..n as u32).collect();
        let (_, by_column) = counting_sort(&given, columns, shape.1);
        let (row_starts, order) = counting_sort(&by_column, rows, shape.0);
        let picked = |from: &[u32]| order.iter().map(|at| from[*at as usize]).collect::<Vec<u32>>();
        let (rows, columns) = (picked(rows), picked(columns));
        for row in 0..shape.0 {
            let own = &columns[row_starts[row]..row_starts[row + 1]];
            if let Some(pair) = own.windows(2).find(|pair| pair[0] == pair[1]) {
                let message =
                    format!("the entry ({row}, {}) occurs twice; average its values", pair[0]);
                return Err(Error::argument("rows", message));
            }
        }
        let values = order.iter().map(|at| values[*at as usize]).collect();
        let (column_starts, places) = counting_sort(&given, &columns, shape.1);
        let rows = places.iter().map(|place| rows[*place as usize]).collect();
        Ok(Self { shape, row_starts, columns, values, column_starts, rows, places })
    }

    /// (rows, columns).
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// Number of observed entries.
    pub fn n_observed(&self) -> usize {
        self.values.len()
    }

    /// The indices of a row's entries.
    pub(super) fn row(&self, row: usize) -> Range<usize> {
        self.row_starts[row]..self.row_starts[row + 1]
    }

    /// The coordinate of each entry in the matrix as a vector, in order.
    fn coordinates(&self) -> impl Iterator<Item = usize> {
        let rows = (0..self.shape.0).flat_map(|row| self.row(row).map(move |_| row));
        rows.zip(&self.columns).map(|(row, column)| row * self.shape.1 + *column as usize)
    }
}

/// Sorts items by key, stably; returns the first index of each key, and the sorted items.
fn counting_sort(items: &[u32], keys: &[u32], n_keys: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; n_keys + 1];
    keys.iter().for_each(|key| starts[*key as usize + 1] += 1);
    for key in 0..n_keys {
        starts[key + 1] += starts[key];
    }
    let (mut next, mut sorted) = (starts.clone(), vec![0; items.len()]);
    for item in items {
        let place = &mut next[keys[*item as usize] as usize];
        sorted[*place] = *item;
        *place += 1;
    }
    (starts, sorted)
}

impl SmoothFunction for MatrixCompletion {
    fn n_coordinates(&self) -> usize {
        self.shape.0 * self.shape.1
    }

    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        gradient.fill(0.0);
        let mut value = 0.0;
        for (at, observed) in self.coordinates().zip(&self.values) {
            let residual = x[at] - observed;
            gradient[at] += residual;
            value += 0.5 * residual * residual;
        }
        Ok(value)
    }

    fn is_quadratic(&self) -> bool {
        true
    }

    fn hessian_product(&self, vector: &Vertex, product: &mut [f64]) -> Result<()> {
        let dense = vector.to_dense(product.len());
        product.fill(0.0);
        self.coordinates().for_each(|at| product[at] += dense[at]);
        Ok(())
    }

    fn rounding(&self, x: &[f64]) -> FunctionRounding {
        let largest = x.iter().chain(&self.values).map(|x| x.abs()).fold(0.0, f64::max);
        let size = norm_above(x) + norm_above(&self.values);
        let n = self.n_observed();
        FunctionRounding {
            value: gamma(n + 8) * n as f64 * (4.0 * largest * largest).min(size * size),
            gradient: gamma(n.min(1 << 20) + 4) * 2.0 * largest,
        }
    }
}
