//! Algorithm 1 of paper 003: conditional gradient with corrective refitting (SPEC 5).

use super::eigen::dot;
use super::kernel::GradientMatrices;
use super::model::{Model, largest_overlap};
use super::problem::Problem;
use super::refit_full::refit_full;
use super::refit_output::refit_output;
use super::select::{Selection, select};
use super::state::{State, layer_gradient, residuals};
use crate::data::Rows;
use crate::error::Result;
use crate::run::{Certificate, Interrupt, Progress, Solver};

/// What is re-optimised after each new basis vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refit {
    /// The output layer and the linear terms: convex.
    Output,
    /// The basis as well: not convex; the certificate still is that of the convex problem.
    Full,
}

/// Settings of the solver.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Largest number of basis vectors.
    pub n_components: usize,
    /// What is refitted.
    pub refit: Refit,
    /// Relative tolerance of the eigenvalue solver in basis selection.
    pub selection_tol: f64,
    /// Gap at which the user will stop, relative to the null model's objective.
    pub tol: f64,
    /// Seed of the start vectors of basis selection.
    pub seed: u64,
}

/// Grows the basis one vector at a time.
#[derive(Debug)]
pub struct ConditionalGradient<'a, R> {
    problem: Problem<'a, R>,
    settings: Settings,
    state: State,
    selection: Option<Selection>,
    /// Objective of the null model: the unit of all tolerances.
    scale: f64,
    iteration: u64,
}

impl<'a, R: Rows + Copy> ConditionalGradient<'a, R> {
    /// Starts from `model` (the null model, or an earlier fit's).
    pub fn new(
        problem: Problem<'a, R>,
        settings: Settings,
        model: Model,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        problem.check()?;
        let null = Model::new(
            model.kernel,
            model.augmented,
            model.n_features,
            model.n_outputs,
            model.linear.is_some(),
        );
        let scale = State::new(&problem, null, interrupt)?.layers.objective;
        let state = State::new(&problem, model, interrupt)?;
        Ok(Self { problem, settings, state, selection: None, scale, iteration: 0 })
    }

    /// The current model.
    pub fn model(&self) -> &Model {
        &self.state.model
    }

    /// Objective of the null model.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Selects the next basis vector and, with its bound, evaluates the duality gap:
    /// ⟨O_U, R⟩ + τ max_h ω*(g_h) + ‖∂F/∂W‖²/(2α).
    ///
    /// The last term is the gap of the strongly convex linear part (Fenchel; zero at its optimum).
    fn look_ahead(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let problem = &self.problem;
        let (residual, _) = residuals(problem, &self.state.layers.outputs, interrupt)?;
        let linear = self.state.layers.linear.as_deref();
        let gradient =
            layer_gradient(problem, &self.state.activations, linear, &residual, interrupt)?;
        let negative: Vec<f64> = residual.iter().map(|r| -r).collect();
        let rows = problem.basis_rows();
        let gamma =
            GradientMatrices::new(&rows, problem.kernel, &negative, problem.n_outputs, interrupt)?;
        let seed = self.settings.seed.wrapping_add(self.iteration.wrapping_mul(0x5851_F42D));
        let selection = select(&gamma, problem.penalty, self.settings.selection_tol, seed)?;
        let inner = dot(&self.state.layers.output, &gradient.output);
        let linear_gap = match problem.ridge {
            Some(ridge) => dot(&gradient.linear, &gradient.linear) / (2.0 * ridge),
            None => 0.0,
        };
        let gap = inner + problem.radius * selection.bound + linear_gap;
        self.selection = Some(selection);
        let primal = self.state.layers.objective;
        // Rounding can leave a gap of −1e-16 at the optimum.
        Ok(Certificate { primal, dual: primal - gap.max(0.0) })
    }

    fn refit(&mut self, interrupt: &Interrupt) -> Result<()> {
        let tol = 1e-2 * self.settings.tol * self.scale;
        match self.settings.refit {
            Refit::Output => refit_output(&self.problem, &mut self.state, tol, interrupt)?,
            Refit::Full => {
                refit_output(&self.problem, &mut self.state, tol, interrupt)?;
                refit_full(&self.problem, &mut self.state, tol, interrupt)?;
            }
        }
        self.drop_zero_rows(interrupt)
    }

    fn drop_zero_rows(&mut self, interrupt: &Interrupt) -> Result<()> {
        let m = self.problem.n_outputs;
        let rows = self.state.model.output.chunks_exact(m);
        let keep: Vec<bool> = rows.map(|row| row.iter().any(|u| u.abs() > 1e-12)).collect();
        if keep.iter().all(|keep| *keep) {
            return Ok(());
        }
        let mut model = self.state.model.clone();
        model.retain(&keep);
        self.state = State::new(&self.problem, model, interrupt)?;
        Ok(())
    }
}

impl<R: Rows + Copy> Solver for ConditionalGradient<'_, R> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.iteration += 1;
        // The first epoch fits the linear terms alone, so that the first basis vector is not spent
        // on what they explain.
        if let Some(selection) = self.selection.take() {
            let model = &self.state.model;
            let overlap = largest_overlap(&model.basis, model.n_bases, &selection.vector);
            let full = model.n_bases >= self.settings.n_components;
            if full || overlap > 1.0 - 1e-10 {
                let before = self.state.layers.objective;
                self.refit(interrupt)?;
                let gain = before - self.state.layers.objective;
                let certificate = self.look_ahead(interrupt)?;
                // With no vector to add, only an unfinished refit can still gain.
                let stuck = full || gain <= 1e-9 * self.scale;
                return Ok(if stuck {
                    Progress::Exhausted(certificate)
                } else {
                    Progress::Epoch(certificate)
                });
            }
            // A zero row changes nothing: the refit decides how much of the vector to use.
            let mut model = model.clone();
            model.push(&selection.vector, &vec![0.0; self.problem.n_outputs]);
            self.state = State::new(&self.problem, model, interrupt)?;
        }
        self.refit(interrupt)?;
        let certificate = self.look_ahead(interrupt)?;
        Ok(if self.state.model.n_bases >= self.settings.n_components {
            Progress::Exhausted(certificate)
        } else {
            Progress::Epoch(certificate)
        })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.look_ahead(interrupt)
    }
}
