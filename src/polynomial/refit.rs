//! Refits: all layers but the basis (convex), or the basis as well
//! (docs/mathematics/polynomial-networks.md#refits).

use super::evaluation::evaluate;
use super::layers::{lengths, pull_in, scale_basis, variables};
use super::metric::has_metric;
use super::model::PolynomialModel;
use super::problem::PolynomialProblem;
use super::quasi_newton::{Limits, minimise};
use super::stochastic::{Passes, descend, worthwhile};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::names::find;

/// What is re-optimised after each new basis vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refit {
    /// The output layer and the linear terms: convex.
    Output,
    /// The basis as well: not convex; the certificate still is that of the convex problem.
    Full,
}

impl Refit {
    /// Every way by its name.
    pub const NAMES: &[(&str, Self)] = &[("output", Self::Output), ("full", Self::Full)];

    /// The way called `name`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) with the known names.
    pub fn parse(name: &str) -> Result<Self> {
        find("refit", name, Self::NAMES)
    }
}

/// How much a refit may cost.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Gain of a step that is not worth another one.
    pub tol: f64,
    /// The same as a share of the gain of a refit's steps so far.
    pub share: f64,
    /// Passes in batches, where these pay: they bring all layers near a minimum at a fraction of the cost of
    /// quasi-Newton steps.
    pub passes: Passes,
    /// Quasi-Newton steps with all layers after such passes, and convex ones after these.
    pub polish: usize,
    /// Quasi-Newton steps with all layers without them, and of the convex refit without a metric.
    pub max_steps: usize,
    /// Steps of the convex refit with a metric.
    pub in_metric: usize,
}

impl Effort {
    fn limits(&self, max_steps: usize) -> Limits {
        Limits { tol: self.tol, share: self.share, max_steps }
    }
}

/// Convex steps before the basis moves, so that a new vector has a row of U to scale its steps by; and steps
/// after passes in batches that gained nothing.
const FIRST_STEPS: usize = 10;

/// Improves `model` until ten steps in a row gain at most the effort's `tol`, or it is used up, and returns the
/// objective, which never rises.
///
/// The full refit minimises over all layers together, ‖h_r‖ ≤ 1. Then it moves the basis back to the
/// sphere, which leaves U budget to spare, and ends with the convex refit.
pub fn refit<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    refit: Refit,
    effort: Effort,
    interrupt: &Interrupt,
) -> Result<f64> {
    let mut moved = false;
    if refit == Refit::Full && model.n_bases > 0 {
        let Effort { passes, polish, max_steps, .. } = effort;
        if worthwhile(problem, model) {
            let layers = variables(problem, model, true, interrupt)?;
            moved = descend(layers, passes, model, interrupt)?;
            let steps = if moved { polish } else { polish.max(FIRST_STEPS) };
            improve(problem, model, true, effort.limits(steps), interrupt)?;
        } else {
            improve(problem, model, false, effort.limits(FIRST_STEPS), interrupt)?;
            improve(problem, model, true, effort.limits(max_steps), interrupt)?;
        }
        spread_to_sphere(model);
    }
    let steps = match moved {
        true => effort.polish,
        false if has_metric(problem, model) => effort.in_metric,
        false => effort.max_steps,
    };
    let objective = improve(problem, model, false, effort.limits(steps), interrupt)?;
    // The model is feasible in exact arithmetic, the lengths of its basis vectors taken into account.
    pull_in(problem, model, 0.0);
    Ok(objective)
}

/// Minimises over U and W, and over H if `basis`.
fn improve<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    basis: bool,
    limits: Limits,
    interrupt: &Interrupt,
) -> Result<f64> {
    if limits.max_steps == 0 {
        return Ok(evaluate(problem, model, false, interrupt)?.objective);
    }
    let mut layers = variables(problem, model, basis, interrupt)?;
    let mut x = layers.point();
    let objective = minimise(&mut layers, &mut x, 1.0, limits)?;
    layers.set(&x);
    *model = layers.model;
    Ok(objective)
}

/// Moves every basis vector to the sphere and the square of its length into U: the outputs stay, Ω
/// shrinks.
fn spread_to_sphere(model: &mut PolynomialModel) {
    let lengths = lengths(&model.basis, model.n_bases);
    let factors: Vec<f64> =
        lengths.iter().map(|length| if *length > 0.0 { 1.0 / length } else { 0.0 }).collect();
    scale_basis(&mut model.basis, &factors);
    for (u, length) in model.output.chunks_exact_mut(model.n_outputs).zip(&lengths) {
        u.iter_mut().for_each(|u| *u *= length * length);
    }
}
