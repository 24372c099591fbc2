//! Sparse vectors for a run of rows, stored one after the other.

use super::Sparse;

/// Sparse vectors, one for each of a run of examples.
#[derive(Debug, Clone, Default)]
pub struct SparseRows {
    /// The first example.
    pub first: usize,
    ends: Vec<usize>,
    entries: Sparse,
}

impl SparseRows {
    /// Forgets everything; the next row belongs to example `first`.
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

    /// Appends the vectors of `other`, which continue where these end.
    pub fn append(&mut self, other: &Self) {
        let offset = self.entries.len();
        self.entries.extend_from_slice(&other.entries);
        self.ends.extend(other.ends.iter().map(|end| end + offset));
    }

    /// Number of examples.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The vector of the `offset`-th example.
    pub fn row(&self, offset: usize) -> &[(u32, f64)] {
        let start = if offset == 0 { 0 } else { self.ends[offset - 1] };
        &self.entries[start..self.ends[offset]]
    }

    /// All entries, row after row.
    pub fn entries(&self) -> &[(u32, f64)] {
        &self.entries
    }

    /// The vectors in order.
    pub fn rows(&self) -> impl Iterator<Item = &[(u32, f64)]> {
        (0..self.len()).map(|offset| self.row(offset))
    }
}
