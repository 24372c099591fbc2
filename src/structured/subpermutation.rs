//! Projections onto the hull of all matchings, {z >= 0, row sums <= 1, column sums <= 1}, by scaling or
//! shifting rows and columns in turn.

use pulp::{Arch, Simd, WithSimd};

use super::assignment::{buffers, solve};
use super::lanes::{Sum, fold};
use super::{Marginals, Matching, Work};
use crate::error::Result;
use crate::linalg::exp_minus;
use crate::polytope::Capped;

/// Rounds of rows and columns before a projection settles for less than the accuracy asked for, and
/// entries that may be passed over in all.
const MAX_ROUNDS: usize = 5_000;
const MAX_ENTRIES: usize = 1 << 27;

/// Relative changes of all prices after which a projection is known to rounding.
const STALLED: f64 = 4.0 * f64::EPSILON;

/// Rounds after which the accuracy of a scaling is looked at.
const CHECK: usize = 4;

/// Scalings beyond this are moved into the potentials.
const LARGE_SCALE: f64 = 1e30;

/// How many rounds a matrix may take.
fn max_rounds(n_entries: usize) -> usize {
    (MAX_ENTRIES / n_entries.max(1)).clamp(20, MAX_ROUNDS)
}

impl Marginals for Matching {
    /// The entropy is Σ (z_ab − z_ab ln z_ab), and the result the point of the hull nearest to the matrix
    /// exp(potentials) in relative entropy: z_ab = exp(potential_ab − r_a − c_b) with prices r, c >= 0
    /// that are 0 where there is room, by Sinkhorn's scaling of rows and columns in turn.
    fn entropic(
        &self,
        example: usize,
        potentials: &[f64],
        tolerance: f64,
        work: &mut Work,
        marginals: &mut [f64],
    ) -> Result<f64> {
        let (n_rows, n_columns) = self.size(example);
        if marginals.is_empty() {
            return Ok(0.0);
        }
        work.values.resize(2 * marginals.len() + 5 * n_rows + 4 * n_columns, 0.0);
        let (row_prices, rest) = work.values.split_at_mut(n_rows);
        let (column_prices, rest) = rest.split_at_mut(n_columns);
        let (kernel, rest) = rest.split_at_mut(marginals.len());
        let (transposed, rest) = rest.split_at_mut(marginals.len());
        transpose(potentials, transposed, n_rows, n_columns);
        start_prices(potentials, transposed, row_prices, column_prices, rest, &mut work.indices);
        let (shrunk, rest) = rest.split_at_mut(n_rows);
        let (rows, columns) = rest.split_at_mut(3 * n_rows);
        let (rows, columns) = (Side::new(row_prices, rows), Side::new(column_prices, columns));
        let sinkhorn = Sinkhorn {
            potentials,
            kernel,
            transposed,
            rows,
            columns,
            shrunk,
            tolerance,
            marginals,
        };
        Ok(Arch::new().dispatch(sinkhorn))
    }

    /// z_ab = max(0, point_ab − r_a − c_b) with prices r, c >= 0 that are 0 where there is room: exact
    /// projections of rows and columns in turn, which climb the dual.
    fn euclidean(
        &self,
        example: usize,
        point: &[f64],
        tolerance: f64,
        work: &mut Work,
        projection: &mut [f64],
    ) -> Result<f64> {
        let (n_rows, n_columns) = self.size(example);
        if point.is_empty() {
            return Ok(0.0);
        }
        let n_prices = n_rows + n_columns;
        work.values.resize(3 * n_prices + point.len(), 0.0);
        let (row_prices, rest) = work.values.split_at_mut(n_rows);
        let (column_prices, rest) = rest.split_at_mut(n_columns);
        let (transposed, shifted) = rest.split_at_mut(point.len());
        transpose(point, transposed, n_rows, n_columns);
        start_prices(point, transposed, row_prices, column_prices, shifted, &mut work.indices);
        let mut gap = f64::INFINITY;
        for _ in 0..max_rounds(point.len()) {
            let rows = raise(point, column_prices, row_prices, shifted);
            let columns = raise(transposed, row_prices, column_prices, shifted);
            gap = shrink(point, row_prices, column_prices, shifted, projection);
            if gap <= tolerance || rows.max(columns) <= STALLED {
                break;
            }
        }
        Ok(gap)
    }
}

/// The prices of the linear problem, which those of a problem on a large scale are near to, and which
/// from 0 would take many rounds: the mean of the two extreme solutions, with the rows' prices as low
/// and as high as they can be.
fn start_prices(
    matrix: &[f64],
    transposed: &[f64],
    row_prices: &mut [f64],
    column_prices: &mut [f64],
    values: &mut [f64],
    indices: &mut Vec<u32>,
) {
    row_prices.fill(0.0);
    column_prices.fill(0.0);
    let mut add = |matrix: &[f64], first: &mut [f64], second: &mut [f64]| {
        let (n_values, n_indices) = buffers(first.len(), second.len());
        indices.resize(n_indices, 0);
        solve(matrix, second.len(), &mut values[..n_values], indices);
        let prices = first.iter_mut().chain(second);
        prices.zip(&*values).for_each(|(price, value)| *price += 0.5 * value);
    };
    add(matrix, row_prices, column_prices);
    add(transposed, column_prices, row_prices);
}

fn transpose(matrix: &[f64], transposed: &mut [f64], n_rows: usize, n_columns: usize) {
    for (column, entries) in transposed.chunks_exact_mut(n_rows).enumerate() {
        let from = matrix[column..].iter().step_by(n_columns);
        entries.iter_mut().zip(from).for_each(|(entry, from)| *entry = *from);
    }
}

/// Gives each row the least price >= 0 at which max(0, point − price − other prices) sums to 1 at most,
/// and returns the largest relative change.
fn raise(point: &[f64], others: &[f64], prices: &mut [f64], shifted: &mut [f64]) -> f64 {
    let set = Capped { upper: f64::INFINITY, floor: 0.0, cap: 1.0, bias: 0.0 };
    let shifted = &mut shifted[..others.len()];
    let mut change = 0.0_f64;
    for (point, price) in point.chunks_exact(others.len()).zip(prices) {
        for (shifted, (point, other)) in shifted.iter_mut().zip(point.iter().zip(others)) {
            *shifted = point - other;
        }
        let before = std::mem::replace(price, set.multiplier(shifted, *price));
        change = change.max((*price - before).abs() / (1.0 + before));
    }
    change
}

/// Writes z = max(0, point − prices), its rows scaled down to sums of 1, and returns the duality gap
/// ½‖z − before scaling‖² + Σ price · (1 − sum), every term of which is at least 0.
fn shrink(
    point: &[f64],
    row_prices: &[f64],
    column_prices: &[f64],
    column_sums: &mut [f64],
    z: &mut [f64],
) -> f64 {
    let n_columns = column_prices.len();
    let column_sums = &mut column_sums[..n_columns];
    column_sums.fill(0.0);
    let mut gap = 0.0;
    let rows = point.chunks_exact(n_columns).zip(z.chunks_exact_mut(n_columns));
    for ((point, z), row_price) in rows.zip(row_prices) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for (z, (point, price)) in z.iter_mut().zip(point.iter().zip(column_prices)) {
            *z = (point - row_price - price).max(0.0);
            sum += *z;
            squares += *z * *z;
        }
        if sum > 1.0 {
            let lost = 1.0 - 1.0 / sum;
            gap += 0.5 * lost * lost * squares;
            z.iter_mut().for_each(|z| *z /= sum);
        } else {
            gap += row_price * (1.0 - sum);
        }
        column_sums.iter_mut().zip(&*z).for_each(|(sum, z)| *sum += z);
    }
    for (price, sum) in column_prices.iter().zip(&*column_sums) {
        gap += price * (1.0 - sum).max(0.0);
    }
    let excess = column_sums.iter().fold(1.0, |largest: f64, sum| largest.max(*sum));
    // Columns keep to their bounds but for rounding.
    z.iter_mut().for_each(|z| *z /= excess);
    gap
}

/// What belongs to the rows, or to the columns: z_ab = kernel_ab · scale_a · scale_b.
struct Side<'a> {
    /// Minus the prices, as far as they are in the kernel.
    logs: &'a mut [f64],
    /// The scales at which prices are 0.
    limits: &'a mut [f64],
    scales: &'a mut [f64],
    sums: &'a mut [f64],
}

impl<'a> Side<'a> {
    /// Starts from the given prices.
    fn new(prices: &'a mut [f64], work: &'a mut [f64]) -> Self {
        let (limits, rest) = work.split_at_mut(prices.len());
        let (scales, sums) = rest.split_at_mut(prices.len());
        prices.iter_mut().for_each(|price| *price = -price.max(0.0));
        scales.fill(1.0);
        Self { logs: prices, limits, scales, sums }
    }

    /// Moves the scales into the kernel's logarithms.
    #[inline(always)]
    fn absorb(&mut self) {
        let logs = self.logs.iter_mut().zip(&mut *self.limits);
        for ((log, limit), scale) in logs.zip(&mut *self.scales) {
            *log += scale.ln();
            *limit = (-*log).exp();
            *scale = 1.0;
        }
    }

    /// Sets the largest scales at which sums and prices keep their bounds, and returns the largest
    /// relative change; `kernel` is by the other side.
    #[inline(always)]
    fn rescale<S: Simd>(&mut self, simd: S, kernel: &[f64], others: &[f64]) -> f64 {
        self.sum(simd, kernel, others);
        let mut change = 0.0_f64;
        let limits = self.limits.iter().zip(&*self.sums);
        for (scale, (limit, sum)) in self.scales.iter_mut().zip(limits) {
            let before = std::mem::replace(scale, limit.min(1.0 / sum));
            change = change.max((before / *scale - 1.0).abs());
        }
        change
    }

    /// sums = Σ_others kernel · scale.
    #[inline(always)]
    fn sum<S: Simd>(&mut self, simd: S, kernel: &[f64], others: &[f64]) {
        let n = self.sums.len();
        let rows = others.iter().enumerate();
        fold::<Sum, S>(
            simd,
            rows.map(
                #[inline(always)]
                |(at, scale)| (*scale, &kernel[at * n..]),
            ),
            self.sums,
        );
    }

    /// Σ price · room, where the sums are those of z.
    #[inline(always)]
    fn unused(&self) -> f64 {
        let prices = self.logs.iter().zip(self.limits.iter().zip(&*self.scales));
        let mut unused = 0.0;
        for ((log, (limit, scale)), sum) in prices.zip(&*self.sums) {
            if scale < limit && *sum < 1.0 {
                unused -= (log + scale.ln()) * (1.0 - sum);
            }
        }
        unused
    }

    #[inline(always)]
    fn is_far(&self) -> bool {
        self.scales.iter().any(|scale| !(1.0 / LARGE_SCALE..=LARGE_SCALE).contains(scale))
    }
}

struct Sinkhorn<'a> {
    potentials: &'a [f64],
    kernel: &'a mut [f64],
    transposed: &'a mut [f64],
    rows: Side<'a>,
    columns: Side<'a>,
    /// The scales of the rows at which their sums are at most 1.
    shrunk: &'a mut [f64],
    tolerance: f64,
    marginals: &'a mut [f64],
}

impl WithSimd for Sinkhorn<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> f64 {
        self.load();
        let n_rounds = max_rounds(self.potentials.len());
        let mut gap = f64::INFINITY;
        for round in 1..=n_rounds {
            if self.rows.is_far() || self.columns.is_far() {
                self.load();
            }
            let rows = self.rows.rescale(simd, self.transposed, self.columns.scales);
            let columns = self.columns.rescale(simd, self.kernel, self.rows.scales);
            let stalled = rows.max(columns) <= STALLED;
            if stalled || round % CHECK == 0 || round == n_rounds {
                gap = self.shrink(simd);
                if stalled || gap <= self.tolerance {
                    break;
                }
            }
        }
        self.write();
        gap
    }
}

impl Sinkhorn<'_> {
    /// Starts again from the scaled kernel.
    #[inline(always)]
    fn load(&mut self) {
        self.rows.absorb();
        self.columns.absorb();
        let (n_rows, n_columns) = (self.rows.logs.len(), self.columns.logs.len());
        let rows = self.kernel.chunks_exact_mut(n_columns);
        let rows = rows.zip(self.potentials.chunks_exact(n_columns));
        for ((kernel, potentials), row) in rows.zip(&*self.rows.logs) {
            let logs = potentials.iter().zip(&*self.columns.logs);
            for (kernel, (potential, column)) in kernel.iter_mut().zip(logs) {
                *kernel = exp_minus(-(potential + row + column));
            }
        }
        transpose(self.kernel, self.transposed, n_rows, n_columns);
    }

    /// Scales the rows down to sums of 1, which leaves the columns feasible, and returns the duality gap
    /// Σ (x ln(x / x') − x + x') + Σ price · room of the scaled x and the x' before.
    #[inline(always)]
    fn shrink<S: Simd>(&mut self, simd: S) -> f64 {
        let Self { rows, columns, shrunk, .. } = self;
        rows.sum(simd, self.transposed, columns.scales);
        let mut gap = 0.0;
        let scales = rows.sums.iter_mut().zip(&*rows.scales);
        for ((sum, scale), shrunk) in scales.zip(&mut **shrunk) {
            let before = *sum * scale;
            let factor = 1.0 / before.max(1.0);
            gap += before * (factor * factor.ln() - factor + 1.0).max(0.0);
            *shrunk = factor * scale;
            *sum = factor * before;
        }
        columns.sum(simd, self.kernel, shrunk);
        for (sum, scale) in columns.sums.iter_mut().zip(&*columns.scales) {
            *sum *= scale;
        }
        gap + rows.unused() + columns.unused()
    }

    /// z with the rows of the last [`Sinkhorn::shrink`].
    #[inline(always)]
    fn write(&mut self) {
        let n_columns = self.columns.logs.len();
        let rows = self.marginals.chunks_exact_mut(n_columns);
        let rows = rows.zip(self.kernel.chunks_exact(n_columns));
        for ((marginals, kernel), row) in rows.zip(&*self.shrunk) {
            let entries = kernel.iter().zip(&*self.columns.scales);
            for (marginal, (kernel, column)) in marginals.iter_mut().zip(entries) {
                *marginal = kernel * row * column;
            }
        }
    }
}
