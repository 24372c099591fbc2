//! Scores and gradients of dense rows with one output, read from the caller's array.

use pulp::{Simd, WithSimd};

use super::layout::{GROUP, RowBlocks};
use crate::data::{Dense, Real, for_dense};
use crate::linalg::arch;

/// Number of partial sums of a product; the compiler vectorises loops of this length.
const LANES: usize = 8;

impl RowBlocks<'_> {
    /// Writes the scores of a block's rows, and 0 for padding rows.
    pub fn scores(&self, block: usize, weights: &[f64], scores: &mut [f64]) {
        let first = block * self.block_rows;
        for_dense!(
            self.problem.rows(),
            rows => arch().dispatch(Scores { layout: self, rows, first, weights, scores }),
            _ => unreachable!("sparse rows are copied")
        );
    }

    /// Adds each of a block's rows, times its factor, to the sums.
    pub fn add_products(&self, block: usize, factors: &[f64], sums: &mut [f64]) {
        let first = block * self.block_rows;
        for_dense!(
            self.problem.rows(),
            rows => arch().dispatch(Products { layout: self, rows, first, factors, sums }),
            _ => unreachable!("sparse rows are copied")
        );
    }
}

/// Splits a line of numbers into chunks. If its length is not a multiple of [`LANES`], the last chunk has the last
/// numbers of the line, some of which are in the chunk before it, too.
fn chunked(line: &[f64]) -> Vec<[f64; LANES]> {
    let (whole, rest) = line.as_chunks();
    whole.iter().chain(line.last_chunk().filter(|_| !rest.is_empty())).copied().collect()
}

/// Writes scores. `first` is the block's first position in the order of the blocks.
struct Scores<'k, 'a, V> {
    layout: &'k RowBlocks<'a>,
    rows: Dense<'k, V>,
    first: usize,
    weights: &'k [f64],
    scores: &'k mut [f64],
}

impl<V: Real> WithSimd for Scores<'_, '_, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, rows, first, weights, scores } = self;
        let (weights, intercept) = weights.split_at(layout.problem.n_features());
        let intercept = intercept.first().copied().unwrap_or(0.0);
        let [mut factors, units, centres] = [weights, &layout.inverse_units, &layout.centres]
            .map(|line| chunked(&line[..weights.len()]));
        let n_repeated = factors.len() * LANES - weights.len();
        factors.last_mut().into_iter().for_each(|last| last[..n_repeated].fill(0.0));
        for (group, scores) in (first..).step_by(GROUP).zip(scores.chunks_exact_mut(GROUP)) {
            scores.fill(0.0);
            for (row, score) in layout.rows_at(group).zip(scores) {
                let row = rows.row(row);
                let columns = factors.iter().zip(&units).zip(&centres);
                let mut sums = [0.0; LANES];
                for (x, ((factor, inverse), centre)) in
                    row.as_chunks::<LANES>().0.iter().chain(row.last_chunk()).zip(columns)
                {
                    for lane in 0..LANES {
                        let value = (x[lane].widen() - centre[lane]) * inverse[lane];
                        sums[lane] += value * factor[lane];
                    }
                }
                let (low, high) = sums.split_at(LANES / 2);
                *score = intercept + low.iter().zip(high).map(|(a, b)| a + b).sum::<f64>();
            }
        }
    }
}

/// Adds products of rows and factors.
struct Products<'k, 'a, V> {
    layout: &'k RowBlocks<'a>,
    rows: Dense<'k, V>,
    first: usize,
    factors: &'k [f64],
    sums: &'k mut [f64],
}

impl<V: Real> WithSimd for Products<'_, '_, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, rows, first, factors, sums } = self;
        let (sums, intercept) = sums.split_at_mut(layout.problem.n_features());
        let (mut own, mut total) = (vec![0.0; sums.len()], 0.0);
        for (group, factors) in (first..).step_by(GROUP).zip(factors.chunks_exact(GROUP)) {
            for (row, factor) in layout.rows_at(group).zip(factors) {
                let units = layout.inverse_units.iter().zip(&layout.centres);
                let columns = own.iter_mut().zip(rows.row(row)).zip(units);
                for ((sum, x), (inverse, centre)) in columns {
                    *sum += (x.widen() - centre) * inverse * factor;
                }
                total += factor;
            }
        }
        // The sums over a block are computed first and then added, so that chains of additions stay short.
        sums.iter_mut().zip(&own).for_each(|(sum, own)| *sum += own);
        intercept.iter_mut().for_each(|sum| *sum += total);
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::super::LogisticNewton;
    use super::*;
    use crate::data::Data;
    use crate::interrupt::Interrupt;
    use crate::logistic::LogisticProblem;
    use crate::run::{Outcome, Stopping, run};

    #[test]
    fn scores_and_products_equal_those_of_a_transposed_copy() {
        let (n, block_rows) = (1000, 8 * GROUP);
        for d in [32, 37] {
            let rows = Array2::from_shape_fn((n, d), |(i, k)| {
                100.0 + ((i * 31 + k * 17) % 23) as f64 * (k + 1) as f64
            });
            let labels: Vec<u32> = (0..n).map(|i| (i % 2) as u32).collect();
            for intercept in [false, true] {
                let data = Data::Dense64(Dense::new(rows.view()).unwrap());
                let problem =
                    LogisticProblem::new(data, &labels, 2, vec![1.0; n], intercept).unwrap();
                let layout = RowBlocks::new(&problem, block_rows);
                let width = layout.width();
                let weights: Vec<f64> = (0..width).map(|k| (k as f64).sin()).collect();
                let factors: Vec<f64> = (0..block_rows).map(|i| (i as f64).cos()).collect();
                for block in 0..n.div_ceil(block_rows) {
                    let mut lines = vec![0.0; width * block_rows];
                    layout.fill(block, &mut lines);
                    let (mut scores, mut sums) = (vec![f64::NAN; block_rows], vec![0.0; width]);
                    layout.scores(block, &weights, &mut scores);
                    layout.add_products(block, &factors, &mut sums);
                    for (place, score) in scores.iter().enumerate() {
                        let own = lines[place..].iter().step_by(block_rows).zip(&weights);
                        let expected: f64 = own.map(|(x, w)| x * w).sum();
                        assert!((score - expected).abs() < 1e-12, "{place}");
                    }
                    for (line, sum) in lines.chunks_exact(block_rows).zip(&sums) {
                        let expected: f64 = line.iter().zip(&factors).map(|(x, f)| x * f).sum();
                        assert!((sum - expected).abs() < 1e-10, "{sum} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn many_rows_are_solved_with_the_hessian_of_a_sample() {
        let (n, d) = (40_000, 32);
        let number = |i: usize, k: usize| {
            let value = (i as f64 * 12.9898 + k as f64 * 78.233).sin() * 43758.5453;
            value - value.floor() - 0.5
        };
        let rows = Array2::from_shape_fn((n, d), |(i, k)| number(i + 1, k));
        let labels: Vec<u32> = (0..n).map(|i| u32::from(number(i, 99) < rows[[i, 0]])).collect();
        let data = Data::Dense64(Dense::new(rows.view()).unwrap());
        let problem = LogisticProblem::new(data, &labels, 2, vec![1.0; n], true).unwrap();
        let stopping =
            Stopping { max_epochs: 50, relative: 1e-6, floor: 0.0, null_objective: None };
        let mut newton = LogisticNewton::new(&problem, &problem.zero_model(), stopping);
        let go_on = &mut |_: &_| std::ops::ControlFlow::Continue(());
        let trace = run(&mut newton, stopping, &Interrupt::default(), go_on).unwrap();
        assert_eq!(trace.outcome, Outcome::Converged, "{trace:?}");
        assert!(newton.is_sampled);
    }
}
