//! Rows of named features, before a vocabulary maps the names to numbers.

use super::{FeatureRows, Vocabulary};
use crate::error::Result;

/// Rows of named features with values. All names are in one text, so the vocabulary can later look up many names at a
/// time, and reading rows does not wait for look-ups.
#[derive(Debug, Clone, Default)]
pub struct NamedRows {
    text: Vec<u8>,
    /// The end of each name in the text.
    ends: Vec<usize>,
    values: Vec<f64>,
    /// Total number of names up to the end of each row.
    row_ends: Vec<usize>,
}

impl NamedRows {
    /// Adds a value to the current row.
    pub fn add(&mut self, name: &[u8], value: f64) {
        self.text.extend_from_slice(name);
        self.ends.push(self.text.len());
        self.values.push(value);
    }

    /// Ends the current row.
    pub fn end_row(&mut self) {
        self.row_ends.push(self.ends.len());
    }

    /// Number of complete rows.
    pub fn n_rows(&self) -> usize {
        self.row_ends.len()
    }

    /// Moves the rows to `rows`, leaving out unknown names.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::error::Error::Memory) if they do not fit into memory.
    pub fn resolve(&mut self, vocabulary: &Vocabulary, rows: &mut FeatureRows) -> Result<()> {
        rows.make_room(self.n_rows(), self.ends.len())?;
        let numbers = vocabulary.find_all(&self.text, &self.ends);
        self.drain(|entry, _| numbers[entry], rows);
        Ok(())
    }

    /// Moves the rows to `rows`, adding new names to the vocabulary.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::error::Error::Memory) if they do not fit into memory.
    pub fn learn(&mut self, vocabulary: &mut Vocabulary, rows: &mut FeatureRows) -> Result<()> {
        rows.make_room(self.n_rows(), self.ends.len())?;
        vocabulary.make_room(self.text.len(), self.ends.len())?;
        self.drain(|_, name| Some(vocabulary.intern(name)), rows);
        Ok(())
    }

    fn drain(
        &mut self,
        mut column: impl FnMut(usize, &[u8]) -> Option<u32>,
        rows: &mut FeatureRows,
    ) {
        let (mut entry, mut start) = (0, 0);
        for row_end in self.row_ends.drain(..) {
            for (end, value) in self.ends[entry..row_end].iter().zip(&self.values[entry..]) {
                let column = column(entry, &self.text[start..*end]);
                (entry, start) = (entry + 1, *end);
                if let (Some(column), true) = (column, *value != 0.0) {
                    rows.add(column, *value);
                }
            }
            rows.end_row();
        }
        self.text.clear();
        self.ends.clear();
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_become_columns() {
        let mut vocabulary = Vocabulary::new();
        for name in ["a", "", "b=c"] {
            vocabulary.intern(name.as_bytes());
        }
        let mut named = NamedRows::default();
        for (name, value) in [("b=c", 2.0), ("x", 1.0), ("a", 1.0), ("b=c", 0.5)] {
            named.add(name.as_bytes(), value);
        }
        named.end_row();
        named.end_row();
        named.add(b"", 3.0);
        named.end_row();
        assert_eq!(named.n_rows(), 3);
        let mut rows = FeatureRows::new();
        named.resolve(&vocabulary, &mut rows).unwrap();
        named.resolve(&vocabulary, &mut rows).unwrap();
        assert_eq!((named.n_rows(), rows.n_rows()), (0, 3));
        assert_eq!(rows.into_parts(), (vec![0, 2, 2, 3], vec![0, 2, 1], vec![1.0, 2.5, 3.0]));
    }
}
