//! Projections onto the hull of {μ(y)}: what the dual extragradient asks of a model (SPEC 15).

mod subpermutation;
mod sum_product;

pub(in crate::structured) use sum_product::softmax;

use super::model::{Model, Work};
use crate::error::{Error, Result};

/// A model with smooth maxima or projections over the hull of its labels' parts, both to a given
/// accuracy and feasible to rounding whatever the accuracy reached.
pub trait Marginals: Model {
    /// Whether the right label's parts are in the hull.
    fn holds_truth(&self, example: usize) -> bool {
        let _ = example;
        true
    }

    /// argmax over μ in the hull of ⟨potentials, μ⟩ + H(μ), the Bregman step of the entropy H. Returns
    /// a bound on what is missing to the maximum: at most `tolerance`, unless that is out of reach.
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

    /// argmin over μ in the hull of ½‖μ − point‖². Returns a bound on what is missing to the minimum,
    /// hence on half the squared distance from it: at most `tolerance`, unless that is out of reach.
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
