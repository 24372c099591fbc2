use pulp::Simd;
use rayon::join;

use super::{Aligned, Element, Kernel, Lane};

/// Vectors summed in registers at a time: enough that the multiply-adds do not wait for each other.
const VECTORS: usize = 8;

/// Bytes of weights that a row reads from which it is treated in two halves, on two threads where there are two: some
/// microseconds of work, against .4 to hand over half of it.
const HALVED: usize = 1 << 16;

/// Whether a row is treated in two halves, given the bytes of weights it reads. That decides on the order in which
/// scores are added up, and so must not depend on the number of threads.
#[inline(always)]
pub(crate) fn is_halved(n_bytes: usize) -> bool {
    n_bytes >= HALVED
}

/// Does both, on two threads where there are two.
#[inline(always)]
pub(crate) fn on_two(first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    if rayon::current_num_threads() > 1 {
        join(first, second);
    } else {
        first();
        second();
    }
}

/// Weights (features × classes) for sparse rows, one feature after the other: a row's scores and the
/// change that it makes are sums over contiguous classes. Padded with zeros to whole vectors.
#[derive(Debug)]
pub(crate) struct FeatureMajor<T> {
    values: Aligned<T>,
    padded: usize,
    /// For each half of a row, vectors of a change that are not 0.
    touched: [Vec<u32>; 2],
    /// Scores of the second half of a row.
    spare: Vec<T>,
}

/// The weights of neighbouring features.
pub(crate) struct Features<'w, T> {
    weights: &'w mut [T],
    /// The first feature.
    first: usize,
    padded: usize,
}

impl<T: Element> FeatureMajor<T> {
    /// Zeros.
    pub fn new(n_features: usize, n_classes: usize) -> Self {
        let padded = n_classes.next_multiple_of(T::lanes());
        let values = Aligned::zeros(n_features * padded);
        Self { values, padded, touched: Default::default(), spare: Vec::new() }
    }

    /// The weight of a feature for a class.
    pub fn get(&self, feature: usize, class: usize) -> f64 {
        self.values[feature * self.padded + class].widen()
    }

    /// Sets all weights to 0.
    pub fn clear(&mut self) {
        let n_features = self.values.len() / self.padded;
        self.share(n_features / 2, |part| part.weights.fill(T::zero()));
    }

    /// Does the same with the features before and from `cut`, on two threads where there are two.
    pub fn share(&mut self, cut: usize, work: impl Fn(Features<'_, T>) + Sync) {
        let [before, after] = Features::all(&mut self.values, self.padded).split(cut);
        on_two(|| work(before), || work(after));
    }

    /// Sets the weights by feature and class.
    pub fn load(&mut self, n_classes: usize, weight: impl Fn(usize, usize) -> f64) {
        for (feature, values) in self.values.chunks_exact_mut(self.padded).enumerate() {
            for (class, value) in values[..n_classes].iter_mut().enumerate() {
                *value = T::narrow(weight(feature, class));
            }
        }
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
    pub fn update(&mut self, columns: &[i32], x: &[T], change: &[T]) {
        let mut features = Features::all(&mut self.values, self.padded);
        let [touched, others] = &mut self.touched;
        let half = columns.len() / 2;
        if !is_halved(columns.len() * size_of_val(change)) {
            return features.add(columns, x, change, touched);
        }
        let [mut before, mut after] = features.split(columns[half] as usize);
        on_two(
            || before.add(&columns[..half], &x[..half], change, touched),
            || after.add(&columns[half..], &x[half..], change, others),
        );
    }

    /// Writes the scores of a row.
    pub fn score(&self, columns: &[i32], x: &[T], scores: &mut [T]) {
        T::dispatch(Score { weights: &self.values, columns, x, scores });
    }

    /// [`FeatureMajor::score`], where it is worth it in two halves.
    pub fn score_halves(&mut self, columns: &[i32], x: &[T], scores: &mut [T]) {
        if !is_halved(columns.len() * size_of_val(scores)) {
            return self.score(columns, x, scores);
        }
        let half = columns.len() / 2;
        self.spare.resize(scores.len(), T::zero());
        let (weights, others) = (&self.values[..], &mut self.spare[..]);
        on_two(
            || T::dispatch(Score { weights, columns: &columns[..half], x: &x[..half], scores }),
            || {
                let (columns, x) = (&columns[half..], &x[half..]);
                T::dispatch(Score { weights, columns, x, scores: others });
            },
        );
        for (score, other) in scores.iter_mut().zip(&self.spare) {
            *score = *score + *other;
        }
    }
}

impl<'w, T: Element> Features<'w, T> {
    fn all(weights: &'w mut [T], padded: usize) -> Self {
        Self { weights, first: 0, padded }
    }

    /// The features before and from `cut`.
    fn split(self, cut: usize) -> [Self; 2] {
        let Self { weights, first, padded } = self;
        let (before, after) = weights.split_at_mut((cut - first) * padded);
        [Self { weights: before, first, padded }, Self { weights: after, first: cut, padded }]
    }

    /// Adds x δᵀ for what of a row x is in these features, and δ as long as the padded classes.
    pub fn add_own(&mut self, columns: &[i32], x: &[T], change: &[T], touched: &mut Vec<u32>) {
        let end = self.first + self.weights.len() / self.padded;
        let start = columns.partition_point(|column| (*column as usize) < self.first);
        let end = columns.partition_point(|column| (*column as usize) < end);
        if start < end {
            self.add(&columns[start..end], &x[start..end], change, touched);
        }
    }

    /// The same for a row that is in these features altogether.
    fn add(&mut self, columns: &[i32], x: &[T], change: &[T], touched: &mut Vec<u32>) {
        let Self { weights, first, .. } = self;
        T::dispatch(AddOuter { weights, first: *first, columns, x, change, touched });
    }
}

struct AddOuter<'a, T> {
    weights: &'a mut [T],
    /// The feature of the first of them.
    first: usize,
    columns: &'a [i32],
    x: &'a [T],
    change: &'a [T],
    /// Vectors of the change that are not 0: most losses change few classes, and a row has many columns.
    touched: &'a mut Vec<u32>,
}

impl<T: Element> Kernel<T> for AddOuter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, first, columns, x, change, touched } = self;
        touched.clear();
        for (at, values) in change.chunks_exact(T::LANES).enumerate() {
            if values.iter().fold(false, |some, value| some | (*value != T::zero())) {
                touched.push(at as u32);
            }
        }
        let (weights, change) = (T::vectors_mut(weights).0, T::vectors(change).0);
        for (&column, &x) in columns.iter().zip(x) {
            let x = T::splat(simd, x);
            let row = &mut weights[(column as usize - first) * change.len()..][..change.len()];
            for &at in &*touched {
                let at = at as usize;
                row[at] = T::fused(simd, x, change[at], row[at]);
            }
        }
    }
}

struct Score<'a, T> {
    weights: &'a [T],
    columns: &'a [i32],
    x: &'a [T],
    scores: &'a mut [T],
}

impl<T: Element> Kernel<T> for Score<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let scores = T::vectors_mut(self.scores).0;
        let padded = scores.len();
        let mut first = 0;
        let (wide, rest) = scores.as_chunks_mut::<VECTORS>();
        for scores in wide {
            *scores = stretch(simd, self.weights, padded, first, self.columns, self.x);
            first += VECTORS;
        }
        // What is left over in one or two passes over the row.
        let (four, rest) = rest.as_chunks_mut::<4>();
        for scores in four {
            *scores = stretch(simd, self.weights, padded, first, self.columns, self.x);
            first += 4;
        }
        match rest {
            [a, b, c] => {
                [*a, *b, *c] = stretch(simd, self.weights, padded, first, self.columns, self.x);
            }
            [a, b] => [*a, *b] = stretch(simd, self.weights, padded, first, self.columns, self.x),
            [a] => [*a] = stretch(simd, self.weights, padded, first, self.columns, self.x),
            _ => {}
        }
    }
}

/// The scores of V vectors of classes, the first of them `first`.
#[inline(always)]
fn stretch<S: Simd, T: Lane<S>, const V: usize>(
    simd: S,
    weights: &[T],
    padded: usize,
    first: usize,
    columns: &[i32],
    x: &[T],
) -> [T::Vector; V] {
    let weights = T::vectors(weights).0;
    let mut sums = [T::splat(simd, T::zero()); V];
    for (&column, &x) in columns.iter().zip(x) {
        let x = T::splat(simd, x);
        let weights = &weights[column as usize * padded + first..][..V];
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = T::fused(simd, x, *weight, *sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(n_classes: usize) {
        let mut weights = FeatureMajor::<T>::new(6, n_classes);
        let padded = weights.padded();
        let (columns, x) = ([1, 4, 5], [0.5, -2.0, 3.0].map(T::narrow));
        let change = |class: usize| (class % 7) as f64 - 2.0;
        let mut changes = vec![T::zero(); padded];
        (0..n_classes).for_each(|class| changes[class] = T::narrow(change(class)));
        weights.update(&columns, &x, &changes);
        let last = n_classes - 1;
        let mut single = vec![T::zero(); padded];
        single[last] = T::narrow(4.0);
        weights.update(&columns[..1], &x[..1], &single);
        assert_eq!(weights.get(1, last), 0.5 * change(last) + 2.0);
        assert_eq!(weights.get(4, last), -2.0 * change(last));
        assert_eq!(weights.get(0, 0), 0.0);
        let copy: Vec<f64> =
            (0..6 * n_classes).map(|i| weights.get(i / n_classes, i % n_classes)).collect();
        let mut weights = FeatureMajor::<T>::new(6, n_classes);
        weights.load(n_classes, |feature, class| copy[feature * n_classes + class]);
        let mut scores = vec![T::one(); padded];
        weights.score(&columns[1..], &x[1..], &mut scores);
        for (class, score) in scores[..n_classes].iter().enumerate() {
            assert_eq!(score.widen(), 13.0 * change(class));
        }
        assert!(scores[n_classes..].iter().all(|score| *score == T::zero()));
        weights.share(4, |mut part| part.add_own(&columns, &x, &changes, &mut Vec::new()));
        for (column, x) in columns.iter().zip(x) {
            let (before, step) = (copy[*column as usize * n_classes + last], change(last));
            assert_eq!(weights.get(*column as usize, last), before + x.widen() * step);
        }
    }

    #[test]
    fn long_rows_are_treated_in_halves() {
        let columns: Vec<i32> = (0..300).map(|at| 2 * at + 1).collect();
        let x: Vec<f64> = (0..300).map(|at| (at % 5) as f64).collect();
        let change: Vec<f64> = (0..200).map(|class| (class % 3) as f64).collect();
        assert!(is_halved(300 * size_of_val(&change[..])));
        let mut weights = FeatureMajor::new(601, 200);
        weights.update(&columns, &x, &change);
        assert!((0..200).all(|class| weights.get(4, class) == 0.0));
        let mut scores = vec![1.0; 200];
        weights.score_halves(&columns, &x, &mut scores);
        let square: f64 = x.iter().map(|x| x * x).sum();
        assert!(scores.iter().zip(&change).all(|(score, change)| *score == square * change));
    }

    #[test]
    fn updates_and_scores_of_sparse_rows() {
        for n_classes in [2, 16, 21, 130, 300] {
            check::<f32>(n_classes);
            check::<f64>(n_classes);
        }
    }
}
