//! Projections onto the simplex, which contains the marginals of a multi-class label.

use super::Marginals;
use super::sum_product::softmax;
use crate::error::Result;
use crate::polytope::Capped;
use crate::structured::model::{Multiclass, Work, first_maximum};

impl Marginals for Multiclass {
    /// The entropy is −Σ μ_k ln μ_k, so the result is the softmax of the potentials.
    fn entropic(
        &self,
        _: usize,
        potentials: &[f64],
        _: f64,
        _: &mut Work,
        marginals: &mut [f64],
    ) -> Result<f64> {
        marginals.copy_from_slice(potentials);
        softmax(marginals);
        Ok(0.0)
    }

    /// Writes the projection onto the simplex, max(0, point − τ).
    fn euclidean(
        &self,
        _: usize,
        point: &[f64],
        _: f64,
        _: &mut Work,
        projection: &mut [f64],
    ) -> Result<f64> {
        let simplex = Capped { upper: 1.0, floor: 1.0, cap: 1.0, bias: 0.0 };
        // Values are taken relative to the largest value, which is close to the multiplier τ.
        let largest = point[first_maximum(point) as usize];
        let shifted = &mut *projection;
        shifted.iter_mut().zip(point).for_each(|(shifted, value)| *shifted = value - largest);
        let tau = simplex.multiplier(shifted, -1.0);
        projection.iter_mut().for_each(|value| *value = (*value - tau).max(0.0));
        let sum: f64 = projection.iter().sum();
        projection.iter_mut().for_each(|value| *value /= sum);
        Ok(0.0)
    }
}
