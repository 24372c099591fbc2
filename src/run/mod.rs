//! The loop that drives every solver: epochs, stopping rule, certificates, trace, interruption.
//!
//! A [`Solver`] only computes the next epoch. [`run`] decides when to stop, and records the
//! [`Trace`].

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

mod best;
mod certificate;
mod pace;

use best::Best;
pub use best::Returned;
pub use certificate::Certificate;
use certificate::no_longer_finite;
pub use pace::epochs_left;

use crate::error::Result;
use crate::interrupt::{EpochModel, Interrupt, ModelArrays};

/// Result of one call of [`Solver::advance`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress {
    /// One epoch, with the certificate of the current model.
    Epoch(Certificate),
    /// One epoch without a certificate, because computing one would cost another pass.
    Uncertified,
    /// One epoch of a problem for which no bound is known, with the objective of the current model.
    Objective(f64),
    /// Like `Objective`, but the epoch hardly lowered the objective, so the run ends.
    Settled(f64),
    /// No further progress is possible; the certificate is the best that this solver can reach.
    Exhausted(Certificate),
}

impl Progress {
    fn certificate(self) -> Option<Certificate> {
        match self {
            Self::Epoch(certificate) | Self::Exhausted(certificate) => Some(certificate),
            Self::Uncertified | Self::Objective(_) | Self::Settled(_) => None,
        }
    }

    fn objective(self) -> Option<f64> {
        match self {
            Self::Objective(objective) | Self::Settled(objective) => Some(objective),
            other => other.certificate().map(|certificate| certificate.primal),
        }
    }

    /// Checks the objective and the gap. Without this check, a NaN gap would never be within a
    /// tolerance, and the run would continue; a bound above the objective would look like
    /// convergence.
    fn check(self) -> Result<()> {
        if !self.objective().is_none_or(f64::is_finite) {
            return Err(no_longer_finite());
        }
        match self.certificate() {
            Some(certificate) => certificate.check(),
            None => Ok(()),
        }
    }
}

/// An iterative method, driven by [`run`].
pub trait Solver {
    /// Computes one epoch. Checks `interrupt` about every 100 ms or more often.
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress>;

    /// Computes the certificate of the current model. Called if a run ends after an uncertified epoch.
    ///
    /// A solver that reports [`Progress::Objective`] has no certificate and returns an error here,
    /// so it must run for at least one epoch.
    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate>;

    /// Number of epochs before Newton's method took over; None while it has not.
    fn n_first(&self) -> Option<usize> {
        None
    }

    /// The current model, if it is available without an extra pass.
    fn model_arrays(&self) -> Option<ModelArrays> {
        None
    }

    /// Copies the weights to which the last certificate belongs, and returns whether it has copied them. A solver
    /// whose objective never increases needs no copy.
    fn copy_weights(&self, _weights: &mut Vec<f64>) -> bool {
        false
    }
}

/// The stopping rule of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stopping {
    /// Maximum number of epochs.
    pub max_epochs: usize,
    /// Duality gap, relative to the objective (the primal value), at which the run has converged.
    pub relative: f64,
    /// Duality gap that is within rounding error. At this gap, the run has converged, however small the objective is.
    pub floor: f64,
    /// Objective of W = 0, whose dual point has the value 0. If it is given, the run returns the
    /// best model and the best bound that it has found, including W = 0 and the bound 0. Otherwise
    /// it returns the last model, for callers that continue from the dual point of that model.
    pub null_objective: Option<f64>,
}

impl Stopping {
    /// The largest duality gap that counts as converged for a model with this objective.
    pub fn allowed(&self, primal: f64) -> f64 {
        (self.relative * primal.abs()).max(self.floor)
    }

    /// Whether this certificate meets the stopping rule.
    pub fn is_met(&self, certificate: &Certificate) -> bool {
        certificate.gap() <= self.allowed(certificate.primal)
    }
}

/// An epoch of the trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Number of the epoch, counted from 1.
    pub epoch: usize,
    /// Seconds since the run started.
    pub seconds: f64,
    /// Objective after this epoch, if it was evaluated. If there is a certificate, this is its
    /// primal value.
    pub objective: Option<f64>,
    /// Certificate of the model that the run would return if it ended here, if it was evaluated and
    /// a bound is known.
    pub certificate: Option<Certificate>,
}

/// The reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The duality gap reached the tolerance.
    Converged,
    /// No further progress was possible above the tolerance.
    Exhausted,
    /// The maximum number of epochs was reached.
    EpochLimit,
    /// The observer asked the run to stop.
    Stopped,
}

/// The record of a run. Its [`Debug`](fmt::Debug) output shows the number of epochs instead of every epoch.
#[derive(Clone, PartialEq)]
pub struct Trace {
    /// Every epoch, in order.
    pub epochs: Vec<Epoch>,
    /// Number of epochs before Newton's method took over; the number of all epochs if it did not.
    pub n_first: usize,
    /// The reason why the run ended.
    pub outcome: Outcome,
    /// Objective of the final model.
    pub objective: f64,
    /// Certificate of the final model, if a bound is known.
    pub certificate: Option<Certificate>,
    /// The final model.
    pub returned: Returned,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("epochs", &self.epochs.len())
            .field("outcome", &self.outcome)
            .field("objective", &self.objective)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// An upper bound on the final model's distance from the optimum, if known.
    pub fn gap(&self) -> Option<f64> {
        self.certificate.map(|certificate| certificate.gap())
    }

    /// The `n_weights` weights of the final model; None if the final model is the model of the last
    /// epoch.
    pub fn take_other(&mut self, n_weights: usize) -> Option<Vec<f64>> {
        match std::mem::replace(&mut self.returned, Returned::Last) {
            Returned::Last => None,
            Returned::Zero => Some(vec![0.0; n_weights]),
            Returned::Earlier(weights) => Some(weights),
        }
    }
}

/// Runs `solver` until the gap is small enough, the maximum number of epochs is reached, or
/// `observe` stops it.
///
/// The run returns the best model and the highest bound that it finds (see
/// [`Stopping::null_objective`]). Each epoch of the trace has the certificate of the best model and
/// bound so far.
///
/// # Errors
/// Errors of the solver, such as [`Interrupted`](crate::error::Error::Interrupted), and
/// [`Numerical`](crate::error::Error::Numerical) if the objective is no longer finite, or if the
/// bound exceeds the objective.
pub fn run(
    solver: &mut dyn Solver,
    stopping: Stopping,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Trace> {
    let start = Instant::now();
    let mut epochs: Vec<Epoch> = Vec::new();
    let mut best = Best::new(stopping.null_objective);
    let outcome = loop {
        if epochs.len() == stopping.max_epochs {
            break Outcome::EpochLimit;
        }
        interrupt.check()?;
        best.keep(|weights| solver.copy_weights(weights));
        let progress = solver.advance(interrupt)?;
        progress.check()?;
        let certificate = progress.certificate().map(|present| best.update(present));
        let epoch = Epoch {
            epoch: epochs.len() + 1,
            seconds: start.elapsed().as_secs_f64(),
            objective: certificate.map_or(progress.objective(), |best| Some(best.primal)),
            certificate,
        };
        epochs.push(epoch);
        let present = || solver.model_arrays();
        interrupt.show(|| {
            let arrays = if certificate.is_some() { best.arrays(present) } else { present() }?;
            Some(EpochModel { arrays, n_first: n_first(solver, epochs.len()) })
        });
        let stop = observe(&epoch).is_break();
        if certificate.is_some_and(|certificate| stopping.is_met(&certificate)) {
            break Outcome::Converged;
        }
        if matches!(progress, Progress::Exhausted(_) | Progress::Settled(_)) {
            break Outcome::Exhausted;
        }
        if stop {
            break Outcome::Stopped;
        }
    };
    let last = epochs.last().and_then(|epoch| Some((epoch.objective?, epoch.certificate)));
    let (objective, certificate) = match last {
        Some(evaluated) => evaluated,
        None => {
            let present = solver.certify(interrupt)?;
            present.check()?;
            let certificate = best.update(present);
            (certificate.primal, Some(certificate))
        }
    };
    let converged = certificate.is_some_and(|certificate| stopping.is_met(&certificate));
    let outcome = if converged { Outcome::Converged } else { outcome };
    let n_first = n_first(solver, epochs.len());
    Ok(Trace { epochs, n_first, outcome, objective, certificate, returned: best.returned() })
}

/// Number of epochs, of `n_epochs`, that Newton's method did not compute.
fn n_first(solver: &dyn Solver, n_epochs: usize) -> usize {
    solver.n_first().unwrap_or(n_epochs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Halves its gap every epoch.
    struct Halving(f64);

    impl Solver for Halving {
        fn advance(&mut self, _: &Interrupt) -> Result<Progress> {
            self.0 /= 2.0;
            Ok(Progress::Epoch(Certificate { primal: self.0, dual: 0.0 }))
        }
        fn certify(&mut self, _: &Interrupt) -> Result<Certificate> {
            Ok(Certificate { primal: self.0, dual: 0.0 })
        }
    }

    fn go(gap: f64, max_epochs: usize) -> Trace {
        run(
            &mut Halving(1.0),
            Stopping { max_epochs, relative: 0.0, floor: gap, null_objective: None },
            &Interrupt::default(),
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap()
    }

    #[test]
    fn runs_end_at_the_tolerance_or_at_the_epoch_limit() {
        let trace = go(0.1, 100);
        assert_eq!((trace.epochs.len(), trace.outcome), (4, Outcome::Converged));
        let trace = go(0.1, 3);
        assert_eq!((trace.epochs.len(), trace.outcome), (3, Outcome::EpochLimit));
        assert_eq!(go(2.0, 0).outcome, Outcome::Converged);
    }

    #[test]
    fn an_observer_or_an_interrupt_ends_the_run() {
        let stopping =
            Stopping { max_epochs: 100, relative: 0.0, floor: 0.0, null_objective: None };
        let interrupt = Interrupt::default();
        let trace = run(&mut Halving(1.0), stopping, &interrupt, &mut |epoch| {
            if epoch.epoch == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(trace.unwrap().outcome, Outcome::Stopped);
        let result = run(&mut Halving(1.0), stopping, &interrupt, &mut |_| {
            interrupt.raise();
            ControlFlow::Continue(())
        });
        assert_eq!(result, Err(Error::Interrupted));
    }

    /// Claims a bound above its objective.
    struct Liar;

    impl Solver for Liar {
        fn advance(&mut self, _: &Interrupt) -> Result<Progress> {
            self.certify(&Interrupt::default()).map(Progress::Exhausted)
        }
        fn certify(&mut self, _: &Interrupt) -> Result<Certificate> {
            Ok(Certificate { primal: 1.0, dual: 1.0 + f64::EPSILON })
        }
    }

    #[test]
    fn a_bound_above_the_objective_is_an_error_that_names_the_remedy() {
        for max_epochs in [0, 1] {
            let stopping = Stopping { max_epochs, relative: 1.0, floor: 1.0, null_objective: None };
            let result =
                run(&mut Liar, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(()));
            let message = result.unwrap_err().to_string();
            assert!(message.contains("above the objective"), "{message}");
            assert!(message.contains("scale the data or regularise more"), "{message}");
        }
    }

    #[test]
    fn the_tolerance_is_relative_to_the_objective_with_a_floor() {
        let stopping = Stopping { max_epochs: 1, relative: 0.1, floor: 1e-3, null_objective: None };
        let met = |primal, dual| stopping.is_met(&Certificate { primal, dual });
        assert!(met(1.0, 0.9) && !met(1.0, 0.89) && met(100.0, 90.0) && !met(100.0, 89.0));
        assert!(met(1e-4, -5e-4) && !met(1e-4, -1e-2));
        let certificate = Certificate { primal: 2.0, dual: 1.5 };
        assert_eq!((certificate.gap(), certificate.relative_gap()), (0.5, 0.25));
        assert_eq!(Certificate { primal: 0.0, dual: 0.0 }.relative_gap(), 0.0);
    }

    /// Has an objective but no bound.
    struct Unbounded;

    impl Solver for Unbounded {
        fn advance(&mut self, _: &Interrupt) -> Result<Progress> {
            Ok(Progress::Objective(3.0))
        }
        fn certify(&mut self, _: &Interrupt) -> Result<Certificate> {
            Err(Error::argument("max_epochs", "must be at least 1"))
        }
    }

    #[test]
    fn without_a_bound_the_epochs_are_used_up_and_nothing_is_certified() {
        let run = |max_epochs| {
            let stopping =
                Stopping { max_epochs, relative: 0.0, floor: f64::INFINITY, null_objective: None };
            run(&mut Unbounded, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(()))
        };
        let trace = run(2).unwrap();
        assert_eq!((trace.epochs.len(), trace.outcome), (2, Outcome::EpochLimit));
        assert_eq!((trace.objective, trace.certificate), (3.0, None));
        assert_eq!((trace.epochs[0].objective, trace.epochs[0].certificate), (Some(3.0), None));
        assert!(run(0).is_err());
    }
}
