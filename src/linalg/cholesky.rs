//! Cholesky factorisations of small dense matrices.

use ndarray::Array2;

/// The inverse and log determinant of a positive definite matrix.
#[derive(Debug)]
pub(crate) struct Inverse {
    /// A⁻¹.
    pub matrix: Array2<f64>,
    /// log det A.
    pub log_det: f64,
}

/// A⁻¹ and log det A by A = L Lᵀ; None if A is not positive definite.
pub(crate) fn invert(a: &Array2<f64>) -> Option<Inverse> {
    let n = a.nrows();
    let (l, log_det) = factorise(a)?;
    // T = L⁻¹ by forward substitution, then A⁻¹ = Tᵀ T.
    let mut t = Array2::zeros((n, n));
    for j in 0..n {
        t[(j, j)] = 1.0 / l[(j, j)];
        for i in j + 1..n {
            let sum: f64 = (j..i).map(|s| l[(i, s)] * t[(s, j)]).sum();
            t[(i, j)] = -sum / l[(i, i)];
        }
    }
    Some(Inverse { matrix: t.t().dot(&t), log_det })
}

/// L in the lower triangle (what lies above it is left from A), and log det A.
fn factorise(a: &Array2<f64>) -> Option<(Array2<f64>, f64)> {
    let n = a.nrows();
    let mut l = a.clone();
    let mut log_det = 0.0;
    for j in 0..n {
        for t in 0..j {
            let factor = l[(j, t)];
            for i in j..n {
                l[(i, j)] -= l[(i, t)] * factor;
            }
        }
        let pivot = l[(j, j)];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        log_det += pivot.ln();
        let root = pivot.sqrt();
        for i in j..n {
            l[(i, j)] /= root;
        }
    }
    Some((l, log_det))
}

/// Solves a system with a matrix that is positive semi-definite to rounding, both overwritten; what the
/// matrix leaves open is 0 in the solution.
///
/// Inlined, so that it is compiled for the vectors of the kernel that calls it.
#[inline(always)]
pub(crate) fn solve_semidefinite(matrix: &mut [f64], right: &mut [f64]) {
    let n = right.len();
    for column in 0..n {
        let (done, rest) = matrix.split_at_mut(column * n);
        let row = &mut rest[..n];
        let scale = row[column].abs();
        for before in done.chunks_exact(n) {
            let factor = before[column];
            row[column..]
                .iter_mut()
                .zip(&before[column..])
                .for_each(|(entry, b)| *entry -= factor * b);
        }
        // Rows of the upper factor; a pivot lost in rounding leaves its variable at 0. The inverse of
        // each pivot's root stands on the diagonal: the way back multiplies by it.
        let pivot = row[column];
        let inverse = if pivot > 1e-14 * scale { 1.0 / pivot.sqrt() } else { 0.0 };
        row[column..].iter_mut().for_each(|entry| *entry *= inverse);
        row[column] = inverse;
        right[column] *= inverse;
        let solved = right[column];
        right[column + 1..].iter_mut().zip(&row[column + 1..]).for_each(|(r, u)| *r -= solved * u);
    }
    for column in (0..n).rev() {
        let row = &matrix[column * n..(column + 1) * n];
        let sum: f64 = row[column + 1..].iter().zip(&right[column + 1..]).map(|(u, x)| u * x).sum();
        right[column] = (right[column] - sum) * row[column];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gram(values: &[f64], n: usize, rank: usize) -> Array2<f64> {
        let factor = Array2::from_shape_fn((n, rank), |(i, j)| values[i * rank + j]);
        factor.dot(&factor.t())
    }

    proptest! {
        #[test]
        fn the_inverse_times_the_matrix_is_one(
            values in prop::collection::vec(-2.0..2.0f64, 25),
        ) {
            let mut a = gram(&values, 5, 5);
            a.diag_mut().mapv_inplace(|entry| entry + 0.1);
            let Inverse { matrix, log_det } = invert(&a).unwrap();
            let error = &a.dot(&matrix) - &Array2::<f64>::eye(5);
            prop_assert!(error.iter().all(|error| error.abs() < 1e-8), "{error}");
            let inverse = invert(&matrix).unwrap();
            prop_assert!((inverse.log_det + log_det).abs() < 1e-8);
        }

        #[test]
        fn a_singular_system_is_solved_where_it_can_be(
            values in prop::collection::vec(-2.0..2.0f64, 10),
            solution in prop::collection::vec(-2.0..2.0f64, 5),
        ) {
            let a = gram(&values, 5, 2);
            let right = a.dot(&ndarray::aview1(&solution));
            let (mut matrix, mut x) = (a.clone().into_raw_vec_and_offset().0, right.to_vec());
            solve_semidefinite(&mut matrix, &mut x);
            let error = a.dot(&ndarray::aview1(&x)) - right;
            // Of a matrix of rank 2, rounding leaves pivots that may pass for more.
            prop_assert!(x.iter().all(|x| x.is_finite()));
            prop_assume!(a.diag().iter().take(2).all(|pivot| *pivot > 1e-2));
            prop_assert!(error.iter().all(|error| error.abs() < 1e-3), "{error}");
        }
    }

    #[test]
    fn what_is_not_positive_definite_has_no_inverse() {
        for (corner, other) in [(0.0, 1.0), (1.0, 1.0), (1.0, 2.0), (f64::NAN, 0.0)] {
            assert!(invert(&ndarray::arr2(&[[corner, other], [other, 1.0]])).is_none());
        }
    }
}
