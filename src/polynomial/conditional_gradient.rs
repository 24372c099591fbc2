//! Conditional gradient with corrective refitting (Blondel et al. 2017, Algorithm 1;
//! docs/mathematics/polynomial-networks.md#conditional-gradient).

use super::basis_selection::{Bounding, Selection, SelectionMethod, select};
use super::certificate::{Rounding, underflow};
use super::evaluation::{evaluate, residuals};
use super::gradient_matrices::GradientMatrices;
use super::model::{PolynomialModel, largest_overlap};
use super::problem::{Objective, PolynomialProblem};
use super::refit::{Effort, Knowledge, Refit, refit};
use super::stochastic::Passes;
use super::validation::{Score, Validation};
use crate::data::Rows;
use crate::dual::Bounded;
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::vectors::{dot, norm};
use crate::run::{Certificate, Progress, Solver};

/// Settings of the solver.
#[derive(Debug, Clone, Copy)]
pub struct ConditionalGradientSettings {
    /// Maximum number of basis vectors.
    pub n_components: usize,
    /// The layers that are re-optimised after each new basis vector.
    pub refit: Refit,
    /// The method that selects basis vectors.
    pub selection: SelectionMethod,
    /// Relative tolerance of the eigenvalue solver in basis selection.
    pub selection_tol: f64,
    /// Duality gap at which the fit stops, relative to the null model's objective.
    pub tol: f64,
    /// Seed of the start vectors of basis selection.
    pub seed: u64,
}

/// Effort of the refit after each new basis vector. It is low because the next vector gains more
/// than a more accurate refit. Tolerance and seed are set later.
const CORRECTIVE: Effort = Effort {
    tol: 0.0,
    share: 0.02,
    passes: Passes { count: 1, length: 0.02, seed: 0 },
    polish: 0,
    max_steps: 50,
    in_metric: 8,
};

/// Effort of the refit after the last basis vector.
const LAST: Effort = Effort {
    tol: 0.0,
    share: 0.002,
    passes: Passes { count: 60, length: 0.05, seed: 0 },
    polish: 30,
    max_steps: 300,
    in_metric: 100,
};

/// If the mean gain of the latest epochs, relative to the null model's objective, falls below this
/// value, refits run to convergence: their tolerance is multiplied by the same value, and only the
/// last refit uses batches. Near the optimum, refits that stop early keep vectors that converged
/// refits would drop, and leave a gradient that loosens the bound.
const FINISHING: f64 = 1e-3;

/// Maximum number of epochs whose gains are compared with [`FINISHING`].
const MAX_DECIDING: usize = 3;

/// The number of epochs whose gains are compared with [`FINISHING`]. With output refits, one vector
/// may gain little by chance, so the mean of several epochs counts. With full refits, one small
/// gain is enough: it means that the passes in batches have converged.
fn n_deciding(refit: Refit) -> usize {
    match refit {
        Refit::Output => MAX_DECIDING,
        Refit::Full => 1,
    }
}

/// Number of consecutive epochs with a negligible gain after which the fit ends. Each of these epochs tries a different
/// start vector.
const MAX_IDLE_EPOCHS: usize = 5;

/// Upper bound on the probability that any lower bound reported by a fit is too large. Applies to fits with more than
/// [`MAX_FACTORISED`](super::spectral_bounds::MAX_FACTORISED) features.
pub const FAILURE: f64 = 1e-9;

/// One epoch's share of [`FAILURE`]. The shares of all epochs sum to [`FAILURE`], because Σ_t 1 /
/// (t (t + 1)) = 1.
fn failure(epoch: u64) -> f64 {
    FAILURE / ((epoch + 1) as f64 * (epoch + 2) as f64)
}

/// Number of basis vectors and validation score of the model after one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathPoint {
    /// Number of basis vectors.
    pub n_bases: usize,
    /// Score on the validation rows; None if there are none.
    pub validation: Option<Score>,
}

/// The solver, which grows the basis by one vector at a time.
#[derive(Debug)]
pub struct ConditionalGradient<'a, R> {
    validation: Option<&'a Validation<'a>>,
    path: Vec<PathPoint>,
    /// The best validation score so far, and the first model with this score.
    best: Option<(f64, PolynomialModel)>,
    problem: PolynomialProblem<'a, R>,
    settings: ConditionalGradientSettings,
    model: PolynomialModel,
    objective: f64,
    selection: Option<Selection>,
    /// Objective of the null model. All tolerances are relative to it.
    scale: f64,
    iteration: u64,
    /// Gains of the latest epochs, most recent first.
    gains: [Option<f64>; MAX_DECIDING],
    /// Whether the recent gains are so small that refits run to convergence; see [`FINISHING`].
    finishing: bool,
    /// Information from the previous refit, which speeds up the next refit.
    knowledge: Knowledge,
    /// Number of consecutive epochs with a negligible gain.
    idle: usize,
}

impl<'a, R: Rows + Copy> ConditionalGradient<'a, R> {
    /// Creates a solver that starts from `model` (the null model, or the model of an earlier fit).
    /// With `validation`, the result is the model with the best validation score.
    pub fn new(
        mut problem: PolynomialProblem<'a, R>,
        settings: ConditionalGradientSettings,
        model: PolynomialModel,
        validation: Option<&'a Validation<'a>>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if settings.n_components == 0 {
            return Err(Error::argument("n_components", "must be at least 1"));
        }
        let null = problem.null_model();
        if model.n_outputs != null.n_outputs || model.linear.is_some() != null.linear.is_some() {
            return Err(Error::argument("warm_start", "the model has different outputs or layers"));
        }
        problem.keep_columns(interrupt)?;
        let scale = evaluate(&problem, &null, false, interrupt)?.objective;
        let objective = evaluate(&problem, &model, false, interrupt)?.objective;
        Ok(Self {
            problem,
            settings,
            model,
            objective,
            validation,
            path: Vec::new(),
            best: None,
            selection: None,
            scale,
            iteration: 0,
            gains: [None; MAX_DECIDING],
            finishing: false,
            knowledge: Knowledge::default(),
            idle: 0,
        })
    }

    /// The current model.
    #[cfg(test)]
    pub fn model(&self) -> &PolynomialModel {
        &self.model
    }

    /// The final model and the path of scores. With validation rows, the final model has the best score on these
    /// rows.
    pub fn into_result(self) -> (PolynomialModel, Vec<PathPoint>) {
        (self.best.map_or(self.model, |(_, model)| model), self.path)
    }

    /// The null model.
    pub fn null_model(&self) -> PolynomialModel {
        self.problem.null_model()
    }

    /// Objective of the null model.
    #[cfg(test)]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Objective of the null model with a bound on its rounding error.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn null_objective(&self, interrupt: &Interrupt) -> Result<Bounded> {
        let null = self.problem.null_model();
        let found = residuals(&self.problem, &null, interrupt)?;
        let rounding = Rounding::new(&self.problem, &null, self.scale, &found, interrupt)?;
        Ok(Bounded::new(self.scale, rounding.objective))
    }

    /// The smallest gap that can be certified. It is not 0 because terms of the objective may underflow.
    pub fn smallest_gap(&self) -> f64 {
        2.0 * underflow(&self.problem)
    }

    /// Selects the next basis vector, and evaluates the duality gap: ⟨O_U, R⟩ + τ max_h ω*(g_h) + ‖∂F/∂W‖²/(2α).
    ///
    /// One search gives both the next basis vector and a bound on the maximum over h. The last term is the gap of the
    /// strongly convex linear part (Fenchel duality), which is zero at the optimum of this part.
    fn select_next(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let problem = &self.problem;
        let model = &self.model;
        let gradient = evaluate(problem, model, false, interrupt)?;
        let mut negative = residuals(problem, model, interrupt)?;
        negative.values.iter_mut().for_each(|r| *r = -*r);
        let rows = problem.basis_rows();
        let Objective { kernel, n_outputs, penalty, radius, ridge, .. } = problem.objective;
        let gamma = GradientMatrices::new(&rows, kernel, &negative.values, n_outputs, interrupt)?
            .with_columns(problem.columns.as_ref());
        let seed = self.settings.seed.wrapping_add(self.iteration.wrapping_mul(0x5851_F42D));
        let ConditionalGradientSettings { selection, selection_tol, .. } = self.settings;
        let primal = gradient.objective;
        let rounding = Rounding::new(problem, model, primal, &negative, interrupt)?;
        let inner = dot(&model.output, &gradient.output) + rounding.inner;
        let linear_gap = match ridge {
            Some(ridge) => (norm(&gradient.linear) + 2.0 * rounding.linear).powi(2) / (2.0 * ridge),
            None => 0.0,
        };
        // A looser bound costs fewer products. An error below a tenth of the gap would not be worth
        // the cost.
        let accuracy = |about: f64| {
            let gap = inner + radius * about + linear_gap;
            selection_tol.max(0.1 * gap / (radius * about)).min(0.5)
        };
        let bounding = Bounding { accuracy: &accuracy, failure: failure(self.iteration) };
        let selection = select(&gamma, penalty, selection, (selection_tol, seed), bounding)?;
        let lost = penalty.dual_row_norm(&vec![rounding.matrices; n_outputs]);
        let gap = inner + radius * (selection.bound + lost) + linear_gap;
        self.selection = Some(selection);
        self.knowledge.evaluation = Some(gradient);
        // NaN must stay NaN (`max` would drop it).
        let gap = if gap < 0.0 { 0.0 } else { gap };
        let terms = primal.abs() + inner.abs() + gap;
        let dual = primal - gap - rounding.objective - 8.0 * f64::EPSILON * terms;
        // The objective is at least 0, because its terms are non-negative. (Again, NaN must stay
        // NaN.)
        let dual = if dual < 0.0 { 0.0 } else { dual };
        Ok(Certificate { primal: primal + rounding.objective, dual })
    }

    fn refit(&mut self, interrupt: &Interrupt) -> Result<()> {
        let tol = 1e-3 * self.settings.tol * self.scale;
        let full = self.model.n_bases >= self.settings.n_components;
        let seed = self.settings.seed.wrapping_add(self.iteration);
        let cost = if full { LAST } else { CORRECTIVE };
        let mut effort = Effort { tol, passes: Passes { seed, ..cost.passes }, ..cost };
        if self.finishing {
            let steps = effort.max_steps;
            effort = Effort { share: 0.0, polish: steps, in_metric: steps, ..effort };
            effort.tol *= FINISHING;
            if !full {
                effort.passes.count = 0;
            }
        }
        let ConditionalGradientSettings { refit: what, .. } = self.settings;
        let before = self.objective;
        self.objective =
            refit(&self.problem, &mut self.model, what, effort, &mut self.knowledge, interrupt)?;
        if self.iteration > 1 {
            self.gains.rotate_right(1);
            self.gains[0] = Some(before - self.objective);
            let gains = self.gains.iter().take(n_deciding(what)).flatten();
            let little = FINISHING * self.scale * gains.clone().count() as f64;
            self.finishing |= gains.sum::<f64>() <= little;
        }
        self.drop_zero_rows();
        let score = match self.validation {
            Some(validation) => Some(validation.score(&self.model, interrupt)?),
            None => None,
        };
        let model = &self.model;
        self.path.push(PathPoint { n_bases: model.n_bases, validation: score });
        if let Some(Score { score, .. }) = score
            && self.best.as_ref().is_none_or(|(best, _)| score > *best)
        {
            self.best = Some((score, model.clone()));
        }
        Ok(())
    }

    fn drop_zero_rows(&mut self) {
        let keep = rows_to_keep(&self.model.output, self.problem.objective.n_outputs);
        if !keep.iter().all(|keep| *keep) {
            self.model.retain(&keep);
            self.knowledge.retain(&keep, self.problem.objective.n_outputs);
        }
    }
}

impl<R: Rows + Copy> Solver for ConditionalGradient<'_, R> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.iteration += 1;
        // The first epoch fits only the linear terms, so that the first basis vector need not model
        // linear effects.
        if let Some(selection) = self.selection.take() {
            let model = &self.model;
            let overlap = largest_overlap(&model.basis, model.n_bases, &selection.vector);
            let full = model.n_bases >= self.settings.n_components;
            if full || overlap > 1.0 - 1e-10 {
                let before = self.objective;
                self.refit(interrupt)?;
                let gain = before - self.objective;
                let certificate = self.select_next(interrupt)?;
                // If no vector can be added, only a refit that has not converged can still improve
                // the model.
                let stuck = full || gain <= 1e-9 * self.scale;
                return Ok(if stuck {
                    Progress::Exhausted(certificate)
                } else {
                    Progress::Epoch(certificate)
                });
            }
            // The new vector's row of U is zero, so the outputs do not change yet. The refit sets
            // its weights.
            self.model.push(&selection.vector, &vec![0.0; self.problem.objective.n_outputs]);
            if let Some(evaluation) = &mut self.knowledge.evaluation {
                evaluation.output.extend(selection.gradient.iter().map(|g| -g));
            }
        }
        let before = self.objective;
        self.refit(interrupt)?;
        let gain = before - self.objective;
        // Selection is approximate, so the gap can stay above the tolerance although the model hardly improves any
        // more. Epochs with a negligible gain are therefore counted.
        let negligible = (1e-4 * self.settings.tol).max(1e-12) * self.scale;
        self.idle = if gain <= negligible { self.idle + 1 } else { 0 };
        let certificate = self.select_next(interrupt)?;
        let full = self.model.n_bases >= self.settings.n_components;
        Ok(if full || self.idle >= MAX_IDLE_EPOCHS {
            Progress::Exhausted(certificate)
        } else {
            Progress::Epoch(certificate)
        })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.select_next(interrupt)
    }

    /// Returns the basis H, the output weights U and, if there is one, the linear layer.
    fn model_arrays(&self) -> Option<ModelArrays> {
        // With validation, the result may be an earlier model, which has a different certificate.
        let PolynomialModel { basis, output, linear, .. } = &self.model;
        let layers = [Some(basis), Some(output), linear.as_ref()];
        self.validation.is_none().then(|| layers.into_iter().flatten().cloned().collect())
    }
}

/// Marks the rows of the output layer that have an entry above rounding error, relative to the largest weight. The
/// threshold is relative because activations are quadratic in X: if the values of X are about 1e8, the weights are
/// about 1e-16. Rows with NaN are kept, and if a weight is infinite, all rows are kept; the objective then reports the
/// problem.
fn rows_to_keep(output: &[f64], n_outputs: usize) -> Vec<bool> {
    let largest = output.iter().map(|u| u.abs()).fold(0.0, f64::max);
    let small = if largest.is_finite() { 1e-12 * largest } else { -1.0 };
    output.chunks_exact(n_outputs).map(|row| !row.iter().all(|u| u.abs() <= small)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_that_are_small_relative_to_finite_weights_are_removed() {
        let output = [1.0, 0.0, 1e-13, -1e-13, 0.0, 0.0, 0.0, 1e-11];
        assert_eq!(rows_to_keep(&output, 2), [true, false, false, true]);
        assert_eq!(rows_to_keep(&[1e-20, 0.0], 1), [true, false]);
        assert_eq!(rows_to_keep(&[0.0, 0.0], 1), [false, false]);
        assert_eq!(rows_to_keep(&[f64::INFINITY, 1.0, 0.0], 1), [true, true, true]);
        assert_eq!(rows_to_keep(&[f64::NAN, 1.0, 0.0], 1), [true, true, false]);
    }
}
