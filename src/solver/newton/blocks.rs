//! A training problem, as Newton's method sees it.

use super::design::Design;
use crate::dual::{Curvatures, Shares};
use crate::run::Certificate;

/// A training problem, as Newton's method sees it. Block i has a loss of its scores A_i w, one
/// score for each part. The loss is the maximum of ⟨u, A_i w⟩ plus a linear term over the points u
/// of a convex set, less γ/2 ‖u‖² if the problem is smoothed.
pub trait Blocks: Sync {
    /// Work space of a thread.
    type Work: Default + Send;
    /// Contribution of some blocks to a certificate.
    type Terms: Default + Send;

    /// The rows that multiply w.
    fn design(&self) -> Design<'_>;

    /// Number of parts of a block.
    fn n_parts(&self) -> usize;

    /// λ, γ and the p_i.
    fn shares(&self) -> &Shares;

    /// The width at which a proximal term weighs as much as the losses at w = 0.
    fn unit_width(&self) -> f64;

    /// Writes the point that maximises the block's function less the proximal term, width/2 ‖u − centre‖².
    fn maximise(
        &self,
        block: usize,
        scores: &[f64],
        proximal: Proximal<'_>,
        point: &mut [f64],
        work: &mut Self::Work,
    );

    /// Adds the block's loss at its scores, and the contribution of its point to the dual.
    fn add_terms(
        &self,
        block: usize,
        scores: &[f64],
        point: &[f64],
        terms: &mut Self::Terms,
        work: &mut Self::Work,
    );

    /// The objective at w, rounded up, and the dual value at the points tu, rounded down, with the
    /// t in [0, 1] that maximises it, which is also returned. A point with a large w(u) can have a
    /// dual value far below that of 0.
    fn certificate(
        &self,
        terms: &[Self::Terms],
        weights: &[f64],
        image: Summed<'_>,
    ) -> (Certificate, f64);

    /// Adds the derivative of the maximiser of ⟨u, scores⟩ − ½ ‖u‖², which is `point`, or a larger
    /// matrix, to the open block of `curvatures`.
    fn curvature(
        &self,
        block: usize,
        point: &[f64],
        curvatures: &mut Curvatures,
        work: &mut Self::Work,
    );
}

/// The proximal term of a block: width/2 ‖u − centre‖².
#[derive(Debug, Clone, Copy)]
pub struct Proximal<'a> {
    /// The centre, one value for each part.
    pub centre: &'a [f64],
    /// The width; 0 means no such term.
    pub width: f64,
}

/// −w(u) = Σ_i p_i/λ A_iᵀ u_i, as computed.
#[derive(Debug, Clone, Copy)]
pub struct Summed<'a> {
    /// The sum, part after part.
    pub image: &'a [f64],
    /// The maximum length of the chain of sums that computes an entry.
    pub n_sums: usize,
}

impl Proximal<'_> {
    /// The proximal term of one block.
    pub(super) fn of(self, block: usize, n_parts: usize) -> Self {
        Self { centre: &self.centre[block * n_parts..][..n_parts], width: self.width }
    }
}
