//! L-BFGS (Liu and Nocedal 1989) with the diagonal of the Hessian as the initial approximation, because the curvature
//! for frequent features is thousands of times that for rare ones.

use std::ops::ControlFlow;

use super::dual_point::DualMixture;
use super::penalty::ElasticNet;
use super::stochastic::first_weights;
use super::{Evaluation, Field, Groups};
use crate::dual::Shares;
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::vectors::{long_axpy, long_dot};
use crate::memory::require;
use crate::run::{Certificate, Epoch, Progress, Solver, Stopping, Trace, run};
use crate::solver::{Memory, PathSettings, PathSolver, Piece, Target, path, shorter_step};
use crate::structured::model::{Chain, Model};
use crate::structured::single_precision::{allows_single, round_to_single};

/// Maximum number of stored pairs of a step and the change of the gradient along it.
const MAX_PAIRS: usize = 12;

/// Maximum number of values in all stored steps together; three steps are always allowed.
const MEMORY_SIZE: usize = 1 << 24;

/// A fitted conditional random field.
pub struct ConditionalFit {
    /// The record of the run.
    pub trace: Trace,
    /// The objective at zero weights, P(0).
    pub null_objective: f64,
    /// The weights of the model.
    pub weights: Vec<f64>,
}

/// Minimises a penalty plus Σ p_i Φ_i(w), the logistic loss of labelled sequences, starting at `start` or 0. There is
/// no certificate if some labels are unknown.
///
/// # Errors
/// Errors of [`run`]; [`Error::InvalidArgument`] for sequences without labels and for a start with a wrong length;
/// [`Error::Memory`].
pub fn fit_conditional(
    (chain, shares): (&Chain, Shares),
    penalty: ElasticNet,
    target: Target,
    start: Option<Vec<f64>>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<ConditionalFit> {
    let n_weights = chain.n_weights();
    let field = field(chain, shares, penalty)?;
    let weights = start.unwrap_or_else(|| vec![0.0; n_weights]);
    if weights.len() != n_weights {
        return Err(Error::argument("warm_start", "the weights belong to another problem"));
    }
    let null_objective = field.null_objective(interrupt)?;
    let mut solver = Lbfgs::new(field, weights, null_objective.upper());
    solver.is_single = allows_single(target.tol);
    let mut trace = run(&mut solver, target.stopping(null_objective), interrupt, observe)?;
    let null_objective = null_objective.upper();
    let weights = trace.take_other(n_weights).unwrap_or(solver.weights);
    Ok(ConditionalFit { trace, null_objective, weights })
}

/// Returns the objective at the given weights, rounded up.
///
/// # Errors
/// As for [`fit_conditional`].
pub fn conditional_objective(
    (chain, shares): (&Chain, Shares),
    penalty: ElasticNet,
    weights: &[f64],
    interrupt: &Interrupt,
) -> Result<f64> {
    let field = field(chain, shares, penalty)?;
    if weights.len() != chain.n_weights() {
        return Err(Error::argument("weights", "must have one entry for each weight"));
    }
    Ok(field.evaluate(weights, false, &mut Groups::default(), interrupt)?.primal)
}

/// Computes certified models for all λ, from the λ of `shares` down to `until`.
///
/// # Errors
/// Errors of [`path`] and of [`fit_conditional`].
pub fn conditional_path(
    chain: &Chain,
    shares: Shares,
    until: f64,
    target: Target,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Vec<Piece>> {
    let from = shares.lambda();
    let field = field(chain, shares, ElasticNet::new(0.0)?)?;
    if field.is_partial() {
        return Err(Error::argument("y", "a path needs all labels"));
    }
    let null_objective = field.null_objective(interrupt)?;
    let stopping = target.stopping(null_objective);
    let mut solver = Lbfgs::new(field, vec![0.0; chain.n_weights()], null_objective.upper());
    path(&mut solver, PathSettings { from, until, stopping }, interrupt, observe)
}

/// Creates the problem, after checking that solving it fits into memory.
fn field(chain: &Chain, shares: Shares, penalty: ElasticNet) -> Result<Field<'_>> {
    let n_weights = chain.n_weights();
    let what = || format!("d = {n_weights} weights");
    let n_vectors = 2 * n_remembered(n_weights) + 13 + 2 * rayon::current_num_threads();
    require(8 * n_vectors as u128 * n_weights as u128, what, "use fewer features")?;
    Field::new(chain, shares, penalty)
}

/// Number of pairs of a step and a change of the gradient that are stored.
fn n_remembered(n_weights: usize) -> usize {
    (MEMORY_SIZE / n_weights.max(1)).clamp(3, MAX_PAIRS)
}

struct Lbfgs<'a> {
    field: Field<'a>,
    /// The objective at zero weights, P(0).
    null_objective: f64,
    weights: Vec<f64>,
    memory: Memory,
    /// The objective P at the weights, rounded up.
    primal: f64,
    gradient: Vec<f64>,
    /// The diagonal of the Hessian at the current weights or at earlier ones.
    diagonal: Vec<f64>,
    /// The best mixture of all dual points so far.
    best: DualMixture,
    epochs: usize,
    groups: Groups,
    /// Whether the first weights have been evaluated.
    is_begun: bool,
    /// Whether weights are rounded to single precision.
    is_single: bool,
}

impl<'a> Lbfgs<'a> {
    fn new(field: Field<'a>, weights: Vec<f64>, null_objective: f64) -> Self {
        Self {
            field,
            null_objective,
            weights,
            memory: Memory::default(),
            primal: null_objective,
            gradient: Vec::new(),
            diagonal: Vec::new(),
            best: DualMixture::default(),
            epochs: 0,
            groups: Groups::default(),
            is_begun: false,
            is_single: false,
        }
    }

    /// Evaluates the first weights. If they are 0, makes stochastic steps first, which achieve much of the progress at
    /// a fraction of the cost.
    fn begin(&mut self, interrupt: &Interrupt) -> Result<()> {
        if self.is_begun {
            return Ok(());
        }
        let mut first = None;
        if self.weights.iter().all(|weight| *weight == 0.0)
            && let Some(weights) = first_weights(&self.field, interrupt)?
        {
            let there = self.evaluate(&weights, true, interrupt)?;
            first = (there.primal < self.null_objective).then_some((weights, there));
        }
        let (weights, there) = match first {
            Some(first) => first,
            None => {
                let weights = std::mem::take(&mut self.weights);
                let there = self.evaluate(&weights, true, interrupt)?;
                (weights, there)
            }
        };
        self.is_begun = true;
        self.best.clone_from(&there.dual);
        self.set(weights, there);
        Ok(())
    }

    fn evaluate(
        &mut self,
        weights: &[f64],
        curved: bool,
        interrupt: &Interrupt,
    ) -> Result<Evaluation> {
        self.field.evaluate(weights, curved, &mut self.groups, interrupt)
    }

    fn set(&mut self, weights: Vec<f64>, there: Evaluation) {
        self.improve_bound(&there.dual);
        if let Some(diagonal) = there.diagonal {
            self.diagonal = diagonal;
        }
        (self.weights, self.primal, self.gradient) = (weights, there.primal, there.gradient);
    }

    fn certificate(&self) -> Certificate {
        let (primal, lambda) = (self.primal, self.field.shares.lambda());
        Certificate { primal, dual: self.best.bound(lambda, self.field.penalty) }
    }

    /// Mixes the best dual point with another one, unless some labels are unknown.
    fn improve_bound(&mut self, dual: &DualMixture) {
        if !self.field.is_partial() {
            self.best.improve(dual, self.field.shares.lambda(), self.field.penalty);
        }
    }

    /// The pseudo-gradient of the objective.
    fn slopes(&self) -> Vec<f64> {
        let Field { penalty, shares, .. } = &self.field;
        penalty.slopes(shares.lambda(), &self.weights, &self.gradient)
    }

    /// Reports an epoch; `ends` marks the last one.
    fn report(&self, ends: bool) -> Progress {
        match (self.field.is_partial(), ends) {
            (true, false) => Progress::Objective(self.primal),
            (true, true) => Progress::Settled(self.primal),
            (false, false) => Progress::Epoch(self.certificate()),
            (false, true) => Progress::Exhausted(self.certificate()),
        }
    }

    /// Returns the L-BFGS direction −H g, where g is the pseudo-gradient and H approximates the inverse Hessian.
    fn direction(&self, slopes: &[f64]) -> Vec<f64> {
        let downhill = slopes.iter().map(|slope| -slope).collect();
        let divide = |product: f64, curvature: f64| 1.0 / curvature * product;
        let mut direction = self.memory.multiply_inverse(downhill, divide, |mut v| {
            let scale = self.memory.pairs().back().map_or(1.0, |pair| {
                let squares = pair.change.iter().zip(&self.diagonal).map(|(y, d)| y * y / d);
                1.0 / divide(squares.sum(), pair.curvature)
            });
            v.iter_mut().zip(&self.diagonal).for_each(|(v, d)| *v *= scale / d);
            v
        });
        self.field.penalty.align(&mut direction, slopes);
        direction
    }

    /// Searches along a direction for weights with sufficient decrease. Returns None if rounding hides the decrease.
    fn search(
        &mut self,
        direction: &[f64],
        slopes: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Option<(Vec<f64>, Evaluation)>> {
        let (slope, value) = (long_dot(direction, slopes), self.primal);
        let penalty = self.field.penalty;
        if slope >= 0.0 || slope.is_nan() {
            return Ok(None);
        }
        let curved = (self.epochs + 1).is_power_of_two();
        let mut step = 1.0;
        while step > 1e-8 {
            let mut weights = self.weights.clone();
            long_axpy(&mut weights, step, direction);
            penalty.stay_in_orthant(&mut weights, &self.weights, slopes);
            if self.is_single {
                round_to_single(&mut weights);
            }
            let next = self.evaluate(&weights, curved, interrupt)?;
            let slope = if penalty.has_l1() {
                (long_dot(&weights, slopes) - long_dot(&self.weights, slopes)) / step
            } else {
                slope
            };
            match shorter_step(step, slope, value, next.primal) {
                None => return Ok(Some((weights, next))),
                Some(shorter) => step = shorter,
            }
        }
        Ok(None)
    }

    fn accept(&mut self, weights: Vec<f64>, next: Evaluation) {
        let difference =
            |new: &[f64], old: &[f64]| new.iter().zip(old).map(|(n, o)| n - o).collect();
        let s: Vec<f64> = difference(&weights, &self.weights);
        let y: Vec<f64> = difference(&next.gradient, &self.gradient);
        self.memory.push(s, y, n_remembered(weights.len()));
        self.set(weights, next);
    }
}

impl Solver for Lbfgs<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.begin(interrupt)?;
        loop {
            let slopes = self.slopes();
            let direction = self.direction(&slopes);
            if let Some((weights, next)) = self.search(&direction, &slopes, interrupt)? {
                self.accept(weights, next);
                break;
            }
            // The search failed although no steps are stored, so a restart would not help.
            if self.memory.pairs().is_empty() {
                return Ok(self.report(true));
            }
            self.memory.clear();
        }
        self.epochs += 1;
        Ok(self.report(false))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        if self.field.is_partial() {
            return Err(Error::argument("max_iter", "must be at least 1 if labels are unknown"));
        }
        self.begin(interrupt)?;
        Ok(self.certificate())
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.weights.clone()])
    }
}

impl PathSolver for Lbfgs<'_> {
    fn solve(
        &mut self,
        lambda: f64,
        target: Stopping,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
    ) -> Result<(Certificate, usize)> {
        let before = self.field.shares.lambda();
        if lambda != before {
            let longer = before / lambda;
            self.weights.iter_mut().for_each(|weight| *weight *= longer);
            self.field.shares.set_lambda(lambda)?;
            self.best.stretch(longer);
            // The contribution of the L2 penalty to the stored gradient changes is known exactly.
            self.memory.add_square(lambda - before);
            let weights = std::mem::take(&mut self.weights);
            let there = self.evaluate(&weights, true, interrupt)?;
            self.set(weights, there);
        }
        let trace = run(self, target, interrupt, observe)?;
        Ok((self.certificate(), trace.epochs.len()))
    }

    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let lambda = self.field.shares.lambda();
        let mut field = self.field.clone();
        field.shares.set_lambda(lambda / factor)?;
        let scaled: Vec<f64> = self.weights.iter().map(|weight| weight * factor).collect();
        let there = field.evaluate(&scaled, false, &mut self.groups, interrupt)?;
        // The factor covers the rounding error of λ/`factor`.
        let primal = there.primal * (1.0 + 4.0 * f64::EPSILON);
        Ok(Certificate { primal, dual: self.best.value_at(lambda, factor) })
    }

    fn shares(&self) -> &Shares {
        &self.field.shares
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
