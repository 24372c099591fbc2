//! The dual point of a fit, and its reuse as the start of a later fit.

use super::active_labels::ActiveLabels;
use crate::structured::model::{Chain, Model};

/// The dual point of a fit.
#[derive(Debug, Clone)]
pub struct ChainPoint {
    pub(super) blocks: Vec<ActiveLabels>,
    /// Sequences that start at their true labels, because they were not in the earlier fit.
    pub(super) fresh: Vec<u32>,
}

impl ChainPoint {
    /// Creates the dual point of a fit from its blocks.
    pub(super) fn new(blocks: Vec<ActiveLabels>) -> Self {
        Self { blocks, fresh: Vec::new() }
    }

    /// Builds a dual point for other sequences. Sequence i reuses the labels of the earlier sequence `places[i]`, with
    /// renumbered states. It starts at its true labels instead if `places[i]` is None or if the reused labels do not
    /// fit. Also returns the number of sequences that reuse labels.
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
