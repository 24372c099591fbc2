//! Batch Frank-Wolfe on the dual (Tajima et al. 2020, Algorithm 1, with the errata of
//! `docs/mathematics/errata.md`; `docs/mathematics/frank-wolfe.md`).

use crate::dual::rounding::{gamma, norm_above};
use crate::dual::{BatchDual, Bounded, DualValue, Shares, Sums, objective};
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::vectors::{along_difference, blend};
use crate::run::{Certificate, Progress, Solver, Stopping};

/// The rule for the length of a step towards the vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRule {
    /// The exact maximum of the dual on the segment, in closed form.
    FrankWolfe,
    /// The step 2/(t + 2) in iteration t = 0, 1, ...
    Scheduled,
}

impl StepRule {
    /// Names of the rules, the default first.
    pub const NAMES: &[(&str, Self)] =
        &[("frank-wolfe", Self::FrankWolfe), ("scheduled", Self::Scheduled)];
}

/// The dual point at which a run starts, in the compact form that Frank-Wolfe uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Start {
    /// The weights w(α).
    pub weights: Vec<f64>,
    /// Linear term Σ p_i l_i(μ_i) of the dual objective.
    pub linear: f64,
    /// Σ p_i ‖α_i‖² (0 without smoothing).
    pub square: f64,
    /// Bounds on the rounding errors of the fields above.
    pub drift: Drift,
}

/// Bounds on the errors of the numbers in a [`Start`], compared with the dual point that they
/// represent: the combination of vertices with the weights of the steps, in exact arithmetic.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Drift {
    /// λ times the norm of the error of w.
    pub force: f64,
    /// The error of Σ p_i l_i.
    pub linear: f64,
    /// The error of Σ p_i ‖α_i‖².
    pub square: f64,
    /// Upper bounds on λ ‖w‖, |Σ p_i l_i| and Σ p_i ‖α_i‖².
    pub sizes: [f64; 3],
    /// Number of steps so far.
    pub n_steps: usize,
}

impl Start {
    /// D at the dual point, rounded down.
    pub(super) fn bound(&self, shares: &Shares) -> f64 {
        let (lambda, smoothing) = (shares.lambda(), shares.smoothing());
        let Self { weights, linear, square, drift } = self;
        let norm = norm_above(weights) + drift.force / lambda * (1.0 + gamma(4));
        let linear = Bounded::new(*linear, drift.linear);
        let bend = smoothing * (square + drift.square) * (1.0 + gamma(4));
        DualValue::of(lambda, linear, norm * (1.0 + gamma(2)), bend).bound()
    }
}

impl Drift {
    /// Adds the rounding errors of a step towards a vertex of the whole domain.
    pub(super) fn step(&mut self, step: f64, vertex: &Sums) {
        let stay = 1.0 - step;
        let sizes = [vertex.sizes.feature, vertex.sizes.cost, vertex.sizes.square];
        for (size, new) in self.sizes.iter_mut().zip(sizes) {
            *size = (stay * *size + step * new) * (1.0 + gamma(8));
        }
        self.n_steps += 1;
        // The sums of a vertex have rounding errors, and so do their products with the step.
        let depth = gamma(vertex.sizes.n_terms + 16);
        let [force, linear, square] = self.sizes;
        self.force = stay * self.force + step * depth * sizes[0] + gamma(8) * force;
        self.linear = stay * self.linear + step * depth * sizes[1] + gamma(8) * linear;
        // The cross term uses a point that includes the rounding errors of all earlier steps.
        let followed = gamma(8 * self.n_steps + vertex.sizes.n_terms + 16);
        let crossed = step * followed * (sizes[2] + square);
        self.square = stay * self.square + crossed + gamma(8) * square;
    }
}

/// Number of steps between two evaluations of the exact loss of a smoothed problem. An evaluation costs one projection
/// per example. The loss is also evaluated in the first steps.
const LOSS_INTERVAL: usize = 8;

/// Batch Frank-Wolfe on the dual: each step moves all blocks at once.
///
/// Without smoothing, the dual point is never stored: w(α), the scalar Σ p_i l_i and the image of
/// the vertex suffice. The pass that finds the vertex also gives the gap.
pub struct FrankWolfe<'d, D> {
    dual: &'d mut D,
    rule: StepRule,
    steps: usize,
    at: Start,
    /// Weights w of the last vertex.
    image: Vec<f64>,
    /// The sums of the last vertex; None after the step towards it.
    vertex: Option<Sums>,
    /// The last step, which has not yet been passed on to the dual.
    pending: f64,
    stopping: Stopping,
}

impl<'d, D: BatchDual> FrankWolfe<'d, D> {
    /// Starts at `start`, or at the start vertices if it is None.
    pub fn new(dual: &'d mut D, rule: StepRule, start: Option<Start>) -> Self {
        let n_weights = dual.n_weights();
        let zero = || Start { weights: vec![0.0; n_weights], ..Start::default() };
        let at = start.unwrap_or_else(zero);
        let stopping = Stopping { max_epochs: 0, relative: 0.0, floor: 0.0, null_objective: None };
        let (image, vertex, pending) = (vec![0.0; n_weights], None, 0.0);
        Self { dual, rule, steps: 0, at, image, vertex, pending, stopping }
    }

    /// Sets the stopping rule. If a loss computed in single precision might meet it, the loss is
    /// recomputed in double precision.
    pub fn stopping_at(self, stopping: Stopping) -> Self {
        Self { stopping, ..self }
    }

    /// The current dual point.
    pub fn current(&self) -> &Start {
        &self.at
    }

    /// Returns the current dual point.
    pub fn into_current(self) -> Start {
        self.at
    }

    /// Passes over the data: returns the sums of the next vertex and writes its w to `image`.
    fn evaluate(&mut self, want_loss: bool, interrupt: &Interrupt) -> Result<Sums> {
        let step = std::mem::take(&mut self.pending);
        let (weights, image) = (&self.at.weights, &mut self.image);
        let vertex = self.dual.batch_vertex(weights, image, step, want_loss, interrupt)?;
        self.vertex = Some(vertex);
        Ok(vertex)
    }

    /// The certificate at the current point, if the loss is known. `vertex` holds the sums of the vertex of the next
    /// step.
    fn certificate(&mut self, vertex: &Sums, interrupt: &Interrupt) -> Result<Option<Certificate>> {
        let Some(loss) = vertex.loss else { return Ok(None) };
        let dual = self.at.bound(self.dual.shares());
        let lambda = self.dual.shares().lambda();
        let primal = |loss| objective(lambda, &self.at.weights, loss);
        let certificate = Certificate { primal: primal(loss), dual };
        let hoped = Certificate { primal: primal(Bounded::exact(loss.value())), dual };
        if self.stopping.is_met(&certificate) || !self.stopping.is_met(&hoped) {
            return Ok(Some(certificate));
        }
        let loss = self.dual.block_gaps(&self.at.weights, &|_| &[], interrupt)?.loss;
        Ok(Some(Certificate { primal: objective(lambda, &self.at.weights, loss), dual }))
    }

    /// The step in [0, 1] that maximises D on the segment: slope / curvature, clipped.
    fn line_search(&self, vertex: &Sums) -> f64 {
        let (lambda, smoothing) = (self.dual.shares().lambda(), self.dual.shares().smoothing());
        let (along, squared) = along_difference(&self.at.weights, &self.image);
        let slope = vertex.linear - self.at.linear
            + lambda * along
            + smoothing * (self.at.square - vertex.cross);
        let curvature =
            lambda * squared + smoothing * (self.at.square - 2.0 * vertex.cross + vertex.square);
        if curvature > 0.0 { (slope / curvature).clamp(0.0, 1.0) } else { f64::from(slope > 0.0) }
    }

    /// Takes a step towards the vertex: A ← A + step (U − A).
    fn walk(&mut self, vertex: &Sums, step: f64) {
        let stay = 1.0 - step;
        blend(&mut self.at.weights, (stay, step), &self.image);
        self.at.linear = stay * self.at.linear + step * vertex.linear;
        self.at.square = stay * stay * self.at.square
            + 2.0 * stay * step * vertex.cross
            + step * step * vertex.square;
        self.at.drift.step(step, vertex);
        self.pending = step;
        self.vertex = None;
    }
}

impl<D: BatchDual> Solver for FrankWolfe<'_, D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let vertex = match self.vertex {
            Some(vertex) => vertex,
            None => self.evaluate(false, interrupt)?,
        };
        let step = match self.rule {
            StepRule::FrankWolfe => self.line_search(&vertex),
            StepRule::Scheduled => 2.0 / (self.steps as f64 + 2.0),
        };
        if step == 0.0 {
            return Ok(Progress::Exhausted(self.certify(interrupt)?));
        }
        self.walk(&vertex, step);
        self.steps += 1;
        let want_loss = self.steps < LOSS_INTERVAL || self.steps.is_multiple_of(LOSS_INTERVAL);
        let vertex = self.evaluate(want_loss, interrupt)?;
        let certificate = self.certificate(&vertex, interrupt)?;
        Ok(certificate.map_or(Progress::Uncertified, Progress::Epoch))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let vertex = match self.vertex {
            Some(vertex) if vertex.loss.is_some() => vertex,
            _ => self.evaluate(true, interrupt)?,
        };
        let missing = || Error::Numerical("the dual gave no loss".into());
        self.certificate(&vertex, interrupt)?.ok_or_else(missing)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.at.weights.clone()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.at.weights);
        true
    }
}
