//! What examples add to a certificate, with bounds on the rounding errors.

use super::{MarginProblem, Workspace};
use crate::dual::rounding::{Sum, gamma};
use crate::dual::{BlockTerms, Bounded, DualValue, Totals, objective};
use crate::linalg::Sparse;
use crate::polytope::lifted;

/// Sums over some examples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    loss: Sum,
    dual: Totals,
}

impl Bounds {
    /// Adds the sums over other examples.
    pub fn join(&mut self, other: &Self) {
        self.loss.join(&other.loss);
        self.dual.join(&other.dual);
    }

    /// Adds the loss of an example at its margins, of exact scores of weights of norm at most `norm`; returns
    /// it.
    pub fn add_loss(
        &mut self,
        problem: &MarginProblem<'_>,
        example: usize,
        margins: &[f64],
        norm: f64,
        work: &mut Workspace,
    ) -> f64 {
        let loss = problem.bounded_loss(example, margins, norm, work);
        self.loss.add(loss * Bounded::exact(problem.shares().of(example)));
        loss.value()
    }

    /// Adds an example's dual point.
    pub fn add_dual(&mut self, problem: &MarginProblem<'_>, example: usize, beta: &Sparse) {
        let length: f64 = beta.iter().map(|(_, value)| value.abs()).sum();
        let terms = BlockTerms {
            linear: problem.linear_term(example, beta),
            bend: problem.shares().smoothing() * lifted::squared_norm_of(beta),
            length: length * (1.0 + gamma(beta.len())),
            n_entries: beta.len(),
            defect: problem.polytope().distance(beta, problem.n_classes()),
            scales: problem.scales(example, problem.map().row_size(example)),
        };
        self.dual.add(problem.shares(), example, &terms);
    }

    /// λ/2 ‖w‖² + the loss, rounded up.
    pub fn objective(&self, lambda: f64, weights: &[f64]) -> f64 {
        objective(lambda, weights, self.loss.total())
    }

    /// The loss.
    pub fn loss(&self) -> Bounded {
        self.loss.total()
    }

    /// A bound on what separates w(β) from its image as summed up.
    pub fn distance(&self) -> f64 {
        self.dual.distance()
    }

    /// The dual value for a bound on ‖w(β)‖.
    pub fn dual_value(&self, lambda: f64, norm: f64) -> DualValue {
        self.dual.value(lambda, norm)
    }

    /// What the dual points add to the dual beside the regulariser, rounded down.
    pub fn dual_terms(&self) -> f64 {
        self.dual.linear()
    }
}
