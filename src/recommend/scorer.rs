//! The interface of models that rank the catalogue.

use std::ops::Range;

use crate::error::Result;

/// Number of users per task. A task holds the scores of all its users in memory.
pub(super) const USERS: usize = 16;

/// A matrix in compressed sparse row format.
#[derive(Debug, Clone, Copy)]
pub struct Lists<'a> {
    /// Row r has the entries `offsets[r]..offsets[r + 1]`.
    pub offsets: &'a [i64],
    /// The columns of the entries.
    pub columns: &'a [i32],
    /// The entries; empty if all are 1.
    pub values: &'a [f32],
}

impl<'a> Lists<'a> {
    /// Whether this is a valid matrix with `n_rows` rows and `n_columns` columns.
    pub fn fits(&self, n_rows: usize, n_columns: usize) -> bool {
        self.fits_in(n_rows, n_columns, |_| true)
    }

    /// Like [`fits`](Self::fits), but checks the columns only in rows that `used` marks.
    pub(super) fn fits_in(
        &self,
        n_rows: usize,
        n_columns: usize,
        used: impl Fn(usize) -> bool,
    ) -> bool {
        let Self { offsets, columns, values } = *self;
        let inside = |&column: &i32| column >= 0 && (column as usize) < n_columns;
        offsets.len() == n_rows + 1
            && offsets[0] == 0
            && offsets.windows(2).all(|ends| ends[0] <= ends[1])
            && offsets[n_rows] as usize == columns.len()
            && (values.is_empty() || values.len() == columns.len())
            && offsets
                .windows(2)
                .enumerate()
                .filter(|(row, _)| used(*row))
                .map(|(_, ends)| &columns[ends[0] as usize..ends[1] as usize])
                // Without an early exit, the loop over a row's columns uses vector instructions.
                .all(|columns| columns.iter().fold(true, |good, column| good & inside(column)))
    }

    /// The column and the value of each entry of a row.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + 'a {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        let values = self.values.get(range.clone()).unwrap_or_default();
        let columns = self.columns[range].iter().enumerate();
        columns.map(|(at, column)| (*column as usize, values.get(at).copied().unwrap_or(1.0)))
    }
}

/// A model that scores all items for some users.
pub trait Scorer: Sync {
    /// Buffers that calls of [`add`](Self::add) reuse.
    type Scratch: Default;

    /// Checks that the model's arrays match each other and the numbers of users and items.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::error::Error::InvalidArgument) naming the model.
    fn check(&self, n_users: usize, n_items: usize) -> Result<()>;

    /// Adds the scores of a few users to `scores`, whose rows (one per user) have equal lengths.
    fn add(&self, users: Range<usize>, scores: &mut [f32], scratch: &mut Self::Scratch);
}
