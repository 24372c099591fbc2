//! The convex refit: output layer and linear terms, basis fixed (SPEC 6).

use ndarray::ArrayViewMut2;

use super::problem::Problem;
use super::state::{Layers, State, layer_gradient, residuals};
use crate::data::Rows;
use crate::error::Result;
use crate::parallel::sum_rows;
use crate::run::Interrupt;

/// Minimises over U in the ball and W by FISTA with function-value restart and backtracking.
///
/// Steps are scaled per block: 1/L for U, a diagonal for W, so that rare features move as far as
/// frequent ones. Stops when two iterations in a row gain less than `tol`, in units of the objective,
/// which never increases.
pub fn refit_output<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    state: &mut State,
    tol: f64,
    max_iterations: usize,
    interrupt: &Interrupt,
) -> Result<()> {
    let metric = Metric::new(problem, state, interrupt)?;
    // The bounds of the metric are pessimistic: start below and let backtracking find the level.
    let mut level = 0.25;
    let mut current = state.layers.clone();
    let mut previous = current.clone();
    let mut momentum: f64 = 1.0;
    let mut small_gains = 0;
    for _ in 0..max_iterations {
        let next_momentum = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
        let point = Point::extrapolate(&current, &previous, (momentum - 1.0) / next_momentum);
        let (next, level_used) =
            proximal_step(problem, &state.activations, &point, &metric, level, interrupt)?;
        level = 0.95 * level_used;
        let gain = current.objective - next.objective;
        if gain < 0.0 {
            if momentum == 1.0 {
                break;
            }
            // Restart from the best point without momentum.
            momentum = 1.0;
            previous = current.clone();
            continue;
        }
        previous = std::mem::replace(&mut current, next);
        momentum = next_momentum;
        small_gains = if gain <= tol { small_gains + 1 } else { 0 };
        if small_gains == 2 {
            break;
        }
    }
    state.set_layers(current);
    Ok(())
}

/// Upper bounds on the curvature: one number for U, one per feature for W.
struct Metric {
    output: f64,
    linear: Vec<f64>,
}

impl Metric {
    fn new<R: Rows + Copy>(
        problem: &Problem<'_, R>,
        state: &State,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (n, k) = (problem.rows.n_rows(), state.model.n_bases);
        let smoothness = problem.loss.smoothness(problem.n_outputs);
        let gram = sum_rows(n, k * k, interrupt, |rows, gram| {
            for row in rows {
                let z = &state.activations[row * k..(row + 1) * k];
                for (a, gram) in z.iter().zip(gram.chunks_exact_mut(k.max(1))) {
                    let a = a * problem.weight(row);
                    for (g, b) in gram.iter_mut().zip(z) {
                        *g += a * b;
                    }
                }
            }
        })?;
        // λ_max ≤ the largest absolute row sum; backtracking takes up the slack.
        let norm = gram
            .chunks_exact(k.max(1))
            .map(|row| row.iter().map(|g| g.abs()).sum::<f64>())
            .fold(f64::MIN_POSITIVE, f64::max);
        // Both blocks together: (a + b)² ≤ 2a² + 2b².
        let share = if problem.ridge.is_some() { 2.0 } else { 1.0 };
        let Some(ridge) = problem.ridge else {
            return Ok(Self { output: share * smoothness * norm, linear: Vec::new() });
        };
        // (Σ_j x_j w_j)² ≤ (Σ_j |x_j|) (Σ_j |x_j| w_j²).
        let rows = problem.linear_rows();
        let mut linear = sum_rows(n, rows.n_cols(), interrupt, |range, partial| {
            for row in range {
                let mut total = 0.0;
                rows.visit_row(row, |_, value| total += value.abs());
                total *= problem.weight(row);
                rows.visit_row(row, |column, value| partial[column] += total * value.abs());
            }
        })?;
        linear.iter_mut().for_each(|bound| *bound = share * smoothness * *bound + ridge);
        Ok(Self { output: share * smoothness * norm, linear })
    }
}

/// A point on the line through two iterates; everything in it is linear in the layers.
struct Point {
    output: Vec<f64>,
    linear: Option<Vec<f64>>,
    outputs: Vec<f64>,
}

impl Point {
    fn extrapolate(current: &Layers, previous: &Layers, beta: f64) -> Self {
        let mix = |now: &[f64], before: &[f64]| -> Vec<f64> {
            now.iter().zip(before).map(|(a, b)| a + beta * (a - b)).collect()
        };
        let linear = current.linear.as_deref().zip(previous.linear.as_deref());
        Self {
            output: mix(&current.output, &previous.output),
            linear: linear.map(|(now, before)| mix(now, before)),
            outputs: mix(&current.outputs, &previous.outputs),
        }
    }
}

/// The minimiser of the quadratic model around `point`, at the first level (doubling from `level`) at
/// which the model bounds the objective there. Level 1 is a bound already.
fn proximal_step<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    activations: &[f64],
    point: &Point,
    metric: &Metric,
    mut level: f64,
    interrupt: &Interrupt,
) -> Result<(Layers, f64)> {
    let m = problem.n_outputs;
    let (residual, loss) = residuals(problem, &point.outputs, interrupt)?;
    let start = loss + problem.ridge_value(point.linear.as_deref());
    let gradient =
        layer_gradient(problem, activations, point.linear.as_deref(), &residual, interrupt)?;
    loop {
        let curvature = level * metric.output;
        let descend = |v: &f64, g: &f64, curvature: f64| v - g / curvature;
        let mut output: Vec<f64> = (point.output.iter().zip(&gradient.output))
            .map(|(v, g)| descend(v, g, curvature))
            .collect();
        let shape = (output.len() / m, m);
        if let Ok(view) = ArrayViewMut2::from_shape(shape, &mut output) {
            problem.penalty.project(view, problem.radius);
        }
        let mut model = start + quadratic(&output, &point.output, &gradient.output, curvature);
        let linear = point.linear.as_ref().map(|old| {
            let mut new = old.clone();
            let features = new.chunks_exact_mut(m).zip(gradient.linear.chunks_exact(m));
            for ((new, gradient), bound) in features.zip(&metric.linear) {
                let curvature = (level * bound).max(problem.ridge.unwrap_or(0.0));
                let old: Vec<f64> = new.to_vec();
                for (new, g) in new.iter_mut().zip(gradient) {
                    *new = descend(new, g, curvature);
                }
                model += quadratic(new, &old, gradient, curvature);
            }
            new
        });
        let next = Layers::evaluate(problem, activations, output, linear, interrupt)?;
        if level >= 1.0 || next.objective <= model + 1e-12 * start.abs() {
            return Ok((next, level));
        }
        level = (2.0 * level).min(1.0);
    }
}

/// ⟨g, new − old⟩ + curvature/2 ‖new − old‖².
fn quadratic(new: &[f64], old: &[f64], gradient: &[f64], curvature: f64) -> f64 {
    let steps = new.iter().zip(old).map(|(new, old)| new - old);
    steps.zip(gradient).map(|(step, g)| g * step + 0.5 * curvature * step * step).sum()
}
