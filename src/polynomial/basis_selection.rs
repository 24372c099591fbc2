//! Basis selection: an approximate maximiser of the dual norm ω*(hᵀΓ_1h, …, hᵀΓ_mh) over the unit
//! sphere (Blondel et al. 2017, (9) to (16); docs/mathematics/polynomial-networks.md#basis-selection).

use super::gradient_matrices::GradientMatrices;
use crate::data::Rows;
use crate::error::{Error, Result};
use crate::linalg::products::matrix_vector;
use crate::linalg::vectors::{axpy, dot, higham_gamma, larger_or_nan, normalise, random_unit};
use crate::names::find;
use crate::parallel::map_items;
use crate::penalty::{Penalty, Refinement};
use crate::polynomial::spectral::lanczos::{Extreme, extreme_eigenpair};
use crate::polynomial::spectral::power::power_eigenpair;
use crate::polynomial::spectral::side_by_side::VECTORS_PER_PASS;
use crate::polynomial::spectral::spectrum::{Chance, norm_bound};
use crate::polynomial::spectral::values::extreme_values;

/// A selected basis vector, with the bound that the duality gap needs.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The unit vector ĥ.
    pub vector: Vec<f64>,
    /// g_ĥ = (ĥᵀ Γ_c ĥ)_c: the negative gradient −∂F/∂u with respect to the row u of ĥ in the output layer.
    pub gradient: Vec<f64>,
    /// An upper bound on max_h ω*(g_h). It always holds for up to
    /// [`MAX_FACTORISED`](super::spectral_bounds::MAX_FACTORISED) features; for more, it fails with
    /// at most the probability in [`Bounding`].
    pub bound: f64,
}

/// Options of the bound. Used only if there are too many features for a factorisation.
#[derive(Clone, Copy)]
pub struct Bounding<'a> {
    /// Function from the approximate size of the bound to the acceptable relative error.
    pub accuracy: &'a (dyn Fn(f64) -> f64 + Sync),
    /// Maximum probability that the bound is too small.
    pub failure: f64,
}

/// A method that selects a basis vector. [`SelectionMethod::Refined`] is the best method; the other methods
/// serve for comparison (Blondel et al. 2017, section 6.2 and Figure 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectionMethod {
    /// Refines the best extreme eigenvector (14) as in (16). If the matrices are formed, refines the eigenvectors of
    /// all outputs and takes the best result (docs/mathematics/polynomial-networks.md#refinement).
    Refined,
    /// Computes the best extreme eigenvector by the power method, and refines it (Blondel et al. 2017, section 4).
    Power,
    /// Takes the best extreme eigenvector, without refinement.
    Initial,
    /// Refines a random unit vector.
    RandomRefined,
    /// Takes a random unit vector.
    Random,
    /// Takes the best row of X, scaled to unit length. Computes n² products of rows.
    BestRow,
    /// Computes the exact maximiser, with a tight bound. Solves one eigenvalue problem for each pair of opposite
    /// vertices of the unit ball of ω: 2^(m−1) problems for ℓ1/ℓ∞ (Blondel et al. 2017, Appendix C).
    Exact,
}

impl SelectionMethod {
    /// Every method with its name.
    pub const NAMES: &[(&str, Self)] = &[
        ("refined", Self::Refined),
        ("power", Self::Power),
        ("initial", Self::Initial),
        ("random-refined", Self::RandomRefined),
        ("random", Self::Random),
        ("best-row", Self::BestRow),
        ("exact", Self::Exact),
    ];

    /// The method called `name`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the known names.
    pub fn parse(name: &str) -> Result<Self> {
        find("selection", name, Self::NAMES)
    }
}

/// Armijo's constant: a step must gain at least this fraction of the gain that the slope predicts.
const SUFFICIENT_INCREASE: f64 = 1e-4;

/// Maximum number of refinement steps.
const MAX_REFINEMENTS: usize = 100;

/// Relative tolerance of the eigenvalue solver of the exact method.
const EXACT_TOL: f64 = 1e-9;

/// Maximum number of features for which the exact method forms its matrices.
const MAX_EXACT_SIZE: usize = 512;

/// Selects a basis vector.
///
/// For each output, |hᵀΓ_c h| ≤ |λ|max(Γ_c), and ω* increases with the absolute value of every
/// entry. Therefore max_h ω*(g_h) ≤ ω*((|λ|max(Γ_c))_c). This bound is never looser than the factor
/// ν of Blondel et al. (2017, (15)).
///
/// # Errors
/// [`Error::InvalidArgument`] if the exact method does not support the penalty or the number of
/// outputs.
pub fn select<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    penalty: &dyn Penalty,
    method: SelectionMethod,
    (tol, seed): (f64, u64),
    bounding: Bounding<'_>,
) -> Result<Selection> {
    if method == SelectionMethod::Exact {
        return exact(gamma, penalty, tol.min(EXACT_TOL), seed);
    }
    // Sharing passes over the rows between outputs helps only if there are several outputs.
    let apart = gamma.is_formed() || gamma.n_outputs() == 1 || method == SelectionMethod::Power;
    let (guesses, extremes) =
        if apart { each_extreme(gamma, method, tol, seed)? } else { together(gamma, tol, seed)? };
    let (vector, gradient) = match method {
        SelectionMethod::Refined if gamma.is_formed() => {
            let each = map_items(extremes, 1, |start| refine(gamma, penalty, start.vector));
            let norm = |selected: &(Vec<f64>, Vec<f64>)| penalty.dual_row_norm(&selected.1);
            let larger = |best, next| if norm(&next) > norm(&best) { next } else { best };
            let each = each.into_iter().collect::<Result<Vec<_>>>()?;
            each.into_iter().reduce(larger).unwrap_or_default()
        }
        SelectionMethod::Refined | SelectionMethod::Power => {
            refine(gamma, penalty, dominant(extremes).vector)?
        }
        SelectionMethod::RandomRefined => {
            refine(gamma, penalty, random_unit(gamma.size(), mixed(seed, usize::MAX)))?
        }
        SelectionMethod::Random => {
            evaluated(gamma, random_unit(gamma.size(), mixed(seed, usize::MAX)))?
        }
        SelectionMethod::BestRow => best_row(gamma, penalty)?,
        SelectionMethod::Initial | SelectionMethod::Exact => {
            evaluated(gamma, dominant(extremes).vector)?
        }
    };
    let accuracy = (bounding.accuracy)(penalty.dual_row_norm(&guesses));
    let seed = mixed(seed, usize::MAX / 2);
    let chance = Chance { accuracy, failure: bounding.failure, seed };
    let largest = gamma.norm_bounds(&guesses, chance)?;
    let bound = rounded_up(penalty.dual_row_norm(&largest), largest.len());
    let bound = bound.max(rounded_up(penalty.dual_row_norm(&gradient), largest.len()));
    Ok(Selection { vector, gradient, bound })
}

/// Approximations of ‖Γ_c‖₂ for every c, and the extreme eigenpairs that were computed: one for every output, or only
/// the largest eigenpair.
type Extremes = (Vec<f64>, Vec<Extreme>);

/// Solves a separate eigenvalue problem for every output.
fn each_extreme<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    method: SelectionMethod,
    tol: f64,
    seed: u64,
) -> Result<Extremes> {
    let solve = if method == SelectionMethod::Power { power_method } else { lanczos };
    let extremes = map_items(0..gamma.n_outputs(), 1, |c| {
        solve(gamma.size(), tol, mixed(seed, c), &mut |v| gamma.product(c, v))
    });
    let extremes = extremes.into_iter().collect::<Result<Vec<_>>>()?;
    // The residual bounds the distance from the Ritz value to some eigenvalue, which need not be
    // the largest eigenvalue.
    Ok((extremes.iter().map(|e| e.value.abs() + e.residual).collect(), extremes))
}

/// Approximates |λ|max for all outputs in shared passes over the rows. Then computes the eigenpair
/// of the output with the largest |λ|max.
fn together<R: Rows>(gamma: &GradientMatrices<'_, R>, tol: f64, seed: u64) -> Result<Extremes> {
    let outputs: Vec<usize> = (0..gamma.n_outputs()).collect();
    let mut guesses = Vec::new();
    for group in outputs.chunks(VECTORS_PER_PASS) {
        let seeds: Vec<u64> = group.iter().map(|c| mixed(seed, *c)).collect();
        let mut product = |owners: &[usize], v: &[f64]| {
            let owners: Vec<usize> = owners.iter().map(|owner| group[*owner]).collect();
            gamma.products(&owners, v)
        };
        guesses.extend(extreme_values(gamma.size(), tol, &seeds, &mut product)?);
    }
    // Ties go to the first output.
    let larger = |best: usize, c: usize| if guesses[c] > guesses[best] { c } else { best };
    let best = outputs.into_iter().reduce(larger).unwrap_or(0);
    let product = |v: &[f64]| gamma.product(best, v);
    let extreme = extreme_eigenpair(gamma.size(), tol, mixed(seed, best), product)?;
    guesses[best] = guesses[best].max(extreme.value.abs() + extreme.residual);
    Ok((guesses, vec![extreme]))
}

/// A function that multiplies a matrix by a vector.
type MatrixProduct<'a> = dyn FnMut(&[f64]) -> Result<Vec<f64>> + 'a;

fn lanczos(size: usize, tol: f64, seed: u64, product: &mut MatrixProduct<'_>) -> Result<Extreme> {
    extreme_eigenpair(size, tol, seed, product)
}

fn power_method(
    size: usize,
    tol: f64,
    seed: u64,
    product: &mut MatrixProduct<'_>,
) -> Result<Extreme> {
    power_eigenpair(size, tol, seed, product)
}

/// The norm of `n` values, plus a bound on its rounding error. NaN stays NaN.
fn rounded_up(norm: f64, n: usize) -> f64 {
    norm * (1.0 + 2.0 * higham_gamma(n + 8))
}

/// Selects a maximiser of ω*(g_h), using the identity max_h ω*(g_h) = max_{ω(u) ≤ 1} |λ|max(Σ_c u_c Γ_c). The
/// maximum over u is at a vertex of the ball (Blondel et al. 2017, Appendix C).
fn exact<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    penalty: &dyn Penalty,
    tol: f64,
    seed: u64,
) -> Result<Selection> {
    let vertices = penalty.half_of_vertices(gamma.n_outputs())?;
    let (d, m) = (gamma.size(), gamma.n_outputs());
    if d > MAX_EXACT_SIZE {
        let message = format!(
            "\"exact\" forms a matrix for each output, so it supports at most {MAX_EXACT_SIZE} features, but \
             there are {d}; use \"refined\""
        );
        return Err(Error::argument("selection", message));
    }
    // The matrices are formed because each is multiplied many times.
    let matrices = map_items(0..m, 1, |c| {
        let unit = |j| (0..d).map(|i| f64::from(u8::from(i == j))).collect::<Vec<_>>();
        (0..d).map(|j| gamma.product(c, &unit(j))).collect::<Result<Vec<_>>>()
    });
    let matrices = matrices.into_iter().collect::<Result<Vec<_>>>()?;
    let sum_at = |u: &[f64]| {
        let mut sum = vec![0.0; d * d];
        for (u, matrix) in u.iter().zip(&matrices) {
            for (sum, row) in sum.chunks_exact_mut(d).zip(matrix) {
                axpy(sum, *u, row);
            }
        }
        sum
    };
    let extremes = map_items(vertices.iter().enumerate(), 1, |(index, u)| {
        gamma.interrupt().check()?;
        let sum = sum_at(u);
        let product = |v: &[f64]| Ok(matrix_vector(&sum, v));
        extreme_eigenpair(d, tol, mixed(seed, index), product)
    });
    let extremes = extremes.into_iter().collect::<Result<Vec<_>>>()?;
    let guess = extremes.iter().map(|e| e.value.abs() + e.residual).fold(0.0, f64::max);
    let (vector, gradient) = evaluated(gamma, dominant(extremes).vector)?;
    let bounds = map_items(&vertices, 1, |u| norm_bound(&sum_at(u), d, guess, gamma.interrupt()));
    let bounds = bounds.into_iter().collect::<Result<Vec<_>>>()?;
    let largest = bounds.into_iter().fold(0.0, larger_or_nan);
    let errors: Vec<f64> = gamma.rounding_errors()?.iter().map(|error| 2.0 * error).collect();
    let bound = rounded_up(largest + penalty.dual_row_norm(&errors), m + d);
    let bound = bound.max(rounded_up(penalty.dual_row_norm(&gradient), m));
    Ok(Selection { vector, gradient, bound })
}

/// Derives the seed of eigenvalue problem number `index`.
fn mixed(seed: u64, index: usize) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64)
}

/// The pair with the largest |eigenvalue|; ties go to the first pair.
fn dominant(extremes: Vec<Extreme>) -> Extreme {
    let none = Extreme { value: 0.0, vector: Vec::new(), residual: 0.0 };
    let larger = |best: Extreme, next: Extreme| {
        let take = best.vector.is_empty() || next.value.abs() > best.value.abs();
        if take { next } else { best }
    };
    extremes.into_iter().fold(none, larger)
}

/// Computes g_h and returns it with h.
fn evaluated<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    h: Vec<f64>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let scores = gamma.scores(&h)?;
    let g = gamma.bilinear(&h, &h, &scores, &scores)?;
    Ok((h, g))
}

/// The row x that maximises ω*(g_{x/‖x‖}), scaled to unit length.
fn best_row<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    penalty: &dyn Penalty,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut best = evaluated(gamma, gamma.unit_row(0))?;
    for row in 1..gamma.n_rows() {
        let next = evaluated(gamma, gamma.unit_row(row))?;
        if penalty.dual_row_norm(&next.1) > penalty.dual_row_norm(&best.1) {
            best = next;
        }
    }
    Ok(best)
}

/// Conditional gradient ascent of f(h) = ω*(g_h), smoothed if necessary, with Armijo steps (Blondel
/// et al. 2017, (16)).
fn refine<R: Rows>(
    gamma: &GradientMatrices<'_, R>,
    penalty: &dyn Penalty,
    h: Vec<f64>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let scores = gamma.scores(&h)?;
    let g = gamma.bilinear(&h, &h, &scores, &scores)?;
    let start = (h.clone(), g.clone());
    let Refinement::Ascent { smoothing } = penalty.refinement(&g) else {
        return Ok(start);
    };
    let w = vec![0.0; g.len()];
    let mut ascent = Ascent { gamma, penalty, smoothing, h, scores, g, w };
    for _ in 0..MAX_REFINEMENTS {
        if !ascent.step()? {
            break;
        }
    }
    // The ascent on the smoothed norm may slightly decrease the true norm. In that case, return the start, so that
    // a guarantee for the start, as in (15), still holds.
    if penalty.dual_row_norm(&ascent.g) >= penalty.dual_row_norm(&start.1) {
        Ok((ascent.h, ascent.g))
    } else {
        Ok(start)
    }
}

/// The state of the ascent.
struct Ascent<'a, 'r, R> {
    gamma: &'a GradientMatrices<'r, R>,
    penalty: &'a dyn Penalty,
    smoothing: f64,
    /// The unit vector h.
    h: Vec<f64>,
    /// The [scores](GradientMatrices::scores) of h.
    scores: Vec<f64>,
    /// The vector g_h, whose entry for output c is hᵀ Γ_c h.
    g: Vec<f64>,
    /// Buffer for the gradient ∇ω*(g).
    w: Vec<f64>,
}

impl<R: Rows> Ascent<'_, '_, R> {
    /// Takes a step towards the point of the unit ball that is furthest along the gradient. Returns false if no further
    /// gain is expected.
    fn step(&mut self) -> Result<bool> {
        let gamma = self.gamma;
        let value = self.penalty.smoothed_dual(&self.g, self.smoothing, &mut self.w);
        let mut target = gamma.weighted_product(&self.w, &self.h, &self.scores)?;
        let slope_scale = 2.0 * normalise(&mut target);
        let slope = slope_scale * (1.0 - dot(&target, &self.h));
        if slope <= 1e-9 * value.abs() {
            return Ok(false);
        }
        let target_scores = gamma.scores(&target)?;
        let mixed = gamma.bilinear(&self.h, &target, &self.scores, &target_scores)?;
        let end = gamma.bilinear(&target, &target, &target_scores, &target_scores)?;
        let Some((step, mut g)) = self.line_search(value, slope, (&mixed, &end)) else {
            return Ok(false);
        };
        for (h, target) in self.h.iter_mut().zip(&target) {
            *h += step * (target - *h);
        }
        for (score, target) in self.scores.iter_mut().zip(&target_scores) {
            *score += step * (target - *score);
        }
        // Scaling back to the sphere never decreases f, because g is 2-homogeneous.
        let length = normalise(&mut self.h);
        self.scores.iter_mut().for_each(|score| *score /= length);
        g.iter_mut().for_each(|g| *g /= length * length);
        let gain = self.penalty.smoothed_dual(&g, self.smoothing, &mut self.w) - value;
        self.g = g;
        // If the gain is NaN, keep stepping up to the maximum number of steps; the certificate check
        // then fails.
        Ok(gain.is_nan() || gain > 1e-6 * value.abs())
    }

    /// Finds a step that increases f enough, and returns it with the new g. Returns None if there
    /// is no such step.
    ///
    /// On the segment h + γ(h̄ − h), g is quadratic in γ. Its three coefficients cost one product
    /// with X; the trial steps then need no products.
    fn line_search(
        &mut self,
        value: f64,
        slope: f64,
        (mixed, end): (&[f64], &[f64]),
    ) -> Option<(f64, Vec<f64>)> {
        let mut step = 1.0;
        while step >= 1e-10 {
            let keep = 1.0 - step;
            let trial: Vec<f64> = (0..self.g.len())
                .map(|c| {
                    keep * keep * self.g[c] + 2.0 * keep * step * mixed[c] + step * step * end[c]
                })
                .collect();
            let reached = self.penalty.smoothed_dual(&trial, self.smoothing, &mut self.w);
            if reached < value + SUFFICIENT_INCREASE * step * slope {
                step *= 0.5;
            } else {
                return Some((step, trial));
            }
        }
        None
    }
}
