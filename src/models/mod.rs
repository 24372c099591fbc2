//! Models: fits from rows and labels, predictions, and model files.
//!
//! A builder or a struct holds the options of a fit. Every fit ends with a certificate.
//!
//! | options | fit |
//! |---|---|
//! | [`MulticlassSvc`] | a linear classifier with a margin loss; [`MulticlassSvc::fit_partitions`] for rows in several partitions |
//! | [`LogisticRegression`] | a linear classifier with class probabilities |
//! | [`StructuredSvm`] | weights for labels that are predicted jointly, with a decoder of your own |
//! | [`McRank`] | a factorization machine of ordinal ratings |

mod classifier;
mod consensus;
mod json;
mod labels;
mod loading;
mod logistic;
mod loss;
mod mcrank;
mod npz;
mod npz_reader;
mod options;
mod saving;
mod structured;
mod svc;

pub use classifier::{LinearClassifier, LogisticClassifier};
pub use labels::Label;
pub use logistic::LogisticRegression;
pub use loss::Loss;
pub use mcrank::{McRank, McRankModel};
pub use structured::{StructuredExamples, StructuredFit, StructuredSvm};
pub use svc::MulticlassSvc;
