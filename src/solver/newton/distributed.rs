//! Newton's method for rows that are split into partitions: the quantities that each partition computes at given
//! weights, and the Newton direction, which is computed from the sums of these quantities over all partitions.

use super::active::active;
use super::blocks::{Blocks, Proximal};
pub use super::hessian::n_sums;
use super::hessian::{ReducedHessian, pair_sums};
use super::passes::{InnerEvaluation, Pass};
use crate::error::Result;
use crate::interrupt::Interrupt;

/// The maximisers of the inner problem, and the sums from which its Hessian is built.
pub struct SecondOrder {
    /// The points u, block by block.
    pub points: Vec<f64>,
    /// Σ_i p_i/λ A_iᵀ J_i A_i, for [`newton_direction`].
    pub sums: Vec<f64>,
}

/// Computes the maximisers and the sums at given weights.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub fn second_order<B: Blocks>(
    blocks: &B,
    weights: &[f64],
    proximal: Proximal<'_>,
    interrupt: &Interrupt,
) -> Result<SecondOrder> {
    let (design, m) = (blocks.design(), blocks.n_parts());
    let mut at = InnerEvaluation::new(design.n_rows() * m);
    Pass::new(&design, m).evaluate(blocks, weights, Some(proximal), &mut at, interrupt)?;
    let active = active(blocks, &at.points, 1.0, interrupt)?;
    let sums = pair_sums(&design, m, &active, interrupt)?;
    Ok(SecondOrder { points: at.points, sums })
}

/// The Newton direction −(I + K)⁻¹ r, where K is given by `sums`: the sums of [`second_order`] over all partitions,
/// divided by the curvature of the inner problem. r is ordered part by part.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub fn newton_direction(
    sums: &[f64],
    n_parts: usize,
    residual: &[f64],
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let hessian = ReducedHessian::of_sums(sums, n_parts, residual.len() / n_parts, interrupt)?;
    let mut direction: Vec<f64> = residual.iter().map(|value| -value).collect();
    hessian.solve(&mut direction);
    Ok(direction)
}
