//! Structured outputs: labels made of parts that are decoded together (SPEC 15; paper 002).
//!
//! An example has *parts* (the letters and the transitions of a word, the candidate pairs of a
//! matching), and a label y is a vector μ(y) that counts them. Its joint features are
//! φ(x, y) = Aᵀ μ(y), so that ⟨w, φ(x, y)⟩ = ⟨θ, μ(y)⟩ with the part scores θ = A w, and its loss is
//! L(y) = constant + ⟨c, μ(y)⟩. A [`Model`] knows A, c and how to decode; solvers see nothing else.

mod extragradient;
mod marginals;
mod method;
mod model;
mod problem;

pub use extragradient::{Extragradient, Projection};
pub use marginals::Marginals;
pub use method::{StructuredEnd, StructuredMethod, StructuredOptions, minimize_structured};
pub use model::{
    Chain, Graph, Hamming, Matching, Model, Multiclass, Multilabel, Pairs, Work, assign,
};
pub use problem::Problem;
