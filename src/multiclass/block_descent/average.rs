//! The average of the dual points that passes come by: where they creep, a better end of an epoch.
//!
//! Visits leave the margins of one example exact and disturb those of others a little. The primal feels that to first
//! order, the dual to second order only. In an average much of it cancels, and it is a dual point itself.

/// Pass k counts like k to this power less one (Shamir and Zhang 2013, section 4).
const WEIGHING: f64 = 4.0;
/// An average pays only where its last pass still gained this share of what an early one did: else the points before
/// the last are too far away.
const SLOW: f64 = 0.3;
/// That early one, and the fewest passes of an average behind it. The first may gain from what was before it.
const EARLY: usize = 2;

/// What is known of the passes of an average.
#[derive(Debug, Default)]
pub(super) struct Average {
    n_passes: usize,
    early: f64,
    last: f64,
}

impl Average {
    /// The share of the next pass's point in the average of all so far, given what the pass gained.
    pub fn share_of_next(&mut self, gain: f64) -> f64 {
        self.n_passes += 1;
        self.last = gain;
        if self.n_passes == EARLY {
            self.early = gain;
        }
        WEIGHING / (self.n_passes as f64 + WEIGHING - 1.0)
    }

    /// Whether the average is better than the last point; not where gains are as good as none.
    pub fn pays(&self, nothing: f64) -> bool {
        self.n_passes > EARLY && self.last > SLOW * self.early && self.last > nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_passes_are_averaged_and_fast_ones_are_not() {
        let after = |gains: &[f64]| {
            let mut average = Average::default();
            gains.iter().for_each(|gain| _ = average.share_of_next(*gain));
            average.pays(1e-9)
        };
        assert!(after(&[9.0, 1.0, 0.9, 0.8]) && !after(&[9.0, 1.0, 0.5, 0.2]));
        assert!(!after(&[1.0, 1.0]) && !after(&[1e-10; 5]) && !after(&[]));
    }

    #[test]
    fn shares_make_up_weights_that_sum_to_one_and_rise() {
        let mut average = Average::default();
        let mut weights: Vec<f64> = Vec::new();
        for _ in 0..20 {
            let share = average.share_of_next(1.0);
            weights.iter_mut().for_each(|weight| *weight *= 1.0 - share);
            weights.push(share);
        }
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-14 && weights.is_sorted());
    }
}
