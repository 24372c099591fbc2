//! Solves the linear systems of Newton's method by preconditioned conjugate gradients.

use super::passes::RowPasses;
use super::preconditioner::{HessianPart, Preconditioner};
use super::store::BlockSample;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{long_axpy, long_dot};

/// Maximum number of steps of conjugate gradients.
const LONGEST: usize = 60;
/// Once the expected gain is below this multiple of the gap to reach, conjugate gradients also require a small residual
/// norm; earlier, this requirement would only cost steps. The first value is for preconditioners from a part of the
/// Hessian, the second for those from the whole Hessian.
const NEAR: [f64; 2] = [2.0, 5.0];
/// Maximum number of weights for which the Hessian of a sample may be factorised. The blocks of all classes together
/// may be as large as the largest such Hessian.
pub(super) const FACTORISED: usize = 1500;
/// Maximum number of columns for which the first Hessian of a single output is factorised, from all rows.
const NARROW: usize = 64;
/// Preconditioners are computed from a sample of at least half this number of rows, or of half of
/// all rows if there are fewer rows than this.
const SAMPLED: usize = 1000;
/// The number of steps of conjugate gradients that the next system is assumed to need.
const NEXT_STEPS: usize = 3;

/// The requirements on a solution.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// The gap to reach, in the same units as the objective.
    pub gap: f64,
    /// Conjugate gradients end once the residual is at most this fraction of its first value.
    pub reduction: f64,
    /// Whether the gradient is computed from all rows instead of a sample.
    pub exact: bool,
}

/// Solves the systems of one fit.
pub(super) struct ConjugateGradients {
    width: usize,
    n_outputs: usize,
    /// The diagonal of the regulariser's Hessian, one value for each column; 0 for the intercept.
    penalties: Vec<f64>,
    preconditioner: Option<Preconditioner>,
    /// Number of multiplications by conjugate gradients so far.
    work: f64,
    /// Number of steps for the last system.
    n_last: usize,
    /// Number of times that progress has stalled. After the first time, systems are solved more accurately. After the
    /// second time, preconditioners are also computed from all rows, which costs more.
    n_stalled: usize,
}

impl ConjugateGradients {
    pub fn new(store: &dyn RowPasses) -> Self {
        let problem = store.problem();
        let mut penalties: Vec<f64> =
            store.units().iter().map(|unit| 1.0 / (unit * unit)).collect();
        if problem.intercept() {
            penalties[problem.n_features()] = 0.0;
        }
        Self {
            width: store.width(),
            n_outputs: problem.n_outputs(),
            penalties,
            preconditioner: None,
            work: 0.0,
            n_last: 0,
            n_stalled: 0,
        }
    }

    /// Prepares for another problem with similar Hessians. The preconditioner stays.
    pub fn restart(&mut self) {
        self.work = 0.0;
        self.n_stalled = 0;
    }

    /// Adds the regulariser's gradient to `gradient`, and returns the regulariser's value.
    pub fn regularise(&self, weights: &[f64], gradient: &mut [f64]) -> f64 {
        let mut square = 0.0;
        let lines = weights.chunks_exact(self.width).zip(gradient.chunks_exact_mut(self.width));
        for (weights, gradient) in lines {
            for ((w, g), penalty) in weights.iter().zip(gradient).zip(&self.penalties) {
                *g += penalty * w;
                square += penalty * w * w;
            }
        }
        0.5 * square
    }

    /// ½ ‖g‖² in the units of W, without the intercept.
    pub fn gap_of(&self, gradient: &[f64]) -> f64 {
        let own = |line: &[f64]| -> f64 {
            let pairs = line.iter().zip(&self.penalties).filter(|(_, penalty)| **penalty > 0.0);
            pairs.map(|(g, penalty)| g * g / penalty).sum()
        };
        0.5 * gradient.chunks_exact(self.width).map(own).sum::<f64>()
    }

    /// Solves all further systems more accurately.
    pub fn take_care(&mut self) {
        self.n_stalled += 1;
    }

    /// Whether preconditioners are computed from all rows.
    fn uses_all_rows(&self) -> bool {
        self.n_stalled > 1
    }

    /// Returns the Newton direction for a gradient.
    pub fn solve(
        &mut self,
        store: &mut dyn RowPasses,
        gradient: &[f64],
        (sample, goal): (BlockSample, Goal),
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let first = self.preconditioner.is_none();
        self.choose(store, (sample, goal), interrupt)?;
        let mut residual: Vec<f64> = gradient.iter().map(|value| -value).collect();
        self.centre(&mut residual);
        if first && self.kind() == Some(HessianPart::Shared) {
            self.apply(&mut residual);
            return Ok(residual);
        }
        self.iterate(store, residual, (sample, goal), interrupt)
    }

    /// For more than two classes, subtracts each column's mean over the classes. This mean affects no probability and
    /// is 0 at the optimum, so only rounding errors change it.
    fn centre(&self, values: &mut [f64]) {
        if self.n_outputs == 1 {
            return;
        }
        let mut means = vec![0.0; self.width];
        for line in values.chunks_exact(self.width) {
            means.iter_mut().zip(line).for_each(|(mean, value)| *mean += value);
        }
        means.iter_mut().for_each(|mean| *mean /= self.n_outputs as f64);
        for line in values.chunks_exact_mut(self.width) {
            line.iter_mut().zip(&means).for_each(|(value, mean)| *value -= mean);
        }
    }

    fn kind(&self) -> Option<HessianPart> {
        self.preconditioner.as_ref().map(|preconditioner| preconditioner.kind)
    }

    fn apply(&self, values: &mut [f64]) {
        if let Some(preconditioner) = &self.preconditioner {
            preconditioner.apply(values);
        }
        self.centre(values);
    }

    /// Computes a new preconditioner if there is none, if the last one has become too inaccurate, or if a larger part
    /// of the Hessian is worth its cost.
    fn choose(
        &mut self,
        store: &mut dyn RowPasses,
        (sample, goal): (BlockSample, Goal),
        interrupt: &Interrupt,
    ) -> Result<()> {
        if !store.has_factors() {
            return self.make(store, (HessianPart::Diagonal, sample), interrupt);
        }
        let Some(last) = self.kind() else {
            // At W = 0, one block that all classes share is exact. Over all rows it costs as much as `width / 5`
            // products of one class with the Hessian.
            let most = if self.n_outputs == 1 { NARROW } else { 8 * self.n_outputs };
            let shared = self.width <= most;
            let kind = if shared { HessianPart::Shared } else { HessianPart::Diagonal };
            let rows = if shared { sample } else { self.preconditioned(store, sample) };
            return self.make(store, (kind, rows), interrupt);
        };
        let larger = match last {
            HessianPart::Shared if self.n_outputs == 1 => Some(HessianPart::PerClass),
            _ if goal.exact => self.larger_part(store, NEXT_STEPS),
            _ => None,
        };
        let fixed = matches!(last, HessianPart::Shared | HessianPart::Diagonal);
        let last_work = self.n_last as f64 * store.product_cost();
        let worn = !fixed && (self.uses_all_rows() || last_work >= self.cost(store, last));
        if larger.is_some() || worn {
            let rows = self.preconditioned(store, sample);
            self.make(store, (larger.unwrap_or(last), rows), interrupt)?;
        }
        Ok(())
    }

    /// Returns the largest part of the Hessian whose factorisation costs at most as much as all conjugate gradients so
    /// far and `n_steps` more, or `None` if the last preconditioner contains this part already.
    fn larger_part(&self, store: &dyn RowPasses, n_steps: usize) -> Option<HessianPart> {
        let last = self.kind()?;
        if !store.has_factors() || last == HessianPart::Full {
            return None;
        }
        let work = self.work + n_steps as f64 * store.product_cost();
        let pays = |kind| self.uses_all_rows() || work >= self.cost(store, kind);
        let n = self.n_outputs * self.width;
        if self.n_outputs > 1 && n <= FACTORISED && pays(HessianPart::Full) {
            return Some(HessianPart::Full);
        }
        let fits = last != HessianPart::PerClass && n * self.width <= FACTORISED * FACTORISED;
        (fits && pays(HessianPart::PerClass)).then_some(HessianPart::PerClass)
    }

    /// Returns the rows from which a preconditioner is computed.
    fn preconditioned(&self, store: &dyn RowPasses, sample: BlockSample) -> BlockSample {
        if self.uses_all_rows() {
            return sample;
        }
        let n = store.problem().n_examples();
        let share: f64 = if n > 5000 { 0.1 } else { 0.15 };
        let own = store.sample(share.max((SAMPLED as f64 / n as f64).min(1.0) * 0.5));
        if own.n_blocks < sample.n_blocks { own } else { sample }
    }

    fn make(
        &mut self,
        store: &mut dyn RowPasses,
        (kind, rows): (HessianPart, BlockSample),
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.preconditioner = Some(store.preconditioner(kind, rows, &self.penalties, interrupt)?);
        Ok(())
    }

    /// Cost of a factorisation, in units of a multiplication in a product of dense rows with the Hessian. The
    /// coefficients were fitted to times on letter, satimage, dna and segment.
    fn cost(&self, store: &dyn RowPasses, kind: HessianPart) -> f64 {
        let (width, n_outputs) = (self.width as f64, self.n_outputs as f64);
        let n = width * n_outputs;
        let factor = match kind {
            HessianPart::Full => 2.6 * n * n * n,
            _ => n * width * (150.0 + 7.0 * width),
        };
        factor + store.sums_cost(kind, self.preconditioned(store, store.all()))
    }

    /// Returns the preconditioned squared residual norm at which conjugate gradients end, and whether the plain
    /// residual norm is small enough.
    fn target(&self, (start, next): (f64, f64), residual: &[f64], goal: Goal) -> (f64, bool) {
        let near = NEAR[usize::from(self.kind() == Some(HessianPart::Full))] * goal.gap;
        let last = goal.exact && 0.5 * start < near;
        let careful = self.n_stalled > 0;
        let reduction = if careful { 0.1 * goal.reduction } else { goal.reduction };
        let target = reduction * reduction * start;
        let target = if last && !careful { target.max(0.1 * goal.gap) } else { target };
        let small = !last || self.gap_of(residual) <= 0.3 * goal.gap || next <= 1e-6 * start;
        (target, small)
    }

    /// Runs conjugate gradients, starting at 0.
    fn iterate(
        &mut self,
        store: &mut dyn RowPasses,
        mut residual: Vec<f64>,
        (sample, goal): (BlockSample, Goal),
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let preconditioned = |system: &Self, residual: &[f64]| {
            let mut values = residual.to_vec();
            system.apply(&mut values);
            values
        };
        let right = residual.clone();
        let mut solution = vec![0.0; residual.len()];
        let mut steepest = preconditioned(self, &residual);
        let mut direction = steepest.clone();
        let mut size = long_dot(&residual, &steepest);
        let mut start = size;
        let mut product = Vec::new();
        let mut step = 0;
        let longest = if self.n_stalled > 0 { 5 * LONGEST } else { LONGEST };
        while step < longest && size > 0.0 {
            store.product(&direction, sample, &mut product, interrupt)?;
            self.regularise(&direction, &mut product);
            self.centre(&mut product);
            let curvature = long_dot(&direction, &product);
            if curvature.is_nan() || curvature <= 0.0 {
                break;
            }
            let length = size / curvature;
            long_axpy(&mut solution, length, &direction);
            long_axpy(&mut residual, -length, &product);
            step += 1;
            steepest = preconditioned(self, &residual);
            let next = long_dot(&residual, &steepest);
            let (target, small) = self.target((start, next), &residual, goal);
            if next.is_nan() || next <= target && small {
                break;
            }
            let larger = if goal.exact { self.larger_part(store, step) } else { None };
            if let Some(kind) = larger.filter(|_| next > 4.0 * target) {
                let rows = self.preconditioned(store, sample);
                self.make(store, (kind, rows), interrupt)?;
                start = long_dot(&right, &preconditioned(self, &right));
                steepest = preconditioned(self, &residual);
                size = long_dot(&residual, &steepest);
                direction.copy_from_slice(&steepest);
                continue;
            }
            let keep = next / size;
            size = next;
            direction.iter_mut().zip(&steepest).for_each(|(d, s)| *d = keep * *d + s);
        }
        if goal.exact {
            self.work += step as f64 * store.product_cost();
        }
        self.n_last = step;
        Ok(solution)
    }
}
