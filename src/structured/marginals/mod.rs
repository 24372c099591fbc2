//! Projections onto the convex hull of {μ(y)}, which the dual extragradient method needs.

mod forward_backward;
mod label_sets;
mod simplex;
mod subpermutation;
mod sum_product;

pub use forward_backward::chain_marginals;

use super::model::{Model, Work};
use crate::error::{Error, Result};
use crate::names::find;

/// The distance that a projection minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// Half the squared Euclidean distance.
    Euclidean,
    /// The Bregman divergence of the model's entropy.
    Entropic,
}

impl Projection {
    /// All projections with their names.
    pub const NAMES: &[(&str, Self)] =
        &[("euclidean", Self::Euclidean), ("entropic", Self::Entropic)];

    /// Returns the projection with this name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name.
    pub fn parse(name: &str) -> Result<Self> {
        find("projection", name, Self::NAMES)
    }
}

/// A model that can compute entropic or Euclidean projections onto the convex hull of the μ(y). Both projections take a
/// requested accuracy. Their results are feasible up to rounding, even if the accuracy is not reached.
pub trait Marginals: Model {
    /// Whether the hull contains the parts of the true label.
    fn holds_truth(&self, example: usize) -> bool {
        let _ = example;
        true
    }

    /// The default projection.
    fn default_projection(&self) -> Projection {
        Projection::Euclidean
    }

    /// Writes to `marginals` the argmax over μ in the hull of ⟨potentials, μ⟩ + H(μ), the Bregman
    /// step of the entropy H. Returns a bound on how far its value is below the maximum. The bound
    /// is at most `tolerance` if that accuracy can be reached.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `projection` if the model has no such step.
    fn entropic(
        &self,
        example: usize,
        potentials: &[f64],
        tolerance: f64,
        work: &mut Work,
        marginals: &mut [f64],
    ) -> Result<f64> {
        let _ = (example, potentials, tolerance, work, marginals);
        Err(Error::argument("projection", "this model has no entropic projection"))
    }

    /// Writes to `projection` the argmin over μ in the hull of ½‖μ − point‖². Returns a bound on how
    /// far its value is above the minimum; it also bounds half the squared distance from the
    /// minimiser. The bound is at most `tolerance` if that accuracy can be reached.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `projection` if the model has no such projection.
    fn euclidean(
        &self,
        example: usize,
        point: &[f64],
        tolerance: f64,
        work: &mut Work,
        projection: &mut [f64],
    ) -> Result<f64> {
        let _ = (example, point, tolerance, work, projection);
        Err(Error::argument("projection", "this model has no Euclidean projection"))
    }
}
