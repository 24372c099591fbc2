//! The interface between structured models and solvers, and the built-in models.

pub(super) mod assignment;
mod chain;
mod graph;
mod hamming;
mod links;
mod matching;
mod multiclass;
mod multilabel;
mod rows;
mod stored;

#[cfg(test)]
pub use assignment::assign;
pub(crate) use assignment::assignment_prices;
pub(super) use chain::first_maximum;
pub use chain::{Chain, ChainLink, ChainScores, FORBIDDEN, Links, SeenPairs};
pub use graph::Graph;
pub(super) use graph::{ForestNode, Link};
pub use hamming::Hamming;
pub use matching::{Matching, Pairs};
pub use multiclass::Multiclass;
pub use multilabel::Multilabel;
pub(super) use rows::CompactRows;
pub use stored::{Kept, StoredRows};

use crate::dual::Scales;
use crate::dual::rounding::{TINY, gamma};
use crate::interrupt::Interrupt;
use crate::linalg::{Sparse, TouchedVector};

/// Buffers for decoding one example at a time, allocated once per thread and fit.
#[derive(Debug, Default)]
pub struct Work {
    /// Buffer for real numbers.
    pub values: Vec<f64>,
    /// Buffer for integers (back pointers, assignments).
    pub indices: Vec<u32>,
    /// Flag that ends a long recursion early. The result is then meaningless, so callers check the
    /// flag before they use the result.
    pub interrupt: Interrupt,
}

impl Work {
    /// Creates buffers for a run that `interrupt` can stop.
    pub fn of(interrupt: &Interrupt) -> Self {
        Self { interrupt: interrupt.clone(), ..Self::default() }
    }
}

/// The size of an example's parts, for bounds on rounding errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartSize {
    /// An upper bound on the norm of the features of a part.
    pub norm: f64,
    /// An upper bound on the number of features of a part.
    pub n_features: usize,
    /// An upper bound on the number of parts of a label.
    pub n_parts: usize,
    /// An upper bound on the number of consecutive rounded operations in [`Model::decode`].
    pub depth: usize,
}

impl PartSize {
    /// A bound on the rounding error of a loss, for weights of norm at most `norm` and costs of at most `cost`. It
    /// covers the scores of a label's parts, their sum, and the search for the largest sum.
    pub fn loss_error(&self, cost: f64, norm: f64) -> f64 {
        let (score, n_parts) = (self.norm * norm, self.n_parts as f64);
        let scores = gamma(self.n_features + 8) * score + 4.0 * self.n_features as f64 * TINY;
        let sums = gamma(2 * self.depth + 8) * n_parts * (cost + score);
        2.0 * n_parts * scores + 2.0 * sums
    }

    /// Returns the sizes of the example's features and costs, given its largest cost.
    pub fn scales(&self, cost: f64) -> Scales {
        Scales { cost, feature: self.norm, n_features: self.n_features, adds_terms: false }
    }
}

/// Number of entries of a table of transitions that fit into the second-level cache of most processors (1 MB).
pub(super) const CACHED_ENTRIES: usize = 1 << 17;

/// The interface of a structured model to the solvers. A model holds the examples of one data set, with their labels.
pub trait Model: Send + Sync {
    /// Number of examples.
    fn n_examples(&self) -> usize;

    /// Whether the examples have labels, which a fit and a loss require.
    fn is_labelled(&self) -> bool;

    /// Number of weights, which is the length of w.
    fn n_weights(&self) -> usize;

    /// Number of parts of an example.
    fn n_parts(&self, example: usize) -> usize;

    /// The size of an example's parts.
    fn size(&self, example: usize) -> PartSize;

    /// Norms of the examples' features, for [`Shares::with_features`](crate::dual::Shares::with_features).
    fn norms(&self) -> Box<dyn Iterator<Item = f64> + '_> {
        Box::new((0..self.n_examples()).map(|example| self.size(example).norm))
    }

    /// Writes θ = A w for all parts of an example.
    fn scores(&self, example: usize, weights: &[f64], scores: &mut [f64]);

    /// Computes θ at a few parts, given in increasing order; leaves the other entries unchanged.
    fn scores_at(&self, example: usize, parts: &[u32], weights: &[f64], scores: &mut [f64]);

    /// Adds c to the scores and returns the constant, where L(y) = constant + ⟨c, μ(y)⟩ is 0 at the truth.
    fn add_costs(&self, example: usize, scores: &mut [f64]) -> f64;

    /// Writes a label that maximises ⟨scores, μ(y)⟩ exactly, with a fixed rule for ties.
    fn decode(&self, example: usize, scores: &[f64], work: &mut Work, label: &mut Vec<u32>);

    /// Writes the counts μ(y) of the label's parts.
    fn parts(&self, example: usize, label: &[u32], parts: &mut Sparse);

    /// The true label of an example.
    fn truth(&self, example: usize) -> &[u32];

    /// Adds scale Aᵀ δ to `image`.
    fn add_image(
        &self,
        example: usize,
        delta: &[(u32, f64)],
        scale: f64,
        image: &mut TouchedVector,
    );
}
