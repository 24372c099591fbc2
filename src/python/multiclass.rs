//! Fits of linear multi-category models.

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, slice};
use super::session::{Session, run_session};
use super::trace_dict;
use crate::error::{Error, Result};
use crate::multiclass::{Costs, Problem};
use crate::multiclass::{DualPoint, Method, Settings, minimize};
use crate::multiclass::{Layout, linear};
use crate::polytope::{self, Parameters};
use crate::run::{Stopping, Trace};
use crate::solver::Start;

/// A fit's end as a later fit starts from it; weights in classes × features (the constant one last).
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct State<'py> {
    weights: PyReadonlyArray2<'py, f64>,
    linear: f64,
    square: f64,
    beta: PyReadonlyArray2<'py, f64>,
}

struct Fitted {
    trace: Trace,
    null_objective: f64,
    end: DualPoint,
    layout: Layout,
}

/// Fits a linear model; see `dualgap.multiclass` for the parameters.
#[pyfunction]
#[pyo3(signature = (rows, labels, *, n_classes, loss, k, weights, costs, costs_per_row,
    sample_weight, regularization, smoothing, bias, solver, step, sampling, tol, max_iter, seed, n_threads,
    keep_dual=false, start=None, callback=None))]
#[allow(clippy::too_many_arguments)]
pub(super) fn fit_multiclass<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: PyReadonlyArray1<'py, u32>,
    n_classes: usize,
    loss: &str,
    k: Option<usize>,
    weights: Option<Vec<f64>>,
    costs: Option<PyReadonlyArray2<'py, f64>>,
    costs_per_row: bool,
    sample_weight: Option<PyReadonlyArray1<'py, f64>>,
    regularization: f64,
    smoothing: f64,
    bias: f64,
    solver: &str,
    step: &str,
    sampling: &str,
    tol: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    keep_dual: bool,
    start: Option<State<'py>>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let method = Method::parse(solver, step, sampling)?;
    let polytope = polytope::parse(loss, Parameters { k, weights })?;
    let rows = rows.rows()?;
    let features = linear(rows, n_classes, bias, method.order());
    let layout = features.layout();
    let mut problem = Problem::new(features, slice(&labels)?, polytope, regularization)?
        .with_smoothing(smoothing)?
        .with_costs(read_costs(costs.as_ref(), costs_per_row))?;
    if let Some(weights) = &sample_weight {
        problem = problem.with_sample_weights(slice(weights)?)?;
    }
    let start = start.map(|start| start.read(layout)).transpose()?;
    let fitted = run_session(py, n_threads, callback.as_ref(), |session: &Session<'_>| {
        let null_objective = problem.null_objective();
        let stopping = Stopping { max_epochs: max_iter, gap: tol * null_objective };
        let settings = Settings { method, seed, stopping, keep_dual };
        let observe = &mut |epoch: &_| session.observe(epoch);
        let (trace, end) =
            minimize(&mut problem, rows, bias, settings, start, session.interrupt, observe)?;
        Ok(Fitted { trace, null_objective, end, layout })
    })?;
    fitted.into_dict(py)
}

pub(super) fn read_costs(costs: Option<&PyReadonlyArray2<'_, f64>>, per_row: bool) -> Costs {
    match costs.map(|costs| costs.as_array().iter().copied().collect()) {
        None => Costs::Unit,
        Some(costs) if per_row => Costs::PerExample(costs),
        Some(costs) => Costs::PerLabel(costs),
    }
}

impl State<'_> {
    fn read(self, layout: Layout) -> Result<DualPoint> {
        let given = self.weights.as_array();
        if given.dim() != (layout.n_classes, layout.n_features) {
            return Err(Error::argument("start", "the weights have another shape"));
        }
        let weights = layout.arrange(given.iter().copied());
        let at = Start { weights, linear: self.linear, square: self.square };
        Ok(DualPoint { at, beta: self.beta.as_array().iter().copied().collect() })
    }
}

impl Fitted {
    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let (layout, DualPoint { at, beta }) = (self.layout, self.end);
        let weights = PyArray1::from_iter(py, layout.by_class(&at.weights));
        let n_rows = beta.len() / layout.n_classes;
        let result = trace_dict(py, &self.trace)?;
        result.set_item("null_objective", self.null_objective)?;
        result.set_item("weights", weights.reshape([layout.n_classes, layout.n_features])?)?;
        result.set_item("linear", at.linear)?;
        result.set_item("square", at.square)?;
        let beta = PyArray1::from_vec(py, beta);
        result.set_item("beta", beta.reshape([n_rows, layout.n_classes])?)?;
        Ok(result)
    }
}
