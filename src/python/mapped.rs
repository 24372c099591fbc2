//! Read-only NumPy arrays that outlive a call, such as memory-mapped files.

use std::sync::Arc;

use numpy::{Element, PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::session::guarded;
use crate::structured::{Kept, StoredRows};

/// A read-only array and its entries.
struct Mapped<T> {
    /// The array that owns the memory of the entries.
    _array: Py<PyArray1<T>>,
    start: *const T,
    len: usize,
}

// SAFETY: `Mapped` gives only shared access to entries, which nothing writes (see `kept`). Dropping a `Py` is safe on
// any thread.
unsafe impl<T: Sync> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> AsRef<[T]> for Mapped<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: `kept` checked that the array is aligned, contiguous and read-only, and took its length. The array
        // keeps the memory, and nothing writes it: `dualgap.sequence._spill` maps an anonymous temporary file after
        // it has written and closed the file, and passes the array to no other code.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// Keeps a read-only array that is mapped from an anonymous file. An empty array becomes an empty
/// vector, because empty files cannot be mapped.
fn kept<T: Element + Sync + Copy + 'static>(array: &Bound<'_, PyArray1<T>>) -> PyResult<Kept<T>> {
    let is_writeable = array.getattr("flags")?.getattr("writeable")?.is_truthy()?;
    let is_aligned = array.data().addr().is_multiple_of(align_of::<T>());
    if array.is_empty() {
        return Ok(Arc::new(Vec::new()));
    }
    if is_writeable || !is_aligned || !array.is_contiguous() {
        return Err(PyValueError::new_err("stored rows must be read-only arrays"));
    }
    let array = array.clone();
    let (start, len) = (array.data().cast_const(), array.len());
    Ok(Arc::new(Mapped { _array: array.unbind(), start, len }))
}

/// Rows in a file, as Python passes them: a tuple of the row offsets (a 0, then the end of each row), the features, the
/// values (None if all are 1), and the number of features.
type Arrays<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Option<Bound<'py, PyArray1<f64>>>,
    usize,
);

/// Rows in a memory-mapped file.
pub(super) struct MappedRows(pub StoredRows);

impl<'py> FromPyObject<'_, 'py> for MappedRows {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (ends, features, values, n_features): Arrays<'py> = object.extract()?;
        let values = values.as_ref().map(kept).transpose()?;
        guarded(|| Ok(Self(StoredRows::new(kept(&ends)?, kept(&features)?, values, n_features)?)))
    }
}
