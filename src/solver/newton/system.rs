//! The linear system of a Newton step: (I + Σ_i c_i A_iᵀ J_i A_i) d = −r, where c_i = p_i/(λ · curvature) and J_i is
//! the derivative of block i's maximiser.

use super::active::{Active, active};
use super::blocks::Blocks;
use super::dual_system::DualSystem;
use super::hessian::ReducedHessian;
use super::part_factors::{PartFactors, has_part_factors, n_factor_values};
use super::passes::InnerEvaluation;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{long_axpy, long_dot};
use crate::linalg::{Design, squared_norm};
use crate::memory::fits;

/// Largest number of unknowns for which the system is factorised.
pub const FACTORISED: usize = 2000;
/// Conjugate gradients end as soon as the residual is at most this share of its first value, unless [`NEAR_GOAL`]
/// requires more accuracy.
const REDUCTION: f64 = 0.1;
/// When the expected gain of a Newton step is below this multiple of the goal, the linear system is solved
/// accurately, because the certificate needs a small residual. Before that, accuracy would only cost iterations.
const NEAR_GOAL: f64 = 40.0;
/// The maximum number of conjugate gradient iterations per system.
const MAX_CG_STEPS: usize = 500;

/// Estimated number of passes over the rows in a Newton step if the system is factorised: scores and image of the
/// points, and scores of the direction.
const PASSES: f64 = 3.0;
/// The same with conjugate gradients.
const CG_PASSES: f64 = 100.0;
/// Time to maximise over one part of a block, in units of the time that block descent takes to read a value.
const PER_PART: f64 = 200.0;
/// Number of multiplications in products of matrices that take as long as block descent takes to read a value.
const PRODUCTS: f64 = 14.0;

/// An estimate of the time of a Newton step, in units of the time that block descent takes to read a value; all blocks
/// are assumed to have curvature in all parts. On one thread, it was within a factor of 2.5 of the measured time on 15
/// tables in double precision, with up to 2000 weights and 30 parts. The estimate for more weights is rough.
pub fn step_cost<B: Blocks>(blocks: &B) -> f64 {
    let (design, m, shares) = (blocks.design(), blocks.n_parts() as f64, blocks.shares());
    let n = (0..design.n_rows()).filter(|row| shares.of(*row) > 0.0).count() as f64;
    let pass = n * m * design.n_stored() as f64 / design.n_rows().max(1) as f64;
    let d = design.n_features() as f64;
    let system = if m * d <= FACTORISED as f64 {
        PASSES * pass + (n * m * (m - 1.0) * d * d / 4.0 + ((m - 1.0) * d).powi(3) / 6.0) / PRODUCTS
    } else {
        CG_PASSES * pass
    };
    system + PER_PART * n * m
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
        let (d, m) = (design.n_features(), self.n_parts);
        let preconditioned = |preconditioner: &Option<PartFactors>, vector: &[f64]| {
            let mut vector = vector.to_vec();
            match (dual, preconditioner) {
                (Some(dual), _) => dual.solve(&mut vector),
                (None, Some(factors)) => factors.solve(&mut vector),
                (None, None) => divide(&mut vector, &diagonal),
            }
            if dual.is_none() {
                subtract_mean(&mut vector, d, m);
            }
            vector
        };
        // The matrix leaves the mean over the parts unchanged.
        let mut centred = right.to_vec();
        subtract_mean(&mut centred, d, m);
        let mut solution: Vec<f64> = right.iter().zip(&centred).map(|(r, c)| r - c).collect();
        let mut residual = centred.clone();
        let (mut start, mut before, mut is_new) = (0.0, f64::INFINITY, false);
        let mut direction = vec![0.0; right.len()];
        for step in 0..MAX_CG_STEPS {
            if dual.is_none() && !is_new && self.is_due(&design, active) {
                // Frees the memory of the previous factors first.
                self.preconditioner = None;
                self.preconditioner = Some(PartFactors::new(&design, m, active, interrupt)?);
                (self.work, before, is_new) = (0.0, f64::INFINITY, true);
                start = long_dot(&centred, &preconditioned(&self.preconditioner, &centred));
            }
            let steepest = preconditioned(&self.preconditioner, &residual);
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
            let product = active.product(&design, m, &direction, interrupt)?;
            self.work += active.product_cost(&design, m);
            let length = size / long_dot(&direction, &product);
            long_axpy(&mut solution, length, &direction);
            long_axpy(&mut residual, -length, &product);
        }
        Ok(solution)
    }

    /// Whether conjugate gradients have cost as much as building the next preconditioner would, and there is memory for
    /// it.
    fn is_due(&self, design: &Design<'_>, active: &Active) -> bool {
        let d = design.n_features();
        has_part_factors(d, self.n_parts)
            && self.work > PartFactors::cost(d, self.n_parts, active)
            && fits(8 * n_factor_values(d, self.n_parts) as u128)
    }
}

/// Divides each value by the value of `divisors` at the same index.
fn divide(values: &mut [f64], divisors: &[f64]) {
    values.iter_mut().zip(divisors).for_each(|(value, divisor)| *value /= divisor);
}

/// Subtracts the mean over the parts from each feature.
///
/// The system maps vectors that sum to 0 over the parts to such vectors. A preconditioner that is the same for all
/// parts keeps this sum. For any other, the mean must be removed: the matrix leaves vectors with equal parts unchanged,
/// but the preconditioner shrinks them, so conjugate gradients would need additional iterations for them.
fn subtract_mean(vector: &mut [f64], n_features: usize, n_parts: usize) {
    let mut mean = vec![0.0; n_features];
    for part in vector.chunks_exact(n_features) {
        mean.iter_mut().zip(part).for_each(|(mean, value)| *mean += value);
    }
    mean.iter_mut().for_each(|mean| *mean /= n_parts as f64);
    for part in vector.chunks_exact_mut(n_features) {
        part.iter_mut().zip(&mean).for_each(|(value, mean)| *value -= mean);
    }
}
