//! Rows as solvers read them: dense or CSR, single or double precision, borrowed from the caller.
//!
//! The only place that knows sparsity. Kernels are generic over [`Rows`]; [`Data`] is the closed set
//! of what they can be given, and [`for_data!`](crate::for_data) picks the right one once per pass.

mod chunked;
mod csr;
mod dense;

pub use chunked::Chunked;
pub use csr::Csr;
pub use dense::Dense;

/// Floating-point type of stored values.
pub trait Real:
    num_traits::Float + num_traits::NumCast + Send + Sync + std::fmt::Debug + 'static
{
    /// The value in double precision, in which everything is accumulated.
    fn widen(self) -> f64;
    /// The nearest stored value.
    fn narrow(value: f64) -> Self;
}

impl Real for f32 {
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn widen(self) -> f64 {
        self
    }
    fn narrow(value: f64) -> Self {
        value
    }
}

/// A matrix read row by row.
pub trait Rows: Sync {
    /// Number of rows.
    fn n_rows(&self) -> usize;

    /// Number of columns.
    fn n_cols(&self) -> usize;

    /// Calls `visit(column, value)` for each stored entry of `row`, by increasing column.
    fn visit_row(&self, row: usize, visit: impl FnMut(usize, f64));

    /// Number of stored entries.
    fn n_stored(&self) -> usize;
}

/// Rows of any of the four kinds.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
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
