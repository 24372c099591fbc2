//! LIBSVM files, read from any Python file object.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::session::{guarded, run_session};
use crate::data::LibsvmRows;

/// Number of bytes that are read at a time: enough to occupy 16 threads. Memory holds the matrix, plus the text and the
/// rows of one block of this size.
const BLOCK_BYTES: usize = 1 << 22;

type Arrays<'py> = (
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<f64>>,
);

/// Calls `read(n_bytes)` until it returns nothing, and parses the text. Returns the labels, and the
/// offsets, indices and values of the rows.
#[pyfunction]
pub(super) fn read_libsvm<'py>(
    py: Python<'py>,
    read: &Bound<'py, PyAny>,
    n_threads: usize,
) -> PyResult<Arrays<'py>> {
    guarded(|| {
        let mut rows = LibsvmRows::default();
        loop {
            let block = read.call1((BLOCK_BYTES,))?.cast_into::<PyBytes>()?;
            let text = block.as_bytes();
            if text.is_empty() {
                break;
            }
            let rows = &mut rows;
            run_session(py, n_threads, None, |session| rows.read(text, session.interrupt))?;
        }
        rows.finish()?;
        let LibsvmRows { labels, offsets, indices, values, .. } = rows;
        let (labels, offsets) = (PyArray1::from_vec(py, labels), PyArray1::from_vec(py, offsets));
        Ok((labels, offsets, PyArray1::from_vec(py, indices), PyArray1::from_vec(py, values)))
    })
}
