//! The dual point of a fit, and its part in a later fit of other sequences.

use super::active_labels::ActiveLabels;
use crate::structured::model::{Chain, Model};

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
