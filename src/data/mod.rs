//! Rows in the form that solvers read: dense or CSR; half, single or double precision; borrowed from the caller.
//!
//! Kernels are generic over [`Rows`], so they need not know whether entries are stored or implied.
//! [`Data`] lists the matrix types, and `for_data!` chooses the matching code once per pass. A
//! kernel with different algorithms for dense and sparse rows checks [`Rows::n_stored`] or matches
//! on [`Data`].

mod augmented;
mod chunked;
mod csr;
mod dense;
mod digest;
mod libsvm;
mod matrix;
mod rows;

pub(crate) use augmented::Augmented;
pub(crate) use chunked::Chunked;
pub use csr::Csr;
pub use dense::Dense;
pub(crate) use digest::in_order as join_digests;
pub use libsvm::LibsvmRows;
pub use matrix::{Data, IntoRows};
pub(crate) use matrix::{for_data, for_dense};
pub use rows::{Real, Rows};
pub(crate) use rows::{in_precision, read_in};
