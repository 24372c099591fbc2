//! Sparse vectors as (index, value) pairs, and sequences of them.

/// A sparse vector: (index, value) pairs without zero values. Sums and differences are sorted by
/// index; a vertex of a polytope or the image of a row may be in any order.
pub type Sparse = Vec<(u32, f64)>;

/// ⟨dense, sparse⟩, summed term by term in the order of the sparse vector.
pub fn dot(dense: &[f64], sparse: &[(u32, f64)]) -> f64 {
    sparse.iter().map(|(index, value)| value * dense[*index as usize]).sum()
}

/// ‖sparse‖², summed term by term in order.
pub fn squared_norm(sparse: &[(u32, f64)]) -> f64 {
    sparse.iter().map(|(_, value)| value * value).sum()
}

/// target = a − b; all three are sorted by index.
pub fn subtract(a: &[(u32, f64)], b: &[(u32, f64)], target: &mut Sparse) {
    target.clear();
    merge(a, b, -1.0, 0.0, target);
}

/// target += scale · other, both sorted by index. Drops values of at most `dust` in absolute value.
/// `spare` is scratch memory.
pub fn add(target: &mut Sparse, scale: f64, other: &[(u32, f64)], dust: f64, spare: &mut Sparse) {
    spare.clear();
    merge(target, other, scale, dust, spare);
    std::mem::swap(target, spare);
}

fn merge(a: &[(u32, f64)], b: &[(u32, f64)], scale: f64, dust: f64, target: &mut Sparse) {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let next = |of: Option<&&(u32, f64)>| of.map_or(u32::MAX, |(index, _)| *index);
    loop {
        let (at, bt) = (next(a.peek()), next(b.peek()));
        let index = at.min(bt);
        if index == u32::MAX {
            break;
        }
        let mut value = 0.0;
        if at == index {
            value += a.next().map_or(0.0, |(_, value)| *value);
        }
        if bt == index {
            value += scale * b.next().map_or(0.0, |(_, value)| *value);
        }
        if value.abs() > dust {
            target.push((index, value));
        }
    }
}

/// Replaces the sorted set `indices` by its union with the indices of a sorted sparse vector.
pub fn unite(indices: &mut Vec<u32>, sparse: &[(u32, f64)]) {
    let old = indices.len();
    for (index, _) in sparse {
        if indices[..old].binary_search(index).is_err() {
            indices.push(*index);
        }
    }
    if indices.len() > old {
        indices.sort_unstable();
    }
}

/// The sparse vectors of consecutive examples.
#[derive(Debug, Clone, Default)]
pub struct SparseRows {
    /// The index of the first example.
    pub first: usize,
    ends: Vec<usize>,
    entries: Sparse,
}

impl SparseRows {
    /// Removes all rows; the next row belongs to example `first`.
    pub fn restart(&mut self, first: usize) {
        self.first = first;
        self.ends.clear();
        self.entries.clear();
    }

    /// Appends the vector of the next example.
    pub fn push(&mut self, entries: impl IntoIterator<Item = (u32, f64)>) {
        self.entries.extend(entries);
        self.ends.push(self.entries.len());
    }

    /// Appends the vectors of `other`, whose examples follow these.
    pub fn append(&mut self, other: &Self) {
        let offset = self.entries.len();
        self.entries.extend_from_slice(&other.entries);
        self.ends.extend(other.ends.iter().map(|end| end + offset));
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The vector of example `first + offset`.
    pub fn row(&self, offset: usize) -> &[(u32, f64)] {
        let start = if offset == 0 { 0 } else { self.ends[offset - 1] };
        &self.entries[start..self.ends[offset]]
    }

    /// All entries, row by row.
    pub fn entries(&self) -> &[(u32, f64)] {
        &self.entries
    }

    /// The vectors in order.
    pub fn rows(&self) -> impl Iterator<Item = &[(u32, f64)]> {
        (0..self.len()).map(|offset| self.row(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_subtracted_and_added() {
        let a = vec![(0, 1.0), (2, 0.5), (3, 1.0)];
        let b = vec![(1, 0.25), (2, 0.5), (4, 1.0)];
        let (mut difference, mut spare) = (Sparse::new(), Sparse::new());
        subtract(&a, &b, &mut difference);
        assert_eq!(difference, [(0, 1.0), (1, -0.25), (3, 1.0), (4, -1.0)]);
        let mut sum = b.clone();
        add(&mut sum, 1.0, &difference, 0.0, &mut spare);
        assert_eq!(sum, a);
        add(&mut sum, -1.0, &[(0, 1.0 - 1e-16)], 1e-15, &mut spare);
        assert_eq!(sum, [(2, 0.5), (3, 1.0)]);
        assert_eq!((dot(&[1.0, 2.0, 4.0, 8.0, 16.0], &b), squared_norm(&b)), (18.5, 1.3125));
        let mut indices = vec![2, 3];
        unite(&mut indices, &b);
        assert_eq!(indices, [1, 2, 3, 4]);
    }
}
