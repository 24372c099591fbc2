//! The linear maximisation step over the whole dual domain, as batch solvers need it.

use super::{BlockDual, Bounded, Scales};
use crate::error::Result;
use crate::interrupt::Interrupt;

/// A dual that batch Frank-Wolfe can maximise. It finds the vertex of the whole domain with the
/// largest slope, and returns only the image of this vertex in weight space.
///
/// Only a smoothed dual has to store the dual point itself. The solver reports to the dual each
/// step that it took towards the last vertex.
pub trait BatchDual: BlockDual {
    /// First moves the dual point by `step` towards the last vertex (`step` is 0 in the first
    /// call). Then finds the vertex U of the domain that maximises the slope at the point with
    /// these weights, and writes w(U) to `image`. The loss may be omitted unless `want_loss` is
    /// set.
    ///
    /// # Errors
    /// As for [`BlockDual::block_gaps`].
    fn batch_vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        step: f64,
        want_loss: bool,
        interrupt: &Interrupt,
    ) -> Result<Sums>;

    /// Finds the point U that attains the (smoothed) losses: u_i = −∇Φ_i(A_i w), or a subgradient.
    /// Writes w(U) to `image`, and always evaluates the loss. Without smoothing, U is the same
    /// vertex as in [`BatchDual::batch_vertex`].
    ///
    /// # Errors
    /// As for [`BlockDual::block_gaps`].
    fn batch_subgradient(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        interrupt: &Interrupt,
    ) -> Result<Sums> {
        self.batch_vertex(weights, image, 0.0, true, interrupt)
    }
}

/// Sums over blocks, computed in the pass that computes w(U), and the sizes that bound the rounding errors of these
/// sums.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// Σ p_i Φ_i(w): the loss, smoothed if the problem is smoothed.
    pub loss: Option<Bounded>,
    /// Linear term Σ p_i l_i at the vertex.
    pub linear: f64,
    /// Σ p_i ⟨α_i, u_i⟩ (smoothing only).
    pub cross: f64,
    /// Σ p_i ‖u_i‖² (smoothing only).
    pub square: f64,
    /// The sums Σ p_i ‖A_iᵀ‖ d_i and Σ p_i cost_i d_i, where d_i is the distance (in ‖·‖₁) of u_i from its set. Both
    /// are 0 if the u_i are vertices.
    pub outside: [f64; 2],
    /// Sizes that bound the rounding errors of the sums.
    pub sizes: Sizes,
}

/// Bounds on the size of a vertex of the whole domain. Bounds on the rounding errors of the vertex's sums follow from
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sizes {
    /// Σ p_i cost_i ‖u_i‖₁, an upper bound on |linear|.
    pub cost: f64,
    /// Σ p_i feature_i ‖u_i‖₁, an upper bound on λ ‖w(U)‖.
    pub feature: f64,
    /// Σ p_i 2 ‖u_i‖₁², an upper bound on `square`.
    pub square: f64,
    /// The maximum number of terms that are summed for an entry of w(U).
    pub n_terms: usize,
}

impl Sizes {
    /// Adds the sizes of a block's vertex, given the block's share of the loss and its scales.
    pub fn add(&mut self, share: f64, scales: Scales, vertex: &[(u32, f64)]) {
        let length: f64 = vertex.iter().map(|(_, value)| value.abs()).sum();
        self.cost += share * scales.cost * length;
        self.feature += share * scales.feature * length;
        self.square += 2.0 * share * length * length;
        self.n_terms += vertex.len();
    }

    /// Adds the sizes of other blocks.
    fn join(&mut self, other: &Self) {
        self.cost += other.cost;
        self.feature += other.feature;
        self.square += other.square;
        self.n_terms += other.n_terms;
    }
}

impl Sums {
    /// Adds the sums of other blocks.
    pub fn add(&mut self, other: &Self) {
        self.loss = self.loss.zip(other.loss).map(|(sum, part)| sum + part);
        self.linear += other.linear;
        self.cross += other.cross;
        self.square += other.square;
        self.outside = [0, 1].map(|kind| self.outside[kind] + other.outside[kind]);
        self.sizes.join(&other.sizes);
    }
}
