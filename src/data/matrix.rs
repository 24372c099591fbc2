//! The closed set of matrices that kernels can be given.

use super::{Csr, Dense, Rows};

/// Rows of any of the five kinds.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// Dense, half precision.
    Dense16(Dense<'a, half::f16>),
    /// Dense, single precision.
    Dense32(Dense<'a, f32>),
    /// Dense, double precision.
    Dense64(Dense<'a, f64>),
    /// Sparse, single precision.
    Csr32(Csr<'a, f32>),
    /// Sparse, double precision.
    Csr64(Csr<'a, f64>),
}

/// Evaluates `$body` with `$rows` bound to the concrete rows inside a [`Data`].
#[macro_export]
macro_rules! for_data {
    ($data:expr, $rows:ident => $body:expr) => {
        match $data {
            $crate::data::Data::Dense16($rows) => $body,
            $crate::data::Data::Dense32($rows) => $body,
            $crate::data::Data::Dense64($rows) => $body,
            $crate::data::Data::Csr32($rows) => $body,
            $crate::data::Data::Csr64($rows) => $body,
        }
    };
}

impl Data<'_> {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        for_data!(self, rows => rows.n_rows())
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        for_data!(self, rows => rows.n_cols())
    }
}
