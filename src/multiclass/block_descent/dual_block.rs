//! What is kept of each example's dual block, and the weights that belong to the blocks.

use num_traits::Zero;

use super::candidates::Candidates;
use super::scorer::{Changes, RowBlock, Scorer};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Element;
use crate::multiclass::MarginProblem;

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
    /// Whether its block is optimal whatever the weights.
    pub settled: bool,
    /// Whether visits leave it out for a while.
    pub rest: Rest,
}

/// The passes that leave an example out since its visits gained little.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rest {
    /// Passes of the last rest.
    pub length: u8,
    /// Passes of it to come.
    pub left: u8,
}

/// Examples whose images are added together: their rows stay in the second-level cache, and each weight is
/// read and written once for all of them.
const TOGETHER: usize = 64;

/// Adds w(β), the weights that belong to the dual blocks, to the model's, in the given order of the blocks.
pub(super) fn add_images<M: Scorer, T: Element>(
    problem: &MarginProblem<'_>,
    (duals, order): (&[DualBlock], &[u32]),
    betas: &Candidates<T>,
    model: &mut M,
    interrupt: &Interrupt,
) -> Result<()> {
    let padded = model.padded();
    let mut block = RowBlock::default();
    let n_rows = TOGETHER.min(M::LARGEST_BLOCK);
    let mut changes = Changes::new(n_rows, padded);
    // Most examples of most problems have β = 0: their rows are not read.
    let places = order.iter().map(|at| *at as usize).filter(|at| duals[*at].sum != 0.0);
    let places: Vec<usize> = places.collect();
    for places in places.chunks(n_rows) {
        interrupt.check()?;
        block.examples.clear();
        block.examples.extend(places.iter().map(|at| duals[*at].example));
        model.gather(&mut block);
        changes.changed.clear();
        changes.changed.extend(0..places.len());
        for (&at, change) in places.iter().zip(changes.values.chunks_exact_mut(padded)) {
            let dual = &duals[at];
            change.fill(M::Value::zero());
            let (classes, values) = betas.row(at);
            for (class, beta) in classes.iter().zip(values) {
                change[*class as usize] = Real::narrow(-dual.weight * beta.widen());
            }
            change[problem.label(dual.example as usize)] = Real::narrow(dual.weight * dual.sum);
        }
        model.update(&changes, &block);
    }
    Ok(())
}
