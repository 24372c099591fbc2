//! Solves any dual: a method by name, its run, and the point where it ended.

use std::ops::ControlFlow;

use super::{
    AwayFrankWolfe, Block, BlockFrankWolfe, BlockOptions, FrankWolfe, ProjectedGradient, Sampling,
    Start, Step, StepRule, Subgradient,
};
use crate::dual::{BatchDual, Bounded, SignCone};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory::require;
use crate::names::{check, find};
use crate::run::{Epoch, Stopping, Trace, run};

/// The solvers that only need vertices from a dual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// [`FrankWolfe`].
    FrankWolfe(StepRule),
    /// [`BlockFrankWolfe`].
    BlockFrankWolfe(BlockOptions),
    /// [`AwayFrankWolfe`].
    AwayFrankWolfe {
        /// The steps.
        step: Step,
        /// The share of the blocks whose oracles a step calls, in (0, 1].
        subsample: f64,
        /// Seed for the choice of the blocks.
        seed: u64,
    },
    /// [`ProjectedGradient`].
    ProjectedGradient,
    /// [`Subgradient`].
    Subgradient {
        /// Whether the model is the average of the iterates.
        averaging: bool,
        /// Seed for the order of the blocks.
        seed: u64,
    },
}

/// Names of all steps: the exact and the scheduled step towards the best vertex, and the steps that
/// also take weight from the worst active vertex.
pub const STEPS: &[&str] = &["frank-wolfe", "scheduled", "away", "pairwise"];

/// A solver by name, with the caller's other choices; the defaults are those of [`Choices::of`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choices<'a> {
    /// Name of the method.
    pub solver: &'a str,
    /// Name of the step; None for the method's default.
    pub step: Option<&'a str>,
    /// Name of the order of the blocks.
    pub sampling: &'a str,
    /// See [`BlockOptions::cache`].
    pub cache: bool,
    /// See [`BlockOptions::averaging`] and [`Subgradient`].
    pub averaging: bool,
    /// Share of the blocks whose oracles a step of [`AwayFrankWolfe`] calls.
    pub subsample: f64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl<'a> Choices<'a> {
    /// A solver with default choices.
    pub fn of(solver: &'a str) -> Self {
        let sampling = Sampling::NAMES[0].0;
        let (cache, averaging, subsample, seed) = (false, false, 1.0, 0);
        Self { solver, step: None, sampling, cache, averaging, subsample, seed }
    }

    /// Checks that the names of steps and samplings are known, and that each parameter has its
    /// default unless the solver uses it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the parameter.
    pub fn refuse_all_but(&self, used: &[&str]) -> Result<()> {
        find("sampling", self.sampling, Sampling::NAMES)?;
        if let Some(step) = self.step {
            check("step", step, STEPS)?;
        }
        let default = Self::of(self.solver);
        let chosen = [
            ("step", self.step != default.step),
            ("sampling", self.sampling != default.sampling),
            ("cache", self.cache != default.cache),
            ("averaging", self.averaging != default.averaging),
            ("subsample", self.subsample != default.subsample),
        ];
        match chosen.iter().find(|(name, chosen)| *chosen && !used.contains(name)) {
            Some((name, _)) => Err(self.unused(name)),
            None => Ok(()),
        }
    }

    /// The error for a parameter that the solver does not use.
    pub fn unused(&self, parameter: &'static str) -> Error {
        Error::argument(parameter, format!("solver={:?} does not use it", self.solver))
    }

    /// The step of the chosen name among the solver's steps, of which the first is the default.
    fn find_step<T: Copy>(&self, known: &[(&'static str, T)]) -> Result<T> {
        let Some(name) = self.step else { return Ok(known[0].1) };
        find("step", name, known).map_err(|_| {
            let known: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            let (solver, known) = (self.solver, known.join(", "));
            Error::argument("step", format!("solver {solver:?} has no step {name:?}; use {known}"))
        })
    }
}

type MethodConstructor = fn(&Choices<'_>) -> Result<Method>;

impl Method {
    /// Every method by its name.
    pub const REGISTRY: &[(&str, MethodConstructor)] = &[
        ("block-frank-wolfe", Self::block_frank_wolfe),
        ("frank-wolfe", Self::frank_wolfe),
        ("away-frank-wolfe", Self::away_frank_wolfe),
        ("projected-gradient", Self::projected_gradient),
        ("subgradient", Self::subgradient),
    ];

    /// The method of the chosen name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for unknown names, steps that the method does not have, parameters that
    /// it does not use, and a `subsample` that is not in (0, 1].
    pub fn parse(choices: &Choices<'_>) -> Result<Self> {
        find("solver", choices.solver, Self::REGISTRY)?(choices)
    }

    /// The name of the method.
    pub fn name(self) -> &'static str {
        let place = match self {
            Self::BlockFrankWolfe(_) => 0,
            Self::FrankWolfe(_) => 1,
            Self::AwayFrankWolfe { .. } => 2,
            Self::ProjectedGradient => 3,
            Self::Subgradient { .. } => 4,
        };
        Self::REGISTRY[place].0
    }

    /// Block Frank-Wolfe, under any name in the choices.
    pub(crate) fn block_frank_wolfe(choices: &Choices<'_>) -> Result<Self> {
        choices.refuse_all_but(&["step", "sampling", "cache", "averaging"])?;
        let Choices { cache, averaging, seed, .. } = *choices;
        let sampling = find("sampling", choices.sampling, Sampling::NAMES)?;
        let (step, default) = (choices.find_step(Step::NAMES)?, BlockOptions::default());
        let options = BlockOptions { seed, step, sampling, cache, averaging, ..default };
        Ok(Self::BlockFrankWolfe(options))
    }

    fn frank_wolfe(choices: &Choices<'_>) -> Result<Self> {
        choices.refuse_all_but(&["step"])?;
        Ok(Self::FrankWolfe(choices.find_step(StepRule::NAMES)?))
    }

    fn away_frank_wolfe(choices: &Choices<'_>) -> Result<Self> {
        choices.refuse_all_but(&["step", "subsample"])?;
        let Choices { subsample, seed, .. } = *choices;
        if !(subsample > 0.0 && subsample <= 1.0) {
            return Err(Error::argument("subsample", "must be more than 0 and at most 1"));
        }
        Ok(Self::AwayFrankWolfe { step: choices.find_step(&Step::NAMES[1..])?, subsample, seed })
    }

    fn projected_gradient(choices: &Choices<'_>) -> Result<Self> {
        choices.refuse_all_but(&[])?;
        Ok(Self::ProjectedGradient)
    }

    fn subgradient(choices: &Choices<'_>) -> Result<Self> {
        choices.refuse_all_but(&["averaging"])?;
        Ok(Self::Subgradient { averaging: choices.averaging, seed: choices.seed })
    }

    /// Returns an error for a smoothed dual if the method needs vertices to be subgradients.
    fn check_smoothing(self, smoothing: f64) -> Result<()> {
        let solver = match self {
            Self::AwayFrankWolfe { .. } => "away-frank-wolfe",
            Self::BlockFrankWolfe(options) if options.averaging => "block-frank-wolfe (averaging)",
            _ => return Ok(()),
        };
        if smoothing == 0.0 {
            return Ok(());
        }
        Err(Error::argument("smoothing", format!("solver {solver:?} does not support it")))
    }
}

/// Returns an error for sign constraints if the method has none, or if their number differs from
/// `n_weights`.
fn check_cone(method: Method, cone: &SignCone, n_weights: usize) -> Result<()> {
    cone.check(n_weights)?;
    match method {
        Method::BlockFrankWolfe(options) if !options.averaging => Ok(()),
        _ if cone.is_everything() => Ok(()),
        _ => {
            let message = "only \"block-frank-wolfe\" without averaging supports them";
            Err(Error::argument("signs", message))
        }
    }
}

/// A gap below this share of P(0) is rounding error, for any objective.
const ROUNDING: f64 = 1e-15;

/// The tolerance and the maximum number of epochs of a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Duality gap at which it has converged, relative to the objective.
    pub tol: f64,
    /// Maximum number of epochs.
    pub max_epochs: usize,
}

impl Target {
    /// The stopping rule of a problem whose P(0) is known. A gap that is rounding error compared
    /// with P(0) counts as 0. So does any gap up to the rounding error of a P(0) that is 0 within
    /// this error. Without a tolerance, only a gap of 0 is small enough.
    pub fn stopping(self, null_objective: Bounded) -> Stopping {
        let (lower, upper) = (null_objective.lower(), null_objective.upper());
        let error = if lower <= 0.0 { upper - lower } else { 0.0 };
        let floor = if self.tol > 0.0 { error.max(ROUNDING * upper) } else { 0.0 };
        let null_objective = upper;
        Stopping {
            max_epochs: self.max_epochs,
            relative: self.tol,
            floor,
            null_objective: Some(null_objective),
        }
    }
}

/// A dual point in the form that a method keeps, with its w.
#[derive(Debug, Clone, PartialEq)]
pub enum DualPoint {
    /// Only w: a later run cannot start from it.
    Weights(Vec<f64>),
    /// The dual point of [`FrankWolfe`].
    Sums(Start),
    /// The dual point of [`BlockFrankWolfe`].
    Blocks {
        /// w.
        weights: Vec<f64>,
        /// The μ_i.
        blocks: Vec<Block>,
    },
}

impl DualPoint {
    /// w.
    pub fn weights(&self) -> &[f64] {
        match self {
            Self::Weights(weights) | Self::Blocks { weights, .. } => weights,
            Self::Sums(start) => &start.weights,
        }
    }

    fn into_sums(self) -> Result<Start> {
        match self {
            Self::Sums(start) => Ok(start),
            _ => Err(other_method()),
        }
    }

    fn into_blocks(self) -> Result<(Vec<f64>, Vec<Block>)> {
        match self {
            Self::Blocks { weights, blocks } => Ok((weights, blocks)),
            _ => Err(other_method()),
        }
    }
}

fn other_method() -> Error {
    Error::argument("warm_start", "the dual point belongs to another solver")
}

/// Returns an error for a start if the method keeps no dual point.
fn refuse_start(start: Option<DualPoint>) -> Result<()> {
    match start {
        Some(_) => Err(Error::argument("warm_start", "this solver does not support it")),
        None => Ok(()),
    }
}

/// The result of a fit.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The record of the run.
    pub trace: Trace,
    /// P(0).
    pub null_objective: f64,
    /// The dual point.
    pub point: DualPoint,
    /// The model if it is not the w of the dual point: the average of the iterates, an earlier
    /// iterate, or 0.
    pub model: Option<Vec<f64>>,
    /// Number of oracle calls, if counted.
    pub oracle_calls: Option<usize>,
}

impl Fit {
    /// The model.
    pub fn weights(&self) -> &[f64] {
        self.model.as_deref().unwrap_or(self.point.weights())
    }
}

/// Returns an error if the weights of a model do not fit into memory: w, its image, a direction,
/// the best w so far and the result, in double precision. Active sets grow during the run and are
/// not in the estimate.
fn require_weights(n_weights: usize) -> Result<()> {
    let what = || format!("d = {n_weights} weights");
    require(40 * n_weights as u128, what, "use a joint feature vector with fewer entries")
}

/// Minimises the problem of a dual. `start` is the final dual point of an earlier run of the same
/// method on the same blocks, with w scaled by the ratio of the old λ to the new; the certificate
/// depends on it.
///
/// # Errors
/// Errors of [`run`]; [`Error::InvalidArgument`] if the method does not support a start, smoothing
/// or sign constraints.
pub fn minimize<D: BatchDual>(
    dual: &mut D,
    method: Method,
    target: Target,
    start: Option<DualPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Fit> {
    method.check_smoothing(dual.shares().smoothing())?;
    check_cone(method, dual.shares().cone(), dual.n_weights())?;
    require_weights(dual.n_weights())?;
    let null_objective = dual.null_objective(interrupt)?;
    let stopping = target.stopping(null_objective);
    let null_objective = null_objective.upper();
    let end = |mut trace: Trace, point: DualPoint| {
        let model = trace.take_other(point.weights().len());
        Fit { trace, null_objective, point, model, oracle_calls: None }
    };
    match method {
        Method::FrankWolfe(rule) => {
            let start = start.map(DualPoint::into_sums).transpose()?;
            let mut solver = FrankWolfe::new(dual, rule, start).stopping_at(stopping);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Sums(solver.into_current())))
        }
        Method::BlockFrankWolfe(options) => {
            let certify_below = options.certify_below.max(stopping.floor);
            let certify_relative = options.certify_relative.max(stopping.relative);
            let options = BlockOptions { certify_below, certify_relative, ..options };
            let start = start.map(DualPoint::into_blocks).transpose()?;
            let mut solver = BlockFrankWolfe::new(dual, options, start).stopping_at(stopping);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            let oracle_calls = Some(solver.oracle_calls());
            let (weights, blocks, average) = solver.into_parts();
            let point = DualPoint::Blocks { weights, blocks };
            let fit = end(trace, point);
            Ok(Fit { model: fit.model.or(average), oracle_calls, ..fit })
        }
        Method::AwayFrankWolfe { step, subsample, seed } => {
            refuse_start(start)?;
            let mut solver = AwayFrankWolfe::new(dual, step, subsample, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Weights(solver.into_weights())))
        }
        Method::ProjectedGradient => {
            refuse_start(start)?;
            let mut solver = ProjectedGradient::new(dual, null_objective);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Weights(solver.into_weights())))
        }
        Method::Subgradient { averaging, seed } => {
            refuse_start(start)?;
            let mut solver = Subgradient::new(dual, null_objective, averaging, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Weights(solver.into_weights())))
        }
    }
}
