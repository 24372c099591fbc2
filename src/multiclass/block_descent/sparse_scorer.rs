//! Sparse rows and their weights, for block descent.

use pulp::Simd;

use super::feature_major::FeatureMajor;
use super::row::{GatheredRows, Row, extend, read};
use super::scorer::{Changes, Scorer, with_weights};
use super::sparse_kernels::{AddFewSparse, FeatureRange, FindTouched, ScoreFewSparse, WHOLE};
use crate::data::{Csr, Real, Rows, in_precision};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, Kernel, Lane};

/// Sparse rows, one at a time: a row's features are few, and their inner products with other rows'
/// would cost as much as the scores.
pub(super) struct SparseScorer<'a, R, T> {
    rows: Csr<'a, R>,
    bias: f64,
    /// The constant feature, if there is one.
    constant: Vec<T>,
    weights: FeatureMajor<T>,
    n_classes: usize,
    /// The column with about half of the entries before it.
    middle: usize,
}

impl<'a, R: Real, T: Element> SparseScorer<'a, R, T> {
    pub fn new(rows: Csr<'a, R>, bias: f64, n_classes: usize) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let constant = if bias == 0.0 { Vec::new() } else { vec![T::narrow(bias)] };
        let weights = FeatureMajor::new(n_features, n_classes);
        let middle = rows.balanced_cuts(2).get(1).copied().unwrap_or_default();
        Self { rows, bias, constant, weights, n_classes, middle }
    }
}

/// A block's row with the constant feature as a column, which is copied only where it is not stored as it is read.
fn gathered<'b, R: Real, T: Real>(rows: &'b Csr<'_, R>, block: &'b GatheredRows<T>) -> Row<'b, T> {
    let (columns, values) = match block.examples.first() {
        Some(example) if block.values.is_empty() => {
            let (columns, values) = rows.row(*example as usize);
            (columns, in_precision(values).unwrap_or_default())
        }
        _ => (&block.columns[..], &block.values[..]),
    };
    Row { values, columns, rest: &[], constant: &[] }
}

impl<'a, R: Real, T: Element> Scorer for SparseScorer<'a, R, T> {
    type Value = T;
    type Exact = SparseScorer<'a, R, f64>;

    with_weights!();

    const LARGEST_BLOCK: usize = 1;

    fn full_share(&self) -> f64 {
        // Visits to candidates read whole vectors of many classes, too.
        if self.weights.padded() > WHOLE * T::lanes() { 0.1 } else { 0.2 }
    }

    fn block_size(&self) -> usize {
        1
    }

    fn gather(&self, block: &mut GatheredRows<T>) {
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

    fn multiply_rows(&self, _: &mut GatheredRows<T>) {}

    fn update(&mut self, changes: &Changes<T>, block: &GatheredRows<T>) {
        if !changes.changed.is_empty() {
            let row = gathered(&self.rows, block);
            self.weights.update(row, &changes.values);
        }
    }

    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut [T]) + Sync,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let (rows, constant, padded) = (&self.rows, &self.constant, self.weights.padded());
        let n_stored: usize = examples.iter().map(|example| self.n_stored(*example as usize)).sum();
        self.weights.share(self.middle, n_stored * padded, |mut features| {
            let (mut copied, mut touched) = (Vec::new(), Vec::new());
            let mut values = Aligned::zeros(padded);
            for (index, example) in examples.iter().enumerate() {
                if interrupt.is_raised() {
                    return;
                }
                values.fill(T::zero());
                change(index, &mut values);
                let (columns, x) = rows.row(*example as usize);
                T::dispatch(FindTouched { change: &values, touched: &mut touched });
                features.add_own(columns, read(&mut copied, x), &values, &touched);
                let last = [rows.n_cols() as i32];
                features.add_own(&last[..constant.len()], constant, &values, &touched);
            }
        });
        interrupt.check()
    }

    fn score(&self, block: &mut GatheredRows<T>, scores: &mut [T]) {
        self.gather(block);
        self.weights.score(gathered(&self.rows, block), scores);
    }

    fn update_and_score(
        &mut self,
        changes: &Changes<T>,
        block: &GatheredRows<T>,
        next: &GatheredRows<T>,
        scores: &mut [T],
    ) {
        self.update(changes, block);
        self.weights.score(gathered(&self.rows, next), scores);
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
        Row { values: read(buffer, x), columns, rest: &[], constant: &self.constant }
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
        let features = FeatureRange { weights, first: 0, padded };
        AddFewSparse { features, row, classes, change }.compute(simd);
    }
}
