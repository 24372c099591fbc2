//! Decides when Newton's method takes over a block Frank-Wolfe run.

use crate::run::{Certificate, Stopping, epochs_left};

/// Newton's method never takes over if, at the current rate, at most this number of passes is left.
const MIN_EPOCHS_LEFT: f64 = 50.0;
/// Time of one multiplication in Newton's method, in units of the time that a pass takes per entry, times the usual
/// number of Newton steps. Measured on chains with three labels and 50 to 2,000 weights; accurate within a factor of 2.
const PRODUCT: f64 = 0.2;
/// Newton's method takes over only if its estimated time is at most the time of this number of runs of `max_epochs`
/// passes.
const MAX_RUNS: f64 = 10.0;
/// Number of passes before the rate is measured.
const FIRST_PASSES: usize = 4;

/// The rate at which the gap of a run falls.
pub(crate) struct Pace {
    stopping: Stopping,
    /// Estimated time of Newton's method, in passes.
    newton: f64,
    /// Number of passes and gap at the last certificate.
    last: Option<(usize, f64)>,
}

impl Pace {
    /// The rate of a run over `n_blocks` blocks with `n_weights` weights. A vertex of a block changes `n_entries` of
    /// them on average.
    pub fn new(stopping: Stopping, (n_blocks, n_weights): (usize, usize), n_entries: f64) -> Self {
        let (n, d) = (n_blocks as f64, n_weights as f64);
        // Each step sums the outer products of about four planes per block, and factorises the sum.
        let products = 4.0 * d * d + d.powi(3) / (3.0 * n);
        Self { stopping, newton: PRODUCT * products / n_entries.min(d), last: None }
    }

    /// The stopping rule of the run.
    pub fn stopping(&self) -> Stopping {
        self.stopping
    }

    /// Whether Newton's method takes over. It does if, at the rate since the previous certificate, further passes would
    /// take longer than Newton's method to reach the tolerance, or if, in the second half of the run, the remaining
    /// passes would not reach it. `pass` is the number of the pass that computed `certificate`.
    pub fn is_too_slow(&mut self, pass: usize, certificate: Certificate) -> bool {
        let gap = certificate.gap();
        let Some((before, gap_before)) = self.last.replace((pass, gap)) else { return false };
        if pass < FIRST_PASSES || self.stopping.is_met(&certificate) {
            return false;
        }
        let (max_epochs, allowed) =
            (self.stopping.max_epochs, self.stopping.allowed(certificate.primal));
        let left = epochs_left((gap_before, gap), pass - before, allowed);
        let is_last_chance = pass >= max_epochs / 2 && left > (max_epochs - pass) as f64;
        left > MIN_EPOCHS_LEFT
            && self.newton <= MAX_RUNS * max_epochs as f64
            && (left > self.newton || is_last_chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(gaps: &[f64], relative: f64) -> Vec<bool> {
        let stopping =
            Stopping { max_epochs: 1000, relative, floor: 0.0, null_objective: Some(1.0) };
        let mut pace = Pace::new(stopping, (10, 1), 1.0);
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
        let decision = |max_epochs: usize, n_weights: usize, n_entries: f64| {
            let stopping =
                Stopping { max_epochs, relative: 1e-9, floor: 0.0, null_objective: Some(1.0) };
            let mut pace = Pace::new(stopping, (1000, n_weights), n_entries);
            let slow = |pass: i32| Certificate { primal: 1.0, dual: 1.0 - 0.8_f64.powi(pass) };
            (1..=80).find(|pass| pace.is_too_slow(*pass as usize, slow(*pass)))
        };
        // The run takes 93 passes. If a vertex changes all weights, Newton's method takes as long as 0.8 passes per
        // weight.
        let dense = |n_weights: usize| decision(200, n_weights, n_weights as f64);
        assert_eq!([dense(1), dense(100), dense(120)], [Some(4), Some(4), None]);
        assert_eq!(decision(200, 100, 50.0), None);
        // With 80 passes, the run does not converge.
        let short = |n_weights: usize| decision(80, n_weights, n_weights as f64);
        assert_eq!([short(120), short(900), short(1100)], [Some(40), Some(40), None]);
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
