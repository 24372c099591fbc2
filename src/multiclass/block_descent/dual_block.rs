//! What is kept of each example's dual block, and the weights that belong to the blocks.

use super::candidates::Candidates;
use super::scorer::Scorer;
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

/// Adds w(β), the weights that belong to the dual blocks, to the model's, in the given order of the blocks.
pub(super) fn add_images<M: Scorer, T: Element>(
    problem: &MarginProblem<'_>,
    (duals, order): (&[DualBlock], &[u32]),
    betas: &Candidates<T>,
    model: &mut M,
    interrupt: &Interrupt,
) -> Result<()> {
    // Most examples of most problems have β = 0: their rows are not read.
    let places = order.iter().copied().filter(|at| duals[*at as usize].sum != 0.0);
    let places: Vec<u32> = places.collect();
    let examples: Vec<u32> = places.iter().map(|at| duals[*at as usize].example).collect();
    let change = |index: usize, change: &mut [M::Value]| {
        let at = places[index] as usize;
        let dual = &duals[at];
        let (classes, values) = betas.row(at);
        for (class, beta) in classes.iter().zip(values) {
            change[*class as usize] = Real::narrow(-dual.weight * beta.widen());
        }
        change[problem.label(dual.example as usize)] = Real::narrow(dual.weight * dual.sum);
    };
    model.add_rows(&examples, change, interrupt)
}
