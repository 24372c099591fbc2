//! Options of block Frank-Wolfe.

/// The kind of step; all but the first need an active set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Towards the best vertex.
    FrankWolfe,
    /// Towards the best vertex or away from the worst active vertex, whichever has the larger
    /// slope.
    Away,
    /// Moves weight from the worst active vertex to the best vertex.
    Pairwise,
}

impl Step {
    /// The names of the steps, the default first.
    pub const NAMES: &[(&str, Self)] =
        &[("frank-wolfe", Self::FrankWolfe), ("away", Self::Away), ("pairwise", Self::Pairwise)];
}

/// The blocks that an epoch visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Each block once, in random order.
    Permutation,
    /// n blocks, drawn uniformly.
    Uniform,
    /// n blocks, drawn with probabilities proportional to their last known gaps.
    Gap,
}

impl Sampling {
    /// The names of the sampling rules, the default first.
    pub const NAMES: &[(&str, Self)] =
        &[("permutation", Self::Permutation), ("uniform", Self::Uniform), ("gap", Self::Gap)];
}

/// Options of block Frank-Wolfe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockOptions {
    /// Seed for the order of the blocks.
    pub seed: u64,
    /// The kind of step.
    pub step: Step,
    /// The order of the blocks.
    pub sampling: Sampling,
    /// Whether remembered vertices are tried before the oracle is called.
    pub cache: bool,
    /// Whether the model is the average of the iterates, with weight k for the k-th iterate. The
    /// dual value remains the dual value of the last iterate. Not supported with smoothing.
    pub averaging: bool,
    /// An epoch ends with a certificate, which costs one pass, if the gaps measured in the epoch sum to at most this
    /// value. Otherwise, certificates are computed only after 1, 2, 4, 8, 10, 20, 30, ... epochs.
    /// [`minimize`](crate::solver::minimize) raises this value to the gap at which it stops.
    pub certify_below: f64,
    /// The same threshold, relative to the last known objective.
    pub certify_relative: f64,
    /// Whether Newton's method on the known vertices finishes a run that stalls, provided that the
    /// number of weights is small enough. Not used with averaging.
    pub newton: bool,
}

impl BlockOptions {
    /// Whether blocks keep the vertices of which their points are convex combinations.
    pub fn keeps_atoms(&self) -> bool {
        self.cache || self.step != Step::FrankWolfe
    }
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            step: Step::FrankWolfe,
            sampling: Sampling::Permutation,
            cache: false,
            averaging: false,
            certify_below: f64::INFINITY,
            certify_relative: 0.0,
            newton: false,
        }
    }
}
