//! Multi-output polynomial networks and factorization machines (paper 003, SPEC part I).

mod block;
pub mod conditional_gradient;
pub mod eigen;
pub mod kernel;
pub mod loss;
pub mod model;
pub mod pass;
pub mod penalty;
pub mod problem;
mod quasi_newton;
pub mod refit;
pub mod select;
pub mod validation;
pub mod variational;
