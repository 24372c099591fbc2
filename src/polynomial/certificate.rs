//! Rounding errors of a network's objective and of its lower bound
//! (docs/mathematics/polynomial-networks.md#rounding).

use super::evaluation::Residuals;
use super::loss::TargetKind;
use super::model::PolynomialModel;
use super::problem::PolynomialProblem;
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{higham_gamma, norm, squared_norm_in_order};
use crate::parallel::sum_rows;

/// Bounds on the rounding errors of an objective and of its gradient.
#[derive(Debug)]
pub(super) struct Rounding {
    /// The error of the objective at the model.
    pub objective: f64,
    /// The error of ⟨O, R⟩, where O denotes the outputs.
    pub inner: f64,
    /// The error of ‖∂F/∂W‖.
    pub linear: f64,
    /// The error of ‖Γ_c‖₂ that rounding in R causes: Σ_i s_i (1 + max_c |o_ic|) ‖x_i‖² times the relative error of the
    /// outputs; 0 for the squared loss.
    pub matrices: f64,
}

impl Rounding {
    /// Sums bounds on the absolute values of all terms in one pass over the rows. For unit vectors h, |x_ij h_j| ≤
    /// ‖x_i‖ and |K(h, x_i)| ≤ ‖x_i‖² bound all intermediate numbers.
    pub fn new<R: Rows + Copy>(
        problem: &PolynomialProblem<'_, R>,
        model: &PolynomialModel,
        objective: f64,
        Residuals { values, output_sizes }: &Residuals,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (m, n) = (model.n_outputs, problem.rows.n_rows());
        let LayerSizes { basis, linear, intercepts } = LayerSizes::of(model);
        // The residual of the squared loss is a difference, so only this subtraction rounds. The
        // rounding errors of other losses are proportional to the outputs.
        let of_classes = problem.objective.loss.target_kind() != TargetKind::Values;
        let extra = if problem.objective.augmented { 1.0 } else { 0.0 };
        let sums = sum_rows(n, 3 * m + 2, interrupt, |range, sums| {
            for row in range {
                let mut square = 0.0;
                problem.rows.visit_row(row, |_, value| square += value * value);
                // No relative bound covers the error of a product that underflows, so a constant is
                // added.
                let in_basis = square + extra + f64::MIN_POSITIVE;
                let in_linear = square.sqrt() + f64::MIN_POSITIVE;
                let size = 1.0 + output_sizes[row];
                let own = if of_classes { problem.weight(row) * size } else { 0.0 };
                for (c, residual) in values[row * m..][..m].iter().enumerate() {
                    let size = residual.abs() + own;
                    sums[c] += times(size, in_basis);
                    sums[m + c] += times(size, in_linear);
                    sums[2 * m + c] += size;
                }
                sums[3 * m] += own;
                sums[3 * m + 1] += times(own, in_basis);
            }
        })?;
        let of_outputs = higham_gamma(2 * (2 * model.basis_length() + model.n_bases + m + 32));
        let of_sums = higham_gamma(2 * (n + 64)) + of_outputs;
        let ridge = problem.objective.ridge.unwrap_or(0.0);
        let product = |sizes: &[f64], sums: &[f64]| -> f64 {
            sizes.iter().zip(sums).map(|(size, sum)| times(*size, *sum)).sum()
        };
        let inner = product(&basis, &sums[..m])
            + product(&linear, &sums[m..2 * m])
            + product(&intercepts, &sums[2 * m..3 * m]);
        let shifted = shift_error(problem, &intercepts, &sums[2 * m..3 * m]);
        let weights = squared_norm_in_order(&linear) + squared_norm_in_order(&intercepts);
        let gradient = norm(&sums[m..2 * m]) + norm(&sums[2 * m..3 * m]) + ridge * weights.sqrt();
        Ok(Self {
            objective: higham_gamma(2 * (n + 64)) * objective
                + of_outputs * (sums[3 * m] + inner)
                + higham_gamma(model.basis_length() * m + 64) * ridge * weights
                + shifted
                + underflow(problem),
            inner: of_sums * inner,
            linear: of_sums * gradient,
            matrices: of_outputs * sums[3 * m + 1],
        })
    }
}

/// A bound on the error of an objective in which squares and products underflow.
pub(super) fn underflow<R: Rows + Copy>(problem: &PolynomialProblem<'_, R>) -> f64 {
    let ridge = problem.objective.ridge.unwrap_or(0.0);
    f64::MIN_POSITIVE * problem.objective.n_outputs as f64 * (1.0 + total_weight(problem) + ridge)
}

/// A bound on the change of the objective when the caller adds the means of the targets to the intercepts, because
/// these sums are rounded. `residuals` holds the sum of the absolute residuals of each output.
fn shift_error<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    intercepts: &[f64],
    residuals: &[f64],
) -> f64 {
    let means = problem.objective.target_means;
    if means.is_empty() {
        return 0.0;
    }
    let ridge = problem.objective.ridge.unwrap_or(0.0);
    let curvature = total_weight(problem) + ridge;
    let terms =
        means.iter().zip(intercepts).zip(residuals).map(|((mean, intercept), residuals)| {
            let error = f64::EPSILON * (intercept + mean.abs());
            error * (residuals + ridge * intercept) + 0.5 * error * error * curvature
        });
    terms.sum()
}

fn total_weight<R: Rows + Copy>(problem: &PolynomialProblem<'_, R>) -> f64 {
    (0..problem.rows.n_rows()).map(|row| problem.weight(row)).sum()
}

/// Norms of the layers, for each output.
struct LayerSizes {
    /// For each output, the sum of the absolute output weights.
    basis: Vec<f64>,
    /// For each output, the norm of the linear weights.
    linear: Vec<f64>,
    /// |b_c|, stored separately from the weights: the bound multiplies only weights by the norms of rows, which may
    /// reach 1e20.
    intercepts: Vec<f64>,
}

impl LayerSizes {
    fn of(model: &PolynomialModel) -> Self {
        let m = model.n_outputs;
        let mut basis = vec![0.0; m];
        for row in model.output.chunks_exact(m) {
            basis.iter_mut().zip(row).for_each(|(sum, u)| *sum += u.abs());
        }
        let (mut linear, mut intercepts) = (vec![0.0; m], vec![0.0; m]);
        if let Some((weights, last)) =
            model.linear.as_ref().and_then(|w| w.split_at_checked(w.len() - m))
        {
            let columns = weights.chunks_exact(m).flat_map(|row| row.iter().enumerate());
            // The square of a small weight may underflow.
            let square = |w: f64| if w == 0.0 { 0.0 } else { w * w + f64::MIN_POSITIVE };
            columns.for_each(|(c, w)| linear[c] += square(*w));
            linear.iter_mut().for_each(|sum: &mut f64| *sum = sum.sqrt());
            intercepts.iter_mut().zip(last).for_each(|(b, last)| *b = last.abs());
        }
        Self { basis, linear, intercepts }
    }
}

/// Returns a · b, or 0 if a or b is 0, even if the other factor has overflowed.
fn times(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}
