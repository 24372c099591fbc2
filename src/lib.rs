//! Fast multi-class, structured and recommender models whose fits report how close to optimal they
//! are.
//!
//! | module | contents |
//! |---|---|
//! | [`data`] | rows as solvers read them: dense, CSR or in chunks, borrowed |
//! | [`frank_wolfe`] | Frank-Wolfe methods for any smooth convex function over any set with a linear oracle |
//! | [`dual`] | the dual over a product of polytopes, the interface of every solver |
//! | [`linalg`] | kernels on dense and sparse vectors and matrices: products, sums, norms, factorisations |
//! | [`parallel`] | row loops whose results do not depend on the number of threads |
//! | [`penalty`] | norms of the output layer of polynomial networks, with their projections |
//! | [`polynomial`] | multi-output polynomial networks and factorization machines |
//! | [`polytope`] | the sets whose support function is a loss |
//! | [`logistic`] | multinomial logistic regression: problem, certificate, solvers |
//! | [`multiclass`] | linear models with a margin loss: problem, dual, block descent, consensus |
//! | [`recommend`] | the variational refit of a factorization machine on ratings; it has no certificate |
//! | [`run`] | the loop of every solver: epochs, stopping rule, certificate, trace, interruption |
//! | [`solver`] | Frank-Wolfe (batch, block, away), subgradient, path, Newton: algorithms over
//! blocks |
//! | [`interrupt`] | a flag by which one thread stops a solver on another |
//! | [`sequence`] | tagging: names of features, labels of sequences under a trained chain |
//! | [`structured`] | models whose labels are made of parts: chains, matchings, label sets |
//! | [`memory`] | memory that a fit needs, compared with the memory available |
//! | [`error`] | the error type |
//!
//! The Python module (`python`, an optional feature) only converts arrays and errors.

pub mod data;
pub mod dual;
pub mod error;
pub mod frank_wolfe;
pub mod interrupt;
pub mod linalg;
pub mod logistic;
pub mod memory;
pub mod multiclass;
mod names;
pub mod parallel;
pub mod penalty;
pub mod polynomial;
pub mod polytope;
pub mod recommend;
pub mod run;
pub mod sequence;
pub mod solver;
pub mod structured;

#[cfg(feature = "python")]
mod python;

#[cfg(test)]
extern crate self as dualgap;
#[cfg(test)]
#[path = "../tests/rust/main.rs"]
pub mod outside;

pub use error::{Error, Result};
