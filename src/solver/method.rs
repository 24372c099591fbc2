//! Solves any dual with a method chosen by name.

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

/// Solvers that need only vertices from a dual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// [`FrankWolfe`].
    FrankWolfe(StepRule),
    /// [`BlockFrankWolfe`].
    BlockFrankWolfe(BlockOptions),
    /// [`AwayFrankWolfe`].
    AwayFrankWolfe {
        /// The kind of step.
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

/// Names of all steps: the exact and the scheduled step towards the best vertex, and the two steps
/// that also take weight from the worst active vertex.
pub const STEPS: &[&str] = &["frank-wolfe", "scheduled", "away", "pairwise"];

/// A solver by name, and the other options that the caller chose. [`Choices::of`] gives the
/// defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choices<'a> {
    /// Name of the method.
    pub solver: &'a str,
    /// Name of the step; None for the method's default.
    pub step: Option<&'a str>,
    /// Name of the sampling rule for the blocks.
    pub sampling: &'a str,
    /// See [`BlockOptions::cache`].
    pub cache: bool,
    /// See [`BlockOptions::averaging`] and [`Subgradient`].
    pub averaging: bool,
    /// Share of the blocks whose oracles are called in each step of [`AwayFrankWolfe`].
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

    /// Checks that the names of the step and the sampling rule are known, and that each parameter
    /// that the solver does not use has its default value.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the parameter.
    pub fn refuse_all_but(&self, used: &[&str]) -> Result<()> {
        find("sampling", self.sampling, Sampling::NAMES)?;
        if let Some(step) = self.step
            && !used.contains(&"step")
        {
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

    /// The error for a parameter that the solver does not use but the caller set.
    pub fn unused(&self, parameter: &'static str) -> Error {
        Error::argument(parameter, format!("solver={:?} does not use it", self.solver))
    }

    /// The step with the chosen name among the solver's steps; the first of them is the default.
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

    /// Builds the method that the choices name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for unknown names, a step or parameter that the method does not support, and a
    /// `subsample` outside (0, 1].
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

    /// Block Frank-Wolfe with these options; ignores the solver's name.
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

    /// Returns an error for a smoothed dual if the method requires subgradients to be vertices.
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

/// Returns an error for sign constraints if the method does not support them, or if their number
/// differs from `n_weights`.
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

/// A gap below this share of P(0) counts as rounding error, for any objective.
const ROUNDING: f64 = 1e-15;

/// The tolerance and the maximum number of epochs of a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Duality gap, relative to the objective, at which a fit has converged.
    pub tol: f64,
    /// Maximum number of epochs.
    pub max_epochs: usize,
}

impl Target {
    /// The stopping rule of a problem with known P(0). A gap of the size of rounding errors in P(0)
    /// counts as 0. If P(0) is 0 up to its rounding error, any gap up to that error also counts
    /// as 0. Without a tolerance, only a gap of 0 is small enough.
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

/// The final dual point of a run and its w, in the form that the method keeps.
#[derive(Debug, Clone, PartialEq)]
pub enum DualPoint {
    /// Only w, from which a later run cannot start.
    Weights(Vec<f64>),
    /// The dual point of [`FrankWolfe`].
    Sums(Start),
    /// The dual point of [`BlockFrankWolfe`].
    Blocks {
        /// The weights w.
        weights: Vec<f64>,
        /// The blocks with their points μ_i.
        blocks: Vec<Block>,
    },
}

impl DualPoint {
    /// The weights w of the dual point.
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

/// Returns an error if a start is given, for methods that keep no dual point.
fn reject_start(start: Option<DualPoint>) -> Result<()> {
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
    /// P(0), the objective at w = 0.
    pub null_objective: f64,
    /// The final dual point.
    pub point: DualPoint,
    /// The model, if it is not the w of the dual point but the average of the iterates, an earlier
    /// iterate, or 0.
    pub model: Option<Vec<f64>>,
    /// Number of oracle calls, if the method counts them.
    pub oracle_calls: Option<usize>,
}

impl Fit {
    /// The weights of the returned model.
    pub fn weights(&self) -> &[f64] {
        self.model.as_deref().unwrap_or(self.point.weights())
    }
}

/// Returns an error if the weight vectors of a run do not fit into memory: w, its image, a
/// direction, the best w so far and the result, in double precision. Active sets, which grow during
/// the run, are not included.
fn require_weights(n_weights: usize) -> Result<()> {
    let what = || format!("d = {n_weights} weights");
    require(40 * n_weights as u128, what, "use a joint feature vector with fewer entries")
}

/// Solves the problem whose dual is `dual`, with the given method. `start` is the final dual point of an earlier run of
/// the same method on the same blocks. If λ has changed, the caller must multiply the w of `start` by the ratio of the
/// old λ to the new λ; otherwise the certificate is wrong.
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
            reject_start(start)?;
            let mut solver = AwayFrankWolfe::new(dual, step, subsample, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Weights(solver.into_weights())))
        }
        Method::ProjectedGradient => {
            reject_start(start)?;
            let mut solver = ProjectedGradient::new(dual, null_objective);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Weights(solver.into_weights())))
        }
        Method::Subgradient { averaging, seed } => {
            reject_start(start)?;
            let mut solver = Subgradient::new(dual, null_objective, averaging, seed);
            let trace = run(&mut solver, stopping, interrupt, observe)?;
            Ok(end(trace, DualPoint::Weights(solver.into_weights())))
        }
    }
}
