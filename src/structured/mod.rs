//! Structured outputs: labels whose parts are predicted jointly (`docs/mathematics/structured.md`).
//!
//! An example has *parts* (the letters and the transitions of a word, the candidate pairs of a matching), and a label y
//! is a vector μ(y) that counts them. Its joint features are φ(x, y) = Aᵀ μ(y), so that ⟨w, φ(x, y)⟩ = ⟨θ, μ(y)⟩ with
//! the part scores θ = A w, and its loss is L(y) = constant + ⟨c, μ(y)⟩. A [`Model`] provides A, c and decoding;
//! [`Marginals`] adds the projections that the extragradient method needs.

mod callback;
mod chain_descent;
mod conditional;
mod dual;
mod extragradient;
pub(crate) mod fold;
pub(crate) mod label_weights;
mod marginals;
mod method;
mod model;
mod single_precision;

pub use callback::{CallbackDual, Oracle};
pub use chain_descent::{
    ChainFit, ChainPoint, DescentOptions, chain_objective, chain_path, fit_chain,
};
pub use conditional::{
    ConditionalFit, ElasticNet, conditional_objective, conditional_path, fit_conditional,
};
pub use dual::StructuredDual;
pub use extragradient::Extragradient;
pub use marginals::{Marginals, Projection, chain_marginals};
pub use method::{StructuredChoices, StructuredMethod, fit};
#[cfg(test)]
pub use model::assign;
pub(crate) use model::assignment_prices;
pub use model::{
    Chain, ChainScores, FORBIDDEN, Graph, Hamming, Kept, Links, Matching, Model, Multiclass,
    Multilabel, Pairs, StoredRows, Work,
};
