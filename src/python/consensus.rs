//! A partition's part of a round of consensus training.

use std::ops::ControlFlow;

use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, slice};
use super::multiclass::read_costs;
use super::session::run_session;
use crate::multiclass::Problem;
use crate::multiclass::{Order, linear};
use crate::multiclass::{Question, answer};
use crate::polytope::{self, Parameters};
use crate::run::Stopping;

/// Answers a round's question on one partition; see `dualgap.distributed`.
///
/// Nothing is kept between calls: β (None is 0) goes in and comes out, so that the caller may move or
/// save it. `callback` as in the other fits; a true value ends the sub-problem early.
#[pyfunction]
#[pyo3(signature = (rows, labels, *, n_classes, loss, k, weights, costs, sample_weight,
    regularization, smoothing, bias, consensus, multiplier, rho, beta, gap, relative_gap, max_iter, seed, n_threads,
    callback=None))]
#[allow(clippy::too_many_arguments)]
pub(super) fn consensus_round<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: PyReadonlyArray1<'py, u32>,
    n_classes: usize,
    loss: &str,
    k: Option<usize>,
    weights: Option<Vec<f64>>,
    costs: Option<PyReadonlyArray2<'py, f64>>,
    sample_weight: Option<PyReadonlyArray1<'py, f64>>,
    regularization: f64,
    smoothing: f64,
    bias: f64,
    consensus: PyReadonlyArray1<'py, f64>,
    multiplier: PyReadonlyArray1<'py, f64>,
    rho: f64,
    beta: Option<PyReadonlyArray1<'py, f64>>,
    gap: f64,
    relative_gap: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let polytope = polytope::parse(loss, Parameters { k, weights })?;
    let rows = rows.rows()?;
    let features = linear(rows, n_classes, bias, Order::Batches);
    let mut problem = Problem::new(features, slice(&labels)?, polytope, regularization)?
        .with_smoothing(smoothing)?
        .with_costs(read_costs(costs.as_ref(), false))?;
    if let Some(weights) = &sample_weight {
        problem = problem.with_sample_weights(slice(weights)?)?;
    }
    let betas = beta.as_ref().map(slice).transpose()?.unwrap_or_default();
    let question = Question {
        consensus: slice(&consensus)?,
        multiplier: slice(&multiplier)?,
        rho,
        betas,
        seed,
        stopping: Stopping { max_epochs: max_iter, gap },
        relative_gap,
    };
    let ended = run_session(py, n_threads, callback.as_ref(), |session| {
        let observe = &mut |epoch: &_| -> ControlFlow<()> { session.observe(epoch) };
        answer(problem, rows, bias, &question, session.interrupt, observe)
    })?;
    let result = PyDict::new(py);
    result.set_item("loss", ended.loss)?;
    result.set_item("dual_term", ended.dual_term)?;
    result.set_item("gap", ended.gap)?;
    result.set_item("n_epochs", ended.n_epochs)?;
    result.set_item("weights", PyArray1::from_vec(py, ended.weights))?;
    result.set_item("beta", PyArray1::from_vec(py, ended.betas))?;
    Ok(result)
}
