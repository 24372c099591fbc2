//! The sizes of the functions of a block.

/// The sizes of a block's functions, from which bounds on their rounding errors are computed.
/// Points and directions are measured by ‖δ‖₁, the sum of the absolute values of their entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// An upper bound on |l_i(δ)| / ‖δ‖₁.
    pub cost: f64,
    /// An upper bound on ‖A_iᵀ δ‖ / ‖δ‖₁ that also holds if all terms of A_iᵀ δ are made positive.
    pub feature: f64,
    /// Number of features per part.
    pub n_features: usize,
}
