//! Regularisation paths of linear models: by block descent that hands over to Newton's method if it is slow, by
//! Newton's method alone, or by block Frank-Wolfe.

use std::ops::ControlFlow;

use super::MulticlassMethod;
use super::hand_over::{End, HandOver};
use super::margin_blocks::{MarginBlocks, points_of};
use super::method::{Stages, descent_path};
use crate::dual::{DualValue, Shares, dual_value};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::multiclass::{MarginDual, MarginProblem};
use crate::run::{Certificate, Epoch, Stopping, run};
use crate::solver::{
    BestPoints, BlockPath, Newton, PathSettings, PathSolver, Piece, objective_at, path,
};

/// Computes models for an interval of λ (see [`path`]). The weights of the pieces are in the order of the problem.
///
/// # Errors
/// Errors of [`path`]; [`InvalidArgument`](crate::error::Error::InvalidArgument) for a method that needs only vertices,
/// except block Frank-Wolfe.
pub fn regularization_path(
    problem: &mut MarginProblem<'_>,
    method: MulticlassMethod,
    settings: PathSettings,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Vec<Piece>> {
    let mut dual = MarginDual::new(problem);
    match Stages::of(method) {
        Ok(stages) => {
            let mut solver = StagedPath { dual, stages, last: None };
            path(&mut solver, settings, interrupt, observe)
        }
        Err(_) => {
            let mut solver = BlockPath::new(&mut dual, method.path_options()?)?;
            path(&mut solver, settings, interrupt, observe)
        }
    }
}

/// Regularisation paths by [`HandOver`]. After a hand-over, later pieces begin with Newton's method, because smaller λ
/// are harder.
struct StagedPath<'p, 'a> {
    dual: MarginDual<'p, 'a>,
    stages: Stages,
    last: Option<Last>,
}

/// The solution at the last λ.
struct Last {
    /// The weights, class by class.
    by_class: Vec<f64>,
    /// The weights, in the order of the problem.
    weights: Vec<f64>,
    /// β (examples × classes).
    betas: Vec<f64>,
    value: DualValue,
}

impl PathSolver for StagedPath<'_, '_> {
    fn solve(
        &mut self,
        lambda: f64,
        target: Stopping,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
    ) -> Result<(Certificate, usize)> {
        self.dual.problem.shares_mut().set_lambda(lambda)?;
        let problem = &*self.dual.problem;
        let blocks = MarginBlocks::new(problem);
        let last = self.last.take();
        let mut solver = match self.stages.descent {
            Some(seed) => {
                let betas = last.map(|last| last.betas);
                let descent = descent_path(problem, seed, target, betas, interrupt)?;
                HandOver::new(&blocks, descent, target, self.stages.newton)
            }
            None => HandOver::begin_with_newton(&blocks, newton(&blocks, target, last), target),
        };
        let mut trace = run(&mut solver, target, interrupt, observe)?;
        let End { weights, betas } = solver.into_end(true);
        if trace.n_first < trace.epochs.len() {
            self.stages.descent = None;
        }
        let by_class = trace.take_other(weights.len()).unwrap_or(weights);
        let weights = problem.map().layout().arrange(&by_class);
        let value = self.value(&betas, interrupt)?;
        self.last = Some(Last { by_class, weights, betas, value });
        Ok((self.certificate_at(1.0, interrupt)?, trace.epochs.len()))
    }

    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let lambda = self.dual.problem.shares().lambda();
        let scaled: Vec<f64> = self.weights().iter().map(|weight| weight * factor).collect();
        let loss = self.dual.problem.mean_loss(&scaled, interrupt)?;
        let primal = objective_at(factor, lambda, &scaled, loss);
        let dual = self.last.as_ref().map_or(f64::NEG_INFINITY, |last| last.value.bound_at(factor));
        Ok(Certificate { primal, dual })
    }

    fn shares(&self) -> &Shares {
        self.dual.problem.shares()
    }

    fn weights(&self) -> &[f64] {
        self.last.as_ref().map_or(&[], |last| &last.weights)
    }
}

impl StagedPath<'_, '_> {
    /// The dual value at β (examples × classes).
    fn value(&mut self, betas: &[f64], interrupt: &Interrupt) -> Result<DualValue> {
        let nonzeros = |beta: &[f64]| -> Sparse {
            (0..)
                .zip(beta)
                .filter(|(_, value)| **value != 0.0)
                .map(|(j, value)| (j, *value))
                .collect()
        };
        let rows = betas.chunks_exact(self.dual.problem.n_classes());
        let points: Vec<Sparse> = rows.map(nonzeros).collect();
        dual_value(&mut self.dual, &|block| points[block].as_slice(), &|_| 0.0, interrupt)
    }
}

/// Newton's method, continued from the last solution if there is one.
fn newton<'b>(
    blocks: &'b MarginBlocks<'b>,
    stopping: Stopping,
    last: Option<Last>,
) -> Newton<'b, MarginBlocks<'b>> {
    let problem = blocks.problem;
    let Some(last) = last else {
        return Newton::new(blocks, stopping, problem.null_objective().upper());
    };
    // The last certificate does not hold for this λ.
    let certificate = Certificate { primal: f64::INFINITY, dual: 0.0 };
    let points = points_of(problem, last.betas);
    let start = BestPoints { certificate, weights: last.by_class, points };
    Newton::resume(blocks, stopping, problem.null_objective().upper(), start)
}
