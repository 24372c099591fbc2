//! Products of rows and weights in double precision, for rows of any precision and layout.

use std::ops::Range;

use crate::data::{Csr, Data, Real, Rows};
use crate::for_data;
use crate::linalg::{Element, Panels, SparseRows, scatter, transpose};

/// The rows, each extended with a constant feature unless `bias` is 0.
#[derive(Debug, Clone, Copy)]
pub struct Design<'a> {
    /// The rows.
    pub data: Data<'a>,
    /// The value of the constant feature; 0 if there is none.
    pub bias: f64,
}

/// Weights, packed for the computation of scores.
pub(super) struct Packed {
    panels: Panels<f64>,
    offsets: Vec<f64>,
}

/// Buffer for dense rows in double precision.
#[derive(Default)]
pub(super) struct Buffer(Vec<f64>);

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

    /// Packs weights that are given part by part, each part with its constant feature last.
    pub(super) fn pack(&self, weights: &[f64], n_parts: usize) -> Packed {
        let (n_columns, n_features) = (self.data.n_cols(), self.n_features());
        let mut panels = Panels::new(n_columns, n_parts);
        panels.pack(weights, |column| column, n_features);
        let mut offsets = vec![0.0; n_parts];
        if self.bias != 0.0 {
            let constants = weights.iter().skip(n_columns).step_by(n_features);
            offsets.iter_mut().zip(constants).for_each(|(offset, w)| *offset = self.bias * w);
        }
        Packed { panels, offsets }
    }

    /// Writes the scores of some rows, one score per part. Also returns these rows in double precision if they are
    /// dense, for [`Design::add_images`].
    pub(super) fn scores<'b>(
        &self,
        packed: &Packed,
        rows: &[u32],
        buffer: &'b mut Buffer,
        scores: &mut [f64],
    ) -> &'b [f64]
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

    /// Some rows of a dense matrix in double precision. Borrows them without a copy if they are stored contiguously in
    /// double precision.
    fn dense<'b>(&self, rows: &[u32], buffer: &'b mut Buffer) -> &'b [f64]
    where
        'a: 'b,
    {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return &[] };
        let (first, last) = (*first as usize, *last as usize);
        if let Data::Dense64(dense) = self.data
            && last + 1 - first == rows.len()
        {
            return dense.block(first, last + 1);
        }
        buffer.0.clear();
        for row in rows.iter().map(|row| *row as usize) {
            match self.data {
                Data::Dense16(dense) => Real::append_to(dense.row(row), &mut buffer.0),
                Data::Dense32(dense) => Real::append_to(dense.row(row), &mut buffer.0),
                Data::Dense64(dense) => buffer.0.extend_from_slice(dense.row(row)),
                Data::Csr32(_) | Data::Csr64(_) => {}
            }
        }
        &buffer.0
    }

    /// Appends some rows, each with the constant feature, padded to `stride` values.
    pub(super) fn append_rows(&self, rows: &[u32], stride: usize, values: &mut Vec<f64>) {
        let n_columns = self.data.n_cols();
        for row in rows {
            let start = values.len();
            values.resize(start + stride, 0.0);
            let values = &mut values[start..];
            for_data!(self.data, rows => {
                rows.visit_row(*row as usize, |column, value| values[column] = value);
            });
            if self.bias != 0.0 {
                values[n_columns] = self.bias;
            }
        }
    }

    /// The length of the buffer that [`Design::add_images`] adds to.
    pub(super) fn image_len(&self, n_parts: usize) -> usize {
        (self.data.n_cols() + 1) * n_parts
    }

    /// Adds Σ_i A_iᵀ u_i over some rows; `dense` is the value that [`Design::scores`] returned for them.
    pub(super) fn add_images(
        &self,
        rows: &[u32],
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
    pub(super) fn by_part(&self, image: &[f64], n_parts: usize) -> Vec<f64> {
        let (n_columns, n_features) = (self.data.n_cols(), self.n_features());
        let (image, constants) = image.split_at(n_columns * n_parts);
        let mut weights = vec![0.0; n_parts * n_features];
        if matches!(self.data, Data::Csr32(_) | Data::Csr64(_)) {
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

    /// Adds the squared features of a row to `squares`, part by part, multiplied by the scale of each part.
    pub(super) fn add_squares(&self, row: usize, scales: &[f64], squares: &mut [f64]) {
        let n_features = self.n_features();
        let places = |squares: &mut [f64], feature: usize, square: f64| {
            let places = squares.iter_mut().skip(feature).step_by(n_features);
            places.zip(scales).for_each(|(place, scale)| *place += scale * square);
        };
        for_data!(self.data, rows => {
            rows.visit_row(row, |column, value| places(squares, column, value * value));
        });
        if self.bias != 0.0 {
            places(squares, self.data.n_cols(), self.bias * self.bias);
        }
    }
}

/// The row numbers of a range as a vector.
pub(super) fn listed(rows: Range<usize>) -> Vec<u32> {
    (rows.start as u32..rows.end as u32).collect()
}

fn add_sparse<T: Element>(
    csr: Csr<'_, T>,
    rows: &[u32],
    panels: &Panels<f64>,
    buffer: &mut Buffer,
    scores: &mut [f64],
) {
    let n_parts = scores.len() / rows.len().max(1);
    for (row, scores) in rows.iter().zip(scores.chunks_exact_mut(n_parts.max(1))) {
        let (columns, values) = csr.row(*row as usize);
        let values = match T::doubles(values) {
            Some(values) => values,
            None => {
                buffer.0.clear();
                T::append_to(values, &mut buffer.0);
                &buffer.0
            }
        };
        panels.add_sparse_scores(columns, values, scores);
    }
}

fn add_sparse_images<T: Real>(
    csr: Csr<'_, T>,
    rows: &[u32],
    duals: &SparseRows,
    n_parts: usize,
    image: &mut [f64],
) {
    for (row, dual) in rows.iter().zip(duals.rows()).filter(|(_, dual)| !dual.is_empty()) {
        let (columns, values) = csr.row(*row as usize);
        for (column, value) in columns.iter().zip(values) {
            let image = &mut image[*column as usize * n_parts..][..n_parts];
            let value = value.widen();
            for &(part, coefficient) in dual {
                image[part as usize] += coefficient * value;
            }
        }
    }
}
