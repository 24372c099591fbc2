//! The weights of (feature, label) pairs, either of all pairs or only of the pairs that occur in training.

use std::ops::Range;

use crate::data::Real;
use crate::linalg::TouchedVector;
use crate::structured::model::rows::CompactRows;

/// The (feature, label) pairs that have weights, sorted by feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenPairs {
    /// The index after the last pair of each feature.
    pub ends: Vec<usize>,
    /// The labels of the pairs, in increasing order for each feature.
    pub labels: Vec<u16>,
}

impl SeenPairs {
    /// Finds the pairs that occur in rows with these labels; rows with unknown labels are ignored.
    pub(super) fn seen(
        rows: &CompactRows,
        (labels, known): (&[u32], Option<&[bool]>),
        n_states: usize,
    ) -> Self {
        let n_words = n_states.div_ceil(64);
        let mut marks = vec![0_u64; rows.n_features() * n_words];
        let is_known = |row: usize| known.is_none_or(|known| known[row]);
        for (row, label) in labels.iter().enumerate().filter(|(row, _)| is_known(*row)) {
            let (word, bit) = (*label as usize / 64, 1 << (label % 64));
            rows.visit(row, |feature, value| {
                marks[feature * n_words + word] |= if value == 0.0 { 0 } else { bit };
            });
        }
        let mut pairs = Self::default();
        for words in marks.chunks_exact(n_words) {
            for (word, bits) in words.iter().enumerate() {
                let found = (0..64).filter(|bit| bits >> bit & 1 == 1);
                pairs.labels.extend(found.map(|bit| (64 * word + bit) as u16));
            }
            pairs.ends.push(pairs.labels.len());
        }
        pairs
    }

    /// Returns the indices of a feature's weights.
    #[inline(always)]
    pub fn range(&self, feature: usize) -> Range<usize> {
        let start = if feature == 0 { 0 } else { self.ends[feature - 1] };
        start..self.ends[feature]
    }
}

/// Rows of features, and the layout of their weights W\[feature\]\[label\]: weights of all pairs, or only of the seen
/// pairs.
#[derive(Debug, Clone)]
pub(in crate::structured) struct Emissions {
    rows: CompactRows,
    n_states: usize,
    pairs: Option<SeenPairs>,
}

impl Emissions {
    pub fn new(rows: CompactRows, n_states: usize) -> Self {
        Self { rows, n_states, pairs: None }
    }

    pub fn rows(&self) -> &CompactRows {
        &self.rows
    }

    pub fn pairs(&self) -> Option<&SeenPairs> {
        self.pairs.as_ref()
    }

    /// Keeps only the weights of pairs that occur in rows with these labels; rows with unknown
    /// labels are ignored.
    pub fn restrict(&mut self, labels: &[u32], known: Option<&[bool]>) {
        self.pairs = Some(SeenPairs::seen(&self.rows, (labels, known), self.n_states));
    }

    pub fn n_weights(&self) -> usize {
        match &self.pairs {
            None => self.rows.n_features() * self.n_states,
            Some(pairs) => pairs.labels.len(),
        }
    }

    /// Writes the scores x W of a range of rows.
    pub fn scores<T: Real>(&self, range: Range<usize>, weights: &[T], scores: &mut [f64]) {
        let Some(pairs) = &self.pairs else {
            return self.rows.scores(range, self.n_states, weights, scores);
        };
        for (row, scores) in range.zip(scores.chunks_exact_mut(self.n_states)) {
            scores.fill(0.0);
            self.rows.visit(row, |feature, value| {
                let range = pairs.range(feature);
                for (label, weight) in pairs.labels[range.clone()].iter().zip(&weights[range]) {
                    scores[usize::from(*label)] += value * weight.widen();
                }
            });
        }
    }

    /// Returns the score of a row for one label.
    pub fn score(&self, row: usize, label: usize, weights: &[f64]) -> f64 {
        let Some(pairs) = &self.pairs else {
            return self.rows.score(row, label, self.n_states, weights);
        };
        let mut score = 0.0;
        self.rows.visit(row, |feature, value| {
            let range = pairs.range(feature);
            if let Ok(at) = pairs.labels[range.clone()].binary_search(&(label as u16)) {
                score += value * weights[range.start + at];
            }
        });
        score
    }

    /// Adds scale x δᵀ to `image`, where δ consists of (label, value) pairs.
    pub fn add_image(
        &self,
        row: usize,
        delta: impl Iterator<Item = (u32, f64)> + Clone,
        scale: f64,
        image: &mut TouchedVector,
    ) {
        let Some(pairs) = &self.pairs else {
            return self.rows.add_image(row, delta, self.n_states, scale, image);
        };
        self.rows.visit(row, |feature, x| {
            let range = pairs.range(feature);
            for (label, value) in delta.clone() {
                if let Ok(at) = pairs.labels[range.clone()].binary_search(&(label as u16)) {
                    image.add(range.start + at, scale * x * value);
                }
            }
        });
    }

    /// Adds scale Σ_t x_t δ_tᵀ to `target`, for a dense δ with one row for each row of a range. If `squared`, uses the
    /// squares of the features.
    pub fn add_rows(
        &self,
        range: Range<usize>,
        (delta, scale, squared): (&[f64], f64, bool),
        target: &mut [f64],
    ) {
        for (row, delta) in range.zip(delta.chunks_exact(self.n_states)) {
            self.rows.visit(row, |feature, x| {
                let scale = scale * if squared { x * x } else { x };
                match &self.pairs {
                    None => {
                        let target = &mut target[feature * self.n_states..][..self.n_states];
                        target.iter_mut().zip(delta).for_each(|(target, d)| *target += scale * d);
                    }
                    Some(pairs) => {
                        let range = pairs.range(feature);
                        let labels = pairs.labels[range.clone()].iter();
                        for (target, label) in target[range].iter_mut().zip(labels) {
                            *target += scale * delta[usize::from(*label)];
                        }
                    }
                }
            });
        }
    }
}
