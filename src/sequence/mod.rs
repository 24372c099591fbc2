//! Tagging: the names of features, and the labels of sequences under a model with few weights
//! (`docs/mathematics/sequences.md`).

mod rows;
mod tagger;
mod vocabulary;

pub use rows::FeatureRows;
pub use tagger::{Emissions, Ranked, Sequences, Tagger, Transitions};
pub use vocabulary::Vocabulary;
