//! One call for linear multi-category models: a method by name, its run, and where it ended.

use std::ops::ControlFlow;

use super::block_descent::{BlockDescent, Options};
use super::{MarginDual, MarginOracle, Subgradient};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::multiclass::Order;
use crate::multiclass::Problem;
use crate::names::find;
use crate::run::{Epoch, Stopping, Trace, run};
use crate::solver::{
    Block, BlockFrankWolfe, BlockOptions, BlockStep, FrankWolfe, Sampling, Start, StepRule,
};

/// The solvers for multi-category losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// [`BlockDescent`].
    BlockDescent,
    /// [`FrankWolfe`].
    FrankWolfe(StepRule),
    /// [`BlockFrankWolfe`].
    BlockFrankWolfe(BlockStep, Sampling),
    /// [`Subgradient`].
    Subgradient,
}

impl Method {
    /// Names of the solvers; "auto" is the one to use when nothing speaks for another.
    pub const NAMES: &[&str] =
        &["auto", "block-descent", "frank-wolfe", "block-frank-wolfe", "subgradient"];

    /// Names of the steps: the two of "frank-wolfe", and of "block-frank-wolfe" the line search towards
    /// the best vertex and those with an active set.
    pub const STEPS: &[&str] = &["line-search", "scheduled", "away", "pairwise"];

    /// The solver called `solver`, with the step and the order of the examples of these names.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name, and for a step that the solver does not have.
    pub fn parse(solver: &str, step: &str, sampling: &str) -> Result<Self> {
        if !Self::STEPS.contains(&step) {
            return Err(Error::unknown("step", step, Self::STEPS.iter().copied()));
        }
        let sampling = find("sampling", sampling, Sampling::NAMES)?;
        let method = match (solver, step) {
            ("auto" | "block-descent", "line-search") => Self::BlockDescent,
            ("frank-wolfe", "line-search") => Self::FrankWolfe(StepRule::LineSearch),
            ("frank-wolfe", "scheduled") => Self::FrankWolfe(StepRule::Scheduled),
            ("block-frank-wolfe", "line-search") => {
                Self::BlockFrankWolfe(BlockStep::FrankWolfe, sampling)
            }
            ("block-frank-wolfe", "away") => Self::BlockFrankWolfe(BlockStep::Away, sampling),
            ("block-frank-wolfe", "pairwise") => {
                Self::BlockFrankWolfe(BlockStep::Pairwise, sampling)
            }
            ("subgradient", "line-search") => Self::Subgradient,
            _ if Self::NAMES.contains(&solver) => {
                let message = format!("solver {solver:?} has no step {step:?}");
                return Err(Error::argument("step", message));
            }
            _ => return Err(Error::unknown("solver", solver, Self::NAMES.iter().copied())),
        };
        Ok(method)
    }

    /// How the weights ought to be ordered for this solver.
    pub fn order(self) -> Order {
        match self {
            Self::FrankWolfe(_) => Order::Batches,
            Self::BlockDescent | Self::BlockFrankWolfe(..) | Self::Subgradient => Order::Examples,
        }
    }
}

/// Where a run started or ended.
#[derive(Debug, Clone, PartialEq)]
pub struct DualPoint {
    /// The weights and what Frank-Wolfe keeps of the dual point.
    pub at: Start,
    /// β (examples × classes) where the method keeps it and it was asked for, else empty.
    pub beta: Vec<f64>,
}

/// How to minimise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The solver.
    pub method: Method,
    /// Seed of the order of the examples.
    pub seed: u64,
    /// When to stop.
    pub stopping: Stopping,
    /// Whether β is wanted at the end (examples × classes numbers, for a later start).
    pub keep_dual: bool,
}

/// Minimises the problem, whose weights are in the order of [`Method::order`]; `rows` and `bias` are
/// those of its feature map.
///
/// A `start` must be what an earlier run of the same method on the same examples, loss and costs ended
/// with, the weights scaled by the ratio of the old λ to the new; the certificate rests on it.
///
/// # Errors
/// What [`run`] returns; [`Error::InvalidArgument`] for a start where the method has none.
pub fn minimize(
    problem: &mut Problem<'_>,
    rows: Data<'_>,
    bias: f64,
    settings: Settings,
    start: Option<DualPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<(Trace, DualPoint)> {
    let Settings { method, seed, stopping, keep_dual } = settings;
    match method {
        Method::BlockDescent => {
            let options = Options { seed, ..Options::default() };
            let mut solver = BlockDescent::new(problem, rows, bias, options);
            if let Some(start) = start {
                solver.start_at(&start.beta, interrupt)?;
            }
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            let beta = if keep_dual { solver.betas() } else { Vec::new() };
            let weights = problem.features.layout().arrange(solver.coefficients());
            Ok((trace, DualPoint { at: Start { weights, linear: 0.0, square: 0.0 }, beta }))
        }
        Method::FrankWolfe(rule) => {
            let (at, beta) = start.map_or((None, Vec::new()), |s| (Some(s.at), s.beta));
            let mut solver = FrankWolfe::new(MarginOracle::new(problem, &beta), rule, at);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            let (oracle, at) = solver.into_parts();
            let beta = if keep_dual { oracle.into_dual() } else { Vec::new() };
            Ok((trace, DualPoint { at, beta }))
        }
        Method::BlockFrankWolfe(step, sampling) => {
            let m = problem.n_classes();
            let options = BlockOptions { seed, step, sampling, ..BlockOptions::default() };
            let keep_atoms = step != BlockStep::FrankWolfe;
            let start = start.map(|start| (start.at.weights, blocks(&start.beta, m, keep_atoms)));
            let mut solver = BlockFrankWolfe::new(MarginDual::new(problem), options, start);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            let (dual, weights, blocks) = solver.into_parts();
            let (linear, square) = dual.terms(blocks.iter().map(|block| &block.point));
            let mut beta = vec![0.0; if keep_dual { blocks.len() * m } else { 0 }];
            for (row, block) in beta.chunks_exact_mut(m).zip(&blocks) {
                block.point.iter().for_each(|&(class, weight)| row[class as usize] = weight);
            }
            Ok((trace, DualPoint { at: Start { weights, linear, square }, beta }))
        }
        Method::Subgradient => {
            if start.is_some() {
                return Err(Error::argument("warm_start", "the subgradient method has none"));
            }
            let mut solver = Subgradient::new(problem, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            let weights = solver.weights().to_vec();
            let at = Start { weights, linear: 0.0, square: 0.0 };
            Ok((trace, DualPoint { at, beta: Vec::new() }))
        }
    }
}

/// A dual point (examples × classes) as blocks; a point counts as the only vertex of its active set.
fn blocks(beta: &[f64], n_classes: usize, keep_atoms: bool) -> Vec<Block> {
    let point = |row: &[f64]| {
        let entries = row.iter().enumerate().filter(|(_, weight)| **weight != 0.0);
        entries.map(|(class, weight)| (class as u32, *weight)).collect()
    };
    beta.chunks_exact(n_classes).map(|row| Block::at(point(row), keep_atoms, false)).collect()
}
