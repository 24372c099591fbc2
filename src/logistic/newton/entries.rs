//! Passes over the stored entries of sparse rows, in single precision.
//!
//! Scores are sums over the entries of a row, and gradients are sums over the entries of a column.
//! The entries are stored by rows and by columns, so that each result is a single sum in a fixed
//! order, for any number of threads.

use rayon::prelude::*;

use super::conjugate::FACTORISED;
use super::entry_lines::{ColumnSums, EntryLines, TILE, TileScores};
use super::entry_products::{CurvedRows, n_factors};
use super::layout::unit;
use super::passes::RowPasses;
use super::preconditioner::{HessianPart, Preconditioner};
use super::softmax::{BlockSums, BlockTargets, curve, softmax};
use super::store::BlockSample;
use crate::data::{Csr, Real};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, transpose};
use crate::logistic::certificate::certificate_and_terms;
use crate::logistic::{LogisticModel, LogisticProblem};
use crate::parallel::min_len;
use crate::run::Certificate;

/// Number of columns whose gradients one thread computes at a time.
const COLUMNS: usize = 128;

/// Cost of an entry in a product (per output), and cost of a pair of entries in the sums for a part of the Hessian (per
/// factor). Both are in units of a multiplication of dense rows.
const PRODUCT: f64 = 18.0;
const SUMS: f64 = 30.0;

/// Sparse rows and columns of a problem, with the probabilities from the last pass.
pub(super) struct EntryStore<'a> {
    problem: LogisticProblem<'a>,
    units: Vec<f64>,
    rows: EntryLines,
    /// The sum, over all rows, of the squared number of entries.
    squares: f64,
    /// The columns, including the constant column.
    columns: EntryLines,
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

impl<'a> EntryStore<'a> {
    /// Stores the rows of a problem.
    pub fn new<R: Real>(problem: &LogisticProblem<'a>, rows: Csr<'a, R>) -> Self {
        let mut units: Vec<f64> = problem.column_sizes().iter().map(|size| unit(*size)).collect();
        let inverse: Vec<f64> = units.iter().map(|unit| 1.0 / unit).collect();
        let rows = EntryLines::of_rows(rows, &inverse);
        let squares =
            rows.offsets.windows(2).map(|ends| ((ends[1] - ends[0]) as f64).powi(2)).sum();
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
            squares,
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

    /// Writes, for each column and output, a factor times the sum of the column's entries (or of their squares), each
    /// multiplied by the residual of its row.
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

    /// The diagonal of the Hessian as a preconditioner.
    fn diagonal(&mut self, penalties: &[f64], interrupt: &Interrupt) -> Result<Preconditioner> {
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
        self.len() <= FACTORISED
    }

    fn product_cost(&self) -> f64 {
        PRODUCT * self.columns.values.len() as f64 * self.padded.max(f32::lanes()) as f64
    }

    fn sums_cost(&self, kind: HessianPart, _: BlockSample) -> f64 {
        SUMS * self.squares * n_factors(kind, self.problem.n_outputs()) as f64
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
        kind: HessianPart,
        _: BlockSample,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Preconditioner> {
        self.refresh(interrupt)?;
        if kind == HessianPart::Diagonal {
            return self.diagonal(penalties, interrupt);
        }
        let own = CurvedRows {
            rows: &self.rows,
            columns: &self.columns,
            has_intercept: self.problem.intercept(),
            shares: &self.shares,
            weights: &self.weights,
            n_outputs: self.problem.n_outputs(),
            kind,
        };
        let mut sums = own.sums(interrupt)?;
        sums.iter_mut().for_each(|sum| *sum *= self.weight);
        Preconditioner::from_pairs(kind, &sums, self.problem.n_outputs(), penalties, interrupt)
    }
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
    fn sparse_and_dense_preconditioners_agree() {
        for (n_classes, intercept) in [(2, false), (2, true), (3, true), (6, false), (7, true)] {
            with(n_classes, intercept, |problem, rows| {
                let (mut sparse, mut dense) =
                    (EntryStore::new(problem, rows), BlockStore::new(problem));
                let interrupt = &Interrupt::default();
                let weights: Vec<f64> =
                    (0..sparse.len()).map(|at| (at % 13) as f64 / 13.0 - 0.5).collect();
                let (all, unused) = (dense.all(), &mut Vec::new());
                sparse.pass(&weights, all, unused, interrupt).unwrap();
                dense.pass(&weights, all, unused, interrupt).unwrap();
                let mut penalties = vec![0.5; sparse.width()];
                penalties[problem.n_features()..].fill(0.0);
                let kinds = [HessianPart::Shared, HessianPart::PerClass, HessianPart::Full];
                for kind in kinds.into_iter().take(if n_classes == 2 { 2 } else { 3 }) {
                    let stores: [&mut dyn RowPasses; 2] = [&mut sparse, &mut dense];
                    let [found, expected] = stores.map(|store| {
                        let own = store.preconditioner(kind, all, &penalties, interrupt);
                        let mut values = weights.clone();
                        own.unwrap().apply(&mut values);
                        values
                    });
                    let size = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                    for (a, b) in found.iter().zip(&expected) {
                        assert!((a - b).abs() < 1e-4 * size, "{kind:?} {n_classes} {a} {b}");
                    }
                }
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
