//! Fits a model of joint features with a given method.

use std::ops::ControlFlow;

use super::JointDescent;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::multiclass::{MarginDual, MarginProblem, MulticlassMethod, ScoreMap};
use crate::run::{Epoch, Trace, run};
use crate::solver::{Choices, Target, minimize};

/// A fitted model of joint features.
#[derive(Debug, Clone)]
pub struct JointFit {
    /// The record of the run.
    pub trace: Trace,
    /// P(0), the objective at w = 0.
    pub null_objective: f64,
    /// The weights, in the order of the map.
    pub weights: Vec<f64>,
}

/// The solver named by the choices; "auto" is block descent with a hand-over to Newton's method.
///
/// # Errors
/// As for [`MulticlassMethod::parse`].
pub fn joint_method(choices: &Choices<'_>) -> Result<MulticlassMethod> {
    Ok(match MulticlassMethod::parse(choices)? {
        MulticlassMethod::BlockDescent(seed) if choices.solver == "auto" => {
            MulticlassMethod::HandOver(seed)
        }
        method => method,
    })
}

/// Minimises the problem; block descent is [`JointDescent`].
///
/// # Errors
/// Errors of [`run`] and [`minimize`]; [`Error::InvalidArgument`] for Newton's method.
pub fn fit_joint<M: ScoreMap>(
    problem: &mut MarginProblem<'_, M>,
    method: MulticlassMethod,
    target: Target,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<JointFit> {
    let mut dual = MarginDual::new(problem);
    match method {
        MulticlassMethod::BlockDescent(seed) | MulticlassMethod::HandOver(seed) => {
            let null_objective = dual.problem.null_objective();
            let stopping = target.stopping(null_objective);
            let null_objective = null_objective.upper();
            let mut solver = JointDescent::new(&mut dual, seed);
            if matches!(method, MulticlassMethod::HandOver(_)) {
                solver = solver.stopping_at(stopping);
            }
            let mut trace = run(&mut solver, stopping, interrupt, observe)?;
            let last = solver.into_weights();
            let weights = trace.take_other(last.len()).unwrap_or(last);
            Ok(JointFit { trace, null_objective, weights })
        }
        MulticlassMethod::Newton => Err(Error::argument(
            "solver",
            "\"newton\" cannot fit class features; use \"auto\" or \"block-descent\"",
        )),
        MulticlassMethod::Vertices(method) => {
            let fit = minimize(&mut dual, method, target, None, interrupt, observe)?;
            let weights = fit.weights().to_vec();
            Ok(JointFit { trace: fit.trace, null_objective: fit.null_objective, weights })
        }
    }
}
