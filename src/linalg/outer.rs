//! Sums of outer products of rows, C += Σ_k a_k b_kᵀ, computed in tiles that stay in registers.

use pulp::Simd;

use super::{Kernel, Lane};
use crate::parallel::for_items;

/// Rows of all three matrices are padded to a multiple of this many values, the width of the widest
/// vector of any processor.
pub(crate) const PADDING: usize = 8;
/// Number of vectors in each row of a tile.
const VECTORS: usize = 3;
/// Number of rows in a tile.
const ROWS: usize = 4;
/// Number of rows of C that one task updates.
const BAND: usize = 64;

/// A matrix stored row by row, with rows `stride` values apart; `stride` is a multiple of
/// [`PADDING`].
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    /// The values.
    pub values: &'a [f64],
    /// Distance between the starts of successive rows.
    pub stride: usize,
}

/// Adds Σ_k a_k b_kᵀ to some rows of the lower triangle of C, beginning with row `first`. Each row
/// is updated up to the diagonal and at most a tile beyond it. `c` holds only these `n_rows` rows,
/// `stride` values apart.
pub(crate) fn add_lower_products(
    c: &mut [f64],
    stride: usize,
    (n_rows, first): (usize, usize),
    a: Strided<'_>,
    b: Strided<'_>,
) {
    use super::Element;
    f64::dispatch(Products { c, stride, n_rows, first, a, b });
}

/// Adds Σ_k a_k a_kᵀ to the lower triangle of C, whose rows are `stride` apart; works in parallel over bands of rows.
pub(crate) fn add_lower_gram(c: &mut [f64], stride: usize, a: Strided<'_>) {
    for_items(c.chunks_mut(BAND * stride).enumerate(), 1, |(band, c)| {
        add_lower_products(c, stride, (c.len() / stride, band * BAND), a, a);
    });
}

struct Products<'a> {
    c: &'a mut [f64],
    stride: usize,
    n_rows: usize,
    first: usize,
    a: Strided<'a>,
    b: Strided<'a>,
}

impl Kernel<f64> for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        f64: Lane<S>,
    {
        let Self { c, stride, n_rows, first, a, b } = self;
        let mut row = 0;
        while row < n_rows {
            let rows = (n_rows - row).min(ROWS);
            let n_cols = (first + row + rows).min(b.stride).min(stride);
            let n_vectors = n_cols.div_ceil(S::F64_LANES);
            let mut vector = 0;
            while vector < n_vectors {
                let at = (first, row, vector * S::F64_LANES);
                match (rows, n_vectors - vector) {
                    (ROWS, 1) => tile::<S, ROWS, 1>(simd, c, stride, at, a, b),
                    (ROWS, 2) => tile::<S, ROWS, 2>(simd, c, stride, at, a, b),
                    (ROWS, _) => tile::<S, ROWS, VECTORS>(simd, c, stride, at, a, b),
                    (_, left) => {
                        for own in row..row + rows {
                            let at = (first, own, at.2);
                            match left {
                                1 => tile::<S, 1, 1>(simd, c, stride, at, a, b),
                                2 => tile::<S, 1, 2>(simd, c, stride, at, a, b),
                                _ => tile::<S, 1, VECTORS>(simd, c, stride, at, a, b),
                            }
                        }
                    }
                }
                vector += VECTORS;
            }
            row += rows;
        }
    }
}

/// Updates one tile of R rows and V vectors of columns.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    c: &mut [f64],
    stride: usize,
    (first, row, column): (usize, usize, usize),
    a: Strided<'_>,
    b: Strided<'_>,
) {
    let width = V * S::F64_LANES;
    let mut sums = [[simd.splat_f64s(0.0); V]; R];
    let pairs = a.values.chunks_exact(a.stride).zip(b.values.chunks_exact(b.stride));
    for (a, b) in pairs {
        let vectors = S::as_simd_f64s(&b[column..column + width]).0;
        let Some(vectors) = vectors.first_chunk::<V>() else { return };
        for (sums, a) in sums.iter_mut().zip(&a[first + row..first + row + R]) {
            let a = simd.splat_f64s(*a);
            for (sum, b) in sums.iter_mut().zip(vectors) {
                *sum = simd.mul_add_e_f64s(a, *b, *sum);
            }
        }
    }
    for (own, sums) in sums.iter().enumerate() {
        let c = &mut c[(row + own) * stride + column..][..width];
        for (c, sum) in S::as_mut_simd_f64s(c).0.iter_mut().zip(sums) {
            *c = simd.add_f64s(*c, *sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_triangle_of_any_size_is_summed() {
        for n in [1_usize, 3, 4, 7, 8, 23, 24, 33, 61] {
            let (n_rows, stride) = (5, n.next_multiple_of(PADDING));
            let value = |row: usize, column: usize| ((row * 31 + column * 7) % 13) as f64 - 6.0;
            let mut a = vec![0.0; n_rows * stride];
            let mut b = a.clone();
            for k in 0..n_rows {
                for at in 0..n {
                    (a[k * stride + at], b[k * stride + at]) = (value(k, at), value(k + 9, at));
                }
            }
            let mut c = vec![1.0; n * stride];
            let [a, b] = [&a, &b].map(|values| Strided { values, stride });
            for (block, c) in c.chunks_mut(20 * stride).enumerate() {
                add_lower_products(c, stride, (c.len() / stride, 20 * block), a, b);
            }
            for row in 0..n {
                for column in 0..=row {
                    let sum: f64 = (0..n_rows).map(|k| value(k, row) * value(k + 9, column)).sum();
                    assert_eq!(c[row * stride + column], 1.0 + sum, "{n}: {row}, {column}");
                }
            }
        }
    }
}
