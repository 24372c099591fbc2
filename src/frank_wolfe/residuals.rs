//! The gradient of matrix completion: a sparse matrix with the residuals of the observed entries.

use std::ops::{AddAssign, Range};

use super::block_krylov::{VectorBlock, WIDTH};
use super::completion::MatrixCompletion;
use super::rank_one::MatrixOperator;
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{PIECE_VALUES, dot};
use crate::parallel::{map_items, min_len, parts, sum_rows};

/// The residuals at a point, in the order of the function's entries.
pub(super) struct EntryResiduals<'a> {
    f: &'a MatrixCompletion,
    pub values: Vec<f64>,
    /// The sum of the squares of the residuals.
    pub square: f64,
    /// The sum Σ r m over the residuals r and the observed values m.
    pub with_values: f64,
}

/// Number of lines in a task.
const BLOCK_LINES: usize = 64;

/// Calls `fill(lines, first entry, entries)` for blocks of lines in parallel, and returns the results in order.
pub(super) fn in_line_blocks<T: Send>(
    f: &MatrixCompletion,
    out: &mut [f64],
    fill: impl Fn(Range<usize>, usize, &mut [f64]) -> T + Sync,
) -> Vec<T> {
    let n_lines = f.n_lines();
    let mut rest = out;
    let mut blocks = Vec::with_capacity(n_lines.div_ceil(BLOCK_LINES));
    for start in (0..n_lines).step_by(BLOCK_LINES) {
        let end = (start + BLOCK_LINES).min(n_lines);
        let (first, last) = (f.line_starts[start], f.line_starts[end]);
        let (own, others) = std::mem::take(&mut rest).split_at_mut(last - first);
        blocks.push((start..end, first, own));
        rest = others;
    }
    let per_block = f.n_observed() / blocks.len().max(1) + 1;
    map_items(blocks, min_len(per_block), |(lines, first, own)| fill(lines, first, own))
}

impl<'a> EntryResiduals<'a> {
    pub fn new(f: &'a MatrixCompletion, values: Vec<f64>) -> Self {
        let mut residuals = Self { f, values, square: 0.0, with_values: 0.0 };
        residuals.update(|_, _| {});
        residuals
    }

    /// Updates the residuals after a step along a direction.
    pub fn add(&mut self, step: f64, direction: &[f64]) {
        self.update(|start, residuals| {
            let own = residuals.iter_mut().zip(&direction[start..]);
            own.for_each(|(residual, direction)| *residual += step * direction);
        });
    }

    /// Applies `change` to chunks of the residuals, each with the index of its first entry, and recomputes the sums.
    fn update(&mut self, change: impl Fn(usize, &mut [f64]) + Sync) {
        let pieces = self.values.chunks_mut(PIECE_VALUES).zip(self.f.values.chunks(PIECE_VALUES));
        let sums: Vec<(f64, f64)> =
            map_items(pieces.enumerate(), min_len(PIECE_VALUES), |(piece, (residuals, values))| {
                change(piece * PIECE_VALUES, residuals);
                (dot(residuals, residuals), dot(residuals, values))
            });
        self.square = sums.iter().map(|(square, _)| square).sum();
        self.with_values = sums.iter().map(|(_, product)| product).sum();
    }

    /// Returns the products of the smaller Gram matrix with the vectors of a block.
    pub fn times_block(
        &self,
        block: &[[f64; WIDTH]],
        interrupt: &Interrupt,
    ) -> Result<VectorBlock> {
        self.products(block, interrupt)
    }

    /// Does the same as [`EntryResiduals::times_block`] in single precision, which takes about .7 times as long.
    /// Single precision can represent the products if [`EntryResiduals::fit_single`].
    pub fn times_block_in_single(
        &self,
        block: &[[f64; WIDTH]],
        interrupt: &Interrupt,
    ) -> Result<VectorBlock> {
        let single: Vec<[f32; WIDTH]> =
            block.iter().map(|row| row.map(|value| value as f32)).collect();
        self.products(&single, interrupt)
    }

    /// Whether single precision can represent the residuals and their products.
    pub fn fit_single(&self) -> bool {
        (1e-20..=1e20).contains(&self.square)
    }

    /// Returns the products of the smaller Gram matrix with the vectors of a block, in the precision of the block.
    fn products<T: Real + AddAssign>(
        &self,
        block: &[[T; WIDTH]],
        interrupt: &Interrupt,
    ) -> Result<VectorBlock> {
        let sums = map_items(parts(self.f.n_lines()), 1, |lines| {
            let mut sums = vec![[T::zero(); WIDTH]; block.len()];
            for line in lines {
                if interrupt.is_raised() {
                    break;
                }
                let range = self.f.line(line);
                let (values, places) = (&self.values[range.clone()], &self.f.places[range]);
                let weights = gathered_block(values, places, block);
                for (place, value) in places.iter().zip(values) {
                    let (value, sums) = (T::narrow(*value), &mut sums[*place as usize]);
                    sums.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum += *weight * value);
                }
            }
            sums
        });
        interrupt.check()?;
        let mut total = vec![[0.0; WIDTH]; block.len()];
        for sums in sums {
            for (total, sums) in total.iter_mut().flatten().zip(sums.iter().flatten()) {
                *total += sums.widen();
            }
        }
        Ok(total)
    }

    /// Returns ⟨line, v⟩ for every line.
    pub fn along(&self, v: &[f64]) -> Vec<f64> {
        let n_lines = self.f.n_lines();
        map_items(0..n_lines, min_len(self.values.len() / n_lines + 1), |line| {
            let range = self.f.line(line);
            gathered(&self.values[range.clone()], &self.f.places[range], v)
        })
    }
}

/// Returns Σ_k values_k v_{i_k} for the indices i_k. Four independent sums hide the latency of the additions.
fn gathered(values: &[f64], indices: &[u32], v: &[f64]) -> f64 {
    let ((head, rest), (places, others)) = (values.as_chunks::<4>(), indices.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (values, places) in head.iter().zip(places) {
        for lane in 0..4 {
            sums[lane] += values[lane] * v[places[lane] as usize];
        }
    }
    let rest: f64 = rest.iter().zip(others).map(|(value, at)| value * v[*at as usize]).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// Returns Σ_k values_k v_{i_k} for the indices i_k and all vectors v of a block. Two independent sums hide the latency
/// of the additions.
fn gathered_block<T: Real + AddAssign>(
    values: &[f64],
    indices: &[u32],
    block: &[[T; WIDTH]],
) -> [T; WIDTH] {
    let ((pairs, rest), (places, others)) = (values.as_chunks::<2>(), indices.as_chunks::<2>());
    let mut sums = [[T::zero(); WIDTH]; 2];
    for (values, places) in pairs.iter().zip(places) {
        for half in 0..2 {
            let (value, row) = (T::narrow(values[half]), &block[places[half] as usize]);
            sums[half].iter_mut().zip(row).for_each(|(sum, entry)| *sum += value * *entry);
        }
    }
    for (value, place) in rest.iter().zip(others) {
        let (value, row) = (T::narrow(*value), &block[*place as usize]);
        sums[0].iter_mut().zip(row).for_each(|(sum, entry)| *sum += value * *entry);
    }
    let [mut first, second] = sums;
    first.iter_mut().zip(second).for_each(|(sum, other)| *sum += other);
    first
}

impl MatrixOperator for EntryResiduals<'_> {
    fn shape(&self) -> (usize, usize) {
        self.f.shape()
    }

    fn to_larger_side(&self, v: &[f64]) -> Vec<f64> {
        self.along(v)
    }

    /// Reads each line only once for the products with the matrix and with its transpose.
    fn gram_times(&self, v: &[f64], interrupt: &Interrupt) -> Result<Vec<f64>> {
        sum_rows(self.f.n_lines(), v.len(), interrupt, |lines, sum| {
            for line in lines {
                let range = self.f.line(line);
                let (values, places) = (&self.values[range.clone()], &self.f.places[range]);
                let weight = gathered(values, places, v);
                for (place, value) in places.iter().zip(values) {
                    sum[*place as usize] += weight * value;
                }
            }
        })
    }

    fn gram_times_block(
        &self,
        block: &[[f64; WIDTH]],
        interrupt: &Interrupt,
    ) -> Result<Option<VectorBlock>> {
        self.times_block(block, interrupt).map(Some)
    }

    fn squared_frobenius(&self) -> f64 {
        self.square
    }

    fn gram(&self) -> Vec<f64> {
        let (n_rows, n_cols) = self.f.shape();
        let size = n_rows.min(n_cols);
        let mut gram = vec![0.0; size * size];
        for line in 0..self.f.n_lines() {
            let range = self.f.line(line);
            let (values, places) = (&self.values[range.clone()], &self.f.places[range]);
            for (place, value) in places.iter().zip(values) {
                let row = &mut gram[*place as usize * size..][..size];
                places
                    .iter()
                    .zip(values)
                    .for_each(|(at, other)| row[*at as usize] += value * other);
            }
        }
        gram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frank_wolfe::block_krylov::random_block;

    #[test]
    fn products_with_a_block_are_the_products_with_its_vectors() {
        for shape in [(5000, 30), (30, 200), (1, 3)] {
            let n = shape.0 * shape.1;
            let entries: Vec<usize> = (0..n).filter(|at| at % 7 < 3 && at % 11 != 5).collect();
            let rows: Vec<u32> = entries.iter().map(|at| (at / shape.1) as u32).collect();
            let columns: Vec<u32> = entries.iter().map(|at| (at % shape.1) as u32).collect();
            let values: Vec<f64> = entries.iter().map(|at| (at % 13) as f64 - 6.5).collect();
            let f = MatrixCompletion::new(shape, &rows, &columns, &values).unwrap();
            let residuals = EntryResiduals::new(&f, f.values.clone());
            let interrupt = Interrupt::default();
            let block = random_block(shape.0.min(shape.1), 3);
            let double = residuals.times_block(&block, &interrupt).unwrap();
            let single = residuals.times_block_in_single(&block, &interrupt).unwrap();
            for lane in 0..WIDTH {
                let vector: Vec<f64> = block.iter().map(|row| row[lane]).collect();
                let product = residuals.gram_times(&vector, &interrupt).unwrap();
                for (value, (double, single)) in product.iter().zip(double.iter().zip(&single)) {
                    let scale = residuals.square;
                    assert!((value - double[lane]).abs() <= 1e-14 * scale, "{value}");
                    assert!((value - single[lane]).abs() <= 1e-6 * scale, "{value}");
                }
            }
        }
    }
}
