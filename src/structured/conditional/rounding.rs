//! Bounds on the rounding errors of sums over all labels of a sequence.

use crate::dual::rounding::gamma;
use crate::structured::model::{ChainScores, FORBIDDEN};

/// The size of the numbers in a sum over all labels of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    len: usize,
    n_states: usize,
    /// An upper bound on the absolute values of scores that are not forbidden.
    pub largest: f64,
    /// An upper bound on the logarithms of all partial sums.
    logs: f64,
}

impl Reach {
    /// Computes the sizes for these scores.
    pub fn of(scores: ChainScores<'_>) -> Self {
        let largest = largest(scores.nodes).max(largest(scores.edges));
        let (len, n_states) = (scores.len(), scores.n_states);
        let logs = 2.0 * len as f64 * (2.0 * largest + (n_states as f64).ln());
        Self { len, n_states, largest, logs }
    }

    /// Returns a bound on the relative error of each marginal. A marginal is a sum of products of positive numbers, two
    /// per position. The factors are exponentials with an error of 1e-14 plus the rounding error of their arguments.
    pub fn relative_error(&self) -> f64 {
        let step = 8e-14 + gamma(2 * self.n_states + 32) + gamma(8) * self.logs;
        4.0 * self.len as f64 * step
    }

    /// Returns a bound on the error of ln Σ exp(scores).
    pub fn log_error(&self) -> f64 {
        self.relative_error() + gamma(8 * self.len + self.n_states + 16) * self.logs
    }
}

/// Returns the largest absolute value of the scores that are not forbidden. Keeps eight separate
/// maxima, which allows vector instructions.
fn largest(scores: &[f64]) -> f64 {
    let mut most = [0.0_f64; 8];
    for scores in scores.chunks(8) {
        for (most, score) in most.iter_mut().zip(scores) {
            let size = if *score > 1e-3 * FORBIDDEN { score.abs() } else { 0.0 };
            *most = if size > *most { size } else { *most };
        }
    }
    most.into_iter().fold(0.0, f64::max)
}
