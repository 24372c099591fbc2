//! Preconditioners for conjugate gradients: factorisations of the Hessian of a sample of the rows, or of a part of this
//! Hessian.

use rayon::prelude::*;

use super::layout::RowBlocks;
use super::store::{BlockSample, Lines, Store};
use super::tiles::{GRAIN, add_products};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;

/// Number of values that are multiplied at a time for the whole Hessian; small enough for the second-level cache.
const TOGETHER: usize = 1 << 16;
/// Fraction by which the curvature of an intercept is increased, because a common shift of all intercepts has no
/// curvature.
const RIDGE: f64 = 1e-3;

/// The part of the Hessian that a preconditioner factorises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HessianPart {
    /// The diagonal of the Hessian. For dense rows, the diagonal at equal probabilities is used.
    Diagonal,
    /// One block that all classes share. At W = 0, it acts on gradients exactly as the full Hessian does.
    Shared,
    /// One block per class.
    PerClass,
    /// The whole Hessian.
    Full,
}

/// A preconditioner.
pub(super) struct Preconditioner {
    pub kind: HessianPart,
    diagonal: Vec<f64>,
    factors: Vec<Factor>,
    width: usize,
}

impl Preconditioner {
    /// Builds a preconditioner from a sample of the rows at the weights of the last pass. `penalties` is the diagonal
    /// of the regulariser's Hessian, one value per column.
    pub fn new(
        store: &mut Store<'_>,
        kind: HessianPart,
        sample: BlockSample,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (width, n_outputs) = (store.layout.width(), store.problem().n_outputs());
        let blocks = match kind {
            HessianPart::Diagonal => {
                let flat = flat_curvature(n_outputs);
                let sums = store.sums(sample, (width, interrupt), |layout, lines, sums| {
                    add_squares(layout, lines, sums);
                })?;
                let diagonal = sums.iter().zip(penalties).map(|(sum, own)| flat * sum + own);
                return Ok(Self::diagonal(diagonal.collect(), width));
            }
            HessianPart::Shared => store.sums(sample, (width * width, interrupt), add_shared)?,
            HessianPart::PerClass => {
                store.sums(sample, (n_outputs * width * width, interrupt), add_classes)?
            }
            HessianPart::Full => {
                let n_sums = n_pairs(n_outputs) * n_pairs(width);
                let sums = store.sums(sample, (n_sums, interrupt), add_all)?;
                return Self::from_pairs(kind, &sums, n_outputs, penalties, interrupt);
            }
        };
        Self::from_blocks(kind, &blocks, (width, penalties), interrupt)
    }

    /// Builds a preconditioner from sums over rows for each pair of columns, one line for each class or, for
    /// [`HessianPart::Full`], for each pair of classes.
    pub fn from_pairs(
        kind: HessianPart,
        sums: &[f64],
        n_outputs: usize,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let width = penalties.len();
        if kind == HessianPart::Full {
            let mut matrix = spread(sums, n_outputs, width);
            add_means(&mut matrix, n_outputs, width);
            return Self::from_blocks(kind, &matrix, (n_outputs * width, penalties), interrupt);
        }
        let lines = sums.chunks_exact(n_pairs(width));
        let blocks: Vec<f64> = lines.flat_map(|line| spread(line, 1, width)).collect();
        Self::from_blocks(kind, &blocks, (width, penalties), interrupt)
    }

    /// Factorises square blocks, of n rows each, after adding the regulariser's Hessian.
    fn from_blocks(
        kind: HessianPart,
        blocks: &[f64],
        (n, penalties): (usize, &[f64]),
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let width = penalties.len();
        let factor = |sums: &[f64]| {
            let stride = Factor::stride(n);
            let mut matrix = vec![0.0; n * stride];
            for (row, (to, from)) in
                matrix.chunks_exact_mut(stride).zip(sums.chunks_exact(n)).enumerate()
            {
                to[..=row].copy_from_slice(&from[..=row]);
                let penalty = penalties[row % width];
                let ridge = if penalty == 0.0 { RIDGE * to[row] } else { 0.0 };
                to[row] += penalty + ridge;
            }
            Factor::new(matrix, n, interrupt)
        };
        let factors = blocks.chunks_exact(n * n).map(factor).collect::<Result<_>>()?;
        Ok(Self { kind, diagonal: Vec::new(), factors, width })
    }

    /// A diagonal, one value for each weight.
    pub fn diagonal(diagonal: Vec<f64>, width: usize) -> Self {
        Self { kind: HessianPart::Diagonal, diagonal, factors: Vec::new(), width }
    }

    /// Applies the inverse of the preconditioner to a residual, in place.
    pub fn apply(&self, values: &mut [f64]) {
        let Self { kind, diagonal, factors, width } = self;
        match (kind, &factors[..]) {
            (HessianPart::Full, [factor]) => factor.solve(values),
            (HessianPart::Diagonal, _) => {
                for values in values.chunks_exact_mut(diagonal.len()) {
                    values.iter_mut().zip(diagonal).for_each(|(value, own)| *value /= own);
                }
            }
            (_, [factor]) => {
                let lines = values.par_chunks_exact_mut(*width);
                lines
                    .with_min_len((1 << 17) / (width * width) + 1)
                    .for_each(|line| factor.solve(line));
            }
            _ => {
                let lines = values.chunks_exact_mut(*width).zip(factors);
                lines.for_each(|(line, factor)| factor.solve(line));
            }
        }
    }
}

/// The curvature at equal probabilities p = 1/m: the eigenvalue p of diag(p) − p pᵀ or, for the single score of two
/// classes, p (1 − p).
pub(super) fn flat_curvature(n_outputs: usize) -> f64 {
    if n_outputs == 1 { 0.25 } else { 1.0 / n_outputs as f64 }
}

/// Adds Σ c_i x_i².
fn add_squares(layout: &RowBlocks<'_>, lines: Lines<'_>, sums: &mut [f64]) {
    for (sum, line) in sums.iter_mut().zip(lines.rows.chunks_exact(layout.block_rows)) {
        let weighted = line.iter().zip(lines.weights).map(|(x, weight)| weight * x * x);
        *sum += f64::from(weighted.sum::<f32>());
    }
}

/// Multiplies the values of each row by the row's factor. A line has one value per row.
fn multiply(rows: &[f32], factors: &[f32], product: &mut Vec<f32>) {
    product.clear();
    for line in rows.chunks_exact(factors.len()) {
        product.extend(line.iter().zip(factors).map(|(x, factor)| x * factor));
    }
}

/// Adds Σ c_i q x_i x_iᵀ where q is the curvature at equal probabilities.
fn add_shared(layout: &RowBlocks<'_>, lines: Lines<'_>, sums: &mut [f64]) {
    let (n_rows, mut product) = (layout.block_rows, Vec::new());
    let flat = flat_curvature(layout.problem.n_outputs()) as f32;
    let factors: Vec<f32> = lines.weights.iter().map(|weight| flat * weight).collect();
    multiply(lines.rows, &factors, &mut product);
    add_products((&product[..], lines.rows, n_rows), (sums, layout.width()), true);
}

/// Returns, for each row, the sum of its probabilities that are at most one half.
fn small_shares(lines: Lines<'_>, n_rows: usize) -> Vec<f32> {
    let mut small = vec![0.0; n_rows];
    for shares in lines.shares.chunks_exact(n_rows) {
        let own = shares.iter().map(|share| if *share <= 0.5 { *share } else { 0.0 });
        small.iter_mut().zip(own).for_each(|(small, own)| *small += own);
    }
    small
}

/// 1 − p, computed so that rounding does not make it smaller than the sum of the other probabilities; otherwise the
/// Hessian could have negative curvature.
pub(super) fn others(share: f32, small: &f32) -> f32 {
    if share <= 0.5 { 1.0 - share } else { *small }
}

/// Adds Σ c_i p_ik (1 − p_ik) x_i x_iᵀ for each class.
fn add_classes(layout: &RowBlocks<'_>, lines: Lines<'_>, sums: &mut [f64]) {
    let (n_rows, width, mut product) = (layout.block_rows, layout.width(), Vec::new());
    let two = layout.problem.n_outputs() == 1;
    let (shares, small) = (lines.shares.chunks_exact(n_rows), small_shares(lines, n_rows));
    for (shares, sums) in shares.zip(sums.chunks_exact_mut(width * width)) {
        // With two classes, `shares` holds p (1 − p) already.
        let curved = |((p, small), weight): ((&f32, &f32), &f32)| {
            weight * p * if two { 1.0 } else { others(*p, small) }
        };
        let own = shares.iter().zip(&small).zip(lines.weights);
        let factors: Vec<f32> = own.map(curved).collect();
        multiply(lines.rows, &factors, &mut product);
        add_products((&product[..], lines.rows, n_rows), (sums, width), true);
    }
}

/// Number of unordered pairs of n items, including pairs of an item with itself.
pub(super) fn n_pairs(n: usize) -> usize {
    n * (n + 1) / 2
}

/// The pairs (a, b), b ≤ a.
pub(super) fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(|a| (0..=a).map(move |b| (a, b)))
}

/// Adds Σ c_i (diag p_i − p_i p_iᵀ) ⊗ x_i x_iᵀ: one row per pair of classes, one column per pair of columns.
fn add_all(layout: &RowBlocks<'_>, lines: Lines<'_>, sums: &mut [f64]) {
    let (n_rows, width) = (layout.block_rows, layout.width());
    let classes: Vec<_> = pairs(layout.problem.n_outputs()).collect();
    let columns: Vec<_> = pairs(width).collect();
    let together = (TOGETHER / n_rows).max(GRAIN / 2);
    let (mut curved, mut products) = (Vec::new(), Vec::new());
    let small = small_shares(lines, n_rows);
    for (first, classes) in classes.chunks(together).enumerate() {
        curved.clear();
        for (a, b) in classes {
            let (p, q) =
                (&lines.shares[a * n_rows..][..n_rows], &lines.shares[b * n_rows..][..n_rows]);
            let both = p.iter().zip(q).zip(lines.weights);
            if a == b {
                let own = both.zip(&small);
                curved.extend(own.map(|(((p, _), weight), small)| weight * p * others(*p, small)));
            } else {
                curved.extend(both.map(|((p, q), weight)| -weight * p * q));
            }
        }
        for (second, columns) in columns.chunks(together).enumerate() {
            products.clear();
            for (a, b) in columns {
                let (x, z) =
                    (&lines.rows[a * n_rows..][..n_rows], &lines.rows[b * n_rows..][..n_rows]);
                products.extend(x.iter().zip(z).map(|(x, z)| x * z));
            }
            let start = first * together * n_pairs(width) + second * together;
            let sums = &mut sums[start..];
            add_products((&curved[..], &products[..], n_rows), (sums, n_pairs(width)), false);
        }
    }
}

/// Adds curvature along a common shift of all classes, along which the losses have no curvature. The addition does
/// not change the solution, because residuals have mean 0 over the classes.
fn add_means(matrix: &mut [f64], n_outputs: usize, width: usize) {
    let n = n_outputs * width;
    for column in 0..width {
        let places = || (0..n_outputs).map(|class| class * width + column);
        let mean = places().map(|at| matrix[at * n + at]).sum::<f64>() / n_outputs as f64;
        for (row, other) in places().flat_map(|row| places().map(move |other| (row, other))) {
            matrix[row * n + other] += mean / n_outputs as f64;
        }
    }
}

/// Expands sums over pairs to the lower triangle of a square matrix, stored with full rows.
fn spread(sums: &[f64], n_outputs: usize, width: usize) -> Vec<f64> {
    let n = n_outputs * width;
    let mut matrix = vec![0.0; n * n];
    for ((a, b), sums) in pairs(n_outputs).zip(sums.chunks_exact(n_pairs(width))) {
        for ((row, column), sum) in pairs(width).zip(sums) {
            matrix[(a * width + row) * n + b * width + column] = *sum;
            matrix[(a * width + column) * n + b * width + row] = *sum;
        }
    }
    matrix
}
