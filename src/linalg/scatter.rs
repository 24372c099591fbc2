use pulp::Simd;

use super::SparseRows;
use super::{Element, Kernel, Lane};

/// Bytes of one class in a tile of columns: the tile of a hundred classes stays in the first-level cache.
const TILE_BYTES: usize = 256;

/// Columns of a tile.
pub(crate) const fn tile<T>() -> usize {
    TILE_BYTES / size_of::<T>()
}

/// An element in which images can be summed, be it over a span of rows only.
pub(crate) trait Summable: Element {
    /// The image itself, if it has this precision.
    fn in_place(image: &mut [f64]) -> Option<&mut [Self]>;
}

impl Summable for f32 {
    fn in_place(_: &mut [f64]) -> Option<&mut [Self]> {
        None
    }
}

impl Summable for f64 {
    fn in_place(image: &mut [f64]) -> Option<&mut [Self]> {
        Some(image)
    }
}

/// image\[class\]\[column\] += Σ_i δ_i\[class\] · rows\[i\]\[first_col + column\] for a tile of columns, row
/// by row, `image` holding `stride` columns of each class.
pub(crate) fn scatter<T: Element>(
    rows: &[T],
    n_cols: usize,
    first_col: usize,
    duals: &SparseRows,
    image: &mut [T],
    stride: usize,
) {
    T::dispatch(Scatter { rows, n_cols, first_col, duals, image, stride });
}

struct Scatter<'a, T> {
    rows: &'a [T],
    n_cols: usize,
    first_col: usize,
    duals: &'a SparseRows,
    image: &'a mut [T],
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
        for (index, (row, dual)) in rows.chunks_exact(n_cols).zip(duals.rows()).enumerate() {
            prefetch::<T>(rows, (index + AHEAD) * n_cols + first_col);
            let row = &row[first_col..first_col + width];
            if width == tile::<T>() {
                match T::LANES * size_of::<T>() {
                    64 => add_tile::<S, T, { TILE_BYTES / 64 }>(simd, row, dual, image),
                    32 => add_tile::<S, T, { TILE_BYTES / 32 }>(simd, row, dual, image),
                    _ => add_narrow(row, dual, image, stride),
                }
            } else {
                add_narrow(row, dual, image, stride);
            }
        }
    }
}

/// Rows between the one at work and the one being fetched.
const AHEAD: usize = 8;

/// Asks for a tile of values from `start` on: rows lie too far apart for the processor to foresee them
/// (measured: a tenth of an iteration on two threads, whose caches each hold half of the rows).
#[inline(always)]
fn prefetch<T>(rows: &[T], start: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..=TILE_BYTES / 64 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        if let Some(value) = rows.get(start + line * 64 / size_of::<T>()) {
            // SAFETY: a prefetch reads nothing, and the address is that of a value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (rows, start);
}

/// A tile of V vectors, which stay in registers for all classes.
#[inline(always)]
fn add_tile<S: Simd, T: Lane<S> + Element, const V: usize>(
    simd: S,
    row: &[T],
    dual: &[(u32, f64)],
    image: &mut [T],
) {
    let Some(values) = T::vectors(row).0.first_chunk::<V>() else { return };
    let values = *values;
    for &(class, coefficient) in dual {
        let coefficient = T::splat(simd, T::narrow(coefficient));
        let sums = &mut image[class as usize * tile::<T>()..][..tile::<T>()];
        for (sum, value) in T::vectors_mut(sums).0.iter_mut().zip(values) {
            *sum = T::fused(simd, coefficient, value, *sum);
        }
    }
}

/// The last tile, and the only one of rows that are shorter than a tile.
#[inline(always)]
fn add_narrow<T: Element>(row: &[T], dual: &[(u32, f64)], image: &mut [T], stride: usize) {
    for &(class, coefficient) in dual {
        let coefficient = T::narrow(coefficient);
        for (sum, x) in image[class as usize * stride..].iter_mut().zip(row) {
            *sum = *sum + coefficient * *x;
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
        let mut image = vec![T::one(); 2 * stride];
        scatter(&rows, n_cols, first_col, &duals, &mut image, stride);
        for offset in 0..stride {
            let x = |row: usize| match first_col + offset {
                col if col < n_cols => rows[row * n_cols + col].widen(),
                _ => 0.0,
            };
            assert_eq!(image[offset].widen(), 1.0 - 2.0 * x(0));
            assert_eq!(image[stride + offset].widen(), 1.0 + 0.5 * x(0) + x(2));
        }
    }

    #[test]
    fn sums_weighted_rows_for_every_remainder() {
        for (n_cols, first_col, stride) in
            [(1, 0, 2), (9, 2, 9), (128, 64, 64), (40, 32, 32), (32, 32, 32), (97, 64, 64)]
        {
            check::<f32>(n_cols, first_col, stride);
            check::<f64>(n_cols, first_col, stride);
        }
    }
}
