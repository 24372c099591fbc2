//! Compressed sparse rows.

use super::digest::{digest_in_pieces, in_order};
use super::{Real, Rows};
use crate::error::{Error, Result};

/// Number of rows that are sampled to find out how entries are distributed over the columns.
const SAMPLED_ROWS: usize = 256;

/// A compressed sparse row matrix borrowed from the caller. The columns of each row are sorted and unique.
#[derive(Debug, Clone, Copy)]
pub struct Csr<'a, T> {
    offsets: &'a [i64],
    columns: &'a [i32],
    values: &'a [T],
    n_cols: usize,
}

impl<'a, T: Real> Csr<'a, T> {
    /// Borrows the three CSR arrays; `offsets` has one more entry than there are rows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is one column per value, the offsets start at 0, never decrease and end
    /// at the number of values, and the columns of each row strictly increase and are below `n_cols`.
    pub fn new(
        offsets: &'a [i64],
        columns: &'a [i32],
        values: &'a [T],
        n_cols: usize,
    ) -> Result<Self> {
        let fail = |message: &str| Err(Error::argument("X", message));
        if columns.len() != values.len() {
            return fail("a CSR matrix must have one column index for each value");
        }
        let valid_ends =
            offsets.first() == Some(&0) && offsets.last().copied() == Some(values.len() as i64);
        if !valid_ends || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            return fail(
                "indptr of a CSR matrix must start at 0, never decrease and end at the number of values",
            );
        }
        let csr = Self { offsets, columns, values, n_cols };
        for row in 0..csr.n_rows() {
            let columns = csr.row(row).0;
            // The columns of a row increase, so checking its first and last column is enough.
            let pairs = columns.iter().zip(columns.iter().skip(1));
            if pairs.fold(false, |falls, (column, next)| falls | (column >= next)) {
                return fail("indices of a CSR matrix must be sorted and unique in each row");
            }
            let inside =
                |column: &i32| usize::try_from(*column).is_ok_and(|column| column < n_cols);
            if ![columns.first(), columns.last()].into_iter().flatten().all(inside) {
                return fail("an index of a CSR matrix is outside its columns");
            }
        }
        Ok(csr)
    }

    /// The columns and values of row `row`.
    pub fn row(&self, row: usize) -> (&'a [i32], &'a [T]) {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        (&self.columns[range.clone()], &self.values[range])
    }

    /// The stored values, row by row.
    pub(crate) fn values(&self) -> &'a [T] {
        self.values
    }

    /// Returns a matrix with the same sparsity pattern and the given values, which are in the same order.
    pub(crate) fn with_values<'b, U>(&self, values: &'b [U]) -> Csr<'b, U>
    where
        'a: 'b,
    {
        let Self { offsets, columns, n_cols, .. } = *self;
        assert_eq!(values.len(), columns.len());
        Csr { offsets, columns, values, n_cols }
    }

    /// Returns the bounds of at most `n_stretches` ranges of columns that have roughly equal numbers of entries. The
    /// first bound is 0, and the last bound is the number of columns. The numbers of entries are estimated from a
    /// sample of the rows.
    pub(crate) fn balanced_cuts(&self, n_stretches: usize) -> Vec<usize> {
        let sampled = (0..self.n_rows()).step_by(self.n_rows().div_ceil(SAMPLED_ROWS).max(1));
        let mut columns: Vec<i32> = sampled.flat_map(|row| self.row(row).0).copied().collect();
        columns.sort_unstable();
        let quantile = |stretch: usize| columns.get(stretch * columns.len() / n_stretches);
        let mut cuts = vec![0];
        cuts.extend((1..n_stretches).filter_map(quantile).map(|column| *column as usize));
        cuts.push(self.n_cols);
        cuts.dedup();
        cuts
    }

    pub(super) fn digest<E>(
        &self,
        go_on: &mut impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        Ok(in_order([
            digest_in_pieces(self.offsets, |offset| offset as u64, go_on)?,
            digest_in_pieces(self.columns, |column| column as u64, go_on)?,
            digest_in_pieces(self.values, T::bits, go_on)?,
        ]))
    }
}

impl<T: Real> Rows for Csr<'_, T> {
    fn n_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn n_cols(&self) -> usize {
        self.n_cols
    }

    #[inline(always)]
    fn visit_row(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        let (columns, values) = self.row(row);
        for (&column, &value) in columns.iter().zip(values) {
            visit(column as usize, value.widen());
        }
    }

    fn n_stored(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_columns_have_about_the_same_number_of_entries() {
        // Row r has entries in column 0 and in one of the columns from 10 to 19.
        let offsets: Vec<i64> = (0..=1000).map(|row| 2 * row).collect();
        let columns: Vec<i32> = (0..1000).flat_map(|row| [0, 10 + row / 100]).collect();
        let values = vec![1.0; 2000];
        let rows = Csr::new(&offsets, &columns, &values, 20).unwrap();
        assert_eq!(rows.balanced_cuts(1), [0, 20]);
        assert_eq!(rows.balanced_cuts(2), [0, 10, 20]);
        assert_eq!(rows.balanced_cuts(4), [0, 10, 15, 20]);
        let empty = Csr::<f64>::new(&[0, 0], &[], &[], 3).unwrap();
        assert_eq!(empty.balanced_cuts(2), [0, 3]);
    }
}
