//! Decides when Newton's method takes over a block Frank-Wolfe run.

use crate::run::{Certificate, Stopping, epochs_left};

/// Newton's method takes over if, at the current rate, reaching the tolerance would take more than
/// this number of passes, unless the solver requires more.
const MAX_EPOCHS_LEFT: f64 = 50.0;
/// Number of passes before the rate is measured.
const FIRST_PASSES: usize = 4;

/// The rate at which the gap of a run falls.
pub(crate) struct Pace {
    stopping: Stopping,
    max_epochs_left: f64,
    /// Number of passes and gap at the last certificate.
    last: Option<(usize, f64)>,
}

impl Pace {
    /// The rate of a run with this stopping rule.
    pub fn new(stopping: Stopping) -> Self {
        Self { stopping, max_epochs_left: MAX_EPOCHS_LEFT, last: None }
    }

    /// Requires that more than this number of passes is left, because Newton's method takes as long.
    #[must_use]
    pub fn worth(self, n_passes: f64) -> Self {
        Self { max_epochs_left: self.max_epochs_left.max(n_passes), ..self }
    }

    /// The stopping rule of the run.
    pub fn stopping(&self) -> Stopping {
        self.stopping
    }

    /// Whether reaching the tolerance would take too many passes, at the rate since the previous
    /// certificate. `pass` is the number of the pass that computed `certificate`.
    pub fn is_too_slow(&mut self, pass: usize, certificate: Certificate) -> bool {
        let gap = certificate.gap();
        let Some((before, gap_before)) = self.last.replace((pass, gap)) else { return false };
        if pass < FIRST_PASSES || self.stopping.is_met(&certificate) {
            return false;
        }
        let allowed = self.stopping.allowed(certificate.primal);
        epochs_left((gap_before, gap), pass - before, allowed) > self.max_epochs_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(gaps: &[f64], relative: f64) -> Vec<bool> {
        let stopping =
            Stopping { max_epochs: 1000, relative, floor: 0.0, null_objective: Some(1.0) };
        let mut pace = Pace::new(stopping);
        let certificate = |gap: &f64| Certificate { primal: 1.0, dual: 1.0 - gap };
        (1..).zip(gaps).map(|(pass, gap)| pace.is_too_slow(pass, certificate(gap))).collect()
    }

    #[test]
    fn a_run_continues_if_its_pace_reaches_the_tolerance_soon() {
        let halving: Vec<f64> = (0..9).map(|k| 0.5_f64.powi(k)).collect();
        assert!(!decisions(&halving, 1e-3).contains(&true));
        // Reaching 1e-9 takes 30 halvings; reaching 1e-30 takes 100.
        assert!(!decisions(&halving, 1e-9).contains(&true));
        assert!(decisions(&halving, 1e-30)[3]);
    }

    #[test]
    fn a_run_waits_until_newton_is_worth_its_time() {
        let stopping =
            Stopping { max_epochs: 1000, relative: 1e-9, floor: 0.0, null_objective: Some(1.0) };
        let decision = |n_passes: f64| {
            let mut pace = Pace::new(stopping).worth(n_passes);
            let slow = |pass: i32| Certificate { primal: 1.0, dual: 1.0 - 0.8_f64.powi(pass) };
            (1..=9).any(|pass| pace.is_too_slow(pass as usize, slow(pass)))
        };
        // After the fourth pass, about 89 passes are left.
        assert!(decision(0.0) && decision(85.0) && !decision(95.0));
    }

    #[test]
    fn a_stalled_run_hands_over_unless_it_is_done() {
        assert_eq!(decisions(&[0.5, 0.5, 0.5, 0.5], 1e-3), [false, false, false, true]);
        assert!(decisions(&[0.5, 0.4, 0.3, 0.6], 1e-3)[3]);
        assert_eq!(decisions(&[0.5, 0.5, 0.5, 0.5], 0.6), [false; 4]);
        // With a tolerance of 0, only a gap of 0 is small enough.
        assert!(decisions(&[0.5, 0.25, 0.125, 0.0625], 0.0)[3]);
    }
}
