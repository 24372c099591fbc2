//! The pass over all rows that computes a certificate.

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::sparse_row::{add, fetch_first, score};
use super::terms::{Distribution, Terms};
use super::{LogisticModel, LogisticProblem};
use crate::data::{Csr, Data, Real, Rows, read_in};
use crate::dual::rounding::{Bounded, gamma, underflow};
use crate::error::Result;
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::axpy;
use crate::linalg::{Aligned, Element, Kernel, transpose};
use crate::parallel::{for_items, is_worth_sharing, min_len, split_at};

/// Maximum number of classes for which the whole linear system of the tilt is solved. For more classes, only its
/// diagonal is used.
pub(super) const SOLVED: usize = 256;
/// Number of rows that one thread processes at a time.
const PIECE: usize = 256;
/// Number of rows whose residuals are kept before they are added to the image.
const CHUNK: usize = 16 * PIECE;
/// Maximum number of column ranges that are updated in parallel.
const STRETCHES: usize = 4;

/// Appends the distribution of the example with this index, one non-negative number per class, to an empty vector. The
/// numbers need not sum to 1.
pub type Given<'g> = dyn Fn(usize, &mut Vec<f64>) + Sync + 'g;

/// A pass over all rows, given a model.
pub(super) struct RowPass<'p, 'a> {
    problem: &'p LogisticProblem<'a>,
    given: Option<&'p Given<'p>>,
    /// The weights, stored feature by feature; the outputs of each feature are padded to full SIMD vectors.
    weights: Aligned<f64>,
    intercepts: Aligned<f64>,
    /// Number of outputs with the padding.
    padded: usize,
    /// The largest absolute weight of each feature, and of the intercepts.
    largest: (Vec<f64>, f64),
    /// A bound on Σ |w_k x_k| + |b| of any dense row and output.
    size: f64,
    /// Approximate number of weights that are read to compute the scores of one row.
    n_numbers: usize,
}

impl<'p, 'a> RowPass<'p, 'a> {
    /// Prepares a pass for a model. The distributions are `given`, or the softmax of the model's scores if `given` is
    /// None.
    pub fn new(
        problem: &'p LogisticProblem<'a>,
        model: &'p LogisticModel,
        given: Option<&'p Given<'p>>,
    ) -> Self {
        let (d, n_outputs) = (problem.n_features(), problem.n_outputs());
        let padded = if n_outputs == 1 { 1 } else { n_outputs.next_multiple_of(f64::lanes()) };
        let (mut weights, mut intercepts) = (Aligned::zeros(d * padded), Aligned::zeros(padded));
        intercepts[..n_outputs].copy_from_slice(&model.intercepts);
        if d > 0 {
            transpose(&model.weights, d, &mut weights, padded);
        }
        let most =
            |values: &[f64]| values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let largest: Vec<f64> = weights.chunks_exact(padded).map(most).collect();
        let offset = most(&model.intercepts);
        let products = largest.iter().zip(problem.column_sizes()).map(|(w, x)| w * x);
        let (size, largest) = (offset + products.sum::<f64>(), (largest, offset));
        let n_stored = for_data!(problem.rows(), rows => rows.n_stored());
        let n_numbers = n_stored / problem.n_examples().max(1) * padded;
        Self { problem, given, weights, intercepts, padded, largest, size, n_numbers }
    }

    /// Returns the sums over the distributions, tilted if `tilt` is given. Without `tilt`, also returns the matrix of
    /// the linear system for the tilt.
    pub fn run(&self, tilt: Option<&[f64]>, interrupt: &Interrupt) -> Result<(Terms, Vec<f64>)> {
        self.pass(tilt.map_or(RowSums::Terms, RowSums::Tilted), interrupt)
    }

    /// Returns the Hessian of the losses, without the regulariser, times a direction: for the weights (the image) and
    /// for the intercepts (the residual).
    pub fn product(&self, along: &RowPass<'_, '_>, interrupt: &Interrupt) -> Result<Terms> {
        Ok(self.pass(RowSums::Product(along), interrupt)?.0)
    }

    /// Returns the matrix of the linear system for the tilt.
    pub fn curvature(&self, interrupt: &Interrupt) -> Result<Vec<f64>> {
        Ok(self.pass(RowSums::Curvature, interrupt)?.1)
    }

    fn pass(&self, kind: RowSums<'_>, interrupt: &Interrupt) -> Result<(Terms, Vec<f64>)> {
        let with_moments = matches!(kind, RowSums::Terms | RowSums::Curvature);
        let (n, m) = (self.problem.n_examples(), self.problem.n_outputs());
        let (padded, d) = (self.padded, self.problem.n_features());
        let Sums { mut terms, mut moments, .. } = Sums::new(self.problem, with_moments);
        let mut image = Aligned::zeros(d * padded);
        let mut residuals = Aligned::zeros(n.min(CHUNK) * padded);
        for first in (0..n).step_by(CHUNK) {
            interrupt.check()?;
            let residuals = &mut residuals[..(n - first).min(CHUNK) * padded];
            let pieces = residuals.par_chunks_mut(PIECE * padded).enumerate();
            let pieces =
                pieces.with_min_len(min_len(PIECE * self.n_numbers)).map(|(at, residuals)| {
                    let mut sums = Sums::new(self.problem, with_moments);
                    let first = first + at * PIECE;
                    f64::dispatch(Piece { pass: self, first, residuals, kind, sums: &mut sums });
                    sums
                });
            for sums in pieces.collect::<Vec<_>>() {
                terms.join(&sums.terms);
                axpy(&mut moments, 1.0, &sums.moments);
            }
            if !matches!(kind, RowSums::Curvature) {
                self.add_image(first, residuals, &mut image);
            }
        }
        // Each entry of the image is one sum over all rows.
        terms.depth += n;
        terms.image = vec![0.0; m * d];
        if d > 0 {
            transpose(&image, padded, &mut terms.image, d);
        }
        Ok((terms, moments))
    }

    /// Adds Σ residual xᵀ over a chunk of rows.
    fn add_image(&self, first: usize, residuals: &[f64], image: &mut [f64]) {
        let (rows, padded) = (self.problem.rows(), self.padded);
        let n_rows = residuals.len() / padded;
        let is_shared = is_worth_sharing(n_rows * self.n_numbers);
        let n_stretches = if is_shared { rayon::current_num_threads().min(STRETCHES) } else { 1 };
        // Each entry is a sum over the rows in order, so the result does not depend on where the columns are divided.
        let cuts = match rows {
            Data::Csr32(rows) => rows.balanced_cuts(n_stretches),
            Data::Csr64(rows) => rows.balanced_cuts(n_stretches),
            _ => return self.add_dense_image(first, residuals, image),
        };
        for_items(split_at(image, padded, &cuts), 1, |(columns, image)| {
            f64::dispatch(Stretch { rows, first, residuals, columns, image, padded });
        });
    }

    fn add_dense_image(&self, first: usize, residuals: &[f64], image: &mut [f64]) {
        for (row, residual) in (first..).zip(residuals.chunks_exact(self.padded)) {
            for_data!(self.problem.rows(), rows => rows.visit_row(row, |column, value| {
                axpy(&mut image[column * self.padded..][..self.padded], value, residual);
            }));
        }
    }

    /// Computes the scores of an example, and returns a bound on their errors.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        simd: S,
        row: usize,
        scores: &mut [f64],
        copied: &mut Vec<f64>,
    ) -> f64 {
        let (padded, mut size, mut n_values) = (self.padded, self.largest.1, 2);
        if let Some((columns, x)) = sparse_row(self.problem.rows(), row, copied) {
            n_values += x.len();
            for (column, x) in columns.iter().zip(x) {
                size += x.abs() * self.largest.0[*column as usize];
            }
            if padded == 1 {
                let pairs = columns.iter().zip(x);
                let products = pairs.map(|(column, x)| x * self.weights[*column as usize]);
                scores[0] = self.intercepts[0] + products.sum::<f64>();
            } else {
                let (weights, scores) =
                    (S::as_simd_f64s(&self.weights).0, S::as_mut_simd_f64s(scores).0);
                let intercepts = S::as_simd_f64s(&self.intercepts).0;
                score::<S, f64>(simd, weights, scores.len(), (columns, x), intercepts, scores);
            }
        } else {
            scores.copy_from_slice(&self.intercepts);
            for_data!(self.problem.rows(), rows => rows.visit_row(row, |column, value| {
                axpy(scores, value, &self.weights[column * padded..][..padded]);
                size += value.abs() * self.largest.0[column];
                n_values += 1;
            }));
            size = size.min(self.size);
        }
        gamma(n_values) * size + underflow(n_values as f64)
    }

    /// Adds an example's terms to all sums except the image, and replaces its scores by c (e_y − α).
    #[inline(always)]
    fn add(
        &self,
        row: usize,
        error: f64,
        scores: &mut [f64],
        tilt: Option<&[f64]>,
        sums: &mut Sums,
    ) {
        let (problem, n_outputs) = (self.problem, self.problem.n_outputs());
        let (label, weight) = (problem.labels()[row] as usize, problem.weight(row));
        let Sums { own, terms, moments, .. } = sums;
        let loss = own.softmax(&scores[..n_outputs], label, error);
        terms.loss.add(Bounded::exact(weight) * loss);
        if let Some(given) = self.given {
            own.given(|shares| given(row, shares));
        }
        let entropy = match tilt {
            Some(tilt) => own.tilt(tilt),
            None => own.entropy(),
        };
        terms.entropy += weight * entropy;
        let first = own.shares.len() - n_outputs;
        add_moments(weight, &own.shares[first..], moments);
        terms.distance += weight * own.residual(label);
        own.shares.iter_mut().for_each(|share| *share *= weight);
        let residual = &own.shares[first..];
        axpy(&mut terms.residual, 1.0, residual);
        terms.depth += 1;
        scores[..n_outputs].copy_from_slice(residual);
    }

    /// Replaces an example's scores by c (diag α − α αᵀ) times its scores in the direction `along`.
    #[inline(always)]
    fn multiply<S: Simd>(
        &self,
        simd: S,
        (row, along): (usize, &RowPass<'_, '_>),
        scores: &mut [f64],
        sums: &mut Sums,
    ) {
        let n_outputs = self.problem.n_outputs();
        let Sums { own, terms, copied, .. } = sums;
        own.softmax(&scores[..n_outputs], self.problem.labels()[row] as usize, 0.0);
        let shares = &own.shares[own.shares.len() - n_outputs..];
        along.score(simd, row, scores, copied);
        let mean: f64 = shares.iter().zip(&*scores).map(|(share, score)| share * score).sum();
        let weight = self.problem.weight(row);
        for (score, share) in scores.iter_mut().zip(shares) {
            *score = weight * share * (*score - mean);
        }
        axpy(&mut terms.residual, 1.0, &scores[..n_outputs]);
    }

    /// Prefetches the first weights of a sparse row, if the row exists.
    #[inline(always)]
    fn fetch<R: Real>(&self, rows: &Csr<'_, R>, row: usize) {
        if row < rows.n_rows() {
            fetch_first(rows.row(row).0, &self.weights, self.padded);
        }
    }
}

/// Columns and values of a sparse row, in double precision.
#[inline(always)]
fn sparse_row<'r>(
    rows: Data<'r>,
    row: usize,
    copied: &'r mut Vec<f64>,
) -> Option<(&'r [i32], &'r [f64])> {
    match rows {
        Data::Csr64(rows) => Some(rows.row(row)),
        Data::Csr32(rows) => {
            let (columns, values) = rows.row(row);
            Some((columns, read_in(values, copied)))
        }
        _ => None,
    }
}

/// Consecutive rows of a pass, processed by one thread.
struct Piece<'k, 'p, 'a> {
    pass: &'k RowPass<'p, 'a>,
    first: usize,
    /// c_i (e_y − α_i), padded with zeros.
    residuals: &'k mut [f64],
    kind: RowSums<'k>,
    sums: &'k mut Sums,
}

/// The sums that a pass computes.
#[derive(Clone, Copy)]
enum RowSums<'k> {
    /// The sums of a certificate, and the matrix of the linear system for the tilt.
    Terms,
    /// The sums of a certificate of tilted distributions.
    Tilted(&'k [f64]),
    /// The matrix of the linear system for the tilt, without the image.
    Curvature,
    /// A product of the Hessian with a direction.
    Product(&'k RowPass<'k, 'k>),
}

impl Kernel<f64> for Piece<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) {
        let Self { pass, first, residuals, kind, sums } = self;
        for (row, scores) in (first..).zip(residuals.chunks_exact_mut(pass.padded)) {
            match pass.problem.rows() {
                Data::Csr64(all) => pass.fetch(&all, row + 1),
                Data::Csr32(all) => pass.fetch(&all, row + 1),
                _ => (),
            }
            scores.fill(0.0);
            if pass.problem.weight(row) > 0.0 {
                let error = pass.score(simd, row, scores, &mut sums.copied);
                match kind {
                    RowSums::Terms | RowSums::Curvature => {
                        pass.add(row, error, scores, None, sums);
                    }
                    RowSums::Tilted(tilt) => pass.add(row, error, scores, Some(tilt), sums),
                    RowSums::Product(along) => pass.multiply(simd, (row, along), scores, sums),
                }
            }
        }
    }
}

/// A range of the image's columns, to which a chunk of sparse rows is added.
struct Stretch<'k> {
    rows: Data<'k>,
    first: usize,
    residuals: &'k [f64],
    columns: Range<usize>,
    image: &'k mut [f64],
    padded: usize,
}

impl Kernel<f64> for Stretch<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) {
        let Self { rows, first, residuals, columns: Range { start, end }, image, padded } = self;
        let mut copied = Vec::new();
        for (row, residual) in (first..).zip(residuals.chunks_exact(padded)) {
            let Some((columns, values)) = sparse_row(rows, row, &mut copied) else { return };
            let place = |bound: usize| columns.partition_point(|at| (*at as usize) < bound);
            let own = place(start)..place(end);
            let (columns, values) = (&columns[own.clone()], &values[own]);
            if padded == 1 {
                for (column, x) in columns.iter().zip(values) {
                    image[*column as usize - start] += x * residual[0];
                }
                continue;
            }
            let image = S::as_mut_simd_f64s(image).0;
            let residual = S::as_simd_f64s(residual).0;
            add::<S, f64, true>(simd, (image, residual.len(), start), (columns, values), residual);
        }
    }
}

/// Σ c_i (e_y − α_i) for given distributions α_i, and the matrix of the linear system that determines the tilt.
pub(super) fn given_moments(
    problem: &LogisticProblem<'_>,
    given: &Given<'_>,
) -> (Vec<f64>, Vec<f64>) {
    let n = problem.n_examples();
    let sum = |piece: usize| {
        let mut sums = Sums::new(problem, true);
        for row in piece * PIECE..n.min((piece + 1) * PIECE) {
            let Sums { own, terms, moments, .. } = &mut sums;
            let weight = problem.weight(row);
            own.given(|shares| given(row, shares));
            let first = own.shares.len() - problem.n_outputs();
            add_moments(weight, &own.shares[first..], moments);
            own.residual(problem.labels()[row] as usize);
            axpy(&mut terms.residual, weight, &own.shares[first..]);
        }
        sums
    };
    let Sums { mut terms, mut moments, .. } = Sums::new(problem, true);
    for sums in (0..n.div_ceil(PIECE)).into_par_iter().map(sum).collect::<Vec<_>>() {
        terms.join(&sums.terms);
        axpy(&mut moments, 1.0, &sums.moments);
    }
    (terms.residual, moments)
}

/// Adds c (diag α − α αᵀ).
fn add_moments(weight: f64, shares: &[f64], moments: &mut [f64]) {
    if moments.is_empty() {
        return;
    }
    let n = shares.len();
    for (k, (row, share)) in moments.chunks_exact_mut(n).zip(shares).enumerate() {
        let scale = weight * share;
        axpy(row, -scale, shares);
        row[k] += scale;
    }
}

/// Sums over the rows of a piece, and buffers.
struct Sums {
    own: Distribution,
    terms: Terms,
    moments: Vec<f64>,
    /// A copy of the row in double precision, if it is stored in another precision.
    copied: Vec<f64>,
}

impl Sums {
    fn new(problem: &LogisticProblem<'_>, with_moments: bool) -> Self {
        let n_outputs = problem.n_outputs();
        let solved = with_moments && problem.intercept() && n_outputs <= SOLVED;
        let moments = vec![0.0; if solved { n_outputs * n_outputs } else { 0 }];
        let (own, terms) = (Distribution::default(), Terms::zeros(n_outputs));
        Self { own, terms, moments, copied: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::Dense;
    use crate::logistic::certificate;

    #[test]
    fn sparse_and_dense_rows_have_the_same_certificate_for_any_number_of_threads() {
        let (n, d) = (CHUNK + 700, 40);
        let number = |row: usize, column: usize| match (row * 31 + column * 17) % 5 {
            0 | 3 => ((row * 7 + column * 13) % 11) as f64 / 8.0 - 0.5,
            _ => 0.0,
        };
        let dense = Array2::from_shape_fn((n, d), |(row, column)| number(row, column));
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in dense.rows() {
            for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                columns.push(column as i32);
                values.push(*value);
            }
            offsets.push(columns.len() as i64);
        }
        let singles: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        let kinds = [
            Data::Dense64(Dense::new(dense.view()).unwrap()),
            Data::Csr64(Csr::new(&offsets, &columns, &values, d).unwrap()),
            Data::Csr32(Csr::new(&offsets, &columns, &singles, d).unwrap()),
        ];
        for (n_classes, intercept) in [(2, false), (2, true), (9, true), (300, true)] {
            let labels: Vec<u32> = (0..n).map(|row| (row % n_classes) as u32).collect();
            let certificates = kinds.map(|rows| {
                let weights = (0..n).map(|row| (row % 3) as f64).collect();
                let problem =
                    LogisticProblem::new(rows, &labels, n_classes, weights, intercept).unwrap();
                let mut model = problem.zero_model();
                for (place, weight) in model.weights.iter_mut().enumerate() {
                    *weight = (place % 23) as f64 / 1e3;
                }
                let on = |n_threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
                    let interrupt = Interrupt::default();
                    pool.unwrap().install(|| certificate(&problem, &model, None, &interrupt))
                };
                let found = on(1).unwrap();
                assert_eq!(on(3).unwrap(), found);
                found
            });
            let [first, others @ ..] = certificates;
            for other in others {
                assert!((other.primal - first.primal).abs() < 1e-11 * first.primal);
                assert!((other.dual - first.dual).abs() < 1e-9 * first.primal, "{other:?}");
            }
        }
    }
}
