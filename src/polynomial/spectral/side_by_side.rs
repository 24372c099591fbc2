//! Interleaved vectors of equal length: entry i of vector j is at index i · `width` + j. One pass over sparse rows then
//! multiplies all of them.

use crate::error::Result;
use crate::linalg::vectors::{PIECE_VALUES, random_unit};
use crate::parallel::{for_items, map_items, min_len};

/// Number of vectors that are multiplied together. Each row's entries are read once for all
/// vectors, and each entry needs only a few cache lines of the vectors.
pub(crate) const VECTORS_PER_PASS: usize = 32;

/// A function `product(owners, vectors)` that multiplies matrices by interleaved vectors. `owners`
/// has the index of the matrix for each vector.
pub(crate) type MatrixProducts<'a> = dyn FnMut(&[usize], &[f64]) -> Result<Vec<f64>> + 'a;

/// Random unit vectors, one for each seed.
pub(super) fn random_units(size: usize, seeds: &[u64]) -> Vec<f64> {
    interleaved(&map_items(seeds, 1, |seed| random_unit(size, *seed)))
}

/// Interleaves separate vectors.
pub(super) fn interleaved(vectors: &[Vec<f64>]) -> Vec<f64> {
    let size = vectors.first().map_or(0, Vec::len);
    (0..size).flat_map(|i| vectors.iter().map(move |vector| vector[i])).collect()
}

/// Returns ⟨a_j, b_j⟩ for each j, summed in pieces that do not depend on the number of threads.
pub(super) fn dots(a: &[f64], b: &[f64], width: usize) -> Vec<f64> {
    let piece = piece(width);
    let sums = map_items(a.chunks(piece).zip(b.chunks(piece)), min_len(piece), |(a, b)| {
        let mut sums = vec![0.0; width];
        for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                *sum += a * b;
            }
        }
        sums
    });
    let mut total = vec![0.0; width];
    for sums in sums {
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
    total
}

/// Sets y_j = f(x_j, y_j, factors of vector j), entry by entry.
pub(super) fn change<const N: usize>(
    y: &mut [f64],
    x: &[f64],
    factors: &[[f64; N]],
    f: impl Fn(f64, f64, &[f64; N]) -> f64 + Sync,
) {
    let width = factors.len();
    let piece = piece(width);
    for_items(y.chunks_mut(piece).zip(x.chunks(piece)), min_len(piece), |(y, x)| {
        for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            for ((y, x), factors) in y.iter_mut().zip(x).zip(factors) {
                *y = f(*x, *y, factors);
            }
        }
    });
}

/// Keeps only the vectors marked in `keep`.
pub(super) fn kept(vectors: &[f64], keep: &[bool]) -> Vec<f64> {
    let rows = vectors.chunks_exact(keep.len().max(1));
    rows.flat_map(|row| row.iter().zip(keep).filter(|(_, keep)| **keep).map(|(v, _)| *v)).collect()
}

/// Number of values per piece: about [`PIECE_VALUES`], rounded to a multiple of `width`.
fn piece(width: usize) -> usize {
    (PIECE_VALUES / width).max(1) * width
}
