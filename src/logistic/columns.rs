//! The largest absolute value of each column and the digest of the rows, computed in one pass.

use rayon::prelude::*;

use crate::data::{Csr, Data, Dense, Real, Rows, join_digests};
use crate::linalg::vectors::larger_or_nan;
use crate::parallel::{min_len, parts};

/// Maximum number of partial results, each with one size per column, that are combined at the end.
const PARTS: usize = 16;

/// Sizes of columns, and a digest.
pub(super) struct ColumnStats {
    /// The largest absolute value of each column; NaN if the column contains NaN.
    pub sizes: Vec<f64>,
    /// [`Data::digest`] of dense rows before this pass, if requested.
    pub digest: Option<u64>,
}

impl ColumnStats {
    /// Reads rows once.
    pub fn of(rows: Data<'_>, digested: bool) -> Self {
        Self::centred(rows, &vec![0.0; rows.n_cols()], digested)
    }

    /// Reads rows once, and subtracts a number from each column's values if the rows are dense.
    pub fn centred(rows: Data<'_>, centres: &[f64], digested: bool) -> Self {
        match rows {
            Data::Dense16(rows) => dense(&rows, centres, digested),
            Data::Dense32(rows) => dense(&rows, centres, digested),
            Data::Dense64(rows) => dense(&rows, centres, digested),
            Data::Csr32(rows) => sparse(&rows),
            Data::Csr64(rows) => sparse(&rows),
        }
    }
}

/// Reads dense rows. The digest of each piece is computed first: it then detects later changes, and
/// leaves the piece in the cache.
fn dense<R: Real>(rows: &Dense<'_, R>, centres: &[f64], digested: bool) -> ColumnStats {
    let (n_rows, n_cols, piece) = (rows.n_rows(), rows.n_cols(), rows.piece());
    let part = n_rows.div_ceil(piece).div_ceil(PARTS).max(1) * piece;
    let n_parts = n_rows.div_ceil(part);
    let found = (0..n_parts).into_par_iter().with_min_len(min_len(part * n_cols)).map(|at| {
        let (mut sizes, mut digests) = (vec![0.0; n_cols], Vec::new());
        let end = n_rows.min((at + 1) * part);
        for first in (at * part..end).step_by(piece) {
            let last = end.min(first + piece);
            digests.extend(digested.then(|| rows.digest_of(first, last)));
            for row in first..last {
                // Without bounds checks, the compiler vectorises over the columns.
                for ((size, x), centre) in sizes.iter_mut().zip(rows.row(row)).zip(centres) {
                    *size = larger_or_nan(*size, (x.widen() - centre).abs());
                }
            }
        }
        (sizes, digests)
    });
    let (sizes, digests): (Vec<_>, Vec<_>) = found.collect::<Vec<_>>().into_iter().unzip();
    let digest = digested.then(|| join_digests(digests.into_iter().flatten()));
    ColumnStats { sizes: largest(sizes, n_cols), digest }
}

fn sparse<R: Real>(rows: &Csr<'_, R>) -> ColumnStats {
    let found = parts(rows.n_rows()).into_par_iter().map(|range| {
        let mut sizes = vec![0.0; rows.n_cols()];
        for row in range {
            rows.visit_row(row, |column, value| {
                sizes[column] = larger_or_nan(sizes[column], value.abs());
            });
        }
        sizes
    });
    ColumnStats { sizes: largest(found.collect(), rows.n_cols()), digest: None }
}

/// Returns the elementwise maximum of the column sizes that were found in different parts of the rows; NaN if one of
/// them is NaN.
fn largest(found: Vec<Vec<f64>>, n_cols: usize) -> Vec<f64> {
    let mut found = found.into_iter();
    let mut sizes = found.next().unwrap_or_else(|| vec![0.0; n_cols]);
    for other in found {
        sizes.iter_mut().zip(other).for_each(|(a, b)| *a = larger_or_nan(*a, b));
    }
    sizes
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
            for n_threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                let found = pool.install(|| ColumnStats::of(data, true));
                assert_eq!(found.digest, Some(expected));
                assert_eq!(pool.install(|| data.parallel_digest()), Some(expected));
                for (column, size) in found.sizes.iter().enumerate() {
                    let own = values.column(column);
                    let largest = own.iter().fold(0.0, |most, x| larger_or_nan(most, x.abs()));
                    assert!(*size == largest || size.is_nan() && largest.is_nan(), "{column}");
                }
            }
            assert_eq!(ColumnStats::of(data, false).digest, None);
        }
    }
}
