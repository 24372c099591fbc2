//! Projections onto the hull of all matchings, {z >= 0, row sums <= 1, column sums <= 1}.
//!
//! Both projections have the form z_ab = value(point_ab − r_a − c_b) with prices r, c >= 0, which are 0 for rows and
//! columns with sums below 1. The prices minimise the convex dual function Σ energy(z_ab) + Σ r_a + Σ c_b. Each round
//! takes exact steps in all rows and then in all columns (Sinkhorn's scaling, if value = exp), and then a Newton step,
//! without which nearly tied pairs would need very many rounds.

use std::marker::PhantomData;

use pulp::{Simd, WithSimd};

use super::Marginals;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::solve_semidefinite;
use crate::linalg::{arch, exp_minus};
use crate::polytope::Capped;
use crate::structured::model::assignment::{buffers, solve};
use crate::structured::model::{Matching, Model, Work};

/// Number of rounds after which a projection accepts less than the requested accuracy.
const MAX_ROUNDS: usize = 100;

/// Prices are accurate up to rounding once their relative changes are below this value.
const STALLED: f64 = 4.0 * f64::EPSILON;

/// A kind of projection, given by z as a function of x = point − prices.
trait Law {
    /// Returns z, which increases with x.
    fn value(x: f64) -> f64;
    /// The integral of z over x, as a function of z.
    fn energy(z: f64) -> f64;
    /// The derivative of z with respect to x, as a function of z.
    fn slope(z: f64) -> f64;
    /// The cost of scaling a row of z by `factor`: the divergence of factor · z from z.
    fn lost(factor: f64, sum: f64, squares: f64) -> f64;
    /// The minimum price >= 0 at which the values of x − price sum to at most 1.
    fn price(x: &mut [f64], guess: f64) -> f64;
}

/// The projection onto the hull of the matrix exp(point), in relative entropy.
struct Entropic;

impl Law for Entropic {
    #[inline(always)]
    fn value(x: f64) -> f64 {
        // Clamps x to avoid overflow; Newton steps never reach the limit.
        exp_minus(-x.min(300.0))
    }
    #[inline(always)]
    fn energy(z: f64) -> f64 {
        z
    }
    #[inline(always)]
    fn slope(z: f64) -> f64 {
        z
    }
    #[inline(always)]
    fn lost(factor: f64, sum: f64, _: f64) -> f64 {
        sum * (factor * factor.ln() - factor + 1.0).max(0.0)
    }
    #[inline(always)]
    fn price(x: &mut [f64], _: f64) -> f64 {
        let largest = x.iter().fold(f64::NEG_INFINITY, |largest: f64, x| largest.max(*x));
        x.iter_mut().for_each(|x| *x = exp_minus(largest - *x));
        (largest + x.iter().sum::<f64>().ln()).max(0.0)
    }
}

/// The Euclidean projection of the point onto the hull.
struct Euclidean;

impl Law for Euclidean {
    #[inline(always)]
    fn value(x: f64) -> f64 {
        x.max(0.0)
    }
    #[inline(always)]
    fn energy(z: f64) -> f64 {
        0.5 * z * z
    }
    #[inline(always)]
    fn slope(z: f64) -> f64 {
        if z > 0.0 { 1.0 } else { 0.0 }
    }
    #[inline(always)]
    fn lost(factor: f64, _: f64, squares: f64) -> f64 {
        0.5 * (1.0 - factor) * (1.0 - factor) * squares
    }
    #[inline(always)]
    fn price(x: &mut [f64], guess: f64) -> f64 {
        let set = Capped { upper: f64::INFINITY, floor: 0.0, cap: 1.0, bias: 0.0 };
        set.multiplier(x, guess)
    }
}

impl Marginals for Matching {
    /// The truth may be any set of pairs, so it need not be a matching.
    fn holds_truth(&self, example: usize) -> bool {
        !self.is_one_to_one() || self.truth(example).len() == self.size(example).0
    }

    /// The entropy is Σ (z_ab − z_ab ln z_ab), and the result is the point of the hull nearest to
    /// the matrix exp(potentials) in relative entropy. If potentials differ by hundreds, the gap
    /// can stay larger than requested; the result is then close to a vertex of the hull, and prices
    /// are high.
    fn entropic(
        &self,
        example: usize,
        potentials: &[f64],
        tolerance: f64,
        work: &mut Work,
        marginals: &mut [f64],
    ) -> Result<f64> {
        check_one_to_one(self)?;
        Ok(project::<Entropic>(self.size(example), potentials, tolerance, work, marginals))
    }

    fn euclidean(
        &self,
        example: usize,
        point: &[f64],
        tolerance: f64,
        work: &mut Work,
        projection: &mut [f64],
    ) -> Result<f64> {
        check_one_to_one(self)?;
        Ok(project::<Euclidean>(self.size(example), point, tolerance, work, projection))
    }
}

fn check_one_to_one(model: &Matching) -> Result<()> {
    if model.is_one_to_one() {
        return Ok(());
    }
    let message = "\"extragradient\" supports only matchings with one link per row and column";
    Err(Error::argument("max_links", message))
}

fn project<L: Law>(
    (n_rows, n_columns): (usize, usize),
    point: &[f64],
    tolerance: f64,
    work: &mut Work,
    z: &mut [f64],
) -> f64 {
    if point.is_empty() {
        return 0.0;
    }
    let n_prices = n_rows + n_columns;
    work.values.resize(5 * n_prices + n_columns * n_columns, 0.0);
    let (prices, rest) = work.values.split_at_mut(n_prices);
    for (transposed, column) in z.chunks_exact_mut(n_rows).zip(0..) {
        let column = point[column..].iter().step_by(n_columns);
        transposed.iter_mut().zip(column).for_each(|(entry, x)| *entry = *x);
    }
    start_prices(point, z, prices.split_at_mut(n_rows), rest, &mut work.indices);
    let (before, rest) = rest.split_at_mut(n_prices);
    let (sums, rest) = rest.split_at_mut(n_prices);
    let (step, rest) = rest.split_at_mut(n_prices);
    let (x, schur) = rest.split_at_mut(n_prices);
    let descent = Descent {
        law: PhantomData::<L>,
        point,
        n_rows,
        n_columns,
        tolerance,
        prices,
        before,
        sums,
        step,
        x,
        schur,
        z,
    };
    arch().dispatch(descent)
}

/// Computes starting prices from the linear assignment problem. They approximate the solution if potentials are large.
/// They are the mean of the two extreme solutions, whose row prices are as high or as low as possible.
fn start_prices(
    matrix: &[f64],
    transposed: &[f64],
    (row_prices, column_prices): (&mut [f64], &mut [f64]),
    values: &mut [f64],
    indices: &mut Vec<u32>,
) {
    row_prices.fill(0.0);
    column_prices.fill(0.0);
    let mut add = |matrix: &[f64], first: &mut [f64], second: &mut [f64]| {
        let (n_values, n_indices) = buffers(first.len(), second.len());
        indices.resize(n_indices, 0);
        solve(matrix, second.len(), (&mut values[..n_values], indices), &Interrupt::default());
        let prices = first.iter_mut().chain(second);
        prices.zip(&*values).for_each(|(price, value)| *price += 0.5 * value.max(0.0));
    };
    add(matrix, row_prices, column_prices);
    add(transposed, column_prices, row_prices);
}

/// The state of a projection. Prices, sums and steps are stored for the rows, then for the columns.
struct Descent<'a, L> {
    law: PhantomData<L>,
    point: &'a [f64],
    n_rows: usize,
    n_columns: usize,
    tolerance: f64,
    prices: &'a mut [f64],
    before: &'a mut [f64],
    sums: &'a mut [f64],
    step: &'a mut [f64],
    x: &'a mut [f64],
    schur: &'a mut [f64],
    z: &'a mut [f64],
}

impl<L: Law> WithSimd for Descent<'_, L> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> f64 {
        let (mut n_rounds, mut has_stalled) = (0, false);
        loop {
            self.before.copy_from_slice(self.prices);
            self.raise();
            let dual = self.fill();
            let gap = self.gap();
            if gap <= self.tolerance || n_rounds == MAX_ROUNDS || has_stalled {
                self.shrink();
                return gap;
            }
            n_rounds += 1;
            self.newton(dual);
            let pairs = self.prices.iter().zip(&*self.before);
            let change = pairs.fold(0.0, |max: f64, (a, b)| max.max((a - b).abs() / (1.0 + b)));
            has_stalled = change <= STALLED;
        }
    }
}

impl<L: Law> Descent<'_, L> {
    /// Sets the prices of the rows to their exact optimum, then the prices of the columns.
    #[inline(always)]
    fn raise(&mut self) {
        let (rows, columns) = self.prices.split_at_mut(self.n_rows);
        for (price, point) in rows.iter_mut().zip(self.point.chunks_exact(self.n_columns)) {
            let x = &mut self.x[..self.n_columns];
            for (x, (point, column)) in x.iter_mut().zip(point.iter().zip(&*columns)) {
                *x = point - column;
            }
            *price = L::price(x, *price);
        }
        for (column, price) in columns.iter_mut().enumerate() {
            let x = &mut self.x[..self.n_rows];
            let point = self.point[column..].iter().step_by(self.n_columns);
            for (x, (point, row)) in x.iter_mut().zip(point.zip(&*rows)) {
                *x = point - row;
            }
            *price = L::price(x, *price);
        }
    }

    /// Writes z and its row and column sums at the current prices; returns the dual value.
    #[inline(always)]
    fn fill(&mut self) -> f64 {
        let (row_sums, column_sums) = self.sums.split_at_mut(self.n_rows);
        let (rows, columns) = self.prices.split_at(self.n_rows);
        column_sums.fill(0.0);
        let mut dual = rows.iter().chain(columns).sum::<f64>();
        let entries = self.z.chunks_exact_mut(self.n_columns);
        let entries = entries.zip(self.point.chunks_exact(self.n_columns));
        for ((z, point), (row, row_sum)) in entries.zip(rows.iter().zip(row_sums)) {
            for (z, (point, column)) in z.iter_mut().zip(point.iter().zip(columns)) {
                *z = L::value(point - row - column);
            }
            *row_sum = z.iter().sum();
            dual += z.iter().map(|z| L::energy(*z)).sum::<f64>();
            column_sums.iter_mut().zip(&*z).for_each(|(sum, z)| *sum += z);
        }
        dual
    }

    /// Returns the duality gap of z after rows with sums above 1 are scaled down to 1. Must be called directly after a
    /// column step. The gap is the cost of the scaling plus Σ price · slack; both are at least 0.
    #[inline(always)]
    fn gap(&mut self) -> f64 {
        let (rows, columns) = self.prices.split_at(self.n_rows);
        let column_sums = &mut self.x[..self.n_columns];
        column_sums.fill(0.0);
        let mut gap = 0.0;
        for (z, (row, sum)) in self.z.chunks_exact(self.n_columns).zip(rows.iter().zip(&*self.sums))
        {
            let factor = 1.0 / sum.max(1.0);
            gap += row * (1.0 - sum).max(0.0);
            if *sum > 1.0 {
                gap += L::lost(factor, *sum, z.iter().map(|z| z * z).sum());
            }
            column_sums.iter_mut().zip(z).for_each(|(sum, z)| *sum += factor * z);
        }
        let columns = columns.iter().zip(&*column_sums);
        gap + columns.map(|(price, sum)| price * (1.0 - sum).max(0.0)).sum::<f64>()
    }

    /// Scales rows down to sums of at most 1. If rounding makes column sums exceed 1, also divides all entries by the
    /// largest column sum.
    #[inline(always)]
    fn shrink(&mut self) {
        let (row_sums, column_sums) = self.sums.split_at(self.n_rows);
        let largest = column_sums.iter().fold(1.0, |largest: f64, sum| largest.max(*sum));
        for (z, sum) in self.z.chunks_exact_mut(self.n_columns).zip(row_sums) {
            let factor = 1.0 / (largest * sum.max(1.0));
            z.iter_mut().for_each(|z| *z *= factor);
        }
    }

    /// Takes a Newton step in the prices that are not fixed at 0. Halves the step until it does not increase the dual
    /// function; if that fails, leaves the prices unchanged.
    #[inline(always)]
    fn newton(&mut self, dual: f64) {
        self.solve_newton();
        // Allows for rounding errors in the dual value.
        let bound = dual + 8.0 * f64::EPSILON * dual.abs();
        let raised = &mut *self.x;
        raised.copy_from_slice(self.prices);
        let mut length = 1.0;
        for _ in 0..12 {
            let steps = self.x.iter().zip(&*self.step);
            for (price, (raised, step)) in self.prices.iter_mut().zip(steps) {
                *price = (raised + length * step).max(0.0);
            }
            if self.fill() <= bound {
                return;
            }
            length *= 0.5;
        }
        self.prices.copy_from_slice(self.x);
    }

    /// Solves H step = sums − 1 with the Hessian H = [diag(Z1), Z; Zᵀ, diag(Zᵀ1)], where Z contains the slopes of the
    /// pairs. Uses the Schur complement of the block of the rows; prices fixed at 0 do not change.
    #[inline(always)]
    fn solve_newton(&mut self) {
        let n = self.n_columns;
        let (row_steps, column_steps) = self.step.split_at_mut(self.n_rows);
        let (row_sums, column_sums) = self.sums.split_at(self.n_rows);
        let (row_prices, column_prices) = self.prices.split_at(self.n_rows);
        let slopes = &mut self.x[..n];
        let free = |price: f64, sum: f64| price > 0.0 || sum > 1.0;
        self.schur.fill(0.0);
        for (step, sum) in column_steps.iter_mut().zip(column_sums) {
            *step = sum - 1.0;
        }
        let rows = self.z.chunks_exact(n).zip(row_sums.iter().zip(row_prices));
        for (z, (&sum, &price)) in rows {
            slopes.iter_mut().zip(z).for_each(|(slope, z)| *slope = L::slope(*z));
            let total: f64 = slopes.iter().sum();
            for (column, &slope) in slopes.iter().enumerate() {
                self.schur[column * n + column] += slope;
            }
            if free(price, sum) && total > 0.0 {
                for (row, &slope) in self.schur.chunks_exact_mut(n).zip(&*slopes) {
                    if slope > 0.0 {
                        let factor = slope / total;
                        row.iter_mut()
                            .zip(&*slopes)
                            .for_each(|(entry, slope)| *entry -= factor * slope);
                    }
                }
                let factor = (sum - 1.0) / total;
                column_steps.iter_mut().zip(&*slopes).for_each(|(step, s)| *step -= factor * s);
            }
        }
        for (column, (&sum, &price)) in column_sums.iter().zip(column_prices).enumerate() {
            if !free(price, sum) {
                hold(self.schur, column, n);
                column_steps[column] = 0.0;
            }
        }
        solve_semidefinite(self.schur, column_steps);
        let rows = self.z.chunks_exact(n).zip(row_sums.iter().zip(row_prices));
        for (row_step, (z, (&sum, &price))) in row_steps.iter_mut().zip(rows) {
            let (mut total, mut pull) = (0.0, 0.0);
            for (z, step) in z.iter().zip(&*column_steps) {
                total += L::slope(*z);
                pull += L::slope(*z) * step;
            }
            let moves = free(price, sum) && total > 0.0;
            *row_step = if moves { (sum - 1.0 - pull) / total } else { 0.0 };
        }
    }
}

/// Replaces a row and a column by the corresponding row and column of the identity matrix.
fn hold(matrix: &mut [f64], index: usize, n: usize) {
    matrix[index * n..(index + 1) * n].fill(0.0);
    matrix[index..].iter_mut().step_by(n).for_each(|entry| *entry = 0.0);
    matrix[index * n + index] = 1.0;
}
