//! The map from weights to the class scores of an example: the interface between a multi-category problem and its
//! features.

use std::ops::Range;

use crate::dual::rounding::gamma;
use crate::linalg::SparseRows;

/// The linear map A_i w = (⟨w, ψ(x_i, j)⟩)_j from weights to the scores of the classes, for features ψ(x, j)
/// of a row and a class (Tajima et al. 2020, section 2.1), and its adjoint A_iᵀ δ = Σ_j δ_j ψ(x_i, j).
pub trait ScoreMap: Send + Sync {
    /// Number of examples.
    fn n_examples(&self) -> usize;

    /// Number of classes.
    fn n_classes(&self) -> usize;

    /// Length of a weight vector.
    fn n_weights(&self) -> usize;

    /// Number of multiplications to compute the scores of all examples once.
    fn cost(&self) -> usize;

    /// Copies the weights into the form that [`ScoreMap::scores`] reads.
    fn load(&mut self, weights: &[f64]);

    /// Copies the weights into the form that [`ScoreMap::exact_scores`] reads.
    fn load_exact(&mut self, weights: &[f64]);

    /// Writes A_i w at the loaded weights, one row per example.
    fn scores(&self, examples: Range<usize>, scores: &mut [f64]);

    /// Writes A_i w in double precision, for rows of any precision, at the weights loaded by [`ScoreMap::load_exact`];
    /// `buffer` is work space.
    fn exact_scores(&self, examples: Range<usize>, buffer: &mut Vec<f64>, scores: &mut [f64]);

    /// The machine epsilon of the precision in which [`ScoreMap::scores`] computes.
    fn epsilon(&self) -> f64;

    /// The size of an example's features.
    fn row_size(&self, example: usize) -> RowSize;

    /// Adds Σ_i A_iᵀ δ_i over consecutive examples to `image`, in parallel over the weights.
    fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]);

    /// Writes A_i w of one example for the given weights.
    fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]);

    /// Whether [`ScoreMap::add_images`] and [`ScoreMap::add_image`] add several terms of one A_iᵀ δ to the same weight.
    fn adds_terms(&self) -> bool {
        false
    }

    /// Adds A_iᵀ δ of one example to `weights`; δ is given as (class, value) pairs.
    fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]);

    /// The squared norm ‖A_iᵀ δ‖².
    fn image_norm(&self, example: usize, dual: &[(u32, f64)]) -> f64;

    /// Adds A_i A_iᵀ δ to `scores`: the change of the example's scores when A_iᵀ δ is added to the weights.
    fn add_spread(&self, example: usize, dual: &[(u32, f64)], scores: &mut [f64]);
}

/// The size of an example's features.
#[derive(Debug, Clone, Copy)]
pub struct RowSize {
    /// An upper bound on ‖ψ(x, j)‖ if classes have separate weights, and √2 times such a bound if features of different
    /// classes need not be orthogonal. In both cases √2 times this value bounds ‖ψ(x, j) − ψ(x, l)‖.
    pub norm: f64,
    /// The maximum number of times that a term of a score is rounded. If classes have separate weights, this is the
    /// number of values of the row.
    pub n_values: usize,
    /// Number of products in a score.
    pub n_products: usize,
}

impl RowSize {
    /// Value up to which a sum of squares may have lost small terms to underflow.
    pub(super) const UNDERFLOWN: f64 = 1e-280;

    /// The size of a row, given its sum of squares, its largest absolute value and its number of values.
    pub(in crate::multiclass) fn of(square: f64, largest: f64, n_values: usize) -> Self {
        let norm = if square > Self::UNDERFLOWN {
            square.sqrt()
        } else {
            largest * (n_values as f64).sqrt()
        };
        Self { norm: norm * (1.0 + gamma(n_values + 4)), n_values, n_products: n_values }
    }
}
