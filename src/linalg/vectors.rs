//! Products and norms of long vectors, summed in an order that no number of threads changes.

use rayon::prelude::*;

use crate::data::Real;

/// Values of one piece of a reduction over weights.
pub(crate) const PIECE: usize = 1 << 14;

/// ‖w‖², summed in fixed pieces in double precision.
pub(crate) fn squared_norm<T: Real>(weights: &[T]) -> f64 {
    let pieces: Vec<f64> = weights
        .par_chunks(PIECE)
        .map(|piece| piece.iter().map(|weight| weight.widen().powi(2)).sum())
        .collect();
    pieces.iter().sum()
}
