//! Extreme eigenvalues of symmetric matrices that are given by their products with vectors, and
//! bounds on their norms (docs/mathematics/polynomial-networks.md#extreme-eigenvectors).

pub(crate) mod chebyshev;
pub(crate) mod lanczos;
pub(crate) mod power;
pub(crate) mod side_by_side;
pub(crate) mod spectrum;
pub(crate) mod values;
