//! The dual restricted to known vertices of its blocks.

use crate::linalg::Sparse;

/// A vertex of a block and its cutting plane: the block's loss is at least linear − ⟨w, image⟩.
pub(super) struct Plane {
    /// The vertex.
    pub vertex: Sparse,
    /// The change of l_i along the direction from the block's start to the vertex.
    pub linear: f64,
    /// z_ik: λ/p_i times the change of w along that direction.
    pub image: Sparse,
    /// The vertex's weight in the block's convex combination.
    pub weight: f64,
    /// Number of restricted problems solved since the weight was last positive.
    pub n_idle: usize,
}

/// The planes of a block.
pub(super) struct PlaneBlock {
    /// The factor p_i/λ of the block's loss.
    pub scale: f64,
    /// The planes; their weights sum to 1.
    pub planes: Vec<Plane>,
}

/// The problem in which each loss is the maximum of its block's planes:
/// ½ ‖w‖² + Σ_i p_i/λ max_k (l_ik − ⟨w, z_ik⟩), the n-slack model of Joachims, Finley and Yu (2009).
pub(super) struct Restricted {
    pub n_weights: usize,
    pub blocks: Vec<PlaneBlock>,
}

impl PlaneBlock {
    /// Whether the block's weights can change: it has a positive share of the loss and more than
    /// one plane.
    pub fn is_free(&self) -> bool {
        self.scale > 0.0 && self.planes.len() > 1
    }
}

impl Restricted {
    /// Total number of planes in all blocks.
    pub fn n_planes(&self) -> usize {
        self.blocks.iter().map(|block| block.planes.len()).sum()
    }

    /// Pairs each block with its slice of a vector over all planes.
    pub fn split<'s>(
        &'s self,
        values: &'s [f64],
    ) -> impl Iterator<Item = (&'s PlaneBlock, &'s [f64])> {
        self.blocks.iter().scan(values, |rest, block| {
            let (own, others) = rest.split_at(block.planes.len());
            *rest = others;
            Some((block, own))
        })
    }
}
