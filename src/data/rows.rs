//! The data that kernels read: stored values of any precision, matrices row by row.

use half::slice::HalfFloatSliceExt;

/// Floating-point type of stored values.
pub trait Real:
    num_traits::Float + num_traits::NumCast + Send + Sync + std::fmt::Debug + 'static
{
    /// The value in double precision, in which everything is accumulated.
    fn widen(self) -> f64;
    /// The nearest stored value.
    fn narrow(value: f64) -> Self;
    /// The values from the slice of this precision.
    fn stored<'a>(singles: Option<&'a [f32]>, doubles: Option<&'a [f64]>) -> Option<&'a [Self]>;
    /// The values, if they are in single precision.
    fn singles(values: &[Self]) -> Option<&[f32]>;
    /// The values, if they are in double precision.
    fn doubles(values: &[Self]) -> Option<&[f64]>;
    /// The bits of a value.
    fn bits(self) -> u64;
    /// Appends the values to others, converted to their precision.
    #[inline(always)]
    fn append_to<T: Real>(values: &[Self], others: &mut Vec<T>) {
        others.extend(values.iter().map(|value| T::narrow(value.widen())));
    }
}

/// The values, if they are stored in precision `T`.
pub(crate) fn in_precision<R: Real, T: Real>(values: &[R]) -> Option<&[T]> {
    T::stored(R::singles(values), R::doubles(values))
}

impl Real for f32 {
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> Self {
        value as f32
    }
    fn stored<'a>(singles: Option<&'a [f32]>, _: Option<&'a [f64]>) -> Option<&'a [f32]> {
        singles
    }
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn singles(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }
    fn doubles(_: &[f32]) -> Option<&[f64]> {
        None
    }
}

impl Real for f64 {
    fn widen(self) -> f64 {
        self
    }
    fn narrow(value: f64) -> Self {
        value
    }
    fn stored<'a>(_: Option<&'a [f32]>, doubles: Option<&'a [f64]>) -> Option<&'a [f64]> {
        doubles
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn singles(_: &[f64]) -> Option<&[f32]> {
        None
    }
    fn doubles(values: &[f64]) -> Option<&[f64]> {
        Some(values)
    }
}

/// Storage only: kernels read such rows block by block, in single precision.
impl Real for half::f16 {
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn stored<'a>(_: Option<&'a [f32]>, _: Option<&'a [f64]>) -> Option<&'a [Self]> {
        None
    }
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn singles(_: &[Self]) -> Option<&[f32]> {
        None
    }
    fn doubles(_: &[Self]) -> Option<&[f64]> {
        None
    }
    fn append_to<T: Real>(values: &[Self], others: &mut Vec<T>) {
        // Whole vectors at a time, if the processor supports it.
        let mut singles = [0.0; 256];
        for values in values.chunks(singles.len()) {
            let singles = &mut singles[..values.len()];
            values.convert_to_f32_slice(singles);
            others.extend(singles.iter().map(|value| T::narrow(f64::from(*value))));
        }
    }
}

/// A matrix read row by row.
pub trait Rows: Sync {
    /// Number of rows.
    fn n_rows(&self) -> usize;

    /// Number of columns.
    fn n_cols(&self) -> usize;

    /// Calls `visit(column, value)` for each stored entry of `row`, sorted by column.
    fn visit_row(&self, row: usize, visit: impl FnMut(usize, f64));

    /// Number of stored entries.
    fn n_stored(&self) -> usize;
}
