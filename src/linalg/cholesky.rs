//! Cholesky factorisations of small dense matrices.

use ndarray::Array2;
use pulp::{Simd, WithSimd};

use super::arch;

/// The inverse and log determinant of a positive definite matrix.
#[derive(Debug)]
pub(crate) struct Inverse {
    /// A⁻¹.
    pub matrix: Array2<f64>,
    /// log det A.
    pub log_det: f64,
}

/// A⁻¹ and log det A; None if A is not positive definite.
pub(crate) fn invert(a: &Array2<f64>) -> Option<Inverse> {
    let mut matrix = a.as_standard_layout().into_owned();
    let log_det = invert_in_place(matrix.as_slice_mut()?, a.nrows())?;
    Some(Inverse { matrix, log_det })
}

/// Replaces A, n × n by rows, by its inverse and returns log det A; None if A is not positive definite.
///
/// Pivots in their order on the diagonal are those of A = L Lᵀ, squared: a definite matrix needs no search.
pub(crate) fn invert_in_place(a: &mut [f64], n: usize) -> Option<f64> {
    let log_det = arch().dispatch(Inversion { a, n })?;
    // Both halves are the inverse up to rounding; users of either see the same.
    for i in 0..n {
        for j in 0..i {
            a[j * n + i] = a[i * n + j];
        }
    }
    Some(log_det)
}

/// Gauss-Jordan elimination: a type of its own, since only what is inlined into its body is compiled for the
/// processor at hand.
struct Inversion<'a> {
    a: &'a mut [f64],
    n: usize,
}

impl WithSimd for Inversion<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Option<f64> {
        let Self { a, n } = self;
        let mut log_det = 0.0;
        for pivot in 0..n {
            let (before, rest) = a.split_at_mut(pivot * n);
            let (row, after) = rest.split_at_mut(n);
            let value = row[pivot];
            if !(value > 0.0 && value.is_finite()) {
                return None;
            }
            log_det += value.ln();
            let inverse = 1.0 / value;
            row[pivot] = 1.0;
            row.iter_mut().for_each(|entry| *entry *= inverse);
            for other in before.chunks_exact_mut(n).chain(after.chunks_exact_mut(n)) {
                let factor = other[pivot];
                other[pivot] = 0.0;
                other.iter_mut().zip(&*row).for_each(|(entry, r)| *entry -= factor * r);
            }
        }
        Some(log_det)
    }
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
