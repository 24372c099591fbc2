//! Linear maximisation over the whole dual domain, with its image in weight space.

use super::{BlockDual, Bounded, Scales};
use crate::error::Result;
use crate::interrupt::Interrupt;

/// A dual that batch Frank-Wolfe can maximise: finds the vertex of the whole domain in the
/// direction of the gradient, as its image only.
///
/// Only a smoothed dual needs the dual point itself. It keeps that point, and receives each step
/// that the solver took towards the last vertex.
pub trait BatchDual: BlockDual {
    /// Moves the dual point by `step` towards the last vertex (0 in the first call). Then finds the
    /// vertex U of the domain that maximises the slope at the point with these weights, and writes
    /// w(U) to `image`. The loss may be omitted unless `want_loss` is set.
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

    /// Computes the point U at which the (smoothed) losses are attained: u_i = −∇Φ_i(A_i w), or a
    /// subgradient. Writes w(U) to `image`, and always evaluates the loss. Without smoothing, U is
    /// the vertex of [`BatchDual::batch_vertex`].
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

/// Sums over blocks from the pass that computes w(U), and the sizes that bound their rounding
/// errors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// Σ p_i Φ_i(w): the loss, smoothed if the problem is.
    pub loss: Option<Bounded>,
    /// Σ p_i l_i at the vertex.
    pub linear: f64,
    /// Σ p_i ⟨α_i, u_i⟩ (smoothing only).
    pub cross: f64,
    /// Σ p_i ‖u_i‖² (smoothing only).
    pub square: f64,
    /// Σ p_i ‖A_iᵀ‖ d_i and Σ p_i cost_i d_i, if the u_i are not vertices but d_i away from their
    /// sets, in ‖·‖₁.
    pub outside: [f64; 2],
    /// The sizes to which the sums' rounding errors are relative.
    pub sizes: Sizes,
}

/// Bounds on the size of a vertex of the whole domain, and so on the rounding of its sums.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sizes {
    /// Σ p_i cost_i ‖u_i‖₁: at least |linear|.
    pub cost: f64,
    /// Σ p_i feature_i ‖u_i‖₁: at least λ ‖w(U)‖.
    pub feature: f64,
    /// Σ p_i 2 ‖u_i‖₁²: at least the square.
    pub square: f64,
    /// The maximum number of terms of an entry of w(U).
    pub n_terms: usize,
}

impl Sizes {
    /// Adds a block's vertex, its share of the problem and its scales.
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
