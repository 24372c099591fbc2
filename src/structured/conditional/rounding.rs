//! Bounds on the rounding errors of sums over all labels of a sequence.

use crate::dual::rounding::gamma;
use crate::structured::model::{ChainScores, FORBIDDEN};

/// The largest score that is not forbidden.
pub fn largest(scores: &[f64]) -> f64 {
    let sizes = scores.iter().map(|x| x.abs()).filter(|x| *x < -1e-3 * FORBIDDEN);
    sizes.fold(0.0, f64::max)
}

/// A bound on the logarithms of all partial sums.
fn reach(scores: ChainScores<'_>) -> f64 {
    let step = largest(scores.nodes) + largest(scores.edges) + (scores.n_states as f64).ln();
    2.0 * scores.len() as f64 * step
}

/// A bound on the relative error of each marginal: a sum of products of positive numbers, two for each
/// position, whose factors are exponentials known to 1e-14 and to the rounding of what is in them.
pub fn relative_error(scores: ChainScores<'_>) -> f64 {
    let step = 8e-14 + gamma(2 * scores.n_states + 32) + gamma(8) * reach(scores);
    4.0 * scores.len() as f64 * step
}

/// A bound on the error of ln Σ exp(scores).
pub fn log_error(scores: ChainScores<'_>) -> f64 {
    relative_error(scores) + gamma(8 * scores.len() + scores.n_states + 16) * reach(scores)
}
