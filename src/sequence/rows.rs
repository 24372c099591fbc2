//! Rows of features, built one value at a time.

use crate::data::Csr;
use crate::error::Result;
use crate::memory::{make_room, refused};

/// A sparse matrix under construction. Values of a row may be added in any order, and several times
/// for the same column.
#[derive(Debug, Clone, Default)]
pub struct FeatureRows {
    ends: Vec<i64>,
    columns: Vec<i32>,
    values: Vec<f64>,
    row: Vec<(i32, f64)>,
}

impl FeatureRows {
    /// Creates a matrix without rows.
    pub fn new() -> Self {
        Self { ends: vec![0], ..Self::default() }
    }

    /// Adds a value to the current row.
    pub fn add(&mut self, column: u32, value: f64) {
        self.row.push((column as i32, value));
    }

    /// Ends the current row: sorts its columns, and adds up values of the same column.
    pub fn end_row(&mut self) {
        self.row.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (column, value) in self.row.drain(..) {
            let start = self.ends[self.ends.len() - 1] as usize;
            match self.columns[start..].last() {
                Some(last) if *last == column => {
                    let at = self.values.len() - 1;
                    self.values[at] += value;
                }
                _ => {
                    self.columns.push(column);
                    self.values.push(value);
                }
            }
        }
        self.ends.push(self.columns.len() as i64);
    }

    /// Reserves memory for `n_rows` rows with `n_values` values in total.
    pub(super) fn make_room(&mut self, n_rows: usize, n_values: usize) -> Result<()> {
        let room = make_room(&mut self.ends, n_rows)
            && make_room(&mut self.columns, n_values)
            && make_room(&mut self.values, n_values);
        if room {
            return Ok(());
        }
        let n = self.values.len();
        let bytes = 2 * n * (size_of::<i32>() + size_of::<f64>());
        let what = || format!("the tokens ({n} features so far)");
        Err(refused(
            bytes,
            what,
            "use fewer sentences, or matrices of numbers instead of named features",
        ))
    }

    /// Number of complete rows.
    #[cfg(test)]
    pub fn n_rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// Renumbers the columns, and drops columns without a new number. The new numbers must be in the same order as
    /// the old numbers.
    pub fn renumber(&mut self, new: &[Option<u32>]) {
        let (mut kept, mut start) = (0, 0);
        for end in &mut self.ends[1..] {
            for at in start..*end as usize {
                if let Some(column) = new[self.columns[at] as usize] {
                    (self.columns[kept], self.values[kept]) = (column as i32, self.values[at]);
                    kept += 1;
                }
            }
            start = *end as usize;
            *end = kept as i64;
        }
        self.columns.truncate(kept);
        self.values.truncate(kept);
    }

    /// Returns the number of rows that contain each of `n_columns` columns.
    pub fn counts(&self, n_columns: usize) -> Vec<u32> {
        let mut counts = vec![0; n_columns];
        self.columns.iter().for_each(|column| counts[*column as usize] += 1);
        counts
    }

    /// Returns the rows as a matrix with `n_columns` columns.
    ///
    /// # Errors
    /// As for [`Csr::new`].
    pub fn matrix(&self, n_columns: usize) -> Result<Csr<'_, f64>> {
        Csr::new(&self.ends, &self.columns, &self.values, n_columns)
    }

    /// Returns offsets, columns and values.
    pub fn into_parts(self) -> (Vec<i64>, Vec<i32>, Vec<f64>) {
        (self.ends, self.columns, self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_available_is_an_error() {
        let mut rows = FeatureRows::new();
        rows.make_room(3, 9).unwrap();
        let error = rows.make_room(1, 1 << 60).unwrap_err().to_string();
        assert!(error.contains("the tokens (0 features so far) need"), "{error}");
        assert_eq!(rows.n_rows(), 0);
    }

    #[test]
    fn rows_are_sorted_summed_and_renumbered() {
        let mut rows = FeatureRows::new();
        for (column, value) in [(4, 1.0), (1, 2.0), (4, 0.5)] {
            rows.add(column, value);
        }
        rows.end_row();
        rows.end_row();
        rows.add(0, 3.0);
        rows.end_row();
        assert_eq!((rows.n_rows(), rows.counts(5)), (3, vec![1, 1, 0, 0, 1]));
        rows.renumber(&[None, Some(0), None, None, Some(1)]);
        assert_eq!(rows.into_parts(), (vec![0, 2, 2, 2], vec![0, 1], vec![2.0, 1.5]));
    }
}
