//! The oracle of a structured model written in Python.

use std::sync::Mutex;

use numpy::PyArray1;
use pyo3::prelude::*;

use super::arrays::{Vector, slice};
use crate::error::{Error, Result};
use crate::structured::Oracle;

/// A Python object with one method, `vertices(indices, weights)`. For each of the given examples,
/// it returns (−ψ, L): the vector and the offset of the vertex that maximises the loss.
pub(super) struct PythonOracle {
    oracle: Py<PyAny>,
    /// The object's exception, kept until the computation ends.
    failure: Mutex<Option<PyErr>>,
}

impl PythonOracle {
    pub fn new(oracle: Py<PyAny>) -> Self {
        Self { oracle, failure: Mutex::new(None) }
    }

    /// Raises the object's exception unchanged if there is one. Otherwise returns the result of the
    /// computation.
    pub fn raise<T>(self, result: PyResult<T>) -> PyResult<T> {
        match self.failure.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => result,
        }
    }
}

impl Oracle for PythonOracle {
    fn vertices(
        &self,
        blocks: &[u32],
        weights: &[f64],
        found: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()> {
        let answer = Python::attach(|py| -> PyResult<()> {
            let weights = PyArray1::from_slice(py, weights);
            let vertices = self.oracle.call_method1(py, "vertices", (blocks.to_vec(), weights))?;
            let vertices: Vec<(Vector<'_, f64>, f64)> = vertices.extract(py)?;
            for (features, loss) in &vertices {
                found(slice(features)?, *loss);
            }
            Ok(())
        });
        answer.map_err(|error| {
            *self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            Error::Interrupted
        })
    }
}
