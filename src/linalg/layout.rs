//! Memory layout: buffers aligned to cache lines, and transposed copies of matrices.

use std::ops::{Deref, DerefMut};

use crate::data::Real;

/// Size of a cache line in bytes. The widest vectors have the same size; unaligned vectors cross
/// two lines.
const LINE: usize = 64;

/// A buffer aligned to a cache line.
#[derive(Debug)]
pub(crate) struct Aligned<T> {
    values: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Real> Aligned<T> {
    /// A buffer of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let values = vec![T::zero(); len + LINE / size_of::<T>()];
        let start = values.as_ptr().align_offset(LINE).min(values.len() - len);
        Self { values, start, len }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.start..self.start + self.len]
    }
}

/// Number of rows copied together. Their values fill a few cache lines in a row of the result, and
/// the lines that they are read from stay in the first-level cache for the following rows.
const ROWS_PER_COPY: usize = 32;
/// Number of rows and columns that are transposed in registers.
const TILE: usize = 4;

/// Writes column j of `from` to row j of `to`. Rows begin `from_stride` and `to_stride` values apart, both positive. The
/// last row of each may be shorter, but each row of `from` has at least one value per row of `to`, and vice versa. Other
/// values of `to` are unchanged.
pub(crate) fn transpose<A: Real, B: Real>(
    from: &[A],
    from_stride: usize,
    to: &mut [B],
    to_stride: usize,
) {
    let (n_rows, n_columns) = (from.len().div_ceil(from_stride), to.len().div_ceil(to_stride));
    for first in (0..n_rows).step_by(ROWS_PER_COPY) {
        let end = (first + ROWS_PER_COPY).min(n_rows);
        let tiled = end - (end - first) % TILE;
        let mut column = 0;
        while column + TILE <= n_columns {
            for row in (first..tiled).step_by(TILE) {
                let from = &from[row * from_stride + column..];
                transpose_tile(from, from_stride, &mut to[column * to_stride + row..], to_stride);
            }
            column += TILE;
        }
        for row in first..end {
            let rest = if row < tiled { column } else { 0 };
            for column in rest..n_columns {
                to[column * to_stride + row] = B::narrow(from[row * from_stride + column].widen());
            }
        }
    }
}

/// Transposes [`TILE`] rows and columns.
#[inline(always)]
fn transpose_tile<A: Real, B: Real>(
    from: &[A],
    from_stride: usize,
    to: &mut [B],
    to_stride: usize,
) {
    let tile: [[A; TILE]; TILE] = std::array::from_fn(|row| {
        let row = &from[row * from_stride..][..TILE];
        std::array::from_fn(|at| row[at])
    });
    for at in 0..TILE {
        let to = &mut to[at * to_stride..][..TILE];
        for (to, row) in to.iter_mut().zip(&tile) {
            *to = B::narrow(row[at].widen());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(n_rows: usize, n_cols: usize, padding: usize) {
        let (from_stride, to_stride) = (n_cols + padding, n_rows + padding);
        let from: Vec<f32> = (0..n_rows * from_stride).map(|i| i as f32).collect();
        let mut to = vec![-1.0; n_cols * to_stride];
        transpose(&from, from_stride, &mut to, to_stride);
        for (column, row) in to.chunks_exact(to_stride).enumerate() {
            for (at, value) in row.iter().enumerate() {
                let expected = if at < n_rows { (at * from_stride + column) as f64 } else { -1.0 };
                assert_eq!(*value, expected, "{n_rows} x {n_cols}, {column}, {at}");
            }
        }
        // Also transposes only the columns from index `half` on.
        let half = n_cols / 2;
        let mut some = vec![0.0; n_rows * (n_cols - half)];
        transpose(&from[half..], from_stride, &mut some, n_rows);
        let known = to[half * to_stride..].chunks_exact(to_stride).flat_map(|row| &row[..n_rows]);
        assert!(known.eq(&some));
    }

    #[test]
    fn rows_and_columns_are_exchanged() {
        for n_rows in [1, 2, 31, 32, 33, 100] {
            for n_cols in [1, 7, 32, 65] {
                check(n_rows, n_cols, 0);
                check(n_rows, n_cols, 3);
            }
        }
    }
}
