//! Traits of the data that kernels read: values stored in any precision, and matrices that are read row by row.

use half::slice::HalfFloatSliceExt;

/// A floating-point type in which values are stored.
pub trait Real:
    num_traits::Float + num_traits::NumCast + Send + Sync + std::fmt::Debug + 'static
{
    /// The value in double precision.
    fn widen(self) -> f64;
    /// The nearest value of this type.
    fn narrow(value: f64) -> Self;
    /// Returns the argument whose values have this type; None if that argument is None or if
    /// neither has this type.
    fn stored<'a>(singles: Option<&'a [f32]>, doubles: Option<&'a [f64]>) -> Option<&'a [Self]>;
    /// Returns the slice itself if it is in single precision, otherwise None.
    fn singles(values: &[Self]) -> Option<&[f32]>;
    /// Returns the slice itself if it is in double precision, otherwise None.
    fn doubles(values: &[Self]) -> Option<&[f64]>;
    /// The bits of the value, for digests.
    fn bits(self) -> u64;
    /// Appends the values to `others`, converted to the precision of `others`.
    #[inline(always)]
    fn append_to<T: Real>(values: &[Self], others: &mut Vec<T>) {
        others.extend(values.iter().map(|value| T::narrow(value.widen())));
    }
}

/// Returns the slice itself if its values are stored in precision `T`, otherwise None.
pub(crate) fn in_precision<R: Real, T: Real>(values: &[R]) -> Option<&[T]> {
    T::stored(R::singles(values), R::doubles(values))
}

/// The values in precision T, copied if they are stored in another precision.
#[inline(always)]
pub(crate) fn read_in<'r, R: Real, T: Real>(values: &'r [R], copied: &'r mut Vec<T>) -> &'r [T] {
    match in_precision(values) {
        Some(values) => values,
        None => {
            copied.clear();
            R::append_to(values, copied);
            copied
        }
    }
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

/// Half precision is for storage only: kernels convert such rows to single precision, block by
/// block.
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
        // Converts a full SIMD vector of values at a time if the processor supports it.
        let mut singles = [0.0; 256];
        for values in values.chunks(singles.len()) {
            let singles = &mut singles[..values.len()];
            values.convert_to_f32_slice(singles);
            others.extend(singles.iter().map(|value| T::narrow(f64::from(*value))));
        }
    }
}

/// A matrix that is read row by row.
pub trait Rows: Sync {
    /// Number of rows.
    fn n_rows(&self) -> usize;

    /// Number of columns.
    fn n_cols(&self) -> usize;

    /// Calls `visit(column, value)` for each stored entry of `row`, in the order of the columns.
    fn visit_row(&self, row: usize, visit: impl FnMut(usize, f64));

    /// Number of stored entries.
    fn n_stored(&self) -> usize;
}
