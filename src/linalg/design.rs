//! Rows with a constant feature (the design matrix of a linear model) and their products with weights, for rows and
//! weights of any precision.

use super::{Element, Panels, SparseRows, scatter, transpose};
use crate::data::{Csr, Data, Dense, Real, Rows, for_data, read_in};

/// The rows, each extended with a constant feature unless `bias` is 0. A model has several outputs, called parts, with
/// one weight for each feature.
#[derive(Debug, Clone, Copy)]
pub struct Design<'a> {
    /// The rows.
    pub data: Data<'a>,
    /// The value of the constant feature; 0 if there is none.
    pub bias: f64,
}

/// Weights, packed for the computation of scores.
pub struct Packed<T> {
    panels: Panels<T>,
    /// The scores of the constant feature.
    offsets: Vec<f64>,
}

impl<'a> Design<'a> {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.data.n_rows()
    }

    /// Number of features, including the constant feature.
    pub fn n_features(&self) -> usize {
        self.data.n_cols() + usize::from(self.bias != 0.0)
    }

    /// Number of stored entries.
    pub fn n_stored(&self) -> usize {
        for_data!(self.data, rows => rows.n_stored())
    }

    /// Calls `visit(feature, value)` for the features of a row, the constant feature last.
    #[inline(always)]
    pub fn visit_row(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        for_data!(self.data, rows => rows.visit_row(row, &mut visit));
        if self.bias != 0.0 {
            visit(self.data.n_cols(), self.bias);
        }
    }

    /// The squared norm of a row with its constant feature.
    pub fn squared_norm(&self, row: usize) -> f64 {
        let mut norm = self.bias * self.bias;
        for_data!(self.data, rows => rows.visit_row(row, |_, value| norm += value * value));
        norm
    }

    /// Packs weights that are given part by part, each part with its constant feature last.
    pub fn pack(&self, weights: &[f64], n_parts: usize) -> Packed<f64> {
        let mut packed = self.packed(n_parts);
        self.load(&mut packed, weights, |feature| feature, self.n_features());
        packed
    }

    /// Packed weights of 0.
    pub fn packed<T: Element>(&self, n_parts: usize) -> Packed<T> {
        Packed { panels: Panels::new(self.data.n_cols(), n_parts), offsets: vec![0.0; n_parts] }
    }

    /// Replaces packed weights. The weights of a feature begin at `start(feature)` and are `stride` apart.
    pub fn load<T: Element>(
        &self,
        packed: &mut Packed<T>,
        weights: &[f64],
        start: impl Fn(usize) -> usize + Sync,
        stride: usize,
    ) {
        if self.bias != 0.0 {
            let constants = weights[start(self.data.n_cols())..].iter().step_by(stride);
            let offsets = packed.offsets.iter_mut().zip(constants);
            offsets.for_each(|(offset, weight)| *offset = self.bias * weight);
        }
        packed.panels.pack(weights, start, stride);
    }

    /// Writes the scores of some rows in strictly ascending order, one score per part, computed in precision T. Also
    /// returns the value of [`Design::dense`] for these rows.
    pub fn scores<'b, T: Element>(
        &self,
        packed: &Packed<T>,
        rows: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone,
        buffer: &'b mut Vec<T>,
        scores: &mut [f64],
    ) -> &'b [T]
    where
        'a: 'b,
    {
        let Packed { panels, offsets } = packed;
        for scores in scores.chunks_exact_mut(offsets.len()) {
            scores.copy_from_slice(offsets);
        }
        match self.data {
            Data::Csr32(csr) => add_sparse(csr, rows, panels, buffer, scores),
            Data::Csr64(csr) => add_sparse(csr, rows, panels, buffer, scores),
            _ => {
                let dense = self.dense(rows, buffer);
                panels.add_scores(dense, scores);
                return dense;
            }
        }
        &[]
    }

    /// Rows in precision T, in strictly ascending order; an empty slice if the rows are sparse. Borrows the rows without
    /// a copy if they are neighbours and stored in this precision.
    pub fn dense<'b, T: Real>(
        &self,
        rows: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone,
        buffer: &'b mut Vec<T>,
    ) -> &'b [T]
    where
        'a: 'b,
    {
        match self.data {
            Data::Dense16(dense) => dense_rows(dense, rows, buffer),
            Data::Dense32(dense) => dense_rows(dense, rows, buffer),
            Data::Dense64(dense) => dense_rows(dense, rows, buffer),
            Data::Csr32(_) | Data::Csr64(_) => &[],
        }
    }

    /// Appends some rows, each with the constant feature, padded to `stride` values.
    pub fn append_rows(
        &self,
        rows: impl IntoIterator<Item = usize>,
        stride: usize,
        values: &mut Vec<f64>,
    ) {
        for row in rows {
            let start = values.len();
            values.resize(start + stride, 0.0);
            let values = &mut values[start..];
            self.visit_row(row, |feature, value| values[feature] = value);
        }
    }

    /// The length of the buffer that [`Design::add_images`] adds to.
    pub fn image_len(&self, n_parts: usize) -> usize {
        (self.data.n_cols() + 1) * n_parts
    }

    /// Adds Σ_i A_iᵀ u_i over some rows; `dense` is the value of [`Design::dense`] for these rows.
    pub fn add_images(
        &self,
        rows: impl Iterator<Item = usize>,
        dense: &[f64],
        (duals, n_parts): (&SparseRows, usize),
        image: &mut [f64],
    ) {
        let n_columns = self.data.n_cols();
        let (image, constants) = image.split_at_mut(n_columns * n_parts);
        match self.data {
            Data::Csr32(csr) => add_sparse_images(csr, rows, duals, n_parts, image),
            Data::Csr64(csr) => add_sparse_images(csr, rows, duals, n_parts, image),
            _ => scatter(dense, n_columns, 0, duals, image, n_columns),
        }
        for &(part, value) in duals.entries() {
            constants[part as usize] += self.bias * value;
        }
    }

    /// Reorders a sum of images so that it is stored part by part, each part with its constant feature last.
    pub fn by_part(&self, image: &[f64], n_parts: usize) -> Vec<f64> {
        let (n_columns, n_features) = (self.data.n_cols(), self.n_features());
        let (image, constants) = image.split_at(n_columns * n_parts);
        let mut weights = vec![0.0; n_parts * n_features];
        if self.data.is_sparse() {
            transpose(image, n_parts, &mut weights, n_features);
        } else if n_columns > 0 {
            for (to, from) in weights.chunks_exact_mut(n_features).zip(image.chunks(n_columns)) {
                to[..n_columns].copy_from_slice(from);
            }
        }
        if self.bias != 0.0 {
            let places = weights.iter_mut().skip(n_columns).step_by(n_features);
            places.zip(constants).for_each(|(weight, constant)| *weight = *constant);
        }
        weights
    }
}

/// Rows of a dense matrix; see [`Design::dense`].
fn dense_rows<'b, R: Real, T: Real>(
    dense: Dense<'b, R>,
    rows: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone,
    buffer: &'b mut Vec<T>,
) -> &'b [T] {
    let (Some(first), Some(last)) = (rows.clone().next(), rows.clone().next_back()) else {
        return &[];
    };
    if last + 1 - first == rows.len() {
        return read_in(dense.block(first, last + 1), buffer);
    }
    buffer.clear();
    rows.for_each(|row| R::append_to(dense.row(row), buffer));
    buffer
}

/// Adds the scores of sparse rows to `scores`.
fn add_sparse<R: Real, T: Element>(
    csr: Csr<'_, R>,
    rows: impl ExactSizeIterator<Item = usize>,
    panels: &Panels<T>,
    buffer: &mut Vec<T>,
    scores: &mut [f64],
) {
    let n_parts = scores.len() / rows.len().max(1);
    for (row, scores) in rows.zip(scores.chunks_exact_mut(n_parts.max(1))) {
        let (columns, values) = csr.row(row);
        panels.add_sparse_scores(columns, read_in(values, buffer), scores);
    }
}

fn add_sparse_images<T: Real>(
    csr: Csr<'_, T>,
    rows: impl Iterator<Item = usize>,
    duals: &SparseRows,
    n_parts: usize,
    image: &mut [f64],
) {
    for (row, dual) in rows.zip(duals.rows()).filter(|(_, dual)| !dual.is_empty()) {
        let (columns, values) = csr.row(row);
        for (column, value) in columns.iter().zip(values) {
            let image = &mut image[*column as usize * n_parts..][..n_parts];
            let value = value.widen();
            for &(part, coefficient) in dual {
                image[part as usize] += coefficient * value;
            }
        }
    }
}
