//! Options of block Frank-Wolfe.

/// Where a step with an active set goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Towards the best vertex.
    FrankWolfe,
    /// Towards the best vertex or away from the worst active one, whichever has the larger slope.
    Away,
    /// Weight goes from the worst active vertex to the best one.
    Pairwise,
}

impl Step {
    /// Names by which callers choose, the default first.
    pub const NAMES: &[(&str, Self)] =
        &[("frank-wolfe", Self::FrankWolfe), ("away", Self::Away), ("pairwise", Self::Pairwise)];
}

/// Which blocks an epoch visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Each once, in random order.
    Permutation,
    /// As many as there are, drawn uniformly.
    Uniform,
    /// As many as there are, drawn in proportion to their last known gaps.
    Gap,
}

impl Sampling {
    /// Names by which callers choose, the default first.
    pub const NAMES: &[(&str, Self)] =
        &[("permutation", Self::Permutation), ("uniform", Self::Uniform), ("gap", Self::Gap)];
}

/// Options of block Frank-Wolfe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockOptions {
    /// Of the order of the blocks.
    pub seed: u64,
    /// The steps.
    pub step: Step,
    /// The order.
    pub sampling: Sampling,
    /// Whether vertices found before are tried before the oracle is called.
    pub cache: bool,
    /// Whether the model is the average of the iterates, the k-th weighted by k; the dual value remains
    /// that of the last one. Not with smoothing.
    pub averaging: bool,
    /// A certificate costs a pass: it is taken in epochs whose measured gaps sum to at most this, and
    /// otherwise after 1, 2, 4, 8, 10, 20, 30, ... epochs. [`minimize`](crate::solver::minimize) raises it
    /// to the gap at which it stops.
    pub certify_below: f64,
    /// The same in units of the last known objective.
    pub certify_relative: f64,
    /// Whether Newton's method on the known vertices ends a run that stalls, where the weights are few enough. Not
    /// with averaging.
    pub newton: bool,
}

impl BlockOptions {
    /// Whether blocks keep the vertices that they are made of.
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
