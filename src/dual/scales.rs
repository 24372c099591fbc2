//! The size of the functions of a block.

/// The size of a block's functions, for bounds on their rounding errors. Points and directions are
/// measured by ‖δ‖₁, the sum of the absolute values of their entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// An upper bound on |l_i(δ)| / ‖δ‖₁.
    pub cost: f64,
    /// An upper bound on ‖A_iᵀ δ‖ / ‖δ‖₁, if all terms of A_iᵀ δ are taken as positive.
    pub feature: f64,
    /// Number of features of a part.
    pub n_features: usize,
}
