//! The assignment of rows to blocks, and the scaling of their values by units of the columns.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::data::{Data, Dense, Real, Rows, for_dense};
use crate::for_data;
use crate::linalg::{arch, transpose};
use crate::logistic::LogisticProblem;
use crate::logistic::columns::ColumnStats;

/// Number of consecutive rows that are transposed together.
pub(super) const GROUP: usize = 16;
/// Consecutive rows stay together up to this number of values, so that jumps between sets of rows cost little time. At
/// most [`MOST_TOGETHER`] rows stay together, and at most one in [`SHARE_TOGETHER`] of all rows, so that samples stay
/// nearly random.
const VALUES_TOGETHER: usize = 2048;
const MOST_TOGETHER: usize = 8 * GROUP;
const SHARE_TOGETHER: usize = 1024;
/// Rows with fewer columns than this are always copied.
const DIRECT: usize = 32;
/// If a column's mean exceeds this fraction of its largest value, the largest centred values are computed, because
/// |mean| + largest value would be too loose a bound.
const FAR: f64 = 0.9;
/// The largest absolute exponent of a column's unit, which is a power of two. Squares of the units
/// stay finite.
const RANGE: i32 = 500;

/// The order of the rows, and the units of their columns.
pub(super) struct RowBlocks<'a> {
    pub problem: LogisticProblem<'a>,
    /// A power of two for each column, at least as large as the column's centred values; 1 for the constant
    /// column.
    pub units: Vec<f64>,
    pub inverse_units: Vec<f64>,
    /// An approximate mean of each column, which is subtracted from the column's values; 0 without an intercept, for
    /// CSR rows, and for the constant column. An unregularised intercept compensates for the subtraction.
    pub centres: Vec<f64>,
    /// Bounds on the absolute values of each column after centring.
    pub sizes: Vec<f64>,
    /// Number of rows of a block.
    pub block_rows: usize,
    /// Number of consecutive rows that stay together: [`GROUP`] times a power of two.
    together: usize,
    /// Multiplier that permutes the sets of rows that stay together, so that the first blocks are a nearly random
    /// sample even if the rows are sorted.
    stride: usize,
}

impl<'a> RowBlocks<'a> {
    /// Arranges a problem in blocks of `block_rows` rows.
    pub fn new(problem: &LogisticProblem<'a>, block_rows: usize) -> Self {
        let mut centres = problem.spread().centre.clone();
        let bounds = || problem.column_sizes().iter().zip(&centres);
        let sizes = if bounds().any(|(size, centre)| centre.abs() > FAR * size) {
            ColumnStats::centred(problem.rows(), &centres)
        } else {
            bounds().map(|(size, centre)| size + centre.abs()).collect()
        };
        let mut units: Vec<f64> = sizes.iter().map(|size| unit(*size)).collect();
        centres.resize(units.len() + usize::from(problem.intercept()), 0.0);
        units.extend(problem.intercept().then_some(1.0));
        let inverse_units = units.iter().map(|unit| 1.0 / unit).collect();
        let (n_rows, n_columns) = (problem.n_examples(), problem.n_features());
        let mut together = GROUP;
        while together * n_columns < VALUES_TOGETHER
            && 2 * together <= MOST_TOGETHER.min(n_rows / SHARE_TOGETHER)
        {
            together *= 2;
        }
        let stride = coprime(n_rows / together);
        let problem = problem.clone();
        Self { problem, units, inverse_units, centres, sizes, block_rows, together, stride }
    }

    /// Number of columns, including the constant column.
    pub fn width(&self) -> usize {
        self.units.len()
    }

    /// The rows at [`GROUP`] consecutive positions in the order of the blocks, starting at a multiple of [`GROUP`];
    /// fewer rows, or none, at the end.
    pub fn rows_at(&self, first: usize) -> Range<usize> {
        let n_rows = self.problem.n_examples();
        let (together, n_together) = (first / self.together, n_rows / self.together);
        let first = if together < n_together {
            let place = (together as u128 * self.stride as u128 % n_together as u128) as usize;
            place * self.together + first % self.together
        } else {
            first
        };
        first.min(n_rows)..(first + GROUP).min(n_rows)
    }

    /// Whether passes in double precision read the rows without a copy: the rows are dense and not narrow, and have one
    /// output. For other rows, a transposed copy in the cache takes less time.
    pub fn is_direct(&self) -> bool {
        let dense = !self.problem.rows().is_sparse();
        dense && self.problem.n_outputs() == 1 && self.problem.n_features() >= DIRECT
    }

    /// Writes a block, one line per column, padded with zeros after the last row.
    pub fn fill<T: Real>(&self, block: usize, lines: &mut [T]) {
        let first = block * self.block_rows;
        for_dense!(
            self.problem.rows(),
            rows => arch().dispatch(Fill { layout: self, rows, first, lines }),
            data => self.fill_entries(data, first, lines)
        );
        if self.problem.intercept() {
            let line = &mut lines[(self.width() - 1) * self.block_rows..];
            for place in (0..self.block_rows).step_by(GROUP) {
                let n_own = self.rows_at(first + place).len();
                line[place..place + n_own].fill(T::one());
                line[place + n_own..place + GROUP].fill(T::zero());
            }
        }
    }

    fn fill_entries<T: Real>(&self, data: Data<'_>, first: usize, lines: &mut [T]) {
        lines[..self.problem.n_features() * self.block_rows].fill(T::zero());
        for group in (0..self.block_rows).step_by(GROUP) {
            for (lane, row) in self.rows_at(first + group).enumerate() {
                for_data!(data, rows => rows.visit_row(row, |column, value| {
                    let place = column * self.block_rows + group + lane;
                    lines[place] = T::narrow(value * self.inverse_units[column]);
                }));
            }
        }
    }
}

/// Writes the columns of a block of dense rows, except the constant column. `first` is the block's first position in
/// the order of the blocks.
struct Fill<'k, 'a, V, T> {
    layout: &'k RowBlocks<'a>,
    rows: Dense<'k, V>,
    first: usize,
    lines: &'k mut [T],
}

impl<V: Real, T: Real> WithSimd for Fill<'_, '_, V, T> {
    type Output = ();

    /// Scales the rows of a group one after another, in memory order, and then transposes them.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, rows, first, lines } = self;
        let (n_rows, n_columns) = (layout.block_rows, layout.problem.n_features());
        if n_columns == 0 {
            return;
        }
        let mut scaled = vec![T::zero(); GROUP * n_columns];
        for group in (0..n_rows).step_by(GROUP) {
            let own = layout.rows_at(first + group);
            let rest = own.len() * n_columns;
            for (row, scaled) in own.zip(scaled.chunks_exact_mut(n_columns)) {
                let units = layout.inverse_units.iter().zip(&layout.centres);
                for ((to, x), (inverse, centre)) in scaled.iter_mut().zip(rows.row(row)).zip(units)
                {
                    *to = T::narrow((x.widen() - centre) * inverse);
                }
            }
            scaled[rest..].fill(T::zero());
            transpose(&scaled, n_columns, &mut lines[group..n_columns * n_rows], n_rows);
        }
    }
}

/// The smallest power of two that is not below a size, with its exponent limited to ±[`RANGE`]; 1 if the size is 0.
pub(super) fn unit(size: f64) -> f64 {
    if size == 0.0 {
        return 1.0;
    }
    2f64.powi((size.log2().ceil() as i32).clamp(-RANGE, RANGE))
}

/// A number that is coprime to n and close to n times the golden ratio conjugate.
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

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::Csr;

    #[test]
    fn blocks_hold_each_row_once_in_any_layout() {
        let block_rows = 8 * GROUP;
        for (n, d, together) in [(40, 3, GROUP), (40_005, 3, 2 * GROUP), (40_005, 130, GROUP)] {
            let rows = Array2::from_shape_fn((n, d), |(i, j)| (i * d + j) as f32);
            let values = rows.as_slice().unwrap();
            let offsets: Vec<i64> = (0..=n as i64).map(|i| i * d as i64).collect();
            let columns: Vec<i32> = (0..n * d).map(|at| (at % d) as i32).collect();
            let dense = Data::Dense32(Dense::new(rows.view()).unwrap());
            let sparse = Data::Csr32(Csr::new(&offsets, &columns, values, d).unwrap());
            let labels: Vec<u32> = (0..n).map(|i| (i % 2) as u32).collect();
            let problem = |data| LogisticProblem::new(data, &labels, 2, vec![1.0; n], true);
            let (dense, sparse) = (problem(dense).unwrap(), problem(sparse).unwrap());
            let [dense, sparse] = [&dense, &sparse].map(|own| RowBlocks::new(own, block_rows));
            assert_eq!(dense.together, together);
            let n_blocks = n.div_ceil(block_rows);
            let mut lines = vec![f64::NAN; (d + 1) * block_rows];
            let (mut other, mut seen) = (lines.clone(), vec![false; n]);
            for block in 0..n_blocks {
                dense.fill(block, &mut lines);
                sparse.fill(block, &mut other);
                for place in 0..block_rows {
                    let value = |column: usize| lines[column * block_rows + place];
                    if value(d) == 0.0 {
                        assert!((0..d).all(|column| value(column) == 0.0));
                        continue;
                    }
                    let centred = |at: usize| value(at) * dense.units[at] + dense.centres[at];
                    let row = centred(0).round() as usize / d;
                    assert!(!std::mem::replace(&mut seen[row], true));
                    let expected = |column: usize| f64::from(rows[[row, column]]);
                    assert!((0..d).all(|at| (centred(at) - expected(at)).abs() < 1e-6));
                    let other = |at: usize| other[at * block_rows + place] * sparse.units[at];
                    assert!((0..d).all(|at| other(at) == expected(at)));
                }
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
