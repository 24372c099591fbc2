//! Fits of linear multiclass models.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::arrays::{Matrix, Table, Vector, slice};
use super::own_loss::raised;
use super::records::{MarginRecord, MethodRecord, RunRecord, SharesRecord};
use super::session::{Session, guarded, run_session, unchanged_since};
use super::trace::trace_dict;
use crate::error::{Error, Result};
use crate::multiclass::{Layout, MarginPoint, MulticlassFit, Order, fit, regularization_path};
use crate::solver::{Drift, PathSettings, Piece, Start};

/// The final state of a fit, from which a later fit can start. Weights have the shape classes ×
/// features, with the constant feature last.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct StartRecord<'py> {
    weights: Table<'py, f64>,
    linear: f64,
    square: f64,
    drift: [f64; 7],
    beta: Table<'py, f64>,
}

/// The state from which a fit starts, and whether the fit returns its final state.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WarmStart<'py> {
    keep_dual: bool,
    start: Option<StartRecord<'py>>,
}

/// Fits a linear model. `settings` is a dictionary with the fields of `WarmStart` and of
/// several records of the module `records`.
#[pyfunction]
pub(super) fn fit_multiclass<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: MarginRecord<'py> = settings.extract()?;
        let shares: SharesRecord<'py> = settings.extract()?;
        let method: MethodRecord = settings.extract()?;
        let run: RunRecord = settings.extract()?;
        let WarmStart { keep_dual, start } = settings.extract()?;
        let data = rows.rows()?;
        let size = record.size(data, keep_dual, shares.regularization);
        let method = size.method(&method.choices())?;
        size.require(method, 1)?;
        let (rows, own) = ((data, slice(&labels)?), record.own_loss());
        let made = record.problem(py, rows, &shares, method.order(), run.n_threads)?;
        let (mut problem, before) = made;
        problem.map().require_finite()?;
        let layout = problem.map().layout();
        let start = start.map(|start| start.read(layout)).transpose()?;
        let fitted = unchanged_since(py, (&[data], &before), || {
            let kernel = |session: &Session<'_>| {
                own.iter().for_each(|own| own.stops(session.interrupt));
                let by_class = |weights: Vec<f64>| method.by_class(layout, weights);
                let observe = &mut |epoch: &_| session.observe_in_order(epoch, by_class);
                let (target, interrupt) = (run.target(), session.interrupt);
                fit(&mut problem, method, target, keep_dual, start, interrupt, observe)
            };
            raised(own, run_session(py, run.n_threads, run.callback.as_ref(), kernel))
        })?;
        let n_first = fitted.trace.n_first;
        let result = fit_dict(py, fitted, layout)?;
        result.set_item("solver", (method.name(), n_first))?;
        Ok(result)
    })
}

/// Returns the solver that a fit with these settings uses, and the maximum numbers of bytes of its weights and of its
/// dual variables.
#[pyfunction]
pub(super) fn plan_multiclass(
    rows: Matrix<'_>,
    settings: &Bound<'_, PyDict>,
) -> PyResult<(String, u64, u64)> {
    guarded(|| {
        let data = rows.rows()?;
        let record: MarginRecord<'_> = settings.extract()?;
        let shares: SharesRecord<'_> = settings.extract()?;
        let method: MethodRecord = settings.extract()?;
        let WarmStart { keep_dual, .. } = settings.extract()?;
        let size = record.size(data, keep_dual, shares.regularization);
        let choices = method.choices();
        let chosen = size.method(&choices)?;
        let estimate = size.estimate(chosen);
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok((chosen.name().to_owned(), bytes(estimate.weights), bytes(estimate.duals)))
    })
}

impl StartRecord<'_> {
    fn read(self, layout: Layout) -> Result<MarginPoint> {
        let given = self.weights.as_array();
        if given.dim() != (layout.n_classes, layout.n_features) {
            return Err(Error::argument(
                "start",
                "the weights do not have the shape of this model",
            ));
        }
        let weights = given.iter().copied().collect();
        let [force, linear, square, sizes @ .., n_steps] = self.drift;
        let drift = Drift { force, linear, square, sizes, n_steps: n_steps as usize };
        let at = Start { weights, linear: self.linear, square: self.square, drift };
        Ok(MarginPoint { at, beta: self.beta.as_array().iter().copied().collect() })
    }
}

fn fit_dict<'py>(
    py: Python<'py>,
    fitted: MulticlassFit,
    layout: Layout,
) -> PyResult<Bound<'py, PyDict>> {
    let MarginPoint { at, beta } = fitted.end;
    let shape = [layout.n_classes, layout.n_features];
    let last = PyArray1::from_vec(py, at.weights).reshape(shape)?;
    let n_rows = beta.len() / layout.n_classes;
    let result = trace_dict(py, &fitted.trace)?;
    result.set_item("null_objective", fitted.null_objective)?;
    match fitted.weights {
        Some(weights) => {
            result.set_item("weights", PyArray1::from_vec(py, weights).reshape(shape)?)?;
        }
        None => result.set_item("weights", &last)?,
    }
    // The weights determined by the dual point.
    result.set_item("last_weights", last)?;
    result.set_item("linear", at.linear)?;
    result.set_item("square", at.square)?;
    let Drift { force, linear, square, sizes: [a, b, c], n_steps } = at.drift;
    result.set_item("drift", [force, linear, square, a, b, c, n_steps as f64])?;
    let beta = PyArray1::from_vec(py, beta);
    result.set_item("beta", beta.reshape([n_rows, layout.n_classes])?)?;
    Ok(result)
}

/// Computes a path over λ, from the `regularization` in `settings` down to `until`, with the solver that a fit at
/// `until` would use. `settings` is a dictionary with the fields of several records of the module `records`. The path
/// consists of pieces, each of which covers an interval of λ: (largest λ, smallest λ, weights at the largest λ, gap,
/// relative gap, epochs).
#[pyfunction]
pub(super) fn multiclass_path<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
    until: f64,
) -> PyResult<Bound<'py, PyList>> {
    guarded(|| {
        let record: MarginRecord<'py> = settings.extract()?;
        let shares: SharesRecord<'py> = settings.extract()?;
        let method: MethodRecord = settings.extract()?;
        let run: RunRecord = settings.extract()?;
        let (data, own) = (rows.rows()?, record.own_loss());
        let size = record.size(data, true, until);
        let chosen = size.method(&method.choices())?;
        size.require(chosen, 1)?;
        let rows = (data, slice(&labels)?);
        let made = record.problem(py, rows, &shares, Order::Examples, run.n_threads)?;
        let (mut problem, before) = made;
        let (pieces, layout) = unchanged_since(py, (&[data], &before), || {
            let (layout, from) = (problem.map().layout(), shares.regularization);
            let stopping = run.target().stopping(problem.null_objective());
            let settings = PathSettings { from, until, stopping };
            let pieces = run_session(py, run.n_threads, run.callback.as_ref(), |session| {
                own.iter().for_each(|own| own.stops(session.interrupt));
                let observe = &mut |epoch: &_| session.observe(epoch);
                let interrupt = session.interrupt;
                regularization_path(&mut problem, chosen, settings, interrupt, observe)
            });
            Ok((raised(own, pieces)?, layout))
        })?;
        let shape = [layout.n_classes, layout.n_features];
        let pieces = pieces.into_iter().map(|piece| {
            let (gap, relative_gap) = (piece.gap(), piece.relative_gap());
            let Piece { lambda, until, weights, epochs, .. } = piece;
            let weights = PyArray1::from_vec(py, layout.by_class(&weights)).reshape(shape)?;
            Ok((lambda, until, weights, gap, relative_gap, epochs))
        });
        PyList::new(py, pieces.collect::<PyResult<Vec<_>>>()?)
    })
}
