//! Sparse rows, with weights stored feature by feature, so that scoring a row and adding it to the weights run over
//! contiguous classes.

use pulp::Simd;
use rayon::join;

use super::sparse_kernels::{AddFew, FeatureRange, ScoreAll, ScoreFew};
use super::{Row, Shape, WeightStore};
use crate::data::{Csr, Real, Rows, read_in};
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, Kernel, Lane, transpose};
use crate::parallel::is_worth_sharing;

/// Sparse rows, scored one at a time: a row has few features, and its inner products with other rows would cost as much
/// as its scores.
pub(in super::super) struct SparseStore<'a, R, T> {
    rows: Csr<'a, R>,
    bias: f64,
    /// The value of the constant feature, if there is one.
    constant: Vec<T>,
    /// Features × classes, padded with zeros to full SIMD vectors.
    weights: Aligned<T>,
    n_classes: usize,
    padded: usize,
    /// The column that splits the entries of all rows into two halves of about the same size.
    middle: usize,
    /// The examples of the block.
    block: Vec<u32>,
}

impl<'a, R: Real, T: Element> SparseStore<'a, R, T> {
    /// Creates the store with weights of zero.
    pub fn new(rows: Csr<'a, R>, bias: f64, n_classes: usize) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let constant = if bias == 0.0 { Vec::new() } else { vec![T::narrow(bias)] };
        let padded = n_classes.next_multiple_of(T::lanes());
        let weights = Aligned::zeros(n_features * padded);
        let middle = rows.balanced_cuts(2).get(1).copied().unwrap_or_default();
        Self { rows, bias, constant, weights, n_classes, padded, middle, block: Vec::new() }
    }

    fn n_features(&self) -> usize {
        self.rows.n_cols() + self.constant.len()
    }
}

/// Calls `work` with the features before `cut` and with those from `cut` on, in parallel. If `work` reads too few
/// values (`n_numbers`) for threads to pay off, calls it once with all features.
fn share<T: Element>(
    weights: &mut [T],
    (cut, padded): (usize, usize),
    n_numbers: usize,
    work: impl Fn(FeatureRange<'_, T>) + Sync,
) {
    if !is_worth_sharing(n_numbers) {
        return work(FeatureRange { weights, first: 0, padded });
    }
    let (before, after) = weights.split_at_mut(cut * padded);
    join(
        || work(FeatureRange { weights: before, first: 0, padded }),
        || work(FeatureRange { weights: after, first: cut, padded }),
    );
}

impl<'a, R: Real, T: Element> WeightStore for SparseStore<'a, R, T> {
    type Value = T;
    type Exact = SparseStore<'a, R, f64>;

    fn exact(&self) -> Option<Self::Exact> {
        (!Self::IS_DOUBLE).then(|| SparseStore::new(self.rows, self.bias, self.n_classes))
    }

    fn shape(&self) -> Shape {
        let padded = self.padded;
        Shape { padded, block_size: 1, largest_block: 1 }
    }

    #[inline(always)]
    fn row<'r>(&'r self, example: usize, buffer: &'r mut Vec<T>) -> Row<'r, T> {
        let (columns, x) = self.rows.row(example);
        Row { values: read_in(x, buffer), columns, rest: &[], constant: &self.constant }
    }

    fn take_weights(&mut self) -> Aligned<T> {
        std::mem::replace(&mut self.weights, Aligned::zeros(0))
    }

    fn give_weights(&mut self, weights: Aligned<T>) {
        self.weights = weights;
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
        ScoreFew { weights, padded: self.padded, row, classes, scores }.compute(simd);
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
        let features = FeatureRange { weights, first: 0, padded: self.padded };
        AddFew { features, row, classes, change }.compute(simd);
    }

    fn begin_block(&mut self, examples: &[u32]) {
        self.block.clear();
        self.block.extend_from_slice(examples);
    }

    #[inline(always)]
    fn score_row<S: Simd>(&self, simd: S, row: usize, buffer: &mut Vec<T>, scores: &mut [T])
    where
        T: Lane<S>,
    {
        let row = self.row(self.block[row] as usize, buffer);
        ScoreAll { weights: &self.weights, row, scores }.compute(simd);
    }

    #[inline(always)]
    fn change_row<S: Simd>(
        &mut self,
        simd: S,
        row: usize,
        buffer: &mut Vec<T>,
        (classes, change): (&[u32], &[T]),
    ) where
        T: Lane<S>,
    {
        let (columns, x) = self.rows.row(self.block[row] as usize);
        let row = Row { values: read_in(x, buffer), columns, rest: &[], constant: &self.constant };
        let features = FeatureRange { weights: &mut self.weights, first: 0, padded: self.padded };
        AddFew { features, row, classes, change }.compute(simd);
    }

    fn score(&self, examples: &[u32], [buffer, _]: &mut [Vec<T>; 2], scores: &mut [T]) {
        for (example, scores) in examples.iter().zip(scores.chunks_exact_mut(self.padded)) {
            let row = self.row(*example as usize, buffer);
            T::dispatch(ScoreAll { weights: &self.weights, row, scores });
        }
    }

    fn add_rows(
        &mut self,
        examples: &[u32],
        change: impl Fn(usize, &mut Vec<u32>, &mut Vec<T>) + Sync,
        interrupt: &Interrupt,
    ) {
        let (rows, constant, padded) = (&self.rows, &self.constant, self.padded);
        let lengths = examples.iter().map(|example| rows.row(*example as usize).0.len());
        let n_numbers = lengths.sum::<usize>() * padded;
        share(&mut self.weights, (self.middle, padded), n_numbers, |mut features| {
            let (mut copied, mut classes, mut values) = (Vec::new(), Vec::new(), Vec::new());
            for (index, example) in examples.iter().enumerate() {
                if interrupt.is_raised() {
                    return;
                }
                classes.clear();
                values.clear();
                change(index, &mut classes, &mut values);
                let (columns, x) = rows.row(*example as usize);
                features.add_own(columns, read_in(x, &mut copied), &classes, &values);
                let last = [rows.n_cols() as i32];
                features.add_own(&last[..constant.len()], constant, &classes, &values);
            }
        });
    }

    fn weights(&self) -> &[T] {
        &self.weights
    }

    fn copy_by_class(&self, by_class: &mut Vec<f64>) {
        let (n_features, half) = (self.n_features(), self.n_classes / 2);
        by_class.resize(self.n_classes * n_features, 0.0);
        if !is_worth_sharing(by_class.len()) {
            return transpose(&self.weights, self.padded, by_class, n_features);
        }
        let (before, after) = by_class.split_at_mut(half * n_features);
        join(
            || transpose(&self.weights, self.padded, before, n_features),
            || transpose(&self.weights[half..], self.padded, after, n_features),
        );
    }

    fn load(&mut self, by_class: &[f64]) {
        match by_class {
            [] => self.weights.fill(T::zero()),
            _ => transpose(by_class, self.n_features(), &mut self.weights, self.padded),
        }
    }

    fn narrow(&mut self, exact: &Self::Exact) {
        let cut = (self.n_features() / 2, self.padded);
        share(&mut self.weights, cut, exact.weights.len(), |part| {
            let others = exact.weights[part.first * exact.padded..].chunks_exact(exact.padded);
            for (own, others) in part.weights.chunks_exact_mut(part.padded).zip(others) {
                own.iter_mut().zip(others).for_each(|(own, other)| *own = T::narrow(*other));
            }
        });
    }
}

impl<T: Element> FeatureRange<'_, T> {
    /// Adds x δᵀ for the part of a row x in these features, where δ has the given values at some classes.
    fn add_own(&mut self, columns: &[i32], x: &[T], classes: &[u32], change: &[T]) {
        let bound = |end: usize| columns.partition_point(|column| (*column as usize) < end);
        let end = self.first + self.weights.len() / self.padded;
        let own = bound(self.first)..bound(end);
        let row = Row { columns: &columns[own.clone()], values: &x[own], rest: &[], constant: &[] };
        let features = FeatureRange { weights: &mut *self.weights, ..*self };
        T::dispatch(AddFew { features, row, classes, change });
    }
}

#[cfg(test)]
mod tests {
    use pulp::Scalar;

    use super::*;

    fn check<T: Element + Lane<Scalar>>(n_classes: usize) {
        let x = [0.5, 1.0, -2.0, 3.0];
        let rows = Csr::new(&[0, 3, 4], &[1, 4, 5, 0], &x, 7).unwrap();
        let mut store = SparseStore::<_, T>::new(rows, 1.5, n_classes);
        let change = |class: usize| (class % 7) as f64 - 2.0;
        let add = |store: &mut SparseStore<'_, f64, T>| {
            let own = |_: usize, classes: &mut Vec<u32>, changes: &mut Vec<T>| {
                classes.extend(0..n_classes as u32);
                changes.extend((0..n_classes).map(|class| T::narrow(change(class))));
            };
            store.add_rows(&[0], own, &Interrupt::default());
        };
        add(&mut store);
        let by_class = |store: &SparseStore<'_, f64, T>| {
            let mut by_class = Vec::new();
            store.copy_by_class(&mut by_class);
            by_class
        };
        let copy = by_class(&store);
        for class in [0, n_classes - 1] {
            let expected = [0.0, 0.5, 0.0, 0.0, 1.0, -2.0, 0.0, 1.5].map(|x| x * change(class));
            assert_eq!(copy[class * 8..][..8], expected);
        }
        let mut exact = SparseStore::<_, f64>::new(rows, 1.5, n_classes);
        exact.load(&copy);
        let mut same = SparseStore::<_, T>::new(rows, 1.5, n_classes);
        same.narrow(&exact);
        assert_eq!(by_class(&same), copy);
        store.begin_block(&[0, 1]);
        let mut scores = vec![T::one(); store.padded];
        let (simd, mut buffer) = (Scalar::new(), Vec::new());
        store.score_row(simd, 0, &mut buffer, &mut scores);
        for (class, score) in scores[..n_classes].iter().enumerate() {
            assert_eq!(score.widen(), 7.5 * change(class));
        }
        assert!(scores[n_classes..].iter().all(|score| score.is_zero()));
        // Change the weights by the first row: the scores of the second row must include the change.
        let last = [n_classes as u32 - 1];
        store.change_row(simd, 0, &mut Vec::new(), (&last, &[T::narrow(4.0)]));
        store.score_row(simd, 1, &mut buffer, &mut scores);
        assert_eq!(scores[n_classes - 1].widen(), 1.5 * (1.5 * change(n_classes - 1) + 6.0));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for n_numbers in [0, usize::MAX] {
            let mut parts = vec![T::zero(); 8 * store.padded];
            let fill = |part: FeatureRange<'_, T>| part.weights.fill(T::narrow(part.first as f64));
            pool.install(|| share(&mut parts, (3, store.padded), n_numbers, fill));
            let last = parts[parts.len() - 1].widen();
            assert_eq!(last, if n_numbers == 0 { 0.0 } else { 3.0 });
        }
    }

    #[test]
    fn updates_and_scores_of_sparse_rows() {
        for n_classes in [2, 16, 21, 130, 300] {
            check::<f32>(n_classes);
            check::<f64>(n_classes);
        }
    }
}
