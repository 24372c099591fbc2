//! A training problem as Newton's method sees it.

use super::design::Design;
use crate::dual::{Curvatures, Shares};
use crate::run::Certificate;

/// A training problem as Newton's method sees it. Block i has a loss of its scores A_i w, one for each part: the maximum
/// over the points u of a convex set of ⟨u, A_i w⟩ plus a linear term, less γ/2 ‖u‖² where the problem is smoothed.
pub trait Blocks: Sync {
    /// Work space of a thread.
    type Work: Default + Send;
    /// Contribution of some blocks to a certificate.
    type Terms: Default + Send;

    /// The rows that w is multiplied with.
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

    /// Adds the block's loss at its scores, and what its point adds to the dual.
    fn add_terms(
        &self,
        block: usize,
        scores: &[f64],
        point: &[f64],
        terms: &mut Self::Terms,
        work: &mut Self::Work,
    );

    /// The objective at w, rounded up, and the dual value at the points tu, rounded down; returns the t in [0, 1] that
    /// maximises it, too. A point whose w(u) is too large has a dual value far below that of 0.
    fn certificate(
        &self,
        terms: &[Self::Terms],
        weights: &[f64],
        image: Summed<'_>,
    ) -> (Certificate, f64);

    /// Adds to the open block of `curvatures` the derivative of the maximiser of ⟨u, scores⟩ − ½ ‖u‖² where that is
    /// `point`, or a larger matrix.
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
    /// The width; 0 is no such term.
    pub width: f64,
}

/// −w(u) = Σ_i p_i/λ A_iᵀ u_i, as summed up.
#[derive(Debug, Clone, Copy)]
pub struct Summed<'a> {
    /// The sum, part after part.
    pub image: &'a [f64],
    /// The maximum number of sums in a row that an entry is the result of.
    pub n_sums: usize,
}

impl Proximal<'_> {
    /// That of one block.
    pub(super) fn of(self, block: usize, n_parts: usize) -> Self {
        Self { centre: &self.centre[block * n_parts..][..n_parts], width: self.width }
    }
}
