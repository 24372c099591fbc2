//! Cholesky factorisations of dense matrices.

use ndarray::Array2;
use pulp::{Simd, WithSimd};

use super::arch;
use super::outer::{PADDING, Strided, add_lower_products};
use super::triangular::{divide_panel, factorise_block, substitute};
use super::vectors::{axpy, padded, padded_axpy};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::parallel::for_items;

/// The inverse and log determinant of a positive definite matrix.
#[derive(Debug)]
pub(crate) struct Inverse {
    /// Inverse A⁻¹ of the matrix.
    pub matrix: Array2<f64>,
    /// Logarithm of the determinant of A.
    pub log_det: f64,
}

/// Returns A⁻¹ and log det A; None if A is not positive definite.
pub(crate) fn invert(a: &Array2<f64>) -> Option<Inverse> {
    let mut matrix = a.as_standard_layout().into_owned();
    let log_det = invert_in_place(matrix.as_slice_mut()?, a.nrows())?;
    Some(Inverse { matrix, log_det })
}

/// Replaces the n × n matrix A, stored row by row, by its inverse and returns log det A; None if A
/// is not positive definite.
///
/// The pivots on the diagonal, in order, are the squared diagonal entries of L in A = L Lᵀ, so a
/// positive definite matrix needs no pivot search.
pub(crate) fn invert_in_place(a: &mut [f64], n: usize) -> Option<f64> {
    if n == 0 {
        return Some(0.0);
    }
    let stride = padded(n);
    let mut rows = vec![0.0; n * stride];
    for (row, from) in rows.chunks_exact_mut(stride).zip(a.chunks_exact(n)) {
        row[..n].copy_from_slice(from);
    }
    let log_det = arch().dispatch(Inversion { rows: &mut rows, stride })?;
    // Both triangles hold the inverse up to rounding. Make them equal, so that callers may read
    // either triangle.
    for (i, row) in rows.chunks_exact(stride).enumerate() {
        a[i * n..=i * n + i].copy_from_slice(&row[..=i]);
        for (j, value) in row[..i].iter().enumerate() {
            a[j * n + i] = *value;
        }
    }
    Some(log_det)
}

/// Gauss-Jordan elimination on rows that are padded with zeros. This is a type with a method `with_simd`, because
/// `pulp` compiles only code that is inlined into this method for this processor's vectors.
struct Inversion<'a> {
    rows: &'a mut [f64],
    stride: usize,
}

impl WithSimd for Inversion<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Option<f64> {
        let Self { rows, stride } = self;
        let mut log_det = 0.0;
        for pivot in 0..rows.len() / stride {
            let (before, rest) = rows.split_at_mut(pivot * stride);
            let (row, after) = rest.split_at_mut(stride);
            let value = row[pivot];
            if !(value > 0.0 && value.is_finite()) {
                return None;
            }
            log_det += value.ln();
            let inverse = 1.0 / value;
            row[pivot] = 1.0;
            row.iter_mut().for_each(|entry| *entry *= inverse);
            for others in [before, after] {
                for other in others.chunks_exact_mut(stride) {
                    // A vector must not be read just after one of its entries was written: the read would wait for
                    // the write to reach the cache. So the column of the pivot is written last, not set to 0 first.
                    let factor = other[pivot];
                    padded_axpy(other, -factor, row);
                    other[pivot] = 0.0 - factor * row[pivot];
                }
            }
        }
        Some(log_det)
    }
}

/// Solves a linear system whose matrix is positive semi-definite up to rounding; overwrites both
/// arguments. Undetermined entries of the solution are 0.
///
/// Always inlined, so that it is compiled for the vectors of the kernel that calls it.
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
        // `row` becomes a row of the upper factor. If a pivot is lost in rounding, its variable is set to 0. The
        // diagonal stores the inverse square roots of the pivots, so that back substitution multiplies instead of
        // dividing.
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

/// Number of columns that are factorised together; their rows stay in the first-level cache.
const PANEL: usize = 64;

/// Smallest pivot that is accepted for a matrix with a unit diagonal. Smaller pivots are rounding errors.
const SMALLEST_PIVOT: f64 = 1e-14;

/// The Cholesky factor L of a matrix whose diagonal is scaled to 1, and the scales.
#[derive(Debug)]
pub(crate) struct Factor {
    values: Vec<f64>,
    /// Scales 1/√A_ii, which give the matrix a diagonal of ones.
    scales: Vec<f64>,
    stride: usize,
}

impl Factor {
    /// The distance between the rows of an n × n matrix that is passed to [`Factor::new`].
    pub fn stride(n: usize) -> usize {
        n.next_multiple_of(PADDING)
    }

    /// Factorises a positive definite n × n matrix, given by its lower triangle with rows
    /// [`Factor::stride`] apart. Works on blocks of columns, in parallel over rows; no result
    /// depends on the number of threads.
    ///
    /// The diagonal is scaled to 1 first, so that the rounding errors do not depend on the scales
    /// of rows and columns (van der Sluis 1969). Pivots lost in rounding are raised to
    /// [`SMALLEST_PIVOT`].
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn new(mut values: Vec<f64>, n: usize, interrupt: &Interrupt) -> Result<Self> {
        let stride = Self::stride(n);
        let scales: Vec<f64> = (0..n).map(|i| 1.0 / values[i * stride + i].sqrt()).collect();
        values.chunks_mut(stride).zip(&scales).for_each(|(row, own)| {
            row.iter_mut().zip(&scales).for_each(|(value, scale)| *value *= own * scale);
        });
        let mut panel = Vec::new();
        for start in (0..n).step_by(PANEL) {
            interrupt.check()?;
            let end = (start + PANEL).min(n);
            let (done, rest) = values.split_at_mut(end * stride);
            factorise_block(&mut done[start * stride..], stride, start, SMALLEST_PIVOT);
            let block = &done[start * stride..];
            divide_rows(block, rest, &mut panel, stride, start..end);
            update(rest, &panel, stride, start..end);
        }
        Ok(Self { values, scales, stride })
    }

    /// The inverse of A, with the same distance between rows as the factor. Computes L⁻¹ by blocks of rows, and then
    /// its Gram matrix.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn inverse(self, n: usize, interrupt: &Interrupt) -> Result<Vec<f64>> {
        let stride = self.stride;
        let mut rows = vec![0.0; n * stride];
        let mut coefficients = Vec::new();
        for start in (0..n).step_by(PANEL) {
            interrupt.check()?;
            let end = (start + PANEL).min(n);
            let (done, rest) = rows.split_at_mut(end * stride);
            let block = &mut done[start * stride..];
            solve_block(block, &self.values, stride, start..end);
            // −L_ik for the rows i below this block and the columns k in it, column by column.
            coefficients.clear();
            coefficients.resize((end - start) * stride, 0.0);
            for (k, line) in (start..end).zip(coefficients.chunks_exact_mut(stride)) {
                for (i, value) in line.iter_mut().enumerate().take(n).skip(end) {
                    *value = -self.values[i * stride + k];
                }
            }
            let width = Self::stride(end);
            let known: Vec<f64> =
                block.chunks_exact(stride).flat_map(|row| row[..width].iter().copied()).collect();
            let a = Strided { values: &coefficients, stride };
            let b = Strided { values: &known, stride: width };
            for_items(rest.chunks_mut(PANEL * stride).enumerate(), 1, |(block, below)| {
                let shape = (below.len() / stride, end + block * PANEL);
                add_lower_products(below, stride, shape, a, b);
            });
        }
        drop(self.values);
        let mut inverse = vec![0.0; n * stride];
        for_items(inverse.chunks_mut(PANEL * stride).enumerate(), 1, |(block, lines)| {
            // The rows of L⁻¹ above the block are 0 in the block's columns.
            let first = block * PANEL;
            let a = Strided { values: &rows[first * stride..], stride };
            add_lower_products(lines, stride, (lines.len() / stride, first), a, a);
        });
        for i in 0..n {
            for j in 0..=i {
                let value = inverse[i * stride + j] * self.scales[i] * self.scales[j];
                (inverse[i * stride + j], inverse[j * stride + i]) = (value, value);
            }
        }
        Ok(inverse)
    }

    /// Solves A x = b; overwrites b with x.
    pub fn solve(&self, b: &mut [f64]) {
        b.iter_mut().zip(&self.scales).for_each(|(b, scale)| *b *= scale);
        substitute(&self.values, self.stride, b);
        b.iter_mut().zip(&self.scales).for_each(|(b, scale)| *b *= scale);
    }
}

/// Completes a block of rows of L⁻¹. On entry, row i holds −Σ L_ik (row k) over the rows k before
/// the block.
fn solve_block(block: &mut [f64], factor: &[f64], stride: usize, rows: std::ops::Range<usize>) {
    let start = rows.start;
    for i in rows {
        let (done, rest) = block.split_at_mut((i - start) * stride);
        let (row, own) = (&mut rest[..=i], &factor[i * stride..]);
        row[i] = 1.0;
        for (k, other) in (start..i).zip(done.chunks_exact(stride)) {
            axpy(&mut row[..=k], -own[k], &other[..=k]);
        }
        row.iter_mut().for_each(|value| *value /= own[i]);
    }
}

/// Multiplies the given columns of some rows by the transposed inverse of the block above them. Also writes the results
/// to the panel, column by column, followed by their negatives.
fn divide_rows(
    block: &[f64],
    rest: &mut [f64],
    panel: &mut Vec<f64>,
    stride: usize,
    columns: std::ops::Range<usize>,
) {
    let width = (rest.len() / stride).next_multiple_of(PADDING);
    panel.clear();
    panel.resize(2 * columns.len() * width, 0.0);
    let (plain, negative) = panel.split_at_mut(columns.len() * width);
    for (row, values) in rest.chunks_exact(stride).enumerate() {
        for (k, value) in values[columns.clone()].iter().enumerate() {
            plain[k * width + row] = *value;
        }
    }
    divide_panel((block, stride, columns.start), plain, width);
    for (row, values) in rest.chunks_exact_mut(stride).enumerate() {
        for (k, value) in values[columns.clone()].iter_mut().enumerate() {
            *value = plain[k * width + row];
        }
    }
    negative.iter_mut().zip(plain).for_each(|(negative, value)| *negative = -*value);
}

/// Subtracts the products of the columns just factorised, which are in the panel, from the rows
/// below.
fn update(rest: &mut [f64], panel: &[f64], stride: usize, columns: std::ops::Range<usize>) {
    let width = (rest.len() / stride).next_multiple_of(PADDING);
    let (plain, negative) = panel.split_at(columns.len() * width);
    let [a, b] = [negative, plain].map(|values| Strided { values, stride: width });
    // The remaining columns begin where the panel's columns end. This index need not be a multiple of the vector width.
    for_items(rest.chunks_mut(PANEL * stride).enumerate(), 1, |(block, rows)| {
        let n_rows = rows.len() / stride;
        add_lower_products(&mut rows[columns.end..], stride, (n_rows, block * PANEL), a, b);
    });
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
        fn the_inverse_times_the_matrix_is_the_identity(
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
        fn a_singular_system_is_solved_if_it_has_a_solution(
            values in prop::collection::vec(-2.0..2.0f64, 10),
            solution in prop::collection::vec(-2.0..2.0f64, 5),
        ) {
            let a = gram(&values, 5, 2);
            let right = a.dot(&ndarray::aview1(&solution));
            let (mut matrix, mut x) = (a.clone().into_raw_vec_and_offset().0, right.to_vec());
            solve_semidefinite(&mut matrix, &mut x);
            let error = a.dot(&ndarray::aview1(&x)) - right;
            // Rounding turns zero pivots of a matrix of rank 2 into small positive pivots.
            prop_assert!(x.iter().all(|x| x.is_finite()));
            prop_assume!(a.diag().iter().take(2).all(|pivot| *pivot > 1e-2));
            prop_assert!(error.iter().all(|error| error.abs() < 1e-3), "{error}");
        }
    }

    #[test]
    fn the_inverse_does_not_depend_on_the_threads() {
        for n in [1, 7, 64, 150] {
            let stride = Factor::stride(n);
            let entry = |i: usize, j: usize| {
                let scale = |at: usize| 10.0_f64.powi((at % 3) as i32);
                scale(i) * scale(j) * if i == j { 3.0 } else { 1.0 / (1 + i.abs_diff(j)) as f64 }
            };
            let mut a = vec![0.0; n * stride];
            for i in 0..n {
                for j in 0..n {
                    a[i * stride + j] = entry(i, j);
                }
            }
            let inverse = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let factor = Factor::new(a.clone(), n, &Interrupt::default()).unwrap();
                    factor.inverse(n, &Interrupt::default()).unwrap()
                })
            };
            let found = inverse(1);
            assert_eq!(found, inverse(3));
            for i in 0..n {
                for j in 0..n {
                    let sum: f64 = (0..n).map(|k| entry(i, k) * found[k * stride + j]).sum();
                    assert!((sum - f64::from(i == j)).abs() < 1e-8, "{n}: {i}, {j}: {sum}");
                }
            }
        }
    }

    #[test]
    fn systems_of_any_scale_are_solved_with_any_number_of_threads() {
        for n in [1, 5, 63, 64, 65, 150, 201] {
            let scale = |i: usize| 10f64.powi((i % 13) as i32 - 6);
            let entry = |i: usize, k: usize| ((i * 37 + k * 11 + i * k) % 23) as f64 / 11.0 - 1.0;
            let stride = Factor::stride(n);
            let mut a = vec![0.0; n * stride];
            for i in 0..n {
                for j in 0..=i {
                    let sum: f64 = (0..40).map(|k| entry(i, k) * entry(j, k)).sum();
                    let value = sum + if i == j { 3.0 } else { 0.0 };
                    a[i * stride + j] = scale(i) * scale(j) * value;
                }
            }
            let expected: Vec<f64> = (0..n).map(|i| (1.0 + i as f64) / scale(i)).collect();
            let at = |i: usize, j: usize| a[i.max(j) * stride + i.min(j)];
            let b: Vec<f64> =
                (0..n).map(|i| (0..n).map(|j| at(i, j) * expected[j]).sum()).collect();
            let solve = |n_threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                let mut x = b.clone();
                let factor = pool.install(|| Factor::new(a.clone(), n, &Interrupt::default()));
                factor.unwrap().solve(&mut x);
                x
            };
            let x = solve(1);
            assert_eq!(x, solve(3));
            for (x, expected) in x.iter().zip(&expected) {
                assert!((x - expected).abs() < 1e-10 * expected, "{n}: {x} {expected}");
            }
        }
    }

    #[test]
    fn an_empty_matrix_is_its_own_inverse() {
        let Inverse { matrix, log_det } = invert(&Array2::zeros((0, 0))).unwrap();
        assert_eq!((matrix.len(), log_det), (0, 0.0));
    }

    #[test]
    fn indefinite_matrices_have_no_inverse() {
        for (corner, other) in [(0.0, 1.0), (1.0, 1.0), (1.0, 2.0), (f64::NAN, 0.0)] {
            assert!(invert(&ndarray::arr2(&[[corner, other], [other, 1.0]])).is_none());
        }
    }
}
