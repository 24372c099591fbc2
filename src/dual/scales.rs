//! How large the functions of a block can be.

/// The size of a block's functions, for bounds on their rounding errors. Points and directions are measured
/// by ‖δ‖₁, the sum of the sizes of their entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// |l_i(δ)| is at most this times ‖δ‖₁.
    pub cost: f64,
    /// The norm of A_iᵀ δ, each of its terms taken as positive, is at most this times ‖δ‖₁.
    pub feature: f64,
    /// Number of features of a part.
    pub n_features: usize,
}
