//! Memory layout of the block of one user or item.

use std::ops::Range;

use crate::linalg::vectors::padded;

/// Layout of a block. Each part is padded to whole SIMD vectors, so that inner loops need no code for a remainder.
///
/// The parts are `l` (m) | `v`: Var(l_c), m | `x`: Cov(l_c, p), m × k | `p` (k) | `e`: E\[p pᵀ\],
/// lower triangle by rows. Factors and their second moments are adjacent, because most sums run
/// over these two parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockLayout {
    pub k: usize,
    pub m: usize,
    /// Number of factors k, padded to whole SIMD vectors.
    pub k_pad: usize,
    /// Length of the packed second moments E\[p pᵀ\], padded to whole SIMD vectors.
    pub pairs: usize,
}

impl BlockLayout {
    pub fn new(k: usize, m: usize) -> Self {
        Self { k, m, k_pad: padded(k), pairs: padded(k * (k + 1) / 2) }
    }
    /// Number of outputs m, padded to whole SIMD vectors.
    pub fn m_pad(self) -> usize {
        padded(self.m)
    }
    /// Length of the mean factors p and the second moments E\[p pᵀ\] together.
    pub fn moments(self) -> usize {
        self.k_pad + self.pairs
    }
    /// Length of a block.
    pub fn stride(self) -> usize {
        2 * self.m_pad() + self.m * self.k_pad + self.moments()
    }
    /// Range of the mean linear weights l in a block.
    pub fn l(self) -> Range<usize> {
        0..self.m
    }
    /// Range of the variances Var(l_c) in a block.
    pub fn v(self) -> Range<usize> {
        self.m_pad()..self.m_pad() + self.m
    }
    /// Range of the covariances Cov(l_c, p) in a block.
    pub fn x(self) -> Range<usize> {
        let start = 2 * self.m_pad();
        start..start + self.m * self.k_pad
    }
    /// Range of the mean factors p in a block.
    pub fn p(self) -> Range<usize> {
        let start = self.x().end;
        start..start + self.k_pad
    }
    /// Range of the second moments E\[p pᵀ\] in a block.
    pub fn e(self) -> Range<usize> {
        self.stride() - self.pairs..self.stride()
    }
    /// Range of the mean factors p and the second moments E\[p pᵀ\] in a block.
    pub fn p_and_e(self) -> Range<usize> {
        self.x().end..self.stride()
    }
    /// The block of one id. `blocks` holds all blocks of the id's side.
    #[inline(always)]
    pub fn block(self, blocks: &[f64], id: u32) -> &[f64] {
        &blocks[id as usize * self.stride()..(id as usize + 1) * self.stride()]
    }
    /// Length of a block's mean, k + m.
    pub fn d(self) -> usize {
        self.k + self.m
    }
}

/// The (row, column) indices of the packed lower triangle, in storage order.
pub(super) fn pairs(k: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..k).flat_map(|r| (0..=r).map(move |s| (r, s)))
}
