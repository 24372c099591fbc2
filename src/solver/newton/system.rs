//! The linear system of a Newton step: (I + Σ_i c_i A_iᵀ J_i A_i) d = −r, where c_i = p_i/(λ · curvature) and J_i is
//! the derivative of block i's maximiser.

use super::active::{Active, active};
use super::blocks::Blocks;
use super::design::Design;
use super::dual_system::DualSystem;
use super::hessian::ReducedHessian;
use super::part_factors::{PartFactors, n_factor_values, subtract_mean};
use super::passes::InnerEvaluation;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::linalg::vectors::{long_axpy, long_dot};

/// Largest number of unknowns for which the system is factorised.
pub const FACTORISED: usize = 2000;
/// Largest number of values in the factors of a preconditioner (1 GiB).
const MAX_FACTOR_VALUES: usize = 1 << 27;
/// Conjugate gradients end as soon as the residual is at most this share of its first value, unless [`NEAR_GOAL`]
/// requires more accuracy.
const REDUCTION: f64 = 0.1;
/// When the expected gain of a Newton step is below this multiple of the goal, the linear system is solved
/// accurately, because the certificate needs a small residual. Before that, accuracy would only cost iterations.
const NEAR_GOAL: f64 = 40.0;
/// The maximum number of conjugate gradient iterations per system.
const MAX_CG_STEPS: usize = 500;

/// Whether the system over these features and parts is factorised, or conjugate gradients have a preconditioner that
/// does not depend on the scales and correlations of the features.
pub fn has_strong_preconditioner(n_features: usize, n_parts: usize) -> bool {
    n_features.saturating_mul(n_parts) <= FACTORISED
        || n_factor_values(n_features, n_parts) <= MAX_FACTOR_VALUES
}

/// Solves the systems of one fit.
pub(super) struct System {
    n_parts: usize,
    n_unknowns: usize,
    preconditioner: Option<PartFactors>,
    /// Number of multiplications in conjugate gradients since the preconditioner was built.
    work: f64,
}

impl System {
    pub fn new(design: &Design<'_>, n_parts: usize) -> Self {
        let n_unknowns = design.n_features() * n_parts;
        Self { n_parts, n_unknowns, preconditioner: None, work: 0.0 }
    }

    /// Computes the Newton direction. `goal` is the gap to which the inner problem has to be solved.
    pub fn solve<B: Blocks>(
        &mut self,
        blocks: &B,
        at: &InnerEvaluation,
        curvature: f64,
        goal: f64,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let active = active(blocks, &at.points, curvature, interrupt)?;
        let mut direction: Vec<f64> = at.residual.iter().map(|value| -value).collect();
        if self.n_unknowns <= FACTORISED {
            let hessian = ReducedHessian::new(&blocks.design(), self.n_parts, &active, interrupt)?;
            hessian.solve(&mut direction);
            return Ok(direction);
        }
        let goal = goal / blocks.shares().lambda();
        let dual = DualSystem::new(&blocks.design(), self.n_parts, &active, interrupt)?;
        self.conjugate_gradients(blocks, (&active, dual.as_ref()), &direction, goal, interrupt)
    }

    /// Runs conjugate gradients from 0. If few rows are active, the preconditioner is the inverse of their system.
    /// Otherwise it is the diagonal until the iterations have cost as much as factorising the blocks of the matrix on
    /// its diagonal. From then on it is the inverse of these blocks.
    fn conjugate_gradients<B: Blocks>(
        &mut self,
        blocks: &B,
        (active, dual): (&Active, Option<&DualSystem>),
        right: &[f64],
        goal: f64,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let design = blocks.design();
        let diagonal = active.diagonal(&design, self.n_parts, interrupt)?;
        let mut solution = vec![0.0; right.len()];
        let mut residual = right.to_vec();
        let (mut start, mut before) = (0.0, f64::INFINITY);
        let mut direction = vec![0.0; right.len()];
        let mut is_new = false;
        for step in 0..MAX_CG_STEPS {
            if dual.is_none() && !is_new && self.is_due(&design, active) {
                // Frees the memory of the previous factors first.
                self.preconditioner = None;
                let factors = PartFactors::new(&design, self.n_parts, active, interrupt)?;
                self.preconditioner = Some(factors);
                (self.work, before, is_new) = (0.0, f64::INFINITY, true);
            }
            let mut steepest = residual.clone();
            match (dual, &self.preconditioner) {
                (Some(dual), _) => dual.solve(&mut steepest),
                (None, Some(factors)) => factors.solve(&mut steepest),
                (None, None) => {
                    steepest.iter_mut().zip(&diagonal).for_each(|(value, own)| *value /= own);
                    subtract_mean(&mut steepest, design.n_features(), self.n_parts);
                }
            }
            let size = long_dot(&residual, &steepest);
            if step == 0 {
                start = size;
            }
            let near = 0.5 * start < NEAR_GOAL * goal;
            let is_small = size <= REDUCTION * REDUCTION * start
                && (!near || 0.5 * squared_norm(&residual) <= 0.3 * goal);
            if is_small || size.is_nan() || size <= 0.0 {
                break;
            }
            let keep = if before.is_finite() { size / before } else { 0.0 };
            before = size;
            direction.iter_mut().zip(&steepest).for_each(|(d, s)| *d = keep * *d + s);
            let product = active.product(&design, self.n_parts, &direction, interrupt)?;
            self.work += active.product_cost(&design, self.n_parts);
            let length = size / long_dot(&direction, &product);
            long_axpy(&mut solution, length, &direction);
            long_axpy(&mut residual, -length, &product);
        }
        Ok(solution)
    }

    /// Whether conjugate gradients have cost as much as building the next preconditioner would.
    fn is_due(&self, design: &Design<'_>, active: &Active) -> bool {
        let d = design.n_features();
        if n_factor_values(d, self.n_parts) > MAX_FACTOR_VALUES {
            return false;
        }
        self.work > PartFactors::cost(d, self.n_parts, active)
    }
}
