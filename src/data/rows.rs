//! What kernels read: stored values of either precision, matrices row by row.

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
