//! Reads NumPy and SciPy arrays as [`Data`], without copying them.

use std::ops::Deref;

use half::f16;
use ndarray::{Dimension, Ix1, Ix2};
use numpy::{Element, PyArray, PyArrayMethods, PyReadonlyArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::data::{Csr, Data, Dense};
use crate::error::Result;

/// A NumPy array, read in place if possible.
///
/// Views of raw bytes, of record fields or of memory-mapped files may be misaligned for their type.
/// Reading a misaligned array is undefined behaviour, so such arrays are copied.
pub(super) struct Array<'py, T: Element, D: Dimension>(PyReadonlyArray<'py, T, D>);

/// An array with one axis.
pub(super) type Vector<'py, T> = Array<'py, T, Ix1>;

/// An array with two axes.
pub(super) type Table<'py, T> = Array<'py, T, Ix2>;

impl<'py, T: Element, D: Dimension> Deref for Array<'py, T, D> {
    type Target = PyReadonlyArray<'py, T, D>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'py, T: Element, D: Dimension + 'static> FromPyObject<'_, 'py> for Array<'py, T, D> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array = object.cast::<PyArray<T, D>>()?;
        let bytes = align_of::<T>();
        let aligned = array.data().addr().is_multiple_of(bytes)
            && array.strides().iter().all(|stride| stride.unsigned_abs().is_multiple_of(bytes));
        if aligned {
            return Ok(Self(array.try_readonly()?));
        }
        let copy = array.call_method0("copy")?;
        Ok(Self(copy.cast::<PyArray<T, D>>()?.try_readonly()?))
    }
}

/// A matrix in the form that the Python package prepares: C order, or CSR with sorted and unique
/// int32 columns and int64 offsets.
#[derive(FromPyObject)]
pub(super) enum Matrix<'py> {
    #[pyo3(transparent)]
    Dense16(Table<'py, f16>),
    #[pyo3(transparent)]
    Dense32(Table<'py, f32>),
    #[pyo3(transparent)]
    Dense64(Table<'py, f64>),
    /// `(offsets, columns, values, n_cols)`.
    #[pyo3(transparent)]
    Csr32(CsrArrays<'py, f32>),
    #[pyo3(transparent)]
    Csr64(CsrArrays<'py, f64>),
}

type CsrArrays<'py, T> = (Vector<'py, i64>, Vector<'py, i32>, Vector<'py, T>, usize);

impl Matrix<'_> {
    /// Borrows the rows and checks them.
    pub fn rows(&self) -> Result<Data<'_>> {
        fn csr<'a, T: crate::data::Real + Element>(
            (offsets, columns, values, n_cols): &'a CsrArrays<'_, T>,
        ) -> Result<Csr<'a, T>> {
            Csr::new(slice(offsets)?, slice(columns)?, slice(values)?, *n_cols)
        }
        Ok(match self {
            Self::Dense16(array) => Data::Dense16(Dense::new(array.as_array())?),
            Self::Dense32(array) => Data::Dense32(Dense::new(array.as_array())?),
            Self::Dense64(array) => Data::Dense64(Dense::new(array.as_array())?),
            Self::Csr32(arrays) => Data::Csr32(csr(arrays)?),
            Self::Csr64(arrays) => Data::Csr64(csr(arrays)?),
        })
    }
}

/// Borrows a contiguous vector as a slice.
pub(super) fn slice<'a, T: Element>(array: &'a Vector<'_, T>) -> Result<&'a [T]> {
    array
        .as_slice()
        .map_err(|_| crate::error::Error::argument("X", "the arrays must be contiguous"))
}
