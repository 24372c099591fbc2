//! Refits: re-optimisation of all layers except the basis (a convex problem), or of all layers
//! (docs/mathematics/polynomial-networks.md#refits).

use std::ops::Range;

use super::curvature::{Constrained, Hessian};
use super::evaluation::{Evaluation, evaluate};
use super::layers::{LayerVariables, lengths, pull_in, scale_basis, variables};
use super::metric::fits_metric;
use super::model::PolynomialModel;
use super::problem::PolynomialProblem;
use super::quasi_newton::{FIRST_CURVATURE, Limits, minimise};
use super::stochastic::{Passes, descend, worthwhile};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::names::find;

/// The layers that are re-optimised after each new basis vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refit {
    /// The output layer and the linear terms. This problem is convex.
    Output,
    /// All layers, including the basis. This problem is not convex. The certificate still belongs to the convex
    /// problem.
    Full,
}

impl Refit {
    /// Every choice with its name.
    pub const NAMES: &[(&str, Self)] = &[("output", Self::Output), ("full", Self::Full)];

    /// The choice called `name`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) with the known names.
    pub fn parse(name: &str) -> Result<Self> {
        find("reoptimize", name, Self::NAMES)
    }
}

/// The effort of a refit.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// A refit ends when ten consecutive steps each gain at most this.
    pub tol: f64,
    /// A refit also ends when three consecutive steps each gain at most this fraction of the refit's total gain so far.
    pub share: f64,
    /// Passes over the rows in batches, which are made only if they are worth their cost. They bring all layers near a
    /// minimum at a fraction of the cost of quasi-Newton steps.
    pub passes: Passes,
    /// Maximum number of quasi-Newton steps on all layers after passes in batches, and also of the convex steps that
    /// follow.
    pub polish: usize,
    /// Maximum number of quasi-Newton steps on all layers if there are no passes in batches. Also the maximum number of
    /// steps of the convex refit without a metric.
    pub max_steps: usize,
    /// Maximum number of steps of the convex refit with a metric.
    pub in_metric: usize,
}

impl Effort {
    fn limits(&self, max_steps: usize) -> Limits {
        Limits { tol: self.tol, share: self.share, max_steps }
    }
}

/// Information from the previous convex refit.
#[derive(Debug, Default)]
pub struct Knowledge {
    /// Objective and gradient at the model.
    pub evaluation: Option<Evaluation>,
    /// Steps and the resulting changes of the gradient. Each has rows for U, followed by rows for
    /// W.
    pairs: Vec<(Vec<f64>, Vec<f64>)>,
    /// Number of rows of U in `pairs`.
    n_bases: usize,
}

impl Knowledge {
    /// Removes the rows of dropped basis vectors from steps and gradient changes. The pairs then lack the effect of
    /// these rows on the remaining rows, but are still better than no pairs.
    pub fn retain(&mut self, keep: &[bool], n_outputs: usize) {
        if keep.len() != self.n_bases {
            self.pairs.clear();
            return;
        }
        for values in self.pairs.iter_mut().flat_map(|(s, y)| [s, y]) {
            let kept = |row: usize| keep.get(row).copied().unwrap_or(true);
            let rows = values.chunks_exact(n_outputs).enumerate();
            *values =
                rows.filter(|(row, _)| kept(*row)).flat_map(|(_, row)| row).copied().collect();
        }
        self.n_bases = keep.iter().filter(|keep| **keep).count();
    }

    /// Inserts rows for new basis vectors into the pairs, and adds the pairs to `hessian`.
    fn recall<R: Rows + Copy>(&mut self, layers: &LayerVariables<'_, R>, hessian: &mut Hessian) {
        let (k, m) = (layers.model.n_bases, layers.model.n_outputs);
        let added = self.n_bases * m..k * m;
        for (s, y) in std::mem::take(&mut self.pairs) {
            hessian.recall(layers, (grown(s, &added), grown(y, &added)), added.clone());
        }
    }

    fn keep(&mut self, hessian: Hessian, n_bases: usize) {
        self.pairs = hessian.into_pairs().collect();
        self.n_bases = n_bases;
    }
}

/// The values with zeros inserted at the indices `added`.
fn grown(mut values: Vec<f64>, added: &Range<usize>) -> Vec<f64> {
    values.splice(added.start..added.start, added.clone().map(|_| 0.0));
    values
}

/// Number of convex steps before the basis changes. They give a new vector its row of U, which sets the scale of that
/// vector's steps. If passes in batches gained nothing, at least this number of steps on all layers is allowed.
const FIRST_STEPS: usize = 10;

/// Improves `model` until ten consecutive steps each gain at most the effort's `tol`, or until another limit of the
/// effort is reached. Returns the objective, which never increases.
///
/// The full refit minimises over all layers together, with ‖h_r‖ ≤ 1. It then scales the basis
/// vectors to unit length, which reduces Ω(U), and ends with the convex refit.
pub fn refit<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    refit: Refit,
    effort: Effort,
    knowledge: &mut Knowledge,
    interrupt: &Interrupt,
) -> Result<f64> {
    let mut moved = false;
    if refit == Refit::Full && model.n_bases > 0 {
        let Effort { passes, polish, max_steps, .. } = effort;
        let mut none = Knowledge::default();
        if worthwhile(problem, model) {
            let layers = variables(problem, model, true, interrupt)?;
            moved = descend(layers, passes, model, interrupt)?;
            let steps = if moved { polish } else { polish.max(FIRST_STEPS) };
            improve(problem, model, true, effort.limits(steps), &mut none, interrupt)?;
        } else {
            improve(problem, model, false, effort.limits(FIRST_STEPS), knowledge, interrupt)?;
            improve(problem, model, true, effort.limits(max_steps), &mut none, interrupt)?;
        }
        spread_to_sphere(model);
        // The stored evaluation and pairs belong to a different basis.
        *knowledge = none;
    }
    let steps = match moved {
        true => effort.polish,
        false if fits_metric(problem, model) => effort.in_metric,
        false => effort.max_steps,
    };
    let objective = improve(problem, model, false, effort.limits(steps), knowledge, interrupt)?;
    // Shrinks U so that its norm constraint holds in exact arithmetic, although the lengths of the basis vectors are 1
    // only up to rounding.
    pull_in(problem, model, 0.0);
    Ok(objective)
}

/// Minimises over U and W and, if `basis` is true, over H.
fn improve<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    basis: bool,
    limits: Limits,
    knowledge: &mut Knowledge,
    interrupt: &Interrupt,
) -> Result<f64> {
    if limits.max_steps == 0 {
        return Ok(evaluate(problem, model, false, interrupt)?.objective);
    }
    let given = model.output.clone();
    let known = knowledge.evaluation.take();
    let mut layers = variables(problem, model, basis, interrupt)?;
    layers.known = known.filter(|_| !basis && layers.model.output == given);
    let mut x = layers.point();
    let mut hessian = Hessian::new(FIRST_CURVATURE, layers.n_confined(x.len()));
    if layers.has_metric() {
        knowledge.recall(&layers, &mut hessian);
    }
    let objective = minimise(&mut layers, &mut x, &mut hessian, limits)?;
    if layers.has_metric() {
        knowledge.keep(hessian, layers.model.n_bases);
    }
    layers.set(&x);
    *model = layers.model;
    Ok(objective)
}

/// Scales every basis vector to unit length, and multiplies its row of U by the square of its former length. The
/// outputs do not change, and Ω(U) does not increase, because the lengths are at most 1.
fn spread_to_sphere(model: &mut PolynomialModel) {
    let lengths = lengths(&model.basis, model.n_bases);
    let factors: Vec<f64> =
        lengths.iter().map(|length| if *length > 0.0 { 1.0 / length } else { 0.0 }).collect();
    scale_basis(&mut model.basis, &factors);
    for (u, length) in model.output.chunks_exact_mut(model.n_outputs).zip(&lengths) {
        u.iter_mut().for_each(|u| *u *= length * length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_pairs_follow_the_rows_of_the_model() {
        let values: Vec<f64> = (1..=8).map(f64::from).collect();
        // Each vector has three rows of U and one row of W.
        let pairs = vec![(values.clone(), values.clone())];
        let mut knowledge = Knowledge { evaluation: None, pairs, n_bases: 3 };
        knowledge.retain(&[true, false, true], 2);
        let kept = vec![1.0, 2.0, 5.0, 6.0, 7.0, 8.0];
        assert_eq!((&knowledge.pairs, knowledge.n_bases), (&vec![(kept.clone(), kept.clone())], 2));
        assert_eq!(grown(kept, &(4..6)), [1.0, 2.0, 5.0, 6.0, 0.0, 0.0, 7.0, 8.0]);
        // Pairs that belong to another model are removed.
        knowledge.retain(&[true], 2);
        assert!(knowledge.pairs.is_empty());
    }
}
