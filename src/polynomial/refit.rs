//! Refits: all layers but the basis (convex), or the basis as well
//! (docs/mathematics/polynomial-networks.md#refits).

use ndarray::ArrayViewMut2;

use super::evaluation::{Evaluation, evaluate};
use super::model::PolynomialModel;
use super::penalty::pull_inside;
use super::problem::{Objective, PolynomialProblem};
use super::quasi_newton::{Constrained, minimise};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::names::find;
use crate::parallel::sum_rows;

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

/// Convex steps before the basis moves, so that a new vector has a row of U to scale its steps by.
const FIRST_STEPS: usize = 10;

/// Improves `model` until ten steps in a row gain at most `tol`, and returns the objective, which never
/// rises.
///
/// The full refit minimises over all layers together, ‖h_r‖ ≤ 1. Then it moves the basis back to the
/// sphere, which leaves U budget to spare, and ends with the convex refit.
pub fn refit<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    refit: Refit,
    tol: f64,
    max_steps: usize,
    interrupt: &Interrupt,
) -> Result<f64> {
    if refit == Refit::Full && model.n_bases > 0 {
        improve(problem, model, false, tol, FIRST_STEPS, interrupt)?;
        improve(problem, model, true, tol, max_steps, interrupt)?;
        spread_to_sphere(model);
    }
    let objective = improve(problem, model, false, tol, max_steps, interrupt)?;
    // The model is feasible in exact arithmetic, the lengths of its basis vectors taken into account.
    pull_in(problem, model, 0.0);
    Ok(objective)
}

/// Brings U back into its ball if it is outside by more than `tolerance`.
fn pull_in<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    tolerance: f64,
) {
    let (shape, n_roundings) = ((model.n_bases, model.n_outputs), 4 * model.basis_length() + 16);
    if let Ok(output) = ArrayViewMut2::from_shape(shape, &mut model.output) {
        let Objective { penalty, radius, .. } = problem.objective;
        pull_inside(penalty, output, radius, (n_roundings, tolerance));
    }
}

/// How far outside its ball U may be between steps, relative to the radius: far below any tolerance,
/// and far above the rounding of a projection from nearby.
const OUTSIDE: f64 = 1e-12;

/// Minimises over U and W, and over H if `basis`.
fn improve<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &mut PolynomialModel,
    basis: bool,
    tol: f64,
    max_steps: usize,
    interrupt: &Interrupt,
) -> Result<f64> {
    // Steps from outside would stay there.
    pull_in(problem, model, OUTSIDE);
    let scales = Scales::new(problem, model, interrupt)?;
    let mut layers = LayerVariables { problem, model: model.clone(), basis, scales, interrupt };
    let mut x = layers.point();
    let objective = minimise(&mut layers, &mut x, 1.0, tol, max_steps)?;
    layers.set(&x);
    *model = layers.model;
    Ok(objective)
}

/// Lengths of the units in which steps are taken: the curvature along each coordinate is about the same.
struct Scales {
    basis: f64,
    output: f64,
    /// For each feature, so that rare ones move as far as frequent ones.
    linear: Vec<f64>,
}

impl Scales {
    /// Square roots of L Σ_i s_i E z_i² for U, with the activations of random directions; of
    /// L Σ_i s_i x_ij² + α for W; and for H as for U, times τ/k, the mean length of a row of U. Half of
    /// that measured best.
    fn new<R: Rows + Copy>(
        problem: &PolynomialProblem<'_, R>,
        model: &PolynomialModel,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let rows = problem.linear_rows();
        let d = rows.n_cols();
        let mut sums = sum_rows(rows.n_rows(), d + 1, interrupt, |range, sums| {
            for row in range {
                let (weight, mut square) = (problem.weight(row), 0.0);
                rows.visit_row(row, |column, value| {
                    sums[column] += weight * value * value;
                    square += value * value;
                });
                sums[d] += weight * square * square;
            }
        })?;
        let smoothness = problem.objective.loss.smoothness(problem.objective.n_outputs);
        let output = (smoothness * 3.0 * sums[d] / (d * (d + 2)) as f64).sqrt();
        let output = output.max(f64::MIN_POSITIVE);
        let basis = 0.5 * output * mean_row(problem, model);
        sums.truncate(d);
        let ridge = problem.objective.ridge.unwrap_or(1.0);
        let linear = sums.into_iter().map(|sum| (smoothness * sum + ridge).sqrt()).collect();
        Ok(Self { basis, output, linear })
    }
}

/// Ω(U)/k.
fn mean_row<R: Rows + Copy>(problem: &PolynomialProblem<'_, R>, model: &PolynomialModel) -> f64 {
    let rows = model.output.chunks_exact(model.n_outputs);
    let norm: f64 = rows.map(|u| problem.objective.penalty.row_norm(u)).sum();
    let norm = if norm > 0.0 { norm } else { problem.objective.radius };
    norm / model.n_bases.max(1) as f64
}

/// The layers as one point: \[H,\] U, W, each times its scale.
struct LayerVariables<'a, R> {
    problem: &'a PolynomialProblem<'a, R>,
    model: PolynomialModel,
    basis: bool,
    scales: Scales,
    interrupt: &'a Interrupt,
}

impl<R: Rows + Copy> LayerVariables<'_, R> {
    /// The coordinates of the model with their scales, in order.
    fn visit(&mut self, mut visit: impl FnMut(&mut f64, f64)) {
        let PolynomialModel { basis, output, linear, n_outputs, .. } = &mut self.model;
        if self.basis {
            basis.iter_mut().for_each(|h| visit(h, self.scales.basis));
        }
        output.iter_mut().for_each(|u| visit(u, self.scales.output));
        let features = linear.iter_mut().flat_map(|linear| linear.chunks_exact_mut(*n_outputs));
        for (w, scale) in features.zip(&self.scales.linear) {
            w.iter_mut().for_each(|w| visit(w, *scale));
        }
    }

    fn point(&mut self) -> Vec<f64> {
        let mut point = Vec::new();
        self.visit(|value, scale| point.push(*value * scale));
        point
    }

    fn set(&mut self, point: &[f64]) {
        let mut point = point.iter();
        self.visit(|value, scale| *value = point.next().map_or(0.0, |x| x / scale));
    }
}

impl<R: Rows + Copy> Constrained for LayerVariables<'_, R> {
    fn evaluate(&mut self, x: &[f64], gradient: &mut Vec<f64>) -> Result<f64> {
        self.set(x);
        let Evaluation { objective, basis, output, linear } =
            evaluate(self.problem, &self.model, self.basis, self.interrupt)?;
        gradient.clear();
        gradient.extend(basis.into_iter().chain(output).chain(linear));
        let mut slopes = gradient.iter_mut();
        self.visit(|_, scale| {
            if let Some(slope) = slopes.next() {
                *slope /= scale;
            }
        });
        Ok(objective)
    }

    fn project(&self, x: &mut [f64]) -> Result<()> {
        self.interrupt.check()?;
        let PolynomialModel { n_bases: k, n_outputs: m, .. } = self.model;
        let (basis, rest) = x.split_at_mut(if self.basis { self.model.basis.len() } else { 0 });
        if self.basis {
            let factors: Vec<f64> = lengths(basis, k)
                .into_iter()
                .map(|length| 1.0 / (length / self.scales.basis).max(1.0))
                .collect();
            scale_basis(basis, &factors);
        }
        if let Ok(output) = ArrayViewMut2::from_shape((k, m), &mut rest[..k * m]) {
            let Objective { penalty, radius, .. } = self.problem.objective;
            let radius = radius * self.scales.output;
            let mut output = output;
            penalty.project(output.view_mut(), radius);
            // From far away, differences of large numbers leave few digits of a small radius.
            pull_inside(penalty, output, radius, (0, OUTSIDE));
        }
        Ok(())
    }
}

/// Lengths of the columns of a feature-major basis.
fn lengths(basis: &[f64], k: usize) -> Vec<f64> {
    let mut squares = vec![0.0; k];
    for h in basis.chunks_exact(k.max(1)) {
        for (square, h) in squares.iter_mut().zip(h) {
            *square += h * h;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

fn scale_basis(basis: &mut [f64], factors: &[f64]) {
    for h in basis.chunks_exact_mut(factors.len().max(1)) {
        for (h, factor) in h.iter_mut().zip(factors) {
            *h *= factor;
        }
    }
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
