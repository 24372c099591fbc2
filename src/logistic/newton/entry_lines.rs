//! Copies of the stored entries of sparse rows, by rows and by columns, and weighted sums over a row or a column.

use pulp::Simd;

use crate::data::{Csr, Real, Rows};
use crate::linalg::{Aligned, CountingSort, Kernel, Lane};
use crate::logistic::sparse_row::score;

/// Number of rows whose probabilities are computed together.
pub(super) const TILE: usize = 128;
/// Number of entries of a column that are summed in single precision before they are added to a sum
/// in double precision.
const SINGLE: usize = 512;

/// The entries of all rows (or columns), stored row by row (or column by column).
pub(super) struct EntryLines {
    pub offsets: Vec<usize>,
    pub places: Vec<i32>,
    pub values: Vec<f32>,
}

impl EntryLines {
    /// Number of rows (or columns).
    pub fn n_lines(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The places and the values of a row's (or a column's) entries.
    pub fn line(&self, line: usize) -> (&[i32], &[f32]) {
        let range = self.offsets[line]..self.offsets[line + 1];
        (&self.places[range.clone()], &self.values[range])
    }

    /// Copies rows, with each value divided by the unit of its column.
    pub fn of_rows<R: Real>(rows: Csr<'_, R>, inverse_units: &[f64]) -> Self {
        let (mut offsets, mut places, mut values) = (vec![0], Vec::new(), Vec::new());
        places.reserve_exact(rows.n_stored());
        values.reserve_exact(rows.n_stored());
        for row in 0..rows.n_rows() {
            let (columns, entries) = rows.row(row);
            places.extend_from_slice(columns);
            let scaled = columns.iter().zip(entries);
            values.extend(
                scaled.map(|(column, x)| (x.widen() * inverse_units[*column as usize]) as f32),
            );
            offsets.push(places.len());
        }
        Self { offsets, places, values }
    }

    /// Returns the entries of these rows column by column, with a constant column at the end if there is an intercept.
    pub fn columns(&self, n_columns: usize, intercept: bool) -> Self {
        let n_rows = self.offsets.len() - 1;
        let mut sort = CountingSort::new(n_columns);
        self.places.iter().for_each(|column| sort.count(*column as usize));
        let mut offsets = sort.starts();
        let (mut places, mut values) = (vec![0; self.places.len()], vec![0.0; self.places.len()]);
        for row in 0..n_rows {
            let (columns, entries) = self.line(row);
            for (column, x) in columns.iter().zip(entries) {
                let place = sort.place(*column as usize);
                (places[place], values[place]) = (row as i32, *x);
            }
        }
        if intercept {
            places.extend(0..n_rows as i32);
            values.resize(places.len(), 1.0);
            offsets.push(places.len());
        }
        Self { offsets, places, values }
    }
}

/// Scores of a tile of rows, rows × padded outputs.
pub(super) struct TileScores<'k> {
    pub rows: &'k EntryLines,
    pub first: usize,
    /// Columns × padded outputs, then the intercepts.
    pub values: &'k [f32],
    pub padded: usize,
    pub out: &'k mut [f32],
}

impl Kernel<f32> for TileScores<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        f32: Lane<S>,
    {
        let Self { rows, first, values, padded, out } = self;
        let (weights, intercepts) = values.split_at(values.len() - padded);
        let n_rows = rows.offsets.len() - 1;
        for (row, out) in (first..n_rows).zip(out.chunks_exact_mut(padded)) {
            let row = rows.line(row);
            if padded == 1 {
                out[0] = intercepts[0] + dot(row, weights);
                continue;
            }
            let out = f32::vectors_mut(out).0;
            let weights = f32::vectors(weights).0;
            score::<S, f32>(simd, weights, out.len(), row, f32::vectors(intercepts).0, out);
        }
    }
}

/// Sums over the entries of some columns, each entry (or its square) multiplied by its row's residual.
pub(super) struct ColumnSums<'k> {
    pub columns: &'k EntryLines,
    pub first: usize,
    pub residuals: &'k [f32],
    pub padded: usize,
    pub squared: bool,
    pub sums: &'k mut [f64],
}

impl Kernel<f32> for ColumnSums<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        f32: Lane<S>,
    {
        let Self { columns, first, residuals, padded, squared, sums } = self;
        let (zeros, mut part) = (Aligned::<f32>::zeros(padded), Aligned::<f32>::zeros(padded));
        let mut squares = Vec::new();
        for (column, sums) in (first..).zip(sums.chunks_exact_mut(padded)) {
            let (rows, entries) = columns.line(column);
            for (rows, mut entries) in rows.chunks(SINGLE).zip(entries.chunks(SINGLE)) {
                if squared {
                    squares.clear();
                    squares.extend(entries.iter().map(|x| x * x));
                    entries = &squares;
                }
                if padded == 1 {
                    sums[0] += f64::from(dot((rows, entries), residuals));
                    continue;
                }
                let out = f32::vectors_mut(&mut part).0;
                let (zeros, residuals) = (f32::vectors(&zeros).0, f32::vectors(residuals).0);
                score::<S, f32>(simd, residuals, out.len(), (rows, entries), zeros, out);
                sums.iter_mut().zip(&part[..]).for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
    }
}

/// ⟨x, w⟩ in four independent sums, which hides the latency of additions.
#[inline(always)]
fn dot((places, values): (&[i32], &[f32]), weights: &[f32]) -> f32 {
    let ((places, last), (values, rest)) = (places.as_chunks::<4>(), values.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (places, values) in places.iter().zip(values) {
        for ((sum, place), value) in sums.iter_mut().zip(places).zip(values) {
            *sum += weights[*place as usize] * value;
        }
    }
    let rest: f32 = last.iter().zip(rest).map(|(at, value)| weights[*at as usize] * value).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}
