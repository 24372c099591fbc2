//! Positions of weights that are stored feature by feature, for some or all labels of a feature.

use crate::data::Real;

/// A feature with weights for at least 1/`DENSE_SHARE` of the labels gets a full row with all
/// labels, because adding vectors is faster than adding single weights.
const DENSE_SHARE: usize = 4;

/// Position of a feature's weights: the index of the first weight, and the number of weights or
/// [`ROW`] for a full row with all labels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(u64);

/// Replaces the number of weights of a full row.
const ROW: u64 = u16::MAX as u64;

impl Place {
    /// Whether a feature with `n_weights` weights gets a full row with all `n_labels` labels.
    pub fn needs_row(n_weights: usize, n_labels: usize) -> bool {
        n_weights > 0 && n_weights * DENSE_SHARE >= n_labels
    }

    /// The position of a full row with all labels, which begins at `start`.
    pub fn row(start: usize) -> Self {
        Self((start as u64) << 16 | ROW)
    }

    /// The position of the weights of `n_weights` single labels, which begin at `start`. `n_weights` must be below
    /// 65,535.
    pub fn single(start: usize, n_weights: usize) -> Self {
        debug_assert!((n_weights as u64) < ROW);
        Self((start as u64) << 16 | n_weights as u64)
    }

    /// The index of the first weight.
    pub fn start(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Number of weights, unless this is a full row.
    pub fn len(self) -> usize {
        (self.0 & ROW) as usize
    }

    /// Whether this is a full row with all labels.
    pub fn is_row(self) -> bool {
        self.0 & ROW == ROW
    }
}

/// Adds x · weight to the score of each of the given labels.
#[inline(always)]
pub(crate) fn add_scores<T: Real>(x: f64, labels: &[u16], weights: &[T], scores: &mut [f64]) {
    for (label, weight) in labels.iter().zip(weights) {
        scores[usize::from(*label)] += x * weight.widen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_hold_their_start_and_length() {
        let (row, single) = (Place::row(1 << 40), Place::single(7, 65_534));
        assert_eq!((row.start(), row.is_row()), (1 << 40, true));
        assert_eq!((single.start(), single.len(), single.is_row()), (7, 65_534, false));
        assert!(Place::needs_row(2, 8) && !Place::needs_row(1, 8) && !Place::needs_row(0, 0));
    }
}
