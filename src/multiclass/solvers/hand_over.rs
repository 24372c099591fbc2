//! Block descent that hands over to Newton's method if its epochs stall. Also runs either method alone.

use super::block_descent::BlockDescent;
use super::lambda_path::LambdaPath;
use super::margin_blocks::{MarginBlocks, betas_of, points_of};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::run::{Certificate, Progress, Solver, Stopping, epochs_left};
use crate::solver::{BestPoints, Blocks, Newton};

/// Number of epochs over which the pace of block descent is measured.
const WINDOW: usize = 5;
/// Newton's method takes over if block descent, at its present pace, would need more than this number of further
/// epochs. From a dual point near the optimum, Newton's method takes 5 to 15 steps, and each step takes several times
/// as long as an epoch.
const AHEAD: f64 = 25.0;
/// [`AHEAD`] for more weights than [`FEW_WEIGHTS`], where a step of Newton's method takes longer. Block descent that
/// really stalls soon expects more than 140 further epochs (raw MNIST pixels, columns of mean 100 and deviation 1), but
/// epochs that speed up later also expect 31 (400 rows of 250 such columns in 24 classes).
const AHEAD_OF_MANY: f64 = 100.0;
/// Number of weights up to which [`AHEAD`] holds.
const FEW_WEIGHTS: usize = 5000;
/// Block descent also counts as stalling after more than this many epochs at larger λ, which have no certificates.
const MAX_UNCERTIFIED: usize = 50;

/// Relative gap below which a change of solver saves no time.
const FINEST: f64 = 1e-10;

/// The pace of block descent, which decides when to hand over.
#[derive(Debug)]
struct Pace {
    /// The number of further epochs above which Newton's method takes over.
    ahead: f64,
    /// Gaps of the certified epochs.
    gaps: Vec<f64>,
    n_uncertified: usize,
}

impl Pace {
    /// Begins without epochs, for a problem with this number of weights.
    fn new(n_weights: usize) -> Self {
        let ahead = if n_weights <= FEW_WEIGHTS { AHEAD } else { AHEAD_OF_MANY };
        Self { ahead, gaps: Vec::new(), n_uncertified: 0 }
    }

    /// Begins without epochs, for this problem.
    fn of(blocks: &MarginBlocks<'_>) -> Self {
        Self::new(blocks.design().n_features() * blocks.n_parts())
    }

    /// Records an epoch; returns whether more than `ahead` further epochs are expected until the gap is at most
    /// `allowed`. For an epoch without a gap, returns whether there have been more than [`MAX_UNCERTIFIED`] of them.
    fn is_stalling(&mut self, gap: Option<f64>, allowed: f64) -> bool {
        let Some(gap) = gap else {
            self.n_uncertified += 1;
            return self.n_uncertified > MAX_UNCERTIFIED;
        };
        self.gaps.push(gap);
        let [.., before, _, _, _, _, now] = self.gaps[..] else { return false };
        epochs_left((before, now), WINDOW, allowed) > self.ahead
    }
}

/// A run of block descent, of Newton's method, or of both. If both run, Newton's method continues from the dual point
/// of block descent.
pub(in crate::multiclass) struct HandOver<'p> {
    blocks: &'p MarginBlocks<'p>,
    stopping: Stopping,
    /// Whether Newton's method may take over.
    hands_over: bool,
    pace: Pace,
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
        descent: LambdaPath<'p>,
        stopping: Stopping,
        hands_over: bool,
    ) -> Self {
        let stage = Stage::Descent(Box::new(descent), None);
        Self::begin(blocks, stopping, hands_over, stage)
    }

    /// Creates a run of Newton's method alone.
    pub fn begin_with_newton(
        blocks: &'p MarginBlocks<'p>,
        newton: Newton<'p, MarginBlocks<'p>>,
        stopping: Stopping,
    ) -> Self {
        Self::begin(blocks, stopping, false, Stage::Newton(Box::new(newton)))
    }

    fn begin(
        blocks: &'p MarginBlocks<'p>,
        stopping: Stopping,
        hands_over: bool,
        stage: Stage<'p>,
    ) -> Self {
        let (pace, is_due, is_exhausted) = (Pace::of(blocks), false, false);
        Self { blocks, stopping, hands_over, pace, is_due, is_exhausted, n_epochs: 0, stage }
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
        (self.blocks, self.pace) = (blocks, Pace::of(blocks));
        (self.n_epochs, self.is_due) = (0, false);
        match &mut self.stage {
            Stage::Descent(path, last) => {
                let certificate = path.solver_mut().move_to(blocks.shares().lambda(), interrupt)?;
                *last = Some(certificate);
                Ok(certificate)
            }
            Stage::Newton(newton) => {
                // Stays with Newton's method: if block descent stalled at a larger λ, it would stall again at this
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

    /// Whether Newton's method took over because block descent exhausted its precision, not because block descent
    /// stalled.
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
        if !self.hands_over {
            return Ok(progress);
        }
        let Some(certificate) = *last else {
            self.is_due = self.pace.is_stalling(None, 0.0);
            return Ok(progress);
        };
        self.is_exhausted = matches!(progress, Progress::Exhausted(_));
        let allowed = self.stopping.allowed(certificate.primal).max(FINEST * certificate.primal);
        self.is_due = self.pace.is_stalling(Some(certificate.gap()), allowed) || self.is_exhausted;
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
    use super::*;

    fn first_stall(gap: impl Fn(usize) -> Option<f64>, allowed: f64) -> Option<usize> {
        first_stall_of(1000, gap, allowed)
    }

    fn first_stall_of(
        n_weights: usize,
        gap: impl Fn(usize) -> Option<f64>,
        allowed: f64,
    ) -> Option<usize> {
        let mut pace = Pace::new(n_weights);
        (1..=1000).find(|&epoch| pace.is_stalling(gap(epoch), allowed))
    }

    #[test]
    fn newton_takes_over_when_the_gap_hardly_falls() {
        let halving = |epoch: usize| Some(0.5_f64.powi(epoch as i32));
        // If each epoch halves the gap, it takes ten epochs to reach a thousandth; with a factor of 0.95, it takes 135
        // epochs.
        assert_eq!(first_stall(halving, 1e-3), None);
        let slow = |epoch: usize| Some(0.95_f64.powi(epoch as i32));
        assert_eq!(first_stall(slow, 1e-3), Some(WINDOW + 1));
        let near = |epoch: usize| Some(0.95_f64.powi(epoch as i32) * 2e-3);
        assert_eq!(first_stall(near, 1e-3), None);
        let still = |epoch: usize| Some(if epoch < 20 { halving(epoch)? } else { 1e-6 });
        assert_eq!(first_stall(still, 1e-7), Some(20 + WINDOW));
    }

    #[test]
    fn many_weights_need_a_slower_pace() {
        let slow = |epoch: usize| Some(0.9_f64.powi(epoch as i32));
        assert_eq!(first_stall_of(5000, slow, 1e-3), Some(WINDOW + 1));
        assert_eq!(first_stall_of(5001, slow, 1e-3), None);
        let slower = |epoch: usize| Some(0.98_f64.powi(epoch as i32));
        assert_eq!(first_stall_of(5001, slower, 1e-3), Some(WINDOW + 1));
    }

    #[test]
    fn epochs_without_a_certificate_are_counted() {
        assert_eq!(first_stall(|_| None, 0.0), Some(MAX_UNCERTIFIED + 1));
    }
}
