//! NumPy and SciPy memory seen as [`Data`], without a copy.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::data::{Csr, Data, Dense};
use crate::error::Result;

/// A matrix handed over by the Python side, which has normalised it: C order, sorted unique int32
/// columns, int64 offsets.
#[derive(FromPyObject)]
pub(super) enum Matrix<'py> {
    #[pyo3(transparent)]
    Dense32(PyReadonlyArray2<'py, f32>),
    #[pyo3(transparent)]
    Dense64(PyReadonlyArray2<'py, f64>),
    /// `(offsets, columns, values, n_cols)`.
    #[pyo3(transparent)]
    Csr32(CsrArrays<'py, f32>),
    #[pyo3(transparent)]
    Csr64(CsrArrays<'py, f64>),
}

type CsrArrays<'py, T> =
    (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, T>, usize);

impl Matrix<'_> {
    /// The rows, borrowed and checked.
    pub fn rows(&self) -> Result<Data<'_>> {
        fn csr<'a, T: crate::data::Real + numpy::Element>(
            (offsets, columns, values, n_cols): &'a CsrArrays<'_, T>,
        ) -> Result<Csr<'a, T>> {
            Csr::new(slice(offsets)?, slice(columns)?, slice(values)?, *n_cols)
        }
        Ok(match self {
            Self::Dense32(array) => Data::Dense32(Dense::new(array.as_array())?),
            Self::Dense64(array) => Data::Dense64(Dense::new(array.as_array())?),
            Self::Csr32(arrays) => Data::Csr32(csr(arrays)?),
            Self::Csr64(arrays) => Data::Csr64(csr(arrays)?),
        })
    }
}

/// A contiguous vector as a slice.
pub(super) fn slice<'a, T: numpy::Element>(array: &'a PyReadonlyArray1<'_, T>) -> Result<&'a [T]> {
    array
        .as_slice()
        .map_err(|_| crate::error::Error::argument("X", "the arrays must be contiguous"))
}
