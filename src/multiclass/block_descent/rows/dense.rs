//! Dense rows, with weights stored in panels of classes or, for visits to few classes, class by class.

use pulp::Simd;

use super::{Row, ScoredRows, Shape, WeightStore, read};
use crate::data::{Dense, Real, Rows, in_precision};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::fused_dot;
use crate::linalg::{Aligned, Element, Kernel, Lane, PanelWeights, Update};

/// Number of examples whose rows are added together: the rows stay in the second-level cache, and each weight is read
/// and written once for all of these rows.
const TOGETHER: usize = 64;

/// Dense rows in precision R with weights in precision T.
pub(in super::super) struct DenseStore<'a, R, T> {
    rows: Dense<'a, R>,
    bias: f64,
    /// Number of features of a row that fill full SIMD vectors.
    n_whole: usize,
    /// The last vector of a row with only the constant feature set, if there is one.
    constant: Vec<T>,
    weights: PanelWeights<T>,
    n_classes: usize,
}

impl<'a, R: Real, T: Element> DenseStore<'a, R, T> {
    /// Creates the store with weights of zero.
    pub fn new(rows: Dense<'a, R>, bias: f64, n_classes: usize) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let n_whole = rows.n_cols() / T::lanes() * T::lanes();
        let mut constant = Vec::new();
        if bias != 0.0 {
            constant.resize(T::lanes(), T::zero());
            constant[rows.n_cols() - n_whole] = T::narrow(bias);
        }
        let weights = PanelWeights::new(n_features, n_classes);
        Self { rows, bias, n_whole, constant, weights, n_classes }
    }

    /// Returns the rows of the examples without the constant feature, if the examples are neighbours and their rows are
    /// stored in the precision of the weights.
    fn in_place(&self, examples: &[u32]) -> Option<&'a [T]> {
        let (first, last) = (*examples.first()? as usize, *examples.last()? as usize);
        let are_neighbours = last - first + 1 == examples.len();
        in_precision(self.rows.block(first, last + 1)).filter(|_| are_neighbours)
    }

    /// Copies the rows of the block's examples into it.
    fn gather(&self, block: &mut ScoredRows<T>) {
        block.values.clear();
        for &example in &block.examples {
            let row = self.rows.row(example as usize);
            match in_precision(row) {
                Some(row) => block.values.extend_from_slice(row),
                None => R::append_to(row, &mut block.values),
            }
            if self.bias != 0.0 {
                block.values.push(T::narrow(self.bias));
            }
        }
    }

    /// The length of a class's weights in [`WeightStore::take_weights`].
    fn stride(&self) -> usize {
        self.weights.n_features().next_multiple_of(T::lanes())
    }
}

fn as_update<T: Element>(block: &ScoredRows<T>) -> Update<'_, T> {
    Update { rows: &block.values, changes: &block.changes, changed: &block.changed }
}

impl<'a, R: Real, T: Element> WeightStore for DenseStore<'a, R, T> {
    type Value = T;
    type Exact = DenseStore<'a, R, f64>;

    fn exact(&self) -> Option<Self::Exact> {
        (!Self::IS_DOUBLE).then(|| DenseStore::new(self.rows, self.bias, self.n_classes))
    }

    fn shape(&self) -> Shape {
        // For a block of b examples, the extra work for inner products and corrections is b/4 (1/m + 1/d) times the
        // work of computing scores and adding changes.
        let (d, m) = (self.weights.n_features() as f64, self.n_classes as f64);
        let block_size = ((d * m / (d + m)) as usize / 2 / 8 * 8).clamp(8, 48);
        let (padded, panel) = (self.weights.padded(), self.weights.width());
        Shape { padded, panel, block_size, largest_block: 256 }
    }

    #[inline(always)]
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<T>) -> Row<'r, T> {
        let x = read(buffer, self.rows.row(example));
        let (values, rest) = x.split_at(self.n_whole);
        Row { values, columns: &[], rest, constant: &self.constant }
    }

    fn take_weights(&mut self) -> Aligned<T> {
        let stride = self.stride();
        let mut weights = Aligned::zeros(self.n_classes * stride);
        for (class, row) in weights.chunks_exact_mut(stride).enumerate() {
            self.weights.copy_class(class, row);
        }
        weights
    }

    fn give_weights(&mut self, weights: Aligned<T>) {
        for (class, row) in weights.chunks_exact(self.stride()).enumerate() {
            self.weights.set_class(class, row);
        }
    }

    #[inline(always)]
    fn score_few<S: Simd>(
        &self,
        simd: S,
        weights: &[T],
        row: Row<'_, T>,
        classes: &[u32],
        scores: &mut [T],
    ) where
        T: Lane<S>,
    {
        let (whole, tail) = (T::vectors(row.values).0, row.tail(simd));
        let weights = T::vectors(weights).0;
        let stride = whole.len() + usize::from(tail.is_some());
        for (score, class) in scores.iter_mut().zip(classes) {
            let own = &weights[*class as usize * stride..][..stride];
            let (own, last) = own.split_at(whole.len());
            let mut sums = [T::splat(simd, T::zero()); 2];
            let (pairs, own_pairs) = (whole.as_chunks::<2>(), own.as_chunks::<2>());
            for (weights, x) in own_pairs.0.iter().zip(pairs.0) {
                sums[0] = T::fused(simd, weights[0], x[0], sums[0]);
                sums[1] = T::fused(simd, weights[1], x[1], sums[1]);
            }
            for (weight, x) in own_pairs.1.iter().zip(pairs.1) {
                sums[0] = T::fused(simd, *weight, *x, sums[0]);
            }
            if let (Some(weight), Some(x)) = (last.first(), tail) {
                sums[1] = T::fused(simd, *weight, x, sums[1]);
            }
            *score = T::total(simd, T::plus(simd, sums[0], sums[1]));
        }
    }

    #[inline(always)]
    fn add_few<S: Simd>(
        &self,
        simd: S,
        weights: &mut [T],
        row: Row<'_, T>,
        classes: &[u32],
        change: &[T],
    ) where
        T: Lane<S>,
    {
        let (whole, tail) = (T::vectors(row.values).0, row.tail(simd));
        let weights = T::vectors_mut(weights).0;
        let stride = whole.len() + usize::from(tail.is_some());
        for (change, class) in change.iter().zip(classes) {
            let change = T::splat(simd, *change);
            let weights = &mut weights[*class as usize * stride..][..stride];
            let (own, last) = weights.split_at_mut(whole.len());
            for (weight, x) in own.iter_mut().zip(whole) {
                *weight = T::fused(simd, change, *x, *weight);
            }
            if let (Some(weight), Some(x)) = (last.first_mut(), tail) {
                *weight = T::fused(simd, change, x, *weight);
            }
        }
    }

    fn next_block(
        &mut self,
        block: &mut ScoredRows<T>,
        next: &mut ScoredRows<T>,
        scores: &mut [T],
    ) {
        if next.examples.is_empty() {
            return self.weights.update(&as_update(block));
        }
        self.gather(next);
        let n = next.examples.len();
        next.gram.resize(n * n, T::zero());
        T::dispatch(InnerProducts {
            rows: &next.values,
            n_features: self.weights.n_features(),
            products: &mut next.gram,
        });
        self.weights.update_and_score(&as_update(block), &next.values, scores);
    }

    fn score(&self, block: &mut ScoredRows<T>, scores: &mut [T]) {
        match self.in_place(&block.examples) {
            Some(rows) => {
                let constant = (self.bias != 0.0).then(|| T::narrow(self.bias));
                self.weights.score(rows, constant, scores);
            }
            None => {
                self.gather(block);
                self.weights.score(&block.values, None, scores);
            }
        }
    }

    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut [T]) + Sync,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let padded = self.weights.padded();
        let mut block = ScoredRows::new(TOGETHER, padded);
        for (piece, examples) in examples.chunks(TOGETHER).enumerate() {
            interrupt.check()?;
            block.examples.clear();
            block.examples.extend_from_slice(examples);
            self.gather(&mut block);
            block.changed.clear();
            block.changed.extend(0..examples.len());
            let rows = block.changes.chunks_exact_mut(padded);
            for (row, values) in rows.take(examples.len()).enumerate() {
                values.fill(T::zero());
                change(piece * TOGETHER + row, values);
            }
            self.weights.update(&as_update(&block));
        }
        Ok(())
    }

    fn weights(&self) -> &[T] {
        self.weights.values()
    }

    fn copy_by_class(&self, by_class: &mut Vec<f64>) {
        self.weights.copy_by_class(self.n_classes, by_class);
    }

    fn load(&mut self, by_class: &[f64]) {
        match by_class {
            [] => self.weights.clear(),
            _ => self.weights.load(by_class),
        }
    }

    fn narrow(&mut self, exact: &Self::Exact) {
        self.weights.narrow(&exact.weights);
    }
}

/// The lower triangle of X Xᵀ.
struct InnerProducts<'a, T> {
    rows: &'a [T],
    n_features: usize,
    products: &'a mut [T],
}

impl<T: Element> Kernel<T> for InnerProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let n = self.rows.len() / self.n_features;
        let row = |i: usize| &self.rows[i * self.n_features..][..self.n_features];
        for i in 0..n {
            for j in 0..=i {
                self.products[i * n + j] = fused_dot(simd, row(i), row(j));
            }
        }
    }
}
