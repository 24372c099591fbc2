//! Reductions of several rows of numbers to one row, vectorised over the columns.

use std::array::from_fn;

use pulp::Simd;

use crate::data::Real;

/// Number of vectors that are accumulated in registers together. With this number, no operation waits for the
/// previous operation.
const VECTORS: usize = 4;

/// The largest number of doubles in a vector.
const MAX_LANES: usize = 8;

/// The operation for one row: `sum`\[j\] = op(`sum`\[j\], x, `row`\[j\]).
pub(crate) trait Reduction {
    /// The result for no rows.
    const EMPTY: f64;
    /// Accumulates one vector of values of a row.
    fn step<S: Simd>(simd: S, sum: S::f64s, x: S::f64s, row: S::f64s) -> S::f64s;
}

/// Accumulates Σ x row.
pub(crate) struct WeightedSum;

impl Reduction for WeightedSum {
    const EMPTY: f64 = 0.0;
    #[inline(always)]
    fn step<S: Simd>(simd: S, sum: S::f64s, x: S::f64s, row: S::f64s) -> S::f64s {
        simd.mul_add_e_f64s(x, row, sum)
    }
}

/// Accumulates the maximum of x + row.
pub(crate) struct Max;

impl Reduction for Max {
    const EMPTY: f64 = f64::NEG_INFINITY;
    #[inline(always)]
    fn step<S: Simd>(simd: S, sum: S::f64s, x: S::f64s, row: S::f64s) -> S::f64s {
        simd.max_f64s(sum, simd.add_f64s(x, row))
    }
}

/// Accumulates (x, row) pairs into `sums`, in double precision. A row may be longer than `sums`; its remaining
/// values are ignored.
#[inline(always)]
pub(crate) fn fold<'a, F: Reduction, S: Simd, T: Real>(
    simd: S,
    rows: impl Iterator<Item = (f64, &'a [T])> + Clone,
    sums: &mut [f64],
) {
    if sums.len() < S::F64_LANES {
        return short::<F, S, T>(simd, rows, sums);
    }
    let n_vectors = sums.len().div_ceil(S::F64_LANES);
    for first in (0..n_vectors).step_by(VECTORS) {
        match n_vectors - first {
            1 => stretch::<F, S, T, 1>(simd, first, rows.clone(), sums),
            2 => stretch::<F, S, T, 2>(simd, first, rows.clone(), sums),
            3 => stretch::<F, S, T, 3>(simd, first, rows.clone(), sums),
            _ => stretch::<F, S, T, VECTORS>(simd, first, rows.clone(), sums),
        }
    }
}

/// Accumulates N vectors of columns. The last vector overlaps the previous vector so that it is
/// full. Columns in both vectors are computed twice with the same result, which is faster than a
/// loop over single columns.
#[inline(always)]
fn stretch<'a, F: Reduction, S: Simd, T: Real, const N: usize>(
    simd: S,
    first: usize,
    rows: impl Iterator<Item = (f64, &'a [T])>,
    sums: &mut [f64],
) {
    let last = sums.len() - S::F64_LANES;
    let starts: [usize; N] = from_fn(|vector| ((first + vector) * S::F64_LANES).min(last));
    let mut folded = [simd.splat_f64s(F::EMPTY); N];
    for (x, row) in rows {
        let (x, row) = (simd.splat_f64s(x), &row[..sums.len()]);
        for (sum, start) in folded.iter_mut().zip(starts) {
            *sum = F::step(simd, *sum, x, load(simd, &row[start..]));
        }
    }
    for (sum, start) in folded.iter().zip(starts) {
        S::as_mut_simd_f64s(&mut sums[start..]).0[0] = *sum;
    }
}

/// Accumulates columns that do not fill a vector.
#[inline(always)]
fn short<'a, F: Reduction, S: Simd, T: Real>(
    simd: S,
    rows: impl Iterator<Item = (f64, &'a [T])>,
    sums: &mut [f64],
) {
    let mut folded = simd.splat_f64s(F::EMPTY);
    for (x, row) in rows {
        let row = load(simd, &row[..sums.len()]);
        folded = F::step(simd, folded, simd.splat_f64s(x), row);
    }
    simd.partial_store_f64s(sums, folded);
}

/// Loads the first values of a row, in double precision; further lanes are 0.
#[inline(always)]
fn load<S: Simd, T: Real>(simd: S, row: &[T]) -> S::f64s {
    if let Some(row) = T::doubles(row) {
        return match S::as_simd_f64s(row).0 {
            [vector, ..] => *vector,
            [] => simd.partial_load_f64s(row),
        };
    }
    let mut wide = [0.0; MAX_LANES];
    // With a constant length, the compiler converts a whole vector at once.
    let row = row.get(..S::F64_LANES).unwrap_or(row);
    wide.iter_mut().zip(row).for_each(|(wide, value)| *wide = value.widen());
    S::as_simd_f64s(&wide).0[0]
}
