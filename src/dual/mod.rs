//! What block solvers ask of a problem: its dual, one block of the product of polytopes at a time.

mod batch;

pub use batch::{DualOracle, Vertex};

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;

/// The dual max D(μ) = Σ_i p_i l_i(μ_i) − λ/2 ‖w(μ)‖², where each block's μ_i is in a polytope of its own
/// and w(μ) is affine (SPEC 10.3, 15). Points and directions of a block are sparse vectors over its
/// *parts*: classes, or the parts of a structured label.
///
/// Calls go in the order `load` or `load_at`, then `along` and `vertex`; `curvature`, then `advance`.
pub trait BlockDual {
    /// Number of blocks.
    fn n_blocks(&self) -> usize;

    /// Length of w.
    fn n_weights(&self) -> usize;

    /// λ.
    fn lambda(&self) -> f64;

    /// Changes λ.
    fn set_lambda(&mut self, lambda: f64);

    /// p_i, the block's share of the loss.
    fn share(&self, block: usize) -> f64;

    /// The vertex that every block starts at, where w = 0.
    fn start(&self, block: usize) -> Sparse;

    /// Entries of a point this near to 0 are nothing but rounding.
    fn dust(&self) -> f64 {
        1e-15
    }

    /// Evaluates the gradient (1/p_i) ∂D/∂μ_i at a point of the block, up to a constant on the polytope.
    fn load(&mut self, block: usize, weights: &[f64], point: &[(u32, f64)]);

    /// [`BlockDual::load`] for a few parts only.
    fn load_at(&mut self, block: usize, parts: &[u32], weights: &[f64], point: &[(u32, f64)]);

    /// The loaded gradient along a direction (or at a point).
    fn along(&self, weights: &[f64], direction: &[(u32, f64)]) -> f64;

    /// The vertex to which the loaded gradient points.
    ///
    /// # Errors
    /// Only where the oracle is the user's own.
    fn vertex(&mut self, block: usize, weights: &[f64], vertex: &mut Sparse) -> Result<()>;

    /// −(1/p_i) d²D/dγ² along a direction of the block.
    fn curvature(&mut self, block: usize, direction: &[(u32, f64)]) -> f64;

    /// Moves w for a step along the direction whose curvature was taken last.
    fn advance(&mut self, block: usize, direction: &[(u32, f64)], step: f64, weights: &mut [f64]);

    /// The linear part of l_i along a direction.
    fn linear(&mut self, block: usize, direction: &[(u32, f64)]) -> f64;

    /// The vertices to which the gradient at `weights` points and p_i Φ_i, for some blocks, in parallel
    /// where that can be. Without smoothing only.
    ///
    /// # Errors
    /// As of [`BlockDual::survey`].
    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<(Sparse, f64)>>;

    /// Passes over all blocks at fixed weights, in parallel where that can be.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`], and what the user's own oracle raises.
    fn survey(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<Survey>;
}

/// The dual point as a survey reads it: block by block.
pub type Points<'a> = dyn Fn(usize) -> &'a [(u32, f64)] + Sync + 'a;

/// What a pass over all blocks finds.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Σ p_i Φ_i(w).
    pub loss: f64,
    /// Σ p_i l_i(μ_i).
    pub linear: f64,
    /// p_i times the block's duality gap; they sum to the duality gap if w = w(μ).
    pub gaps: Vec<f64>,
}

impl Survey {
    /// Sums up what each block found: (p_i Φ_i, p_i l_i, p_i gap_i) in the order of the blocks.
    pub fn of(terms: Vec<(f64, f64, f64)>) -> Self {
        let mut survey = Self { gaps: Vec::with_capacity(terms.len()), ..Self::default() };
        for (loss, linear, gap) in terms {
            survey.loss += loss;
            survey.linear += linear;
            survey.gaps.push(gap);
        }
        survey
    }
}
