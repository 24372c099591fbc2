//! Linear classifiers from rows and labels to predictions and model files.
//!
//! A builder holds the options of a fit: [`MulticlassSvc`] for margin losses,
//! [`LogisticRegression`] for class probabilities. `fit` takes rows and labels of any kind, and
//! returns a classifier with its certificate.

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
