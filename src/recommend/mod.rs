//! Variational refit of a two-sided factorization machine, which predicts how users rate items. Also models of clicks
//! ([`InteractionFit`], [`ItemWeights`], [`Blend`]) and rankings of all items ([`best_items`]).
//!
//! For rows x = \[one-hot user | one-hot item | features of both\], the factorization machine
//! (docs/mathematics/recommender.md#two-sided-machine) reads
//!
//! ```text
//! o_c = b_c + l_uc + l_ic + Σ_r U_rc p_ur q_ir
//! ```
//!
//! Each user or item has a block z = \[p; l\]: the sum of the basis entries and linear weights of its one-hot column
//! and of its features. (Products of two features of the same side depend on that side alone and are part of its
//! linear weights.) Each block has a Gaussian distribution N(z, S) instead of a point estimate. The prior of a side's
//! blocks is learned: a regression on the side's features, with a full covariance. The logistic terms are bounded by
//! the quadratic of Jaakkola and Jordan (2000), so that the update of a block has a closed form. Each sweep takes four
//! steps (docs/mathematics/recommender.md):
//!
//! 1. update the blocks of each side, given those of the other side (rows are independent);
//! 2. update the priors;
//! 3. rescale the bases to a common length and move their scales into U;
//! 4. update U and b by minimising a convex quadratic over the ball Ω(U) ≤ τ.
//!
//! Predictions use only the means, so the result is an ordinary multi-output factorization machine. The objective (an
//! upper bound on −log evidence) has no dual: a run reports [`Progress::Objective`](crate::run::Progress::Objective)
//! and its trace has no certificate.

mod blend;
mod block;
mod by_row;
mod click_features;
mod click_problem;
mod click_rows;
mod click_steps;
mod effects;
mod eigenbasis;
mod fold_in;
mod interactions;
mod item_weights;
mod output;
mod posterior;
mod prior;
mod problem;
mod ranking;
mod row_sums;
mod rows;
mod scorer;
mod scores;
mod side;
mod spread;
mod sums;
mod tiles;
mod variational;

pub use blend::{Blend, DenseWeights, ItemModel};
pub use click_problem::{InteractionSettings, Interactions};
pub use effects::Groups;
pub use fold_in::{FittedOutput, FittedSide, NewPrior, fold_in};
pub use interactions::{InteractionFit, factor_gram, fold_in_interactions};
pub use item_weights::{Clicks, ItemWeights};
pub use prior::LearnedPrior;
pub use problem::{Factors, Likelihood, Ratings, VariationalSettings};
pub use ranking::{Excluded, best_items};
pub use scorer::{Lists, Scorer};
pub use scores::{ItemPanels, LinkFunction, Part};
pub use spread::Spread;
pub use variational::VariationalRefit;
