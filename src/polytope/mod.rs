//! The sets B whose support function at the margins is a multi-category loss.
//!
//! For an example with label y and scores s let v_j = Δ_j + s_j − s_y (so v_y = 0), Δ the cost vector
//! (1 off the label for the plain losses). The loss is Φ(s; y) = max over β in B of ⟨β, v⟩
//! (SPEC 10, 10.1), and B answers three questions: its support value, a vertex that attains it, and
//! its projection with a rank-one bias term.

use std::fmt;

/// Buffers that a polytope may use freely, allocated once per thread and fit.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Values being sorted or selected.
    pub values: Vec<f64>,
    /// Their indices.
    pub order: Vec<usize>,
    /// Further work space of the projections.
    pub work: Vec<f64>,
}

/// A polytope B in R^m, one coordinate per class; the label's own coordinate never counts, since
/// v\[label\] = 0.
pub trait Polytope: Send + Sync + fmt::Debug {
    /// max over β in B of ⟨β, v⟩ (SPEC 10.1). `v[label]` is 0.
    fn support(&self, v: &[f64], label: usize, scratch: &mut Scratch) -> f64;

    /// A vertex that attains the support value, as (class, weight) pairs without the label's and
    /// without zeros; returns the support value. Ties are broken by the smaller class, and a loss of
    /// zero gives the empty vertex (SPEC 10.2).
    fn vertex(
        &self,
        v: &[f64],
        label: usize,
        scratch: &mut Scratch,
        vertex: &mut Vec<(usize, f64)>,
    ) -> f64;

    /// argmin over β in B with β\[label\] = 0 of ½‖β‖² + ρ/2 (1ᵀβ)² − vᵀβ, written to `beta`.
    ///
    /// ρ = 0 is the plain projection of v, ρ = 1 the block step of dual descent and the Moreau
    /// envelope (SPEC 10.4, 12).
    fn project(&self, v: &[f64], label: usize, rho: f64, scratch: &mut Scratch, beta: &mut [f64]);

    /// max over β in B of 1ᵀβ for `n_classes` classes: the loss of the null model under unit costs.
    fn radius(&self, n_classes: usize) -> f64;
}
