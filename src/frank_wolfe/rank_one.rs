//! Leading singular vectors of a matrix that is known only through its products with vectors, and bounds on its norm.

use super::block_krylov::{VectorBlock, WIDTH};
use crate::dual::rounding::{gamma, root_above};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::normalise;
use crate::polynomial::spectral::chebyshev::{NormEstimate, STARTS, probable_norm_bounds};
use crate::polynomial::spectral::lanczos::extreme_eigenpair_from;
use crate::polynomial::spectral::spectrum::{Chance, norm_bound, probable_norm_bound};
use crate::polynomial::spectral_bounds::MAX_FACTORISED;

/// A matrix M that is known only through its products with vectors.
pub(super) trait MatrixOperator: Sync {
    /// Numbers of rows and columns.
    fn shape(&self) -> (usize, usize);
    /// Returns M v for v on the smaller side, or Mᵀ v if M has more columns than rows.
    fn to_larger_side(&self, v: &[f64]) -> Vec<f64>;
    /// Returns MᵀM v, or M Mᵀ v if M has more columns than rows.
    fn gram_times(&self, v: &[f64], interrupt: &Interrupt) -> Result<Vec<f64>>;
    /// Returns MᵀM v, or M Mᵀ v if M has more columns than rows, for all vectors v of a block. None if this would take
    /// as long as one product for each vector.
    fn gram_times_block(&self, _: &[[f64; WIDTH]], _: &Interrupt) -> Result<Option<VectorBlock>> {
        Ok(None)
    }
    /// Squared Frobenius norm ‖M‖²_F.
    fn squared_frobenius(&self) -> f64;
    /// Returns MᵀM, or M Mᵀ if M has more columns than rows, stored row after row.
    fn gram(&self) -> Vec<f64>;
}

/// The smaller of the numbers of rows and columns.
pub(super) fn smaller_side(matrix: &(impl MatrixOperator + ?Sized)) -> usize {
    let (n_rows, n_cols) = matrix.shape();
    n_rows.min(n_cols)
}

/// A left and a right singular vector of norm 1.
#[derive(Debug, Clone)]
pub(super) struct SingularPair {
    pub left: Vec<f64>,
    pub right: Vec<f64>,
}

/// Finds the singular vectors for the largest singular value by Lanczos' method on the smaller Gram matrix. Stops when
/// the residual is below `tol` times the largest eigenvalue of this matrix. `start` is a unit vector of the smaller
/// side.
pub(super) fn leading_pair(
    matrix: &impl MatrixOperator,
    start: Vec<f64>,
    tol: f64,
    interrupt: &Interrupt,
) -> Result<SingularPair> {
    let found = extreme_eigenpair_from(start, tol, |v| matrix.gram_times(v, interrupt))?;
    let (n_rows, n_cols) = matrix.shape();
    let known = found.vector;
    let mut other = matrix.to_larger_side(&known);
    if normalise(&mut other) == 0.0 {
        other[0] = 1.0;
    }
    let (left, right) = if n_cols <= n_rows { (other, known) } else { (known, other) };
    Ok(SingularPair { left, right })
}

/// Probability that a bound on the norm of a matrix is too small, if the matrix has more than [`MAX_FACTORISED`] rows
/// and more than [`MAX_FACTORISED`] columns.
const FAILURE: f64 = 1e-9;

/// Seed of the random vectors of a bound. Searches use the seeds from 0, and the vectors must be independent of the
/// matrix, which depends on the searches.
const UNUSED_SEED: u64 = 1 << 63;

/// Returns an upper bound on ‖M‖₂, given an estimate `guess` of this norm. The bound is certain if M has at most
/// [`MAX_FACTORISED`] rows or columns. Otherwise it holds with a probability of 1 − 1e-9, and `accuracy` is the
/// relative error that it may have.
pub(super) fn norm_above(
    matrix: &impl MatrixOperator,
    guess: f64,
    accuracy: f64,
    interrupt: &Interrupt,
) -> Result<f64> {
    let size = smaller_side(matrix);
    let (n_rows, n_cols) = matrix.shape();
    let square = matrix.squared_frobenius() * (1.0 + gamma(n_rows + n_cols));
    // The rounding errors of MᵀM are at most a small multiple of |M|ᵀ|M|, whose norm is at most ‖M‖²_F.
    let error = gamma(n_rows + n_cols + 16) * square;
    let bound = if size <= MAX_FACTORISED {
        norm_bound(&matrix.gram(), size, guess * guess, interrupt)?
    } else {
        probable_gram_bound(matrix, (guess, error), accuracy, interrupt)?
    };
    Ok(root_above((bound + error).min(square)))
}

/// Returns an upper bound on ‖MᵀM‖₂ that holds with a probability of 1 − [`FAILURE`], given estimates of ‖M‖₂ and of
/// the rounding error of a product. `accuracy` is the relative error that the bound on ‖M‖₂ may have.
fn probable_gram_bound(
    matrix: &impl MatrixOperator,
    (guess, rounding): (f64, f64),
    accuracy: f64,
    interrupt: &Interrupt,
) -> Result<f64> {
    let size = smaller_side(matrix);
    // The random vectors of the first method decide whether the second is used, so the two share the probability.
    let chance = Chance { accuracy: 2.0 * accuracy, failure: 0.5 * FAILURE, seed: UNUSED_SEED };
    // The eigenvalues of MᵀM − cI lie between −c and about c for c = ‖M‖₂²/2, so the Chebyshev polynomials need fewer
    // steps for them than for the eigenvalues of MᵀM. The bound c + ‖MᵀM − cI‖₂ holds for any c.
    let shift = 0.5 * guess * guess;
    let mut product = |_: &[usize], vectors: &[f64]| {
        let mut block: VectorBlock = vec![[0.0; WIDTH]; size];
        let (rows, _) = vectors.as_chunks::<STARTS>();
        block.iter_mut().zip(rows).for_each(|(wide, row)| wide[..STARTS].copy_from_slice(row));
        let Some(image) = matrix.gram_times_block(&block, interrupt)? else {
            // NaN gives no bound, so that the other method is used.
            return Ok(vec![f64::NAN; vectors.len()]);
        };
        let rows = image.iter().zip(rows);
        Ok(rows.flat_map(|(image, row)| (0..STARTS).map(|i| image[i] - shift * row[i])).collect())
    };
    // The largest eigenvalue of the shifted matrix is about half as large, so its relative error may be twice as large.
    let halved = Chance { accuracy: 2.0 * chance.accuracy, ..chance };
    let known = [NormEstimate { guess: shift, rounding }];
    let bounds = probable_norm_bounds(size, &known, halved, &mut product, interrupt)?;
    match bounds[0] {
        Some(bound) => Ok((shift + bound) * (1.0 + 4.0 * f64::EPSILON)),
        None => probable_norm_bound(size, chance, |v| matrix.gram_times(v, interrupt)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vectors::{dot, random_unit};

    /// A diagonal matrix, and whether it multiplies blocks.
    struct Diagonal(Vec<f64>, bool);

    impl MatrixOperator for Diagonal {
        fn shape(&self) -> (usize, usize) {
            (self.0.len(), self.0.len())
        }
        fn to_larger_side(&self, v: &[f64]) -> Vec<f64> {
            self.0.iter().zip(v).map(|(d, v)| d * v).collect()
        }
        fn gram_times(&self, v: &[f64], _: &Interrupt) -> Result<Vec<f64>> {
            Ok(self.to_larger_side(&self.to_larger_side(v)))
        }
        fn gram_times_block(
            &self,
            block: &[[f64; WIDTH]],
            _: &Interrupt,
        ) -> Result<Option<VectorBlock>> {
            let rows = self.0.iter().zip(block);
            Ok(self.1.then(|| rows.map(|(d, row)| row.map(|v| d * d * v)).collect()))
        }
        fn squared_frobenius(&self) -> f64 {
            dot(&self.0, &self.0)
        }
        fn gram(&self) -> Vec<f64> {
            let n = self.0.len();
            let entry = |at: usize| if at / n == at % n { self.0[at % n].powi(2) } else { 0.0 };
            (0..n * n).map(entry).collect()
        }
    }

    #[test]
    fn the_leading_pair_of_a_cluster_is_found_and_bounded() {
        let interrupt = Interrupt::default();
        let clusters = [vec![0.7, 0.7, 0.8], vec![0.5, 0.5, 0.5], vec![0.0, 1.0], vec![2.0]];
        for values in clusters
            .into_iter()
            .chain([vec![0.75869364, 0.758693639, 0.858], (0..1200).map(f64::from).collect()])
        {
            let norm = values.iter().copied().fold(0.0, f64::max);
            let mut matrix = Diagonal(values, false);
            let start = random_unit(smaller_side(&matrix), 0);
            let SingularPair { left, right } =
                leading_pair(&matrix, start, 1e-7, &interrupt).unwrap();
            let value = dot(&left, &matrix.to_larger_side(&right));
            assert!((value - norm).abs() <= 1e-6 * norm, "{value} {norm}");
            for with_blocks in [false, true] {
                matrix.1 = with_blocks;
                for guess in [value, 0.9 * value, 0.0] {
                    let bound = norm_above(&matrix, guess, 1e-3, &interrupt).unwrap();
                    assert!(bound >= norm, "{bound} {norm}");
                    assert!(bound <= 1.01 * norm || guess < value, "{bound} {norm}");
                }
            }
        }
    }
}
