//! Learning with many outputs, solved to a certificate.
//!
//! | room | what it holds |
//! |---|---|
//! | [`data`] | rows as solvers read them: dense or CSR, borrowed |
//! | [`features`] | feature maps: from weights to the scores of an example's parts, and back |
//! | [`linalg`] | the dense kernels: rows times packed weights, weighted sums of rows |
//! | [`parallel`] | row loops whose results do not depend on the number of threads |
//! | [`polynomial`] | multi-output polynomial networks and factorization machines |
//! | [`polytope`] | the sets whose support function is a loss |
//! | [`problem`] | examples × polytope × costs × λ: margins, losses, the null model |
//! | [`run`] | the one loop: epochs, stopping rule, certificate, trace, interruption |
//! | [`solver`] | exact block descent (Walrus, Crammer-Singer), Frank-Wolfe (batch, block, away), extragradient, subgradient, consensus |
//! | [`structured`] | models whose labels are made of parts: chains, matchings, label sets |
//! | [`error`] | the one error type |
//!
//! The Python module (`python`, an optional feature) only converts arrays and errors.

pub mod data;
pub mod error;
pub mod features;
pub mod linalg;
pub mod parallel;
pub mod polynomial;
pub mod polytope;
pub mod problem;
pub mod run;
pub mod solver;
pub mod structured;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};
