use pulp::Simd;

use super::{Aligned, Element, Kernel, Lane};

/// Vectors summed in registers at a time: enough that the multiply-adds do not wait for each other.
const VECTORS: usize = 8;

/// Vectors of classes from which the weights are kept in two halves of the classes.
const HALVED: usize = 10;

/// Weights (features × classes) for sparse rows, one feature after the other: a row's scores and the
/// change that it makes are sums over contiguous classes. Padded with zeros to whole vectors.
///
/// Where there are many classes the first half of them is kept before the second, each feature after feature, so
/// that two threads can have one each. That depends on the number of classes alone.
#[derive(Debug)]
pub(crate) struct FeatureMajor<T> {
    values: Aligned<T>,
    n_features: usize,
    /// Classes of each half, with the padding; none in the second where there are few.
    widths: [usize; 2],
    /// For each half, vectors of a change that are not 0: most losses change few classes, and a row has many columns.
    touched: [Vec<u32>; 2],
}

/// The weights of neighbouring classes, feature after feature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Half<W> {
    pub weights: W,
    /// The first class.
    pub first: usize,
    /// Number of classes.
    pub width: usize,
}

impl<T: Element> FeatureMajor<T> {
    /// Zeros.
    pub fn new(n_features: usize, n_classes: usize) -> Self {
        let lanes = T::lanes();
        let n_vectors = n_classes.div_ceil(lanes);
        let second = if n_vectors < HALVED { 0 } else { n_vectors / 2 };
        let widths = [(n_vectors - second) * lanes, second * lanes];
        let values = Aligned::zeros(n_features * n_vectors * lanes);
        Self { values, n_features, widths, touched: [Vec::new(), Vec::new()] }
    }

    /// The weight of a feature for a class.
    pub fn get(&self, feature: usize, class: usize) -> f64 {
        let [first, second] = self.widths;
        let place = match class.checked_sub(first) {
            None => feature * first + class,
            Some(class) => self.n_features * first + feature * second + class,
        };
        self.values[place].widen()
    }

    /// Sets all weights to 0.
    pub fn clear(&mut self) {
        self.share(|half| half.weights.fill(T::zero()));
    }

    /// Sets the weights by feature and class.
    pub fn load(&mut self, n_classes: usize, weight: impl Fn(usize, usize) -> f64) {
        for Half { weights, first, width } in self.halves_mut() {
            if width == 0 {
                continue;
            }
            let n = width.min(n_classes - first);
            for (feature, values) in weights.chunks_exact_mut(width).enumerate() {
                for (class, value) in values[..n].iter_mut().enumerate() {
                    *value = T::narrow(weight(feature, first + class));
                }
            }
        }
    }

    /// Takes the weights out; they must come back with [`FeatureMajor::give`].
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
        self.widths[0] + self.widths[1]
    }

    /// The halves of weights that were taken out; the second is empty where there are few classes.
    #[inline(always)]
    pub fn split<'w>(&self, weights: &'w [T]) -> [Half<&'w [T]>; 2] {
        let [first, second] = self.widths;
        let (own, rest) = weights.split_at(self.n_features * first);
        [
            Half { weights: own, first: 0, width: first },
            Half { weights: rest, first, width: second },
        ]
    }

    /// [`FeatureMajor::split`], to be changed.
    #[inline(always)]
    pub fn split_mut<'w>(&self, weights: &'w mut [T]) -> [Half<&'w mut [T]>; 2] {
        halves(self.n_features, self.widths, weights)
    }

    fn halves_mut(&mut self) -> [Half<&mut [T]>; 2] {
        halves(self.n_features, self.widths, &mut self.values)
    }

    /// Does the same with both halves, on two threads where there are two.
    pub fn share(&mut self, work: impl Fn(Half<&mut [T]>) + Sync) {
        let [first, second] = self.halves_mut();
        if second.width == 0 {
            work(first);
        } else {
            rayon::join(|| work(first), || work(second));
        }
    }

    /// Adds x δᵀ for a row x and δ as long as the padded classes.
    pub fn update(&mut self, columns: &[i32], x: &[T], change: &[T]) {
        let (first, second) = change.split_at(self.widths[0]);
        let halves = halves(self.n_features, self.widths, &mut self.values);
        for ((mut half, change), touched) in
            halves.into_iter().zip([first, second]).zip(&mut self.touched)
        {
            half.add(columns, x, change, touched);
        }
    }

    /// Writes the scores of a row.
    pub fn score(&self, columns: &[i32], x: &[T], scores: &mut [T]) {
        let (first, second) = scores.split_at_mut(self.widths[0]);
        for (half, scores) in self.split(&self.values).into_iter().zip([first, second]) {
            T::dispatch(Score { weights: half.weights, columns, x, scores });
        }
    }

    /// [`FeatureMajor::update`] by one row, then [`FeatureMajor::score`] of another, on two threads where there are
    /// two and enough to do.
    pub fn update_and_score(
        &mut self,
        update: Option<(&[i32], &[T], &[T])>,
        (columns, x): (&[i32], &[T]),
        scores: &mut [T],
    ) {
        let both = |mut half: Half<&mut [T]>, scores: &mut [T], touched: &mut Vec<u32>| {
            let first = half.first;
            if let Some((columns, x, change)) = update {
                half.add(columns, x, &change[first..first + half.width], touched);
            }
            T::dispatch(Score { weights: half.weights, columns, x, scores });
        };
        let [first, second] = halves(self.n_features, self.widths, &mut self.values);
        let [few, others] = &mut self.touched;
        let (own, rest) = scores.split_at_mut(self.widths[0]);
        let n_bytes = columns.len() * size_of_val(&*rest);
        if n_bytes >= SHARED && rayon::current_num_threads() > 1 {
            rayon::join(|| both(first, own, few), || both(second, rest, others));
        } else {
            both(first, own, few);
            both(second, rest, others);
        }
    }
}

/// Bytes of weights that are worth another thread: one or two microseconds of work, against .4 to hand it over.
pub(crate) const SHARED: usize = 1 << 15;

#[inline(always)]
fn halves<T>(n_features: usize, widths: [usize; 2], weights: &mut [T]) -> [Half<&mut [T]>; 2] {
    let [first, second] = widths;
    let (own, rest) = weights.split_at_mut(n_features * first);
    [Half { weights: own, first: 0, width: first }, Half { weights: rest, first, width: second }]
}

impl<T: Element> Half<&mut [T]> {
    /// Adds x δᵀ for a row x and δ of these classes.
    pub fn add(&mut self, columns: &[i32], x: &[T], change: &[T], touched: &mut Vec<u32>) {
        if self.width > 0 {
            let weights = &mut *self.weights;
            T::dispatch(AddOuter { weights, columns, x, change, touched });
        }
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
