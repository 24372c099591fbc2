//! Bounds on the norms of the linear functions of a block.

/// Upper bounds on the norms of a block's linear functions l_i and A_iᵀ, from which bounds on their rounding errors are
/// computed. Points and directions are measured in the L1 norm ‖δ‖₁.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// An upper bound on |l_i(δ)| / ‖δ‖₁.
    pub cost: f64,
    /// An upper bound on ‖A_iᵀ δ‖ / ‖δ‖₁ that also holds if all terms of A_iᵀ δ are made positive.
    pub feature: f64,
    /// Number of features per part.
    pub n_features: usize,
    /// Whether the terms of A_iᵀ δ are added to the image one by one, instead of their sum, so that the block may
    /// change a weight once for each entry of δ.
    pub adds_terms: bool,
}
