//! Linear classifiers: fits from rows and labels, predictions, and model files.
//!
//! A builder holds the options of a fit: [`MulticlassSvc`] for margin losses, or
//! [`LogisticRegression`] for class probabilities. Its `fit` takes rows and labels, and returns a
//! classifier with a certificate.

mod classifier;
mod labels;
mod logistic;
mod loss;
mod npz;
mod options;
mod saving;
mod svc;

pub use classifier::{LinearClassifier, LogisticClassifier};
pub use labels::Label;
pub use logistic::LogisticRegression;
pub use loss::Loss;
pub use svc::MulticlassSvc;
