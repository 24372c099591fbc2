//! Products of blocks of rows, computed in registers. A block stores one line for each column: the values of all rows
//! in this column, side by side. Each lane of a vector therefore belongs to a different row, for any number of classes.

use pulp::Simd;

use crate::linalg::{Element, Kernel, Lane};

/// The number of rows of a block is a multiple of this: the number of rows in the widest tile at
/// the lowest precision.
pub(super) const GRAIN: usize = 128;

/// Writes S = U X: one line of `n_rows` scores for each line of `width` weights. X has one line for each of the `width`
/// columns.
pub(super) fn scores<T: Element>(
    (x, n_rows): (&[T], usize),
    (weights, width): (&[T], usize),
    scores: &mut [T],
) {
    T::dispatch(Scores { x, n_rows, weights, width, scores });
}

/// Adds D Xᵀ to G, which has a row of `stride` values for each line of D. `lower` skips tiles that lie entirely to the
/// right of the diagonal.
pub(super) fn add_products<T: Element>(
    (d, x, n_rows): (&[T], &[T], usize),
    (sums, stride): (&mut [f64], usize),
    lower: bool,
) {
    T::dispatch(Products { d, x, n_rows, sums, stride, lower });
}

struct Scores<'a, T> {
    x: &'a [T],
    n_rows: usize,
    weights: &'a [T],
    width: usize,
    scores: &'a mut [T],
}

/// Whether vectors have 64 bytes; there are then 32 vector registers.
#[inline(always)]
fn is_wide<S: Simd, T: Lane<S>>() -> bool {
    <T as Lane<S>>::LANES * size_of::<T>() >= 64
}

impl<T: Element> Kernel<T> for Scores<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let lanes = <T as Lane<S>>::LANES;
        let n_lines = self.weights.len() / self.width;
        let wide = is_wide::<S, T>();
        let vectors = match n_lines {
            1 => 8,
            _ if wide => 4,
            2 => 4,
            _ => 2,
        };
        let Self { x, n_rows, weights, width, scores } = self;
        for row in (0..n_rows).step_by(vectors * lanes) {
            let mut line = 0;
            while line < n_lines {
                let own = &weights[line * width..];
                let out = (&mut scores[line * n_rows..], row);
                let x = (x, n_rows);
                match (n_lines - line, vectors) {
                    (1, 8) => score_tile::<S, T, 1, 8>(simd, x, (own, width), out),
                    (1, 4) => score_tile::<S, T, 1, 4>(simd, x, (own, width), out),
                    (1, _) => score_tile::<S, T, 1, 2>(simd, x, (own, width), out),
                    (2, 4) => score_tile::<S, T, 2, 4>(simd, x, (own, width), out),
                    (2, _) => score_tile::<S, T, 2, 2>(simd, x, (own, width), out),
                    (3, 4) => score_tile::<S, T, 3, 4>(simd, x, (own, width), out),
                    (3, _) => score_tile::<S, T, 3, 2>(simd, x, (own, width), out),
                    (4, 4) => score_tile::<S, T, 4, 4>(simd, x, (own, width), out),
                    (4, _) => score_tile::<S, T, 4, 2>(simd, x, (own, width), out),
                    (5, 4) => score_tile::<S, T, 5, 4>(simd, x, (own, width), out),
                    (5, _) => score_tile::<S, T, 5, 2>(simd, x, (own, width), out),
                    (_, 4) => score_tile::<S, T, 6, 4>(simd, x, (own, width), out),
                    _ => score_tile::<S, T, 6, 2>(simd, x, (own, width), out),
                }
                line += 6;
            }
        }
    }
}

/// The scores of J lines of weights for the rows in V vectors, one row in each lane.
#[inline(always)]
fn score_tile<S: Simd, T: Lane<S>, const J: usize, const V: usize>(
    simd: S,
    (x, n_rows): (&[T], usize),
    (weights, width): (&[T], usize),
    (scores, row): (&mut [T], usize),
) {
    let span = V * <T as Lane<S>>::LANES;
    let mut sums = [[T::splat(simd, T::zero()); V]; J];
    let lines: [&[T]; J] = std::array::from_fn(|line| &weights[line * width..][..width]);
    for (column, x) in x.chunks_exact(n_rows).take(width).enumerate() {
        let Some(x) = T::vectors(&x[row..row + span]).0.first_chunk::<V>() else { return };
        for (sums, line) in sums.iter_mut().zip(&lines) {
            let weight = T::splat(simd, line[column]);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = T::fused(simd, *x, weight, *sum);
            }
        }
    }
    for (line, sums) in sums.iter().enumerate() {
        let out = T::vectors_mut(&mut scores[line * n_rows + row..][..span]).0;
        out.copy_from_slice(sums);
    }
}

struct Products<'a, T> {
    d: &'a [T],
    x: &'a [T],
    n_rows: usize,
    sums: &'a mut [f64],
    stride: usize,
    lower: bool,
}

impl<T: Element> Kernel<T> for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { d, x, n_rows, sums, stride, lower } = self;
        let (n_lines, n_columns) = (d.len() / n_rows, x.len() / n_rows);
        let (tall, wide) = match (n_lines, is_wide::<S, T>()) {
            (1, _) => (1, 8),
            (_, true) => (4, 6),
            (_, false) => (3, 4),
        };
        let mut line = 0;
        while line < n_lines {
            let lines = (n_lines - line).min(tall);
            let last = if lower { (line + lines).min(n_columns) } else { n_columns };
            let mut column = 0;
            while column < last {
                let columns = (n_columns - column).min(wide);
                let data = (&d[line * n_rows..], &x[column * n_rows..], n_rows);
                let out = (&mut sums[line * stride + column..], stride);
                match (lines, columns) {
                    (1, 8) => sum_tile::<S, T, 1, 8>(simd, data, out),
                    (4, 6) => sum_tile::<S, T, 4, 6>(simd, data, out),
                    (3, 6) => sum_tile::<S, T, 3, 6>(simd, data, out),
                    (2, 6) => sum_tile::<S, T, 2, 6>(simd, data, out),
                    (3, 4) => sum_tile::<S, T, 3, 4>(simd, data, out),
                    (2, 4) => sum_tile::<S, T, 2, 4>(simd, data, out),
                    (1, 4) => sum_tile::<S, T, 1, 4>(simd, data, out),
                    _ => narrow_tiles(simd, (lines, columns), data, out),
                }
                column += columns;
            }
            line += lines;
        }
    }
}

/// Computes the tiles at the edges, column by column.
#[inline(always)]
fn narrow_tiles<S: Simd, T: Lane<S>>(
    simd: S,
    (lines, columns): (usize, usize),
    (d, x, n_rows): (&[T], &[T], usize),
    (sums, stride): (&mut [f64], usize),
) {
    for column in 0..columns {
        let data = (d, &x[column * n_rows..], n_rows);
        let out = (&mut sums[column..], stride);
        match lines {
            4 => sum_tile::<S, T, 4, 1>(simd, data, out),
            3 => sum_tile::<S, T, 3, 1>(simd, data, out),
            2 => sum_tile::<S, T, 2, 1>(simd, data, out),
            _ => sum_tile::<S, T, 1, 1>(simd, data, out),
        }
    }
}

/// Adds the products of J lines with K columns.
#[inline(always)]
fn sum_tile<S: Simd, T: Lane<S>, const J: usize, const K: usize>(
    simd: S,
    (d, x, n_rows): (&[T], &[T], usize),
    (sums, stride): (&mut [f64], usize),
) {
    let mut tile = [[T::splat(simd, T::zero()); K]; J];
    let d: [&[T::Vector]; J] =
        std::array::from_fn(|line| T::vectors(&d[line * n_rows..][..n_rows]).0);
    let x: [&[T::Vector]; K] =
        std::array::from_fn(|column| T::vectors(&x[column * n_rows..][..n_rows]).0);
    let n_vectors = n_rows / <T as Lane<S>>::LANES;
    let d = d.map(|d| &d[..n_vectors]);
    let x = x.map(|x| &x[..n_vectors]);
    for at in 0..n_vectors {
        let own: [T::Vector; J] = std::array::from_fn(|line| d[line][at]);
        for (column, x) in x.iter().enumerate() {
            let x = x[at];
            for (tile, d) in tile.iter_mut().zip(&own) {
                tile[column] = T::fused(simd, *d, x, tile[column]);
            }
        }
    }
    for (line, tile) in tile.into_iter().enumerate() {
        for (column, sum) in tile.into_iter().enumerate() {
            sums[line * stride + column] += T::total(simd, sum).widen();
        }
    }
}
