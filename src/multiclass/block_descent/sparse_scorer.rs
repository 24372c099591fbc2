//! Sparse rows and their weights, feature after feature.

use std::sync::Arc;

use pulp::Simd;

use super::row::{Row, RowBlock, extend, read};
use super::scorer::{Changes, Scorer, is_double};
use super::sparse_kernels::{AddFewSparse, ScoreFewSparse};
use crate::data::{Csr, Real, Rows, in_precision};
use crate::linalg::{Aligned, Element, FeatureMajor, Kernel, Lane};

/// Rows by which columns are cut into ranges.
const SAMPLE: usize = 512;

/// Sparse rows, one at a time: a row's features are few, and their inner products with other rows'
/// would cost as much as the scores.
pub(super) struct SparseScorer<'a, R, T> {
    rows: Csr<'a, R>,
    bias: f64,
    /// The constant feature, if there is one.
    constant: Vec<T>,
    weights: FeatureMajor<T>,
    n_classes: usize,
    ranges: Arc<Ranges>,
}

/// Two ranges of the columns that hold about as many entries.
#[derive(Debug, Default)]
struct Ranges {
    /// The first column of the second.
    cut: usize,
    /// How many entries of each row are before it.
    n_low: Vec<u32>,
}

impl Ranges {
    fn new<R: Real>(rows: &Csr<'_, R>) -> Self {
        let n = rows.n_rows();
        let sample = (0..n).step_by(1 + n / SAMPLE).flat_map(|row| rows.row(row).0);
        let mut sample: Vec<i32> = sample.copied().collect();
        if sample.is_empty() {
            return Self { cut: 0, n_low: vec![0; n] };
        }
        let middle = sample.len() / 2;
        let cut = *sample.select_nth_unstable(middle).1;
        let n_low = |row| rows.row(row).0.partition_point(|column| *column < cut) as u32;
        Self { cut: cut as usize, n_low: (0..n).map(n_low).collect() }
    }
}

impl<'a, R: Real, T: Element> SparseScorer<'a, R, T> {
    pub fn new(rows: Csr<'a, R>, bias: f64, n_classes: usize) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let constant = if bias == 0.0 { Vec::new() } else { vec![T::narrow(bias)] };
        let weights = FeatureMajor::new(n_features, n_classes);
        let ranges = Arc::new(Ranges::new(&rows));
        Self { rows, bias, constant, weights, n_classes, ranges }
    }
}

/// Columns and values of a block's row, which is copied only where it is not stored as it is read.
fn gathered<'b, R: Real, T: Real>(
    rows: &'b Csr<'_, R>,
    block: &'b RowBlock<T>,
) -> (&'b [i32], &'b [T]) {
    match block.examples.first() {
        Some(example) if block.values.is_empty() => {
            let (columns, values) = rows.row(*example as usize);
            (columns, in_precision(values).unwrap_or_default())
        }
        _ => (&block.columns, &block.values),
    }
}

impl<'a, R: Real, T: Element> Scorer for SparseScorer<'a, R, T> {
    type Value = T;
    type Exact = SparseScorer<'a, R, f64>;

    fn exact(&self) -> Option<Self::Exact> {
        let n_features = self.n_features();
        (!is_double::<T>()).then(|| SparseScorer {
            rows: self.rows,
            bias: self.bias,
            constant: self.constant.iter().map(|value| value.widen()).collect(),
            weights: FeatureMajor::new(n_features, self.n_classes),
            n_classes: self.n_classes,
            ranges: self.ranges.clone(),
        })
    }

    const LARGEST_BLOCK: usize = 1;

    fn block_size(&self) -> usize {
        1
    }

    fn n_features(&self) -> usize {
        self.rows.n_cols() + usize::from(self.bias != 0.0)
    }

    fn squared_norm(&self, example: usize) -> f64 {
        let (_, x) = self.rows.row(example);
        x.iter().map(|x| x.widen().powi(2)).sum::<f64>() + self.bias * self.bias
    }

    fn gather(&self, block: &mut RowBlock<T>) {
        debug_assert!(block.examples.len() <= 1);
        block.values.clear();
        block.columns.clear();
        for &example in &block.examples {
            let (columns, values) = self.rows.row(example as usize);
            if self.bias == 0.0 && in_precision::<R, T>(values).is_some() {
                continue;
            }
            block.columns.extend_from_slice(columns);
            extend(&mut block.values, values);
            if self.bias != 0.0 {
                block.columns.push(self.rows.n_cols() as i32);
                block.values.push(T::narrow(self.bias));
            }
        }
    }

    fn multiply_rows(&self, _: &mut RowBlock<T>) {}

    fn update(&mut self, changes: &Changes<T>, block: &RowBlock<T>) {
        if !changes.changed.is_empty() {
            let (columns, values) = gathered(&self.rows, block);
            self.weights.update(columns, values, &changes.values);
        }
    }

    fn score(&self, block: &RowBlock<T>, scores: &mut [T]) {
        let (columns, values) = gathered(&self.rows, block);
        self.weights.score(columns, values, scores);
    }

    fn update_and_score(
        &mut self,
        changes: &Changes<T>,
        block: &RowBlock<T>,
        next: &RowBlock<T>,
        scores: &mut [T],
    ) {
        self.update(changes, block);
        self.score(next, scores);
    }

    fn padded(&self) -> usize {
        self.weights.padded()
    }

    fn panel_width(&self) -> usize {
        self.weights.padded()
    }

    fn n_stored(&self, example: usize) -> usize {
        self.rows.row(example).0.len() + usize::from(self.bias != 0.0)
    }

    #[inline(always)]
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<T>) -> Row<'r, T> {
        let (columns, x) = self.rows.row(example);
        let n_low = self.ranges.n_low[example] as usize;
        let (values, constant) = (read(buffer, x), &self.constant[..]);
        Row { values, columns, rest: &[], constant, n_low, origin: 0 }
    }

    fn take_weights(&mut self) -> Aligned<T> {
        self.weights.take()
    }

    fn class_stride(&self) -> Option<usize> {
        None
    }

    fn give_weights(&mut self, weights: Aligned<T>) {
        self.weights.give(weights);
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
        let padded = self.weights.padded();
        ScoreFewSparse { weights, padded, row, classes, scores }.compute(simd);
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
        let padded = self.weights.padded();
        AddFewSparse { weights, padded, row, classes, change }.compute(simd);
    }

    fn cut(&self) -> Option<usize> {
        Some(self.ranges.cut * self.weights.padded())
    }

    #[inline(always)]
    fn ranges<'r>(&self, row: Row<'r, T>) -> Option<(usize, [Row<'r, T>; 2])> {
        Some((self.ranges.cut * self.weights.padded(), row.ranges(self.ranges.cut)))
    }

    fn weight(&self, feature: usize, class: usize) -> f64 {
        self.weights.get(feature, class)
    }

    fn weights(&self) -> &[T] {
        self.weights.values()
    }

    fn load(&mut self, weight: impl Fn(usize, usize) -> f64) {
        self.weights.load(self.n_classes, weight);
    }

    fn clear(&mut self) {
        self.weights.clear();
    }
}
