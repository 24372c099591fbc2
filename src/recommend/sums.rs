//! Sums that half a sweep computes over all ratings, in addition to updating blocks.

use ndarray::Array2;

use super::block::BlockLayout;

/// Sums over all ratings, computed by half a sweep.
#[derive(Debug, Clone)]
pub(super) struct SweepSums {
    /// The bound on the negative log-likelihood before the update.
    pub bound: f64,
    /// Sum of the expected squared errors E\[(y − o)²\] after the update, for a Gaussian
    /// likelihood.
    pub squares: f64,
    /// Curvature of the quadratic model of (U_c, b_c) for each output: Σ ω E\[(p∘q)(p∘q)ᵀ\] packed,
    /// Σ ω E\[p∘q\], Σ ω.
    pub curvature: Array2<f64>,
    /// Linear term of the quadratic model, m × (k + 1).
    pub slope: Array2<f64>,
    /// Sum of the covariances S_a of the updated blocks.
    pub covariance: Array2<f64>,
    /// Sum of log det S_a over the updated blocks.
    pub log_det: f64,
}

impl SweepSums {
    pub fn new(layout: BlockLayout) -> Self {
        let BlockLayout { k, m, pairs, .. } = layout;
        Self {
            bound: 0.0,
            squares: 0.0,
            curvature: Array2::zeros((m, pairs + k + 1)),
            slope: Array2::zeros((m, k + 1)),
            covariance: Array2::zeros((k + m, k + m)),
            log_det: 0.0,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.bound += other.bound;
        self.squares += other.squares;
        self.curvature += &other.curvature;
        self.slope += &other.slope;
        self.covariance += &other.covariance;
        self.log_det += other.log_det;
    }
}
