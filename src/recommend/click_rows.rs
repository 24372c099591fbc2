//! One side of the clicks (users or items): the pairs and factors of each row, and sums of products of factors.

use super::by_row::ByRow;
use super::click_features::ClickFeatures;
use super::click_problem::Interactions;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Panels;
use crate::linalg::outer::{Strided, add_lower_gram};
use crate::parallel::{fill_blocks, map_items};

/// The rows of one side, in the order of their ids. Only ids with pairs have a row.
#[derive(Debug)]
pub(super) struct ClickRows {
    /// Number of factors, padded to whole SIMD vectors.
    pub d: usize,
    /// Number of ids of this side.
    pub n_ids: usize,
    /// The id of each row.
    pub used: Vec<u32>,
    /// Row r has the pairs `offsets[r]..offsets[r + 1]`.
    pub offsets: Vec<usize>,
    /// For each pair, its row on the other side.
    pub partners: Vec<u32>,
    /// Targets of the pairs; empty if all are 1.
    pub targets: Vec<f64>,
    /// Weights of the pairs; empty if all are 1.
    pub weights: Vec<f64>,
    /// The factors, `d` values per row.
    pub factors: Vec<f64>,
    /// Features that give the prior means of the factors, if there are any.
    pub features: Option<ClickFeatures>,
}

/// The pairs of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowPairs<'a> {
    pub partners: &'a [u32],
    targets: &'a [f64],
    weights: &'a [f64],
}

impl RowPairs<'_> {
    /// Returns the target and the weight of the row's pair with the index `at`.
    #[inline(always)]
    pub fn pair(&self, at: usize) -> (f64, f64) {
        let of = |values: &[f64]| values.get(at).copied().unwrap_or(1.0);
        (of(self.targets), of(self.weights))
    }
}

impl ClickRows {
    /// Creates the rows of users and of items, with all factors 0.
    pub fn both(pairs: &Interactions<'_>, d: usize) -> (Self, Self) {
        let users = Used::of(pairs.users, pairs.n_users);
        let items = Used::of(pairs.items, pairs.n_items);
        let (of_users, of_items) = (users.rows(pairs.users), items.rows(pairs.items));
        let rows = |own: &[u32], other: &[u32], used: Used| {
            let by_row = ByRow::new(own, used.ids.len());
            Self {
                d,
                n_ids: used.row.len(),
                partners: by_row.sorted(other),
                targets: by_row.sorted(pairs.targets),
                weights: by_row.sorted(pairs.weights),
                offsets: by_row.offsets,
                factors: vec![0.0; used.ids.len() * d],
                used: used.ids,
                features: None,
            }
        };
        let left = rows(&of_users, &of_items, users);
        (left, rows(&of_items, &of_users, items))
    }

    /// The pairs of a row.
    pub fn pairs(&self, row: usize) -> RowPairs<'_> {
        let range = self.offsets[row]..self.offsets[row + 1];
        let of = |values: &[f64]| if values.is_empty() { 0..0 } else { range.clone() };
        RowPairs {
            targets: &self.targets[of(&self.targets)],
            weights: &self.weights[of(&self.weights)],
            partners: &self.partners[range.clone()],
        }
    }

    /// The total weight of a row's pairs.
    pub fn weight(&self, row: usize) -> f64 {
        let pairs = self.pairs(row);
        if pairs.weights.is_empty() {
            return pairs.partners.len() as f64;
        }
        pairs.weights.iter().sum()
    }

    /// Replaces all factors, prior means and feature weights by their coordinates in an orthonormal basis. The rows of
    /// `basis` are its vectors.
    pub fn rotate(&mut self, basis: &[f64], interrupt: &Interrupt) -> Result<()> {
        let d = self.d;
        let mut panels = Panels::<f64>::new(d, d);
        panels.pack(basis, |input| input, d);
        let turned = |old: Vec<f64>| {
            let mut factors = vec![0.0; old.len()];
            fill_blocks(&mut factors, d, interrupt, |rows, values| {
                panels.add_scores(&old[rows.start * d..rows.end * d], values);
            })?;
            Ok(factors)
        };
        self.factors = turned(std::mem::take(&mut self.factors))?;
        self.features.as_mut().map_or(Ok(()), |features| features.map(turned))
    }

    /// Improves the weights of the features by a few conjugate gradient steps.
    pub fn learn(&mut self, interrupt: &Interrupt) -> Result<()> {
        let Self { features, factors, .. } = self;
        features.as_mut().map_or(Ok(()), |features| features.learn(factors, interrupt))
    }

    /// The prior mean of a row; None means 0.
    pub fn mean(&self, row: usize) -> Option<&[f64]> {
        self.features.as_ref().map(|features| features.mean(row))
    }

    /// The factors of all ids as a table with `width` columns; 0 for ids without pairs.
    pub fn table(&self, width: usize) -> ndarray::Array2<f64> {
        let mut table = ndarray::Array2::zeros((self.n_ids, width));
        self.write(&mut table);
        table
    }

    /// Copies the factors of each row to the row of `table` for its id.
    pub fn write(&self, table: &mut ndarray::Array2<f64>) {
        for (&id, z) in self.used.iter().zip(self.factors.chunks_exact(self.d)) {
            for (to, from) in table.row_mut(id as usize).iter_mut().zip(z) {
                *to = *from;
            }
        }
    }

    /// Sets the factors from a table with one row per id.
    pub fn set(&mut self, table: ndarray::ArrayView2<'_, f64>) {
        for (&id, z) in self.used.iter().zip(self.factors.chunks_exact_mut(self.d)) {
            for (to, from) in z.iter_mut().zip(table.row(id as usize)) {
                *to = *from;
            }
        }
    }

    /// Returns the sum of `ridge(weight)` ‖z − mean‖² over the rows.
    pub fn penalty(&self, ridge: impl Fn(f64) -> f64 + Sync) -> f64 {
        let square = |row: usize, z: &[f64]| match self.mean(row) {
            Some(mean) => z.iter().zip(mean).map(|(v, m)| (v - m) * (v - m)).sum::<f64>(),
            None => z.iter().map(|v| v * v).sum(),
        };
        let square = |(row, z)| ridge(self.weight(row)) * square(row, z);
        map_items(self.factors.chunks_exact(self.d).enumerate(), 1, square).iter().sum()
    }

    /// The ridge penalty on the weights of the features.
    pub fn feature_penalty(&self) -> f64 {
        self.features.as_ref().map_or(0.0, ClickFeatures::penalty)
    }

    /// The weights of the features as a table with `width` columns.
    pub fn feature_weights(&self, width: usize) -> Option<ndarray::Array2<f64>> {
        let weights = self.features.as_ref()?.weights();
        let rows = weights.chunks_exact(self.d);
        let mut table = ndarray::Array2::zeros((rows.len(), width));
        for (mut to, from) in table.rows_mut().into_iter().zip(rows) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
        Some(table)
    }
}

/// Returns the sum of z zᵀ over the rows z of `factors`. The length d of a row must be a multiple
/// of 8.
pub(super) fn gram(factors: &[f64], d: usize) -> Vec<f64> {
    let mut gram = vec![0.0; d * d];
    add_lower_gram(&mut gram, d, Strided { values: factors, stride: d });
    for row in 0..d {
        for column in 0..row {
            gram[column * d + row] = gram[row * d + column];
        }
    }
    gram
}

/// The ids that have pairs.
struct Used {
    ids: Vec<u32>,
    /// The row of each id; meaningless for ids without pairs.
    row: Vec<u32>,
}

impl Used {
    fn of(pairs: &[u32], n: usize) -> Self {
        let mut row = vec![0; n];
        pairs.iter().for_each(|&id| row[id as usize] = 1);
        let ids: Vec<u32> = (0..n as u32).filter(|&id| row[id as usize] == 1).collect();
        ids.iter().zip(0..).for_each(|(&id, at)| row[id as usize] = at);
        Self { ids, row }
    }

    fn rows(&self, pairs: &[u32]) -> Vec<u32> {
        pairs.iter().map(|&id| self.row[id as usize]).collect()
    }
}
