//! Linear maximisation over the whole dual domain, with its image in weight space.

use crate::error::Result;
use crate::interrupt::Interrupt;

/// What batch Frank-Wolfe asks of a problem: the vertex of the dual domain that the gradient points to.
pub trait DualOracle {
    /// Length of a weight vector.
    fn n_weights(&self) -> usize;

    /// λ and the smoothing γ.
    fn regularization(&self) -> (f64, f64);

    /// Finds the vertex U of the dual domain that maximises the slope at the point whose weights these
    /// are, and writes w(U) to `image`. The loss may be left out unless it is wanted.
    fn vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        want_loss: bool,
        interrupt: &Interrupt,
    ) -> Result<Vertex>;

    /// Moves the dual point `step` of the way to the vertex found last (only smoothing needs it kept).
    fn follow(&mut self, step: f64);
}

/// Sums over the examples that one pass gives beside w(U).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Vertex {
    /// Σ p_i Φ(A_i w): the loss, smoothed where the problem is.
    pub loss: Option<f64>,
    /// Σ p_i ⟨Δ_i, β_i⟩ at the vertex.
    pub linear: f64,
    /// Σ p_i ⟨α_i, u_i⟩ (smoothing only).
    pub cross: f64,
    /// Σ p_i ‖u_i‖² (smoothing only).
    pub square: f64,
}

impl Vertex {
    /// Adds the sums of other examples.
    pub fn add(&mut self, other: &Self) {
        self.loss = self.loss.zip(other.loss).map(|(sum, part)| sum + part);
        self.linear += other.linear;
        self.cross += other.cross;
        self.square += other.square;
    }
}
