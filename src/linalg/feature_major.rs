use pulp::Simd;

use super::{Aligned, Element, Kernel, Lane};

/// Vectors summed in registers at a time: enough that the multiply-adds do not wait for each other.
const VECTORS: usize = 8;

/// Weights (features × classes) for sparse rows, one feature after the other: a row's scores and the
/// change that it makes are sums over contiguous classes. Padded with zeros to whole vectors.
#[derive(Debug)]
pub(crate) struct FeatureMajor<T> {
    values: Aligned<T>,
    padded: usize,
    /// Vectors of a change that are not 0: most losses change few classes, and a row has many columns.
    touched: Vec<u32>,
}

impl<T: Element> FeatureMajor<T> {
    /// Zeros.
    pub fn new(n_features: usize, n_classes: usize) -> Self {
        let padded = n_classes.next_multiple_of(T::lanes());
        Self { values: Aligned::zeros(n_features * padded), padded, touched: Vec::new() }
    }

    /// The weight of a feature for a class.
    pub fn get(&self, feature: usize, class: usize) -> f64 {
        self.values[feature * self.padded + class].widen()
    }

    /// Sets all weights to 0.
    pub fn clear(&mut self) {
        self.values.fill(T::zero());
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
        let Self { values: weights, touched, .. } = self;
        T::dispatch(AddOuter { weights, columns, x, change, touched });
    }

    /// Writes the scores of a row.
    pub fn score(&self, columns: &[i32], x: &[T], scores: &mut [T]) {
        T::dispatch(Score { weights: &self.values, columns, x, scores });
    }
}

struct AddOuter<'a, T> {
    weights: &'a mut [T],
    columns: &'a [i32],
    x: &'a [T],
    change: &'a [T],
    touched: &'a mut Vec<u32>,
}

impl<T: Element> Kernel<T> for AddOuter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, columns, x, change, touched } = self;
        touched.clear();
        for (at, values) in change.chunks_exact(T::LANES).enumerate() {
            if values.iter().fold(false, |some, value| some | (*value != T::zero())) {
                touched.push(at as u32);
            }
        }
        let (weights, change) = (T::vectors_mut(weights).0, T::vectors(change).0);
        for (&column, &x) in columns.iter().zip(x) {
            let x = T::splat(simd, x);
            let row = &mut weights[column as usize * change.len()..][..change.len()];
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
    }

    #[test]
    fn updates_and_scores_of_sparse_rows() {
        for n_classes in [2, 16, 21, 130, 300] {
            check::<f32>(n_classes);
            check::<f64>(n_classes);
        }
    }
}
