//! Multi-output polynomial networks and factorization machines (Blondel et al. 2017;
//! docs/mathematics/polynomial-networks.md).

pub mod basis_selection;
mod certificate;
pub mod conditional_gradient;
pub(crate) mod curvature;
pub mod evaluation;
pub mod gradient_matrices;
pub mod kernel;
mod layers;
pub mod loss;
mod metric;
pub mod model;
pub mod problem;
mod quasi_newton;
pub mod refit;
mod row_block;
mod sparse_columns;
pub(crate) mod spectral;
pub mod spectral_bounds;
mod stochastic;
pub mod validation;
