//! Row norms, finiteness and digest, computed in one pass over the rows before a fit.

use super::map::RowSize;
use crate::data::{Csr, Data, Dense, Real, Rows, join_digests};
use crate::parallel::{for_items, map_items, min_len};

/// Number of parallel sums. With a single sum, each addition would wait for the previous addition.
const LANES: usize = 8;

/// Number of sparse rows in one item of a parallel loop.
const PIECE_ROWS: usize = 256;

/// Row norms, finiteness and digest, computed in one pass.
pub(super) struct RowStats {
    /// The size of each row.
    pub sizes: Vec<RowSize>,
    /// Index of the first row with a number that is not finite.
    pub broken: Option<usize>,
    /// [`Data::digest`] of dense rows before this pass, if requested.
    pub digest: Option<u64>,
}

impl RowStats {
    /// Computes the statistics of rows, including a constant feature unless it is 0.
    pub fn of(data: &Data<'_>, bias: f64, digested: bool) -> Self {
        let mut sizes = vec![(RowSize::of(0.0, 0.0, 0), true); data.n_rows()];
        let digest = match data {
            Data::Dense16(rows) => read_dense(rows, bias, digested, &mut sizes),
            Data::Dense32(rows) => read_dense(rows, bias, digested, &mut sizes),
            Data::Dense64(rows) => read_dense(rows, bias, digested, &mut sizes),
            Data::Csr32(rows) => read_sparse(rows, bias, &mut sizes),
            Data::Csr64(rows) => read_sparse(rows, bias, &mut sizes),
        };
        let broken = sizes.iter().position(|(_, finite)| !finite);
        Self { sizes: sizes.into_iter().map(|(size, _)| size).collect(), broken, digest }
    }
}

/// Reads dense rows. The digest of each piece is computed before the sizes of its rows, so a later check of the digest
/// detects any change of the data in between. Computing the digest also loads the piece into the cache.
fn read_dense<R: Real>(
    rows: &Dense<'_, R>,
    bias: f64,
    digested: bool,
    sizes: &mut [(RowSize, bool)],
) -> Option<u64> {
    let piece = rows.piece();
    let (pieces, min_len) = (sizes.chunks_mut(piece).enumerate(), min_len(piece * rows.n_cols()));
    let digests: Vec<Option<u64>> = map_items(pieces, min_len, |(index, sizes)| {
        let first = index * piece;
        let digest = digested.then(|| rows.digest_of(first, first + sizes.len()));
        (first..).zip(sizes).for_each(|(row, size)| *size = measure(rows.row(row), bias));
        digest
    });
    digested.then(|| join_digests(digests.into_iter().flatten()))
}

fn read_sparse<R: Real>(
    rows: &Csr<'_, R>,
    bias: f64,
    sizes: &mut [(RowSize, bool)],
) -> Option<u64> {
    let n_numbers = PIECE_ROWS * (rows.n_stored() / sizes.len().max(1));
    for_items(sizes.chunks_mut(PIECE_ROWS).enumerate(), min_len(n_numbers), |(piece, sizes)| {
        let rows = (piece * PIECE_ROWS..).map(|row| rows.row(row).1);
        sizes.iter_mut().zip(rows).for_each(|(size, row)| *size = measure(row, bias));
    });
    None
}

/// The size of a row including the constant feature, and whether all its numbers are finite.
fn measure<R: Real>(row: &[R], bias: f64) -> (RowSize, bool) {
    let n_values = row.len() + usize::from(bias != 0.0);
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for values in whole {
        for (sum, value) in sums.iter_mut().zip(values) {
            let value = value.widen();
            *sum += value * value;
        }
    }
    let rest: f64 = rest.iter().map(|value| value.widen().powi(2)).sum();
    let square = sums.into_iter().sum::<f64>() + rest + bias * bias;
    if square.is_finite() && square > RowSize::UNDERFLOWN {
        return (RowSize::of(square, 0.0, n_values), true);
    }
    let largest = row.iter().fold(bias.abs(), |largest, value| largest.max(value.widen().abs()));
    let finite = row.iter().all(|value| value.is_finite());
    (RowSize::of(square, largest, n_values), finite)
}

#[cfg(test)]
mod tests {
    use ndarray::ArrayView2;

    use super::*;

    const N_COLS: usize = 37;

    fn number(place: usize) -> f64 {
        if place.is_multiple_of(5) { 0.0 } else { ((place * 7919) % 1000) as f64 / 64.0 - 7.0 }
    }

    fn dense(values: &[f64]) -> Data<'_> {
        let view = ArrayView2::from_shape((values.len() / N_COLS, N_COLS), values).unwrap();
        Data::Dense64(Dense::new(view).unwrap())
    }

    #[test]
    fn stats_hold_the_digest_and_the_norms_of_the_rows() {
        let values: Vec<f64> = (0..5000 * N_COLS).map(number).collect();
        let data = dense(&values);
        let stats = RowStats::of(&data, 0.5, true);
        assert_eq!(stats.digest, Some(data.digest(&mut || Ok::<_, ()>(())).unwrap()));
        assert_eq!((stats.broken, stats.sizes.len()), (None, 5000));
        for (row, size) in values.chunks_exact(N_COLS).zip(&stats.sizes) {
            let norm = (row.iter().map(|x| x * x).sum::<f64>() + 0.25).sqrt();
            assert!(size.norm >= norm && size.norm <= norm * (1.0 + 1e-12));
            assert_eq!((size.n_values, size.n_products), (N_COLS + 1, N_COLS + 1));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(|| RowStats::of(&data, 0.5, true)).digest, stats.digest);
    }

    #[test]
    fn the_first_row_that_is_not_finite_is_found() {
        for broken in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut values: Vec<f64> = (0..5000 * N_COLS).map(number).collect();
            values[3 * N_COLS] = 1e300;
            assert_eq!(RowStats::of(&dense(&values), 0.0, false).broken, None);
            values[4100 * N_COLS + 11] = broken;
            values[77 * N_COLS + 36] = broken;
            assert_eq!(RowStats::of(&dense(&values), 0.0, false).broken, Some(77));
            let values = [1.0, broken];
            let data = Csr::new(&[0, 1, 2], &[0, 1], &values, 3).unwrap();
            assert_eq!(RowStats::of(&Data::Csr64(data), 1.0, false).broken, Some(1));
        }
    }

    #[test]
    fn norms_of_small_values_are_not_lost_to_underflow() {
        let values = vec![1e-170; N_COLS];
        let size = RowStats::of(&dense(&values), 0.0, false).sizes[0];
        assert!(size.norm >= 1e-170 * (N_COLS as f64).sqrt());
        assert_eq!(RowStats::of(&dense(&[0.0; N_COLS]), 0.0, false).sizes[0].norm, 0.0);
    }
}
