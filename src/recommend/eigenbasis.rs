//! Eigenvectors of a symmetric positive semi-definite matrix by one-sided Jacobi rotations.
//!
//! Rotations make the rows of V' A orthogonal (Hestenes 1958). Because A is symmetric, these rows
//! are then the eigenvectors multiplied by the eigenvalues. Pairs of rows are scheduled like a
//! round-robin tournament: the pairs of a round share no row, so threads can rotate them in any
//! order.

use pulp::{Simd, WithSimd};

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::linalg::vectors::padded_dot;
use crate::parallel::map_items;

/// Maximum number of sweeps over all pairs. Convergence is quadratic and takes about ten sweeps.
const MAX_SWEEPS: usize = 40;

/// Two rows count as orthogonal if the cosine of their angle is at most this.
const ORTHOGONAL: f64 = 1e-13;

/// Number of pairs per task. One rotation takes about a microsecond.
const TASK: usize = 16;

/// A row of V' A, with the same row of V'. The rows of V' become the eigenvectors of A.
struct Row {
    product: Vec<f64>,
    vector: Vec<f64>,
}

/// Returns the eigenvalues of the d × d matrix, and a matrix with the corresponding eigenvectors as rows. The
/// eigenvalues are not sorted.
///
/// `d` must be a multiple of 8.
///
/// # Errors
/// [`Error::Interrupted`](crate::error::Error::Interrupted).
pub(super) fn eigenbasis(
    matrix: &[f64],
    d: usize,
    interrupt: &Interrupt,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let unit = |at: usize| (0..d).map(|column| f64::from(column == at)).collect();
    let mut rows: Vec<Row> = matrix
        .chunks_exact(d)
        .enumerate()
        .map(|(at, row)| Row { product: row.to_vec(), vector: unit(at) })
        .collect();
    let largest = rows.iter().map(|row| padded_dot(&row.product, &row.product)).fold(0.0, f64::max);
    for _ in 0..MAX_SWEEPS {
        interrupt.check()?;
        let mut rotated = false;
        for _ in 1..d {
            let (left, right) = rows.split_at_mut(d / 2);
            let pairs = left.iter_mut().zip(right.iter_mut().rev());
            let found = map_items(pairs, TASK, |(first, second)| {
                arch().dispatch(Rotate { first, second, largest })
            });
            rotated |= found.contains(&true);
            rows[1..].rotate_right(1);
        }
        if !rotated {
            break;
        }
    }
    let values = rows.iter().map(|row| padded_dot(&row.product, &row.vector).max(0.0)).collect();
    Ok((values, rows.into_iter().flat_map(|row| row.vector).collect()))
}

/// Rotates two rows so that they become orthogonal. Returns false if they already were.
struct Rotate<'a> {
    first: &'a mut Row,
    second: &'a mut Row,
    /// The largest squared norm of a row of the matrix.
    largest: f64,
}

impl WithSimd for Rotate<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> bool {
        let Self { first, second, largest } = self;
        let (a, b) = (&mut first.product, &mut second.product);
        let (aa, bb, ab) = (padded_dot(a, a), padded_dot(b, b), padded_dot(a, b));
        // If a row consists only of rounding errors, its direction is meaningless, so it is not rotated.
        if ab.abs() <= ORTHOGONAL * (aa * bb).sqrt().max(1e-13 * largest) {
            return false;
        }
        let ratio = (bb - aa) / (2.0 * ab);
        let tangent = ratio.signum() / (ratio.abs() + (1.0 + ratio * ratio).sqrt());
        let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
        let sine = cosine * tangent;
        for (a, b) in [(a, b), (&mut first.vector, &mut second.vector)] {
            for (a, b) in a.iter_mut().zip(b.iter_mut()) {
                (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(matrix: &[f64], d: usize) {
        let (values, vectors) = eigenbasis(matrix, d, &Interrupt::default()).unwrap();
        let scale = values.iter().copied().fold(1e-300, f64::max);
        for (value, vector) in values.iter().zip(vectors.chunks_exact(d)) {
            for (row, own) in matrix.chunks_exact(d).zip(vector) {
                assert!((padded_dot(row, vector) - value * own).abs() < 1e-12 * scale * d as f64);
            }
        }
        for (at, a) in vectors.chunks_exact(d).enumerate() {
            for (other, b) in vectors.chunks_exact(d).enumerate() {
                assert!((padded_dot(a, b) - f64::from(at == other)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn eigenvectors_are_orthonormal_and_match_their_eigenvalues() {
        for (d, rank) in [(8, 8), (24, 24), (40, 7), (16, 0)] {
            let value = |seed: usize| ((seed * 7919 + 13) % 101) as f64 / 50.0 - 1.0;
            let factors: Vec<f64> = (0..d * rank).map(value).collect();
            let entry = |i: usize, j: usize| {
                (0..rank).map(|r| factors[i * rank + r] * factors[j * rank + r]).sum::<f64>()
            };
            let matrix: Vec<f64> = (0..d * d).map(|at| entry(at / d, at % d)).collect();
            check(&matrix, d);
        }
        let twice: Vec<f64> = (0..64).map(|at| f64::from(at % 9 == 0) * 3.0).collect();
        check(&twice, 8);
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let d = 64;
        let matrix: Vec<f64> = (0..d * d).map(|at| 1.0 / (1 + at / d + at % d) as f64).collect();
        let run = |n: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            pool.install(|| eigenbasis(&matrix, d, &Interrupt::default()).unwrap())
        };
        assert_eq!(run(1), run(3));
    }
}
