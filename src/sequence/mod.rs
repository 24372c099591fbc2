//! Sequence tagging: the names of features, and decoding with a model whose weights are mostly zero
//! (`docs/mathematics/sequences.md`).

mod emissions;
mod known;
mod named;
mod rows;
mod tagger;
mod vocabulary;

pub use emissions::LabelWeights;
pub use known::KnownLabels;
pub use named::NamedRows;
pub use rows::FeatureRows;
pub use tagger::{Sequences, Tagger, Transitions};
pub use vocabulary::Vocabulary;
