//! Register tiles of the inner loops: products of a few rows of coefficients with the blocks of a few partners.
//!
//! Blocks are long, and every output uses them. Processing one output after another would read each
//! block once per output. A tile keeps its sums in registers and reads each block once for up to
//! [`OUTPUTS`] outputs.

use pulp::Simd;

/// Number of outputs per tile.
pub(super) const OUTPUTS: usize = 4;

/// Number of partners per tile.
pub(super) const PARTNERS: usize = 4;

/// Returns the inner products ⟨left_c, right_n⟩, indexed by c, then by n. All slices are padded and have the same
/// length.
#[inline(always)]
pub(super) fn dots<S: Simd, const M: usize>(
    simd: S,
    left: [&[f64]; M],
    right: [&[f64]; PARTNERS],
) -> [[f64; PARTNERS]; M] {
    let mut totals = [[0.0; PARTNERS]; M];
    if S::REGISTER_COUNT >= 32 {
        write_dots::<S, M, PARTNERS>(simd, left, right, &mut totals, 0);
    } else {
        // With 16 registers, the sums for all partners would be kept in memory.
        let [a, b, c, d] = right;
        write_dots(simd, left, [a, b], &mut totals, 0);
        write_dots(simd, left, [c, d], &mut totals, 2);
    }
    totals
}

/// Writes the inner products of N partners, the first of which has the index `first`.
#[inline(always)]
fn write_dots<S: Simd, const M: usize, const N: usize>(
    simd: S,
    left: [&[f64]; M],
    right: [&[f64]; N],
    totals: &mut [[f64; PARTNERS]; M],
    first: usize,
) {
    // These are plain loops because a closure that is not inlined would be compiled without vector
    // instructions.
    let length = S::as_simd_f64s(right[0]).0.len();
    let (mut wide_left, mut wide_right) = ([&[][..]; M], [&[][..]; N]);
    for (wide, row) in wide_left.iter_mut().zip(left) {
        *wide = &S::as_simd_f64s(row).0[..length];
    }
    for (wide, row) in wide_right.iter_mut().zip(right) {
        *wide = &S::as_simd_f64s(row).0[..length];
    }
    let mut sums = [[simd.splat_f64s(0.0); N]; M];
    for at in 0..length {
        for n in 0..N {
            let value = wide_right[n][at];
            for c in 0..M {
                sums[c][n] = simd.mul_add_e_f64s(wide_left[c][at], value, sums[c][n]);
            }
        }
    }
    for c in 0..M {
        for n in 0..N {
            totals[c][first + n] = simd.reduce_sum_f64s(sums[c][n]);
        }
    }
}

/// Adds Σ_n weights_cn · right_n to sums_c for each output c. All rows are padded and have the same
/// length.
#[inline(always)]
pub(super) fn add_weighted<S: Simd, const M: usize>(
    simd: S,
    sums: [&mut [f64]; M],
    weights: [&[f64]; M],
    right: &[&[f64]],
) {
    let length = S::as_simd_f64s(sums[0]).0.len();
    let mut at = 0;
    while at + 2 <= length {
        // Two vectors per output give enough independent chains to hide the latency of a
        // multiply-add.
        let mut wide = [[simd.splat_f64s(0.0); 2]; M];
        for c in 0..M {
            let row = S::as_simd_f64s(sums[c]).0;
            wide[c] = [row[at], row[at + 1]];
        }
        for (n, row) in right.iter().enumerate() {
            let row = S::as_simd_f64s(row).0;
            let (first, second) = (row[at], row[at + 1]);
            for c in 0..M {
                let weight = simd.splat_f64s(weights[c][n]);
                wide[c][0] = simd.mul_add_e_f64s(weight, first, wide[c][0]);
                wide[c][1] = simd.mul_add_e_f64s(weight, second, wide[c][1]);
            }
        }
        for c in 0..M {
            let row = S::as_mut_simd_f64s(sums[c]).0;
            [row[at], row[at + 1]] = wide[c];
        }
        at += 2;
    }
    if at < length {
        for c in 0..M {
            let row = &mut S::as_mut_simd_f64s(sums[c]).0[at];
            for (n, right) in right.iter().enumerate() {
                let weight = simd.splat_f64s(weights[c][n]);
                *row = simd.mul_add_e_f64s(weight, S::as_simd_f64s(right).0[at], *row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::linalg::arch;

    const LENGTH: usize = 24;

    fn row(seed: usize) -> Vec<f64> {
        (0..LENGTH).map(|at| ((seed * 31 + at * 17) % 13) as f64 - 6.0).collect()
    }

    fn plain(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    struct Tiles {
        left: Vec<Vec<f64>>,
        right: Vec<Vec<f64>>,
    }

    impl WithSimd for Tiles {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self { left, right } = &self;
            let found = dots(
                simd,
                [&left[0], &left[1], &left[2], &left[3]],
                [&right[0], &right[1], &right[2], &right[3]],
            );
            for (c, sums) in found.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    assert_eq!(*sum, plain(&left[c], &right[n]), "small integers are exact");
                }
            }
            for length in [8, 16, LENGTH] {
                let (mut first, mut second) = (vec![1.0; length], vec![2.0; length]);
                let rows: Vec<&[f64]> = right.iter().map(|row| &row[..length]).collect();
                let weights: [&[f64]; 2] = [&[1.0, 2.0, 3.0, 4.0], &[0.0, -1.0, 0.5, 2.0]];
                add_weighted(simd, [&mut first, &mut second], weights, &rows);
                for at in 0..length {
                    let column: Vec<f64> = rows.iter().map(|row| row[at]).collect();
                    assert_eq!(first[at], 1.0 + plain(weights[0], &column));
                    assert_eq!(second[at], 2.0 + plain(weights[1], &column));
                }
            }
        }
    }

    #[test]
    fn tiles_are_sums_of_products() {
        let rows = |from: usize| (from..from + 4).map(row).collect::<Vec<_>>();
        arch().dispatch(Tiles { left: rows(0), right: rows(4) });
    }
}
