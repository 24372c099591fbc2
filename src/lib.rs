//! Learning with many outputs, solved to a certificate.
//!
//! | room | what it holds |
//! |---|---|
//! | [`data`] | rows as solvers read them: dense or CSR, borrowed |
//! | [`parallel`] | row loops whose results do not depend on the number of threads |
//! | [`polynomial`] | multi-output polynomial networks and factorization machines |
//! | [`polytope`] | the sets whose support function is a loss |
//! | [`run`] | the one loop: epochs, stopping rule, certificate, trace, interruption |
//! | [`error`] | the one error type |
//!
//! The Python module (`python`, an optional feature) only converts arrays and errors.

pub mod data;
pub mod error;
pub mod parallel;
pub mod polynomial;
pub mod polytope;
pub mod run;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};
