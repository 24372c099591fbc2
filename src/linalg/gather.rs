use pulp::Simd;

use super::{Element, Kernel, Lane};

/// Vectors summed in registers at a time.
const VECTORS: usize = 8;
/// Widest stretch of columns in values: [`VECTORS`] of 16 single-precision lanes.
const WIDEST: usize = VECTORS * 16;

/// Adds Σ coefficient·rows\[row\]\[columns\] over the entries to `sum`, which is as long as the columns.
pub(crate) fn gather<T: Element>(
    rows: &[T],
    n_cols: usize,
    first_col: usize,
    entries: &[(u32, T)],
    sum: &mut [f64],
) {
    T::dispatch(Gather { rows, n_cols, first_col, entries, sum });
}

struct Gather<'a, T> {
    rows: &'a [T],
    n_cols: usize,
    first_col: usize,
    entries: &'a [(u32, T)],
    sum: &'a mut [f64],
}

impl<T: Element> Kernel<T> for Gather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let lanes = <T as Lane<S>>::LANES;
        let Self { rows, n_cols, first_col, entries, sum } = self;
        let mut done = 0;
        while done + VECTORS * lanes <= sum.len() {
            stretch::<S, T, VECTORS>(
                simd,
                rows,
                n_cols,
                first_col + done,
                entries,
                &mut sum[done..],
            );
            done += VECTORS * lanes;
        }
        while done + lanes <= sum.len() {
            stretch::<S, T, 1>(simd, rows, n_cols, first_col + done, entries, &mut sum[done..]);
            done += lanes;
        }
        for (offset, sum) in sum.iter_mut().enumerate().skip(done) {
            let mut total = T::zero();
            for &(row, coefficient) in entries {
                total =
                    coefficient.mul_add(rows[row as usize * n_cols + first_col + offset], total);
            }
            *sum += total.widen();
        }
    }
}

#[inline(always)]
fn stretch<S: Simd, T: Lane<S> + Element, const V: usize>(
    simd: S,
    rows: &[T],
    n_cols: usize,
    first_col: usize,
    entries: &[(u32, T)],
    sum: &mut [f64],
) {
    let width = V * <T as Lane<S>>::LANES;
    let mut totals = [T::splat(simd, T::zero()); V];
    for &(row, coefficient) in entries {
        let start = row as usize * n_cols + first_col;
        let (values, _) = T::vectors(&rows[start..start + width]);
        let coefficient = T::splat(simd, coefficient);
        for (total, value) in totals.iter_mut().zip(values) {
            *total = T::fused(simd, coefficient, *value, *total);
        }
    }
    let mut values = [T::zero(); WIDEST];
    for (slot, total) in T::vectors_mut(&mut values).0.iter_mut().zip(totals) {
        *slot = total;
    }
    for (sum, value) in sum[..width].iter_mut().zip(values) {
        *sum += value.widen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(n_cols: usize, first_col: usize, width: usize) {
        let rows: Vec<T> =
            (0..5 * n_cols).map(|i| T::narrow(((i * 37) % 19) as f64 / 4.0)).collect();
        let entries = [(3u32, T::narrow(0.5)), (0, T::narrow(-2.0)), (3, T::narrow(1.0))];
        let mut sum = vec![1.0; width];
        gather(&rows, n_cols, first_col, &entries, &mut sum);
        for (offset, sum) in sum.iter().enumerate() {
            let x = |row: usize| rows[row * n_cols + first_col + offset].widen();
            assert_eq!(*sum, 1.0 + 1.5 * x(3) - 2.0 * x(0));
        }
    }

    #[test]
    fn sums_weighted_rows_for_every_remainder() {
        for (n_cols, first_col, width) in [(1, 0, 1), (9, 2, 7), (64, 0, 64), (300, 3, 297)] {
            check::<f32>(n_cols, first_col, width);
            check::<f64>(n_cols, first_col, width);
        }
    }
}
