//! Upper bounds on the norms of large symmetric matrices. They hold with a given probability, and
//! are computed without storing bases of Krylov spaces
//! (docs/mathematics/polynomial-networks.md#bounds-on-eigenvalues).

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::side_by_side::{MatrixProducts, change, dots, interleaved, kept};
use super::spectrum::{Chance, random_direction};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::larger_or_nan;
use crate::parallel::map_items;

/// Number of random vectors per matrix. With three, at least one almost certainly has a component along the top
/// eigenvector that is far above rounding error.
pub(crate) const STARTS: usize = 3;

/// Maximum number of steps.
const MAX_STEPS: usize = 320;

/// Unit roundoff.
const U: f64 = 0.5 * f64::EPSILON;

/// Estimates for a matrix, known in advance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormEstimate {
    /// Approximate norm.
    pub guess: f64,
    /// A bound on ‖fl(A v) − A v‖ for unit vectors v.
    pub rounding: f64,
}

/// Upper bounds on the norms of several matrices, given estimates `known`. Each bound is too small
/// with at most the given probability. It is None if rounding or a poor estimate prevents a bound.
///
/// Let b ≈ ‖A‖, let v be the top eigenvector of A, g a random unit vector, and y_k = T_k(A/b) g
/// with the Chebyshev polynomials T_k. Then ‖y_k‖ ≥ T_k(‖A‖/b) |⟨v, g⟩|, and |⟨v, g⟩| < t with
/// probability at most t √(2d/π), for each of [`STARTS`] vectors. So ‖A‖ ≤ b
/// cosh(arcosh(‖y_k‖/t)/k), for any k and b.
pub(crate) fn probable_norm_bounds(
    size: usize,
    known: &[NormEstimate],
    chance: Chance,
    product: &mut MatrixProducts<'_>,
    interrupt: &Interrupt,
) -> Result<Vec<Option<f64>>> {
    let share = chance.failure.powf(1.0 / STARTS as f64);
    let share = share * (std::f64::consts::FRAC_PI_2 / size as f64).sqrt();
    let mut bounds = vec![None; known.len()];
    let starts = map_items(0..known.len() * STARTS, 1, |start| {
        interrupt.check()?;
        let mut rng = Pcg64Mcg::seed_from_u64(chance.seed.wrapping_add(start as u64));
        Ok(random_direction(size, &mut rng))
    });
    let mut before = interleaved(&starts.into_iter().collect::<Result<Vec<_>>>()?);
    let mut active: Vec<Growth> =
        known.iter().enumerate().map(|known| Growth::new(known, share)).collect();
    let image = product(&columns(&active, |growth| growth.matrix), &before)?;
    for (growth, largest) in active.iter_mut().zip(largest(&image, known.len())) {
        growth.start(largest);
    }
    let mut now = vec![0.0; image.len()];
    let scales = columns(&active, |growth| [1.0 / growth.scale]);
    change(&mut now, &image, &scales, |image, _, [scale]| scale * image);
    drop(image);
    for step in 1..=MAX_STEPS {
        let squares = dots(&now, &now, active.len() * STARTS);
        let mut keep = Vec::new();
        for (growth, squares) in active.iter_mut().zip(squares.chunks_exact(STARTS)) {
            let ends = growth.take(squares, chance.accuracy) || step == MAX_STEPS;
            bounds[growth.matrix] = growth.bound;
            keep.push(!ends);
        }
        if !keep.contains(&true) {
            break;
        }
        if keep.contains(&false) {
            let each: Vec<bool> = keep.iter().flat_map(|keep| [*keep; STARTS]).collect();
            (before, now) = (kept(&before, &each), kept(&now, &each));
            let mut keep = keep.into_iter();
            active.retain(|_| keep.next().unwrap_or(false));
        }
        let image = product(&columns(&active, |growth| growth.matrix), &now)?;
        let scales = columns(&active, |growth| [2.0 / growth.scale]);
        change(&mut before, &image, &scales, |image, before, [scale]| scale * image - before);
        std::mem::swap(&mut before, &mut now);
    }
    Ok(bounds)
}

/// Repeats the value of each matrix once per random vector of that matrix.
fn columns<T: Copy>(active: &[Growth], of: impl Fn(&Growth) -> T) -> Vec<T> {
    active.iter().flat_map(|growth| [of(growth); STARTS]).collect()
}

/// The largest |entry| of the vectors of each matrix; NaN if any entry is NaN.
fn largest(vectors: &[f64], n_matrices: usize) -> Vec<f64> {
    let mut largest = vec![0.0_f64; n_matrices];
    for row in vectors.chunks_exact(n_matrices * STARTS) {
        for (largest, values) in largest.iter_mut().zip(row.chunks_exact(STARTS)) {
            *largest = values.iter().map(|value| value.abs()).fold(*largest, larger_or_nan);
        }
    }
    largest
}

/// The growth of ‖y_0‖, ‖y_1‖, ... for one matrix.
struct Growth {
    matrix: usize,
    /// The scale b, close to the norm of the matrix.
    scale: f64,
    rounding: f64,
    /// The threshold t of [`probable_norm_bounds`]: |⟨v, g⟩| is below t only with a small
    /// probability.
    share: f64,
    /// The maximum of ‖y_k‖ over the matrix's vectors, for each k.
    lengths: Vec<f64>,
    bound: Option<f64>,
}

impl Growth {
    fn new((matrix, known): (usize, &NormEstimate), share: f64) -> Self {
        let NormEstimate { guess: scale, rounding } = *known;
        Self { matrix, scale, rounding, share, lengths: vec![1.0], bound: None }
    }

    /// Raises the scale b to the largest entry of A g, a lower bound on the norm.
    fn start(&mut self, largest: f64) {
        self.scale = self.scale.max(largest);
        if largest == 0.0 && self.scale == 0.0 {
            self.bound = Some(0.0);
        }
    }

    /// Records ‖y_k‖² of the matrix's vectors. Returns whether the bound is tight enough or can no
    /// longer improve.
    fn take(&mut self, squares: &[f64], accuracy: f64) -> bool {
        if self.scale == 0.0 {
            return true;
        }
        let square = squares.iter().copied().fold(0.0, larger_or_nan);
        // This factor covers the rounding error of the sum of squares.
        self.lengths.push(square.sqrt() * (1.0 + 1e-10));
        let steps = (self.lengths.len() - 1) as f64;
        let length = self.lengths[self.lengths.len() - 1];
        let angle = (2.0 * length / self.share).max(1.0).acosh() / steps;
        // The estimate was far too small, so keep the bound found so far.
        if length > 1e100 {
            return true;
        }
        let is_clear = self.noise(angle) <= 0.5 * self.share;
        if length.is_nan() || !is_clear {
            // The bound found so far holds but is loose, so another method is worth the cost of its products.
            self.bound = None;
            return true;
        }
        let bound = self.scale * angle.cosh() * (1.0 + 1e-12);
        self.bound = Some(self.bound.map_or(bound, |best| best.min(bound)));
        // A lower bound on the norm, if the norm is above b.
        let least = self.scale * (length.max(1.0).acosh() / steps).cosh();
        bound <= least * (1.0 + accuracy)
    }

    /// A bound on the rounding error of ⟨v, y_k⟩ / T_k(‖A‖/b) if ‖A‖ is at least b cosh(`angle`).
    ///
    /// The error δ_j of step j enters y_k as U_{k−1−j}(A/b) δ_j, where U_i ≤ (i + 1) T_i and T_i
    /// T_j ≤ T_{i+j} on [1, ∞).
    fn noise(&self, angle: f64) -> f64 {
        let steps = self.lengths.len() - 1;
        let product = 2.0 * self.rounding / self.scale;
        (0..steps)
            .map(|j| {
                let before = if j > 0 { self.lengths[j - 1] } else { 0.0 };
                let step =
                    product * self.lengths[j] + 4.0 * U * (self.lengths[j + 1] + 2.0 * before);
                (steps - j) as f64 * step / ((j + 1) as f64 * angle).cosh()
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of diagonal matrices.
    fn bounds(spectra: &[Vec<f64>], known: &[NormEstimate], accuracy: f64) -> Vec<Option<f64>> {
        let chance = Chance { accuracy, failure: 1e-9, seed: 7 };
        let mut product = |owners: &[usize], v: &[f64]| {
            let rows = v.chunks_exact(owners.len()).enumerate();
            Ok(rows
                .flat_map(|(i, v)| {
                    v.iter().zip(owners).map(move |(v, owner)| v * spectra[*owner][i])
                })
                .collect())
        };
        let interrupt = Interrupt::default();
        probable_norm_bounds(spectra[0].len(), known, chance, &mut product, &interrupt).unwrap()
    }

    fn known(guess: f64) -> NormEstimate {
        NormEstimate { guess, rounding: 1e-15 * guess }
    }

    #[test]
    fn several_spectra_are_bounded_with_any_guess() {
        let size = 3000;
        let below: Vec<f64> = (0..size).map(|i| (i as f64 / size as f64) - 0.7).collect();
        // One large entry: only products with random vectors find it.
        let mut peak = vec![1e-3; size];
        peak[17] = 5.0;
        let spectra = [below, peak, vec![0.0; size]];
        for (factor, close) in [(0.5, 1.1), (0.9, 1.02), (1.0, 1.02), (1.1, 1.12)] {
            let guesses = [known(0.7 * factor), known(5.0 * factor), known(0.0)];
            let found = bounds(&spectra, &guesses, 1e-2);
            for (bound, norm) in found.iter().zip([0.7, 5.0]) {
                let bound = bound.unwrap();
                assert!((norm..norm * close).contains(&bound), "{factor} {bound} {norm}");
            }
            assert_eq!(found[2], Some(0.0));
        }
    }

    #[test]
    fn rounding_that_may_hide_the_top_eigenvalue_gives_no_bound() {
        let spectrum = vec![1.0; 2000];
        let rough = NormEstimate { guess: 1.0, rounding: 1e-6 };
        assert_eq!(bounds(std::slice::from_ref(&spectrum), &[rough], 1e-2), [None]);
        let unknown = NormEstimate { guess: 1.0, rounding: f64::NAN };
        assert_eq!(bounds(std::slice::from_ref(&spectrum), &[unknown], 1e-2), [None]);
        // A matrix that is 0 except for one NaN has no bound either.
        let mut unknown = vec![0.0; 2000];
        unknown[5] = f64::NAN;
        for guess in [0.0, 1.0] {
            assert_eq!(bounds(std::slice::from_ref(&unknown), &[known(guess)], 1e-2), [None]);
        }
        // If the guess is NaN, the products determine the scale.
        let unknown = NormEstimate { guess: f64::NAN, rounding: 1e-15 };
        assert!(bounds(&[spectrum], &[unknown], 1e-2)[0].is_some_and(|bound| bound >= 1.0));
    }
}
