//! The squared error of a matrix on its observed entries.

use std::ops::Range;

use super::function::{FunctionRounding, SmoothFunction};
use super::vertex::Vertex;
use crate::dual::rounding::gamma;
use crate::error::{Error, Result};
use crate::linalg::grouped;

/// The function f(X) = ½ Σ over observed (i, j) of (X_ij − m_ij)², for matrices stored row after
/// row.
///
/// Over a [`NuclearNormBall`](super::NuclearNormBall),
/// [`FrankWolfeOptions::complete`](super::FrankWolfeOptions::complete) keeps X as a product of
/// factors.
#[derive(Debug, Clone)]
pub struct MatrixCompletion {
    shape: (usize, usize),
    /// The index of the first entry of each line. Lines are the rows of the matrix, or its columns if there are more
    /// columns than rows. The place of an entry is its index within its line. Entries are sorted by line, then by
    /// place.
    pub(super) line_starts: Vec<usize>,
    pub(super) places: Vec<u32>,
    pub(super) values: Vec<f64>,
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
            let message = format!(
                "must have one entry for each value, got {} entries for {n} values",
                rows.len()
            );
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
        let (lines, places) = if shape.0 >= shape.1 { (rows, columns) } else { (columns, rows) };
        let (n_lines, n_places) = (shape.0.max(shape.1), shape.0.min(shape.1));
        // Sorted by place first, so that the stable sort by line leaves each line in order.
        let given: Vec<(u32, u32)> = places.iter().copied().zip(0..).collect();
        let (_, by_place) = grouped(&given, n_places);
        let by_place: Vec<_> = by_place.into_iter().map(|at| (lines[at as usize], at)).collect();
        let (line_starts, order) = grouped(&by_place, n_lines);
        let places: Vec<u32> = order.iter().map(|at| places[*at as usize]).collect();
        for line in line_starts.windows(2) {
            let own = &places[line[0]..line[1]];
            if let Some(twice) = own.windows(2).position(|pair| pair[0] == pair[1]) {
                let at = order[line[0] + twice] as usize;
                let (row, column) = (rows[at], columns[at]);
                let message =
                    format!("the entry ({row}, {column}) occurs twice; average its values");
                return Err(Error::argument("rows", message));
            }
        }
        let values = order.iter().map(|at| values[*at as usize]).collect();
        Ok(Self { shape, line_starts, places, values })
    }

    /// Returns the numbers of rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// Number of observed entries.
    pub fn n_observed(&self) -> usize {
        self.values.len()
    }

    /// Whether the lines are the rows of the matrix, not its columns.
    pub(super) fn has_row_lines(&self) -> bool {
        self.shape.0 >= self.shape.1
    }

    /// Number of lines.
    pub(super) fn n_lines(&self) -> usize {
        self.shape.0.max(self.shape.1)
    }

    /// Returns the range of a line's entries.
    pub(super) fn line(&self, line: usize) -> Range<usize> {
        self.line_starts[line]..self.line_starts[line + 1]
    }

    /// Returns the coordinate of each entry, in order, in the matrix stored as a vector.
    fn coordinates(&self) -> impl Iterator<Item = usize> {
        let n_columns = self.shape.1;
        let (line_step, place_step) =
            if self.has_row_lines() { (n_columns, 1) } else { (1, n_columns) };
        let lines = (0..self.n_lines()).flat_map(|line| self.line(line).map(move |_| line));
        let entries = lines.zip(&self.places);
        entries.map(move |(line, place)| line * line_step + *place as usize * place_step)
    }
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

    fn hessian_products(&self, vectors: &[Vertex]) -> Result<Vec<Vec<f64>>> {
        let n = self.n_coordinates();
        let product = |vector: &Vertex| {
            let (dense, mut product) = (vector.to_dense(n), vec![0.0; n]);
            self.coordinates().for_each(|at| product[at] = dense[at]);
            product
        };
        Ok(vectors.iter().map(product).collect())
    }

    fn rounding(&self, _: &[f64], value: f64) -> FunctionRounding {
        // As for least squares, but a residual is one difference, and an entry of the gradient is one residual.
        FunctionRounding { value: gamma(self.n_observed() + 8) * value, gradient: 0.0 }
    }
}
