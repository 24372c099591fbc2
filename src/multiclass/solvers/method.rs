//! Fits linear multi-category models with a single call: selects a method by name, runs it and returns its end point.

use std::ops::ControlFlow;

use super::block_descent::{Options, block_descent};
use super::hand_over::{End, HandOver};
use super::lambda_path::LambdaPath;
use super::margin_blocks::{MarginBlocks, points_of};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::multiclass::{Layout, MarginDual, MarginProblem, Order};
use crate::names::{check, names};
use crate::run::{Epoch, Stopping, Trace, run};
use crate::solver::{
    Block, BlockOptions, Choices, Drift, DualPoint, Method, Newton, Start, Target, minimize,
};

/// The solvers for multi-category losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MulticlassMethod {
    /// [`block_descent`] with this seed. The solver needs projections.
    BlockDescent(u64),
    /// [`block_descent`] with this seed. The solver hands over to [`Newton`] if it is slow.
    HandOver(u64),
    /// [`Newton`], which also needs projections.
    Newton,
    /// The methods that need only vertices.
    Vertices(Method),
}

impl MulticlassMethod {
    /// Names that select block descent; "auto" is the default solver.
    const BLOCK_DESCENT: [&str; 2] = ["auto", "block-descent"];
    const NEWTON: &str = "newton";

    /// Names of all solvers.
    pub fn names() -> Vec<&'static str> {
        [Self::BLOCK_DESCENT.to_vec(), vec![Self::NEWTON], names(Method::REGISTRY)].concat()
    }

    /// The solver named by the choices.
    ///
    /// # Errors
    /// As for [`Method::parse`].
    pub fn parse(choices: &Choices<'_>) -> Result<Self> {
        if Self::BLOCK_DESCENT.contains(&choices.solver) {
            choices.refuse_all_but(&[])?;
            return Ok(Self::BlockDescent(choices.seed));
        }
        if choices.solver == Self::NEWTON {
            choices.refuse_all_but(&[])?;
            return Ok(Self::Newton);
        }
        check("solver", choices.solver, &Self::names())?;
        Ok(Self::Vertices(Method::parse(choices)?))
    }

    /// The name of the solver.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockDescent(_) => Self::BLOCK_DESCENT[1],
            Self::HandOver(_) => Self::BLOCK_DESCENT[0],
            Self::Newton => Self::NEWTON,
            Self::Vertices(method) => method.name(),
        }
    }

    /// The options for a path over C with block Frank-Wolfe.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the other solvers.
    pub fn path_options(self) -> Result<BlockOptions> {
        match self {
            Self::Vertices(Method::BlockFrankWolfe(options)) => Ok(options),
            _ => Err(Error::argument(
                "solver",
                "a path needs block descent, Newton or \"block-frank-wolfe\"",
            )),
        }
    }

    /// The order of the weights that this solver needs.
    pub fn order(self) -> Order {
        match self {
            Self::Vertices(Method::FrankWolfe(_) | Method::ProjectedGradient) => Order::Batches,
            _ => Order::Examples,
        }
    }

    /// Returns the weights of an epoch's model, reordered class by class.
    pub fn by_class(self, layout: Layout, weights: Vec<f64>) -> Vec<f64> {
        match self {
            Self::BlockDescent(_) | Self::HandOver(_) | Self::Newton => weights,
            Self::Vertices(_) => layout.by_class(&weights),
        }
    }
}

/// The start or end point of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct MarginPoint {
    /// The weights, stored class by class with the constant feature last, and the sums of the dual point.
    pub at: Start,
    /// β (examples × classes) if the method keeps it and the caller requested it; otherwise empty.
    pub beta: Vec<f64>,
}

/// A fitted model.
#[derive(Debug, Clone)]
pub struct MulticlassFit {
    /// The record of the run.
    pub trace: Trace,
    /// P(0), the objective at w = 0.
    pub null_objective: f64,
    /// The final point, from which a later run of the same method can start.
    pub end: MarginPoint,
    /// The weights of the returned model, in the same order as in `end`; None if they equal the weights of `end`.
    pub weights: Option<Vec<f64>>,
}

/// Minimises the problem, whose weights are in the order of [`MulticlassMethod::order`]. With `keep_dual`, the end
/// point includes β.
///
/// A `start` must be the end point of an earlier run of the same method on the same examples, loss and costs, with the
/// weights multiplied by the ratio of the old λ to the new λ. Otherwise the certificate is invalid.
///
/// # Errors
/// Errors of [`run`]; [`Error::InvalidArgument`] for a start that does not fit the problem or the method.
pub fn fit(
    problem: &mut MarginProblem<'_>,
    method: MulticlassMethod,
    target: Target,
    keep_dual: bool,
    start: Option<MarginPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<MulticlassFit> {
    if let Some(start) = &start {
        check_start(problem, method, start)?;
    }
    match Stages::of(method) {
        Ok(stages) => fit_in_stages(problem, stages, target, keep_dual, start, interrupt, observe),
        Err(method) => {
            fit_by_vertices(problem, method, target, keep_dual, start, interrupt, observe)
        }
    }
}

/// Runs a method that needs only vertices.
fn fit_by_vertices(
    problem: &mut MarginProblem<'_>,
    method: Method,
    target: Target,
    keep_dual: bool,
    start: Option<MarginPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<MulticlassFit> {
    let layout = problem.map().layout();
    let mut dual = MarginDual::new(problem);
    let start = start.map(|mut start| {
        start.at.weights = layout.arrange(&start.at.weights);
        dual.read(start, method)
    });
    let fit = minimize(&mut dual, method, target, start, interrupt, observe)?;
    let mut end = dual.write(fit.point, keep_dual);
    end.at.weights = layout.by_class(&end.at.weights);
    let weights = fit.model.map(|weights| layout.by_class(&weights));
    let (trace, null_objective) = (fit.trace, fit.null_objective);
    Ok(MulticlassFit { trace, null_objective, end, weights })
}

/// Checks that a start has as many weights and dual variables as the method needs.
fn check_start(
    problem: &MarginProblem<'_>,
    method: MulticlassMethod,
    start: &MarginPoint,
) -> Result<()> {
    let batch = matches!(method, MulticlassMethod::Vertices(Method::FrankWolfe(_)));
    let needs_beta = !batch || problem.shares().smoothing() > 0.0;
    let n_betas = if needs_beta { problem.n_examples() * problem.n_classes() } else { 0 };
    let Layout { n_classes, n_features, .. } = problem.map().layout();
    if start.at.weights.len() == n_classes * n_features && start.beta.len() == n_betas {
        return Ok(());
    }
    Err(Error::argument("warm_start", "the start belongs to another problem or solver"))
}

/// The stages of a fit that projects onto the polytope.
pub(in crate::multiclass) struct Stages {
    /// The seed of block descent if the fit begins with it; None if the fit begins with Newton's method.
    pub descent: Option<u64>,
    /// Whether the fit may finish with Newton's method.
    pub newton: bool,
}

impl Stages {
    /// The stages of a method that projects onto the polytope; any other method is returned as the error.
    pub fn of(method: MulticlassMethod) -> std::result::Result<Self, Method> {
        let (descent, newton) = match method {
            MulticlassMethod::BlockDescent(seed) => (Some(seed), false),
            MulticlassMethod::HandOver(seed) => (Some(seed), true),
            MulticlassMethod::Newton => (None, true),
            MulticlassMethod::Vertices(method) => return Err(method),
        };
        Ok(Self { descent, newton })
    }
}

/// Runs block descent, Newton's method, or both one after the other.
fn fit_in_stages(
    problem: &MarginProblem<'_>,
    Stages { descent, newton }: Stages,
    target: Target,
    keep_dual: bool,
    start: Option<MarginPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<MulticlassFit> {
    let null_objective = problem.null_objective();
    let stopping = target.stopping(null_objective);
    let null_objective = null_objective.upper();
    let blocks = MarginBlocks::new(problem);
    let betas = start.map(|start| start.beta);
    let mut solver = match descent {
        Some(seed) => {
            let path = descent_path(problem, seed, stopping, betas, interrupt)?;
            HandOver::new(&blocks, path, stopping, newton)
        }
        None => {
            let mut newton = Newton::new(&blocks, stopping, null_objective);
            if let Some(betas) = betas {
                newton.start_at(points_of(problem, betas), interrupt)?;
            }
            HandOver::begin_with_newton(&blocks, newton, stopping)
        }
    };
    let mut trace = run(&mut solver, stopping, interrupt, observe)?;
    let End { weights, betas: beta } = solver.into_end(keep_dual);
    let at = Start { weights, ..Start::default() };
    let weights = trace.take_other(at.weights.len());
    Ok(MulticlassFit { trace, null_objective, end: MarginPoint { at, beta }, weights })
}

/// Creates block descent from a dual point, or from 0 along a path of λ.
pub(super) fn descent_path<'p>(
    problem: &'p MarginProblem<'p>,
    seed: u64,
    stopping: Stopping,
    betas: Option<Vec<f64>>,
    interrupt: &Interrupt,
) -> Result<LambdaPath<'p>> {
    let (shrink, tolerance) = (problem.polytope().is_symmetric(), stopping.relative);
    let options = Options { seed, shrink, tolerance, ..Options::default() };
    let mut solver = block_descent(problem, options);
    match betas {
        Some(betas) => {
            solver.start_at(&betas, interrupt)?;
            Ok(LambdaPath::direct(solver))
        }
        None => LambdaPath::new(solver, problem, stopping),
    }
}

impl MarginDual<'_, '_> {
    /// Converts a start to the dual point in the form that the method keeps.
    fn read(&mut self, start: MarginPoint, method: Method) -> DualPoint {
        let m = self.problem.n_classes();
        let MarginPoint { at, beta } = start;
        match method {
            Method::FrankWolfe(_) => {
                self.start_at(&beta);
                DualPoint::Sums(at)
            }
            Method::BlockFrankWolfe(options) => {
                let point = |row: &[f64]| {
                    let entries = (0..).zip(row).filter(|(_, weight)| **weight != 0.0);
                    entries.map(|(class, weight)| (class, *weight)).collect()
                };
                // The point is treated as the only vertex of its active set.
                let blocks = beta.chunks_exact(m).map(|row| Block::at(point(row), &options));
                DualPoint::Blocks { blocks: blocks.collect(), weights: at.weights }
            }
            Method::AwayFrankWolfe { .. }
            | Method::ProjectedGradient
            | Method::Subgradient { .. } => DualPoint::Weights(at.weights),
        }
    }

    /// Converts a method's dual point to a point from which a later run may start.
    fn write(self, point: DualPoint, keep_dual: bool) -> MarginPoint {
        match point {
            DualPoint::Weights(weights) => {
                let at = Start { weights, ..Start::default() };
                MarginPoint { at, beta: Vec::new() }
            }
            DualPoint::Sums(at) => {
                MarginPoint { at, beta: if keep_dual { self.into_point() } else { Vec::new() } }
            }
            DualPoint::Blocks { weights, blocks } => {
                let m = self.problem.n_classes();
                let (linear, square) = self.terms(blocks.iter().map(|block| &block.point));
                let mut beta = vec![0.0; if keep_dual { blocks.len() * m } else { 0 }];
                for (row, block) in beta.chunks_exact_mut(m).zip(&blocks) {
                    block.point.iter().for_each(|&(class, weight)| row[class as usize] = weight);
                }
                let drift = Drift::default();
                MarginPoint { at: Start { weights, linear, square, drift }, beta }
            }
        }
    }
}
