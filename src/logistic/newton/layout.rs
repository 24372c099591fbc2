//! The assignment of rows to blocks, and the scaling of their values by units of the columns.

use crate::data::Rows;
use crate::data::{Data, Dense, Real};
use crate::for_data;
use crate::logistic::LogisticProblem;

/// Number of consecutive rows that stay together, so that reads cover several cache lines.
pub(super) const GROUP: usize = 16;
/// The largest absolute exponent of a column's unit, which is a power of two. Squares of the units
/// stay finite.
const RANGE: i32 = 500;

/// The order of the rows, and the units of their columns.
pub(super) struct RowBlocks<'a> {
    pub problem: LogisticProblem<'a>,
    /// A power of two for each column, at least as large as the column's values; 1 for the constant column.
    pub units: Vec<f64>,
    inverse_units: Vec<f64>,
    /// Number of rows of a block.
    pub block_rows: usize,
    /// Multiplier that permutes groups of rows, so that the first blocks are a nearly random sample
    /// even if the rows are sorted.
    stride: usize,
}

impl<'a> RowBlocks<'a> {
    /// Arranges a problem in blocks of `block_rows` rows.
    pub fn new(problem: &LogisticProblem<'a>, block_rows: usize) -> Self {
        let mut units: Vec<f64> = problem.column_sizes().iter().map(|size| unit(*size)).collect();
        units.extend(problem.intercept().then_some(1.0));
        let inverse_units = units.iter().map(|unit| 1.0 / unit).collect();
        let stride = coprime(problem.n_examples() / GROUP);
        let problem = problem.clone();
        Self { problem, units, inverse_units, block_rows, stride }
    }

    /// Number of columns, including the constant column.
    pub fn width(&self) -> usize {
        self.units.len()
    }

    /// The rows at [`GROUP`] consecutive positions in the order of the blocks, starting at a multiple of this number;
    /// None beyond the last row.
    pub fn rows_at(&self, first: usize) -> [Option<usize>; GROUP] {
        let n_rows = self.problem.n_examples();
        let (group, n_groups) = (first / GROUP, n_rows / GROUP);
        let first = if group < n_groups {
            (group as u128 * self.stride as u128 % n_groups as u128) as usize * GROUP
        } else {
            first
        };
        std::array::from_fn(|lane| (first + lane < n_rows).then_some(first + lane))
    }

    /// Writes a block, one line per column, padded with zeros after the last row.
    pub fn fill<T: Real>(&self, block: usize, lines: &mut [T]) {
        for group in (0..self.block_rows).step_by(GROUP) {
            let rows = self.rows_at(block * self.block_rows + group);
            match self.problem.rows() {
                Data::Dense64(dense) => self.fill_group(dense, (rows, group), lines),
                Data::Dense32(dense) => self.fill_group(dense, (rows, group), lines),
                data => self.fill_entries(data, (rows, group), lines),
            }
            if self.problem.intercept() {
                let last = (self.width() - 1) * self.block_rows + group;
                for (lane, row) in rows.iter().enumerate() {
                    lines[last + lane] = if row.is_some() { T::one() } else { T::zero() };
                }
            }
        }
    }

    /// Scales the rows one after another, in memory order, and then transposes them in the cache.
    fn fill_group<V: Real, T: Real>(
        &self,
        dense: Dense<'_, V>,
        (rows, group): ([Option<usize>; GROUP], usize),
        lines: &mut [T],
    ) {
        let n_columns = self.problem.n_features();
        let mut scaled = vec![T::zero(); GROUP * n_columns];
        for (row, scaled) in rows.iter().zip(scaled.chunks_exact_mut(n_columns.max(1))) {
            let Some(row) = *row else { continue };
            for ((to, x), inverse) in scaled.iter_mut().zip(dense.row(row)).zip(&self.inverse_units)
            {
                *to = T::narrow(x.widen() * inverse);
            }
        }
        for (column, line) in lines.chunks_exact_mut(self.block_rows).take(n_columns).enumerate() {
            let values = scaled[column..].iter().step_by(n_columns);
            line[group..group + GROUP].iter_mut().zip(values).for_each(|(to, x)| *to = *x);
        }
    }

    fn fill_entries<T: Real>(
        &self,
        data: Data<'_>,
        (rows, group): ([Option<usize>; GROUP], usize),
        lines: &mut [T],
    ) {
        for line in lines.chunks_exact_mut(self.block_rows) {
            line[group..group + GROUP].fill(T::zero());
        }
        for (lane, row) in rows.iter().enumerate() {
            let Some(row) = *row else { continue };
            for_data!(data, rows => rows.visit_row(row, |column, value| {
                let place = column * self.block_rows + group + lane;
                lines[place] = T::narrow(value * self.inverse_units[column]);
            }));
        }
    }
}

/// The smallest power of two that is not below a size, within the range.
pub(super) fn unit(size: f64) -> f64 {
    if size == 0.0 {
        return 1.0;
    }
    2f64.powi((size.log2().ceil() as i32).clamp(-RANGE, RANGE))
}

/// A number close to n times the golden ratio conjugate that is coprime to n.
fn coprime(n: usize) -> usize {
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (n as f64 * 0.618_033_988_75) as usize | 1;
    (first..).step_by(2).find(|stride| divisor(*stride, n) <= 1).unwrap_or(1)
}
