//! Upper bounds on the eigenvalues of a symmetric matrix. A factorisation gives bounds that always
//! hold; Lanczos' method from a random start gives bounds that hold with a given probability
//! (docs/mathematics/polynomial-networks.md#bounds-on-eigenvalues).

use pulp::{Simd, WithSimd};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::lanczos::orthogonalise;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::linalg::vectors::{dot, fused_dot, higham_gamma, normalise};

/// The relative distances above the guess at which [`norm_bound`] tries to confirm a bound.
pub(crate) const SLACKS: [f64; 11] = [1e-10, 1e-7, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.5, 1.0, 3.0, 9.0];

/// An upper bound on ‖G‖₂ that always holds, for the symmetric G with the lower triangle `matrix`.
///
/// Tries increasing θ, starting at `guess`. If the Cholesky factorisations of θI ∓ G complete, both
/// are positive semi-definite up to the backward error (Rump 2006). If no θ below ‖G‖_F is
/// confirmed, ‖G‖_F is the bound.
pub(crate) fn norm_bound(
    matrix: &[f64],
    size: usize,
    guess: f64,
    interrupt: &Interrupt,
) -> Result<f64> {
    let largest = lower(matrix, size).map(|(_, _, g)| g.abs()).fold(0.0, f64::max);
    if lower(matrix, size).any(|(_, _, g)| g.is_nan()) {
        return Ok(f64::NAN);
    }
    if largest == 0.0 || largest.is_infinite() {
        return Ok(largest);
    }
    // A power of two close to 1/max |G_ij|. Scaling by it is exact and prevents overflow and
    // underflow.
    let unit = 2f64.powi(-largest.log2().floor().clamp(-1000.0, 1000.0) as i32);
    let squares = lower(matrix, size).map(|(i, j, g)| {
        let scaled = g * unit;
        if i == j { scaled * scaled } else { 2.0 * (scaled * scaled) }
    });
    let frobenius = squares.sum::<f64>().sqrt() * (1.0 + higham_gamma(size * size + 8));
    // The largest |G_ij| is a lower bound on the norm, and is at least 1 after scaling.
    let start = (guess * unit).max(1.0);
    for slack in SLACKS {
        let theta = start * (1.0 + slack);
        if theta.is_nan() || theta >= frobenius {
            break;
        }
        let shifted =
            |sign: f64| shifted_is_definite(matrix, size, (sign * unit, theta), interrupt);
        let (above, below) = rayon::join(|| shifted(1.0), || shifted(-1.0));
        interrupt.check()?;
        if let (Some(above), Some(below)) = (above, below) {
            return Ok(above.max(below).min(frobenius) / unit);
        }
    }
    Ok(frobenius / unit)
}

/// The entries (i, j, G_ij) of the lower triangle.
fn lower(matrix: &[f64], size: usize) -> impl Iterator<Item = (usize, usize, f64)> {
    let rows = matrix.chunks_exact(size).enumerate();
    rows.flat_map(|(i, row)| row[..=i].iter().enumerate().map(move |(j, g)| (i, j, *g)))
}

/// Given (s, θ), returns a bound on the largest eigenvalue of s G if θI − s G has a Cholesky factorisation, and None
/// otherwise.
fn shifted_is_definite(
    matrix: &[f64],
    size: usize,
    (scale, theta): (f64, f64),
    interrupt: &Interrupt,
) -> Option<f64> {
    let mut factor = vec![0.0; size * size];
    let mut trace = 0.0;
    for (i, j, g) in lower(matrix, size) {
        let entry = if i == j { theta - scale * g } else { -scale * g };
        factor[i * size + j] = entry;
        trace += if i == j { entry } else { 0.0 };
    }
    if !arch().dispatch(Factorise { factor: &mut factor, size, interrupt }) {
        return None;
    }
    // Adds twice Rump's bound on the backward error, plus the rounding errors of the diagonal and
    // of the sum of its entries.
    let error = higham_gamma(size + 1) / (1.0 - higham_gamma(size + 1));
    Some(theta + 2.0 * error * trace * (1.0 + higham_gamma(size + 1)) + 8.0 * f64::EPSILON * theta)
}

/// Overwrites the lower triangle of A with its Cholesky factor L, where A = L Lᵀ. Returns false if
/// a pivot is not positive.
struct Factorise<'a> {
    factor: &'a mut [f64],
    size: usize,
    interrupt: &'a Interrupt,
}

/// Number of rows that are factorised as a group: each row above them is read only once per group.
const ROWS: usize = 32;

impl WithSimd for Factorise<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { factor, size, interrupt } = self;
        for first in (0..size).step_by(ROWS) {
            if interrupt.is_raised() {
                return false;
            }
            let last = (first + ROWS).min(size);
            for j in 0..last {
                if j >= first {
                    let row = &mut factor[j * size..][..=j];
                    let pivot = row[j] - fused_dot::<S, f64>(simd, &row[..j], &row[..j]);
                    if !(pivot > 0.0 && pivot.is_finite()) {
                        return false;
                    }
                    row[j] = pivot.sqrt();
                }
                let (above, below) = factor.split_at_mut((j + 1) * size);
                let row = &above[j * size..][..=j];
                let from = first.max(j + 1);
                let others = below[(from - j - 1) * size..].chunks_exact_mut(size);
                for other in others.take(last.saturating_sub(from)) {
                    let product = fused_dot::<S, f64>(simd, &other[..j], &row[..j]);
                    other[j] = (other[j] - product) / row[j];
                }
            }
        }
        true
    }
}

/// Accuracy and probability of a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance {
    /// Relative error at which the bound is accurate enough, so that no further products are
    /// computed.
    pub accuracy: f64,
    /// Maximum probability that the bound is too small.
    pub failure: f64,
    /// Seed of the start vector.
    pub seed: u64,
}

/// Maximum number of products of [`probable_norm_bound`]. [`MAX_SPACE`] lowers this maximum for large matrices, but not
/// below [`MIN_STEPS`].
const MAX_STEPS: usize = 320;
const MIN_STEPS: usize = 48;

/// Maximum number of values in all vectors of [`probable_norm_bound`].
const MAX_SPACE: usize = 1 << 25;

/// Number of simultaneous calls of [`probable_norm_bound`] whose vectors fit in memory. Fewer calls
/// fit for larger matrices, but then each product keeps more threads busy.
pub(crate) fn bounds_at_a_time(size: usize) -> usize {
    (MAX_SPACE / size.saturating_mul(MAX_STEPS).max(1)).max(1)
}

/// Number of values that are stored to bound the norms of `n_matrices` matrices on `n_threads`
/// threads. These are the vectors of [`probable_norm_bound`]; matrices that are small enough to be
/// factorised need fewer. Used only for memory estimates of the Python module.
#[cfg(feature = "python")]
pub(crate) fn bound_memory(size: usize, n_matrices: usize, n_threads: usize) -> usize {
    let steps = (MAX_SPACE / size.max(1)).clamp(MIN_STEPS, MAX_STEPS).min(size);
    let together = bounds_at_a_time(size).min(n_matrices).min(n_threads.max(1));
    size.saturating_mul(steps + 8).saturating_mul(together)
}

/// An upper bound on ‖G‖₂ that is too small with at most the given probability over the random
/// start vector.
///
/// After k steps from a vector that is uniform on the sphere, the largest Ritz value θ₁ is below
/// the largest eigenvalue λ₁ by more than ε (λ₁ − λ_d) with probability at most 1.648 √d exp(−√ε
/// (2k − 1)) (Kuczyński and Woźniakowski 1992, Theorem 4.2), and likewise at the other end.
/// Therefore λ₁ ≤ θ₁ + ε/(1 − 2ε) (θ₁ − θ_k).
pub(crate) fn probable_norm_bound(
    size: usize,
    chance: Chance,
    mut product: impl FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<f64> {
    let mut rng = Pcg64Mcg::seed_from_u64(chance.seed);
    let mut space = vec![random_direction(size, &mut rng)];
    let (mut diagonal, mut off_diagonal) = (Vec::new(), Vec::new());
    let limit = (MAX_SPACE / size).clamp(MIN_STEPS, MAX_STEPS).min(size);
    let exponent = (2.0 * 1.648 * (size as f64).sqrt() / chance.failure).ln();
    loop {
        let last = &space[space.len() - 1];
        let mut next = product(last)?;
        diagonal.push(dot(&next, last));
        let steps = space.len();
        if steps == limit || steps.is_multiple_of(8) {
            let (low, high) = tridiagonal_range(&diagonal, &off_diagonal);
            let root = exponent / (2 * steps - 1) as f64;
            let missed = if steps == size { 0.0 } else { root * root };
            let largest = high.max(-low);
            if missed < 0.4 {
                let slack = missed / (1.0 - 2.0 * missed) * (high - low);
                let rounding = 16.0 * higham_gamma(size + steps) * largest;
                if steps == limit || slack <= chance.accuracy * largest {
                    return Ok(largest + slack + rounding);
                }
            }
            if !(largest.is_finite() && low.is_finite()) {
                return Ok(f64::NAN);
            }
            if steps == limit {
                // There were too few steps for so small a probability. Infinity is always a valid
                // bound.
                return Ok(f64::INFINITY);
            }
        }
        orthogonalise(&mut next, &space);
        let mut coupling = normalise(&mut next);
        if coupling == 0.0 {
            // The Krylov space is invariant, so only a new random direction can enlarge it.
            next = random_direction(size, &mut rng);
            orthogonalise(&mut next, &space);
            normalise(&mut next);
            coupling = 0.0;
        }
        off_diagonal.push(coupling);
        space.push(next);
    }
}

/// A vector that is uniform on the sphere, from independent normal entries (Box and Muller 1958).
pub(super) fn random_direction(size: usize, rng: &mut Pcg64Mcg) -> Vec<f64> {
    let mut vector = Vec::with_capacity(size + 1);
    while vector.len() < size {
        let length = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * rng.random::<f64>()).sin_cos();
        vector.extend([length * cosine, length * sine]);
    }
    vector.truncate(size);
    normalise(&mut vector);
    vector
}

/// Bounds on the spectrum of a symmetric tridiagonal matrix, tight up to rounding, by bisection on
/// the signs of pivots.
pub(super) fn tridiagonal_range(diagonal: &[f64], off_diagonal: &[f64]) -> (f64, f64) {
    let n = diagonal.len();
    let beside = |i: usize| off_diagonal.get(i).map_or(0.0, |b| b.abs());
    let radius = |i: usize| beside(i) + if i > 0 { beside(i - 1) } else { 0.0 };
    let low = (0..n).map(|i| diagonal[i] - radius(i)).fold(f64::INFINITY, f64::min);
    let high = (0..n).map(|i| diagonal[i] + radius(i)).fold(f64::NEG_INFINITY, f64::max);
    let all_below = |x: f64| positive_pivots(diagonal, off_diagonal, (1.0, x));
    let all_above = |x: f64| positive_pivots(diagonal, off_diagonal, (-1.0, -x));
    (bisect(high, low, &all_above), bisect(low, high, &all_below))
}

/// Moves `good` towards `bad` by bisection, and returns the last value at which `holds` was true.
fn bisect(mut bad: f64, mut good: f64, holds: &dyn Fn(f64) -> bool) -> f64 {
    for _ in 0..60 {
        let middle = bad + 0.5 * (good - bad);
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

/// Given (s, x), returns whether all pivots of x I − s T are positive.
fn positive_pivots(diagonal: &[f64], off_diagonal: &[f64], (sign, x): (f64, f64)) -> bool {
    let mut pivot = f64::INFINITY;
    diagonal.iter().enumerate().all(|(i, a)| {
        let before = if i > 0 { off_diagonal[i - 1] } else { 0.0 };
        pivot = (x - sign * a) - before * (before / pivot);
        pivot > 0.0
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn product(matrix: &[f64], v: &[f64]) -> Vec<f64> {
        matrix.chunks_exact(v.len()).map(|row| dot(row, v)).collect()
    }

    /// Returns Q diag(λ) Qᵀ for a reflection Q: a matrix with a known spectrum.
    fn reflected(eigenvalues: &[f64]) -> Vec<f64> {
        let d = eigenvalues.len();
        let mut v: Vec<f64> = (0..d).map(|i| 1.0 + (i * 7 % 5) as f64).collect();
        normalise(&mut v);
        let q = |i: usize, j: usize| f64::from(u8::from(i == j)) - 2.0 * v[i] * v[j];
        let mut matrix = vec![0.0; d * d];
        for i in 0..d {
            for j in 0..d {
                matrix[i * d + j] = (0..d).map(|l| q(i, l) * eigenvalues[l] * q(j, l)).sum();
            }
        }
        matrix
    }

    proptest! {
        #[test]
        fn bounds_hold_and_are_tight(
            eigenvalues in prop::collection::vec(-2.0..2.0f64, 1..70),
            exponent in -140..140i32,
            share in 0.0..1.0f64,
        ) {
            let size = eigenvalues.len();
            let scale = 10f64.powi(exponent);
            let scaled: Vec<f64> = eigenvalues.iter().map(|l| l * scale).collect();
            let matrix = reflected(&scaled);
            let norm = scaled.iter().map(|l| l.abs()).fold(0.0, f64::max);
            let interrupt = Interrupt::default();
            // The bound is at least the norm, for any guess.
            let bound = norm_bound(&matrix, size, share * norm, &interrupt).unwrap();
            prop_assert!(bound >= norm * (1.0 - 1e-12), "{bound} {norm}");
            let bound = norm_bound(&matrix, size, norm, &interrupt).unwrap();
            prop_assert!(bound <= norm * (1.0 + 1e-6), "{bound} {norm}");
            let chance = Chance { accuracy: 1e-3, failure: 1e-9, seed: 1 };
            let bound = probable_norm_bound(size, chance, |v| Ok(product(&matrix, v))).unwrap();
            prop_assert!(bound >= norm * (1.0 - 1e-9), "{bound} {norm}");
            prop_assert!(bound <= norm * (1.0 + 1e-6), "{bound} {norm}");
        }
    }

    #[test]
    fn a_missed_eigenvalue_is_found_by_the_factorisation() {
        // One entry in a thousand is larger, and Lanczos' method converges to the others first.
        let size = 1000;
        let mut matrix = vec![0.0; size * size];
        for i in 0..size {
            matrix[i * size + i] = if i == 5 { 1.1 } else { 1.0 };
        }
        let bound = norm_bound(&matrix, size, 1.0, &Interrupt::default()).unwrap();
        assert!((1.1..1.1 * 1.3).contains(&bound), "{bound}");
    }

    #[test]
    fn a_large_spectrum_is_bounded_with_high_probability() {
        let size = 3000;
        let values: Vec<f64> = (0..size).map(|i| (i as f64 / size as f64) - 0.7).collect();
        let times = |v: &[f64]| Ok(v.iter().zip(&values).map(|(v, l)| v * l).collect());
        let chance = Chance { accuracy: 1e-2, failure: 1e-9, seed: 7 };
        let bound = probable_norm_bound(size, chance, times).unwrap();
        assert!((0.7..0.7 * 1.02).contains(&bound), "{bound}");
    }

    #[test]
    fn nan_has_no_bound() {
        let interrupt = Interrupt::default();
        assert!(norm_bound(&[f64::NAN], 1, 1.0, &interrupt).unwrap().is_nan());
        assert_eq!(norm_bound(&[f64::INFINITY], 1, 1.0, &interrupt).unwrap(), f64::INFINITY);
        assert_eq!(norm_bound(&[0.0; 4], 2, 0.0, &interrupt).unwrap(), 0.0);
        let chance = Chance { accuracy: 1e-2, failure: 1e-9, seed: 7 };
        let zero = probable_norm_bound(3, chance, |_| Ok(vec![0.0; 3])).unwrap();
        assert_eq!(zero, 0.0);
    }
}
