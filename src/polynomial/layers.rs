//! The layers of a model as one point: its coordinates, their units, and the feasible set
//! (docs/mathematics/polynomial-networks.md#units-of-the-layers).

use ndarray::ArrayViewMut2;

use super::curvature::Constrained;
use super::evaluation::{Evaluation, evaluate};
use super::metric::{Metric, fits_metric};
use super::model::PolynomialModel;
use super::problem::{Objective, PolynomialProblem};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::axpy;
use crate::parallel::{for_items, sum_rows};
use crate::penalty::pull_inside;

/// Moves U back into its ball if it is outside by more than `tolerance`.
pub(super) fn pull_in<R: Rows + Copy>(
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

/// Maximum distance of U from its ball between steps, relative to the radius. It is far below any
/// tolerance, and far above the rounding error of a projection of a nearby point.
const OUTSIDE: f64 = 1e-12;

/// Number of features whose weights one task scales, small enough that tasks occupy all threads.
const FEATURES: usize = 512;

/// Creates the variables of a search: U and W and, if `basis` is true, H.
pub(super) fn variables<'a, R: Rows + Copy>(
    problem: &'a PolynomialProblem<'a, R>,
    model: &mut PolynomialModel,
    basis: bool,
    interrupt: &'a Interrupt,
) -> Result<LayerVariables<'a, R>> {
    // Start inside the set, because steps from a point outside may stay outside.
    pull_in(problem, model, OUTSIDE);
    let scales = LayerScales::new(problem, model, interrupt)?;
    let metric = if !basis && fits_metric(problem, model) {
        Metric::new(problem, model, &scales.of_rows(model), interrupt)?
    } else {
        None
    };
    Ok(LayerVariables {
        problem,
        model: model.clone(),
        basis,
        scales,
        metric,
        known: None,
        interrupt,
    })
}

/// A factor for each coordinate. After multiplication by these factors, the curvature is about the
/// same along all coordinates.
struct LayerScales {
    basis: f64,
    output: f64,
    /// One factor per feature, so that the weights of rare features can change as fast as the weights of frequent
    /// features.
    linear: Vec<f64>,
}

impl LayerScales {
    /// The scale of U is the square root of L Σ_i s_i E z_i², with activations z of random directions. The scale of W
    /// is the square root of L Σ_i s_i x_ij² + α. The scale of H is half the scale of U times the mean norm of a row
    /// of U; the factor of one half was fastest in measurements.
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
        // The scale stays finite even if fourth powers of the features overflow.
        let output = output.clamp(f64::MIN_POSITIVE, 1e150);
        let basis = 0.5 * output * mean_row(problem, model);
        sums.truncate(d);
        let ridge = problem.objective.ridge.unwrap_or(1.0);
        let linear = sums.into_iter().map(|sum| (smoothness * sum + ridge).sqrt()).collect();
        Ok(Self { basis, output, linear })
    }
}

impl LayerScales {
    /// Calls `change(coordinate, scale)` for each coordinate.
    fn apply(
        &self,
        [basis, output, linear]: [&mut [f64]; 3],
        n_outputs: usize,
        change: impl Fn(&mut f64, f64) + Sync,
    ) {
        basis.iter_mut().for_each(|h| change(h, self.basis));
        output.iter_mut().for_each(|u| change(u, self.output));
        let features = linear.chunks_mut(FEATURES * n_outputs).zip(self.linear.chunks(FEATURES));
        for_items(features, 1, |(weights, scales)| {
            for (weights, scale) in weights.chunks_exact_mut(n_outputs).zip(scales) {
                weights.iter_mut().for_each(|w| change(w, *scale));
            }
        });
    }

    /// The scale of each row of U and of W.
    fn of_rows(&self, model: &PolynomialModel) -> Vec<f64> {
        let output = std::iter::repeat_n(self.output, model.n_bases);
        let linear = if model.linear.is_some() { self.linear.as_slice() } else { &[] };
        output.chain(linear.iter().copied()).collect()
    }
}

/// Returns Ω(U)/k, the mean norm of a row of U, or τ/k if U is 0.
fn mean_row<R: Rows + Copy>(problem: &PolynomialProblem<'_, R>, model: &PolynomialModel) -> f64 {
    let rows = model.output.chunks_exact(model.n_outputs);
    let norm: f64 = rows.map(|u| problem.objective.penalty.row_norm(u)).sum();
    let norm = if norm > 0.0 { norm } else { problem.objective.radius };
    norm / model.n_bases.max(1) as f64
}

/// The layers as one point: \[H,\] U and W, each multiplied by its scale.
pub(super) struct LayerVariables<'a, R> {
    pub(super) problem: &'a PolynomialProblem<'a, R>,
    pub(super) model: PolynomialModel,
    pub(super) basis: bool,
    scales: LayerScales,
    /// The metric, if steps use one. Points then contain W + A U instead of the linear weights W (see [`Metric`]).
    metric: Option<Metric>,
    /// Objective and gradient at the model, if known. The first evaluation returns them.
    pub(super) known: Option<Evaluation>,
    interrupt: &'a Interrupt,
}

impl<R: Rows + Copy> LayerVariables<'_, R> {
    /// The indices at which U and W start in a point.
    fn starts(&self) -> (usize, usize) {
        let PolynomialModel { basis, n_bases: k, n_outputs: m, .. } = &self.model;
        let output = if self.basis { basis.len() } else { 0 };
        (output, output + k * m)
    }

    /// The unit of step length of each scaled coordinate. For U and W, a step of this length changes the outputs by
    /// about 1. For H, it is the root mean square of the entries of a scaled unit vector.
    pub(super) fn step_lengths(&self) -> Vec<f64> {
        let n = self.problem.rows.n_rows() as f64;
        let Objective { loss, n_outputs, .. } = self.problem.objective;
        let unit = (n * loss.smoothness(n_outputs)).sqrt();
        let entry = self.scales.basis / (self.model.basis_length() as f64).sqrt();
        let (in_basis, confined) = self.starts();
        let mut lengths = vec![unit; confined + self.model.linear.as_ref().map_or(0, Vec::len)];
        lengths[..in_basis].fill(entry);
        lengths
    }

    /// Moves a point back into the set after a step: scales basis vectors to unit length, and moves U into its ball.
    pub(super) fn to_set(&self, x: &mut [f64]) -> Result<()> {
        if self.basis {
            let basis = &mut x[..self.model.basis.len()];
            let factors: Vec<f64> = lengths(basis, self.model.n_bases)
                .into_iter()
                .map(|length| if length > 0.0 { self.scales.basis / length } else { 0.0 })
                .collect();
            scale_basis(basis, &factors);
        }
        self.project(x)
    }

    /// Whether steps use a metric.
    pub(super) fn has_metric(&self) -> bool {
        self.metric.is_some()
    }

    /// Adds `sign` A U to the linear weights.
    fn add_explained(&mut self, sign: f64) {
        let Some(explained) = self.metric.as_ref().and_then(|metric| metric.explained.as_ref())
        else {
            return;
        };
        let PolynomialModel { output, linear, n_bases: k, n_outputs: m, .. } = &mut self.model;
        let linear = linear.iter_mut().flat_map(|linear| linear.chunks_exact_mut(*m));
        for (w, explained) in linear.zip(explained.rows()) {
            for (u, explained) in output.chunks_exact(*m).zip(explained).take(*k) {
                axpy(w, sign * explained, u);
            }
        }
    }

    pub(super) fn point(&mut self) -> Vec<f64> {
        self.add_explained(1.0);
        let point = self.scaled();
        self.add_explained(-1.0);
        point
    }

    fn scaled(&self) -> Vec<f64> {
        let PolynomialModel { basis, output, linear, .. } = &self.model;
        let mut point = if self.basis { basis.clone() } else { Vec::new() };
        point.extend_from_slice(output);
        point.extend(linear.iter().flatten());
        self.scale(&mut point, |value, scale| *value *= scale);
        point
    }

    pub(super) fn set(&mut self, point: &[f64]) {
        let (start_of_output, start_of_linear) = self.starts();
        let PolynomialModel { basis, output, linear, n_outputs: m, .. } = &mut self.model;
        let basis: &mut [f64] = if self.basis { basis } else { &mut [] };
        let linear: &mut [f64] = linear.as_deref_mut().unwrap_or_default();
        basis.copy_from_slice(&point[..start_of_output]);
        output.copy_from_slice(&point[start_of_output..start_of_linear]);
        linear.copy_from_slice(&point[start_of_linear..]);
        self.scales.apply([basis, output, linear], *m, |value, scale| *value /= scale);
        self.add_explained(-1.0);
    }

    /// Calls `change(coordinate, scale)` for each coordinate of a point.
    fn scale(&self, point: &mut [f64], change: impl Fn(&mut f64, f64) + Sync) {
        let (output, linear) = self.starts();
        let (confined, linear) = point.split_at_mut(linear);
        let (basis, output) = confined.split_at_mut(output);
        self.scales.apply([basis, output, linear], self.model.n_outputs, change);
    }
}

impl<R: Rows + Copy> Constrained for LayerVariables<'_, R> {
    fn evaluate(&mut self, x: &[f64], gradient: &mut Vec<f64>) -> Result<f64> {
        self.set(x);
        let known = self.known.take();
        let Evaluation { objective, basis, mut output, linear } = match known {
            Some(evaluation) => evaluation,
            None => evaluate(self.problem, &self.model, self.basis, self.interrupt)?,
        };
        if let Some(Metric { explained: Some(explained), .. }) = &self.metric {
            let m = self.model.n_outputs;
            for (w, explained) in linear.chunks_exact(m).zip(explained.rows()) {
                for (u, explained) in output.chunks_exact_mut(m).zip(explained) {
                    axpy(u, -explained, w);
                }
            }
        }
        gradient.clear();
        [basis, output, linear].iter().for_each(|slopes| gradient.extend_from_slice(slopes));
        self.scale(gradient, |slope, scale| *slope /= scale);
        Ok(objective)
    }

    /// If there is a metric (only for few weights), all weights count as confined. Searches that
    /// end early then reach a lower objective (measured on the data set letter), and the cost is
    /// negligible compared with an evaluation.
    fn n_confined(&self, n: usize) -> usize {
        if self.metric.is_some() { n } else { self.starts().1 }
    }

    fn metric(&self, v: &[f64]) -> Vec<f64> {
        self.metric.as_ref().map_or_else(|| v.to_vec(), |metric| metric.product(v))
    }

    fn solve(&self, v: &[f64]) -> Vec<f64> {
        self.metric.as_ref().map_or_else(|| v.to_vec(), |metric| metric.solve(v))
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
            // The projection of a distant point onto a small ball has few accurate digits, because
            // of cancellation.
            pull_inside(penalty, output, radius, (0, OUTSIDE));
        }
        Ok(())
    }
}

/// Returns the length of each basis vector; the basis is feature-major, so each vector is a column.
pub(super) fn lengths(basis: &[f64], k: usize) -> Vec<f64> {
    let mut squares = vec![0.0; k];
    for h in basis.chunks_exact(k.max(1)) {
        for (square, h) in squares.iter_mut().zip(h) {
            *square += h * h;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

pub(super) fn scale_basis(basis: &mut [f64], factors: &[f64]) {
    for h in basis.chunks_exact_mut(factors.len().max(1)) {
        for (h, factor) in h.iter_mut().zip(factors) {
            *h *= factor;
        }
    }
}
