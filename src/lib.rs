//! Classifiers, structured models and optimisers that report how close to optimal they are.
//!
//! A fit ends with a certificate: an upper bound, valid in exact arithmetic, on the difference between the model's
//! objective and the objective of the best model. A fit stops as soon as this duality gap is small enough.
//!
//! ```
//! use dualgap::prelude::*;
//!
//! let rows = Dense::from_slice(&[0.0, 1.0, 0.5, 2.0, 4.0, 0.0, 5.0, 1.0], 2)?;
//! let labels = ["cat", "cat", "dog", "dog"];
//! let model = MulticlassSvc::new().c(10.0).tol(1e-6).fit(rows, &labels)?;
//! assert!(model.gap() <= 1e-6 * model.objective());
//! assert_eq!(model.predict(rows)?, labels);
//! println!("{} epochs of {}", model.trace().epochs.len(), model.solver());
//! # Ok::<(), dualgap::Error>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`prelude`] | the names that most programs need |
//! | [`models`] | linear classifiers, structured models and ordinal ratings: from rows and labels to predictions and model files |
//! | [`data`] | borrowed rows, dense or CSR, and files in LIBSVM format |
//! | [`frank_wolfe`] | Frank-Wolfe methods for any smooth convex function over any set with a linear oracle |
//! | [`polytope`] | the sets whose support function is a loss, and the trait for custom sets |
//! | [`run`] | epochs, certificates and the record of a fit |
//!
//! Rows are borrowed, never copied: a [`Dense`](data::Dense) or [`Csr`](data::Csr) of slices, or an
//! [`ndarray::Array2`] in C order:
//!
//! ```
//! use dualgap::ndarray::array;
//! use dualgap::prelude::*;
//!
//! let rows = array![[0.0_f32, 1.0], [0.1, 0.8], [2.0, 0.1], [2.2, 0.0]];
//! let model = LogisticRegression::new().fit(&rows, &[0, 0, 1, 1])?;
//! assert_eq!(model.predict(&rows)?, [0, 0, 1, 1]);
//! # Ok::<(), dualgap::Error>(())
//! ```
//!
//! Loops over rows run on rayon's current thread pool; results do not depend on the number of threads. Another thread
//! stops a fit with an [`Interrupt`]. The Python package `dualgap` reads the files that
//! [`save`](models::LinearClassifier::save) writes, and [`load`](models::LinearClassifier::load) reads files that the
//! package has written. The package also has taggers, polynomial networks and recommenders, whose Rust parts are not
//! public yet.

// Some code is used only by the Python module.
#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))]

pub mod data;
mod dual;
mod error;
pub mod frank_wolfe;
mod interrupt;
mod linalg;
mod logistic;
mod memory;
pub mod models;
mod multiclass;
mod names;
mod parallel;
mod penalty;
mod polynomial;
pub mod polytope;
mod recommend;
pub mod run;
mod sequence;
mod solver;
mod structured;

#[cfg(feature = "python")]
mod python;

#[cfg(test)]
extern crate self as dualgap;
#[cfg(test)]
#[path = "../tests/rust/main.rs"]
mod outside;

pub use error::{Error, Result};
pub use interrupt::Interrupt;
pub use {half, ndarray, num_traits, rand_pcg};

pub(crate) use data::for_data;

/// The names that most programs need.
///
/// ```
/// use dualgap::prelude::*;
///
/// let rows = Csr::new(&[0, 1, 2], &[0, 1], &[1.0, 1.0], 2)?;
/// assert_eq!(Data::from(rows).n_rows(), 2);
/// # Ok::<(), Error>(())
/// ```
pub mod prelude {
    pub use crate::data::{Csr, Data, Dense, IntoRows};
    pub use crate::models::{
        Label, LinearClassifier, LogisticClassifier, LogisticRegression, Loss, MulticlassSvc,
    };
    pub use crate::polytope::Polytope;
    pub use crate::{Error, Interrupt, Result};
}

/// Parts of the crate that its benchmarks measure; not a public interface.
#[doc(hidden)]
pub mod internal {
    pub use crate::dual::Shares;
    pub use crate::linalg::SparseRows;
    pub use crate::multiclass::{Linear, MarginDual, MarginProblem, Order, ScoreMap, Workspace};
    pub use crate::polytope::walrus::{multiplier, multiplier_by_sorting};
    pub use crate::polytope::{Parameters, parse};
    pub use crate::solver::{FrankWolfe, StepRule};
    pub use crate::structured::{
        Chain, Graph, Hamming, Marginals, Matching, Model, Multilabel, Work,
    };
}
