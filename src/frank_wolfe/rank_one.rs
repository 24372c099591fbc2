//! Leading singular vectors of a matrix that is known only through its products with vectors, and bounds on its norm.

use crate::dual::rounding::{gamma, root_above};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::normalise;
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

/// The largest singular value, with a left and a right singular vector of norm 1.
#[derive(Debug, Clone)]
pub(super) struct SingularPair {
    pub value: f64,
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
    let value = normalise(&mut other);
    if value == 0.0 {
        other[0] = 1.0;
    }
    let (left, right) = if n_cols <= n_rows { (other, known) } else { (known, other) };
    Ok(SingularPair { value, left, right })
}

/// Probability that a bound on the norm of a matrix is too small, if the matrix has more than [`MAX_FACTORISED`] rows
/// and more than [`MAX_FACTORISED`] columns.
const FAILURE: f64 = 1e-9;

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
    let bound = if size <= MAX_FACTORISED {
        norm_bound(&matrix.gram(), size, guess * guess, interrupt)?
    } else {
        let chance = Chance { accuracy: 2.0 * accuracy, failure: FAILURE, seed: 0 };
        probable_norm_bound(size, chance, |v| matrix.gram_times(v, interrupt))?
    };
    // The rounding errors of MᵀM are at most a small multiple of |M|ᵀ|M|, whose norm is at most ‖M‖²_F.
    let error = gamma(n_rows + n_cols + 8) * square;
    Ok(root_above((bound + error).min(square)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vectors::{dot, random_unit};

    /// A diagonal matrix.
    struct Diagonal(Vec<f64>);

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
            let matrix = Diagonal(values);
            let start = random_unit(smaller_side(&matrix), 0);
            let SingularPair { value, left, right } =
                leading_pair(&matrix, start, 1e-7, &interrupt).unwrap();
            assert!((value - dot(&left, &matrix.to_larger_side(&right))).abs() <= 1e-12 * norm);
            assert!((value - norm).abs() <= 1e-6 * norm, "{value} {norm}");
            let bound = norm_above(&matrix, value, 1e-3, &interrupt).unwrap();
            assert!((norm..=1.01 * norm).contains(&bound), "{bound} {norm}");
        }
    }
}
