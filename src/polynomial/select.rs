//! Basis selection: an approximate maximiser of the dual norm ω*(hᵀΓ_1h, …, hᵀΓ_mh) over the unit
//! sphere (SPEC 4, (9)-(16)).

use rayon::prelude::*;

use super::eigen::{dot, extreme_eigenpair, normalise};
use super::kernel::GradientMatrices;
use super::penalty::{Penalty, Refinement};
use crate::data::Rows;
use crate::error::Result;

/// A selected basis vector, with the bound that makes the duality gap a certificate.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The unit vector ĥ.
    pub vector: Vec<f64>,
    /// g_ĥ = (ĥᵀ Γ_c ĥ)_c = −∂F/∂(row of ĥ).
    pub gradient: Vec<f64>,
    /// An upper bound on max_h ω*(g_h), up to the tolerance of the eigenvalue solver.
    pub bound: f64,
}

/// Armijo's constant (SPEC 4.2; the value is ours).
const SUFFICIENT_INCREASE: f64 = 1e-4;

/// Most refinement steps.
const MAX_REFINEMENTS: usize = 100;

/// Selects a basis vector: extreme eigenvectors per output (14), then refinement (16).
///
/// Since |hᵀΓ_c h| ≤ |λ|max(Γ_c) for each output and ω* grows with every |entry|,
/// max_h ω*(g_h) ≤ ω*((|λ|max(Γ_c))_c): never looser than the factor ν of (15).
pub fn select<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    penalty: &dyn Penalty,
    tol: f64,
    seed: u64,
) -> Result<Selection> {
    let extremes = (0..gamma.n_outputs())
        .into_par_iter()
        .map(|c| {
            let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(c as u64);
            extreme_eigenpair(gamma.size(), tol, seed, |v| gamma.product(c, v))
        })
        .collect::<Result<Vec<_>>>()?;
    // The Ritz value may fall short of the eigenvalue by its residual.
    let largest: Vec<f64> = extremes.iter().map(|e| e.value.abs() + e.residual).collect();
    let mut winner = 0;
    for (c, extreme) in extremes.iter().enumerate() {
        if extreme.value.abs() > extremes[winner].value.abs() {
            winner = c;
        }
    }
    let start = extremes.into_iter().nth(winner).map(|e| e.vector).unwrap_or_default();
    let (vector, gradient) = refine(gamma, penalty, start)?;
    let bound = penalty.dual_row_norm(&largest).max(penalty.dual_row_norm(&gradient));
    Ok(Selection { vector, gradient, bound })
}

/// Conditional gradient ascent of f(h) = ω*(g_h), smoothed where needed, with Armijo steps (16).
///
/// g along the segment h + γ(h̄ − h) is a quadratic in γ whose three coefficients cost one product
/// with X, so the line search itself is free.
fn refine<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    penalty: &dyn Penalty,
    mut h: Vec<f64>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut scores = gamma.scores(&h)?;
    let mut g = gamma.bilinear(&h, &h, &scores, &scores)?;
    let start = (h.clone(), g.clone());
    let Refinement::Ascent { smoothing } = penalty.refinement(&g) else {
        return Ok(start);
    };
    let mut w = vec![0.0; g.len()];
    for _ in 0..MAX_REFINEMENTS {
        let value = penalty.smoothed_dual(&g, smoothing, &mut w);
        let mut target = gamma.weighted_product(&w, &h, &scores)?;
        let slope_scale = 2.0 * normalise(&mut target);
        let slope = slope_scale * (1.0 - dot(&target, &h));
        if slope <= 1e-9 * value.abs() {
            break;
        }
        let target_scores = gamma.scores(&target)?;
        let mixed = gamma.bilinear(&h, &target, &scores, &target_scores)?;
        let end = gamma.bilinear(&target, &target, &target_scores, &target_scores)?;
        let along = |step: f64| -> Vec<f64> {
            let keep = 1.0 - step;
            (0..g.len())
                .map(|c| keep * keep * g[c] + 2.0 * keep * step * mixed[c] + step * step * end[c])
                .collect()
        };
        let mut step = 1.0;
        let mut trial = along(step);
        while penalty.smoothed_dual(&trial, smoothing, &mut w)
            < value + SUFFICIENT_INCREASE * step * slope
        {
            step *= 0.5;
            if step < 1e-10 {
                break;
            }
            trial = along(step);
        }
        if step < 1e-10 {
            break;
        }
        for (h, target) in h.iter_mut().zip(&target) {
            *h += step * (target - *h);
        }
        for (score, target) in scores.iter_mut().zip(&target_scores) {
            *score += step * (target - *score);
        }
        // Back to the sphere: g is 2-homogeneous, so this never decreases f.
        let length = normalise(&mut h);
        scores.iter_mut().for_each(|score| *score /= length);
        trial.iter_mut().for_each(|g| *g /= length * length);
        let gain = penalty.smoothed_dual(&trial, smoothing, &mut w) - value;
        g = trial;
        if gain <= 1e-6 * value.abs() {
            break;
        }
    }
    // The smoothed ascent may lose a little of the true norm; the start is the floor (15).
    if penalty.dual_row_norm(&g) >= penalty.dual_row_norm(&start.1) {
        Ok((h, g))
    } else {
        Ok(start)
    }
}
