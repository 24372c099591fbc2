//! A training problem in the form that Newton's method needs.

use crate::dual::{Curvatures, Shares};
use crate::linalg::Design;
use crate::run::Certificate;

/// A training problem in the form that Newton's method needs. The loss of block i is a function of its scores A_i w,
/// one score per part. It is the maximum of ⟨u, A_i w⟩ plus a linear term over the points u of a convex set; if the
/// problem is smoothed, γ/2 ‖u‖² is subtracted inside the maximum.
///
/// Another smooth term γ Ω(u) can take the place of this square, such as minus the entropy of distributions. Then
/// [`Blocks::unit_width`] is at most γ, so the proximal term is 0, and [`Blocks::curvature`] adds the Jacobian of
/// argmax_u ⟨u, s⟩ − Ω(u).
pub trait Blocks: Sync {
    /// Scratch memory of a thread.
    type Work: Default + Send;
    /// Sums over some blocks, from which a certificate is computed.
    type Terms: Default + Send;

    /// The rows whose products with w are the scores.
    fn design(&self) -> Design<'_>;

    /// Number of parts of a block.
    fn n_parts(&self) -> usize;

    /// The regularisation λ, the smoothing γ and the shares p_i of the blocks.
    fn shares(&self) -> &Shares;

    /// The width at which a proximal term is as large as the losses at w = 0.
    fn unit_width(&self) -> f64;

    /// Writes the point that maximises the block's function minus the proximal term width/2 ‖u − centre‖².
    fn maximise(
        &self,
        block: usize,
        scores: &[f64],
        proximal: Proximal<'_>,
        point: &mut [f64],
        work: &mut Self::Work,
    );

    /// Adds the block's loss at the given scores, and the contribution of its point to the dual value.
    fn add_terms(
        &self,
        block: usize,
        scores: &[f64],
        point: &[f64],
        terms: &mut Self::Terms,
        work: &mut Self::Work,
    );

    /// The objective at w, rounded up, and the dual value at the scaled points tu, rounded down, with t in [0, 1]
    /// chosen to maximise it. Also returns t. Scaling matters because the dual value of a point with a large w(u) can
    /// be far below the dual value of the point 0.
    fn certificate(
        &self,
        terms: &[Self::Terms],
        weights: &[f64],
        image: Summed<'_>,
    ) -> (Certificate, f64);

    /// Adds to the open block of `curvatures` the Jacobian of argmax_u ⟨u, s⟩ − ½ ‖u‖² with respect to the scores s,
    /// where u ranges over the block's dual set. `point` is the argmax at the current scores. A larger matrix is also
    /// allowed.
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
    /// The centre, with one value per part.
    pub centre: &'a [f64],
    /// The width; 0 means no proximal term.
    pub width: f64,
}

/// −w(u) = Σ_i p_i/λ A_iᵀ u_i as computed, with rounding errors.
#[derive(Debug, Clone, Copy)]
pub struct Summed<'a> {
    /// The image Σ p_i/λ A_iᵀ u_i, part by part.
    pub image: &'a [f64],
    /// The maximum number of successive additions in the computation of an entry.
    pub n_sums: usize,
}

impl Proximal<'_> {
    /// The proximal term of one block.
    pub(super) fn of(self, block: usize, n_parts: usize) -> Self {
        Self { centre: &self.centre[block * n_parts..][..n_parts], width: self.width }
    }
}
