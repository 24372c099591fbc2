//! Kernels on vectors and matrices, dense and sparse: products of rows with packed weights,
//! weighted sums of rows, norms, factorisations; rows with a constant feature ([`Design`]).
//!
//! The inner loops of products and sums are written once over `pulp`'s vectors, and dispatched at
//! run time to the processor's instructions (AVX-512, AVX2, NEON). Each score is the sum over the
//! inputs in order. A constant input comes last, or first if it is not stored with the other
//! inputs. This order and the split of the rows depend only on the rows, so results do not depend
//! on the number of threads.

pub(crate) mod cholesky;
mod counting_sort;
mod design;
mod exponential;
mod layout;
pub(crate) mod outer;
mod panel_weights;
mod panels;
pub(crate) mod products;
mod scatter;
mod simd;
pub(crate) mod sparse;
mod touched;
mod triangular;
pub(crate) mod vectors;

pub(crate) use counting_sort::{CountingSort, grouped};
pub use design::{Design, Packed};
pub(crate) use exponential::{exp_minus, minus_ln, softmax};
pub(crate) use layout::{Aligned, transpose};
pub(crate) use panel_weights::{PanelWeights, Update};
pub use panels::Panels;
pub(crate) use scatter::{TILE, prefetch, scatter};
pub(crate) use simd::arch;
pub use simd::{Element, Kernel, Lane, instruction_set};
pub use sparse::{Sparse, SparseRows};
pub use touched::TouchedVector;
pub(crate) use vectors::squared_norm;
