//! A preconditioner for Newton systems with too many unknowns to factorise: the blocks of the matrix on its diagonal,
//! one block per part.

use std::ops::Range;

use super::active::Active;
use super::hessian::{MAX_DENSE_VALUES, ROWS_PER_SUM, add_rows};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;
use crate::linalg::outer::{PADDING, Strided};
use crate::linalg::{Design, grouped};
use crate::parallel::for_items;

/// Largest number of values of the factors (1 GiB).
const MAX_VALUES: usize = 1 << 27;

/// The factorised blocks I + Σ_i c_i J_i[a, a] x_i x_iᵀ of the parts a.
///
/// The blocks contain the scales and correlations of the features. Conjugate gradients add the couplings between the
/// parts, which do not depend on the features' scales.
pub(super) struct PartFactors {
    factors: Vec<Factor>,
    /// Number of features.
    d: usize,
}

impl PartFactors {
    /// Computes and factorises the blocks.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn new(
        design: &Design<'_>,
        n_parts: usize,
        active: &Active,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let d = design.n_features();
        let width = d.next_multiple_of(PADDING);
        let mut blocks = vec![vec![0.0; d * width]; n_parts];
        let n_rows = (MAX_DENSE_VALUES / width).max(ROWS_PER_SUM);
        let mut values = Vec::new();
        for (chunk, rows) in active.blocks.chunks(n_rows).enumerate() {
            interrupt.check()?;
            values.clear();
            design.append_rows(rows.iter().map(|row| *row as usize), width, &mut values);
            let first = chunk * n_rows;
            let (starts, entries) = entries_of_parts(first..first + rows.len(), n_parts, active);
            let rows = Strided { values: &values, stride: width };
            for_items(blocks.iter_mut().enumerate(), 1, |(part, block)| {
                let entries = &entries[starts[part]..starts[part + 1]];
                if !entries.is_empty() && !interrupt.is_raised() {
                    add_rows(entries, rows, d, block, interrupt);
                }
            });
        }
        interrupt.check()?;
        let factorise = |mut block: Vec<f64>| {
            block.iter_mut().step_by(width + 1).for_each(|value| *value += 1.0);
            Factor::new(block, d, interrupt)
        };
        let factors = blocks.into_iter().map(factorise).collect::<Result<_>>()?;
        Ok(Self { factors, d })
    }

    /// Multiplies each part of b by the inverse of its block.
    pub fn solve(&self, b: &mut [f64]) {
        let parts = b.chunks_exact_mut(self.d).zip(&self.factors);
        for_items(parts, 1, |(b, factor)| factor.solve(b));
    }

    /// An estimate of the number of multiplications that the computation and factorisation of the blocks take.
    pub fn cost(n_features: usize, n_parts: usize, active: &Active) -> f64 {
        let (d, m) = (n_features as f64, n_parts as f64);
        d * d * (m * d / 6.0 + active.curvatures.n_diagonal_entries() as f64 / 2.0)
    }
}

/// Whether the factors of all parts have at most [`MAX_VALUES`] values.
pub fn has_part_factors(n_features: usize, n_parts: usize) -> bool {
    n_factor_values(n_features, n_parts) <= MAX_VALUES
}

/// Number of values of the factors of all parts.
pub(super) fn n_factor_values(n_features: usize, n_parts: usize) -> usize {
    n_features.saturating_mul(n_features.next_multiple_of(PADDING)).saturating_mul(n_parts)
}

/// Lists, part by part, the active rows with curvature in the part, with their factors c_i J_i[a, a]. Rows are counted
/// from the first of `slots`. Returns the index of each part's first entry in the list, and the list.
fn entries_of_parts(
    slots: Range<usize>,
    n_parts: usize,
    active: &Active,
) -> (Vec<usize>, Vec<(u32, f64)>) {
    let mut own = vec![0.0; n_parts];
    let mut found: Vec<(u32, (u32, f64))> = Vec::new();
    for (row, slot) in (0..).zip(slots) {
        own.fill(0.0);
        active.curvatures.add_diagonal_of(slot, active.scales[slot], &mut own);
        let entries = (0..).zip(&own).filter(|(_, value)| **value > 0.0);
        found.extend(entries.map(|(part, value)| (part, (row, *value))));
    }
    grouped(&found, n_parts)
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};

    #[test]
    fn solving_inverts_the_blocks_of_the_parts() {
        let x = Array2::from_shape_fn((5, 2), |(row, column)| (3 * row + 5 * column) as f64 - 6.5);
        let design = Design { data: Data::Dense64(Dense::new(x.view()).unwrap()), bias: 0.7 };
        let (interrupt, m, d) = (Interrupt::default(), 3, 3);
        let mut active = Active::default();
        for block in 0..5_u32 {
            active
                .curvatures
                .add_group((0..m as u32).filter(|part| block == 4 || block % 3 != *part));
            active.curvatures.end_block();
            active.blocks.push(block);
            active.scales.push(0.3 + f64::from(block));
        }
        let factors = PartFactors::new(&design, m, &active, &interrupt).unwrap();
        // The product of a vector that is nonzero in one part only, restricted to this part, is the product with the
        // block of this part.
        let solution: Vec<f64> = (0..m * d).map(|at| (at % 5) as f64 - 1.4).collect();
        let mut right = vec![0.0; m * d];
        for part in 0..m {
            let mut vector = vec![0.0; m * d];
            vector[part * d..][..d].copy_from_slice(&solution[part * d..][..d]);
            let product = active.product(&design, m, &vector, &interrupt).unwrap();
            right[part * d..][..d].copy_from_slice(&product[part * d..][..d]);
        }
        factors.solve(&mut right);
        for (value, expected) in right.iter().zip(&solution) {
            assert!((value - expected).abs() < 1e-10, "{value} instead of {expected}");
        }
    }
}
