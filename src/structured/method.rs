//! Fits structured models: selects a method by name, runs it and returns the result.

use std::ops::ControlFlow;

use super::{Extragradient, Marginals, Projection, StructuredDual};
use crate::dual::{BlockDual, Shares};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory::require;
use crate::names::{check, names};
use crate::run::{Epoch, run};
use crate::solver::{BlockOptions, Choices, DualPoint, Fit, Method, Target, minimize};

/// The solvers for structured problems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StructuredMethod {
    /// A method that needs only vertices, and so works for every dual.
    Vertices(Method),
    /// [`Extragradient`], which needs the projections of a built-in model. `None` selects a
    /// default.
    Extragradient {
        /// The distance that projections minimise.
        projection: Option<Projection>,
        /// Bound on ‖w‖; by default a bound that holds at the regularised optimum.
        radius: Option<f64>,
    },
}

/// Options of [`Extragradient`], and options common to all solvers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StructuredChoices<'a> {
    /// The options common to all solvers.
    pub common: Choices<'a>,
    /// Name of the projection.
    pub projection: Option<&'a str>,
    /// Bound on ‖w‖.
    pub radius: Option<f64>,
}

impl StructuredMethod {
    const AUTO: &str = "auto";
    const EXTRAGRADIENT: &str = "extragradient";

    /// Names of the methods; "auto" is block Frank-Wolfe, finished by Newton's method if it stalls.
    pub fn names() -> Vec<&'static str> {
        [vec![Self::AUTO], names(Method::REGISTRY), vec![Self::EXTRAGRADIENT]].concat()
    }

    /// Returns the method with the chosen name.
    ///
    /// # Errors
    /// As for [`Method::parse`], for unknown projections and for a radius that is not positive.
    pub fn parse(choices: &StructuredChoices<'_>) -> Result<Self> {
        let StructuredChoices { common, projection, radius } = *choices;
        if common.solver == Self::EXTRAGRADIENT {
            common.refuse_all_but(&[])?;
            if radius.is_some_and(|radius| !(radius > 0.0 && radius.is_finite())) {
                return Err(Error::argument("radius", "must be positive and finite"));
            }
            let projection = projection.map(Projection::parse).transpose()?;
            return Ok(Self::Extragradient { projection, radius });
        }
        check("solver", common.solver, &Self::names())?;
        let unused = [("projection", projection.is_some()), ("radius", radius.is_some())];
        if let Some((name, _)) = unused.into_iter().find(|(_, given)| *given) {
            return Err(common.unused(name));
        }
        let newton = common.solver == Self::AUTO;
        let parse = if newton { Method::block_frank_wolfe } else { Method::parse };
        Ok(Self::Vertices(match parse(&common)? {
            // A certificate decodes all examples, so the first one waits until the gaps of the
            // steps are small.
            Method::BlockFrankWolfe(options) => {
                Method::BlockFrankWolfe(BlockOptions { certify_below: 0.0, newton, ..options })
            }
            other => other,
        }))
    }

    /// Returns the method if it needs only vertices.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for [`Extragradient`].
    pub fn vertices(self) -> Result<Method> {
        match self {
            Self::Vertices(method) => Ok(method),
            Self::Extragradient { .. } => {
                let message =
                    "\"extragradient\" requires a built-in model and does not support paths";
                Err(Error::argument("solver", message))
            }
        }
    }

    /// Returns the options of block Frank-Wolfe, the only method with a [path](crate::solver::path).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other methods.
    pub fn path_options(self) -> Result<BlockOptions> {
        match self.vertices()? {
            Method::BlockFrankWolfe(options) if !options.averaging => Ok(options),
            _ => {
                let message = "a path needs \"block-frank-wolfe\" without averaging";
                Err(Error::argument("solver", message))
            }
        }
    }
}

/// Returns an error if the weight vectors that a method keeps do not fit into memory: the vectors
/// of the solver, of a certificate, of the best model so far and of the result, the averages, and
/// one vector for each group of examples.
fn require_memory(n_weights: usize, method: StructuredMethod) -> Result<()> {
    let (copies, frugal) = match method {
        StructuredMethod::Vertices(Method::BlockFrankWolfe(options)) => {
            (7 + 4 * usize::from(options.averaging), false)
        }
        StructuredMethod::Vertices(Method::Subgradient { .. }) => (6, false),
        StructuredMethod::Vertices(Method::AwayFrankWolfe { .. }) => (8, true),
        StructuredMethod::Vertices(Method::FrankWolfe(_) | Method::ProjectedGradient) => (25, true),
        StructuredMethod::Extragradient { .. } => (29, true),
    };
    let what = || format!("{copies} copies of d = {n_weights} weights");
    let remedy = if frugal {
        "solver=\"block-frank-wolfe\" stores fewer copies; or use fewer features or classes"
    } else {
        "use fewer features or classes"
    };
    require(8 * copies as u128 * n_weights as u128, what, remedy)
}

/// Minimises the objective of a built-in model. `start` has the same meaning as for [`minimize`].
///
/// # Errors
/// As for [`minimize`] and [`Extragradient::new`].
pub fn fit(
    model: &dyn Marginals,
    shares: Shares,
    method: StructuredMethod,
    target: Target,
    start: Option<DualPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Fit> {
    require_memory(model.n_weights(), method)?;
    let mut dual = StructuredDual::new(model, shares)?.stopped_by(interrupt);
    let (projection, radius) = match method {
        StructuredMethod::Vertices(method) => {
            return minimize(&mut dual, method, target, start, interrupt, observe);
        }
        StructuredMethod::Extragradient { projection, radius } => (projection, radius),
    };
    if !dual.shares().cone().is_everything() {
        return Err(Error::argument("signs", "\"extragradient\" does not support them"));
    }
    if start.is_some() {
        return Err(Error::argument("warm_start", "this solver does not support it"));
    }
    let null_objective = dual.null_objective(interrupt)?;
    let stopping = target.stopping(null_objective);
    let null_objective = null_objective.upper();
    // ‖w‖² ≤ P(0)/λ at the regularised optimum.
    let largest = (null_objective / dual.shares().lambda()).sqrt();
    let radius = radius.unwrap_or(if largest > 0.0 { largest } else { 1.0 });
    let projection = projection.unwrap_or(model.default_projection());
    let mut solver = Extragradient::new(model, dual.shares().clone(), projection, radius)?;
    let mut trace = run(&mut solver, stopping, interrupt, observe)?;
    let point = DualPoint::Weights(solver.into_weights());
    let model = trace.take_other(point.weights().len());
    Ok(Fit { trace, null_objective, point, model, oracle_calls: None })
}
