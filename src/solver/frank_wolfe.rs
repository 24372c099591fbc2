//! Batch Frank-Wolfe on the dual (Tajima et al. 2020, Algorithm 1, with the errata of
//! `docs/mathematics/errata.md`; `docs/mathematics/frank-wolfe.md`).

use crate::dual::{BatchDual, Sums};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{along_difference, blend, squared_norm};
use crate::run::{Certificate, Progress, Solver};

/// How far batch Frank-Wolfe goes to the vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRule {
    /// To the maximum of the dual on the segment, in closed form.
    FrankWolfe,
    /// 2/(t + 2) of the way in step t from 0.
    Scheduled,
}

impl StepRule {
    /// Names by which callers choose a rule, the default first.
    pub const NAMES: &[(&str, Self)] =
        &[("frank-wolfe", Self::FrankWolfe), ("scheduled", Self::Scheduled)];
}

/// The dual point that a run starts from, as far as Frank-Wolfe keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// w(α).
    pub weights: Vec<f64>,
    /// Σ p_i l_i(μ_i).
    pub linear: f64,
    /// Σ p_i ‖α_i‖² (0 without smoothing).
    pub square: f64,
}

/// The exact loss of a smoothed problem, which costs a projection per example, is evaluated in the first
/// steps and then every so many.
const OFTEN: usize = 8;

/// Frank-Wolfe on the dual, all blocks at once.
///
/// Without smoothing the dual point is never stored: w(α), the scalar Σ p_i l_i and the image of the
/// vertex suffice, and the gap comes out of the pass that finds the vertex.
pub struct FrankWolfe<'d, D> {
    dual: &'d mut D,
    rule: StepRule,
    steps: usize,
    at: Start,
    /// w of the vertex found last, and its sums until a step was made towards it.
    image: Vec<f64>,
    vertex: Option<Sums>,
    /// The step that the dual has not yet been told of.
    pending: f64,
}

impl<'d, D: BatchDual> FrankWolfe<'d, D> {
    /// Starts at the start vertices unless told otherwise.
    pub fn new(dual: &'d mut D, rule: StepRule, start: Option<Start>) -> Self {
        let n_weights = dual.n_weights();
        let zero = || Start { weights: vec![0.0; n_weights], linear: 0.0, square: 0.0 };
        let at = start.unwrap_or_else(zero);
        Self { dual, rule, steps: 0, at, image: vec![0.0; n_weights], vertex: None, pending: 0.0 }
    }

    /// Where the run stands.
    pub fn current(&self) -> &Start {
        &self.at
    }

    /// Gives back where the run stands.
    pub fn into_current(self) -> Start {
        self.at
    }

    /// Passes over the data: the sums of the next vertex, whose w goes to `image`.
    fn look(&mut self, want_loss: bool, interrupt: &Interrupt) -> Result<Sums> {
        let step = std::mem::take(&mut self.pending);
        let (weights, image) = (&self.at.weights, &mut self.image);
        let vertex = self.dual.batch_vertex(weights, image, step, want_loss, interrupt)?;
        self.vertex = Some(vertex);
        Ok(vertex)
    }

    fn certificate(&self, vertex: &Sums) -> Option<Certificate> {
        let (lambda, smoothing) = (self.dual.shares().lambda(), self.dual.shares().smoothing());
        let regularizer = 0.5 * lambda * squared_norm(&self.at.weights);
        let dual = self.at.linear - regularizer - 0.5 * smoothing * self.at.square;
        vertex.loss.map(|loss| Certificate { primal: regularizer + loss, dual })
    }

    /// argmax over the segment of D: slope / curvature, clipped.
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

    /// A ← A + step (U − A).
    fn walk(&mut self, vertex: &Sums, step: f64) {
        let stay = 1.0 - step;
        blend(&mut self.at.weights, (stay, step), &self.image);
        self.at.linear = stay * self.at.linear + step * vertex.linear;
        self.at.square = stay * stay * self.at.square
            + 2.0 * stay * step * vertex.cross
            + step * step * vertex.square;
        self.pending = step;
        self.vertex = None;
    }
}

impl<D: BatchDual> Solver for FrankWolfe<'_, D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let vertex = match self.vertex {
            Some(vertex) => vertex,
            None => self.look(false, interrupt)?,
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
        let want_loss = self.steps < OFTEN || self.steps.is_multiple_of(OFTEN);
        let vertex = self.look(want_loss, interrupt)?;
        Ok(self.certificate(&vertex).map_or(Progress::Uncertified, Progress::Epoch))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let known = self.vertex.and_then(|vertex| self.certificate(&vertex));
        match known {
            Some(certificate) => Ok(certificate),
            None => {
                let vertex = self.look(true, interrupt)?;
                let missing = || Error::Numerical("the dual gave no loss".into());
                self.certificate(&vertex).ok_or_else(missing)
            }
        }
    }
}
