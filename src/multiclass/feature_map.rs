//! Feature maps: the linear map A_i from weights to the scores of example i's parts, and its adjoint.
//!
//! Linear multi-class models have one part per class, A_i w = W x_i ([`Linear`]). A solver sees only
//! [`FeatureMap`] and treats weights as a flat vector whose order is the map's own.

use std::ops::Range;

use super::linear::Layout;
use crate::linalg::SparseRows;

/// The linear map from weights to the scores of each example's parts, and its adjoint.
pub trait FeatureMap: Send + Sync {
    /// Number of examples.
    fn n_examples(&self) -> usize;

    /// Number of parts of each example (classes).
    fn n_parts(&self) -> usize;

    /// How weights are ordered.
    fn layout(&self) -> Layout;

    /// Takes a copy of the weights in the form that [`FeatureMap::scores`] reads.
    fn load(&mut self, weights: &[f64]);

    /// A_i w of the loaded weights for each of the examples, one row each.
    fn scores(&self, examples: Range<usize>, scores: &mut [f64]);

    /// image += Σ_i A_iᵀ δ_i over a run of examples, in parallel over the weights. The sum is complete
    /// after [`FeatureMap::end_span`].
    fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]);

    /// Ends a span of examples whose images may have been summed in single precision.
    fn end_span(&mut self, image: &mut [f64]);

    /// A_i w of one example for the given weights.
    fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]);

    /// weights += A_iᵀ δ for one example, δ as (part, value) pairs.
    fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]);

    /// ‖ψ(x_i, j)‖², the same for each part: ‖A_iᵀ δ‖² is this times ‖δ‖².
    fn squared_norm(&self, example: usize) -> f64;

    /// Multiplications of one pass of scores.
    fn cost(&self) -> usize;
}
