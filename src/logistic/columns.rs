//! The largest absolute value of each column, the distances of the rows from a point and the digest of the rows,
//! computed in one pass.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::data::{Csr, Data, Dense, Real, Rows, join_digests};
use crate::for_data;
use crate::linalg::arch;
use crate::linalg::vectors::larger_or_nan;
use crate::parallel::{min_len, parts};

/// Maximum number of partial results, each with one size per column, that are combined at the end.
const PARTS: usize = 16;
/// Number of parallel sums. With a single sum, each addition would wait for the previous addition.
const LANES: usize = 8;
/// Number of rows from which the means of the columns are estimated.
const AVERAGED: usize = 256;

/// Sizes of columns, distances of rows, and a digest.
pub(super) struct ColumnStats {
    /// The largest absolute value of each column; NaN if the column contains NaN.
    pub sizes: Vec<f64>,
    /// The distances of the rows from the centre, if weights were given.
    pub squares: Squares,
    /// [`Data::digest`] of dense rows before this pass, if requested.
    pub digest: Option<u64>,
}

/// Squared distances of rows from a centre μ, rounded to nearest.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Squares {
    /// Σ w_i ‖x_i − μ‖².
    pub sum: f64,
    /// The largest ‖x_i − μ‖² of the rows with w_i > 0.
    pub largest: f64,
}

impl Squares {
    fn add(&mut self, weight: f64, square: f64) {
        if weight > 0.0 {
            self.sum += weight * square;
            self.largest = self.largest.max(square);
        }
    }
}

impl ColumnStats {
    /// Reads rows once. If `measured` holds a centre and the weights of the rows, also measures the rows' distances
    /// from the centre.
    pub fn of(rows: Data<'_>, measured: Option<(&[f64], &[f64])>, digested: bool) -> Self {
        Self::read(rows, (&vec![0.0; rows.n_cols()], measured), digested)
    }

    /// The sizes of the columns after the subtraction of `centres` from dense rows; sparse rows are not centred.
    pub fn centred(rows: Data<'_>, centres: &[f64]) -> Vec<f64> {
        Self::read(rows, (centres, None), false).sizes
    }

    fn read(rows: Data<'_>, centred: Centred<'_>, digested: bool) -> Self {
        match rows {
            Data::Dense16(rows) => dense(&rows, centred, digested),
            Data::Dense32(rows) => dense(&rows, centred, digested),
            Data::Dense64(rows) => dense(&rows, centred, digested),
            Data::Csr32(rows) => sparse(&rows, centred.1),
            Data::Csr64(rows) => sparse(&rows, centred.1),
        }
    }
}

/// The numbers that are subtracted from the columns before their sizes are computed, and the centre and the weights for
/// the distances of the rows, if these are measured.
type Centred<'c> = (&'c [f64], Option<(&'c [f64], &'c [f64])>);

/// Estimates the means of the columns from a few rows if the rows are dense; returns zeros for CSR rows.
pub(super) fn estimated_means(rows: Data<'_>) -> Vec<f64> {
    let (n, mut means) = (rows.n_rows(), vec![0.0; rows.n_cols()]);
    if rows.is_sparse() {
        return means;
    }
    let n_averaged = n.min(AVERAGED);
    for at in 0..n_averaged {
        for_data!(rows, rows => rows.visit_row(at * n / n_averaged, |column, value| {
            means[column] += value / n_averaged as f64;
        }));
    }
    means
}

/// ‖x − μ‖² of a dense row.
#[inline(always)]
fn squared_distance<R: Real>(row: &[R], centre: &[f64]) -> f64 {
    let ((row, rest), (centre, last)) = (row.as_chunks::<LANES>(), centre.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (row, centre) in row.iter().zip(centre) {
        for ((sum, x), centre) in sums.iter_mut().zip(row).zip(centre) {
            let moved = x.widen() - centre;
            *sum += moved * moved;
        }
    }
    let rest = rest.iter().zip(last).map(|(x, centre)| (x.widen() - centre).powi(2));
    sums.into_iter().sum::<f64>() + rest.sum::<f64>()
}

/// Reads dense rows. The digest of each piece is computed first, so that it detects later changes. Its computation also
/// loads the piece into the cache.
fn dense<R: Real>(
    rows: &Dense<'_, R>,
    (centres, measured): Centred<'_>,
    digested: bool,
) -> ColumnStats {
    let (n_rows, n_cols, piece) = (rows.n_rows(), rows.n_cols(), rows.piece());
    let part = n_rows.div_ceil(piece).div_ceil(PARTS).max(1) * piece;
    let n_parts = n_rows.div_ceil(part);
    let found = (0..n_parts).into_par_iter().with_min_len(min_len(part * n_cols)).map(|at| {
        let (mut sizes, mut digests, mut squares) =
            (vec![0.0; n_cols], Vec::new(), Squares::default());
        let end = n_rows.min((at + 1) * part);
        for first in (at * part..end).step_by(piece) {
            let last = end.min(first + piece);
            digests.extend(digested.then(|| rows.digest_of(first, last)));
            let (sizes, squares) = (&mut sizes[..], &mut squares);
            arch().dispatch(Measure {
                rows,
                range: first..last,
                centres,
                measured,
                sizes,
                squares,
            });
        }
        ((sizes, squares), digests)
    });
    let (found, digests): (Vec<_>, Vec<_>) = found.collect::<Vec<_>>().into_iter().unzip();
    let digest = digested.then(|| join_digests(digests.into_iter().flatten()));
    let (sizes, squares) = joined(found, n_cols);
    ColumnStats { sizes, squares, digest }
}

/// Updates the sizes of the columns, and the distances of the rows if these are measured, with some dense rows.
struct Measure<'k, 'r, R> {
    rows: &'k Dense<'r, R>,
    range: Range<usize>,
    centres: &'k [f64],
    measured: Option<(&'k [f64], &'k [f64])>,
    sizes: &'k mut [f64],
    squares: &'k mut Squares,
}

impl<R: Real> WithSimd for Measure<'_, '_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { rows, range, centres, measured, sizes, squares } = self;
        for row in range {
            // Without bounds checks, the compiler vectorises over the columns.
            for ((size, x), centre) in sizes.iter_mut().zip(rows.row(row)).zip(centres) {
                *size = larger_or_nan(*size, (x.widen() - centre).abs());
            }
            if let Some((centre, weights)) = measured {
                squares.add(weights[row], squared_distance(rows.row(row), centre));
            }
        }
    }
}

/// Reads sparse rows; their centre is 0.
fn sparse<R: Real>(rows: &Csr<'_, R>, measured: Option<(&[f64], &[f64])>) -> ColumnStats {
    let found = parts(rows.n_rows()).into_par_iter().map(|range| {
        let (mut sizes, mut squares) = (vec![0.0; rows.n_cols()], Squares::default());
        for row in range {
            let mut square = 0.0;
            rows.visit_row(row, |column, value| {
                sizes[column] = larger_or_nan(sizes[column], value.abs());
                square += value * value;
            });
            if let Some((_, weights)) = measured {
                squares.add(weights[row], square);
            }
        }
        (sizes, squares)
    });
    let (sizes, squares) = joined(found.collect(), rows.n_cols());
    ColumnStats { sizes, squares, digest: None }
}

/// Joins the results of different parts of the rows: the elementwise maximum of the column sizes (NaN if one of them is
/// NaN), and the sum and the maximum of the squared distances.
fn joined(found: Vec<(Vec<f64>, Squares)>, n_cols: usize) -> (Vec<f64>, Squares) {
    let mut found = found.into_iter();
    let (mut sizes, mut squares) =
        found.next().unwrap_or_else(|| (vec![0.0; n_cols], Squares::default()));
    for (other, own) in found {
        sizes.iter_mut().zip(other).for_each(|(a, b)| *a = larger_or_nan(*a, b));
        squares.sum += own.sum;
        squares.largest = squares.largest.max(own.largest);
    }
    (sizes, squares)
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn one_pass_gives_sizes_and_the_digest_on_any_number_of_threads() {
        let n_cols = 37;
        for n_rows in [0, 1, 443, 30_000] {
            let mut values = Array2::from_shape_fn((n_rows, n_cols), |(row, column)| {
                ((row * 7919 + column * 31) % 1000) as f64 - 500.0
            });
            if n_rows > 100 {
                values[[n_rows - 2, 3]] = f64::NAN;
                values[[17, 4]] = f64::NEG_INFINITY;
            }
            let data = Data::Dense64(Dense::new(values.view()).unwrap());
            let expected = data.digest(&mut || Ok::<_, ()>(())).unwrap();
            let centre: Vec<f64> = (0..n_cols).map(|column| column as f64).collect();
            let weights: Vec<f64> = (0..n_rows).map(|row| (row % 3) as f64).collect();
            let mut squares = Squares::default();
            for (row, weight) in values.rows().into_iter().zip(&weights) {
                let square = row.iter().zip(&centre).map(|(x, c)| (x - c).powi(2)).sum::<f64>();
                squares.add(*weight, square);
            }
            for n_threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                let found = pool.install(|| ColumnStats::of(data, Some((&centre, &weights)), true));
                assert_eq!(found.digest, Some(expected));
                let close = |own: f64, other: f64| {
                    own == other
                        || (own - other).abs() <= 1e-12 * other
                        || other.is_nan() && own.is_nan()
                };
                assert!(close(found.squares.sum, squares.sum), "{:?} {squares:?}", found.squares);
                assert!(close(found.squares.largest, squares.largest));
                assert_eq!(pool.install(|| data.parallel_digest()), Some(expected));
                for (column, size) in found.sizes.iter().enumerate() {
                    let own = values.column(column);
                    let largest = own.iter().fold(0.0, |most, x| larger_or_nan(most, x.abs()));
                    assert!(*size == largest || size.is_nan() && largest.is_nan(), "{column}");
                }
            }
            assert_eq!(ColumnStats::of(data, None, false).digest, None);
        }
    }
}
