//! The record of a run, as Python objects.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::run::{Epoch, Outcome, Trace};
use crate::solver::Piece;

/// One piece of a path, which covers an interval of λ: (largest λ, smallest λ, weights at the largest λ, gap, relative
/// gap, epochs).
pub(super) type PieceTuple<'py> = (f64, f64, Bound<'py, PyArray1<f64>>, f64, f64, usize);

/// Converts a piece of a path to Python objects.
pub(super) fn piece_tuple(py: Python<'_>, piece: Piece) -> PieceTuple<'_> {
    let (gap, relative_gap) = (piece.gap(), piece.relative_gap());
    let Piece { lambda, until, weights, epochs, .. } = piece;
    (lambda, until, PyArray1::from_vec(py, weights), gap, relative_gap, epochs)
}

/// Returns the name of a run's outcome.
pub(super) fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Converged => "converged",
        Outcome::Exhausted => "exhausted",
        Outcome::EpochLimit => "epoch_limit",
        Outcome::Stopped => "stopped",
    }
}

/// Converts a trace to a dictionary with the keys `outcome`, `objective`, `dual_objective` and `history`. The history
/// has the columns `epoch`, `seconds`, `objective`, `dual_objective` and `gap`; values that were not evaluated after an
/// epoch are NaN. `dual_objective` is None if no bound is known.
pub(super) fn trace_dict<'py>(py: Python<'py>, trace: &Trace) -> PyResult<Bound<'py, PyDict>> {
    let column = |value: &dyn Fn(&Epoch) -> Option<f64>| {
        PyArray1::from_iter(py, trace.epochs.iter().map(|epoch| value(epoch).unwrap_or(f64::NAN)))
    };
    let history = PyDict::new(py);
    let epochs = trace.epochs.iter();
    history.set_item("epoch", PyArray1::from_iter(py, epochs.clone().map(|e| e.epoch as i64)))?;
    history.set_item("seconds", PyArray1::from_iter(py, epochs.map(|e| e.seconds)))?;
    history.set_item("objective", column(&|epoch| epoch.objective))?;
    history.set_item("dual_objective", column(&|epoch| epoch.certificate.map(|c| c.dual)))?;
    history.set_item("gap", column(&|epoch| epoch.certificate.map(|c| c.gap())))?;
    let result = PyDict::new(py);
    result.set_item("outcome", outcome_name(trace.outcome))?;
    result.set_item("objective", trace.objective)?;
    result.set_item("dual_objective", trace.certificate.map(|certificate| certificate.dual))?;
    result.set_item("history", history)?;
    Ok(result)
}
