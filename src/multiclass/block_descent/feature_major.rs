//! Weights for sparse rows, and what passes over all classes do with them.

use rayon::join;

use super::row::Row;
use super::sparse_kernels::{AddOuter, FeatureRange, FindTouched, ScoreAll};
use crate::linalg::{Aligned, Element, transpose};
use crate::parallel::is_worth_sharing;

/// Weights (features × classes) for sparse rows, one feature after the other: a row's scores and the
/// change that it makes are sums over contiguous classes. Padded with zeros to whole vectors.
#[derive(Debug)]
pub(super) struct FeatureMajor<T> {
    values: Aligned<T>,
    padded: usize,
    /// Vectors of a change that are not 0.
    touched: Vec<u32>,
}

impl<T: Element> FeatureMajor<T> {
    /// Zeros.
    pub fn new(n_features: usize, n_classes: usize) -> Self {
        let padded = n_classes.next_multiple_of(T::lanes());
        let values = Aligned::zeros(n_features * padded);
        Self { values, padded, touched: Vec::new() }
    }

    /// Sets all weights to 0.
    pub fn clear(&mut self) {
        let n_values = self.values.len();
        self.share(n_values / self.padded / 2, n_values, |part| part.weights.fill(T::zero()));
    }

    /// Calls `work` with the features before `cut` and with those from `cut` on, in parallel. If `work` reads too few
    /// numbers (`n_numbers`) for that to pay, calls it once with all features.
    pub fn share(
        &mut self,
        cut: usize,
        n_numbers: usize,
        work: impl Fn(FeatureRange<'_, T>) + Sync,
    ) {
        let padded = self.padded;
        if !is_worth_sharing(n_numbers) {
            return work(FeatureRange { weights: &mut self.values, first: 0, padded });
        }
        let (before, after) = self.values.split_at_mut(cut * padded);
        join(
            || work(FeatureRange { weights: before, first: 0, padded }),
            || work(FeatureRange { weights: after, first: cut, padded }),
        );
    }

    /// Writes the weights to `by_class`, class after class.
    pub fn copy_by_class(&self, n_classes: usize, by_class: &mut Vec<f64>) {
        let (n_features, half) = (self.values.len() / self.padded, n_classes / 2);
        by_class.resize(n_classes * n_features, 0.0);
        if !is_worth_sharing(by_class.len()) {
            return transpose(&self.values, self.padded, by_class, n_features);
        }
        let (before, after) = by_class.split_at_mut(half * n_features);
        join(
            || transpose(&self.values, self.padded, before, n_features),
            || transpose(&self.values[half..], self.padded, after, n_features),
        );
    }

    /// Sets the weights to those given class after class.
    pub fn load(&mut self, by_class: &[f64]) {
        transpose(by_class, self.values.len() / self.padded, &mut self.values, self.padded);
    }

    /// Sets the weights to others of as many features and classes.
    pub fn narrow(&mut self, exact: &FeatureMajor<f64>) {
        let n_features = self.values.len() / self.padded;
        self.share(n_features / 2, exact.values.len(), |part| {
            let others = exact.values[part.first * exact.padded..].chunks_exact(exact.padded);
            for (own, others) in part.weights.chunks_exact_mut(part.padded).zip(others) {
                own.iter_mut().zip(others).for_each(|(own, other)| *own = T::narrow(*other));
            }
        });
    }

    /// Takes the weights out, feature after feature; they must come back with [`FeatureMajor::give`].
    pub fn take(&mut self) -> Aligned<T> {
        std::mem::replace(&mut self.values, Aligned::zeros(0))
    }

    /// Puts the weights back.
    pub fn give(&mut self, values: Aligned<T>) {
        self.values = values;
    }

    /// All weights in some order.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Number of classes with the padding.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// Adds x δᵀ for a row x and δ as long as the padded classes.
    pub fn update(&mut self, row: Row<'_, T>, change: &[T]) {
        T::dispatch(FindTouched { change, touched: &mut self.touched });
        let features = FeatureRange { weights: &mut self.values, first: 0, padded: self.padded };
        T::dispatch(AddOuter { features, row, change, touched: &self.touched });
    }

    /// Writes the scores of a row.
    pub fn score(&self, row: Row<'_, T>, scores: &mut [T]) {
        T::dispatch(ScoreAll { weights: &self.values, row, scores });
    }
}

impl<T: Element> FeatureRange<'_, T> {
    /// Adds x δᵀ for what of a row x is in these features, and δ as long as the padded classes.
    pub fn add_own(&mut self, columns: &[i32], x: &[T], change: &[T], touched: &[u32]) {
        let bound = |end: usize| columns.partition_point(|column| (*column as usize) < end);
        let end = self.first + self.weights.len() / self.padded;
        let own = bound(self.first)..bound(end);
        let row = Row { columns: &columns[own.clone()], values: &x[own], rest: &[], constant: &[] };
        let Self { weights, first, padded } = self;
        let features = FeatureRange { weights, first: *first, padded: *padded };
        T::dispatch(AddOuter { features, row, change, touched });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'r, T>(columns: &'r [i32], values: &'r [T]) -> Row<'r, T> {
        Row { values, columns, rest: &[], constant: &[] }
    }

    fn check<T: Element>(n_classes: usize) {
        let mut weights = FeatureMajor::<T>::new(6, n_classes);
        let padded = weights.padded();
        let (columns, x) = ([1, 4, 5], [0.5, -2.0, 3.0].map(T::narrow));
        let change = |class: usize| (class % 7) as f64 - 2.0;
        let mut changes = vec![T::zero(); padded];
        (0..n_classes).for_each(|class| changes[class] = T::narrow(change(class)));
        weights.update(row(&columns, &x), &changes);
        let last = n_classes - 1;
        let mut single = vec![T::zero(); padded];
        single[last] = T::narrow(4.0);
        weights.update(row(&columns[..1], &x[..1]), &single);
        let by_class = |weights: &FeatureMajor<_>| {
            let mut by_class = Vec::new();
            weights.copy_by_class(n_classes, &mut by_class);
            by_class
        };
        let copy = by_class(&weights);
        assert_eq!(copy[last * 6 + 1], 0.5 * change(last) + 2.0);
        assert_eq!(copy[last * 6 + 4], -2.0 * change(last));
        assert_eq!(copy[0], 0.0);
        let mut exact = FeatureMajor::<f64>::new(6, n_classes);
        exact.load(&copy);
        let mut weights = FeatureMajor::<T>::new(6, n_classes);
        weights.narrow(&exact);
        assert_eq!(by_class(&weights), copy);
        let mut scores = vec![T::one(); padded];
        weights.score(row(&columns[1..], &x[1..]), &mut scores);
        for (class, score) in scores[..n_classes].iter().enumerate() {
            assert_eq!(score.widen(), 13.0 * change(class));
        }
        assert!(scores[n_classes..].iter().all(|score| *score == T::zero()));
        let mut touched = Vec::new();
        T::dispatch(FindTouched { change: &changes, touched: &mut touched });
        // On one thread, then on two.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for (times, n_numbers) in [(1.0, 0), (2.0, usize::MAX)] {
            let add =
                |mut part: FeatureRange<'_, T>| part.add_own(&columns, &x, &changes, &touched);
            pool.install(|| weights.share(4, n_numbers, add));
            for (column, x) in columns.iter().zip(x) {
                let place = last * 6 + *column as usize;
                let expected = copy[place] + times * x.widen() * change(last);
                assert_eq!(by_class(&weights)[place], expected);
            }
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
