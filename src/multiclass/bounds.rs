//! What examples add to a certificate, with bounds on the rounding errors.

use super::{MarginProblem, ScoreMap, Workspace};
use crate::data::Real;
use crate::dual::rounding::{Sum, gamma, norm_above};
use crate::dual::{BlockTerms, Bounded, Shares, Totals, objective};
use crate::linalg::Sparse;
use crate::linalg::vectors::dot_in_order;
use crate::polytope::lifted;
use crate::run::Certificate;

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
    #[inline]
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

    /// Adds an example's dual point, for shares that may have another λ than the problem's.
    #[inline]
    pub fn add_dual(
        &mut self,
        problem: &MarginProblem<'_>,
        shares: &Shares,
        example: usize,
        beta: &Sparse,
    ) {
        if beta.is_empty() {
            return self.dual.add_start();
        }
        let length: f64 = beta.iter().map(|(_, value)| value.abs()).sum();
        let terms = BlockTerms {
            linear: problem.linear_term(example, beta),
            bend: shares.smoothing() * lifted::squared_norm_of(beta),
            length: length * (1.0 + gamma(beta.len())),
            n_entries: beta.len(),
            defect: problem.polytope().distance(beta, problem.label(example), problem.n_classes()),
            scales: problem.scales(example, problem.map().row_size(example)),
        };
        self.dual.add(shares, example, &terms);
    }

    /// The certificate at w = w(β) as summed up: λ/2 ‖w‖² + the loss, rounded up, and D(β), rounded down.
    pub fn certificate<T: Real>(&self, lambda: f64, weights: &[T]) -> Certificate {
        let norm = norm_above(weights) + self.distance();
        let dual = self.dual.value(lambda, norm).bound();
        Certificate { primal: objective(lambda, weights, self.loss.total()), dual }
    }

    /// The same at w = w₀ + w(β), both class after class: λ/2 ‖v‖² + the loss of w₀ + v, and D(β) −
    /// λ ⟨w₀, v⟩, with v = w(β).
    pub fn certificate_around(&self, lambda: f64, weights: &[f64], origin: &[f64]) -> Certificate {
        let image: Vec<f64> = weights.iter().zip(origin).map(|(w, origin)| w - origin).collect();
        let (around, depth) = (norm_above(origin), gamma(self.dual.depth()));
        // The sum began at w₀, in whose size it was rounded.
        let lost = depth * (around + norm_above(weights));
        let norm = norm_above(&image) + lost;
        let primal = Bounded::exact(0.5 * lambda) * Bounded::exact(norm) * Bounded::exact(norm);
        let distance = self.distance() + lost;
        let inner = dot_in_order(&image, origin);
        let error = around * (distance + gamma(image.len() + 2) * norm);
        let inner = Bounded::new(inner, error) * Bounded::exact(lambda);
        let dual = self.dual.value(lambda, norm + distance).bound();
        let primal = (primal + self.loss.total()).upper();
        Certificate { primal, dual: (Bounded::exact(dual) - inner).lower() }
    }

    /// A bound on what separates w(β) from its image as summed up.
    pub fn distance(&self) -> f64 {
        self.dual.distance()
    }

    /// What the dual points add to the dual beside the regulariser, rounded down.
    pub fn dual_terms(&self) -> f64 {
        self.dual.linear()
    }
}
