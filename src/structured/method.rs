//! One call for structured models: a method by name, its run, and where it ended.

use std::ops::ControlFlow;

use crate::dual::{BlockDual, DualOracle};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::names::find;
use crate::run::{Epoch, Stopping, Trace, run};
use crate::solver::{
    AwayFrankWolfe, AwayStep, Block, BlockFrankWolfe, BlockOptions, BlockStep, BlockSubgradient,
    FrankWolfe, Sampling, StepRule,
};

/// The solvers for structured problems that work on vertices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StructuredMethod {
    /// [`FrankWolfe`].
    FrankWolfe(StepRule),
    /// [`BlockFrankWolfe`].
    BlockFrankWolfe(BlockOptions),
    /// [`AwayFrankWolfe`] with its subsampling share and seed.
    AwayFrankWolfe(AwayStep, f64, u64),
    /// [`BlockSubgradient`], averaging or not, with its seed.
    Subgradient(bool, u64),
}

/// What a method may be told beside its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StructuredOptions<'a> {
    /// Name of the step, or none for the method's own.
    pub step: Option<&'a str>,
    /// Name of the order of the blocks.
    pub sampling: &'a str,
    /// See [`BlockOptions::cache`].
    pub cache: bool,
    /// See [`BlockOptions::averaging`] and [`BlockSubgradient`].
    pub averaging: bool,
    /// Share of the blocks that a batch away step asks.
    pub subsample: f64,
    /// Of all that is random.
    pub seed: u64,
}

impl StructuredMethod {
    /// Names of the methods, with the [`super::Extragradient`] that needs more than vertices.
    pub const NAMES: &[&str] =
        &["block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", "subgradient", "extragradient"];

    /// The method of that name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for unknown names, steps that the method does not have, and a
    /// subsampling share that is not in (0, 1].
    pub fn parse(solver: &str, options: &StructuredOptions<'_>) -> Result<Self> {
        let StructuredOptions { step, cache, averaging, subsample, seed, .. } = *options;
        if !(subsample > 0.0 && subsample <= 1.0) {
            return Err(Error::argument("subsample", "must be more than 0 and at most 1"));
        }
        let sampling = find("sampling", options.sampling, Sampling::NAMES)?;
        match solver {
            "block-frank-wolfe" => {
                let step = find("step", step.unwrap_or("frank-wolfe"), BlockStep::NAMES)?;
                let certify_below = f64::INFINITY;
                let options =
                    BlockOptions { seed, step, sampling, cache, averaging, certify_below };
                Ok(Self::BlockFrankWolfe(options))
            }
            "frank-wolfe" => {
                let step = find("step", step.unwrap_or("line-search"), StepRule::NAMES)?;
                Ok(Self::FrankWolfe(step))
            }
            "away-frank-wolfe" => {
                let step = find("step", step.unwrap_or("away"), AwayStep::NAMES)?;
                Ok(Self::AwayFrankWolfe(step, subsample, seed))
            }
            "subgradient" => Ok(Self::Subgradient(averaging, seed)),
            "extragradient" => {
                let message = "\"extragradient\" needs a built-in model, and has no path";
                Err(Error::argument("solver", message))
            }
            other => Err(Error::unknown("solver", other, Self::NAMES.iter().copied())),
        }
    }
}

/// Where a structured run ended.
#[derive(Debug, Clone)]
pub struct StructuredEnd {
    /// The record of the run.
    pub trace: Trace,
    /// The model.
    pub weights: Vec<f64>,
    /// The dual point of [`BlockFrankWolfe`], and the w that belongs to it.
    pub dual: Option<(Vec<f64>, Vec<Block>)>,
    /// Calls of the oracle, where they are counted.
    pub oracle_calls: Option<usize>,
}

/// Minimises a structured problem. `start` is the dual point that an earlier run of block Frank-Wolfe on
/// the same examples ended at, with w scaled by the ratio of the old λ to the new.
///
/// # Errors
/// What [`run`] returns; [`Error::InvalidArgument`] for a start where the method has none.
pub fn minimize_structured<D: BlockDual + DualOracle>(
    dual: D,
    method: StructuredMethod,
    stopping: Stopping,
    start: Option<(Vec<f64>, Vec<Block>)>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<StructuredEnd> {
    if start.is_some() && !matches!(method, StructuredMethod::BlockFrankWolfe(_)) {
        return Err(Error::argument("warm_start", "only \"block-frank-wolfe\" can be continued"));
    }
    let end = |trace, weights: &[f64]| StructuredEnd {
        trace,
        weights: weights.to_vec(),
        dual: None,
        oracle_calls: None,
    };
    match method {
        StructuredMethod::FrankWolfe(rule) => {
            let mut solver = FrankWolfe::new(dual, rule, None);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, &solver.current().weights))
        }
        StructuredMethod::BlockFrankWolfe(options) => {
            let options = BlockOptions { certify_below: stopping.gap, ..options };
            let mut solver = BlockFrankWolfe::new(dual, options, start);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            let (mut end, calls) = (end(trace, solver.weights()), solver.oracle_calls());
            let (_, weights, blocks) = solver.into_parts();
            (end.dual, end.oracle_calls) = (Some((weights, blocks)), Some(calls));
            Ok(end)
        }
        StructuredMethod::AwayFrankWolfe(step, subsample, seed) => {
            let mut solver = AwayFrankWolfe::new(dual, step, subsample, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, solver.weights()))
        }
        StructuredMethod::Subgradient(averaging, seed) => {
            let mut solver = BlockSubgradient::new(dual, averaging, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, solver.weights()))
        }
    }
}
