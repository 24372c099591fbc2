//! The interface of smooth convex functions, and the built-in functions.

mod least_squares;
mod logistic;

pub use least_squares::LeastSquares;
pub use logistic::LogisticSum;

use super::vertex::Vertex;
use crate::error::Result;

/// Bounds on the rounding errors of the computed value and gradient at x.
///
/// The function is at most value + [`value`](Self::value) at x, and for every y it is at least value − [`value`](
/// Self::value) + ⟨gradient, y − x⟩ − [`gradient`](Self::gradient) · (‖x‖₁ + ‖y‖₁). Bounds on the errors of value and
/// gradient have these properties. For a gradient Aᵀr, it is enough to bound the error of the product with the
/// computed r, if every r gives a lower bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FunctionRounding {
    /// The bound for the value.
    pub value: f64,
    /// The bound for each coordinate of the gradient.
    pub gradient: f64,
}

/// A smooth convex function on vectors.
///
/// An implementation needs two methods. For quadratic functions with
/// [`SmoothFunction::hessian_products`], line searches are exact, and a step updates the gradient
/// instead of recomputing it.
pub trait SmoothFunction: Send + Sync {
    /// Number of coordinates of a point.
    fn n_coordinates(&self) -> usize;

    /// Returns f(x), and writes its gradient.
    ///
    /// # Errors
    /// Any error that the implementation returns; it ends the run.
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64>;

    /// Whether the function is quadratic and has [`SmoothFunction::hessian_products`].
    fn is_quadratic(&self) -> bool {
        false
    }

    /// Returns the products of the Hessian of a quadratic function with the given vectors.
    ///
    /// # Errors
    /// As for [`SmoothFunction::value_and_gradient`].
    fn hessian_products(&self, _vectors: &[Vertex]) -> Result<Vec<Vec<f64>>> {
        Ok(Vec::new())
    }

    /// Number of products with the Hessian to compute together, if that costs far less than separate products. If it is
    /// more than 1, the methods also compute the products of vertices that they may need next.
    fn n_products_at_a_time(&self) -> usize {
        1
    }

    /// Returns the step in [0, longest] that minimises f(x + step · direction), or None if the function has no exact
    /// line search.
    ///
    /// # Errors
    /// As for [`SmoothFunction::value_and_gradient`].
    fn line_search(&self, _x: &[f64], _direction: &[f64], _longest: f64) -> Result<Option<f64>> {
        Ok(None)
    }

    /// Returns bounds on the rounding errors at x, where the computed value is `value`. The default treats value and
    /// gradient as exact.
    fn rounding(&self, _x: &[f64], _value: f64) -> FunctionRounding {
        FunctionRounding::default()
    }
}
