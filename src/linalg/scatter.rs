use pulp::Simd;

use super::{Element, Kernel, Lane};
use crate::features::SparseRows;

/// Columns of a tile: those of all classes stay in the first-level cache for a hundred classes.
pub(crate) const TILE: usize = 32;

/// image\[class\]\[column\] += Σ_i δ_i\[class\] · rows\[i\]\[first_col + column\] for a tile of columns, row
/// by row, `image` holding `stride` columns of each class.
pub(crate) fn scatter<T: Element>(
    rows: &[T],
    n_cols: usize,
    first_col: usize,
    duals: &SparseRows,
    image: &mut [f64],
    stride: usize,
) {
    T::dispatch(Scatter { rows, n_cols, first_col, duals, image, stride });
}

struct Scatter<'a, T> {
    rows: &'a [T],
    n_cols: usize,
    first_col: usize,
    duals: &'a SparseRows,
    image: &'a mut [f64],
    stride: usize,
}

impl<T: Element> Kernel<T> for Scatter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { rows, n_cols, first_col, duals, image, stride } = self;
        let width = stride.min(n_cols.saturating_sub(first_col));
        if width == 0 {
            return;
        }
        for (row, dual) in rows.chunks_exact(n_cols).zip(duals.rows()) {
            let row = &row[first_col..first_col + width];
            match row.try_into() {
                Ok(row) => add_tile(simd, row, dual, image),
                Err(_) => add_narrow(row, dual, image, stride),
            }
        }
    }
}

#[inline(always)]
fn add_tile<S: Simd, T: Element>(
    simd: S,
    row: &[T; TILE],
    dual: &[(usize, f64)],
    image: &mut [f64],
) {
    // A loop of known length becomes vector conversions.
    let mut values = [0.0; TILE];
    for (value, x) in values.iter_mut().zip(row) {
        *value = x.widen();
    }
    let (values, _) = <f64 as Lane<S>>::vectors(&values);
    for &(class, coefficient) in dual {
        let coefficient = f64::splat(simd, coefficient);
        let (sums, _) = <f64 as Lane<S>>::vectors_mut(&mut image[class * TILE..][..TILE]);
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = f64::fused(simd, coefficient, *value, *sum);
        }
    }
}

/// The last tile, and the only one of rows that are shorter than a tile.
#[inline(always)]
fn add_narrow<T: Element>(row: &[T], dual: &[(usize, f64)], image: &mut [f64], stride: usize) {
    for &(class, coefficient) in dual {
        for (sum, x) in image[class * stride..].iter_mut().zip(row) {
            *sum += coefficient * x.widen();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(n_cols: usize, first_col: usize, stride: usize) {
        let rows: Vec<T> =
            (0..3 * n_cols).map(|i| T::narrow(((i * 37) % 19) as f64 / 4.0)).collect();
        let mut duals = SparseRows::default();
        duals.push([(1, 0.5), (0, -2.0)]);
        duals.push([]);
        duals.push([(1, 1.0)]);
        let mut image = vec![1.0; 2 * stride];
        scatter(&rows, n_cols, first_col, &duals, &mut image, stride);
        for offset in 0..stride {
            let x = |row: usize| match first_col + offset {
                col if col < n_cols => rows[row * n_cols + col].widen(),
                _ => 0.0,
            };
            assert_eq!(image[offset], 1.0 - 2.0 * x(0));
            assert_eq!(image[stride + offset], 1.0 + 0.5 * x(0) + x(2));
        }
    }

    #[test]
    fn sums_weighted_rows_for_every_remainder() {
        for (n_cols, first_col, stride) in
            [(1, 0, 2), (9, 2, 9), (64, 32, 32), (40, 32, 32), (32, 32, 32)]
        {
            check::<f32>(n_cols, first_col, stride);
            check::<f64>(n_cols, first_col, stride);
        }
    }
}
