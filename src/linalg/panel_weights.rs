//! Packed weights for dense rows; the weights change between products.

use std::array::from_fn;

use pulp::Simd;

use super::{Aligned, Element, Kernel, Lane, transpose};
use crate::parallel::for_items;

/// Number of vectors in each row of a register tile, as in [`Panels`](super::Panels).
const VECTORS: usize = 3;
/// Minimum number of multiplications for which a second thread pays off. Waking a thread takes a few microseconds.
const WORTHWHILE: usize = 1 << 19;

/// Weights (features × classes) that change between products. They are stored in contiguous panels
/// as wide as a register tile, padded with zeros to full vectors.
///
/// A panel is updated, and then read for the next scores while it is still in the cache. Each
/// thread processes whole panels, so results do not depend on the number of threads.
#[derive(Debug)]
pub(crate) struct PanelWeights<T> {
    values: Aligned<T>,
    n_features: usize,
    padded: usize,
    width: usize,
}

/// A sum of outer products x_i δ_iᵀ to add to the weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Update<'a, T> {
    /// The rows x_i, with `n_features` values each.
    pub rows: &'a [T],
    /// δ_i for each row, padded like the classes.
    pub changes: &'a [T],
    /// The indices of the rows whose δ_i is not 0.
    pub changed: &'a [usize],
}

impl<T: Element> PanelWeights<T> {
    /// Creates zero weights.
    pub fn new(n_features: usize, n_classes: usize) -> Self {
        let padded = n_classes.next_multiple_of(T::lanes());
        let width = (VECTORS * T::lanes()).min(padded);
        Self { values: Aligned::zeros(n_features * padded), n_features, padded, width }
    }

    /// The weight of a feature for a class.
    pub fn get(&self, feature: usize, class: usize) -> f64 {
        let first = class / self.width * self.width;
        let width = self.width.min(self.padded - first);
        self.values[self.n_features * first + feature * width + class - first].widen()
    }

    /// Sets all weights to 0.
    pub fn clear(&mut self) {
        self.values.fill(T::zero());
    }

    /// Returns the weights class by class.
    pub fn by_class(&self, n_classes: usize) -> Vec<f64> {
        let mut by_class = Vec::new();
        self.copy_by_class(n_classes, &mut by_class);
        by_class
    }

    /// Writes the weights to `by_class`, class by class.
    pub fn copy_by_class(&self, n_classes: usize, by_class: &mut Vec<f64>) {
        let n_features = self.n_features;
        by_class.resize(n_classes * n_features, 0.0);
        let panels = self.values.chunks(n_features * self.width);
        for (panel, classes) in panels.zip(by_class.chunks_mut(n_features * self.width)) {
            transpose(panel, panel.len() / n_features, classes, n_features);
        }
    }

    /// Sets the weights to `by_class`, which holds them class by class.
    pub fn load(&mut self, by_class: &[f64]) {
        let Self { n_features, width, .. } = *self;
        let panels = self.values.chunks_mut(n_features * width);
        for (panel, classes) in panels.zip(by_class.chunks(n_features * width)) {
            transpose(classes, n_features, panel, panel.len() / n_features);
        }
    }

    /// Sets the weights to the weights of `exact`, which has the same shape, rounded to this
    /// precision.
    pub fn narrow(&mut self, exact: &PanelWeights<f64>) {
        self.load(&exact.by_class(self.padded.min(exact.padded)));
    }

    /// Copies the weights of a class, feature by feature.
    pub fn copy_class(&self, class: usize, out: &mut [T]) {
        let (start, width) = self.place(class);
        for (out, value) in
            out.iter_mut().zip(self.values[start..].iter().step_by(width)).take(self.n_features)
        {
            *out = *value;
        }
    }

    /// Sets the weights of a class, feature by feature.
    pub fn set_class(&mut self, class: usize, weights: &[T]) {
        let (start, width) = self.place(class);
        let values = self.values[start..].iter_mut().step_by(width).take(self.n_features);
        for (value, weight) in values.zip(weights) {
            *value = *weight;
        }
    }

    /// The position of a class's first weight, and the distance between consecutive weights of the class.
    fn place(&self, class: usize) -> (usize, usize) {
        let first = class / self.width * self.width;
        (self.n_features * first + class - first, self.width.min(self.padded - first))
    }

    /// All weights, in the order in which they are stored.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// Number of classes including the padding.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// Number of classes per panel; the last panel may have fewer.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Adds the update to the weights.
    pub fn update(&mut self, update: &Update<'_, T>) {
        let Self { n_features, padded, width, .. } = *self;
        let work = update.changed.len() * self.values.len();
        let panels = self.values.chunks_mut(n_features * width).enumerate();
        for_each(panels, work, |(panel, weights)| {
            T::dispatch(AddUpdate { weights, update, first: panel * width, n_features, padded });
        });
    }

    /// Writes the scores of `rows` (`n_features` values each): one panel of classes after the other, and row by row
    /// within a panel. If `constant` is given, it is the value of every row's last feature, which is then not stored in
    /// `rows`.
    pub fn score(&self, rows: &[T], constant: Option<T>, scores: &mut [T]) {
        let (n_features, width) = (self.n_features, self.width);
        let n_rows = scores.len() / self.padded;
        let work = n_rows * self.values.len();
        let panels = self.values.chunks(n_features * width);
        for_each(panels.zip(scores.chunks_mut(n_rows * width)), work, |(weights, scores)| {
            T::dispatch(Score { weights, rows, constant, scores, n_features });
        });
    }

    /// Does [`PanelWeights::update`] and then [`PanelWeights::score`] for each panel.
    pub fn update_and_score(&mut self, update: &Update<'_, T>, rows: &[T], scores: &mut [T]) {
        let Self { n_features, padded, width, .. } = *self;
        let n_rows = rows.len() / n_features;
        let work = (n_rows + update.changed.len()) * self.values.len();
        let panels = self.values.chunks_mut(n_features * width);
        let panels = panels.zip(scores.chunks_mut(n_rows * width)).enumerate();
        for_each(panels, work, |(panel, (weights, scores))| {
            let first = panel * width;
            T::dispatch(AddUpdate { weights: &mut *weights, update, first, n_features, padded });
            T::dispatch(Score { weights, rows, constant: None, scores, n_features });
        });
    }
}

/// Calls `work` on each item, in parallel if there are enough multiplications to pay for it.
fn for_each<I: Send>(
    items: impl Iterator<Item = I>,
    multiplications: usize,
    work: impl Fn(I) + Send + Sync,
) {
    if multiplications < WORTHWHILE || rayon::current_num_threads() == 1 {
        items.for_each(work);
    } else {
        for_items(items, 1, work);
    }
}

struct AddUpdate<'a, T> {
    weights: &'a mut [T],
    update: &'a Update<'a, T>,
    first: usize,
    n_features: usize,
    padded: usize,
}

impl<T: Element> Kernel<T> for AddUpdate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        match self.weights.len() / (self.n_features * <T as Lane<S>>::LANES) {
            1 => self.tiles::<S, 1>(simd),
            2 => self.tiles::<S, 2>(simd),
            _ => self.tiles::<S, VECTORS>(simd),
        }
    }
}

impl<T: Element> AddUpdate<'_, T> {
    #[inline(always)]
    fn tiles<S: Simd, const V: usize>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, update, first, n_features, padded } = self;
        let mut terms = [(0, 0); LARGEST_BATCH];
        for rows in update.changed.chunks(LARGEST_BATCH) {
            let mut n_terms = 0;
            for &row in rows {
                let change = &update.changes[row * padded + first..][..V * T::LANES];
                // If a loss involves few classes, most rows leave most panels unchanged.
                if change.iter().fold(false, |some, x| some | (*x != T::zero())) {
                    terms[n_terms] = (row * n_features, row * padded + first);
                    n_terms += 1;
                }
            }
            add_all::<S, T, V>(simd, weights, update, &terms[..n_terms], n_features);
        }
    }
}

/// Maximum number of rows that a tile processes together; their indices are kept on the stack.
const LARGEST_BATCH: usize = 64;

/// Adds the outer products of the rows and changes that begin at the positions in `terms`.
#[inline(always)]
fn add_all<S: Simd, T: Lane<S> + Element, const V: usize>(
    simd: S,
    weights: &mut [T],
    update: &Update<'_, T>,
    terms: &[(usize, usize)],
    n_features: usize,
) {
    let weights = T::vectors_mut(weights).0.as_chunks_mut::<V>().0;
    // A tile of weights stays in registers while all rows are added to it, so it is read and
    // written once.
    let mut feature = 0;
    while S::REGISTER_COUNT >= 32 && feature + 8 <= n_features {
        add_outer::<S, T, V, 8>(simd, weights, update, terms, feature);
        feature += 8;
    }
    while feature + 4 <= n_features {
        add_outer::<S, T, V, 4>(simd, weights, update, terms, feature);
        feature += 4;
    }
    while feature < n_features {
        add_outer::<S, T, V, 1>(simd, weights, update, terms, feature);
        feature += 1;
    }
}

#[inline(always)]
fn add_outer<S: Simd, T: Lane<S> + Element, const V: usize, const R: usize>(
    simd: S,
    weights: &mut [[T::Vector; V]],
    update: &Update<'_, T>,
    terms: &[(usize, usize)],
    feature: usize,
) {
    let Some(weights) = weights[feature..].first_chunk_mut::<R>() else { return };
    let mut sums = *weights;
    for &(row, change) in terms {
        let change = &update.changes[change..][..V * <T as Lane<S>>::LANES];
        let Some(change) = T::vectors(change).0.first_chunk::<V>() else { return };
        let Some(x) = update.rows[row + feature..].first_chunk::<R>() else { return };
        for (sums, &x) in sums.iter_mut().zip(x) {
            let x = T::splat(simd, x);
            for (sum, change) in sums.iter_mut().zip(change) {
                *sum = T::fused(simd, x, *change, *sum);
            }
        }
    }
    *weights = sums;
}

struct Score<'a, T> {
    weights: &'a [T],
    rows: &'a [T],
    /// The value of the last feature, if it is the same in all rows and not stored in the rows.
    constant: Option<T>,
    scores: &'a mut [T],
    n_features: usize,
}

impl<T: Element> Kernel<T> for Score<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        match self.weights.len() / (self.n_features * <T as Lane<S>>::LANES) {
            1 => self.tiles::<S, 1>(simd),
            2 => self.tiles::<S, 2>(simd),
            _ => self.tiles::<S, VECTORS>(simd),
        }
    }
}

impl<T: Element> Score<'_, T> {
    #[inline(always)]
    fn tiles<S: Simd, const V: usize>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, rows, constant, scores, n_features } = self;
        let weights = T::vectors(weights).0.as_chunks::<V>().0;
        let scores = T::vectors_mut(scores).0.as_chunks_mut::<V>().0;
        let mut start = [T::splat(simd, T::zero()); V];
        let (mut weights, mut n_stored) = (weights, n_features);
        if let Some(constant) = constant
            && let [stored @ .., last] = weights
        {
            (weights, n_stored) = (stored, n_features - 1);
            let constant = T::splat(simd, constant);
            start = from_fn(|i| T::fused(simd, constant, last[i], start[i]));
        }
        let part = |row: usize| &rows[row * n_stored..][..n_stored];
        let mut row = 0;
        while S::REGISTER_COUNT >= 32 && row + 8 <= scores.len() {
            let parts = from_fn(|i| part(row + i));
            inner::<S, T, V, 8>(simd, weights, parts, start, &mut scores[row..]);
            row += 8;
        }
        while row + 4 <= scores.len() {
            let parts = from_fn(|i| part(row + i));
            inner::<S, T, V, 4>(simd, weights, parts, start, &mut scores[row..]);
            row += 4;
        }
        while row < scores.len() {
            inner::<S, T, V, 1>(simd, weights, [part(row)], start, &mut scores[row..]);
            row += 1;
        }
    }
}

#[inline(always)]
fn inner<S: Simd, T: Lane<S> + Element, const V: usize, const R: usize>(
    simd: S,
    weights: &[[T::Vector; V]],
    mut rows: [&[T]; R],
    start: [T::Vector; V],
    scores: &mut [[T::Vector; V]],
) {
    // Equal lengths remove the bounds checks from the inner loop. `map` of an array would compile to a call.
    for row in &mut rows {
        *row = &row[..weights.len()];
    }
    let mut sums = [start; R];
    for (feature, weights) in weights.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let x = T::splat(simd, row[feature]);
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = T::fused(simd, x, *weight, *sum);
            }
        }
    }
    scores[..R].copy_from_slice(&sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiples of 1/8 whose products and sums are exact in both precisions.
    fn number(seed: usize) -> f64 {
        ((seed * 7919 + 13) % 31) as f64 / 8.0 - 2.0
    }

    fn check<T: Element>(n_rows: usize, n_features: usize, n_classes: usize, sparse: bool) {
        let what = format!("{n_rows}x{n_features}x{n_classes} {sparse}");
        let mut weights = PanelWeights::<T>::new(n_features, n_classes);
        let padded = weights.padded();
        let rows: Vec<T> = (0..n_rows * n_features).map(|i| T::narrow(number(i))).collect();
        let is_changed =
            |row: usize, class: usize| row % 3 != 1 && (!sparse || class % 5 == row % 5);
        // The array has two more rows than are used.
        let mut changes = vec![T::zero(); (n_rows + 2) * padded];
        let mut expected = vec![0.0; n_features * n_classes];
        for class in 0..n_classes {
            for row in (0..n_rows).filter(|row| is_changed(*row, class)) {
                let change = number(row * 11 + class);
                changes[row * padded + class] = T::narrow(change);
                for feature in 0..n_features {
                    let x = rows[row * n_features + feature].widen();
                    expected[feature * n_classes + class] += x * change;
                }
            }
        }
        let changed: Vec<usize> = (0..n_rows).filter(|row| row % 3 != 1).collect();
        let update = Update { rows: &rows, changes: &changes, changed: &changed };
        weights.update(&update);
        for feature in 0..n_features {
            for class in 0..n_classes {
                let expected = expected[feature * n_classes + class];
                assert_eq!(weights.get(feature, class), expected, "{what}");
            }
        }
        let by_class = weights.by_class(n_classes);
        for (class, weights) in by_class.chunks_exact(n_features).enumerate() {
            let expected = expected[class..].iter().step_by(n_classes);
            assert!(weights.iter().eq(expected), "{what}");
        }
        let mut exact = PanelWeights::new(n_features, n_classes);
        exact.load(&by_class);
        weights.clear();
        weights.narrow(&exact);
        assert_eq!(weights.by_class(n_classes), by_class);
        let mut scores = vec![T::one(); n_rows * padded];
        weights.update_and_score(&update, &rows, &mut scores);
        let mut again = vec![T::one(); n_rows * padded];
        weights.score(&rows, None, &mut again);
        assert_eq!(scores, again);
        check_constant(&weights, &rows);
        for row in 0..n_rows {
            for class in 0..n_classes {
                let x = |feature: usize| rows[row * n_features + feature].widen();
                let w = |feature: usize| 2.0 * expected[feature * n_classes + class];
                let product: f64 = (0..n_features).map(|feature| x(feature) * w(feature)).sum();
                let first = class / weights.width() * weights.width();
                let width = weights.width().min(padded - first);
                let score = scores[first * n_rows + row * width + class - first];
                assert_eq!(score.widen(), product, "{what}");
            }
        }
    }

    /// A last feature that is constant need not be stored.
    fn check_constant<T: Element>(weights: &PanelWeights<T>, rows: &[T]) {
        let n_features = weights.n_features();
        let constant = T::narrow(1.5);
        let (mut rows, mut stored) = (rows.to_vec(), Vec::new());
        for row in rows.chunks_exact_mut(n_features) {
            row[n_features - 1] = constant;
            stored.extend_from_slice(&row[..n_features - 1]);
        }
        let mut scores = vec![T::one(); rows.len() / n_features * weights.padded()];
        let mut again = scores.clone();
        weights.score(&rows, None, &mut scores);
        weights.score(&stored, Some(constant), &mut again);
        assert_eq!(scores, again);
    }

    #[test]
    fn updates_and_scores_are_matrix_products_for_every_remainder() {
        for n_rows in [1, 3, 8, 13] {
            for n_features in [1, 4, 9, 21] {
                for n_classes in [2, 7, 16, 49, 97] {
                    for sparse in [false, true] {
                        check::<f64>(n_rows, n_features, n_classes, sparse);
                        check::<f32>(n_rows, n_features, n_classes, sparse);
                    }
                }
            }
        }
    }
}
