//! The non-convex refit of the basis itself (SPEC 6).

use super::kernel::Kernel;
use super::model::{Model, add_layer};
use super::problem::Problem;
use super::refit_output::refit_output;
use super::state::{State, residuals};
use crate::data::Rows;
use crate::error::Result;
use crate::parallel::sum_rows;
use crate::run::Interrupt;

/// Alternations of basis steps and convex refits.
const MAX_PASSES: usize = 10;

/// Projected gradient steps on the basis per pass.
const BASIS_STEPS: usize = 10;

/// FISTA iterations per pass: the next pass moves the basis again.
const OUTPUT_ITERATIONS: usize = 30;

/// Improves basis and layers together: projected gradient steps on H inside the unit balls, then the
/// basis back on the sphere with the freed budget left to U, then the convex refit.
///
/// Stops when a pass gains less than `tol`, in units of the objective, which never increases.
pub fn refit_full<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    state: &mut State,
    tol: f64,
    interrupt: &Interrupt,
) -> Result<()> {
    if state.model.n_bases == 0 {
        return Ok(());
    }
    let mut step = None;
    for _ in 0..MAX_PASSES {
        let before = state.layers.objective;
        for _ in 0..BASIS_STEPS {
            if !basis_step(problem, state, &mut step, interrupt)? {
                break;
            }
        }
        refit_output(problem, state, tol, OUTPUT_ITERATIONS, interrupt)?;
        if before - state.layers.objective <= tol {
            break;
        }
    }
    Ok(())
}

/// One projected gradient step on H with backtracking from the last step's length; false when no step
/// improves the objective.
fn basis_step<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    state: &mut State,
    step: &mut Option<f64>,
    interrupt: &Interrupt,
) -> Result<bool> {
    let gradient = basis_gradient(problem, state, interrupt)?;
    let steepest = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    if steepest == 0.0 {
        return Ok(false);
    }
    // The first length moves H by a tenth of its own size.
    let size = (state.model.n_bases as f64).sqrt();
    let mut length = step.map_or(0.1 * size / steepest, |step| 2.0 * step);
    while length * steepest > 1e-10 * size {
        let mut model = state.model.clone();
        for (h, g) in model.basis.iter_mut().zip(&gradient) {
            *h -= length * g;
        }
        project_to_balls(&mut model);
        let moved: f64 = (model.basis.iter().zip(&state.model.basis).zip(&gradient))
            .map(|((new, old), g)| g * (new - old))
            .sum();
        let next = State::new(problem, model, interrupt)?;
        if next.layers.objective <= state.layers.objective + 1e-4 * moved {
            *state = next;
            spread_to_sphere(problem, state, interrupt)?;
            *step = Some(length);
            return Ok(true);
        }
        length *= 0.5;
    }
    Ok(false)
}

/// ∂F/∂H by features, (d + augmented) × k: Σ_i x_ij s_ir (2 p_ir) for the square kernel and
/// Σ_i x_ij s_ir (p_ir − x_ij h_jr) for ANOVA, with p = X H, s = R Uᵀ (SPEC 6).
fn basis_gradient<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    state: &State,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let (k, m) = (state.model.n_bases, problem.n_outputs);
    let (residual, _) = residuals(problem, &state.layers.outputs, interrupt)?;
    let rows = problem.basis_rows();
    let basis = &state.model.basis;
    // Uᵀ, so that s is a sum of contiguous rows.
    let transposed: Vec<f64> =
        (0..m).flat_map(|c| (0..k).map(move |r| state.model.output[r * m + c])).collect();
    sum_rows(problem.rows.n_rows(), rows.n_cols() * k, interrupt, |range, gradient| {
        let mut p = vec![0.0; k];
        let mut s = vec![0.0; k];
        for row in range {
            p.fill(0.0);
            s.fill(0.0);
            super::kernel::add_product(&rows, row, basis, &mut p);
            add_layer(&residual[row * m..(row + 1) * m], &transposed, &mut s);
            match problem.kernel {
                Kernel::Square => {
                    for (s, p) in s.iter_mut().zip(&p) {
                        *s *= 2.0 * p;
                    }
                    rows.visit_row(row, |column, value| {
                        for (g, s) in gradient[column * k..(column + 1) * k].iter_mut().zip(&s) {
                            *g += value * s;
                        }
                    });
                }
                Kernel::Anova => rows.visit_row(row, |column, value| {
                    let range = column * k..(column + 1) * k;
                    let slots = gradient[range.clone()].iter_mut().zip(&basis[range]);
                    for (((g, h), s), p) in slots.zip(&s).zip(&p) {
                        *g += value * s * (p - value * h);
                    }
                }),
            }
        }
    })
}

/// Lengths of the basis vectors.
fn lengths(model: &Model) -> Vec<f64> {
    let mut squares = vec![0.0; model.n_bases];
    for h in model.basis.chunks_exact(model.n_bases.max(1)) {
        for (square, h) in squares.iter_mut().zip(h) {
            *square += h * h;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

fn scale_basis(model: &mut Model, factors: &[f64]) {
    for h in model.basis.chunks_exact_mut(factors.len().max(1)) {
        for (h, factor) in h.iter_mut().zip(factors) {
            *h *= factor;
        }
    }
}

fn project_to_balls(model: &mut Model) {
    let factors: Vec<f64> = lengths(model).iter().map(|l| 1.0 / l.max(1.0)).collect();
    scale_basis(model, &factors);
}

/// Moves every basis vector to the sphere and the square of its length into U: the outputs stay, Ω
/// shrinks.
fn spread_to_sphere<R: Rows + Copy>(
    problem: &Problem<'_, R>,
    state: &mut State,
    interrupt: &Interrupt,
) -> Result<()> {
    let lengths = lengths(&state.model);
    if lengths.iter().all(|length| (length - 1.0).abs() < 1e-12 || *length == 0.0) {
        return Ok(());
    }
    let mut model = state.model.clone();
    let factors: Vec<f64> =
        lengths.iter().map(|length| if *length > 0.0 { 1.0 / length } else { 0.0 }).collect();
    scale_basis(&mut model, &factors);
    for (u, length) in model.output.chunks_exact_mut(model.n_outputs).zip(&lengths) {
        u.iter_mut().for_each(|u| *u *= length * length);
    }
    *state = State::new(problem, model, interrupt)?;
    Ok(())
}
