//! The output layer given the blocks: min Σ_c ½ w_cᵀ Q_c w_c − h_cᵀ w_c over w_c = (U_c, b_c), Ω(U) ≤ τ.

use ndarray::{Array1, Array2};

use super::prior::positive_definite;
use super::rows::Sums;
use super::side::pairs;
use super::{OutputLayer, Settings};
use crate::error::Result;

/// Iterations of the projected gradient; the problem has k + 1 unknowns per output.
const ITERATIONS: usize = 200;

/// Restates the quadratic for bases that were divided by `scale`.
pub(super) fn rescale(sums: &mut Sums, scale: &[f64]) {
    let k = scale.len();
    let n_pairs = sums.curvature.ncols() - k - 1;
    for mut curvature in sums.curvature.rows_mut() {
        for (slot, (r, s)) in pairs(k).enumerate() {
            curvature[slot] /= scale[r] * scale[s];
        }
        for (r, scale) in scale.iter().enumerate() {
            curvature[n_pairs + r] /= scale;
        }
    }
    for mut slope in sums.slope.rows_mut() {
        slope.iter_mut().zip(scale).for_each(|(slope, scale)| *slope /= scale);
    }
}

/// Solves directly where the ball is slack, by FISTA with the exact projection where it is not.
pub(super) fn fit_output(
    layer: &mut OutputLayer,
    sums: &Sums,
    settings: &Settings<'_>,
) -> Result<()> {
    let (m, k) = layer.weights.dim();
    let n_pairs = sums.curvature.ncols() - k - 1;
    let mut quadratics = Vec::with_capacity(m);
    let mut free = Array2::zeros((m, k + 1));
    for c in 0..m {
        let curvature = sums.curvature.row(c);
        let mut q = Array2::zeros((k + 1, k + 1));
        for (slot, (r, s)) in pairs(k).enumerate() {
            q[(r, s)] = curvature[slot];
            q[(s, r)] = curvature[slot];
        }
        for r in 0..k {
            q[(r, r)] += settings.output_ridge;
            q[(r, k)] = curvature[n_pairs + r];
            q[(k, r)] = curvature[n_pairs + r];
        }
        q[(k, k)] = curvature[n_pairs + k];
        // The slopes were taken around the intercept in use.
        let mut h: Array1<f64> = sums.slope.row(c).to_owned();
        for r in 0..=k {
            h[r] += layer.intercept[c] * curvature[n_pairs + r];
        }
        free.row_mut(c).assign(&positive_definite(&q)?.inverse.dot(&h));
        quadratics.push((q, h));
    }
    let project = |w: &Array2<f64>| -> Array2<f64> {
        let mut output = w.slice(ndarray::s![.., ..k]).t().as_standard_layout().into_owned();
        settings.penalty.project(output.view_mut(), settings.radius);
        let mut projected = w.clone();
        projected.slice_mut(ndarray::s![.., ..k]).assign(&output.t());
        projected
    };
    let inside = project(&free) == free;
    let solution = if inside {
        free
    } else {
        let lipschitz = quadratics
            .iter()
            .map(|(q, _)| {
                q.rows().into_iter().map(|row| row.mapv(f64::abs).sum()).fold(0.0, f64::max)
            })
            .fold(f64::MIN_POSITIVE, f64::max);
        let mut w = project(&free);
        let (mut at, mut momentum) = (w.clone(), 1.0f64);
        for _ in 0..ITERATIONS {
            let mut next = at.clone();
            for (c, (q, h)) in quadratics.iter().enumerate() {
                let step = (q.dot(&at.row(c)) - h) / lipschitz;
                next.row_mut(c).scaled_add(-1.0, &step);
            }
            let next = project(&next);
            let grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
            at = &next + &((&next - &w) * ((momentum - 1.0) / grown));
            (w, momentum) = (next, grown);
        }
        w
    };
    layer.weights.assign(&solution.slice(ndarray::s![.., ..k]));
    layer.intercept = solution.column(k).to_vec();
    Ok(())
}
