//! L-BFGS (Liu and Nocedal 1989) with the diagonal of the Hessian as the initial approximation, because the curvature
//! for frequent features is thousands of times the curvature for rare features.

use std::ops::ControlFlow;

use super::Field;
use super::columns::FeatureColumns;
use super::dual_point::{DualMixture, ModelDual};
use super::pass::{FieldPass, PassGroups};
use super::penalty::ElasticNet;
use super::stochastic::first_weights;
use crate::data::Real;
use crate::dual::Shares;
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::vectors::{long_dot, long_update};
use crate::memory::require;
use crate::run::{Certificate, Epoch, Progress, Solver, Stopping, Trace, run};
use crate::solver::{Memory, PathSettings, PathSolver, Piece, Target, path, shorter_step};
use crate::structured::model::{Chain, Model};
use crate::structured::single_precision::allows_single;

/// Maximum number of stored pairs of a step and the change of the gradient along it.
const MAX_PAIRS: usize = 12;

/// Maximum number of values in all stored steps together; three steps are always allowed.
const MEMORY_SIZE: usize = 1 << 24;

/// Upper limit on the absolute values of features, on λ and on 1/λ for fits in single precision. Curvatures are sums
/// of squares of features and must stay below 1e38, the range of single precision.
const SINGLE_RANGE: f64 = 1e15;

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
    let is_single = allows_single(target.tol) && has_single_range(chain, shares.lambda());
    let size = if is_single { size_of::<f32>() } else { size_of::<f64>() };
    let field = field((chain, shares), penalty, size)?;
    let weights = start.unwrap_or_else(|| vec![0.0; n_weights]);
    if weights.len() != n_weights {
        return Err(Error::argument("warm_start", "the weights belong to another problem"));
    }
    if is_single {
        fit_in::<f32>(field, weights, target, interrupt, observe)
    } else {
        fit_in::<f64>(field, weights, target, interrupt, observe)
    }
}

/// Fits with vectors in precision T.
fn fit_in<T: Real>(
    field: Field<'_>,
    start: Vec<f64>,
    target: Target,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<ConditionalFit> {
    let null_objective = field.null_objective(interrupt)?;
    let mut solver = Lbfgs::<T>::new(field, converted(start), null_objective.upper());
    let mut trace = run(&mut solver, target.stopping(null_objective), interrupt, observe)?;
    let null_objective = null_objective.upper();
    let last = solver.weights;
    let weights = trace.take_other(last.len()).unwrap_or_else(|| converted(last));
    Ok(ConditionalFit { trace, null_objective, weights })
}

/// Converts weights to another precision.
fn converted<T: Real, U: Real>(weights: Vec<T>) -> Vec<U> {
    weights.into_iter().map(|weight| U::narrow(weight.widen())).collect()
}

/// Returns the objective at the given weights, rounded up.
///
/// # Errors
/// As for [`fit_conditional`].
pub fn conditional_objective(
    problem: (&Chain, Shares),
    penalty: ElasticNet,
    weights: &[f64],
    interrupt: &Interrupt,
) -> Result<f64> {
    let n_weights = problem.0.n_weights();
    let field = field(problem, penalty, size_of::<f64>())?;
    if weights.len() != n_weights {
        return Err(Error::argument("weights", "must have one entry for each weight"));
    }
    Ok(field.pass(weights, false, &mut PassGroups::default(), interrupt)?.primal)
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
    let field = field((chain, shares), ElasticNet::new(0.0)?, size_of::<f64>())?;
    if field.is_partial() {
        return Err(Error::argument("y", "a path needs all labels"));
    }
    let null_objective = field.null_objective(interrupt)?;
    let stopping = target.stopping(null_objective);
    let mut solver = Lbfgs::<f64>::new(field, vec![0.0; chain.n_weights()], null_objective.upper());
    path(&mut solver, PathSettings { from, until, stopping }, interrupt, observe)
}

/// Creates the problem, after checking that its solver fits into memory with vectors of `size` bytes per entry.
fn field((chain, shares): (&Chain, Shares), penalty: ElasticNet, size: usize) -> Result<Field<'_>> {
    let n_weights = chain.n_weights();
    let what = || format!("d = {n_weights} weights");
    let n_vectors = 2 * n_remembered(n_weights) + 5;
    let (n_threads, of_rows) = if FeatureColumns::suit(chain) {
        (0, FeatureColumns::bytes(chain))
    } else {
        (rayon::current_num_threads(), 0)
    };
    let of_weights = (size * n_vectors + 8 * (3 + 2 * n_threads)) as u128 * n_weights as u128;
    require(of_weights + of_rows, what, "use fewer features")?;
    Field::new(chain, shares, penalty)
}

/// Whether weights, slopes and curvatures are in the range of single precision.
fn has_single_range(chain: &Chain, lambda: f64) -> bool {
    let rows = [Some(chain.emissions().rows()), chain.edge_rows()];
    let largest = rows.into_iter().flatten().map(|rows| rows.largest().0).fold(0.0, f64::max);
    largest < SINGLE_RANGE && lambda < SINGLE_RANGE && 1.0 / lambda < SINGLE_RANGE
}

/// Number of stored pairs of a step and a change of the gradient.
fn n_remembered(n_weights: usize) -> usize {
    (MEMORY_SIZE / n_weights.max(1)).clamp(3, MAX_PAIRS)
}

struct Lbfgs<'a, T> {
    field: Field<'a>,
    /// The objective at zero weights, P(0).
    null_objective: f64,
    weights: Vec<T>,
    memory: Memory<T>,
    /// The objective P at the weights, rounded up.
    primal: f64,
    gradient: Vec<T>,
    /// The diagonal of the Hessian at the current weights or at earlier weights.
    diagonal: Vec<T>,
    /// The best mixture of all dual points so far, unless some labels are unknown.
    best: Option<DualMixture<T>>,
    epochs: usize,
    groups: PassGroups,
    /// Whether the first weights have been evaluated.
    is_begun: bool,
}

impl<'a, T: Real> Lbfgs<'a, T> {
    fn new(field: Field<'a>, weights: Vec<T>, null_objective: f64) -> Self {
        Self {
            field,
            null_objective,
            weights,
            memory: Memory::default(),
            primal: null_objective,
            gradient: Vec::new(),
            diagonal: Vec::new(),
            best: None,
            epochs: 0,
            groups: PassGroups::default(),
            is_begun: false,
        }
    }

    /// Evaluates the first weights. If they are 0, takes stochastic steps first, which achieve much of the progress at
    /// a fraction of the cost.
    fn begin(&mut self, interrupt: &Interrupt) -> Result<()> {
        if self.is_begun {
            return Ok(());
        }
        if self.weights.iter().all(|weight| *weight == T::zero())
            && let Some(weights) = first_weights(&self.field, interrupt)?
        {
            let zero = std::mem::replace(&mut self.weights, converted(weights));
            let pass = self.pass(true, interrupt)?;
            if pass.primal < self.null_objective {
                self.start(pass);
                return Ok(());
            }
            self.weights = zero;
        }
        let pass = self.pass(true, interrupt)?;
        self.start(pass);
        Ok(())
    }

    fn start(&mut self, mut pass: FieldPass) {
        self.is_begun = true;
        self.gradient = self.field.gradient(&mut pass, &self.weights);
        self.set(pass);
    }

    /// Evaluates the weights. If `curved`, also prepares the diagonal of the Hessian.
    fn pass(&mut self, curved: bool, interrupt: &Interrupt) -> Result<FieldPass> {
        self.field.pass(&self.weights, curved, &mut self.groups, interrupt)
    }

    /// Takes over the results of a pass at the current weights, except the gradient.
    fn set(&mut self, pass: FieldPass) {
        self.primal = pass.primal;
        self.improve_bound(&pass);
        self.field.diagonal(pass, &mut self.diagonal);
    }

    fn certificate(&self) -> Certificate {
        let (lambda, penalty) = (self.field.shares.lambda(), self.field.penalty);
        let dual = self.best.as_ref().map_or(0.0, |best| best.bound(lambda, penalty));
        Certificate { primal: self.primal, dual }
    }

    /// Mixes the best dual point with the dual point of a pass, unless some labels are unknown.
    fn improve_bound(&mut self, pass: &FieldPass) {
        if !self.field.is_partial() {
            let (lambda, penalty) = (self.field.shares.lambda(), self.field.penalty);
            let sums = (pass.linear, pass.error);
            let point = ModelDual::new(sums, (lambda, penalty), (&self.weights, &self.gradient));
            match &mut self.best {
                Some(best) => best.improve(&point, lambda, penalty),
                None => self.best = Some(point.stored()),
            }
        }
    }

    /// Reports an epoch; `ends` marks the last epoch.
    fn report(&self, ends: bool) -> Progress {
        match (self.field.is_partial(), ends) {
            (true, false) => Progress::Objective(self.primal),
            (true, true) => Progress::Settled(self.primal),
            (false, false) => Progress::Epoch(self.certificate()),
            (false, true) => Progress::Exhausted(self.certificate()),
        }
    }

    /// Returns the L-BFGS direction −H g, where g is the pseudo-gradient and H approximates the inverse Hessian.
    fn direction(&self, slopes: &[T]) -> Vec<T> {
        let downhill = slopes.iter().map(|slope| -*slope).collect();
        let divide = |product: f64, curvature: f64| 1.0 / curvature * product;
        let mut direction = self.memory.multiply_inverse(downhill, divide, |mut v| {
            let scale = self.memory.pairs().back().map_or(1.0, |pair| {
                let entries = pair.change.iter().zip(&self.diagonal);
                let squares = entries.map(|(y, d)| y.widen() * y.widen() / d.widen());
                1.0 / divide(squares.sum(), pair.curvature)
            });
            long_update(&mut v, &self.diagonal, |v, d| v * (scale / d));
            v
        });
        self.field.penalty.align(&mut direction, slopes);
        direction
    }

    /// Searches along a direction for weights with sufficient decrease. Returns None if rounding hides the decrease.
    /// The weights take the place of the direction, which saves a vector.
    fn search(
        &mut self,
        direction: Vec<T>,
        slopes: &[T],
        interrupt: &Interrupt,
    ) -> Result<Option<(Vec<T>, FieldPass)>> {
        let (slope, value) = (long_dot(&direction, slopes), self.primal);
        let penalty = self.field.penalty;
        if slope >= 0.0 || slope.is_nan() {
            return Ok(None);
        }
        let curved = (self.epochs + 1).is_power_of_two();
        let (mut weights, mut step) = (direction, 1.0);
        while step > 1e-8 {
            long_update(&mut weights, &self.weights, |entry, weight| weight + step * entry);
            penalty.stay_in_orthant(&mut weights, &self.weights, slopes);
            let next = self.field.pass(&weights, curved, &mut self.groups, interrupt)?;
            let slope = if penalty.has_l1() {
                (long_dot(&weights, slopes) - long_dot(&self.weights, slopes)) / step
            } else {
                slope
            };
            match shorter_step(step, slope, value, next.primal) {
                None => return Ok(Some((weights, next))),
                Some(shorter) => {
                    long_update(&mut weights, &self.weights, |new, old| (new - old) / step);
                    step = shorter;
                }
            }
        }
        Ok(None)
    }

    /// Moves to the weights of a pass. Reuses the memory of the old weights and the old gradient for the next stored
    /// pair.
    fn accept(&mut self, weights: Vec<T>, mut pass: FieldPass) {
        let gradient = self.field.gradient(&mut pass, &weights);
        let mut s = std::mem::replace(&mut self.weights, weights);
        let mut y = std::mem::replace(&mut self.gradient, gradient);
        let subtract = |old: f64, new: f64| new - old;
        long_update(&mut s, &self.weights, subtract);
        long_update(&mut y, &self.gradient, subtract);
        self.memory.push(s, y, n_remembered(self.weights.len()));
        self.set(pass);
    }
}

impl<T: Real> Solver for Lbfgs<'_, T> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.begin(interrupt)?;
        loop {
            let gradient = std::mem::take(&mut self.gradient);
            let Field { penalty, shares, .. } = &self.field;
            let slopes = penalty.slopes(shares.lambda(), &self.weights, &gradient);
            let direction = self.direction(&slopes);
            // The oldest pair is needed only for the direction, so its memory is released before
            // the search.
            self.memory.make_room(n_remembered(self.weights.len()));
            let found = self.search(direction, &slopes, interrupt)?;
            drop(slopes);
            self.gradient = gradient;
            if let Some((weights, pass)) = found {
                self.accept(weights, pass);
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
        Some(vec![converted(self.weights.clone())])
    }
}

impl PathSolver for Lbfgs<'_, f64> {
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
            if let Some(best) = &mut self.best {
                best.stretch(longer);
            }
            // The contribution of the L2 penalty to the stored gradient changes is known exactly.
            self.memory.add_square(lambda - before);
            let mut pass = self.pass(true, interrupt)?;
            self.gradient = self.field.gradient(&mut pass, &self.weights);
            self.set(pass);
        }
        let trace = run(self, target, interrupt, observe)?;
        Ok((self.certificate(), trace.epochs.len()))
    }

    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let lambda = self.field.shares.lambda();
        let mut field = self.field.clone();
        field.shares.set_lambda(lambda / factor)?;
        let scaled: Vec<f64> = self.weights.iter().map(|weight| weight * factor).collect();
        let there = field.pass(&scaled, false, &mut self.groups, interrupt)?;
        // The factor covers the rounding error of λ/`factor`.
        let primal = there.primal * (1.0 + 4.0 * f64::EPSILON);
        let dual = self.best.as_ref().map_or(0.0, |best| best.value_at(lambda, factor));
        Ok(Certificate { primal, dual })
    }

    fn shares(&self) -> &Shares {
        &self.field.shares
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
