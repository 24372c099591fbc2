//! What the gap is likely to be between certificates, from what visits gain.
//!
//! A block whose slopes are off by δ has a gap of the order of δ, and a visit to it gains of the order of δ². So over n
//! blocks that gain g together the gap is like √(n g). The last certificate says how many times as large it is, and before the
//! first there is a guess.

/// An estimate of the gap.
#[derive(Debug)]
pub(super) struct GapEstimate {
    /// √(n g) of the last passes; 0 once a certificate has been made of them.
    size: f64,
    /// The gap in such units, as of the last certificate, or a guess; NaN where there is none.
    factor: f64,
}

impl GapEstimate {
    /// Before there is a certificate, with a guess at the factor.
    pub fn new(factor: f64) -> Self {
        Self { size: 0.0, factor }
    }

    /// Notes what recent passes over so many blocks gained.
    pub fn note(&mut self, gains: impl ExactSizeIterator<Item = f64>, n_blocks: usize) {
        let n_passes = gains.len();
        let mean = gains.sum::<f64>() / n_passes as f64;
        self.size = (mean * n_blocks as f64).sqrt();
    }

    /// Whether the gap is likely to be at most this.
    pub fn is_within(&self, gap: f64) -> bool {
        self.factor * self.size <= gap
    }

    /// Learns from the gap of a certificate.
    pub fn learn(&mut self, gap: f64) {
        // The gains say nothing of later certificates without passes of their own.
        let size = std::mem::take(&mut self.size);
        if size > 0.0 {
            self.factor = gap / size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundredth_of_the_gains_is_a_tenth_of_the_gap() {
        let mut estimate = GapEstimate::new(f64::NAN);
        estimate.note([4.0, 4.0].into_iter(), 25);
        assert!(!estimate.is_within(f64::MAX));
        estimate.learn(30.0);
        estimate.note([0.05, 0.03].into_iter(), 25);
        assert!(estimate.is_within(3.001) && !estimate.is_within(2.999));
    }

    #[test]
    fn passes_without_gains_teach_nothing() {
        let mut estimate = GapEstimate::new(2.0);
        estimate.note([0.0].into_iter(), 9);
        estimate.learn(1.0);
        estimate.note([1.0].into_iter(), 9);
        assert!(estimate.is_within(6.001) && !estimate.is_within(5.999));
    }
}
