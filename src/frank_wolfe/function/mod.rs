//! Smooth convex functions, and those that come with the crate.

mod least_squares;
mod logistic;

pub use least_squares::LeastSquares;
pub use logistic::LogisticSum;

use super::vertex::Vertex;
use crate::error::Result;

/// Bounds on the rounding errors of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FunctionRounding {
    /// The error of the value.
    pub value: f64,
    /// The largest error of a coordinate of the gradient.
    pub gradient: f64,
}

/// A smooth convex function on vectors.
///
/// An implementation needs two methods. Quadratic functions with
/// [`SmoothFunction::hessian_product`] have exact line searches, and gradients that a step updates
/// instead of computing them again.
pub trait SmoothFunction: Send + Sync {
    /// Number of coordinates of a point.
    fn n_coordinates(&self) -> usize;

    /// Returns f(x), and writes its gradient.
    ///
    /// # Errors
    /// An error of the implementation, which ends the run.
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64>;

    /// Whether the function is quadratic and has a [`SmoothFunction::hessian_product`].
    fn is_quadratic(&self) -> bool {
        false
    }

    /// Writes the product of the Hessian of a quadratic function with a vector.
    ///
    /// # Errors
    /// As [`SmoothFunction::value_and_gradient`].
    fn hessian_product(&self, _vector: &Vertex, _product: &mut [f64]) -> Result<()> {
        Ok(())
    }

    /// The step in [0, longest] that minimises f(x + step · direction); None without such a method.
    ///
    /// # Errors
    /// As [`SmoothFunction::value_and_gradient`].
    fn line_search(&self, _x: &[f64], _direction: &[f64], _longest: f64) -> Result<Option<f64>> {
        Ok(None)
    }

    /// Bounds on the rounding errors at x. The default takes value and gradient as exact.
    fn rounding(&self, _x: &[f64]) -> FunctionRounding {
        FunctionRounding::default()
    }
}
