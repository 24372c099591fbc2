//! Stable sorting of pairs by row.

use crate::linalg::CountingSort;

/// The positions of pairs after sorting by row.
#[derive(Debug)]
pub(super) struct ByRow {
    /// Row r has the pairs `offsets[r]..offsets[r + 1]`.
    pub offsets: Vec<usize>,
    /// The new position of each pair.
    slots: Vec<usize>,
}

impl ByRow {
    /// Sorts pairs by their rows, which are below `n`.
    pub fn new(rows: &[u32], n: usize) -> Self {
        let mut sort = CountingSort::new(n);
        rows.iter().for_each(|row| sort.count(*row as usize));
        let offsets = sort.starts();
        let slots = rows.iter().map(|row| sort.place(*row as usize)).collect();
        Self { offsets, slots }
    }

    /// Number of pairs of each row.
    pub fn counts(&self) -> Vec<usize> {
        self.offsets.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    /// Returns `values`, one per pair, in sorted order; empty if `values` is empty.
    pub fn sorted<T: Copy + Default>(&self, values: &[T]) -> Vec<T> {
        let mut result = vec![T::default(); values.len()];
        for (value, &slot) in values.iter().zip(&self.slots) {
            result[slot] = *value;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_a_row_remain_in_order() {
        let by_row = ByRow::new(&[2, 0, 2, 3, 0], 5);
        assert_eq!(by_row.offsets, [0, 2, 2, 4, 5, 5]);
        assert_eq!(by_row.counts(), [2, 0, 2, 1, 0]);
        assert_eq!(by_row.sorted(&[10, 11, 12, 13, 14]), [11, 14, 10, 12, 13]);
        assert!(by_row.sorted::<u32>(&[]).is_empty());
    }
}
