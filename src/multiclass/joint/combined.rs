//! Combinations of the rows of a matrix, Σ_j δ_j z_j, stored dense or sparse like the matrix.

use crate::data::{Data, Rows};
use crate::for_data;
use crate::linalg::vectors::dot_in_order;
use crate::linalg::{Sparse, sparse};

/// The combination Σ_j δ_j z_j.
pub(super) enum Combined {
    /// All entries, including zeros.
    Dense(Vec<f64>),
    /// The stored entries, sorted by index.
    Sparse(Sparse),
}

impl Combined {
    /// The combination of the rows z_j = row `first + j` of a matrix.
    pub fn of(rows: Data<'_>, first: usize, delta: &[(u32, f64)]) -> Self {
        if let Data::Dense16(_) | Data::Dense32(_) | Data::Dense64(_) = rows {
            let mut sum = vec![0.0; rows.n_cols()];
            for &(row, scale) in delta {
                let row = first + row as usize;
                for_data!(rows, rows => rows.visit_row(row, |column, value| sum[column] += scale * value));
            }
            return Self::Dense(sum);
        }
        let mut entries = Sparse::new();
        for &(row, scale) in delta {
            let row = first + row as usize;
            let mut push = |column: usize, value: f64| entries.push((column as u32, scale * value));
            for_data!(rows, rows => rows.visit_row(row, &mut push));
        }
        // A stable sort: equal indices are summed in the order of the rows.
        entries.sort_by_key(|(column, _)| *column);
        entries.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        Self::Sparse(entries)
    }

    /// The squared norm.
    pub fn squared_norm(&self) -> f64 {
        match self {
            Self::Dense(values) => dot_in_order(values, values),
            Self::Sparse(entries) => sparse::squared_norm(entries),
        }
    }

    /// The product with a row of the matrix.
    pub fn dot(&self, rows: Data<'_>, row: usize) -> f64 {
        let mut sum = 0.0;
        match self {
            Self::Dense(values) => {
                for_data!(rows, rows => rows.visit_row(row, |column, value| sum += value * values[column]));
            }
            Self::Sparse(entries) => {
                let mut remaining = entries.iter().peekable();
                for_data!(rows, rows => rows.visit_row(row, |column, value| {
                    while remaining.next_if(|(index, _)| (*index as usize) < column).is_some() {}
                    if let Some((_, entry)) = remaining.next_if(|(index, _)| *index as usize == column) {
                        sum += value * entry;
                    }
                }));
            }
        }
        sum
    }

    /// The stored entries as (index, value) pairs.
    pub fn entries(&self) -> Sparse {
        match self {
            Self::Dense(values) => (0..).zip(values.iter().copied()).collect(),
            Self::Sparse(entries) => entries.clone(),
        }
    }
}
