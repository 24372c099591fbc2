//! The PyO3 module `dualgap._core`: arrays in, GIL released, signals polled, errors mapped.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::names::names;
use crate::run::{Epoch, Outcome, Trace};

mod arrays;
mod consensus;
mod losses;
mod multiclass;
mod oracle;
mod polynomial;
mod recommend;
mod records;
mod session;
mod structured;
mod structured_models;

/// A trace as `{outcome, primal, dual, history: {epoch, seconds, primal, dual, gap}}`; what was not
/// evaluated after an epoch is NaN there, and `dual` is None where no bound is known.
fn trace_dict<'py>(py: Python<'py>, trace: &Trace) -> PyResult<Bound<'py, PyDict>> {
    let outcome = match trace.outcome {
        Outcome::Converged => "converged",
        Outcome::Exhausted => "exhausted",
        Outcome::EpochLimit => "epoch_limit",
        Outcome::Stopped => "stopped",
    };
    let column = |value: &dyn Fn(&Epoch) -> Option<f64>| {
        PyArray1::from_iter(py, trace.epochs.iter().map(|epoch| value(epoch).unwrap_or(f64::NAN)))
    };
    let history = PyDict::new(py);
    let epochs = trace.epochs.iter();
    history.set_item("epoch", PyArray1::from_iter(py, epochs.clone().map(|e| e.epoch as i64)))?;
    history.set_item("seconds", PyArray1::from_iter(py, epochs.map(|e| e.seconds)))?;
    history.set_item("primal", column(&|epoch| epoch.objective))?;
    history.set_item("dual", column(&|epoch| epoch.certificate.map(|c| c.dual)))?;
    history.set_item("gap", column(&|epoch| epoch.certificate.map(|c| c.gap())))?;
    let result = PyDict::new(py);
    result.set_item("outcome", outcome)?;
    result.set_item("primal", trace.objective)?;
    result.set_item("dual", trace.certificate.map(|certificate| certificate.dual))?;
    result.set_item("history", history)?;
    Ok(result)
}

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("OUTPUT_LOSSES", losses::output_losses(module.py())?)?;
    module.add("PENALTIES", names(crate::polynomial::penalty::REGISTRY))?;
    module.add("LOSSES", losses::margin_losses(module.py())?)?;
    module.add("SOLVERS", crate::multiclass::MulticlassMethod::names())?;
    module.add("STEPS", crate::solver::STEPS)?;
    module.add("SAMPLINGS", names(crate::solver::Sampling::NAMES))?;
    module.add("STRUCTURED_SOLVERS", crate::structured::StructuredMethod::names())?;
    module.add_class::<structured_models::StructuredModel>()?;
    module.add_function(wrap_pyfunction!(structured::fit_structured, module)?)?;
    module.add_function(wrap_pyfunction!(structured::structured_path, module)?)?;
    module.add_function(wrap_pyfunction!(losses::check_loss, module)?)?;
    module.add_function(wrap_pyfunction!(multiclass::fit_multiclass, module)?)?;
    module.add_function(wrap_pyfunction!(consensus::consensus_round, module)?)?;
    module.add_function(wrap_pyfunction!(polynomial::fit_polynomial, module)?)?;
    module.add_function(wrap_pyfunction!(polynomial::predict_polynomial, module)?)?;
    module.add_function(wrap_pyfunction!(polynomial::select_basis, module)?)?;
    module.add_function(wrap_pyfunction!(recommend::fit_variational, module)?)?;
    Ok(())
}
