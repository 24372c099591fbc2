//! The degree-2 kernels.

use crate::error::Result;
use crate::names::find;

/// Degree-2 kernel K(h, x) between a basis vector and a row (docs/mathematics/polynomial-networks.md#kernels).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolynomialKernel {
    /// The kernel (h·x)² of polynomial networks.
    Square,
    /// The kernel Σ_{j<j'} h_j x_j h_j' x_j' = ½[(h·x)² − Σ_j h_j² x_j²] of factorization machines.
    Anova,
}

impl PolynomialKernel {
    /// Every kernel with its name.
    pub const NAMES: &[(&str, Self)] = &[("square", Self::Square), ("anova", Self::Anova)];

    /// The kernel called `name`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) with the known names.
    pub fn parse(name: &str) -> Result<Self> {
        find("kernel", name, Self::NAMES)
    }
}
