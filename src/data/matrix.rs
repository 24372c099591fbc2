//! The matrix types that fits and predictions accept.

use ndarray::{Array2, ArrayView2};

use super::{Csr, Dense, Real, Rows};
use crate::error::{Error, Result};

/// Rows stored as any of the five matrix types.
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

macro_rules! from_rows {
    ($($variant:ident: $rows:ident<$value:ty>),*) => {$(
        impl<'a> From<$rows<'a, $value>> for Data<'a> {
            fn from(rows: $rows<'a, $value>) -> Self {
                Self::$variant(rows)
            }
        }
    )*};
}

from_rows!(
    Dense16: Dense<half::f16>, Dense32: Dense<f32>, Dense64: Dense<f64>,
    Csr32: Csr<f32>, Csr64: Csr<f64>
);

/// A type that fits and predictions accept as rows: [`Data`], [`Dense`], [`Csr`], or an array in C
/// order.
pub trait IntoRows<'a> {
    /// Borrows the rows of this matrix.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for arrays with another memory layout.
    fn into_rows(self) -> Result<Data<'a>>;
}

impl<'a, T: Into<Data<'a>>> IntoRows<'a> for T {
    fn into_rows(self) -> Result<Data<'a>> {
        Ok(self.into())
    }
}

impl<'a, T: Real> IntoRows<'a> for ArrayView2<'a, T>
where
    Data<'a>: From<Dense<'a, T>>,
{
    fn into_rows(self) -> Result<Data<'a>> {
        Ok(Dense::new(self)?.into())
    }
}

impl<'a, T: Real> IntoRows<'a> for &'a Array2<T>
where
    Data<'a>: From<Dense<'a, T>>,
{
    fn into_rows(self) -> Result<Data<'a>> {
        self.view().into_rows()
    }
}

/// Evaluates `$body` with `$rows` bound to the rows inside a [`Data`], which have a concrete type.
macro_rules! for_data {
    ($data:expr, $rows:ident => $body:expr) => {
        match $data {
            crate::data::Data::Dense16($rows) => $body,
            crate::data::Data::Dense32($rows) => $body,
            crate::data::Data::Dense64($rows) => $body,
            crate::data::Data::Csr32($rows) => $body,
            crate::data::Data::Csr64($rows) => $body,
        }
    };
}

pub(crate) use for_data;

/// [`for_data!`] for dense rows; evaluates `$other` for CSR rows, which `$sparse` matches.
macro_rules! for_dense {
    ($data:expr, $rows:ident => $body:expr, $sparse:pat => $other:expr) => {
        match $data {
            crate::data::Data::Dense16($rows) => $body,
            crate::data::Data::Dense32($rows) => $body,
            crate::data::Data::Dense64($rows) => $body,
            $sparse => $other,
        }
    };
}

pub(crate) use for_dense;

impl Data<'_> {
    /// Whether the rows are sparse.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Csr32(_) | Self::Csr64(_))
    }

    /// The error for the first number that is not finite. The search starts at a given row.
    pub(crate) fn not_finite(&self, first: usize) -> Error {
        let mut found = None;
        for row in first..for_data!(self, rows => rows.n_rows()) {
            for_data!(self, rows => rows.visit_row(row, |column, value| {
                if !value.is_finite() && found.is_none() {
                    found = Some((if value.is_nan() { "NaN" } else { "infinity" }, column));
                }
            }));
            if let Some((what, column)) = found {
                let message = format!("contains {what}, at row {row} and column {column}");
                return Error::argument("X", message);
            }
        }
        Error::argument("X", "must be finite")
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        for_data!(self, rows => rows.n_rows())
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        for_data!(self, rows => rows.n_cols())
    }

    /// A hash of all stored entries. If rows have been modified, their digest differs, except with
    /// a probability of about 2⁻⁶⁴. `go_on` is called about every millisecond.
    ///
    /// # Errors
    /// The error that `go_on` returns, which ends the computation.
    pub(crate) fn digest<E>(
        &self,
        go_on: &mut impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        for_data!(self, rows => rows.digest(go_on))
    }

    /// For dense rows, the same hash as [`Self::digest`], computed in parallel. None for sparse rows.
    pub(crate) fn parallel_digest(&self) -> Option<u64> {
        match self {
            Self::Dense16(rows) => Some(rows.parallel_digest()),
            Self::Dense32(rows) => Some(rows.parallel_digest()),
            Self::Dense64(rows) => Some(rows.parallel_digest()),
            Self::Csr32(_) | Self::Csr64(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::ArrayView2;

    use super::*;

    fn unhindered(data: &Data<'_>) -> u64 {
        data.digest(&mut || Ok::<_, ()>(())).unwrap()
    }

    fn dense(values: &[f64]) -> u64 {
        let view = ArrayView2::from_shape((3, 100), values).unwrap();
        unhindered(&Data::Dense64(Dense::new(view).unwrap()))
    }

    #[test]
    fn digests_of_different_arrays_differ() {
        let values: Vec<f64> = (0..300).map(|value| f64::from(value % 7)).collect();
        let before = dense(&values);
        assert_eq!(dense(&values), before);
        for place in [0, 1, 99, 100, 298, 299] {
            for value in [f64::NAN, -values[place] - 1.0, values[place] + 0.5] {
                let mut other = values.clone();
                other[place] = value;
                assert_ne!(dense(&other), before, "{value} at {place}");
            }
        }
        let negated: Vec<f64> = values.iter().map(|value| -value).collect();
        assert_ne!(dense(&negated), before);
        let mut swapped = values.clone();
        swapped.swap(0, 8);
        assert_ne!(dense(&swapped), before);
        swapped.swap(0, 8);
        assert_eq!(dense(&swapped), before);
    }

    #[test]
    fn digests_of_sparse_rows_depend_on_columns_and_offsets() {
        let digest = |offsets: &[i64], columns: &[i32]| {
            unhindered(&Data::Csr32(Csr::new(offsets, columns, &[1.0f32, 2.0], 3).unwrap()))
        };
        let before = digest(&[0, 1, 2], &[0, 1]);
        assert_eq!(digest(&[0, 1, 2], &[0, 1]), before);
        assert_ne!(digest(&[0, 1, 2], &[0, 2]), before);
        assert_ne!(digest(&[0, 2, 2], &[0, 1]), before);
    }

    #[test]
    fn a_digest_returns_the_error_of_an_interrupt() {
        let values = vec![1.0; 100];
        let view = ArrayView2::from_shape((10, 10), &values).unwrap();
        let data = Data::Dense64(Dense::new(view).unwrap());
        assert_eq!(data.digest(&mut || Err("stop")), Err("stop"));
    }
}
