//! The one loop that every solver runs in: epochs, stopping rule, certificate, trace, interruption.
//!
//! A [`Solver`] only advances. [`run`] decides when it has advanced enough and keeps the [`Trace`].

use std::ops::ControlFlow;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};

/// A primal value and a dual value that bounds the optimum from below: `dual <= optimum <= primal`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certificate {
    /// Objective of the current model.
    pub primal: f64,
    /// Lower bound on the objective of every model.
    pub dual: f64,
}

impl Certificate {
    /// The duality gap: how far from the optimum the current model can be.
    pub fn gap(&self) -> f64 {
        self.primal - self.dual
    }

    /// The gap in units of the objective: the model is at most this share above the best possible one.
    pub fn relative_gap(&self) -> f64 {
        if self.gap() == 0.0 { 0.0 } else { self.gap() / self.primal.abs() }
    }
}

/// What one call of [`Solver::advance`] did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress {
    /// One epoch; the certificate belongs to the model as it now stands.
    Epoch(Certificate),
    /// One epoch whose gap was not evaluated (it would have cost another pass).
    Uncertified,
    /// One epoch of a problem for which no bound is known: the objective of the model as it now stands.
    Objective(f64),
    /// The same, after an epoch that hardly lowered it: the run ends.
    Settled(f64),
    /// Nothing is left to do: the certificate is the best this solver can reach.
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

    /// Refuses an objective or a gap that is no longer a number, since a NaN gap would compare false with
    /// every tolerance and run on, and a bound above the objective, which would look like convergence.
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

impl Certificate {
    /// Refuses what cannot be a certificate: values that are no numbers, and a dual value above the primal
    /// one, which only lost digits can bring about.
    fn check(&self) -> Result<()> {
        let Self { primal, dual } = *self;
        if !primal.is_finite() || dual.is_nan() {
            return Err(no_longer_finite());
        }
        if dual > primal {
            return Err(Error::numerical(format!(
                "the lower bound {dual:e} is above the objective {primal:e}: the numbers have lost their \
                 precision"
            )));
        }
        Ok(())
    }
}

fn no_longer_finite() -> Error {
    Error::numerical("the objective is no longer finite")
}

/// An iterative method that the run loop drives.
pub trait Solver {
    /// Does one epoch, checking `interrupt` at least every 100 ms or so of work.
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress>;

    /// Evaluates the certificate of the current model (called when a run ends on an uncertified epoch).
    ///
    /// A solver that reports [`Progress::Objective`] has none to evaluate and returns an error: it must
    /// be run for at least one epoch.
    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate>;

    /// The model as it stands, where it can be had without another pass.
    fn model_arrays(&self) -> Option<ModelArrays> {
        None
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stopping {
    /// Largest number of epochs.
    pub max_epochs: usize,
    /// Duality gap at which the run has converged, in units of the objective (the primal value).
    pub relative: f64,
    /// Duality gap at which it has converged whatever the objective: rounding.
    pub floor: f64,
}

impl Stopping {
    /// The largest duality gap at which a model of this objective has converged.
    pub fn allowed(&self, primal: f64) -> f64 {
        (self.relative * primal.abs()).max(self.floor)
    }

    /// Whether a certificate says that the run has converged.
    pub fn is_met(&self, certificate: &Certificate) -> bool {
        certificate.gap() <= self.allowed(certificate.primal)
    }
}

/// One epoch as the trace keeps it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Number of epochs done, from 1.
    pub epoch: usize,
    /// Seconds since the run started.
    pub seconds: f64,
    /// Objective after this epoch, where it was evaluated: the certificate's primal value, if there is one.
    pub objective: Option<f64>,
    /// Certificate after this epoch, where it was evaluated and a bound is known.
    pub certificate: Option<Certificate>,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The duality gap reached the tolerance.
    Converged,
    /// The solver had nothing left to do above the tolerance.
    Exhausted,
    /// The epochs were used up.
    EpochLimit,
    /// The observer asked to stop.
    Stopped,
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Every epoch, in order.
    pub epochs: Vec<Epoch>,
    /// Why the run ended.
    pub outcome: Outcome,
    /// Objective of the final model.
    pub objective: f64,
    /// Certificate of the final model, where a bound is known.
    pub certificate: Option<Certificate>,
}

impl Trace {
    /// How far from the optimum the final model can be, where a bound is known.
    pub fn gap(&self) -> Option<f64> {
        self.certificate.map(|certificate| certificate.gap())
    }
}

/// Runs `solver` until its gap is small enough, its epochs are used up, or `observe` says so.
///
/// # Errors
/// What the solver returns, [`Error::Interrupted`] among it, and [`Error::Numerical`] when the
/// objective is no longer finite or the bound is above it.
pub fn run(
    solver: &mut dyn Solver,
    stopping: Stopping,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Trace> {
    let start = Instant::now();
    let mut epochs: Vec<Epoch> = Vec::new();
    let outcome = loop {
        if epochs.len() == stopping.max_epochs {
            break Outcome::EpochLimit;
        }
        interrupt.check()?;
        let progress = solver.advance(interrupt)?;
        progress.check()?;
        let certificate = progress.certificate();
        let epoch = Epoch {
            epoch: epochs.len() + 1,
            seconds: start.elapsed().as_secs_f64(),
            objective: progress.objective(),
            certificate,
        };
        epochs.push(epoch);
        interrupt.show(|| solver.model_arrays());
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
            let certificate = solver.certify(interrupt)?;
            certificate.check()?;
            (certificate.primal, Some(certificate))
        }
    };
    let converged = certificate.is_some_and(|certificate| stopping.is_met(&certificate));
    let outcome = if converged { Outcome::Converged } else { outcome };
    Ok(Trace { epochs, outcome, objective, certificate })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Stopping { max_epochs, relative: 0.0, floor: gap },
            &Interrupt::default(),
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap()
    }

    #[test]
    fn stops_at_the_gap_or_at_the_epochs() {
        let trace = go(0.1, 100);
        assert_eq!((trace.epochs.len(), trace.outcome), (4, Outcome::Converged));
        let trace = go(0.1, 3);
        assert_eq!((trace.epochs.len(), trace.outcome), (3, Outcome::EpochLimit));
        assert_eq!(go(2.0, 0).outcome, Outcome::Converged);
    }

    #[test]
    fn an_observer_or_an_interrupt_ends_the_run() {
        let stopping = Stopping { max_epochs: 100, relative: 0.0, floor: 0.0 };
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
            let stopping = Stopping { max_epochs, relative: 1.0, floor: 1.0 };
            let result =
                run(&mut Liar, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(()));
            let message = result.unwrap_err().to_string();
            assert!(message.contains("above the objective"), "{message}");
            assert!(message.contains("scale the data or regularise more"), "{message}");
        }
    }

    #[test]
    fn the_tolerance_is_relative_to_the_objective_with_a_floor() {
        let stopping = Stopping { max_epochs: 1, relative: 0.1, floor: 1e-3 };
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
            let stopping = Stopping { max_epochs, relative: 0.0, floor: f64::INFINITY };
            run(&mut Unbounded, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(()))
        };
        let trace = run(2).unwrap();
        assert_eq!((trace.epochs.len(), trace.outcome), (2, Outcome::EpochLimit));
        assert_eq!((trace.objective, trace.certificate), (3.0, None));
        assert_eq!((trace.epochs[0].objective, trace.epochs[0].certificate), (Some(3.0), None));
        assert!(run(0).is_err());
    }
}
