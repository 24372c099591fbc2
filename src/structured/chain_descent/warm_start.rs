//! Runs that start at the dual point of an earlier fit, possibly of other sequences.

use rand::seq::SliceRandom;

use super::{ChainDescent, SequenceBuffers};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::run::Certificate;

/// Number of passes over the sequences that were not in the earlier fit. They precede the first
/// pass over all sequences.
const FRESH_PASSES: usize = 5;

/// Initial `promise` of a warm-started run.
const WARM_PROMISE: f64 = 1.5;

impl ChainDescent<'_> {
    /// Expects the first certificate earlier than in a run that starts at the true labels.
    pub(super) fn begin_warm(&mut self) {
        self.promise = WARM_PROMISE;
    }

    /// Makes [`FRESH_PASSES`] passes over the sequences that were not in the earlier fit.
    pub(super) fn visit_fresh(
        &mut self,
        scratch: &mut SequenceBuffers,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut fresh = std::mem::take(&mut self.fresh);
        for _ in 0..FRESH_PASSES {
            fresh.shuffle(&mut self.random);
            for example in &fresh {
                if self.shares.of(*example as usize) > 0.0 {
                    self.visit(*example as usize, scratch);
                    interrupt.check()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the gaps at the last visits are small enough that a certificate should meet the tolerance.
    pub(super) fn is_promising(&self) -> bool {
        self.gaps.total() <= self.promise * self.relative * self.visited_objective()
    }

    /// Updates `promise` from a certificate.
    pub(super) fn learn_promise(&mut self, certificate: Certificate) {
        let visited = self.gaps.total() / self.visited_objective();
        self.promise = (visited / certificate.relative_gap()).max(1.0);
    }

    /// Estimates the objective from the losses at the last visits.
    fn visited_objective(&self) -> f64 {
        let regularizer = 0.5 * self.shares.lambda() * squared_norm(&self.iterate);
        regularizer + self.losses.iter().sum::<f64>()
    }
}
