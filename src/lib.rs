//! Learning with many outputs, solved to a certificate.
//!
//! | room | what it holds |
//! |---|---|
//! | [`data`] | rows as solvers read them: dense or CSR, borrowed |
//! | [`polytope`] | the sets whose support function is a loss |
//! | [`run`] | the one loop: epochs, stopping rule, certificate, trace, interruption |
//! | [`error`] | the one error type |
//!
//! The Python module (`python`, an optional feature) only converts arrays and errors.

pub mod data;
pub mod error;
pub mod polytope;
pub mod run;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};
