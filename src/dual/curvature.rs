//! The curvature of smoothed losses. For each block, it is a diagonal plus a few rank-one terms.

use crate::linalg::Sparse;

/// The kind of a term of a [`Curvatures`] block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TermKind {
    /// Adds the diagonal matrix diag(a).
    Diagonal,
    /// Adds q qᵀ.
    Plus,
    /// Subtracts q qᵀ.
    Minus,
}

/// Symmetric positive semi-definite matrices, one per block, over the block's parts. Each is stored as a diagonal plus
/// rank-one terms: diag(a) + Σ ± q qᵀ. For the entropy on the simplex, the matrix is diag(p) − p pᵀ. For the projection
/// onto a polytope, it is the orthogonal projection onto the directions of the face that contains the result
/// (`docs/mathematics/newton.md#curvature`).
#[derive(Debug, Clone, Default)]
pub struct Curvatures {
    entries: Sparse,
    /// The kind of each term, and the index after its last entry.
    terms: Vec<(TermKind, usize)>,
    /// For each block, the index after its last term.
    ends: Vec<usize>,
}

impl Curvatures {
    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.terms.clear();
        self.ends.clear();
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds diag(a) to the open block; a is given as (part, value) pairs.
    pub fn add_diagonal(&mut self, entries: impl IntoIterator<Item = (u32, f64)>) {
        self.add(TermKind::Diagonal, entries);
    }

    /// Adds q qᵀ to the open block.
    pub fn add_square(&mut self, entries: impl IntoIterator<Item = (u32, f64)>) {
        self.add(TermKind::Plus, entries);
    }

    /// Subtracts q qᵀ from the open block.
    pub fn subtract_square(&mut self, entries: impl IntoIterator<Item = (u32, f64)>) {
        self.add(TermKind::Minus, entries);
    }

    /// Adds I − 1 1ᵀ/|parts| to the open block: the projection onto the vectors over these parts that sum to 0.
    pub fn add_group(&mut self, parts: impl Iterator<Item = u32> + Clone) {
        let size = parts.clone().count();
        if size > 1 {
            let share = 1.0 / (size as f64).sqrt();
            self.add_diagonal(parts.clone().map(|part| (part, 1.0)));
            self.subtract_square(parts.map(|part| (part, share)));
        }
    }

    /// Closes the open block; returns whether its curvature is nonzero.
    pub fn end_block(&mut self) -> bool {
        let start = self.ends.last().copied().unwrap_or(0);
        self.ends.push(self.terms.len());
        start < self.terms.len()
    }

    /// Removes the block that was closed last.
    pub fn pop_block(&mut self) {
        self.ends.pop();
        self.terms.truncate(self.ends.last().copied().unwrap_or(0));
        self.entries.truncate(self.terms.last().map_or(0, |term| term.1));
    }

    /// Appends the blocks of `other`.
    pub fn append(&mut self, other: &Self) {
        let (entries, terms) = (self.entries.len(), self.terms.len());
        self.entries.extend_from_slice(&other.entries);
        self.terms.extend(other.terms.iter().map(|&(kind, end)| (kind, end + entries)));
        self.ends.extend(other.ends.iter().map(|end| end + terms));
    }

    /// Multiplies `vector`, which has one value per part, by the block's matrix, in place. `product` is scratch memory
    /// of the same length.
    pub fn apply(&self, block: usize, vector: &mut [f64], product: &mut [f64]) {
        product.fill(0.0);
        for (kind, entries) in self.block(block) {
            match kind {
                TermKind::Diagonal => {
                    for &(part, value) in entries {
                        product[part as usize] += value * vector[part as usize];
                    }
                }
                TermKind::Plus | TermKind::Minus => {
                    let along: f64 =
                        entries.iter().map(|&(part, q)| q * vector[part as usize]).sum();
                    let along = if kind == TermKind::Plus { along } else { -along };
                    entries.iter().for_each(|&(part, q)| product[part as usize] += along * q);
                }
            }
        }
        vector.copy_from_slice(product);
    }

    /// Writes, row by row, the block's matrix restricted to the parts that have entries. `place` is scratch memory with
    /// one value per part.
    pub fn dense(
        &self,
        block: usize,
        place: &mut [u32],
        parts: &mut Vec<u32>,
        matrix: &mut Vec<f64>,
    ) {
        parts.clear();
        for (_, entries) in self.block(block) {
            parts.extend(entries.iter().map(|(part, _)| *part));
        }
        parts.sort_unstable();
        parts.dedup();
        (0..).zip(&*parts).for_each(|(at, part)| place[*part as usize] = at);
        let n = parts.len();
        matrix.clear();
        matrix.resize(n * n, 0.0);
        for (kind, entries) in self.block(block) {
            let placed = entries.iter().map(|&(part, q)| (place[part as usize] as usize, q));
            let sign = if kind == TermKind::Minus { -1.0 } else { 1.0 };
            for (row, q) in placed.clone() {
                if kind == TermKind::Diagonal {
                    matrix[row * n + row] += q;
                } else {
                    placed.clone().for_each(|(at, p)| matrix[row * n + at] += sign * q * p);
                }
            }
        }
    }

    /// Adds `scale` times the block's diagonal to `diagonal`, which has one value per part.
    pub fn add_diagonal_of(&self, block: usize, scale: f64, diagonal: &mut [f64]) {
        for (kind, entries) in self.block(block) {
            for &(part, q) in entries {
                diagonal[part as usize] += scale
                    * match kind {
                        TermKind::Diagonal => q,
                        TermKind::Plus => q * q,
                        TermKind::Minus => -q * q,
                    };
            }
        }
    }

    /// Total number of entries of the diagonal terms.
    pub fn n_diagonal_entries(&self) -> usize {
        let diagonal = |(kind, _): &(TermKind, &[(u32, f64)])| *kind == TermKind::Diagonal;
        let of_block = |block| -> usize {
            self.block(block).filter(diagonal).map(|(_, entries)| entries.len()).sum()
        };
        (0..self.len()).map(of_block).sum()
    }

    /// The terms of a block.
    fn block(&self, block: usize) -> impl Iterator<Item = (TermKind, &[(u32, f64)])> {
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        let mut from = if start == 0 { 0 } else { self.terms[start - 1].1 };
        self.terms[start..self.ends[block]].iter().map(move |&(kind, end)| {
            let entries = &self.entries[from..end];
            from = end;
            (kind, entries)
        })
    }

    fn add(&mut self, kind: TermKind, entries: impl IntoIterator<Item = (u32, f64)>) {
        self.entries.extend(entries);
        self.terms.push((kind, self.entries.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_same_products_as_their_matrices() {
        let mut curvatures = Curvatures::default();
        curvatures.add_group([1, 3, 4].into_iter());
        curvatures.add_square([(0, 0.6), (4, -0.8)]);
        assert!(curvatures.end_block());
        assert!(!curvatures.end_block());
        curvatures.pop_block();
        let mut other = Curvatures::default();
        other.add_diagonal([(2, 0.25), (0, 0.75)]);
        other.subtract_square([(0, 0.75), (2, 0.25)]);
        other.end_block();
        curvatures.append(&other);
        assert_eq!(curvatures.len(), 2);
        let (mut place, mut parts, mut matrix) = (vec![0; 5], Vec::new(), Vec::new());
        for (block, expected) in [(0, &[0, 1, 3, 4][..]), (1, &[0, 2])] {
            curvatures.dense(block, &mut place, &mut parts, &mut matrix);
            assert_eq!(parts, expected);
            let (mut diagonal, mut product) = (vec![0.0; 5], vec![0.0; 5]);
            curvatures.add_diagonal_of(block, 2.0, &mut diagonal);
            for (column, part) in parts.iter().enumerate() {
                let mut unit = vec![0.0; 5];
                unit[*part as usize] = 1.0;
                curvatures.apply(block, &mut unit, &mut product);
                for (row, other) in parts.iter().enumerate() {
                    let entry = matrix[row * parts.len() + column];
                    assert!((entry - unit[*other as usize]).abs() < 1e-15);
                }
                let own = matrix[column * (parts.len() + 1)];
                assert!((diagonal[*part as usize] - 2.0 * own).abs() < 1e-15);
            }
        }
    }
}
