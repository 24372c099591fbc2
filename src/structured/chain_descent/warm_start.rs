//! Runs that start at the dual point of an earlier fit, also of other sequences.

use rand::seq::SliceRandom;

use super::{ChainDescent, SequenceBuffers};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::run::Certificate;

/// Number of visits of sequences that an earlier fit did not have, before the first pass over all.
const FRESH_PASSES: usize = 5;

/// The first promise of a run with a warm start: its visits see gaps about 1.5 times that of the
/// average, which a certificate evaluates.
const FIRST_PROMISE: f64 = 1.5;

impl ChainDescent<'_> {
    /// Expects the first certificate earlier than in a run that starts at the right labels.
    pub(super) fn begin_warm(&mut self) {
        self.promise = FIRST_PROMISE;
    }

    /// Visits the sequences without a dual point of an earlier fit several times.
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

    /// Whether the blocks' gaps at their last visits promise a certificate within the tolerance.
    pub(super) fn is_promising(&self) -> bool {
        self.gaps.total() <= self.promise * self.relative * self.visited_objective()
    }

    /// Corrects the promise by the gap of a certificate. Only in a run with a warm start: the first
    /// certificate of another run ends it in most cases.
    pub(super) fn learn_promise(&mut self, certificate: Certificate) {
        if self.promise > 1.0 {
            let visited = self.gaps.total() / self.visited_objective();
            self.promise = (visited / certificate.relative_gap()).max(1.0);
        }
    }

    /// The objective at the losses of the blocks' last visits.
    fn visited_objective(&self) -> f64 {
        let regularizer = 0.5 * self.shares.lambda() * squared_norm(&self.iterate);
        regularizer + self.losses.iter().sum::<f64>()
    }
}
