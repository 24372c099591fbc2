//! Newton's method for duals over products of convex sets: a proximal point method on the dual, whose inner problems
//! are solved by semi-smooth Newton steps in the primal (Rockafellar 1976; Li, Sun and Toh 2018;
//! `docs/mathematics/newton.md`).

mod active;
mod blocks;
mod distributed;
mod dual_system;
mod hessian;
mod part_factors;
mod passes;
mod step;
mod system;

pub use self::blocks::{Blocks, Proximal, Summed};
pub use self::distributed::{SecondOrder, n_sums, newton_direction, second_order};

pub use self::part_factors::has_part_factors;
use self::passes::{InnerEvaluation, Pass};
use self::step::search;
pub(in crate::solver) use self::step::zero_of_derivative;
use self::system::System;
pub use self::system::{FACTORISED, step_cost};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::squared_norm;
use crate::run::{Certificate, Progress, Solver, Stopping};

/// The first width of the proximal term, in units of [`Blocks::unit_width`].
pub(in crate::solver) const FIRST_WIDTH: f64 = 2.0;
/// The smallest width, in the same units. Newton steps assume that the gradient is linear. With smaller widths, they
/// leave the region in which this assumption holds.
pub(in crate::solver) const SMALLEST_WIDTH: f64 = 0.02;
/// The first width of a run that continues from another solver's dual point, in the same units.
const RESUMED_WIDTH: f64 = 0.06;
/// Factor by which the width shrinks when the centre moves.
pub(in crate::solver) const NARROWER: f64 = 0.3;
/// Factor by which the width grows after a short step: such a step shows that the gradient of the
/// inner problem changes too abruptly for Newton's method.
pub(in crate::solver) const WIDER: f64 = 4.0;
/// Steps shorter than this count as short.
pub(in crate::solver) const SHORT_STEP: f64 = 1e-2;
/// An inner problem counts as solved when its gap is at most this share of the overall gap, or of the tolerated gap if
/// that is larger.
pub(in crate::solver) const SOLVED_SHARE: f64 = 0.05;
/// Slopes below this share of P(0) are rounding error.
const ROUNDING: f64 = 1e-15;
/// The run ends after this number of steps if they have not reduced the gap by a tenth.
const MAX_STALLED_STEPS: usize = 40;

/// The best points of a run: the weights with the smallest objective, and the dual point with the largest value.
#[derive(Debug, Clone)]
pub struct BestPoints {
    /// The objective of the weights, and the dual value of the points.
    pub certificate: Certificate,
    /// The weights: one vector over the features for each part of a block (see [`Blocks::n_parts`]).
    pub weights: Vec<f64>,
    /// The points u, block by block.
    pub points: Vec<f64>,
}

/// Newton's method, one step per epoch.
///
/// Each loss is a maximum over dual points. The inner problem subtracts a proximal term around a centre inside this
/// maximum, which makes the loss differentiable. Newton's method solves the inner problem; each step solves the linear
/// system of `System` and searches along a line. The dual solution of the inner problem is the next centre. Every step
/// computes a certificate from its weights and points.
pub struct Newton<'p, B: Blocks> {
    blocks: &'p B,
    stopping: Stopping,
    pass: Pass,
    system: System,
    /// The centre of the proximal term.
    centre: Vec<f64>,
    width: f64,
    smallest_width: f64,
    weights: Vec<f64>,
    /// Scores, points and gradient at the weights, after the first evaluation.
    at: InnerEvaluation,
    looked: bool,
    /// The points at the last trial of a line search.
    trial: Vec<f64>,
    /// Whether further steps on the inner problem would gain less than its rounding errors.
    exhausted: bool,
    best: BestPoints,
    null_objective: f64,
    /// A reference gap, and the number of steps since it was recorded.
    progress: (f64, usize),
}

impl<'p, B: Blocks> Newton<'p, B> {
    /// Starts at w = 0 and u = 0, where the objective is `null_objective` and the dual value is 0.
    pub fn new(blocks: &'p B, stopping: Stopping, null_objective: f64) -> Self {
        let (design, m) = (blocks.design(), blocks.n_parts());
        let (n_points, n_weights) = (design.n_rows() * m, design.n_features() * m);
        let certificate = Certificate { primal: f64::INFINITY, dual: 0.0 };
        let (weights, points) = (vec![0.0; n_weights], vec![0.0; n_points]);
        let unit = blocks.unit_width();
        let is_smooth = blocks.shares().smoothing() >= unit;
        Self {
            blocks,
            stopping,
            pass: Pass::new(&design, m),
            system: System::new(&design, m),
            centre: points.clone(),
            width: if is_smooth { 0.0 } else { FIRST_WIDTH * unit },
            smallest_width: SMALLEST_WIDTH * unit,
            weights: weights.clone(),
            at: InnerEvaluation::new(n_points),
            looked: false,
            trial: points.clone(),
            exhausted: false,
            best: BestPoints { certificate, weights, points },
            null_objective,
            progress: (f64::INFINITY, 0),
        }
    }

    /// Starts at the points u, ordered block by block, and at their weights w(u).
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn start_at(&mut self, points: Vec<f64>, interrupt: &Interrupt) -> Result<()> {
        let image = self.pass.image(self.blocks, &points, interrupt)?;
        self.weights = image.into_iter().map(|value| -value).collect();
        self.centre = points;
        Ok(())
    }

    /// Continues from another solver's dual points and their certificate. The first width is chosen for a centre near
    /// the optimum.
    pub fn resume(
        blocks: &'p B,
        stopping: Stopping,
        null_objective: f64,
        best: BestPoints,
    ) -> Self {
        let mut newton = Self::new(blocks, stopping, null_objective);
        newton.weights.copy_from_slice(&best.weights);
        newton.centre.copy_from_slice(&best.points);
        newton.width = newton.width.min(RESUMED_WIDTH * blocks.unit_width());
        newton.best = best;
        newton
    }

    /// The best points so far.
    pub fn best(&self) -> &BestPoints {
        &self.best
    }

    /// The best points so far.
    pub fn into_best(self) -> BestPoints {
        self.best
    }

    /// Evaluates scores, points, gradient and certificate at the weights.
    fn evaluate(&mut self, interrupt: &Interrupt) -> Result<()> {
        self.evaluate_with(false, interrupt)
    }

    /// Evaluates as [`evaluate`](Self::evaluate) does. With `known`, the stored points already belong to the
    /// weights.
    fn evaluate_with(&mut self, known: bool, interrupt: &Interrupt) -> Result<()> {
        let proximal = Proximal { centre: &self.centre, width: self.width };
        let proximal = (!known).then_some(proximal);
        let (certificate, scale) =
            self.pass.evaluate(self.blocks, &self.weights, proximal, &mut self.at, interrupt)?;
        self.looked = true;
        let best = &mut self.best;
        if certificate.primal < best.certificate.primal {
            best.certificate.primal = certificate.primal;
            best.weights.copy_from_slice(&self.weights);
        }
        if certificate.dual > best.certificate.dual {
            best.certificate.dual = certificate.dual;
            best.points.iter_mut().zip(&self.at.points).for_each(|(best, u)| *best = scale * u);
        }
        Ok(())
    }

    /// Evaluates the start; moves to w = 0 if that has a lower objective.
    fn evaluate_start(&mut self, interrupt: &Interrupt) -> Result<()> {
        self.evaluate(interrupt)?;
        if self.best.certificate.primal > self.null_objective {
            self.weights.fill(0.0);
            self.evaluate(interrupt)?;
        }
        Ok(())
    }

    /// Whether the inner problem is solved accurately enough for its points to become the next centre.
    fn is_solved(&self) -> bool {
        let best = &self.best.certificate;
        let allowed = SOLVED_SHARE * best.gap().max(self.stopping.allowed(best.primal));
        self.exhausted || self.at.inner_gap(self.blocks.shares().lambda()) <= allowed
    }

    /// Moves the centre to the points of the inner solution, and reduces the width of the proximal term.
    fn move_centre(&mut self, interrupt: &Interrupt) -> Result<()> {
        self.centre.copy_from_slice(&self.at.points);
        self.width = self.next_width();
        self.exhausted = false;
        self.evaluate(interrupt)
    }

    /// The width for the next centre. If the loss is smooth enough without a proximal term, the width eventually
    /// becomes 0.
    fn next_width(&self) -> f64 {
        let width = NARROWER * self.width;
        if width > self.smallest_width {
            width
        } else if self.blocks.shares().smoothing() >= self.smallest_width {
            0.0
        } else {
            self.smallest_width
        }
    }

    /// Takes one Newton step on the inner problem.
    fn step(&mut self, interrupt: &Interrupt) -> Result<()> {
        let curvature = self.width + self.blocks.shares().smoothing();
        let goal = SOLVED_SHARE * self.stopping.allowed(self.best.certificate.primal);
        let direction = self.system.solve(self.blocks, &self.at, curvature, goal, interrupt)?;
        let proximal = Proximal { centre: &self.centre, width: self.width };
        let line = self.pass.line(self.blocks, proximal, &self.at, &direction, interrupt)?;
        let start = (&self.weights[..], &self.at.residual[..]);
        let (step, slope, mut known) =
            search(&line, start, &direction, &mut self.trial, interrupt)?;
        if step > 0.0 {
            self.weights.iter_mut().zip(&direction).for_each(|(w, d)| *w += step * d);
        }
        let lambda = self.blocks.shares().lambda();
        self.exhausted = -slope * lambda < ROUNDING * self.null_objective;
        if step > 0.0 && step < SHORT_STEP && self.width > 0.0 {
            self.width *= WIDER;
            known = false;
        }
        if known {
            // The scores of the last trial differ from the scores at the weights by rounding only.
            std::mem::swap(&mut self.at.points, &mut self.trial);
        }
        self.evaluate_with(known, interrupt)
    }

    /// Whether the run has stalled: either the gap has hardly fallen for [`MAX_STALLED_STEPS`] steps, or there is no
    /// proximal term and rounding errors prevent further progress.
    fn is_stalled(&mut self) -> bool {
        let gap = self.best.certificate.gap();
        self.progress.1 += 1;
        if gap < 0.9 * self.progress.0 {
            self.progress = (gap, 0);
        }
        self.progress.1 >= MAX_STALLED_STEPS || self.exhausted && self.width == 0.0
    }
}

impl<B: Blocks> Solver for Newton<'_, B> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if !self.looked {
            self.evaluate_start(interrupt)?;
            if self.stopping.is_met(&self.best.certificate) {
                return Ok(Progress::Epoch(self.best.certificate));
            }
        } else if self.width > 0.0 && self.is_solved() {
            self.move_centre(interrupt)?;
        }
        self.step(interrupt)?;
        let certificate = self.best.certificate;
        if self.is_stalled() {
            return Ok(Progress::Exhausted(certificate));
        }
        Ok(Progress::Epoch(certificate))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        if !self.looked {
            self.evaluate_start(interrupt)?;
        }
        Ok(self.best.certificate)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.best.weights.clone()])
    }
}

impl InnerEvaluation {
    /// The gap of the inner problem at w and the maximisers u: λ/2 ‖w − w(u)‖².
    fn inner_gap(&self, lambda: f64) -> f64 {
        0.5 * lambda * squared_norm(&self.residual)
    }
}
