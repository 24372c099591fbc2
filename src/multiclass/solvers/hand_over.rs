//! Block descent that hands over to Newton's method if it is slow. Also runs either method alone.

use super::block_descent::BlockDescent;
use super::lambda_path::LambdaPath;
use super::margin_blocks::{MarginBlocks, betas_of, points_of};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::run::{Certificate, Progress, Solver, Stopping, epochs_left};
use crate::solver::{BestPoints, Blocks, Newton, step_cost};

/// Number of epochs over which the pace of block descent is measured.
const WINDOW: usize = 5;
/// Newton's method takes over once block descent has worked for as long as this number of Newton steps would take, or is
/// expected to work for that much longer. On most tables, Newton's method takes 10 to 100 steps, and often fewer from the
/// dual point of block descent. With fewer steps, fits hand over that block descent would soon have finished
/// (docs/experiments.md, "When Newton's method takes over").
const STEPS: f64 = 20.0;
/// Relative gap below which a change of solver saves no time.
const FINEST: f64 = 1e-10;

/// The pace of block descent, which decides when to hand over. Work is counted in values read
/// ([`BlockDescent::work`]), so that the decision does not depend on the machine.
#[derive(Debug)]
struct Pace {
    /// The work before this run.
    start: f64,
    /// The largest work of this run before Newton's method takes over.
    most: f64,
    /// Work and gap of the certified epochs.
    epochs: Vec<(f64, f64)>,
}

impl Pace {
    /// Begins a run after some work, given the cost of a Newton step.
    fn new(start: f64, step_cost: f64) -> Self {
        Self { start, most: STEPS * step_cost, epochs: Vec::new() }
    }

    /// Begins a run of block descent on this problem, and ends its epochs early at the limit of the work.
    fn begin(descent: &mut dyn BlockDescent, blocks: &MarginBlocks<'_>) -> Self {
        let pace = Self::new(descent.work(), step_cost(blocks));
        descent.limit_work(pace.start + pace.most);
        pace
    }

    /// Records an epoch, given the total work so far; returns whether block descent has worked for too long, or is
    /// expected to work for too long until the gap is at most `allowed`.
    fn is_too_slow(&mut self, work: f64, gap: f64, allowed: f64) -> bool {
        self.epochs.push((work, gap));
        let left = self.epochs.len().checked_sub(WINDOW + 1).map_or(0.0, |at| {
            let (earlier, before) = self.epochs[at];
            epochs_left((before, gap), WINDOW, allowed) * (work - earlier) / WINDOW as f64
        });
        left.max(work - self.start) > self.most
    }

    /// Likewise after an epoch at a larger λ, given the number of further λ divided by the number of those that are
    /// done. The further λ are expected to take as much work as those that are done, on average.
    fn is_too_slow_on_path(&self, work: f64, share_left: f64) -> bool {
        share_left.max(1.0) * (work - self.start) > self.most
    }
}

/// A run of block descent, of Newton's method, or of both. If both run, Newton's method continues from the dual point
/// of block descent.
pub(in crate::multiclass) struct HandOver<'p> {
    blocks: &'p MarginBlocks<'p>,
    stopping: Stopping,
    /// The pace of block descent if Newton's method may take over.
    pace: Option<Pace>,
    /// Whether the next epoch is the first epoch of Newton's method.
    is_due: bool,
    /// Whether the last epoch of block descent exhausted its precision.
    is_exhausted: bool,
    n_epochs: usize,
    stage: Stage<'p>,
}

enum Stage<'p> {
    /// Block descent, and its last certificate at the problem's λ.
    Descent(Box<LambdaPath<'p>>, Option<Certificate>),
    Newton(Box<Newton<'p, MarginBlocks<'p>>>),
}

/// The final state of a run.
pub(in crate::multiclass) struct End {
    /// The weights, class by class.
    pub weights: Vec<f64>,
    /// β of the examples if the caller requests them; otherwise empty.
    pub betas: Vec<f64>,
}

impl<'p> HandOver<'p> {
    /// Creates a run that begins with block descent.
    pub fn new(
        blocks: &'p MarginBlocks<'p>,
        mut descent: LambdaPath<'p>,
        stopping: Stopping,
        hands_over: bool,
    ) -> Self {
        let pace = hands_over.then(|| Pace::begin(descent.solver_mut(), blocks));
        Self::begin(blocks, stopping, pace, Stage::Descent(Box::new(descent), None))
    }

    /// Creates a run of Newton's method alone.
    pub fn begin_with_newton(
        blocks: &'p MarginBlocks<'p>,
        newton: Newton<'p, MarginBlocks<'p>>,
        stopping: Stopping,
    ) -> Self {
        Self::begin(blocks, stopping, None, Stage::Newton(Box::new(newton)))
    }

    fn begin(
        blocks: &'p MarginBlocks<'p>,
        stopping: Stopping,
        pace: Option<Pace>,
        stage: Stage<'p>,
    ) -> Self {
        let (is_due, is_exhausted) = (false, false);
        Self { blocks, stopping, pace, is_due, is_exhausted, n_epochs: 0, stage }
    }

    /// Returns the final state of the run.
    pub fn into_end(self, keep_dual: bool) -> End {
        let (weights, betas) = match self.stage {
            Stage::Descent(descent, _) => {
                let solver = descent.into_solver();
                (solver.coefficients(), if keep_dual { solver.betas() } else { Vec::new() })
            }
            Stage::Newton(newton) => {
                let best = newton.into_best();
                let points = if keep_dual { best.points } else { Vec::new() };
                (best.weights, betas_of(self.blocks.problem, points))
            }
        };
        End { weights, betas }
    }

    /// Starts at the given β of the examples.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn start_at(&mut self, betas: Vec<f64>, interrupt: &Interrupt) -> Result<()> {
        match &mut self.stage {
            Stage::Descent(path, _) => path.solver_mut().start_at(&betas, interrupt),
            Stage::Newton(newton) => {
                newton.start_at(points_of(self.blocks.problem, betas), interrupt)
            }
        }
    }

    /// Moves to another λ after a run has ended; returns the certificate at the new λ.
    ///
    /// # Errors
    /// As for [`BlockDescent::move_to`].
    pub fn move_to(
        &mut self,
        blocks: &'p MarginBlocks<'p>,
        interrupt: &Interrupt,
    ) -> Result<Certificate> {
        (self.blocks, self.n_epochs, self.is_due) = (blocks, 0, false);
        match &mut self.stage {
            Stage::Descent(path, last) => {
                if let Some(pace) = &mut self.pace {
                    *pace = Pace::begin(path.solver_mut(), blocks);
                }
                let certificate = path.solver_mut().move_to(blocks.shares().lambda(), interrupt)?;
                *last = Some(certificate);
                Ok(certificate)
            }
            Stage::Newton(newton) => {
                // Stays with Newton's method: if block descent was slow at a larger λ, it would be slow again at this
                // smaller λ, for which the problem is harder.
                let certificate = Certificate { primal: f64::INFINITY, dual: 0.0 };
                let start = BestPoints { certificate, ..newton.best().clone() };
                let mut newton =
                    Newton::resume(blocks, self.stopping, self.null_objective(), start);
                let certificate = newton.certify(interrupt)?;
                self.stage = Stage::Newton(Box::new(newton));
                Ok(certificate)
            }
        }
    }

    /// Block descent and its last certificate; None if Newton's method has taken over.
    pub fn descent(&self) -> Option<(&(dyn BlockDescent + 'p), Certificate)> {
        match &self.stage {
            Stage::Descent(path, Some(certificate)) => Some((path.solver(), *certificate)),
            _ => None,
        }
    }

    /// Whether Newton's method took over because block descent exhausted its precision, not because it was slow.
    pub fn follows_exhaustion(&self) -> bool {
        self.is_exhausted && matches!(self.stage, Stage::Newton(_))
    }

    /// The weights, class by class.
    pub fn weights(&self) -> Vec<f64> {
        match &self.stage {
            Stage::Descent(path, _) => path.solver().coefficients(),
            Stage::Newton(newton) => newton.best().weights.clone(),
        }
    }

    /// β of the examples.
    pub fn betas(&self) -> Vec<f64> {
        match &self.stage {
            Stage::Descent(path, _) => path.solver().betas(),
            Stage::Newton(newton) => betas_of(self.blocks.problem, newton.best().points.clone()),
        }
    }

    fn null_objective(&self) -> f64 {
        self.stopping.null_objective.unwrap_or(f64::INFINITY)
    }

    /// Starts Newton's method around the dual point of block descent. Newton's method begins with the last certificate
    /// of block descent.
    fn hand_over(&mut self, interrupt: &Interrupt) -> Result<()> {
        let null_objective = self.null_objective();
        let Stage::Descent(descent, certificate) = &mut self.stage else { return Ok(()) };
        let certificate = match *certificate {
            Some(certificate) => certificate,
            None => descent.certify(interrupt)?,
        };
        // A dual point with a lower value than the point 0 is not used as the centre. Without curvature, the dual
        // point of block descent may be huge.
        let newton = if certificate.dual > 0.0 {
            let solver = descent.solver();
            let points = points_of(self.blocks.problem, solver.betas());
            let start = BestPoints { certificate, weights: solver.coefficients(), points };
            Newton::resume(self.blocks, self.stopping, null_objective, start)
        } else {
            Newton::new(self.blocks, self.stopping, null_objective)
        };
        self.stage = Stage::Newton(Box::new(newton));
        Ok(())
    }
}

impl Solver for HandOver<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if self.is_due {
            self.hand_over(interrupt)?;
            self.is_due = false;
        }
        let (descent, last) = match &mut self.stage {
            Stage::Newton(newton) => return newton.advance(interrupt),
            Stage::Descent(descent, last) => (descent, last),
        };
        let progress = descent.advance(interrupt)?;
        self.n_epochs += 1;
        *last = match progress {
            Progress::Epoch(certificate) | Progress::Exhausted(certificate) => Some(certificate),
            _ => None,
        };
        let Some(pace) = &mut self.pace else { return Ok(progress) };
        let work = descent.solver().work();
        let Some(certificate) = *last else {
            self.is_due = pace.is_too_slow_on_path(work, descent.share_left());
            return Ok(progress);
        };
        self.is_exhausted = matches!(progress, Progress::Exhausted(_));
        let allowed = self.stopping.allowed(certificate.primal).max(FINEST * certificate.primal);
        self.is_due = pace.is_too_slow(work, certificate.gap(), allowed) || self.is_exhausted;
        Ok(Progress::Epoch(certificate))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        match &mut self.stage {
            Stage::Descent(descent, last) => {
                descent.certify(interrupt).inspect(|certificate| *last = Some(*certificate))
            }
            Stage::Newton(newton) => newton.certify(interrupt),
        }
    }

    fn n_first(&self) -> Option<usize> {
        matches!(self.stage, Stage::Newton(_)).then_some(self.n_epochs)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        match &self.stage {
            Stage::Descent(descent, _) => descent.model_arrays(),
            Stage::Newton(newton) => newton.model_arrays(),
        }
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        match &self.stage {
            Stage::Descent(descent, _) => descent.copy_weights(weights),
            Stage::Newton(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};
    use crate::dual::Shares;
    use crate::multiclass::{Linear, MarginProblem, Order};
    use crate::polytope::MaxHinge;

    const START: f64 = 1000.0;

    /// The first epoch after which Newton's method takes over if each epoch takes the work of some Newton steps.
    fn first_epoch(n_steps: f64, gap: impl Fn(i32) -> f64, allowed: f64) -> Option<i32> {
        let mut pace = Pace::new(START, 1.0);
        let work = |epoch: i32| START + n_steps * f64::from(epoch);
        (1..100).find(|&epoch| pace.is_too_slow(work(epoch), gap(epoch), allowed))
    }

    #[test]
    fn newton_takes_over_when_the_gap_falls_slowly() {
        let (steps, window) = (STEPS as i32, WINDOW as i32);
        // If each epoch halves the gap, it takes ten epochs to reach a thousandth; with a factor of .8, it takes 31,
        // and 14 to reach a twentieth.
        assert_eq!(first_epoch(1.0, |epoch| 0.5_f64.powi(epoch), 1e-3), Some(steps + 1));
        assert_eq!(first_epoch(1.0, |epoch| 0.8_f64.powi(epoch), 1e-3), Some(window + 1));
        assert_eq!(first_epoch(1.0, |epoch| 0.8_f64.powi(epoch), 0.05), Some(steps + 1));
        assert_eq!(first_epoch(3.0, |epoch| 0.8_f64.powi(epoch), 0.05), Some(window + 1));
        let stalls = |epoch: i32| if epoch < 9 { 0.5_f64.powi(epoch) } else { 0.5_f64.powi(9) };
        assert_eq!(first_epoch(1.0, stalls, 1e-3), Some(9 + window));
    }

    #[test]
    fn newton_takes_over_when_the_path_is_long() {
        let pace = Pace::new(START, 1.0);
        assert!(!pace.is_too_slow_on_path(START + STEPS, 0.0));
        assert!(pace.is_too_slow_on_path(START + STEPS + 1.0, 0.0));
        assert!(!pace.is_too_slow_on_path(START + STEPS / 4.0, 4.0));
        assert!(pace.is_too_slow_on_path(START + STEPS / 4.0, 5.0));
    }

    /// The cost of a Newton step on 40 rows of which 30 have a share.
    fn step_cost_of(d: usize, m: usize) -> f64 {
        let n = 40;
        let x = Array2::from_shape_fn((n, d), |(row, column)| ((row + column) % 7) as f64);
        let labels: Vec<u32> = (0..n).map(|row| (row % m) as u32).collect();
        let weights: Vec<f64> = (0..n).map(|row| f64::from(u8::from(row >= 10))).collect();
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let map = Linear::new(data, m, 0.0, Order::Examples);
        let shares = Shares::new(n, 1.0).unwrap().with_sample_weights(&weights).unwrap();
        let problem = MarginProblem::new(map, &labels, Box::new(MaxHinge), shares).unwrap();
        step_cost(&MarginBlocks::new(&problem))
    }

    #[test]
    fn a_newton_step_costs_passes_and_products() {
        // A system for 5 x 4 weights has 5 x 3 unknowns.
        let products = 30.0 * 6.0 * 25.0 / 2.0 + 15.0_f64.powi(3) / 6.0;
        let expected = 3.0 * 30.0 * 20.0 + 200.0 * 30.0 * 4.0 + products / 14.0;
        assert!((step_cost_of(5, 4) - expected).abs() < 1e-9 * expected);
        // With 2004 weights, the system is not factorised.
        assert_eq!(step_cost_of(501, 4), 100.0 * 30.0 * 2004.0 + 200.0 * 30.0 * 4.0);
    }
}
