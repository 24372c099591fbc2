//! The sum of the maximum norms of the rows.

use ndarray::ArrayViewMut2;

use super::{Penalty, Refinement};
use crate::error::{Error, Result};

/// Maximum number of outputs for which all sign patterns are enumerated.
const MAX_EXACT_OUTPUTS: usize = 16;

/// Ω(U) = Σ_r max_c |u_rc| (Blondel et al. 2017, Table 1).
#[derive(Debug, Clone, Copy)]
pub struct L1LInf;

impl Penalty for L1LInf {
    fn row_norm(&self, row: &[f64]) -> f64 {
        row.iter().map(|u| u.abs()).fold(0.0, f64::max)
    }

    fn dual_row_norm(&self, row: &[f64]) -> f64 {
        row.iter().map(|g| g.abs()).sum()
    }

    fn atom_row(&self, gradient: &[f64], atom: &mut [f64]) {
        for (a, g) in atom.iter_mut().zip(gradient) {
            *a = if *g < 0.0 { -1.0 } else { 1.0 };
        }
    }

    /// Caps the absolute values in each row r at μ_r such that Σ μ_r = radius. In every row that
    /// does not become 0, the same total amount θ is cut off
    /// (docs/mathematics/polynomial-networks.md#projections-onto-the-balls). Σ μ_r(θ) is piecewise
    /// linear and decreasing, so θ is found by bisection on the breakpoints, followed by
    /// interpolation.
    fn project(&self, mut output: ArrayViewMut2<'_, f64>, radius: f64) {
        if self.value(output.view()) <= radius {
            return;
        }
        let curves: Vec<CapCurve> = output
            .rows()
            .into_iter()
            .map(|row| CapCurve::new(row.iter().map(|u| u.abs()).collect()))
            .collect();
        let total = |theta: f64| curves.iter().map(|curve| curve.cap(theta)).sum::<f64>();
        let mut breakpoints: Vec<f64> =
            curves.iter().flat_map(|curve| curve.breakpoints.iter().copied()).collect();
        breakpoints.push(0.0);
        breakpoints.sort_unstable_by(f64::total_cmp);
        let (mut low, mut high) = (0, breakpoints.len() - 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if total(breakpoints[middle]) > radius {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (left, right) = (breakpoints[low], breakpoints[high]);
        let (at_left, at_right) = (total(left), total(right));
        let share =
            if at_left > at_right { (at_left - radius) / (at_left - at_right) } else { 0.0 };
        let theta = left + share * (right - left);
        for (mut row, curve) in output.rows_mut().into_iter().zip(&curves) {
            let cap = curve.cap(theta);
            row.mapv_inplace(|u| u.abs().min(cap).copysign(u));
        }
    }

    fn refinement(&self, start_gradient: &[f64]) -> Refinement {
        let largest = start_gradient.iter().map(|g| g.abs()).fold(f64::MIN_POSITIVE, f64::max);
        Refinement::Ascent { smoothing: 1e-3 * largest }
    }

    fn half_of_vertices(&self, n_outputs: usize) -> Result<Vec<Vec<f64>>> {
        if n_outputs > MAX_EXACT_OUTPUTS {
            let message = format!(
                "\"exact\" solves 2^(m - 1) eigenvalue problems for m outputs and allows at most \
                 {MAX_EXACT_OUTPUTS} outputs, got {n_outputs}; use \"refined\""
            );
            return Err(Error::argument("selection", message));
        }
        // The last sign is always positive: of each pair u and −u, only one is listed.
        let sign = |pattern: usize, c: usize| if pattern >> c & 1 == 1 { -1.0 } else { 1.0 };
        let patterns = 0..1usize << n_outputs.saturating_sub(1);
        Ok(patterns.map(|p| (0..n_outputs).map(|c| sign(p, c)).collect()).collect())
    }

    /// A smooth upper bound on Σ_c |g_c|, like Huber's function (docs/mathematics/polynomial-networks.md#refinement).
    fn smoothed_dual(&self, gradient: &[f64], smoothing: f64, weights: &mut [f64]) -> f64 {
        let mut value = 0.0;
        for (w, g) in weights.iter_mut().zip(gradient) {
            *w = (g / smoothing).clamp(-1.0, 1.0);
            value +=
                if g.abs() <= smoothing { 0.5 * (g * g / smoothing + smoothing) } else { g.abs() };
        }
        value
    }
}

/// The cap μ(θ) of one row as a function of the amount that it cuts off, θ = Σ_c max(|v_c| − μ, 0).
struct CapCurve {
    /// A_1, A_2, ..., where A_j is the sum of the j largest absolute values.
    sums: Vec<f64>,
    /// b_j = A_j − j a_{j+1}: the amount cut off if the cap equals the (j + 1)-th largest value.
    breakpoints: Vec<f64>,
}

impl CapCurve {
    fn new(mut sizes: Vec<f64>) -> Self {
        sizes.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let sums: Vec<f64> = sizes
            .iter()
            .map(|size| {
                sum += size;
                sum
            })
            .collect();
        let breakpoints = (0..sizes.len())
            .map(|j| sums[j] - (j + 1) as f64 * sizes.get(j + 1).copied().unwrap_or(0.0))
            .collect();
        Self { sums, breakpoints }
    }

    fn cap(&self, theta: f64) -> f64 {
        let piece = self.breakpoints.partition_point(|&breakpoint| breakpoint <= theta);
        match self.sums.get(piece) {
            Some(sum) => ((sum - theta) / (piece + 1) as f64).max(0.0),
            None => 0.0,
        }
    }
}
