//! The losses that Python can select by name, and their parameters.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use super::session::guarded;

use crate::polynomial::loss;
use crate::polytope::{self, Parameters};

/// Returns a dictionary that maps the name of each margin loss to the names of its parameters.
pub(super) fn margin_losses(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    polytope::REGISTRY.iter().map(|(name, build)| (*name, build.parameters())).into_py_dict(py)
}

/// Returns a dictionary that maps the name of each polynomial model's loss to its kind of targets.
pub(super) fn output_losses(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    loss::REGISTRY
        .iter()
        .map(|(name, build)| (*name, build().target_kind().name()))
        .into_py_dict(py)
}

/// Raises ValueError unless a margin loss of this name takes these parameters.
#[pyfunction]
pub(super) fn check_loss(loss: &str, k: Option<usize>, weights: Option<Vec<f64>>) -> PyResult<()> {
    guarded(|| {
        polytope::parse(loss, Parameters { k, weights })?;
        Ok(())
    })
}
