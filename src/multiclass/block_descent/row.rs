//! One example's row, as visits to few classes read it.

use pulp::Simd;

use crate::data::{Real, in_precision};
use crate::linalg::Lane;

/// One example's row, as visits to few classes read it, the constant feature included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'r, T> {
    /// Dense: the features in whole vectors. Sparse: the stored values.
    pub values: &'r [T],
    /// Sparse: their columns.
    pub columns: &'r [i32],
    /// Dense: the features left over.
    pub rest: &'r [T],
    /// The constant feature, if any. Dense: in its place behind those left over, in a vector of zeros.
    pub constant: &'r [T],
}

impl<T: Real> Row<'_, T> {
    /// Number of values that a visit reads.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.values.len() + self.rest.len() + self.constant.len()
    }

    /// Sparse: calls `each` with (feature, value) pairs, the constant feature's last.
    #[inline(always)]
    pub fn for_each(&self, n_features: usize, mut each: impl FnMut(usize, T)) {
        for (column, x) in self.columns.iter().zip(self.values) {
            each(*column as usize, *x);
        }
        for x in self.constant {
            each(n_features - 1, *x);
        }
    }

    /// Dense: what is left over behind whole vectors, if anything, with the constant feature.
    #[inline(always)]
    pub fn tail<S: Simd>(&self, simd: S) -> Option<T::Vector>
    where
        T: Lane<S>,
    {
        let constant = T::vectors(self.constant).0.first().copied();
        if self.rest.is_empty() {
            return constant;
        }
        let rest = T::partial(simd, self.rest);
        Some(constant.map_or(rest, |constant| T::plus(simd, rest, constant)))
    }
}

/// The values in this precision, copied where they are not stored in it.
#[inline(always)]
pub(super) fn read<'r, R: Real, T: Real>(copied: &'r mut Vec<T>, values: &'r [R]) -> &'r [T] {
    match in_precision(values) {
        Some(values) => values,
        None => {
            copied.clear();
            R::append_to(values, copied);
            copied
        }
    }
}

/// Appends values, in another precision where it is another.
#[inline]
pub(super) fn extend<R: Real, T: Real>(target: &mut Vec<T>, values: &[R]) {
    match in_precision(values) {
        Some(values) => target.extend_from_slice(values),
        None => R::append_to(values, target),
    }
}

/// Some examples' rows, copied next to each other, the constant feature appended.
#[derive(Debug)]
pub(super) struct GatheredRows<T> {
    pub examples: Vec<u32>,
    pub values: Vec<T>,
    pub columns: Vec<i32>,
    /// The rows' inner products with the rows before them and with themselves (b × b).
    pub gram: Vec<T>,
}

impl<T> Default for GatheredRows<T> {
    fn default() -> Self {
        let (examples, values) = (Vec::new(), Vec::new());
        Self { examples, values, columns: Vec::new(), gram: Vec::new() }
    }
}
