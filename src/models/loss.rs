//! The loss of a model: a built-in loss by its name, or a polytope.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::polytope::{Parameters, Polytope, parse};

/// A margin loss.
///
/// ```
/// use dualgap::models::Loss;
///
/// let named = Loss::from("weston-watkins");
/// let of_two = Loss::top_k(2);
/// let own = Loss::own(dualgap::polytope::Cube);
/// # let _ = (named, of_two, own);
/// ```
#[derive(Clone, Debug)]
pub struct Loss(Kind);

#[derive(Clone)]
enum Kind {
    Named(String, Parameters),
    Own(Arc<dyn Fn() -> Box<dyn Polytope> + Send + Sync>),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name, parameters) => write!(f, "{name:?} with {parameters:?}"),
            Self::Own(build) => write!(f, "{:?}", build()),
        }
    }
}

impl From<&str> for Loss {
    fn from(name: &str) -> Self {
        Self::named(name, None, None)
    }
}

impl Loss {
    /// A built-in loss: "max-hinge" (or "crammer-singer") and "weston-watkins" without parameters,
    /// "top-k" and "usunier" with `k`, "weighted-top-k" and "weighted-usunier" with `weights`.
    /// A fit returns an error for other names or parameters.
    pub fn named(name: &str, k: Option<usize>, weights: Option<Vec<f64>>) -> Self {
        Self(Kind::Named(name.to_owned(), Parameters { k, weights }))
    }

    /// The mean of the k largest margins, or 0 if this mean is negative
    /// (docs/mathematics/polytopes.md).
    pub fn top_k(k: usize) -> Self {
        Self::named("top-k", Some(k), None)
    }

    /// The loss that is the support function of a polytope.
    pub fn own(set: impl Polytope + Clone + 'static) -> Self {
        Self(Kind::Own(Arc::new(move || Box::new(set.clone()))))
    }

    pub(super) fn polytope(&self) -> Result<Box<dyn Polytope>> {
        match &self.0 {
            Kind::Named(name, parameters) => parse(name, parameters.clone()),
            Kind::Own(build) => Ok(build()),
        }
    }

    /// The name and parameters, unless the loss is given by a polytope.
    pub(super) fn name(&self) -> Option<(&str, &Parameters)> {
        match &self.0 {
            Kind::Named(name, parameters) => Some((name, parameters)),
            Kind::Own(_) => None,
        }
    }
}
