//! Duals over a product of polytopes: the interface that every solver uses.
//!
//! A margin loss is the support function of a polytope. The dual of a training problem is therefore
//! defined on a product of polytopes, one per example (`docs/mathematics/duality.md`). From a
//! [`BlockDual`], a solver gets a block's [`Gradient`], and the [`Image`] of a direction in weight
//! space. Labels, costs and rows are internal to the dual.

mod batch;
mod cone;
mod curvature;
pub mod rounding;
mod scales;
mod shares;
mod value;

pub use batch::{BatchDual, Sizes, Sums};
pub use cone::SignCone;
pub use curvature::Curvatures;
pub use rounding::Bounded;
pub use scales::Scales;
pub use shares::Shares;
pub use value::{BlockTerms, DualValue, Totals, dual_value, objective};

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;

/// The dual max D(μ) = Σ_i p_i l_i(μ_i) − λ/2 ‖w(μ)‖². The point μ_i of block i is in the block's
/// polytope, and w(μ) is affine (`docs/mathematics/duality.md`). Points and directions of a block
/// are sparse vectors over its *parts*: classes, or the parts of a structured label.
///
/// The dual allocates its scratch memory once; gradients and images borrow it.
pub trait BlockDual {
    /// The gradient at a point of a block.
    type Gradient<'s>: Gradient
    where
        Self: 's;

    /// The image of a direction of a block.
    type Image<'s>: Image
    where
        Self: 's;

    /// Length of a weight vector w.
    fn n_weights(&self) -> usize;

    /// The regularisation λ, the smoothing γ and the shares p_i of the blocks.
    fn shares(&self) -> &Shares;

    /// λ, γ and the p_i, mutable so that λ can be changed.
    fn shares_mut(&mut self) -> &mut Shares;

    /// The vertex at which every block starts: there, w = 0 and l_i = 0.
    fn start(&self, block: usize) -> Sparse;

    /// An entry of a point counts as rounding error if its absolute value is at most this.
    fn rounding(&self) -> f64 {
        1e-15
    }

    /// The gradient (1/p_i) ∂D/∂μ_i at a point of a block, given the weights w(μ).
    fn gradient<'s>(
        &'s mut self,
        block: usize,
        weights: &'s [f64],
        point: &[(u32, f64)],
    ) -> Self::Gradient<'s>;

    /// The gradient restricted to a few parts. It gives slopes along directions of these parts, but
    /// its vertex is meaningless.
    fn slopes_at<'s>(
        &'s mut self,
        block: usize,
        parts: &[u32],
        weights: &'s [f64],
        point: &[(u32, f64)],
    ) -> Self::Gradient<'s>;

    /// The image of a direction of a block.
    fn image<'s>(&'s mut self, block: usize, direction: &'s [(u32, f64)]) -> Self::Image<'s>;

    /// Writes the direction from a block's start to the point that attains its loss Φ_i at the
    /// weights `scale` · `weights`. The loss is smoothed if the dual is. Returns the slope at the
    /// start along this direction.
    ///
    /// # Errors
    /// As for [`Gradient::vertex`].
    fn subgradient(
        &mut self,
        block: usize,
        weights: &[f64],
        scale: f64,
        direction: &mut Sparse,
    ) -> Result<f64>;

    /// Returns the vertex with the largest slope at `weights` for each of some blocks, computed in parallel if
    /// possible. Only for duals without smoothing.
    ///
    /// # Errors
    /// As for [`BlockDual::block_gaps`].
    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<Sparse>>;

    /// Evaluates all blocks at fixed weights, in parallel if possible.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`], and errors of the user's oracle.
    fn block_gaps(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<BlockGaps>;

    /// The size of a block's functions, from which bounds on their rounding errors are computed.
    fn scales(&self, block: usize) -> Scales;

    /// A bound, in ‖·‖₁, on the distance of a stored point from its block's polytope. `drift` bounds the distance of
    /// the point from the convex combination of vertices that it represents. The default returns `drift()`.
    fn defect(&self, _block: usize, _point: &[(u32, f64)], drift: &dyn Fn() -> f64) -> f64 {
        drift()
    }

    /// P(0), the objective at w = 0.
    ///
    /// # Errors
    /// As for [`BlockDual::block_gaps`].
    fn null_objective(&mut self, interrupt: &Interrupt) -> Result<Bounded> {
        let zero = vec![0.0; self.n_weights()];
        Ok(self.block_gaps(&zero, &|_| &[], interrupt)?.loss)
    }
}

/// The gradient of the dual at a point of one block. Its values at the points of the block's polytope may all be off by
/// the same constant.
pub trait Gradient {
    /// The inner product of the gradient with `direction`.
    fn slope(&self, direction: &[(u32, f64)]) -> f64;

    /// Writes the vertex of the polytope at which the slope is largest.
    ///
    /// # Errors
    /// Errors of the user's oracle.
    fn vertex(&mut self, vertex: &mut Sparse) -> Result<()>;
}

/// The effect on D and w of a unit step of a block along a direction.
pub trait Image {
    /// −(1/p_i) d²D/dt² for a step t along the direction.
    fn curvature(&self) -> f64;

    /// The part of the curvature that smoothing adds, γ ‖direction‖². The rest is λ/p_i
    /// ‖w(direction)‖².
    fn bend(&self) -> f64 {
        0.0
    }

    /// Adds the effect of a step to w.
    fn add_to(&mut self, step: f64, weights: &mut [f64]);

    /// The change of l_i along the direction.
    fn linear(&mut self) -> f64;
}

/// The dual point: a function that returns the point of a block.
pub type Points<'a> = dyn Fn(usize) -> &'a [(u32, f64)] + Sync + 'a;

/// The loss and the duality gap of each block, computed in one pass.
#[derive(Debug, Clone, Default)]
pub struct BlockGaps {
    /// The mean loss Σ p_i Φ_i(w).
    pub loss: Bounded,
    /// For each block, p_i times its duality gap. If w = w(μ), these sum to the duality gap.
    pub gaps: Vec<f64>,
}

impl BlockGaps {
    /// Sums up the terms (p_i Φ_i, p_i gap_i) of all blocks, given in the order of the blocks.
    pub fn of(terms: Vec<(Bounded, f64)>) -> Self {
        let loss = terms.iter().map(|(loss, _)| *loss).collect::<rounding::Sum>().total();
        Self { loss, gaps: terms.into_iter().map(|(_, gap)| gap).collect() }
    }
}
