//! Newton's method. Its linear systems are solved by conjugate gradients, with a preconditioner
//! that is chosen by its cost.
//!
//! Columns are centred if there is an intercept, and divided by units s_k, so that the largest value of each column is
//! about 1; the weights are u_k = s_k w_k.

mod conjugate;
mod dense;
mod direct;
mod entries;
mod entry_lines;
mod entry_products;
mod layout;
mod passes;
mod preconditioner;
mod softmax;
mod storage;
mod store;
mod tiles;
mod tilt;

use self::conjugate::{ConjugateGradients, Goal};
use self::passes::RowPasses;
use self::storage::stored;
pub(super) use self::storage::{is_small, keeps_zeros_out};
use self::store::BlockSample;
use super::{LogisticModel, LogisticProblem};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::vectors::long_dot;
use crate::run::{Certificate, Progress, Solver, Stopping};

/// Gradients are computed in double precision as soon as a step is expected to reduce the objective
/// by less than this fraction, or by less than 0.3 times the tolerance.
const EXACT: f64 = 1e-4;
/// Slack of the line search for rounding errors, relative to the objective, in single and in double precision.
const SLACK: [f64; 2] = [1e-6, 1e-13];
/// The maximum number of halvings of a step.
const HALVINGS: usize = 25;
/// A step must achieve this fraction of the decrease that the slope predicts.
const GAIN: f64 = 1e-4;
/// The same fraction for the choice of the length of the first step, measured over a sample. A full step on a quadratic
/// function achieves ½.
const EXPECTED: f64 = 0.3;
/// Linear systems are solved until the residual is at most this fraction of its first value. The fraction is ten times
/// smaller if the Hessian comes from a sample but the gradient from all rows, because such a system costs little
/// compared with the gradient.
const REDUCTION: f64 = 0.3;
/// A step is doubled while the slope at its end is at least this share of the slope at its start.
const STEEP: f64 = 0.3;
/// Minimum numbers of rows per weight. With at least the first number, the first steps use a sample of the rows. With
/// at least the second number, later steps also compute the Hessian from a sample, if exact gradients need no copy of
/// the rows.
const SAMPLED: [usize; 2] = [100, 1000];
/// The fraction of the rows in this sample.
const SAMPLE: f64 = 0.1;
/// The first steps also compute objective and gradient from the sample, until a step gains less than this fraction of
/// the objective, but for at most [`MOST_SAMPLED`] steps.
const SETTLED: f64 = 3e-3;
const MOST_SAMPLED: usize = 4;
/// The Hessian is computed from all rows once the decrease expected of a step exceeds this fraction of the decrease
/// expected of the previous step.
const KEPT: f64 = 0.1;
/// The run ends if the gap has not fallen by a tenth in this number of exact steps.
const PATIENCE: usize = 8;

/// The rows and the precision of a step's passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Over a sample of the rows, in single precision.
    Sample,
    /// Over all rows in single precision.
    Single,
    /// Over all rows in double precision.
    Exact,
}

/// Newton's method; an epoch is one step.
pub(super) struct LogisticNewton<'a> {
    store: Box<dyn RowPasses + 'a>,
    stopping: Stopping,
    system: ConjugateGradients,
    phase: Phase,
    /// Whether the Hessian of exact steps is computed from a sample of the rows.
    is_sampled: bool,
    /// The decrease that the last exact step was expected to achieve.
    expected: f64,
    started: bool,
    n_steps: usize,
    /// The scaled weights, one line per output, with the intercept last in each line.
    weights: Vec<f64>,
    /// Objective and gradient at these weights, over the rows of the phase.
    objective: f64,
    gradient: Vec<f64>,
    best: Best,
    /// A reference gap, and the number of exact steps since it was set. A gap that is lower by more than a tenth
    /// replaces it.
    progress: (f64, usize),
}

/// The certified model with the lowest objective, and the highest lower bound.
struct Best {
    certificate: Certificate,
    model: LogisticModel,
    /// Whether the store's probabilities belong to this model.
    is_last: bool,
}

impl Best {
    fn none(model: LogisticModel) -> Self {
        let certificate = Certificate { primal: f64::INFINITY, dual: 0.0 };
        Self { certificate, model, is_last: false }
    }
}

impl<'a> LogisticNewton<'a> {
    /// Starts at a model.
    pub fn new(problem: &LogisticProblem<'a>, start: &LogisticModel, stopping: Stopping) -> Self {
        let store = stored(problem);
        let weights = scaled(store.as_ref(), start);
        let system = ConjugateGradients::new(store.as_ref());
        let is_zero = weights.iter().all(|weight| *weight == 0.0);
        let can_sample = store.sample(SAMPLE) != store.all();
        let [first, later] =
            SAMPLED.map(|ratio| can_sample && problem.n_examples() >= ratio * store.len());
        let is_sampled = later && store.is_direct();
        Self {
            system,
            store,
            stopping,
            phase: match (first && is_zero, is_sampled) {
                (true, _) => Phase::Sample,
                (_, true) => Phase::Exact,
                _ => Phase::Single,
            },
            is_sampled,
            expected: f64::INFINITY,
            started: false,
            n_steps: 0,
            weights,
            objective: f64::INFINITY,
            gradient: Vec::new(),
            best: Best::none(problem.zero_model()),
            progress: (f64::INFINITY, 0),
        }
    }

    /// The best model.
    pub fn into_model(self) -> LogisticModel {
        self.best.model
    }

    /// The best model.
    pub fn best_model(&self) -> &LogisticModel {
        &self.best.model
    }

    /// Continues from the best model, with the c_i of [`LogisticProblem::with_factor`].
    ///
    /// # Errors
    /// As for [`LogisticProblem::with_factor`].
    pub fn restart(&mut self, factor: f64) -> Result<()> {
        self.store.set_factor(factor)?;
        self.system.restart();
        self.phase = if self.is_sampled { Phase::Exact } else { Phase::Single };
        self.expected = f64::INFINITY;
        self.started = false;
        self.weights = scaled(self.store.as_ref(), &self.best.model);
        let known = if self.best.is_last { self.store.certificate(&self.best.model) } else { None };
        let best = Best::none(self.best.model.clone());
        self.best = match known {
            Some(certificate) => Best { certificate, is_last: true, ..best },
            None => best,
        };
        self.progress = (f64::INFINITY, 0);
        Ok(())
    }

    /// Σ c_i (diag p_i − p_i p_iᵀ) at the best model: the curvature of the losses in the intercepts. Empty for many
    /// outputs.
    pub fn intercept_curvature(&mut self, interrupt: &Interrupt) -> Result<Vec<f64>> {
        if !self.best.is_last {
            self.phase = Phase::Exact;
            let weights = scaled(self.store.as_ref(), &self.best.model);
            self.evaluate(&weights, &mut Vec::new(), interrupt)?;
        }
        self.store.intercept_curvature(&self.best.model, interrupt)
    }

    /// The rows from which the Hessian is computed.
    fn sample(&self) -> BlockSample {
        let is_sampled = self.is_sampled || self.phase == Phase::Sample;
        if is_sampled { self.store.sample(SAMPLE) } else { self.store.all() }
    }

    /// Computes objective and gradient at some weights and, in the exact phase, a certificate.
    fn evaluate(
        &mut self,
        weights: &[f64],
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<f64> {
        self.best.is_last = false;
        if self.phase != Phase::Exact {
            let sample = if self.phase == Phase::Sample { self.sample() } else { self.store.all() };
            let loss = self.store.pass(weights, sample, gradient, interrupt)?;
            return Ok(loss + self.system.regularise(weights, gradient));
        }
        let model = self.model(weights);
        let rows = (&model, self.sample());
        let (loss, found) = self.store.certified_pass(weights, rows, gradient, interrupt)?;
        if let Some(found) = found {
            let best = &mut self.best;
            if found.primal < best.certificate.primal {
                best.certificate.primal = found.primal;
                best.model = model;
                best.is_last = true;
            }
            best.certificate.dual = best.certificate.dual.max(found.dual);
        }
        Ok(loss + self.system.regularise(weights, gradient))
    }

    /// Converts scaled weights to a model.
    fn model(&self, weights: &[f64]) -> LogisticModel {
        let problem = self.store.problem();
        let mut model = problem.zero_model();
        let (d, width) = (problem.n_features(), self.store.width());
        for (output, line) in weights.chunks_exact(width.max(1)).enumerate() {
            let own = model.weights[output * d..][..d].iter_mut();
            own.zip(line).zip(self.store.units()).for_each(|((w, u), unit)| *w = u / unit);
            if problem.intercept() {
                let shift = self.store.shift(&model.weights[output * d..][..d]);
                model.intercepts[output] = line[d] - shift;
            }
        }
        model
    }

    /// Switches to another phase, and recomputes objective and gradient; at W = 0 if the objective is not finite.
    fn enter(&mut self, phase: Phase, interrupt: &Interrupt) -> Result<()> {
        let (weights, mut gradient) = (self.weights.clone(), std::mem::take(&mut self.gradient));
        self.phase = phase;
        self.objective = self.evaluate(&weights, &mut gradient, interrupt)?;
        if !self.objective.is_finite() {
            self.phase = Phase::Exact;
            self.weights.fill(0.0);
            let weights = self.weights.clone();
            self.objective = self.evaluate(&weights, &mut gradient, interrupt)?;
        }
        self.gradient = gradient;
        Ok(())
    }

    /// Takes one Newton step; returns whether the weights changed.
    fn step(&mut self, interrupt: &Interrupt) -> Result<bool> {
        let scale = self.objective;
        let is_cheap = self.is_sampled && self.phase == Phase::Exact;
        let goal = Goal {
            gap: self.stopping.allowed(scale / self.total()) * self.total(),
            reduction: if is_cheap { 0.1 * REDUCTION } else { REDUCTION },
            exact: self.phase != Phase::Sample,
        };
        let sample = self.sample();
        let direction =
            self.system.solve(self.store.as_mut(), &self.gradient, (sample, goal), interrupt)?;
        let slope = long_dot(&self.gradient, &direction);
        if slope.is_nan() || slope >= 0.0 {
            return Ok(false);
        }
        let expected = -0.5 * slope;
        if self.phase == Phase::Sample {
            self.n_steps += 1;
            if self.n_steps >= MOST_SAMPLED || expected < SETTLED * scale {
                self.weights.iter_mut().zip(&direction).for_each(|(w, d)| *w += d);
                let next = if self.is_sampled { Phase::Exact } else { Phase::Single };
                self.enter(next, interrupt)?;
                return Ok(true);
            }
        }
        if self.phase == Phase::Exact {
            self.is_sampled &= expected <= KEPT * self.expected;
            self.expected = expected;
        }
        let before = self.phase;
        let exact = EXACT.max(0.3 * self.stopping.relative);
        if self.phase == Phase::Single && expected < exact * scale {
            self.phase = Phase::Exact;
        }
        let slack = if before == Phase::Exact { SLACK[1] } else { SLACK[0] } * scale.abs();
        let mut gradient = Vec::new();
        let mut length = self.first_length(&direction, slope, interrupt)?;
        for _ in 0..HALVINGS {
            let moved: Vec<f64> =
                self.weights.iter().zip(&direction).map(|(w, d)| w + length * d).collect();
            let objective = self.evaluate(&moved, &mut gradient, interrupt)?;
            if objective <= scale + GAIN * length * slope + slack {
                (self.weights, self.objective, self.gradient) = (moved, objective, gradient);
                if length == 1.0 {
                    self.lengthen(&direction, slope, interrupt)?;
                }
                return Ok(true);
            }
            length *= 0.5;
        }
        Ok(false)
    }

    /// Returns the length of the step that the line search tries first, which is usually 1. From W
    /// = 0, it is the largest power of ½ with which the objective over a sample of the rows falls
    /// about as much as expected. A pass over all rows would cost ten times as much.
    fn first_length(
        &mut self,
        direction: &[f64],
        slope: f64,
        interrupt: &Interrupt,
    ) -> Result<f64> {
        let sample = self.store.sample(SAMPLE);
        let is_zero = self.weights.iter().all(|weight| *weight == 0.0);
        if self.phase != Phase::Single || !is_zero || sample == self.store.all() {
            return Ok(1.0);
        }
        let (mut length, mut gradient) = (1.0, Vec::new());
        for _ in 0..HALVINGS {
            let moved: Vec<f64> = direction.iter().map(|d| length * d).collect();
            let loss = self.store.pass(&moved, sample, &mut gradient, interrupt)?;
            let objective = loss + self.system.regularise(&moved, &mut gradient);
            if objective <= self.objective + EXPECTED * length * slope {
                return Ok(length);
            }
            length *= 0.5;
        }
        Ok(1.0)
    }

    /// Doubles the step while the objective still falls steeply at its end. On separable rows, a plain Newton step
    /// reduces the objective only by a factor of about e.
    fn lengthen(&mut self, direction: &[f64], slope: f64, interrupt: &Interrupt) -> Result<()> {
        let mut length = 1.0;
        let mut gradient = Vec::new();
        while long_dot(&self.gradient, direction) < STEEP * slope {
            let moved: Vec<f64> =
                self.weights.iter().zip(direction).map(|(w, d)| w + length * d).collect();
            let objective = self.evaluate(&moved, &mut gradient, interrupt)?;
            // NaN does not count as an improvement.
            if !matches!(objective.partial_cmp(&self.objective), Some(std::cmp::Ordering::Less)) {
                // Recomputes the probabilities for the weights that are kept.
                return self.enter(self.phase, interrupt);
            }
            self.weights = moved;
            self.objective = objective;
            std::mem::swap(&mut self.gradient, &mut gradient);
            length *= 2.0;
        }
        Ok(())
    }

    fn total(&self) -> f64 {
        self.store.problem().total()
    }

    /// The gap implied by the gradient, ½ ‖g‖² in the units of W, without the intercept.
    fn shown_gap(&self) -> f64 {
        self.system.gap_of(&self.gradient)
    }

    /// Whether the gradient of a pass in single precision implies a gap that is small enough.
    fn seems_done(&self) -> bool {
        self.phase == Phase::Single && self.shown_gap() <= self.stopping.relative * self.objective
    }

    /// Counts an exact step; returns whether the gap has stopped falling.
    fn is_stuck(&mut self) -> bool {
        let gap = self.best.certificate.gap();
        self.progress.1 += 1;
        if !self.is_sampled && gap > 0.5 * self.progress.0 {
            self.system.take_care();
        }
        if gap < 0.9 * self.progress.0 {
            self.progress = (gap, 0);
        }
        self.progress.1 >= PATIENCE
    }
}

/// The weights of a model in the store's units, one line per output, with the intercept last.
fn scaled(store: &dyn RowPasses, model: &LogisticModel) -> Vec<f64> {
    let (problem, mut weights) = (store.problem(), Vec::with_capacity(store.len()));
    let d = problem.n_features();
    for output in 0..problem.n_outputs() {
        let own = &model.weights[output * d..][..d];
        weights.extend(own.iter().zip(store.units()).map(|(w, unit)| w * unit));
        let shifted = || model.intercepts[output] + store.shift(own);
        weights.extend(problem.intercept().then(shifted));
    }
    weights
}

impl Solver for LogisticNewton<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let mut moved = true;
        if !self.started {
            let is_met = |own: &Self| {
                let known = own.best.certificate;
                known.primal.is_finite() && own.stopping.is_met(&known)
            };
            if !is_met(self) {
                self.started = true;
                self.enter(self.phase, interrupt)?;
            }
            if is_met(self) {
                // No step is needed: the model at which the run starts or restarts already meets the stopping rule.
                self.phase = Phase::Exact;
                return Ok(Progress::Epoch(self.best.certificate));
            }
        }
        if !self.seems_done() {
            moved = self.step(interrupt)?;
        }
        if self.phase != Phase::Exact && (self.seems_done() || !moved) {
            self.enter(Phase::Exact, interrupt)?;
        } else if !moved {
            return Ok(Progress::Exhausted(self.best.certificate));
        }
        if self.phase != Phase::Exact {
            return Ok(Progress::Uncertified);
        }
        let certificate = self.best.certificate;
        Ok(if self.is_stuck() {
            Progress::Exhausted(certificate)
        } else {
            Progress::Epoch(certificate)
        })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        if self.phase != Phase::Exact {
            self.enter(Phase::Exact, interrupt)?;
        }
        Ok(self.best.certificate)
    }

    fn n_first(&self) -> Option<usize> {
        Some(0)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        let found = self.phase == Phase::Exact;
        found.then(|| vec![self.best.model.weights.clone(), self.best.model.intercepts.clone()])
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};

    #[test]
    fn a_step_that_overshoots_is_halved_before_a_pass_over_all_rows() {
        let (n, d, n_classes) = (1600, 60, 200);
        let number = |a: f64, b: f64| {
            let value = (a * 12.9898 + b * 78.233).sin() * 43758.5453;
            value - value.floor() - 0.5
        };
        let rows = Array2::from_shape_fn((n, d), |(i, k)| {
            let centre = number((i % n_classes) as f64 + 1.0, k as f64);
            centre + 1.5 * number(i as f64 + 1000.0, k as f64 + 0.5)
        });
        let labels: Vec<u32> = (0..n).map(|i| (i % n_classes) as u32).collect();
        let data = Data::Dense64(Dense::new(rows.view()).unwrap());
        for (c, expected) in [(1e-4, 1.0), (1.0, 0.5)] {
            let problem =
                LogisticProblem::new(data, &labels, n_classes, vec![c; n], false).unwrap();
            let stopping =
                Stopping { max_epochs: 1, relative: 1e-4, floor: 0.0, null_objective: None };
            let (start, interrupt) = (problem.zero_model(), Interrupt::default());
            let mut newton = LogisticNewton::new(&problem, &start, stopping);
            newton.enter(Phase::Single, &interrupt).unwrap();
            let (rows, goal) =
                (newton.sample(), Goal { gap: 0.0, reduction: REDUCTION, exact: true });
            let (store, gradient) = (newton.store.as_mut(), &newton.gradient);
            let direction = newton.system.solve(store, gradient, (rows, goal), &interrupt).unwrap();
            let slope = long_dot(&newton.gradient, &direction);
            let length = newton.first_length(&direction, slope, &interrupt).unwrap();
            assert_eq!(length, expected);
            let mut at = |length: f64| {
                let moved: Vec<f64> = direction.iter().map(|d| length * d).collect();
                newton.evaluate(&moved, &mut Vec::new(), &interrupt).unwrap()
            };
            assert!(at(length) < at(2.0 * length), "{c}");
        }
    }
}
