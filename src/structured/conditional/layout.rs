//! The memory layout of the weights of features and labels in a pass over all sequences.

use pulp::{Simd, WithSimd};

use crate::data::Real;
use crate::linalg::arch;
use crate::structured::fold::{WeightedSum, fold};
use crate::structured::label_weights::{Place, add_scores};
use crate::structured::model::{Chain, SeenPairs};

/// The length of a row is padded with zeros to a multiple of this.
const LANES: usize = 8;

/// The order in which a pass stores the weights of a chain's seen pairs: first a dense row over all labels for each
/// frequent feature, then the weights of the other features' pairs.
#[derive(Debug)]
pub struct WeightLayout<'a> {
    chain: &'a Chain,
    pairs: &'a SeenPairs,
    places: Vec<Place>,
    /// Length of a row, padded to full SIMD vectors.
    width: usize,
    /// Total number of values in dense rows.
    n_dense: usize,
    /// Labels of the pairs that are not in dense rows.
    labels: Vec<u16>,
}

impl<'a> WeightLayout<'a> {
    /// Creates the layout of a chain's weights. Returns None if all pairs have weights, because they already form rows.
    pub fn new(chain: &'a Chain) -> Option<Self> {
        let pairs = chain.pairs()?;
        let n_features = chain.emissions().rows().n_features();
        let is_row = |feature| Place::needs_row(pairs.range(feature).len(), chain.n_states());
        let width = chain.n_states().next_multiple_of(LANES);
        let n_dense = (0..n_features).filter(|feature| is_row(*feature)).count() * width;
        let (mut places, mut labels, mut start) = (Vec::with_capacity(n_features), Vec::new(), 0);
        for feature in 0..n_features {
            if is_row(feature) {
                places.push(Place::row(start));
                start += width;
            } else {
                let own = &pairs.labels[pairs.range(feature)];
                places.push(Place::single(n_dense + labels.len(), own.len()));
                labels.extend_from_slice(own);
            }
        }
        Some(Self { chain, pairs, places, width, n_dense, labels })
    }

    /// Number of values before the weights of the transitions.
    pub fn len(&self) -> usize {
        self.n_dense + self.labels.len()
    }

    /// Returns the index of a feature's first weight, and the labels of its weights or, if it has a dense row, None.
    #[inline(always)]
    pub fn find(&self, feature: usize) -> (usize, Option<&[u16]>) {
        let place = self.places[feature];
        (place.start(), (!place.is_row()).then(|| self.labels_of(place)))
    }

    /// Returns the labels of the pairs of a feature without a dense row.
    #[inline(always)]
    fn labels_of(&self, place: Place) -> &[u16] {
        &self.labels[place.start() - self.n_dense..][..place.len()]
    }

    /// Converts weights to this order. The weights of transitions follow unchanged.
    pub fn expand<T: Real>(&self, weights: &[T]) -> Vec<T> {
        let mut laid = vec![T::zero(); self.len()];
        for (feature, place) in self.places.iter().enumerate() {
            let own = self.pairs.range(feature);
            let (weights, labels) = (&weights[own.clone()], &self.pairs.labels[own]);
            if place.is_row() {
                let row = &mut laid[place.start()..][..self.width];
                labels.iter().zip(weights).for_each(|(label, w)| row[usize::from(*label)] = *w);
            } else {
                laid[place.start()..][..weights.len()].copy_from_slice(weights);
            }
        }
        laid.extend_from_slice(&weights[self.pairs.labels.len()..]);
        laid
    }

    /// Adds values in this order to `target`, which is in the chain's order.
    pub fn add_to(&self, laid: &[f64], target: &mut [f64]) {
        for (feature, place) in self.places.iter().enumerate() {
            let own = self.pairs.range(feature);
            let (target, labels) = (&mut target[own.clone()], &self.pairs.labels[own]);
            if place.is_row() {
                let row = &laid[place.start()..][..self.width];
                let sums = target.iter_mut().zip(labels);
                sums.for_each(|(sum, label)| *sum += row[usize::from(*label)]);
            } else {
                let own = &laid[place.start()..][..target.len()];
                target.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
            }
        }
    }

    /// Writes the scores of an example's rows, given weights in this order.
    pub fn scores<T: Real>(&self, example: usize, laid: &[T], scores: &mut [f64]) {
        arch().dispatch(LayoutScores { layout: self, example, laid, scores });
    }

    /// Adds scale Σ_t x_t δ_tᵀ to `target`, for a dense δ with one row for each row of an example. If `squared`, uses
    /// the squares of the features.
    pub fn add_rows(
        &self,
        example: usize,
        (delta, scale, squared): (&[f64], f64, bool),
        target: &mut [f64],
    ) {
        arch().dispatch(AddRows { layout: self, example, delta, scale, squared, target });
    }
}

struct LayoutScores<'a, T> {
    layout: &'a WeightLayout<'a>,
    example: usize,
    laid: &'a [T],
    scores: &'a mut [f64],
}

impl<T: Real> WithSimd for LayoutScores<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { layout, example, laid, scores } = self;
        let (chain, rows) = (layout.chain, layout.chain.emissions().rows());
        for (row, scores) in chain.rows_of(example).zip(scores.chunks_exact_mut(chain.n_states())) {
            if let Some((features, values)) = rows.sparse_row(row) {
                let terms = features.iter().zip(values).filter_map(
                    #[inline(always)]
                    |(feature, x)| {
                        let place = layout.places[*feature as usize];
                        place.is_row().then(|| (*x, &laid[place.start()..]))
                    },
                );
                fold::<WeightedSum, S, T>(simd, terms, scores);
            } else {
                scores.fill(0.0);
            }
            let is_sparse = rows.sparse_row(row).is_some();
            rows.visit(
                row,
                #[inline(always)]
                |feature, x| {
                    let place = layout.places[feature];
                    if !place.is_row() {
                        let (labels, weights) = (layout.labels_of(place), &laid[place.start()..]);
                        add_scores(x, labels, weights, scores);
                    } else if !is_sparse {
                        let weights = &laid[place.start()..];
                        scores
                            .iter_mut()
                            .zip(weights)
                            .for_each(|(score, w)| *score += x * w.widen());
                    }
                },
            );
        }
    }
}

struct AddRows<'a> {
    layout: &'a WeightLayout<'a>,
    example: usize,
    delta: &'a [f64],
    scale: f64,
    squared: bool,
    target: &'a mut [f64],
}

impl WithSimd for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { layout, example, delta, scale, squared, target } = self;
        let (chain, rows) = (layout.chain, layout.chain.emissions().rows());
        let mut scaled = vec![0.0; layout.width];
        for (row, delta) in chain.rows_of(example).zip(delta.chunks_exact(chain.n_states())) {
            scaled.iter_mut().zip(delta).for_each(|(scaled, delta)| *scaled = scale * delta);
            let vectors = S::as_simd_f64s(&scaled).0;
            rows.visit(
                row,
                #[inline(always)]
                |feature, x| {
                    let (place, x) = (layout.places[feature], if squared { x * x } else { x });
                    if place.is_row() {
                        let own = &mut target[place.start()..][..layout.width];
                        let times = simd.splat_f64s(x);
                        for (sum, value) in S::as_mut_simd_f64s(own).0.iter_mut().zip(vectors) {
                            *sum = simd.mul_add_e_f64s(times, *value, *sum);
                        }
                    } else {
                        let sums = target[place.start()..].iter_mut();
                        for (sum, label) in sums.zip(layout.labels_of(place)) {
                            *sum += x * scaled[usize::from(*label)];
                        }
                    }
                },
            );
        }
    }
}
