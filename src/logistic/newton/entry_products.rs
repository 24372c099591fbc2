//! Sums of products of the entries of sparse rows. They form the parts of the Hessian that preconditioners factorise.

use pulp::{Simd, WithSimd};

use super::entry_lines::{EntryLines, TILE};
use super::preconditioner::{HessianPart, flat_curvature, n_pairs, others, pairs};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::parallel::map_items;

/// The number of factors is padded to a multiple of this, unless there is a single factor; the compiler vectorises
/// loops of this length.
const LANES: usize = 4;
/// Number of entries of a column between two checks for an interrupt.
const PIECE: usize = 4096;

/// Number of factors of each row for a part of the Hessian: one per pair of classes, one per class, or one.
pub(super) fn n_factors(kind: HessianPart, n_outputs: usize) -> usize {
    match kind {
        HessianPart::Full => n_pairs(n_outputs),
        HessianPart::PerClass => n_outputs,
        _ => 1,
    }
}

/// Sparse rows with the curvatures of their losses.
pub(super) struct CurvedRows<'k> {
    pub rows: &'k EntryLines,
    pub columns: &'k EntryLines,
    pub has_intercept: bool,
    /// Probabilities: for each tile, one line per output.
    pub shares: &'k [f32],
    pub weights: &'k [f32],
    pub n_outputs: usize,
    pub kind: HessianPart,
}

impl CurvedRows<'_> {
    /// Returns Σ f_i x_ia x_ib for each factor f and each pair of columns a ≥ b.
    pub fn sums(&self, interrupt: &Interrupt) -> Result<Vec<f64>> {
        let width = self.columns.n_lines();
        let n_factors = n_factors(self.kind, self.n_outputs);
        let stride = if n_factors == 1 { 1 } else { n_factors.next_multiple_of(LANES) };
        let lines = map_items(0..width, 1, |column| {
            let mut sums = vec![0.0; (column + 1) * stride];
            let (rows, values) = self.columns.line(column);
            for piece in rows.chunks(PIECE).zip(values.chunks(PIECE)) {
                if interrupt.is_raised() {
                    break;
                }
                let factors = vec![0.0; stride];
                let sums = &mut sums[..];
                arch().dispatch(ColumnProducts { own: self, column, piece, factors, sums });
            }
            sums
        });
        interrupt.check()?;
        let mut found = vec![0.0; n_factors * n_pairs(width)];
        let places = lines.iter().flat_map(|line| line.chunks_exact(stride)).enumerate();
        for (place, sums) in places {
            for (factor, sum) in sums[..n_factors].iter().enumerate() {
                found[factor * n_pairs(width) + place] = *sum;
            }
        }
        Ok(found)
    }

    /// Writes the factors of a row.
    #[inline(always)]
    fn write_factors(&self, row: usize, factors: &mut [f64]) {
        let (n_outputs, weight) = (self.n_outputs, self.weights[row]);
        let shares = &self.shares[row / TILE * TILE * n_outputs + row % TILE..];
        if self.kind == HessianPart::Shared {
            factors[0] = f64::from(weight) * flat_curvature(n_outputs);
            return;
        }
        if n_outputs == 1 {
            factors[0] = f64::from(weight * shares[0]);
            return;
        }
        let small = shares.iter().step_by(TILE).take(n_outputs).filter(|p| **p <= 0.5).sum::<f32>();
        let own = |p: f32| f64::from(weight * p * others(p, &small));
        if self.kind == HessianPart::PerClass {
            let classes = factors.iter_mut().zip(shares.iter().step_by(TILE).take(n_outputs));
            classes.for_each(|(factor, share)| *factor = own(*share));
            return;
        }
        for (factor, (a, b)) in factors.iter_mut().zip(pairs(n_outputs)) {
            let (p, q) = (shares[a * TILE], shares[b * TILE]);
            *factor = if a == b { own(p) } else { -f64::from(weight * p * q) };
        }
    }
}

/// Adds, for each column up to `column`, the products of its entries with the entries of `column`, multiplied by the
/// factors of their rows.
struct ColumnProducts<'k, 'r> {
    own: &'k CurvedRows<'r>,
    column: usize,
    /// The rows and the values of some entries of this column.
    piece: (&'k [i32], &'k [f32]),
    factors: Vec<f64>,
    /// The sums of a pair of columns, one per factor, are contiguous.
    sums: &'k mut [f64],
}

impl WithSimd for ColumnProducts<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { own, column, piece: (rows, values), mut factors, sums } = self;
        let stride = factors.len();
        let is_constant = own.has_intercept && column + 1 == own.columns.n_lines();
        for (row, value) in rows.iter().zip(values) {
            own.write_factors(*row as usize, &mut factors);
            let value = f64::from(*value);
            factors.iter_mut().for_each(|factor| *factor *= value);
            let (columns, entries) = own.rows.line(*row as usize);
            // The columns of a row are sorted.
            let n_first = columns.partition_point(|other| *other as usize <= column);
            for (other, entry) in columns[..n_first].iter().zip(entries) {
                let (other, entry) = (*other as usize, f64::from(*entry));
                if stride == 1 {
                    sums[other] += entry * factors[0];
                    continue;
                }
                let sums = sums[other * stride..][..stride].as_chunks_mut::<LANES>().0;
                for (sums, factors) in sums.iter_mut().zip(factors.as_chunks::<LANES>().0) {
                    for lane in 0..LANES {
                        sums[lane] += entry * factors[lane];
                    }
                }
            }
            if is_constant {
                let sums = &mut sums[column * stride..];
                sums.iter_mut().zip(&factors).for_each(|(sum, factor)| *sum += factor);
            }
        }
    }
}
