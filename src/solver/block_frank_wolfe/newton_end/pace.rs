//! The decision to hand over to Newton's method.

use crate::run::{Certificate, Stopping, epochs_left};

/// Passes that the tolerance may be away at the present pace.
const MAX_EPOCHS_LEFT: f64 = 50.0;
/// Passes before the pace is known.
const FIRST_PASSES: usize = 4;

/// The pace at which the gap of a run falls.
pub(crate) struct Pace {
    stopping: Stopping,
    /// Passes and gap at the last certificate.
    last: Option<(usize, f64)>,
}

impl Pace {
    /// The pace of a run that ends where `stopping` says.
    pub fn new(stopping: Stopping) -> Self {
        Self { stopping, last: None }
    }

    /// When the run ends.
    pub fn stopping(&self) -> Stopping {
        self.stopping
    }

    /// Whether at the pace since the certificate before this one, which belongs to a pass, the tolerance is too many
    /// passes away.
    pub fn is_too_slow(&mut self, pass: usize, certificate: Certificate) -> bool {
        let gap = certificate.gap();
        let Some((before, gap_before)) = self.last.replace((pass, gap)) else { return false };
        if pass < FIRST_PASSES || self.stopping.is_met(&certificate) {
            return false;
        }
        let allowed = self.stopping.allowed(certificate.primal);
        epochs_left((gap_before, gap), pass - before, allowed) > MAX_EPOCHS_LEFT
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
    fn a_run_goes_on_while_its_pace_reaches_the_tolerance_soon() {
        let halving: Vec<f64> = (0..9).map(|k| 0.5_f64.powi(k)).collect();
        assert!(!decisions(&halving, 1e-3).contains(&true));
        // 1e-9 is 30 halvings away, 1e-30 is 100.
        assert!(!decisions(&halving, 1e-9).contains(&true));
        assert!(decisions(&halving, 1e-30)[3]);
    }

    #[test]
    fn a_stalled_run_hands_over_unless_it_is_done() {
        assert_eq!(decisions(&[0.5, 0.5, 0.5, 0.5], 1e-3), [false, false, false, true]);
        assert!(decisions(&[0.5, 0.4, 0.3, 0.6], 1e-3)[3]);
        assert_eq!(decisions(&[0.5, 0.5, 0.5, 0.5], 0.6), [false; 4]);
        // No gap but 0 is small enough.
        assert!(decisions(&[0.5, 0.25, 0.125, 0.0625], 0.0)[3]);
    }
}
