//! Weights packed into panels, and their products with rows.

use std::array::from_fn;

use pulp::Simd;

use super::{Aligned, Element, Kernel, Lane};
use crate::parallel::for_items;

/// Number of vectors in each row of a register tile. On AVX-512, a tile of 8 rows keeps 24 sums in
/// the 32 registers; on AVX2, a tile of 4 rows keeps 12 sums in the 16 registers. The other
/// registers hold the weights and a broadcast value.
const VECTORS: usize = 3;
/// Number of inputs that a tile processes in one pass. Their weights stay in the second-level cache.
const DEPTH: usize = 1024;
/// Number of inputs that a task packs: few enough to share the work between threads, and enough to
/// be worth a task.
const PACKED: usize = 128;
/// Width of the widest panel in values: [`VECTORS`] vectors of 16 single-precision lanes.
const WIDEST: usize = VECTORS * 16;

/// Weights (inputs × outputs) packed for products with rows: contiguous panels as wide as a
/// register tile, so that dense and sparse rows share the inner loop over outputs.
#[derive(Debug)]
pub struct Panels<T> {
    values: Aligned<T>,
    n_inputs: usize,
    n_outputs: usize,
}

impl<T: Element> Panels<T> {
    /// Creates panels of zeros.
    pub fn new(n_inputs: usize, n_outputs: usize) -> Self {
        let padded = n_outputs.next_multiple_of(T::lanes());
        Self { values: Aligned::zeros(n_inputs * padded), n_inputs, n_outputs }
    }

    /// Copies `weights` into the panels, in parallel. The weights of an input begin at `start(input)` and are `stride`
    /// apart.
    pub fn pack(&mut self, weights: &[f64], start: impl Fn(usize) -> usize + Sync, stride: usize) {
        let (n_inputs, n_outputs) = (self.n_inputs, self.n_outputs);
        let (lanes, mut rest) = (T::lanes(), &mut self.values[..]);
        for first in (0..n_outputs).step_by(VECTORS * lanes) {
            let outputs = (n_outputs - first).min(VECTORS * lanes);
            let width = outputs.next_multiple_of(lanes);
            let (panel, others) = rest.split_at_mut(n_inputs * width);
            rest = others;
            for_items(panel.chunks_mut(width * PACKED).enumerate(), 1, |(chunk, panel)| {
                for (input, row) in panel.chunks_exact_mut(width).enumerate() {
                    let weights = &weights[start(chunk * PACKED + input) + first * stride..];
                    let weights = weights.iter().step_by(stride);
                    for (value, weight) in row[..outputs].iter_mut().zip(weights) {
                        *value = T::narrow(*weight);
                    }
                }
            });
        }
    }

    /// Adds the scores of dense rows to `scores`. Rows are contiguous, with `n_inputs` values each;
    /// each row has `n_outputs` scores.
    pub fn add_scores(&self, rows: &[T], scores: &mut [f64]) {
        T::dispatch(Product { weights: self, rows, scores });
    }

    /// Adds the scores of one sparse row to `scores`.
    pub fn add_sparse_scores(&self, columns: &[i32], values: &[T], scores: &mut [f64]) {
        T::dispatch(SparseProduct { weights: self, columns, values, scores });
    }

    /// Iterates over the panels for vectors with this number of lanes, each with the index of its first output.
    fn panels(&self, lanes: usize) -> impl Iterator<Item = (usize, &[T])> {
        let (n_inputs, n_outputs) = (self.n_inputs, self.n_outputs);
        (0..n_outputs).step_by(VECTORS * lanes).map(move |first| {
            let width = (n_outputs - first).min(VECTORS * lanes).next_multiple_of(lanes);
            (first, &self.values[n_inputs * first..][..n_inputs * width])
        })
    }
}

struct Product<'a, T> {
    weights: &'a Panels<T>,
    rows: &'a [T],
    scores: &'a mut [f64],
}

impl<T: Element> Kernel<T> for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        for (first, panel) in self.weights.panels(<T as Lane<S>>::LANES) {
            let out = Out { scores: self.scores, first, n_outputs: self.weights.n_outputs };
            let (panel, _) = T::vectors(panel);
            match panel.len() / self.weights.n_inputs.max(1) {
                0 => {}
                1 => tall::<S, T, 1>(simd, self.rows, self.weights.n_inputs, panel, out),
                2 => tall::<S, T, 2>(simd, self.rows, self.weights.n_inputs, panel, out),
                _ => tall::<S, T, VECTORS>(simd, self.rows, self.weights.n_inputs, panel, out),
            }
        }
    }
}

/// The part of the scores that a panel writes to.
struct Out<'a> {
    scores: &'a mut [f64],
    first: usize,
    n_outputs: usize,
}

impl Out<'_> {
    #[inline(always)]
    fn add<S: Simd, T: Lane<S> + Element, const V: usize>(
        &mut self,
        row: usize,
        sums: &[T::Vector; V],
    ) where
        T::Vector: Copy,
    {
        let mut values = [T::zero(); WIDEST];
        for (slot, sum) in T::vectors_mut(&mut values).0.iter_mut().zip(sums) {
            *slot = *sum;
        }
        let width = (self.n_outputs - self.first).min(V * <T as Lane<S>>::LANES);
        let scores = &mut self.scores[row * self.n_outputs + self.first..][..width];
        for (score, value) in scores.iter_mut().zip(values) {
            *score += value.widen();
        }
    }
}

/// Multiplies all rows by one panel, in tiles whose sums fit in the registers.
#[inline(always)]
fn tall<S: Simd, T: Lane<S> + Element, const V: usize>(
    simd: S,
    rows: &[T],
    n_inputs: usize,
    panel: &[T::Vector],
    mut out: Out<'_>,
) {
    let n_rows = rows.len() / n_inputs;
    for start in (0..n_inputs).step_by(DEPTH) {
        let end = (start + DEPTH).min(n_inputs);
        let weights = &panel[start * V..end * V];
        let part = |row: usize| &rows[row * n_inputs + start..row * n_inputs + end];
        // Each weight is read once for a whole tile of rows. The rows after the last tile are processed one by one. A
        // score is the same sum in the same order in any tile, so results do not depend on how the rows are split.
        let mut row = 0;
        while S::REGISTER_COUNT >= 32 && row + 8 <= n_rows {
            tile::<S, T, V, 8>(simd, from_fn(|i| part(row + i)), weights, row, &mut out);
            row += 8;
        }
        while row + 4 <= n_rows {
            tile::<S, T, V, 4>(simd, from_fn(|i| part(row + i)), weights, row, &mut out);
            row += 4;
        }
        while row < n_rows {
            tile::<S, T, V, 1>(simd, [part(row)], weights, row, &mut out);
            row += 1;
        }
    }
}

#[inline(always)]
fn tile<S: Simd, T: Lane<S> + Element, const V: usize, const R: usize>(
    simd: S,
    mut rows: [&[T]; R],
    weights: &[T::Vector],
    row: usize,
    out: &mut Out<'_>,
) {
    let mut sums = [[T::splat(simd, T::zero()); V]; R];
    let weights = weights.as_chunks::<V>().0;
    // Equal lengths remove the bounds checks from the inner loop. `map` of an array would compile to a call.
    for row in &mut rows {
        *row = &row[..weights.len()];
    }
    for (input, weights) in weights.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let x = T::splat(simd, row[input]);
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = T::fused(simd, x, *weight, *sum);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        out.add::<S, T, V>(row + i, sums);
    }
}

struct SparseProduct<'a, T> {
    weights: &'a Panels<T>,
    columns: &'a [i32],
    values: &'a [T],
    scores: &'a mut [f64],
}

impl<T: Element> Kernel<T> for SparseProduct<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, columns, values, scores } = self;
        for (first, panel) in weights.panels(<T as Lane<S>>::LANES) {
            let mut out = Out { scores, first, n_outputs: weights.n_outputs };
            let (panel, _) = T::vectors(panel);
            match panel.len() / weights.n_inputs.max(1) {
                0 => {}
                1 => sparse::<S, T, 1>(simd, columns, values, panel, &mut out),
                2 => sparse::<S, T, 2>(simd, columns, values, panel, &mut out),
                _ => sparse::<S, T, VECTORS>(simd, columns, values, panel, &mut out),
            }
        }
    }
}

#[inline(always)]
fn sparse<S: Simd, T: Lane<S> + Element, const V: usize>(
    simd: S,
    columns: &[i32],
    values: &[T],
    panel: &[T::Vector],
    out: &mut Out<'_>,
) {
    let weights = panel.as_chunks::<V>().0;
    let mut sums = [T::splat(simd, T::zero()); V];
    for (&column, &value) in columns.iter().zip(values) {
        let x = T::splat(simd, value);
        for (sum, weight) in sums.iter_mut().zip(&weights[column as usize]) {
            *sum = T::fused(simd, x, *weight, *sum);
        }
    }
    out.add::<S, T, V>(0, &sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiples of 1/8 whose products and sums are exact in both precisions.
    fn number(seed: usize) -> f64 {
        ((seed * 7919 + 13) % 31) as f64 / 8.0 - 2.0
    }

    fn check<T: Element>(n_rows: usize, n_inputs: usize, n_outputs: usize) {
        let rows: Vec<T> = (0..n_rows * n_inputs).map(|i| T::narrow(number(i))).collect();
        let weight = |input, output| number(input * 53 + output * 17);
        let mut panels = Panels::<T>::new(n_inputs, n_outputs);
        let stride = 3;
        let mut weights = vec![f64::NAN; n_inputs * n_outputs * stride];
        for (place, weights) in weights.iter_mut().step_by(stride).enumerate() {
            *weights = weight(place / n_outputs, place % n_outputs);
        }
        panels.pack(&weights, |input| input * n_outputs * stride, stride);
        let mut scores = vec![0.5; n_rows * n_outputs];
        panels.add_scores(&rows, &mut scores);
        let columns: Vec<i32> = (0..n_inputs as i32).collect();
        for (row, scores) in scores.chunks_exact(n_outputs).enumerate() {
            let x = &rows[row * n_inputs..][..n_inputs];
            let mut sparse = vec![0.5; n_outputs];
            panels.add_sparse_scores(&columns, x, &mut sparse);
            for (output, score) in scores.iter().enumerate() {
                let expected: f64 =
                    x.iter().enumerate().map(|(k, x)| x.widen() * weight(k, output)).sum();
                assert_eq!(*score, expected + 0.5, "{n_rows}x{n_inputs}x{n_outputs}");
                assert_eq!(sparse[output], *score);
            }
        }
    }

    #[test]
    fn scores_are_the_matrix_product_for_every_remainder() {
        for n_rows in [1, 3, 4, 7, 8, 13] {
            for n_inputs in [1, 5, DEPTH + 3] {
                for n_outputs in [1, 2, 7, 16, 25, 49, 97] {
                    check::<f64>(n_rows, n_inputs, n_outputs);
                    check::<f32>(n_rows, n_inputs, n_outputs);
                }
            }
        }
    }
}
