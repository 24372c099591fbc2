//! Rows of features in a compact form for decoding, and their scores.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::data::{Data, Real, Rows as _};
use crate::error::{Error, Result};
use crate::for_data;
use crate::linalg::vectors::fused_dot_in_two;
use crate::linalg::{TouchedVector, arch};
use crate::memory::require;
use crate::structured::fold::{WeightedSum, fold};

use super::stored::{Entries, RowMagnitude, StoredRows};

/// Rows of features, stored with all values or, if that takes less memory, without zeros.
///
/// Weights are feature-major, W\[feature\]\[class\], so that the scores x W of a row are a weighted sum of contiguous
/// vectors, one per feature, with one value per class.
#[derive(Debug, Clone)]
pub(in crate::structured) struct CompactRows {
    n_rows: usize,
    n_features: usize,
    /// If zeros are left out: the ends of the rows, and the feature of each value.
    sparse: Option<(Entries<u64>, Entries<u32>)>,
    /// All values; for sparse rows that contain only ones, enough ones for the longest row.
    values: Entries<f64>,
    has_only_ones: bool,
    /// An upper bound on the largest norm of a row, and the largest number of nonzero values in any row.
    largest: (f64, usize),
}

/// Returns an error if a copy of the rows does not fit into memory.
fn require_memory(n_rows: usize, n_features: usize, n_nonzero: usize) -> Result<()> {
    let (n, d, stored) = (n_rows as u128, n_features as u128, n_nonzero as u128);
    let bytes = (8 * n * d).min(12 * stored + 8 * n);
    let what = || format!("the copies of n = {n_rows} rows of d = {n_features} features");
    require(bytes, what, "use fewer examples or features")
}

impl CompactRows {
    /// Copies the rows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a value is not finite or there are too many features.
    pub fn new(data: Data<'_>) -> Result<Self> {
        let (n_rows, n_features) = (data.n_rows(), data.n_cols());
        if u32::try_from(n_features).is_err() {
            return Err(Error::argument("X", "must have at most 2³² − 1 features"));
        }
        let (mut n_nonzero, mut finite, mut has_only_ones) = (0, true, true);
        let mut largest = (0.0_f64, 0);
        for_data!(data, rows => for row in 0..n_rows {
            let mut size = RowMagnitude::default();
            rows.visit_row(row, |_, value| {
                size.add(value);
                finite &= value.is_finite();
                has_only_ones &= value == 0.0 || value == 1.0;
            });
            n_nonzero += size.n_values;
            largest = (largest.0.max(size.norm()), largest.1.max(size.n_values));
        });
        if !finite {
            return Err(Error::argument("X", "all values must be finite"));
        }
        require_memory(n_rows, n_features, n_nonzero)?;
        // A value with its index takes one and a half times the memory of a value.
        if n_nonzero.saturating_mul(3) > (n_rows * n_features).saturating_mul(2) {
            let mut values = vec![0.0; n_rows * n_features];
            for_data!(data, rows => for row in 0..n_rows {
                let values = &mut values[row * n_features..][..n_features];
                rows.visit_row(row, |feature, value| values[feature] = value);
            });
            let has_only_ones = false;
            let values = Entries::Copied(values);
            return Ok(Self { n_rows, n_features, sparse: None, values, has_only_ones, largest });
        }
        let (mut ends, mut features) =
            (Vec::with_capacity(n_rows + 1), Vec::with_capacity(n_nonzero));
        let n_values = if has_only_ones { largest.1 } else { n_nonzero };
        let mut values = Vec::with_capacity(n_values);
        ends.push(0_u64);
        for_data!(data, rows => for row in 0..n_rows {
            rows.visit_row(row, |feature, value| if value != 0.0 {
                features.push(feature as u32);
                if !has_only_ones {
                    values.push(value);
                }
            });
            ends.push(features.len() as u64);
        });
        if has_only_ones {
            values.resize(n_values, 1.0);
        }
        let sparse = Some((Entries::Copied(ends), Entries::Copied(features)));
        let values = Entries::Copied(values);
        Ok(Self { n_rows, n_features, sparse, values, has_only_ones, largest })
    }

    /// Number of stored values.
    pub fn n_stored(&self) -> usize {
        let features = self.sparse.as_ref().map(|(_, features)| features.len());
        features.unwrap_or(self.n_rows * self.n_features)
    }

    /// Uses stored rows without copying them.
    pub fn stored(rows: StoredRows) -> Self {
        let (n_rows, n_features, largest) = (rows.len(), rows.n_features, rows.largest());
        let has_only_ones = rows.values.is_none();
        let sparse = Some((Entries::Kept(rows.ends), Entries::Kept(rows.features)));
        let ones = || Entries::Copied(vec![1.0; largest.1]);
        let values = rows.values.map_or_else(ones, Entries::Kept);
        Self { n_rows, n_features, sparse, values, has_only_ones, largest }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.n_rows
    }

    /// An upper bound on the largest norm of a row, and the largest number of nonzero values in any row.
    pub fn largest(&self) -> (f64, usize) {
        self.largest
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// Number of stored values.
    pub fn n_entries(&self) -> usize {
        let dense = self.n_rows * self.n_features;
        self.sparse.as_ref().map_or(dense, |(_, features)| features.len())
    }

    /// Whether zeros are left out.
    pub fn is_sparse(&self) -> bool {
        self.sparse.is_some()
    }

    /// Whether the rows are sparse and all their values are 1.
    pub fn has_only_ones(&self) -> bool {
        self.has_only_ones
    }

    /// Writes the scores x W of a range of rows.
    pub fn scores<T: Real>(
        &self,
        rows: Range<usize>,
        n_classes: usize,
        weights: &[T],
        scores: &mut [f64],
    ) {
        if n_classes > 0 {
            arch().dispatch(RowScores { rows: self, range: rows, n_classes, weights, scores });
        }
    }

    /// Returns the score of a row for one class.
    pub fn score(&self, row: usize, class: usize, n_classes: usize, weights: &[f64]) -> f64 {
        let mut score = 0.0;
        self.visit(row, |feature, value| score += value * weights[feature * n_classes + class]);
        score
    }

    /// Adds scale x δᵀ to `image`, where δ consists of (class, value) pairs.
    pub fn add_image(
        &self,
        row: usize,
        delta: impl Iterator<Item = (u32, f64)> + Clone,
        n_classes: usize,
        scale: f64,
        image: &mut TouchedVector,
    ) {
        if let Some((features, values)) = self.sparse_row(row) {
            for (&feature, x) in features.iter().zip(values) {
                let weights = image.piece(feature as usize * n_classes, n_classes);
                for (class, value) in delta.clone() {
                    weights[class as usize] += scale * x * value;
                }
            }
        } else {
            let weights = image.piece(0, self.n_features * n_classes);
            for (class, value) in delta {
                let weights = weights.iter_mut().skip(class as usize).step_by(n_classes);
                let change = scale * value;
                weights.zip(self.dense_row(row)).for_each(|(weight, x)| *weight += change * x);
            }
        }
    }

    /// Calls `visit(feature, value)` for the values of a row.
    #[inline(always)]
    pub fn visit(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        if let Some((features, values)) = self.sparse_row(row) {
            features
                .iter()
                .zip(values)
                .for_each(|(feature, value)| visit(*feature as usize, *value));
        } else {
            self.dense_row(row)
                .iter()
                .enumerate()
                .for_each(|(feature, value)| visit(feature, *value));
        }
    }

    /// Returns the features and the values of a row, or None if zeros are stored.
    #[inline(always)]
    pub fn sparse_row(&self, row: usize) -> Option<(&[u32], &[f64])> {
        let (ends, features) = self.sparse.as_ref()?;
        let range = ends[row] as usize..ends[row + 1] as usize;
        let first = if self.has_only_ones { 0 } else { range.start };
        Some((&features[range.clone()], &self.values[first..first + range.len()]))
    }

    #[inline(always)]
    fn dense_row(&self, row: usize) -> &[f64] {
        &self.values[row * self.n_features..][..self.n_features]
    }
}

struct RowScores<'a, T> {
    rows: &'a CompactRows,
    range: Range<usize>,
    n_classes: usize,
    weights: &'a [T],
    scores: &'a mut [f64],
}

impl<T: Real> WithSimd for RowScores<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, range, n_classes, weights, scores } = self;
        for (row, scores) in range.zip(scores.chunks_exact_mut(n_classes)) {
            let weights_of = |feature: usize| &weights[feature * n_classes..];
            if let Some((features, values)) = rows.sparse_row(row) {
                let terms = features.iter().zip(values);
                fold::<WeightedSum, S, T>(
                    simd,
                    terms.map(
                        #[inline(always)]
                        |(feature, value)| (*value, weights_of(*feature as usize)),
                    ),
                    scores,
                );
            } else if let (1, Some(weights)) = (n_classes, T::doubles(weights)) {
                scores[0] = fused_dot_in_two(simd, rows.dense_row(row), weights);
            } else {
                let terms = rows.dense_row(row).iter().enumerate();
                fold::<WeightedSum, S, T>(
                    simd,
                    terms.map(
                        #[inline(always)]
                        |(feature, value)| (*value, weights_of(feature)),
                    ),
                    scores,
                );
            }
        }
    }
}
