//! One example's row, as visits to few classes read it.

use crate::data::{Real, in_precision};
use crate::linalg::{Aligned, Element};

/// One example's row, as visits to few classes read it, the constant feature included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'r, T> {
    /// Dense: the features in whole vectors. Sparse: the stored values.
    pub values: &'r [T],
    /// Sparse: their columns.
    pub columns: &'r [i32],
    /// Dense: what is left over, padded with zeros to a vector. Sparse: the constant feature.
    pub tail: &'r [T],
}

impl<T: Real> Row<'_, T> {
    /// Number of its values.
    pub fn len(&self) -> usize {
        self.values.len() + self.tail.len()
    }

    /// Sparse: (feature, value) pairs, the constant feature's last.
    #[inline(always)]
    pub fn entries(&self, n_features: usize) -> impl Iterator<Item = (usize, T)> {
        let stored = self.columns.iter().zip(self.values).map(|(column, x)| (*column as usize, *x));
        stored.chain(self.tail.iter().map(move |x| (n_features - 1, *x)))
    }
}

/// Room for what of a row cannot be read where the data are.
#[derive(Debug)]
pub(super) struct RowBuffer<T> {
    pub values: Vec<T>,
    pub tail: Aligned<T>,
}

impl<T: Element> RowBuffer<T> {
    pub fn new() -> Self {
        Self { values: Vec::new(), tail: Aligned::zeros(T::lanes()) }
    }

    /// The values in this precision.
    pub fn read<'r, R: Real>(copied: &'r mut Vec<T>, values: &'r [R]) -> &'r [T] {
        in_precision(values).unwrap_or_else(|| {
            copied.clear();
            R::append_to(values, copied);
            copied
        })
    }
}
