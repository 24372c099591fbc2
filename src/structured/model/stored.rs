//! Sparse rows that are read in place, for example from a memory-mapped file.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::dual::rounding::gamma;
use crate::error::{Error, Result};

/// A slice whose owner keeps it alive and unchanged.
pub type Kept<T> = Arc<dyn AsRef<[T]> + Send + Sync>;

/// The entries of rows: a copy, or the caller's memory.
#[derive(Clone)]
pub(super) enum Entries<T> {
    Copied(Vec<T>),
    Kept(Kept<T>),
}

impl<T> Deref for Entries<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        match self {
            Self::Copied(entries) => entries,
            Self::Kept(entries) => entries.as_ref().as_ref(),
        }
    }
}

impl<T> fmt::Debug for Entries<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.len())
    }
}

/// Sparse rows that are not copied.
#[derive(Clone)]
pub struct StoredRows {
    pub(super) ends: Kept<u64>,
    pub(super) features: Kept<u32>,
    pub(super) values: Option<Kept<f64>>,
    pub(super) n_features: usize,
}

impl StoredRows {
    /// Creates rows from their entries. Row i has the entries from `ends[i]` to `ends[i + 1]`, and `ends[0]` is 0.
    /// Without `values`, all values are 1.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the ends do not increase up to the number of entries, if a feature is not below
    /// `n_features`, or if a value is not finite.
    pub fn new(
        ends: Kept<u64>,
        features: Kept<u32>,
        values: Option<Kept<f64>>,
        n_features: usize,
    ) -> Result<Self> {
        let n_entries = features.as_ref().as_ref().len();
        let increases = |ends: &[u64]| {
            ends.first() == Some(&0)
                && ends.last() == Some(&(n_entries as u64))
                && ends.windows(2).all(|pair| pair[0] <= pair[1])
        };
        let fits = |values: &Kept<f64>| values.as_ref().as_ref().len() == n_entries;
        if !increases(ends.as_ref().as_ref()) || !values.as_ref().is_none_or(fits) {
            return Err(Error::argument("X", "the stored rows are damaged"));
        }
        if features.as_ref().as_ref().iter().any(|feature| *feature as usize >= n_features) {
            return Err(Error::argument("X", "a feature is outside the columns"));
        }
        let finite = |values: &Kept<f64>| values.as_ref().as_ref().iter().all(|x| x.is_finite());
        if !values.as_ref().is_none_or(finite) {
            return Err(Error::argument("X", "all values must be finite"));
        }
        Ok(Self { ends, features, values, n_features })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.ends.as_ref().as_ref().len() - 1
    }

    /// An upper bound on the largest norm of a row, and the largest number of nonzero values in any row.
    pub(super) fn largest(&self) -> (f64, usize) {
        let values = self.values.as_ref().map(|values| values.as_ref().as_ref());
        let mut largest = (0.0_f64, 0);
        for ends in self.ends.as_ref().as_ref().windows(2) {
            let mut size = RowMagnitude::default();
            for entry in ends[0] as usize..ends[1] as usize {
                size.add(values.map_or(1.0, |values| values[entry]));
            }
            largest = (largest.0.max(size.norm()), largest.1.max(size.n_values));
        }
        largest
    }
}

/// The number of nonzero values of a row, and its norm.
#[derive(Default)]
pub(super) struct RowMagnitude {
    pub n_values: usize,
    square: f64,
    extreme: f64,
}

impl RowMagnitude {
    #[inline(always)]
    pub fn add(&mut self, value: f64) {
        self.n_values += usize::from(value != 0.0);
        (self.square, self.extreme) = (self.square + value * value, self.extreme.max(value.abs()));
    }

    /// An upper bound on the norm.
    pub fn norm(&self) -> f64 {
        // Squares of small values underflow, so the norm is bounded by the largest value.
        let norm = if self.square > 1e-280 {
            self.square.sqrt()
        } else {
            self.extreme * (self.n_values as f64).sqrt()
        };
        norm * (1.0 + gamma(self.n_values + 4))
    }
}
