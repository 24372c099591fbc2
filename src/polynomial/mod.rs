//! Multi-output polynomial networks and factorization machines (paper 003, SPEC part I).

pub mod conditional_gradient;
pub mod eigen;
pub mod kernel;
pub mod loss;
pub mod model;
pub mod penalty;
pub mod problem;
pub mod refit_full;
pub mod refit_output;
pub mod select;
pub mod state;
pub mod validation;
pub mod variational;
