//! The projected (sub)gradient method on all examples at once: the batch form of Pegasos
//! (Shalev-Shwartz et al. 2011), and the baseline PG of Tajima et al. (2020, section 3).

use super::Start;
use crate::dual::rounding::gamma;
use crate::dual::{BatchDual, Sums, objective};
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::squared_norm;
use crate::linalg::vectors::blend;
use crate::run::{Certificate, Progress, Solver};

/// Iterates w ← (1 − 1/t) w + (1/t) w(U), where u_i is a (sub)gradient of the loss of example i at
/// w. This is a gradient step of length 1/(λt). Then projects onto the ball ‖w‖² ≤ P(0)/λ, which
/// contains the optimum.
///
/// The average of all points U so far is a dual point, which the projections shrink towards the
/// start vertices. So w = w(μ) for a feasible μ, and the dual objective costs nothing extra
/// (`docs/mathematics/frank-wolfe.md`).
pub struct ProjectedGradient<'d, D> {
    dual: &'d mut D,
    at: Start,
    /// Image w(U) at the current weights.
    image: Vec<f64>,
    /// The sums of U; None until the pass that computes U.
    ahead: Option<Sums>,
    largest_squared_norm: f64,
    best_dual: f64,
}

impl<'d, D: BatchDual> ProjectedGradient<'d, D> {
    /// Starts at w = 0, where the objective P(0) is `null_objective`.
    pub fn new(dual: &'d mut D, null_objective: f64) -> Self {
        let zero = vec![0.0; dual.n_weights()];
        let at = Start { weights: zero.clone(), ..Start::default() };
        let largest_squared_norm = null_objective / dual.shares().lambda();
        Self { dual, at, image: zero, ahead: None, largest_squared_norm, best_dual: 0.0 }
    }

    /// Returns the model.
    pub fn into_weights(self) -> Vec<f64> {
        self.at.weights
    }

    /// Computes U at the current weights.
    fn evaluate(&mut self, interrupt: &Interrupt) -> Result<Sums> {
        if let Some(sums) = self.ahead {
            return Ok(sums);
        }
        let sums = self.dual.batch_subgradient(&self.at.weights, &mut self.image, interrupt)?;
        self.ahead = Some(sums);
        Ok(sums)
    }

    /// Takes a step towards U, and projects.
    fn walk(&mut self, sums: &Sums) {
        let rate = 1.0 / (self.at.drift.n_steps as f64 + 1.0);
        let stay = 1.0 - rate;
        blend(&mut self.at.weights, (stay, rate), &self.image);
        self.at.linear = stay * self.at.linear + rate * sums.linear;
        // An upper bound by Jensen's inequality, because μ is not stored.
        self.at.square = stay * self.at.square + rate * sums.square;
        self.at.drift.step(rate, sums);
        self.at.drift.force += rate * sums.outside[0] * (1.0 + gamma(8));
        self.at.drift.linear += rate * sums.outside[1] * (1.0 + gamma(8));
        self.ahead = None;
        let square = squared_norm(&self.at.weights);
        if square > self.largest_squared_norm {
            let factor = (self.largest_squared_norm / square).sqrt();
            self.at.weights.iter_mut().for_each(|weight| *weight *= factor);
            self.at.linear *= factor;
            self.at.square *= factor;
        }
    }
}

impl<D: BatchDual> Solver for ProjectedGradient<'_, D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let sums = self.evaluate(interrupt)?;
        self.walk(&sums);
        Ok(Progress::Epoch(self.certify(interrupt)?))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        // The next step needs this pass anyway, so the loss costs nothing extra.
        let loss = self.evaluate(interrupt)?.loss;
        let loss = loss.ok_or_else(|| Error::Numerical("the dual gave no loss".into()))?;
        let shares = self.dual.shares();
        self.best_dual = self.best_dual.max(self.at.bound(shares));
        let primal = objective(shares.lambda(), &self.at.weights, loss);
        Ok(Certificate { primal, dual: self.best_dual })
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.at.weights.clone()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.at.weights);
        true
    }
}
