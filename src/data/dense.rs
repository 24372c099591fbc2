//! Dense rows.

use ndarray::ArrayView2;

use super::digest::{digest, in_order};
use super::{Real, Rows};
use crate::error::{Error, Result};
use crate::parallel::{map_items, min_len};

/// Number of values per piece of a digest.
const DIGEST_VALUES: usize = 1 << 14;

/// Number of pieces between two interrupt checks: about a millisecond of work.
const PIECES_PER_CHECK: usize = 64;

/// A dense row-major matrix borrowed from the caller.
#[derive(Debug, Clone, Copy)]
pub struct Dense<'a, T> {
    values: &'a [T],
    n_rows: usize,
    n_cols: usize,
}

impl<'a, T: Real> Dense<'a, T> {
    /// Borrows a C-contiguous array.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other memory layout.
    pub fn new(array: ArrayView2<'a, T>) -> Result<Self> {
        let (n_rows, n_cols) = array.dim();
        let values = array
            .to_slice()
            .ok_or_else(|| Error::argument("X", "the rows must be contiguous (C order)"))?;
        Ok(Self { values, n_rows, n_cols })
    }

    /// Borrows rows of `n_cols` values each, stored one after the other.
    ///
    /// ```
    /// let rows = dualgap::data::Dense::from_slice(&[1.0, 2.0, 3.0, 4.0], 2)?;
    /// assert_eq!(rows.row(1), [3.0, 4.0]);
    /// # Ok::<(), dualgap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the length is not a multiple of `n_cols`.
    pub fn from_slice(values: &'a [T], n_cols: usize) -> Result<Self> {
        if n_cols == 0 || !values.len().is_multiple_of(n_cols) {
            let message = format!("{} values do not form rows of {n_cols} columns", values.len());
            return Err(Error::argument("X", message));
        }
        Ok(Self { values, n_rows: values.len() / n_cols, n_cols })
    }

    /// Row `row` as a slice.
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.values[row * self.n_cols..(row + 1) * self.n_cols]
    }

    /// The values of rows `start..end`, row by row.
    pub(crate) fn block(&self, start: usize, end: usize) -> &'a [T] {
        &self.values[start * self.n_cols..end * self.n_cols]
    }

    /// Number of rows per piece of a digest, chosen so that a piece stays in the second-level
    /// cache.
    pub(crate) fn piece(&self) -> usize {
        (DIGEST_VALUES / self.n_cols.max(1)).max(1)
    }

    /// The digest of rows `start..end`.
    pub(crate) fn digest_of(&self, start: usize, end: usize) -> u64 {
        digest(self.block(start, end), T::bits)
    }

    /// The same hash as [`Self::digest`], computed in parallel.
    pub(super) fn parallel_digest(&self) -> u64 {
        let (n_rows, piece) = (self.n_rows, self.piece());
        let digest = |at| self.digest_of(at * piece, n_rows.min((at + 1) * piece));
        in_order(map_items(0..n_rows.div_ceil(piece), min_len(piece * self.n_cols), digest))
    }

    /// A hash of all values in order, computed from the digests of pieces.
    pub(super) fn digest<E>(
        &self,
        go_on: &mut impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        let mut digests = Vec::new();
        for (index, start) in (0..self.n_rows).step_by(self.piece()).enumerate() {
            if index.is_multiple_of(PIECES_PER_CHECK) {
                go_on()?;
            }
            digests.push(self.digest_of(start, self.n_rows.min(start + self.piece())));
        }
        Ok(in_order(digests))
    }
}

impl<T: Real> Rows for Dense<'_, T> {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn n_cols(&self) -> usize {
        self.n_cols
    }

    #[inline(always)]
    fn visit_row(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        for (column, value) in self.row(row).iter().enumerate() {
            visit(column, value.widen());
        }
    }

    fn n_stored(&self) -> usize {
        self.values.len()
    }
}
