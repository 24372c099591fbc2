//! What is kept of each example's dual block, and the weights that belong to the blocks.

use super::scorer::{Changes, RowBlock, Scorer};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::multiclass::MarginProblem;

/// Longest rest of an example that stayed as it was, in epochs.
const LONGEST_REST: u8 = 15;

/// What is kept of an example's dual block beside β_i.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DualBlock {
    /// i.
    pub example: u32,
    /// C_i = p_i/λ.
    pub weight: f64,
    /// C_i A_i.
    pub curvature: f64,
    /// 1ᵀβ_i.
    pub sum: f64,
    /// The last multiplier of its projection.
    pub multiplier: f64,
    /// Epochs that it still rests.
    pub rest: u8,
    /// How many visits in a row changed nothing.
    pub idle: u8,
    /// Whether its block is optimal whatever the weights.
    pub settled: bool,
}

impl DualBlock {
    /// Whether the example is due.
    pub fn wakes(&mut self) -> bool {
        let due = self.rest == 0;
        self.rest -= u8::from(!due);
        due && !self.settled
    }

    /// After a visit that changed nothing the example may rest, the longer the more of them there were.
    pub fn tire(&mut self) {
        self.idle = (self.idle + 1).min(6);
        self.rest = ((1 << self.idle) - 2).min(LONGEST_REST);
    }
}

/// Adds w(β), the weights that belong to the dual blocks, to the model's.
pub(super) fn add_images<M: Scorer, T: Real>(
    problem: &MarginProblem<'_>,
    duals: &[DualBlock],
    betas: &[T],
    model: &mut M,
    interrupt: &Interrupt,
) -> Result<()> {
    let (m, padded) = (problem.n_classes(), model.padded());
    let mut block = RowBlock::default();
    let mut changes = Changes::new(M::LARGEST_BLOCK, padded);
    let blocks = duals.chunks(M::LARGEST_BLOCK).zip(betas.chunks(M::LARGEST_BLOCK * m));
    for (duals, betas) in blocks {
        interrupt.check()?;
        block.examples.clear();
        block.examples.extend(duals.iter().map(|dual| dual.example));
        model.gather(&mut block);
        changes.changed.clear();
        let rows = betas.chunks_exact(m).zip(changes.values.chunks_exact_mut(padded));
        for (row, (dual, (beta, change))) in duals.iter().zip(rows).enumerate() {
            if dual.sum == 0.0 {
                continue;
            }
            for (change, beta) in change.iter_mut().zip(beta) {
                *change = Real::narrow(-dual.weight * beta.widen());
            }
            change[problem.label(dual.example as usize)] = Real::narrow(dual.weight * dual.sum);
            changes.changed.push(row);
        }
        model.update(&changes, &block);
    }
    Ok(())
}
