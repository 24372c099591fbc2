//! A matrix stored by columns.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::data::{Data, Rows};
use crate::dual::rounding::{gamma, norm_above};
use crate::for_data;
use crate::linalg::arch;
use crate::linalg::vectors::{axpy, fused_dot};
use crate::parallel::min_len;

/// The columns of a matrix, dense or sparse.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    n_rows: usize,
    n_cols: usize,
    values: Vec<f64>,
    /// If sparse, the index of the first entry of each column, and the row of each entry.
    places: Option<(Vec<usize>, Vec<u32>)>,
    /// Upper bounds on the norms of the columns.
    norms: Vec<f64>,
}

impl Columns {
    /// Copies a matrix.
    pub fn new(data: &Data<'_>) -> Self {
        let (n_rows, n_cols) = (data.n_rows(), data.n_cols());
        let is_sparse = matches!(data, Data::Csr32(_) | Data::Csr64(_));
        let (values, places) = for_data!(data, rows => if is_sparse {
            let (offsets, stored, values) = sparse_columns(rows);
            (values, Some((offsets, stored)))
        } else {
            let mut values = vec![0.0; n_rows * n_cols];
            for row in 0..n_rows {
                rows.visit_row(row, |column, value| values[column * n_rows + row] = value);
            }
            (values, None)
        });
        let mut columns = Self { n_rows, n_cols, values, places, norms: Vec::new() };
        columns.norms = (0..n_cols).map(|column| norm_above(columns.entries(column).1)).collect();
        columns
    }

    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// An upper bound on the largest norm of a column.
    pub fn largest_norm(&self) -> f64 {
        self.norms.iter().copied().fold(0.0, f64::max)
    }

    /// Whether an entry is NaN.
    pub fn has_nan(&self) -> bool {
        self.norms.iter().any(|norm| norm.is_nan())
    }

    /// The rows and the values of a column's entries; rows are empty if the matrix is dense.
    fn entries(&self, column: usize) -> (&[u32], &[f64]) {
        match &self.places {
            None => (&[], &self.values[column * self.n_rows..][..self.n_rows]),
            Some((offsets, rows)) => {
                let range = offsets[column]..offsets[column + 1];
                (&rows[range.clone()], &self.values[range])
            }
        }
    }

    /// product += Σ weight_j a_j over some columns j.
    pub fn add_product(&self, weights: impl Iterator<Item = (usize, f64)>, product: &mut [f64]) {
        for (column, weight) in weights.filter(|(_, weight)| *weight != 0.0) {
            let (rows, values) = self.entries(column);
            if self.places.is_none() {
                axpy(product, weight, values);
            } else {
                rows.iter().zip(values).for_each(|(i, a)| product[*i as usize] += weight * a);
            }
        }
    }

    /// An upper bound on Σ |weight_j| ‖a_j‖, and the number of columns whose weight is not 0.
    pub fn product_size(&self, weights: &[f64]) -> (f64, usize) {
        let sizes = weights.iter().zip(&self.norms).filter(|(weight, _)| **weight != 0.0);
        let (size, n) = sizes.fold((0.0, 0), |(sum, n), (w, norm)| (sum + w.abs() * norm, n + 1));
        (size * (1.0 + gamma(n + 2)), n)
    }

    /// Writes ⟨a_j, r⟩ for all columns j, in parallel.
    pub fn transposed_times(&self, r: &[f64], products: &mut [f64]) {
        let per_column = self.values.len() / self.n_cols.max(1) + 1;
        products.par_iter_mut().enumerate().with_min_len(min_len(per_column)).for_each(
            |(column, product)| {
                let (rows, values) = self.entries(column);
                *product = if self.places.is_none() {
                    arch().dispatch(Dot(values, r))
                } else {
                    rows.iter().zip(values).map(|(i, a)| a * r[*i as usize]).sum()
                };
            },
        );
    }
}

/// ⟨a, b⟩ with the widest vector instructions of this machine.
struct Dot<'a>(&'a [f64], &'a [f64]);

impl WithSimd for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        fused_dot(simd, self.0, self.1)
    }
}

/// The index of the first entry of each column, then the rows and the values of all entries, column
/// after column.
fn sparse_columns(rows: &impl Rows) -> (Vec<usize>, Vec<u32>, Vec<f64>) {
    let mut offsets = vec![0; rows.n_cols() + 1];
    for row in 0..rows.n_rows() {
        rows.visit_row(row, |column, _| offsets[column + 1] += 1);
    }
    for column in 0..rows.n_cols() {
        offsets[column + 1] += offsets[column];
    }
    let (mut stored, mut values) = (vec![0; rows.n_stored()], vec![0.0; rows.n_stored()]);
    let mut next = offsets.clone();
    for row in 0..rows.n_rows() {
        rows.visit_row(row, |column, value| {
            (stored[next[column]], values[next[column]]) = (row as u32, value);
            next[column] += 1;
        });
    }
    (offsets, stored, values)
}
