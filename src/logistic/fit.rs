//! Fits logistic regression: selects a method by name, runs it and returns the model.

use std::ops::ControlFlow;

use super::certificate::intercept_curvature;
use super::hand_over::{HandOverOptions, LogisticHandOver};
use super::newton::{LogisticNewton, is_small, keeps_zeros_out};
use super::{
    DualDescent, DualDescentOptions, LogisticModel, LogisticProblem, RowSpread, is_sparse,
    suits_dual_descent,
};
use crate::data::Rows;
use crate::dual::rounding::Bounded;
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::memory::require;
use crate::names::check;
use crate::run::{Epoch, Trace, run};
use crate::solver::Target;

/// The solvers of logistic regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogisticMethod {
    /// [`Self::DualDescent`] for sparse rows, followed by Newton's method if its passes stall; [`Self::Newton`] for
    /// other rows.
    Auto(u64),
    /// Dual block descent with this seed, for sparse rows.
    DualDescent(u64),
    /// Newton's method.
    Newton,
}

impl LogisticMethod {
    /// Names of all solvers; "auto" is the default.
    pub const NAMES: &[&str] = &["auto", "newton", "dual-descent"];

    /// Returns the solver with this name.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) naming `solver`.
    pub fn parse(name: &str, seed: u64) -> Result<Self> {
        check("solver", name, Self::NAMES)?;
        Ok(match name {
            "newton" => Self::Newton,
            "dual-descent" => Self::DualDescent(seed),
            _ => Self::Auto(seed),
        })
    }

    /// Returns the method for a problem, after checking that it can solve the problem.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `solver`: for dual block descent on dense rows, or for numbers outside its
    /// range.
    pub fn resolve(self, problem: &LogisticProblem<'_>) -> Result<Self> {
        let suits = suits_dual_descent(problem);
        match self {
            Self::Auto(seed) if suits && is_sparse(problem) => Ok(Self::DualDescent(seed)),
            Self::Auto(_) => Ok(Self::Newton),
            Self::DualDescent(_) if !suits => {
                let rows = problem.rows();
                let dense = !rows.is_sparse();
                let why = if dense { "dense rows" } else { "such large values" };
                let message = format!("\"dual-descent\" does not support {why}; use \"newton\"");
                Err(Error::argument("solver", message))
            }
            other => Ok(other),
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto(_) => "auto",
            Self::DualDescent(_) => "dual-descent",
            Self::Newton => "newton",
        }
    }
}

/// Size of a fit's buffers in bytes: the weights, and a copy of all rows or the distributions.
fn n_bytes(problem: &LogisticProblem<'_>, newton: bool) -> u128 {
    let (n, d, m) = (problem.n_examples(), problem.n_features(), problem.n_outputs());
    let (rows, weights) = (n as u128, (d as u128 + 1) * m as u128);
    let n_stored = for_data!(problem.rows(), rows => rows.n_stored()) as u128;
    let own = match newton {
        true if keeps_zeros_out(problem) => {
            let squares = if is_small(problem) { 5 * 8 * weights * weights } else { 0 };
            16 * n_stored + rows * (m as u128 * 12 + 32) + squares
        }
        true => rows * ((d + m) as u128 * 4 + 16),
        false => rows * m as u128 * 8,
    };
    own + 30 * 8 * weights
}

/// Checks that the buffers of a fit fit into memory.
fn require_memory(problem: &LogisticProblem<'_>, method: LogisticMethod) -> Result<()> {
    let (n, d, m) = (problem.n_examples(), problem.n_features(), problem.n_outputs());
    let newton = method == LogisticMethod::Newton;
    let what = || {
        let part = if newton { "a copy of the rows" } else { "the distributions" };
        format!("{part} and the weights for n = {n} rows, m = {m} outputs and d = {d} features")
    };
    let remedy = if newton {
        "solver=\"dual-descent\" needs no copy of CSR rows; or use fewer rows, features or classes"
    } else {
        "use fewer rows, features or classes"
    };
    require(n_bytes(problem, newton), what, remedy)
}

/// Largest relative gap for which a fit makes a pass over the rows to find the curvature. On news20, at larger gaps,
/// the bound that uses the curvature certifies less than a tenth of the predictions, and the pass takes a quarter of
/// the time of a fit.
const TIGHT: f64 = 1e-5;

/// The model of a fit and the record of its run. Objectives are divided by Σ c_i.
#[derive(Debug)]
pub struct LogisticFit {
    /// The model with the smallest objective.
    pub model: LogisticModel,
    /// The method that was used.
    pub method: LogisticMethod,
    /// The record of the run.
    pub trace: Trace,
    /// The objective of W = 0.
    pub null_objective: f64,
    /// The curvature of the losses in the intercepts; None without an intercept.
    pub curvature: Option<InterceptCurvature>,
}

/// The curvature of the mean loss in the intercepts at the model of a fit, and the distances of the rows from a point.
/// They bound the distance of the intercepts from the optimum (`docs/mathematics/logistic.md`).
#[derive(Debug, Clone, PartialEq)]
pub struct InterceptCurvature {
    /// Σ c_i (diag p_i − p_i p_iᵀ) / Σ c_i over the outputs; empty for many outputs, and if it is not known.
    pub matrix: Vec<f64>,
    /// The point μ.
    pub centre: Vec<f64>,
    /// Σ c_i ‖x_i − μ‖² / Σ c_i.
    pub mean_square: f64,
    /// The largest ‖x_i − μ‖².
    pub largest_square: f64,
}

impl LogisticFit {
    fn new(model: LogisticModel, method: LogisticMethod, mut trace: Trace, null: Bounded) -> Self {
        let n_weights = model.weights.len();
        let model = match trace.take_other(n_weights + model.intercepts.len()) {
            Some(mut weights) => {
                let intercepts = weights.split_off(n_weights);
                LogisticModel { weights, intercepts }
            }
            None => model,
        };
        Self { model, method, trace, null_objective: null.upper(), curvature: None }
    }

    /// Adds the curvature: from Newton's method if it has just evaluated this model, and otherwise, if the gap is
    /// small, from a pass over the rows.
    fn with_curvature(
        mut self,
        problem: &LogisticProblem<'_>,
        newton: Option<&mut LogisticNewton<'_>>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if !problem.intercept() {
            return Ok(self);
        }
        let mut matrix = match newton {
            Some(newton) if *newton.best_model() == self.model => {
                newton.intercept_curvature(interrupt)?
            }
            _ if self.trace.certificate.is_some_and(|last| last.relative_gap() <= TIGHT) => {
                intercept_curvature(problem, &self.model, interrupt)?
            }
            _ => Vec::new(),
        };
        matrix.iter_mut().for_each(|sum| *sum /= problem.total());
        let RowSpread { centre, squares } = problem.spread().clone();
        let (mean_square, largest_square) = (problem.mean_square(), squares.largest);
        self.curvature = Some(InterceptCurvature { matrix, centre, mean_square, largest_square });
        Ok(self)
    }
}

/// Fits a model, starting at `start` or at W = 0.
///
/// # Errors
/// [`Interrupted`](Error::Interrupted), errors of [`LogisticMethod::resolve`] and of [`run`].
pub fn fit_logistic(
    problem: &LogisticProblem<'_>,
    method: LogisticMethod,
    target: Target,
    start: Option<LogisticModel>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<LogisticFit> {
    let null = null_objective(problem);
    let stopping = target.stopping(null);
    let hands_over = matches!(method, LogisticMethod::Auto(_));
    let method = method.resolve(problem)?;
    require_memory(problem, method)?;
    let (trace, model) = match method {
        LogisticMethod::DualDescent(seed) if hands_over => {
            let options = HandOverOptions { seed, stopping, n_bytes: n_bytes(problem, true) };
            let mut both = LogisticHandOver::new(problem, options, start.as_ref(), interrupt)?;
            let trace = run(&mut both, stopping, interrupt, observe)?;
            let fit = LogisticFit::new(both.into_model(), method, trace, null);
            return fit.with_curvature(problem, None, interrupt);
        }
        LogisticMethod::DualDescent(seed) => {
            let options = DualDescentOptions { seed, tolerance: stopping.relative };
            let mut descent = DualDescent::new(problem, options)?;
            if let Some(start) = &start {
                descent.start_at(start, interrupt)?;
            }
            let trace = run(&mut descent, stopping, interrupt, observe)?;
            (trace, descent.model())
        }
        LogisticMethod::Newton | LogisticMethod::Auto(_) => {
            let start = start.unwrap_or_else(|| problem.zero_model());
            let mut newton = LogisticNewton::new(problem, &start, stopping);
            let trace = run(&mut newton, stopping, interrupt, observe)?;
            let fit = LogisticFit::new(newton.best_model().clone(), method, trace, null);
            return fit.with_curvature(problem, Some(&mut newton), interrupt);
        }
    };
    LogisticFit::new(model, method, trace, null).with_curvature(problem, None, interrupt)
}

/// Fits a model for each factor in turn, with the c_i of [`LogisticProblem::with_factor`]; each fit
/// starts from the last model. `ended` receives each fit; if it returns a break, no further model is fitted.
///
/// # Errors
/// As for [`fit_logistic`] and [`LogisticProblem::with_factor`].
pub fn fit_logistic_path(
    problem: &LogisticProblem<'_>,
    (method, target): (LogisticMethod, Target),
    factors: &[f64],
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
    ended: &mut dyn FnMut(LogisticFit) -> ControlFlow<()>,
) -> Result<()> {
    let (mut newton, mut last): (Option<LogisticNewton<'_>>, Option<LogisticModel>) = (None, None);
    for factor in factors {
        let problem = problem.with_factor(*factor)?;
        let resolved = method.resolve(&problem)?;
        let fit = if resolved == LogisticMethod::Newton {
            let null = null_objective(&problem);
            let stopping = target.stopping(null);
            match &mut newton {
                Some(newton) => newton.restart(*factor)?,
                None => require_memory(&problem, resolved)?,
            }
            let start = || LogisticNewton::new(&problem, &problem.zero_model(), stopping);
            let newton = newton.get_or_insert_with(start);
            let trace = run(newton, stopping, interrupt, observe)?;
            let fit = LogisticFit::new(newton.best_model().clone(), resolved, trace, null);
            fit.with_curvature(&problem, Some(newton), interrupt)?
        } else {
            let fit = fit_logistic(&problem, method, target, last.take(), interrupt, observe)?;
            last = Some(fit.model.clone());
            fit
        };
        if ended(fit).is_break() {
            break;
        }
    }
    Ok(())
}

/// The objective of W = 0, with a bound on its error.
fn null_objective(problem: &LogisticProblem<'_>) -> Bounded {
    let value = (problem.n_classes() as f64).ln();
    Bounded::new(value, 4.0 * f64::EPSILON * value)
}
