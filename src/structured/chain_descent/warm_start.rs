//! Runs that start at the dual point of an earlier fit, also of other sequences.

use rand::seq::SliceRandom;

use super::active_labels::ActiveLabels;
use super::{ChainDescent, SequenceBuffers};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::run::Certificate;
use crate::structured::model::{Chain, Model};

/// Number of visits of sequences that an earlier fit did not have, before the first pass over all.
const FRESH_PASSES: usize = 5;

/// The first promise of a run with a warm start: its visits see gaps about 1.5 times that of the
/// average, which a certificate evaluates.
pub(super) const FIRST_PROMISE: f64 = 1.5;

/// The dual point of a fit.
#[derive(Debug, Clone)]
pub struct ChainPoint {
    pub(super) blocks: Vec<ActiveLabels>,
    /// Sequences at their right labels because the earlier fit did not have them.
    pub(super) fresh: Vec<u32>,
}

impl ChainPoint {
    /// The dual point of a fit with these blocks.
    pub(super) fn new(blocks: Vec<ActiveLabels>) -> Self {
        Self { blocks, fresh: Vec::new() }
    }

    /// The dual point of other sequences: for sequence i that of sequence `places[i]` of this point,
    /// with renumbered states, and the right labels for those that have no place or do not fit.
    /// Also returns how many have a dual point from here.
    pub fn moved(
        &self,
        chain: &Chain,
        places: &[Option<usize>],
        numbers: &[Option<u16>],
    ) -> (Self, usize) {
        let (mut blocks, mut fresh) = (Vec::with_capacity(places.len()), Vec::new());
        for (example, place) in places.iter().enumerate() {
            let known = place.and_then(|place| self.blocks.get(place)?.renumbered(numbers));
            blocks.push(known.filter(|block| block.fits(chain, example)).unwrap_or_else(|| {
                fresh.push(example as u32);
                ActiveLabels::at(chain.truth(example))
            }));
        }
        let n_known = places.len() - fresh.len();
        (Self { blocks, fresh }, n_known)
    }

    /// Whether this is a dual point of these sequences.
    pub fn fits(&self, chain: &Chain) -> bool {
        self.blocks.len() == chain.n_examples()
            && self.blocks.iter().enumerate().all(|(example, point)| point.fits(chain, example))
    }
}

impl ChainDescent<'_> {
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
