//! Blocks of rows: their products with weights, and sums of the outer products of rows and factors.

use std::ops::Range;

use crate::data::Rows;
use crate::linalg::vectors::axpy;
use crate::linalg::{Element, PanelWeights, Panels, Update};

/// Number of rows that pass through all layers together. Their intermediate values stay in the
/// caches, and the weights are loaded only once per block.
pub(super) const BLOCK_ROWS: usize = 64;

/// Minimum fraction of stored entries for which rows are multiplied as dense. Multiplying zeros in vectors of eight
/// then costs less than looking up the column of each entry.
const DENSE: f64 = 0.25;

/// Rows [x, 1], in the precision of the products.
#[derive(Debug)]
pub(super) enum RowBlock<T> {
    /// `n_inputs` values per row.
    Dense { values: Vec<T>, n_inputs: usize },
    /// Stored entries; `bounds` marks where each row starts and ends.
    Sparse { bounds: Vec<usize>, columns: Vec<i32>, values: Vec<T> },
}

impl<T: Element> RowBlock<T> {
    /// An empty block for some of `rows`. The block is dense if enough entries of `rows` are stored.
    pub fn new(rows: &impl Rows) -> Self {
        let n_inputs = rows.n_cols() + 1;
        if rows.n_stored() as f64 >= DENSE * rows.n_rows() as f64 * rows.n_cols() as f64 {
            Self::Dense { values: Vec::new(), n_inputs }
        } else {
            Self::Sparse { bounds: Vec::new(), columns: Vec::new(), values: Vec::new() }
        }
    }

    /// Loads the wanted rows, in the given order.
    pub fn load(&mut self, rows: &impl Rows, wanted: impl ExactSizeIterator<Item = usize>) {
        let last = rows.n_cols();
        match self {
            Self::Dense { values, n_inputs } => {
                values.clear();
                values.resize(wanted.len() * *n_inputs, T::zero());
                for (row, values) in wanted.zip(values.chunks_exact_mut(*n_inputs)) {
                    rows.visit_row(row, |column, value| values[column] = T::narrow(value));
                    values[last] = T::one();
                }
            }
            Self::Sparse { bounds, columns, values } => {
                columns.clear();
                values.clear();
                bounds.clear();
                bounds.push(0);
                for row in wanted {
                    rows.visit_row(row, |column, value| {
                        columns.push(column as i32);
                        values.push(T::narrow(value));
                    });
                    columns.push(last as i32);
                    values.push(T::one());
                    bounds.push(values.len());
                }
            }
        }
    }

    /// The squares of all entries.
    pub fn squared(&self) -> Self {
        let square = |values: &[T]| values.iter().map(|x| *x * *x).collect();
        match self {
            Self::Dense { values, n_inputs } => {
                Self::Dense { values: square(values), n_inputs: *n_inputs }
            }
            Self::Sparse { bounds, columns, values } => Self::Sparse {
                bounds: bounds.clone(),
                columns: columns.clone(),
                values: square(values),
            },
        }
    }

    /// Adds the products of the rows with `weights` to `out`, `width` values per row.
    pub fn add_product(&self, weights: &Panels<T>, width: usize, out: &mut [f64]) {
        match self {
            Self::Dense { values, .. } => weights.add_scores(values, out),
            Self::Sparse { bounds, columns, values } => {
                for (bounds, out) in bounds.windows(2).zip(out.chunks_exact_mut(width.max(1))) {
                    let range = bounds[0]..bounds[1];
                    weights.add_sparse_scores(&columns[range.clone()], &values[range], out);
                }
            }
        }
    }
}

/// The sum Σ_i x_i δ_iᵀ over the rows x_i of many blocks, with factors δ_i: a matrix of inputs × width.
pub(super) struct OuterSum<'a> {
    total: &'a mut [f64],
    width: usize,
    /// Sums for dense rows, with memory for the factors of a block.
    dense: Option<(PanelWeights<f64>, Vec<f64>)>,
    change: Vec<f64>,
}

impl<'a> OuterSum<'a> {
    /// Creates a sum that is added to `total`. If `total` is empty, nothing is computed.
    pub fn new(total: &'a mut [f64], width: usize) -> Self {
        Self { total, width, dense: None, change: vec![0.0; width] }
    }

    /// Adds the outer product of each row of `block` with the factors that `change(row, values)`
    /// writes.
    pub fn add(&mut self, block: &RowBlock<f64>, mut change: impl FnMut(usize, &mut [f64])) {
        if self.total.is_empty() {
            return;
        }
        match block {
            RowBlock::Dense { values, n_inputs } => self.add_dense(values, *n_inputs, change),
            RowBlock::Sparse { bounds, columns, values } => {
                for (row, bounds) in bounds.windows(2).enumerate() {
                    change(row, &mut self.change);
                    let range = bounds[0]..bounds[1];
                    for (&column, x) in columns[range.clone()].iter().zip(&values[range]) {
                        let start = column as usize * self.width;
                        let sums = &mut self.total[start..start + self.width];
                        axpy(sums, *x, &self.change);
                    }
                }
            }
        }
    }

    /// Does the same as [`OuterSum::add`] for dense rows of `n_inputs` values.
    pub fn add_dense(
        &mut self,
        rows: &[f64],
        n_inputs: usize,
        mut change: impl FnMut(usize, &mut [f64]),
    ) {
        if self.total.is_empty() {
            return;
        }
        let (sums, changes) = self.dense.get_or_insert_with(|| {
            let sums = PanelWeights::new(n_inputs, self.width);
            let changes = vec![0.0; BLOCK_ROWS * sums.padded()];
            (sums, changes)
        });
        let all: [usize; BLOCK_ROWS] = std::array::from_fn(|row| row);
        let n_rows = rows.len() / n_inputs;
        for (row, values) in changes.chunks_exact_mut(sums.padded()).take(n_rows).enumerate() {
            change(row, &mut values[..self.width]);
        }
        sums.update(&Update { rows, changes, changed: &all[..n_rows] });
    }
}

impl Drop for OuterSum<'_> {
    /// Adds the sum of the dense rows to `total`. This happens once, at the end, because the sum is
    /// kept in panels with a different memory order. It happens in `drop` because a caller that
    /// forgot to call a method would silently lose the sum.
    fn drop(&mut self) {
        if let Some((panels, _)) = &self.dense {
            for (input, sums) in self.total.chunks_exact_mut(self.width).enumerate() {
                for (column, sum) in sums.iter_mut().enumerate() {
                    *sum += panels.get(input, column);
                }
            }
        }
    }
}

/// Splits a range of rows into blocks.
pub(super) fn row_blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK_ROWS).map(move |start| start..(start + BLOCK_ROWS).min(end))
}
