//! Rows and the weights that score them, with one interface for dense and sparse data.

mod dense;
mod sparse;
mod sparse_kernels;

use pulp::Simd;

pub(super) use self::dense::DenseStore;
pub(super) use self::sparse::SparseStore;
use crate::data::Real;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, Lane};

/// The row of an example, including the constant feature, in the layout for visits to only a few classes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'r, T> {
    /// Dense: the features in full SIMD vectors. Sparse: the stored values.
    pub values: &'r [T],
    /// Sparse: the columns of the stored values.
    pub columns: &'r [i32],
    /// Dense: the remaining features.
    pub rest: &'r [T],
    /// The constant feature, if any. Dense: a vector of zeros except for the constant feature at its position after the
    /// remaining features.
    pub constant: &'r [T],
}

impl<T: Real> Row<'_, T> {
    /// Number of values that a visit reads.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.values.len() + self.rest.len() + self.constant.len()
    }

    /// Sparse: calls `each` with (feature, value) pairs, the constant feature last.
    #[inline(always)]
    pub fn for_each(&self, n_features: usize, mut each: impl FnMut(usize, T)) {
        for (column, x) in self.columns.iter().zip(self.values) {
            each(*column as usize, *x);
        }
        for x in self.constant {
            each(n_features - 1, *x);
        }
    }

    /// Dense: one vector with the remaining features and the constant feature; None if there is neither.
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

/// Sizes of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Number of classes, padded to full SIMD vectors.
    pub padded: usize,
    /// Number of rows per block with which scoring is fastest.
    pub block_size: usize,
    /// Maximum number of rows that can be scored together.
    pub largest_block: usize,
}

/// Rows and the weights that score them.
pub(super) trait WeightStore: Send + Sync {
    /// The type of a weight.
    type Value: Element;

    /// Whether weights are in double precision.
    const IS_DOUBLE: bool = size_of::<Self::Value>() == size_of::<f64>();

    /// The store of the same rows in double precision.
    type Exact: WeightStore<Value = f64>;

    /// Creates the store in double precision, with weights of zero; None if this store is already in double precision.
    fn exact(&self) -> Option<Self::Exact>;

    /// The sizes of the store.
    fn shape(&self) -> Shape;

    /// The row of an example.
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<Self::Value>) -> Row<'r, Self::Value>;

    /// Hands out the weights in the order in which the scores of a few classes are computed fastest. Nothing else may
    /// read the weights until [`WeightStore::give_weights`].
    fn take_weights(&mut self) -> Aligned<Self::Value>;

    /// Takes back the weights of [`WeightStore::take_weights`].
    fn give_weights(&mut self, weights: Aligned<Self::Value>);

    /// Scores a row for some classes, with weights in the order of [`WeightStore::take_weights`].
    fn score_few<S: Simd>(
        &self,
        simd: S,
        weights: &[Self::Value],
        row: Row<'_, Self::Value>,
        classes: &[u32],
        scores: &mut [Self::Value],
    ) where
        Self::Value: Lane<S>;

    /// Adds `change` times the row to the weights of some classes, in the order of [`WeightStore::take_weights`].
    fn add_few<S: Simd>(
        &self,
        simd: S,
        weights: &mut [Self::Value],
        row: Row<'_, Self::Value>,
        classes: &[u32],
        change: &[Self::Value],
    ) where
        Self::Value: Lane<S>;

    /// Begins a block of rows that are scored together. Adds the changes of the rows of the last block to the weights.
    fn begin_block(&mut self, examples: &[u32]);

    /// Writes the scores of a row of the block for all padded classes, including the changes by earlier rows.
    fn score_row<S: Simd>(
        &self,
        simd: S,
        row: usize,
        buffer: &mut Vec<Self::Value>,
        scores: &mut [Self::Value],
    ) where
        Self::Value: Lane<S>;

    /// Adds multiples of a row of the block to the weights of some classes. `change` contains these classes and their
    /// factors.
    fn change_row<S: Simd>(
        &mut self,
        simd: S,
        row: usize,
        buffer: &mut Vec<Self::Value>,
        change: (&[u32], &[Self::Value]),
    ) where
        Self::Value: Lane<S>;

    /// Writes the scores of examples, row by row, for all padded classes. The examples are in ascending order.
    fn score(
        &self,
        examples: &[u32],
        buffers: &mut [Vec<Self::Value>; 2],
        scores: &mut [Self::Value],
    );

    /// Adds the rows of examples to the weights, each multiplied by one factor per class. `change` receives an index
    /// into `examples` and two empty lists, into which it writes classes and their factors. Stops early
    /// if the interrupt is raised.
    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut Vec<u32>, &mut Vec<Self::Value>) + Sync,
        interrupt: &Interrupt,
    );

    /// All weights, in any order.
    fn weights(&self) -> &[Self::Value];

    /// Writes the weights to `by_class`, class by class, the constant feature last.
    fn copy_by_class(&self, by_class: &mut Vec<f64>);

    /// Sets the weights to `by_class`, class by class, or to 0 if it is empty.
    fn load(&mut self, by_class: &[f64]);

    /// Sets the weights to those of a store in double precision, rounded.
    fn narrow(&mut self, exact: &Self::Exact);
}
