//! The rows of several matrices, read as one matrix.

use super::{Data, Rows};
use crate::error::{Error, Result};
use crate::for_data;

/// The rows of several matrices, one matrix after the other.
#[derive(Debug, Clone, Copy)]
pub struct Chunked<'a> {
    chunks: &'a [Data<'a>],
}

impl<'a> Chunked<'a> {
    /// Joins `chunks`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no chunks, or if the chunks have different
    /// numbers of columns.
    pub fn new(chunks: &'a [Data<'a>]) -> Result<Self> {
        let width = |chunk: &Data<'_>| chunk.n_cols();
        if chunks.is_empty() || chunks.windows(2).any(|pair| width(&pair[0]) != width(&pair[1])) {
            return Err(Error::argument(
                "X",
                "needs at least one chunk, and all chunks must have the same number of columns",
            ));
        }
        Ok(Self { chunks })
    }
}

impl Rows for Chunked<'_> {
    fn n_rows(&self) -> usize {
        self.chunks.iter().map(Data::n_rows).sum()
    }

    fn n_cols(&self) -> usize {
        self.chunks[0].n_cols()
    }

    #[inline(always)]
    fn visit_row(&self, mut row: usize, mut visit: impl FnMut(usize, f64)) {
        // There are few chunks, so stepping through them is cheaper than a table of all rows.
        for chunk in self.chunks {
            if row < chunk.n_rows() {
                return for_data!(chunk, rows => rows.visit_row(row, &mut visit));
            }
            row -= chunk.n_rows();
        }
    }

    fn n_stored(&self) -> usize {
        self.chunks.iter().map(|chunk| for_data!(chunk, rows => rows.n_stored())).sum()
    }
}
