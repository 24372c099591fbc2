//! Passes over the stored entries of sparse rows, in single precision.
//!
//! Scores are sums over the entries of a row, and gradients are sums over the entries of a column.
//! The entries are stored by rows and by columns, so that each result is a single sum in a fixed
//! order, for any number of threads.

use pulp::Simd;
use rayon::prelude::*;

use super::layout::unit;
use super::passes::RowPasses;
use super::preconditioner::{HessianPart, Preconditioner};
use super::softmax::{BlockSums, BlockTargets, curve, softmax};
use super::store::BlockSample;
use crate::data::{Csr, Real, Rows};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, CountingSort, Element, Kernel, Lane, transpose};
use crate::logistic::certificate::certificate_and_terms;
use crate::logistic::sparse_row::score;
use crate::logistic::{LogisticModel, LogisticProblem};
use crate::parallel::min_len;
use crate::run::Certificate;

/// Rows whose probabilities are computed together.
const TILE: usize = 128;
/// Columns whose gradients one thread computes at a time.
const COLUMNS: usize = 128;
/// Number of entries of a column that are summed in single precision before they are added to a sum
/// in double precision.
const SINGLE: usize = 512;

/// Sparse rows and columns of a problem, with the probabilities from the last pass.
pub(super) struct EntryStore<'a> {
    problem: LogisticProblem<'a>,
    units: Vec<f64>,
    rows: Entries,
    /// The columns, including the constant column.
    columns: Entries,
    labels: Vec<u32>,
    /// The c_i divided by `weight`, the largest c_i; 0 for rows that pad the last tile.
    weights: Vec<f32>,
    weight: f64,
    /// Number of outputs, padded to whole vectors.
    padded: usize,
    /// Weights or a direction, columns × padded outputs; a row of intercepts at the end.
    values: Aligned<f32>,
    /// Probabilities: for each tile, one line per output.
    shares: Aligned<f32>,
    /// Residuals, rows × padded outputs. Gradients are weighted sums of residuals.
    residuals: Aligned<f32>,
    /// Weights for which the probabilities have not been computed yet.
    due: Option<Vec<f64>>,
}

/// The entries of all rows (or columns), stored row by row (or column by column).
struct Entries {
    offsets: Vec<usize>,
    places: Vec<i32>,
    values: Vec<f32>,
}

impl Entries {
    fn line(&self, line: usize) -> (&[i32], &[f32]) {
        let range = self.offsets[line]..self.offsets[line + 1];
        (&self.places[range.clone()], &self.values[range])
    }

    /// Copies rows, with each value divided by the unit of its column.
    fn of_rows<R: Real>(rows: Csr<'_, R>, inverse_units: &[f64]) -> Self {
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

    /// The columns of rows, and a constant one if there is an intercept.
    fn columns(&self, n_columns: usize, intercept: bool) -> Self {
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

impl<'a> EntryStore<'a> {
    /// Stores the rows of a problem.
    pub fn new<R: Real>(problem: &LogisticProblem<'a>, rows: Csr<'a, R>) -> Self {
        let mut units: Vec<f64> = problem.column_sizes().iter().map(|size| unit(*size)).collect();
        let inverse: Vec<f64> = units.iter().map(|unit| 1.0 / unit).collect();
        let rows = Entries::of_rows(rows, &inverse);
        let columns = rows.columns(units.len(), problem.intercept());
        units.extend(problem.intercept().then_some(1.0));
        let (n, n_outputs) = (problem.n_examples(), problem.n_outputs());
        let filled = n.next_multiple_of(TILE);
        let padded = if n_outputs == 1 { 1 } else { n_outputs.next_multiple_of(f32::lanes()) };
        let weight = problem.largest_weight();
        let mut weights: Vec<f32> = problem.weights().map(|own| (own / weight) as f32).collect();
        weights.resize(filled, 0.0);
        let mut labels = problem.labels().to_vec();
        labels.resize(filled, 0);
        Self {
            problem: problem.clone(),
            rows,
            columns,
            labels,
            weights,
            weight,
            padded,
            values: Aligned::zeros((problem.n_features() + 1) * padded),
            shares: Aligned::zeros(filled * n_outputs),
            residuals: Aligned::zeros(filled * padded),
            due: None,
            units,
        }
    }

    /// Computes the residuals of all tiles at some weights: writes a tile's scores, one line per
    /// output, and passes them to `change`, which replaces them by residuals and writes the tile's
    /// probabilities. Returns the sums over all tiles.
    fn visit(
        &mut self,
        weights: &[f64],
        change: impl Fn(&mut [f32], BlockTargets<'_, f32>, &mut [f32]) -> BlockSums + Sync,
        interrupt: &Interrupt,
    ) -> Result<BlockSums> {
        let (n_outputs, width) = (self.problem.n_outputs(), self.units.len());
        // Without an intercept, the last row remains 0.
        transpose(weights, width, &mut self.values[..width * self.padded], self.padded);
        let Self { rows, labels, weights, padded, values, shares, residuals, .. } = self;
        let (padded, rows, values) = (*padded, &*rows, &**values);
        let n_numbers = rows.values.len() / (rows.offsets.len() - 1).max(1) * padded * TILE;
        let tiles = residuals.par_chunks_mut(TILE * padded);
        let tiles = tiles.zip(shares.par_chunks_mut(TILE * n_outputs)).enumerate();
        let sums = tiles.with_min_len(min_len(n_numbers)).map(|(tile, (residuals, shares))| {
            let own = tile * TILE..(tile + 1) * TILE;
            let targets =
                BlockTargets { labels: &labels[own.clone()], weights: &weights[own.clone()] };
            if interrupt.is_raised() {
                return BlockSums::default();
            }
            f32::dispatch(TileScores { rows, first: own.start, values, padded, out: residuals });
            if n_outputs == 1 {
                return change(residuals, targets, shares);
            }
            let mut lines = Aligned::zeros(n_outputs * TILE);
            transpose(residuals, padded, &mut lines, TILE);
            let sums = change(&mut lines, targets, shares);
            transpose(&lines, TILE, residuals, padded);
            sums
        });
        let mut total = BlockSums::default();
        sums.collect::<Vec<_>>().iter().for_each(|sums| total.join(sums));
        interrupt.check()?;
        Ok(total.scaled(self.weight))
    }

    /// Writes a factor times a sum for each column. The sum runs over the column's entries; a term is the entry or its
    /// square, times the residual of the entry's row.
    fn collect(&self, (factor, squared): (f64, bool), sums: &mut Vec<f64>) {
        let (padded, width, n_outputs) = (self.padded, self.units.len(), self.problem.n_outputs());
        let mut found = vec![0.0; width * padded];
        let n_numbers = self.columns.values.len() / width.max(1) * padded * COLUMNS;
        let pieces = found.par_chunks_mut(COLUMNS * padded).enumerate();
        pieces.with_min_len(min_len(n_numbers)).for_each(|(piece, sums)| {
            let (columns, residuals) = (&self.columns, &self.residuals[..]);
            let first = piece * COLUMNS;
            f32::dispatch(ColumnSums { columns, first, residuals, padded, squared, sums });
        });
        sums.clear();
        sums.resize(n_outputs * width, 0.0);
        transpose(&found, padded, sums, width);
        let factor = factor * self.weight;
        sums.iter_mut().for_each(|sum| *sum *= factor);
    }

    /// Computes the probabilities of the last certified weights, unless they are known.
    fn refresh(&mut self, interrupt: &Interrupt) -> Result<()> {
        if let Some(weights) = self.due.take() {
            self.visit(&weights, softmax, interrupt)?;
        }
        Ok(())
    }
}

impl RowPasses for EntryStore<'_> {
    fn set_factor(&mut self, factor: f64) -> Result<()> {
        self.problem = self.problem.with_factor(factor)?;
        self.weight = self.problem.largest_weight();
        Ok(())
    }

    fn problem(&self) -> &LogisticProblem<'_> {
        &self.problem
    }

    fn units(&self) -> &[f64] {
        &self.units
    }

    fn all(&self) -> BlockSample {
        BlockSample { n_blocks: 1, factor: 1.0 }
    }

    fn sample(&self, _: f64) -> BlockSample {
        self.all()
    }

    fn n_rows(&self, _: BlockSample) -> usize {
        self.problem.n_examples()
    }

    fn has_factors(&self) -> bool {
        false
    }

    fn pass(
        &mut self,
        weights: &[f64],
        _: BlockSample,
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<f64> {
        self.due = None;
        let sums = self.visit(weights, softmax, interrupt)?;
        self.collect((1.0, false), gradient);
        Ok(sums.loss)
    }

    fn certified_pass(
        &mut self,
        weights: &[f64],
        (model, _): (&LogisticModel, BlockSample),
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<(f64, Option<Certificate>)> {
        let (certificate, terms) = certificate_and_terms(&self.problem, model, None, interrupt)?;
        gradient.clear();
        let d = self.problem.n_features();
        for (output, residual) in terms.residual.iter().enumerate() {
            let image = &terms.image[output * d..][..d];
            gradient.extend(image.iter().zip(&self.units).map(|(v, unit)| -v / unit));
            gradient.extend(self.problem.intercept().then_some(-residual));
        }
        self.due = Some(weights.to_vec());
        let loss = terms.loss.total().value();
        Ok((loss, loss.is_finite().then_some(certificate)))
    }

    fn product(
        &mut self,
        direction: &[f64],
        _: BlockSample,
        product: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.refresh(interrupt)?;
        let largest = direction.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let size = if largest > 0.0 { largest } else { 1.0 };
        let scaled: Vec<f64> = direction.iter().map(|value| value / size).collect();
        let curved = |scores: &mut [f32], targets: BlockTargets<'_, f32>, shares: &mut [f32]| {
            curve(scores, targets, shares);
            BlockSums::default()
        };
        self.visit(&scaled, curved, interrupt)?;
        self.collect((size, false), product);
        Ok(())
    }

    fn preconditioner(
        &mut self,
        _: HessianPart,
        _: BlockSample,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Preconditioner> {
        self.refresh(interrupt)?;
        let (n_outputs, padded) = (self.problem.n_outputs(), self.padded);
        let tiles = self.residuals.chunks_exact_mut(TILE * padded);
        for ((residuals, shares), weights) in
            tiles.zip(self.shares.chunks_exact(TILE * n_outputs)).zip(self.weights.chunks(TILE))
        {
            for (output, shares) in shares.chunks_exact(TILE).enumerate() {
                let own = residuals[output..].iter_mut().step_by(padded);
                for ((to, share), weight) in own.zip(shares).zip(weights) {
                    // With two classes, the shares are already curvatures.
                    *to = weight * share * if n_outputs == 1 { 1.0 } else { 1.0 - share };
                }
            }
        }
        let mut diagonal = Vec::new();
        self.collect((1.0, true), &mut diagonal);
        for line in diagonal.chunks_exact_mut(penalties.len().max(1)) {
            for (value, penalty) in line.iter_mut().zip(penalties) {
                *value += penalty;
                *value = if *value > 0.0 { *value } else { 1.0 };
            }
        }
        interrupt.check()?;
        Ok(Preconditioner::diagonal(diagonal, self.units.len()))
    }
}

/// Scores of a tile of rows, rows × padded outputs.
struct TileScores<'k> {
    rows: &'k Entries,
    first: usize,
    /// Columns × padded outputs, then the intercepts.
    values: &'k [f32],
    padded: usize,
    out: &'k mut [f32],
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

/// Sums of residuals over the entries of some columns.
struct ColumnSums<'k> {
    columns: &'k Entries,
    first: usize,
    residuals: &'k [f32],
    padded: usize,
    squared: bool,
    sums: &'k mut [f64],
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

#[cfg(test)]
mod tests {
    use super::super::dense::BlockStore;
    use super::*;
    use crate::data::Data;

    /// Sparse rows whose columns differ in scale.
    fn with(
        n_classes: usize,
        intercept: bool,
        body: impl FnOnce(&LogisticProblem<'_>, Csr<'_, f64>),
    ) {
        let (n, d) = (700, 30);
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..n {
            for column in (0..d).filter(|column| (row * 31 + column * 17 + row / 7) % 5 == 0) {
                columns.push(column as i32);
                let value = ((row * 29 + column * 53) % 17) as f64 / 8.0 - 1.0;
                values.push(value * 10f64.powi((column % 7) as i32 - 3));
            }
            offsets.push(columns.len() as i64);
        }
        let labels: Vec<u32> = (0..n).map(|row| ((row * 7 + row / 4) % n_classes) as u32).collect();
        let weights = (0..n).map(|row| (row % 3) as f64).collect();
        let rows = Csr::new(&offsets, &columns, &values, d).unwrap();
        let problem =
            LogisticProblem::new(Data::Csr64(rows), &labels, n_classes, weights, intercept);
        body(&problem.unwrap(), rows);
    }

    #[test]
    fn sparse_and_dense_passes_and_products_agree() {
        for (n_classes, intercept) in [(2, false), (2, true), (3, true), (21, false), (40, true)] {
            with(n_classes, intercept, |problem, rows| {
                let (mut sparse, mut dense) =
                    (EntryStore::new(problem, rows), BlockStore::new(problem));
                let interrupt = &Interrupt::default();
                let n = sparse.len();
                assert_eq!((n, sparse.units()), (dense.len(), dense.units()));
                let weights: Vec<f64> = (0..n).map(|at| (at % 13) as f64 / 13.0 - 0.5).collect();
                let direction: Vec<f64> = (0..n).map(|at| (at % 11) as f64 / 11.0).collect();
                let near = |found: &[f64], expected: &[f64]| {
                    let size = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                    let pairs = found.iter().zip(expected);
                    assert!(found.len() == expected.len());
                    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5 * size));
                };
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let found = sparse.pass(&weights, sparse.all(), &mut a, interrupt).unwrap();
                let loss = dense.pass(&weights, dense.all(), &mut b, interrupt).unwrap();
                assert!((found - loss).abs() < 1e-5 * loss);
                near(&a, &b);
                sparse.product(&direction, sparse.all(), &mut a, interrupt).unwrap();
                dense.product(&direction, dense.all(), &mut b, interrupt).unwrap();
                near(&a, &b);
            });
        }
    }

    #[test]
    fn diagonals_match_products_with_unit_vectors() {
        with(5, true, |problem, rows| {
            let mut store = EntryStore::new(problem, rows);
            let interrupt = &Interrupt::default();
            let (n, width) = (store.len(), store.width());
            let weights: Vec<f64> = (0..n).map(|at| (at % 13) as f64 / 13.0 - 0.5).collect();
            let (mut gradient, mut product) = (Vec::new(), Vec::new());
            store.pass(&weights, store.all(), &mut gradient, interrupt).unwrap();
            let (kind, all) = (HessianPart::Diagonal, store.all());
            let found = store.preconditioner(kind, all, &vec![0.5; width], interrupt).unwrap();
            for place in [0, 7, width, n - 1] {
                let mut direction = vec![0.0; n];
                direction[place] = 1.0;
                store.product(&direction, all, &mut product, interrupt).unwrap();
                let expected = product[place] + 0.5;
                found.apply(&mut direction);
                assert!((direction[place] * expected - 1.0).abs() < 1e-5);
            }
        });
    }
}
