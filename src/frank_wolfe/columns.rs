//! A matrix stored by columns.

use pulp::{Simd, WithSimd};

use crate::data::{Data, Rows};
use crate::dual::rounding::{gamma, norm_above};
use crate::for_data;
use crate::frank_wolfe::vertex::PIECE;
use crate::linalg::vectors::{axpy, fused_dot};
use crate::linalg::{CountingSort, Panels, arch, transpose};
use crate::parallel::{for_items, min_len};

/// Number of dense vectors whose products with the columns are computed together. Reading the matrix takes most of
/// the time, so eight products take only about twice as long as one product.
const AT_A_TIME: usize = 8;

/// Number of rows that are copied to columns together.
const ROWS: usize = 64;

/// Number of columns in a task of [`Columns::transposed_times_all`].
const BAND: usize = 64;

/// If at most 1/`FEW` of a vector's entries are nonzero, its product with a sparse matrix visits
/// only the rows of these entries. Otherwise it visits all columns.
const FEW: usize = 8;

/// The columns of a matrix, dense or sparse.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    n_rows: usize,
    n_cols: usize,
    values: Vec<f64>,
    /// If sparse: the index of the first entry of each column, and the row of each entry.
    places: Option<(Vec<usize>, Vec<u32>)>,
    /// If sparse: the same entries, stored row after row.
    by_row: Option<RowEntries>,
    /// Upper bounds on the norms of the columns.
    norms: Vec<f64>,
}

impl Columns {
    /// Copies a matrix.
    pub fn new(data: &Data<'_>) -> Self {
        let (n_rows, n_cols) = (data.n_rows(), data.n_cols());
        let is_sparse = data.is_sparse();
        let (values, places, by_row) = for_data!(data, rows => if is_sparse {
            let (offsets, stored, values) = sparse_columns(rows);
            (values, Some((offsets, stored)), Some(RowEntries::new(rows)))
        } else {
            (dense_columns(rows), None, None)
        });
        let mut columns = Self { n_rows, n_cols, values, places, by_row, norms: Vec::new() };
        columns.norms = (0..n_cols).map(|column| norm_above(columns.entries(column).1)).collect();
        columns
    }

    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Returns an upper bound on the largest norm of a column.
    pub fn largest_norm(&self) -> f64 {
        self.norms.iter().copied().fold(0.0, f64::max)
    }

    /// Whether an entry is NaN.
    pub fn has_nan(&self) -> bool {
        self.norms.iter().any(|norm| norm.is_nan())
    }

    /// Returns the rows and the values of a column's entries. If the matrix is dense, the list of rows is empty, and
    /// the values are the entries of all rows.
    fn entries(&self, column: usize) -> (&[u32], &[f64]) {
        match &self.places {
            None => (&[], &self.values[column * self.n_rows..][..self.n_rows]),
            Some((offsets, rows)) => {
                let range = offsets[column]..offsets[column + 1];
                (&rows[range.clone()], &self.values[range])
            }
        }
    }

    /// Adds Σ weight_j a_j over the given columns j to `product`.
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

    /// Returns an upper bound on Σ |weight_j| ‖a_j‖, and the number of columns whose weight is not 0.
    pub fn product_size(&self, weights: &[f64]) -> (f64, usize) {
        let sizes = weights.iter().zip(&self.norms).filter(|(weight, _)| **weight != 0.0);
        let (size, n) = sizes.fold((0.0, 0), |(sum, n), (w, norm)| (sum + w.abs() * norm, n + 1));
        (size * (1.0 + gamma(n + 2)), n)
    }

    /// Returns a bound on the rounding error of a product ⟨a_j, r⟩, relative to ‖a_j‖ ‖r‖.
    pub fn rounding(&self) -> f64 {
        gamma(match &self.places {
            // A piece has at least four partial sums.
            None => PIECE.min(self.n_rows) / 4 + self.n_rows / PIECE + 16,
            Some((offsets, _)) => {
                offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0) + 4
            }
        })
    }

    /// Number of vectors to multiply by the matrix together, which costs far less than separate products; 1 if the
    /// matrix is sparse.
    pub fn n_at_a_time(&self) -> usize {
        if self.places.is_none() { AT_A_TIME } else { 1 }
    }

    /// Returns the products ⟨a_j, r⟩ with all columns j, for each vector r.
    pub fn transposed_times_all(&self, vectors: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let (n, k) = (self.n_cols, vectors.len());
        if self.places.is_some() || k < 2 || self.n_rows == 0 {
            let product = |r: &Vec<f64>| {
                let mut product = vec![0.0; n];
                self.transposed_times(r, &mut product);
                product
            };
            return vectors.iter().map(product).collect();
        }
        let mut panels = Panels::new(self.n_rows, k);
        panels.pack(&vectors.concat(), |row| row, self.n_rows);
        let mut products = vec![0.0; n * k];
        let bands = products.chunks_mut(BAND * k).zip(self.values.chunks(BAND * self.n_rows));
        for_items(bands, 1, |(products, columns)| panels.add_scores(columns, products));
        (0..k).map(|index| products[index..].iter().step_by(k).copied().collect()).collect()
    }

    /// Writes ⟨a_j, r⟩ for all columns j, in parallel.
    pub fn transposed_times(&self, r: &[f64], products: &mut [f64]) {
        if let Some(by_row) = &self.by_row
            && FEW * r.iter().filter(|value| **value != 0.0).count() <= r.len()
        {
            return by_row.add_up(r, products);
        }
        let min_len = min_len(BAND * self.values.len() / self.n_cols.max(1) + 1);
        for_items(products.chunks_mut(BAND).enumerate(), min_len, |(band, products)| {
            for (column, product) in (band * BAND..).zip(products) {
                let (rows, values) = self.entries(column);
                *product = if self.places.is_none() {
                    arch().dispatch(Dot(values, r))
                } else {
                    rows.iter().zip(values).map(|(i, a)| a * r[*i as usize]).sum()
                };
            }
        });
    }
}

/// The entries of a sparse matrix, row after row.
#[derive(Debug, Clone)]
struct RowEntries {
    /// The index of the first entry of each row.
    starts: Vec<usize>,
    entries: Vec<(u32, f64)>,
}

impl RowEntries {
    fn new(rows: &impl Rows) -> Self {
        let (mut starts, mut entries) = (vec![0], Vec::with_capacity(rows.n_stored()));
        for row in 0..rows.n_rows() {
            rows.visit_row(row, |column, value| entries.push((column as u32, value)));
            starts.push(entries.len());
        }
        Self { starts, entries }
    }

    /// Writes the sum of the rows, weighted by r.
    fn add_up(&self, r: &[f64], sum: &mut [f64]) {
        sum.fill(0.0);
        for (range, weight) in self.starts.windows(2).zip(r).filter(|(_, weight)| **weight != 0.0) {
            let entries = &self.entries[range[0]..range[1]];
            entries.iter().for_each(|(column, value)| sum[*column as usize] += weight * value);
        }
    }
}

/// The inner product ⟨a, b⟩, computed in pieces with the widest vector instructions of this machine.
struct Dot<'a>(&'a [f64], &'a [f64]);

impl WithSimd for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let pieces = self.0.chunks(PIECE).zip(self.1.chunks(PIECE));
        pieces.map(|(a, b)| fused_dot(simd, a, b)).sum()
    }
}

/// Returns the entries of all columns, column after column, of rows that store every entry.
fn dense_columns(rows: &impl Rows) -> Vec<f64> {
    let (n_rows, n_cols) = (rows.n_rows(), rows.n_cols());
    let mut values = vec![0.0; n_rows * n_cols];
    if n_cols == 0 {
        return values;
    }
    let mut block = vec![0.0; ROWS * n_cols];
    for first in (0..n_rows).step_by(ROWS) {
        let n = ROWS.min(n_rows - first);
        for (row, own) in (first..).zip(block[..n * n_cols].chunks_mut(n_cols)) {
            rows.visit_row(row, |column, value| own[column] = value);
        }
        transpose(&block[..n * n_cols], n_cols, &mut values[first..], n_rows);
    }
    values
}

/// Returns the index of the first entry of each column, then the rows and the values of all entries, column after
/// column.
fn sparse_columns(rows: &impl Rows) -> (Vec<usize>, Vec<u32>, Vec<f64>) {
    let mut sort = CountingSort::new(rows.n_cols());
    for row in 0..rows.n_rows() {
        rows.visit_row(row, |column, _| sort.count(column));
    }
    let offsets = sort.starts();
    let (mut stored, mut values) = (vec![0; rows.n_stored()], vec![0.0; rows.n_stored()]);
    for row in 0..rows.n_rows() {
        rows.visit_row(row, |column, value| {
            let place = sort.place(column);
            (stored[place], values[place]) = (row as u32, value);
        });
    }
    (offsets, stored, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Csr, Dense};

    #[test]
    fn products_of_several_or_sparse_vectors_equal_single_products() {
        let (n_rows, n_cols) = (70, 133);
        let number = |i: usize| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0;
        let values: Vec<f64> = (0..n_rows * n_cols).map(number).collect();
        let dense = Columns::new(&Dense::from_slice(&values, n_cols).unwrap().into());
        let indices: Vec<i32> = (0..n_rows).flat_map(|_| 0..n_cols as i32).collect();
        let starts: Vec<i64> = (0..=n_rows).map(|row| (row * n_cols) as i64).collect();
        let sparse = Columns::new(&Csr::new(&starts, &indices, &values, n_cols).unwrap().into());
        let few = |row: usize| if row % 16 == 3 { number(row + 7) } else { 0.0 };
        let vectors = [
            (0..n_rows).map(|row| number(row + 1)).collect::<Vec<f64>>(),
            (0..n_rows).map(few).collect(),
            vec![0.0; n_rows],
        ];
        for columns in [dense, sparse] {
            for (products, r) in columns.transposed_times_all(&vectors).iter().zip(&vectors) {
                for (column, product) in products.iter().enumerate() {
                    let terms =
                        r.iter().enumerate().map(|(row, r)| r * values[row * n_cols + column]);
                    let expected: f64 = terms.sum();
                    assert!((product - expected).abs() < 1e-12, "{product} {expected}");
                }
            }
        }
    }
}
