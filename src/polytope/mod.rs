//! The sets B whose support function at the margins is a multi-category loss.
//!
//! For an example with label y and scores s let v_j = Δ_j + s_j − s_y (so v_y = 0), Δ the cost vector
//! (1 off the label for the plain losses). The loss is Φ(s; y) = max over β in B of ⟨β, v⟩
//! (SPEC 10, 10.1), and B answers three questions: its support value, a vertex that attains it, and
//! its projection with a rank-one bias term.
//!
//! A new loss is one file with a [`Polytope`] and one line in [`REGISTRY`].

use std::fmt;

use crate::error::{Error, Result};
use crate::linalg::Sparse;
use crate::names::find;

mod capped;
mod cube;
mod max_hinge;
mod root;
mod select;
mod sorted;
mod top_k;
mod usunier;
mod weighted_top_k;
mod weighted_usunier;
mod weights;

pub mod moreau;
pub mod walrus;

pub(crate) use capped::Capped;
pub use cube::Cube;
pub use max_hinge::MaxHinge;
pub use top_k::TopK;
pub use usunier::Usunier;
pub use weighted_top_k::WeightedTopK;
pub use weighted_usunier::WeightedUsunier;
pub use weights::Weights;

/// Buffers that a polytope may use freely, allocated once per thread and fit.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Values being sorted or selected.
    pub values: Vec<f64>,
    /// Their indices.
    pub order: Vec<usize>,
    /// Further work space of the projections.
    pub work: Vec<f64>,
    /// Margins being scaled.
    pub margins: Vec<f64>,
    /// Where the next projection starts to look for its multiplier. A good guess, such as the last
    /// multiplier of the same example, saves time and changes the result at most by rounding.
    pub guess: Option<f64>,
    /// The multiplier of the last projection.
    pub multiplier: f64,
}

impl Scratch {
    /// The guess, used once: a projection never depends on those before it.
    fn take_guess(&mut self) -> f64 {
        self.guess.take().unwrap_or(0.0)
    }
}

/// The set {0 <= β_j <= upper, 1ᵀβ <= cap}.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CappedBox {
    /// Largest β_j.
    pub upper: f64,
    /// Largest sum; infinite where the box alone bounds it.
    pub cap: f64,
}

/// A polytope B in R^m, one coordinate per class; the label's own coordinate never counts, since
/// v\[label\] = 0.
pub trait Polytope: Send + Sync + fmt::Debug {
    /// Whether the set exists for `n_classes` classes (k and the weights must fit; SPEC 10.1).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the parameter that does not fit.
    fn check(&self, n_classes: usize) -> Result<()>;

    /// max over β in B of ⟨β, v⟩ (SPEC 10.1). `v[label]` is 0.
    fn support(&self, v: &[f64], label: usize, scratch: &mut Scratch) -> f64;

    /// A vertex that attains the support value, as (class, weight) pairs in any order, without the
    /// label's and without zeros; returns the support value. Ties are broken by the smaller class, and a loss of
    /// zero gives the empty vertex (SPEC 10.2).
    fn vertex(&self, v: &[f64], label: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64;

    /// argmin over β in B of ½‖b‖² + bias/2 (1ᵀb)² − vᵀb, where b is β without its label's
    /// coordinate; b is written to `beta`, and `beta[label]` is 0.
    ///
    /// bias = 0 is the plain projection of v, bias = 1 the block step of dual descent and the Moreau
    /// envelope (SPEC 10.4, 12).
    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]);

    /// The set as a box cut by a bound on the sum, where it has that form.
    fn capped_box(&self) -> Option<CappedBox> {
        None
    }

    /// max over β in B of 1ᵀβ for `n_classes` classes: the loss of the null model under unit costs.
    fn radius(&self, n_classes: usize) -> f64;
}

/// What a polytope may be built from; each takes the ones it needs and refuses the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// How many classes the loss counts.
    pub k: Option<usize>,
    /// The weights ρ of the sorted margins.
    pub weights: Option<Vec<f64>>,
}

type Build = fn(Parameters) -> Result<Box<dyn Polytope>>;

/// Every loss by its name.
pub const REGISTRY: &[(&str, Build)] = &[
    ("max-hinge", |given| given.nothing().map(|()| Box::new(MaxHinge) as _)),
    ("crammer-singer", |given| given.nothing().map(|()| Box::new(MaxHinge) as _)),
    ("weston-watkins", |given| given.nothing().map(|()| Box::new(Cube) as _)),
    ("top-k", |given| Ok(Box::new(TopK::new(given.k()?)?))),
    ("usunier", |given| Ok(Box::new(Usunier::new(given.k()?)?))),
    ("weighted-top-k", |given| Ok(Box::new(WeightedTopK::new(given.weights()?)))),
    ("weighted-usunier", |given| Ok(Box::new(WeightedUsunier::new(given.weights()?)))),
];

/// The polytope of the loss called `name`.
///
/// # Errors
/// [`Error::InvalidArgument`] for an unknown name and for parameters that are missing, unusable or
/// not the loss's own.
pub fn parse(name: &str, parameters: Parameters) -> Result<Box<dyn Polytope>> {
    find("loss", name, REGISTRY)?(parameters)
}

impl Parameters {
    fn nothing(self) -> Result<()> {
        self.refuse_k()?;
        self.refuse_weights()
    }

    fn k(self) -> Result<usize> {
        self.refuse_weights()?;
        self.k.ok_or_else(|| Error::argument("k", "this loss needs k, how many classes it counts"))
    }

    fn weights(self) -> Result<Weights> {
        self.refuse_k()?;
        let weights = self.weights.ok_or_else(|| {
            Error::argument("weights", "this loss needs weights, one for each class")
        })?;
        Weights::new(weights)
    }

    fn refuse_k(&self) -> Result<()> {
        match self.k {
            Some(_) => Err(Error::argument("k", "this loss takes no k")),
            None => Ok(()),
        }
    }

    fn refuse_weights(&self) -> Result<()> {
        match self.weights {
            Some(_) => Err(Error::argument("weights", "this loss takes no weights")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_from_its_own_parameters_only() {
        let k = Parameters { k: Some(2), weights: None };
        let weights = Parameters { k: None, weights: Some(vec![0.6, 0.4, 0.0]) };
        let given = [Parameters::default(), k, weights];
        let takes = [0, 0, 0, 1, 1, 2, 2];
        assert_eq!(takes.len(), REGISTRY.len());
        for ((name, _), takes) in REGISTRY.iter().zip(takes) {
            for (kind, parameters) in given.iter().enumerate() {
                let built = parse(name, parameters.clone());
                assert_eq!(built.is_ok(), kind == takes, "{name} from {parameters:?}");
                if let Ok(polytope) = built {
                    polytope.check(3).unwrap();
                    assert_eq!(polytope.check(2).is_ok(), takes == 0, "{name}, 2 classes");
                }
            }
        }
    }

    #[test]
    fn errors_name_the_argument() {
        let message = |name: &str, k, weights| {
            parse(name, Parameters { k, weights }).unwrap_err().to_string()
        };
        assert!(message("hinge", None, None).starts_with("loss: unknown name \"hinge\""));
        assert_eq!(message("max-hinge", Some(1), None), "k: this loss takes no k");
        assert_eq!(message("top-k", Some(0), None), "k: must be at least 1");
        assert!(
            message("weighted-top-k", None, Some(vec![1.0, 2.0, 0.0])).starts_with("weights: ")
        );
        let error = parse("top-k", Parameters { k: Some(5), weights: None }).unwrap().check(5);
        assert_eq!(
            error.unwrap_err().to_string(),
            "k: must be below the number of classes (k = 5 with 5 classes)"
        );
    }
}
