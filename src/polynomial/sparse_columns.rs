//! Sparse rows stored by columns, for sums over wide rows.

use pulp::{Simd, WithSimd};

use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::axpy;
use crate::linalg::{CountingSort, arch};
use crate::parallel::{for_items, n_parts};

/// Rows between interrupt checks.
const ROWS: usize = 1024;

/// Number of columns that one task sums, small enough that tasks occupy all threads.
const COLUMNS: usize = 64;

/// A copy of sparse rows, stored by columns. Each row of a product Xᵀ S is then a separate sum over one column, so no
/// thread needs memory for all sums.
#[derive(Debug, Clone)]
pub(crate) struct SparseColumns {
    bounds: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f64>,
}

/// Columns `first..first + width` of a matrix with `stride` values per row.
#[derive(Clone, Copy)]
pub(crate) struct ColumnBlock<'a> {
    /// The matrix, row by row.
    pub values: &'a [f64],
    /// Number of values per row.
    pub stride: usize,
    /// Index of the first column.
    pub first: usize,
    /// Number of columns.
    pub width: usize,
}

/// Whether sums over the rows, kept separately for each thread, would take more memory than the alternative: a copy of
/// the rows stored by columns, and `width` values for each row.
pub(crate) fn is_wide(rows: &impl Rows, width: usize) -> bool {
    let (n, d) = (rows.n_rows(), rows.n_cols());
    let sums = n_parts(n).saturating_mul(d).saturating_mul(width);
    // The index and value of an entry take one and a half doubles, rounded up to two here.
    sums > 2 * rows.n_stored() + n.saturating_mul(width)
}

impl SparseColumns {
    /// Number of bytes for a copy of `rows` stored by columns, including the memory for sorting the entries.
    #[cfg(feature = "python")]
    pub fn bytes(rows: &impl Rows) -> u128 {
        12 * rows.n_stored() as u128 + 16 * (rows.n_cols() as u128 + 1)
    }

    /// Copies the entries of `rows` into columns. Returns None if there are more rows than the index type can hold.
    pub fn new(rows: &impl Rows, interrupt: &Interrupt) -> Result<Option<Self>> {
        let Ok(n_rows) = u32::try_from(rows.n_rows()) else { return Ok(None) };
        let mut sort = CountingSort::new(rows.n_cols());
        for row in 0..rows.n_rows() {
            if row.is_multiple_of(ROWS) {
                interrupt.check()?;
            }
            rows.visit_row(row, |column, _| sort.count(column));
        }
        let bounds = sort.starts();
        let n_stored = bounds[rows.n_cols()];
        let (mut own_rows, mut values) = (vec![0; n_stored], vec![0.0; n_stored]);
        for row in 0..n_rows {
            if (row as usize).is_multiple_of(ROWS) {
                interrupt.check()?;
            }
            rows.visit_row(row as usize, |column, value| {
                let place = sort.place(column);
                (own_rows[place], values[place]) = (row, value);
            });
        }
        Ok(Some(Self { bounds, rows: own_rows, values }))
    }

    /// Returns Xᵀ S for the first `n_columns` columns of X, or (X∘X)ᵀ S if `squared`.
    pub fn multiply(
        &self,
        n_columns: usize,
        s: ColumnBlock<'_>,
        squared: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let mut product = vec![0.0; n_columns * s.width];
        if s.width > 0 {
            for_items(product.chunks_mut(COLUMNS * s.width).enumerate(), 1, |(piece, out)| {
                if !interrupt.is_raised() {
                    let first = piece * COLUMNS;
                    arch().dispatch(Columns { columns: self, first, s, squared, out });
                }
            });
        }
        interrupt.check()?;
        Ok(product)
    }
}

/// Computes the sums of some columns. This is a type because only code inlined into its method `with_simd` is
/// compiled for the vector instructions of this processor.
struct Columns<'a> {
    columns: &'a SparseColumns,
    first: usize,
    s: ColumnBlock<'a>,
    squared: bool,
    out: &'a mut [f64],
}

impl WithSimd for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { columns: SparseColumns { bounds, rows, values }, first, s, squared, out } = self;
        for (out, bounds) in out.chunks_exact_mut(s.width).zip(bounds[first..].windows(2)) {
            let entries = bounds[0]..bounds[1];
            for (row, value) in rows[entries.clone()].iter().zip(&values[entries]) {
                let value = if squared { value * value } else { *value };
                axpy(out, value, &s.values[*row as usize * s.stride + s.first..][..s.width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Augmented, Csr};
    use crate::linalg::products::{multiply_squared_transposed, multiply_transposed};

    #[test]
    fn products_by_column_equal_products_by_row() {
        let (n, d, width) = (300, 150, 3);
        let (columns, values): (Vec<i32>, Vec<f64>) =
            (0..2 * n).map(|at| (at % 2 * 70 + at * 7 % 70, f64::from(at * 5 % 13) - 6.0)).unzip();
        let offsets: Vec<i64> = (0..=n as i64).map(|row| 2 * row).collect();
        let rows =
            Augmented { rows: Csr::new(&offsets, &columns, &values, d).unwrap(), ones: true };
        let s: Vec<f64> = (0..n * 5).map(|i| (i % 17) as f64 - 8.0).collect();
        let part = ColumnBlock { values: &s, stride: 5, first: 1, width };
        let own: Vec<f64> = s.chunks_exact(5).flat_map(|row| row[1..4].to_vec()).collect();
        let interrupt = Interrupt::default();
        let by_columns = SparseColumns::new(&rows, &interrupt).unwrap().unwrap();
        let found = by_columns.multiply(d + 1, part, false, &interrupt).unwrap();
        assert_eq!(found, multiply_transposed(&rows, &own, width, &interrupt).unwrap());
        let found = by_columns.multiply(d, part, true, &interrupt).unwrap();
        let wanted = multiply_squared_transposed(&rows, &own, width, &interrupt).unwrap();
        assert_eq!(found, wanted[..d * width]);
        interrupt.raise();
        assert!(by_columns.multiply(d, part, false, &interrupt).is_err());
        assert!(SparseColumns::new(&rows, &interrupt).is_err());
    }
}
