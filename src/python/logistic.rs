//! Fits of logistic regression.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Table, Vector, slice};
use super::records::RunRecord;
use super::session::{Digests, Session, digests, guarded, run_session, unchanged_between};
use super::trace::trace_dict;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::logistic::{LogisticFit, LogisticMethod, LogisticModel, LogisticProblem, fit_logistic};

/// The settings of a problem, and the model from which its fit starts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LogisticRecord<'py> {
    n_classes: usize,
    #[pyo3(item("C"))]
    c: f64,
    sample_weight: Option<Vector<'py, f64>>,
    intercept: bool,
    solver: String,
    seed: u64,
    start: Option<(Table<'py, f64>, Vector<'py, f64>)>,
}

impl LogisticRecord<'_> {
    /// C times the weight of each row.
    fn weights(&self, n_rows: usize) -> Result<Vec<f64>> {
        Ok(match &self.sample_weight {
            None => vec![self.c; n_rows],
            Some(weights) => slice(weights)?.iter().map(|weight| self.c * weight).collect(),
        })
    }

    /// The model from which the fit starts, if there is one.
    fn start(&self, rows: Data<'_>) -> Result<Option<LogisticModel>> {
        let Some((weights, intercepts)) = &self.start else { return Ok(None) };
        let (weights, intercepts) = (weights.as_array(), slice(intercepts)?.to_vec());
        let n_outputs = if self.n_classes == 2 { 1 } else { self.n_classes };
        if weights.dim() != (n_outputs, rows.n_cols()) || intercepts.len() != n_outputs {
            return Err(Error::argument("start", "the weights have another shape"));
        }
        Ok(Some(LogisticModel { weights: weights.iter().copied().collect(), intercepts }))
    }
}

/// Fits a model. `settings` is a dictionary with the fields of the record above and of `RunRecord`.
#[pyfunction]
pub(super) fn fit_logistic_regression<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: LogisticRecord<'py> = settings.extract()?;
        let run: RunRecord = settings.extract()?;
        let (data, labels) = (rows.rows()?, slice(&labels)?);
        let (weights, start) = (record.weights(data.n_rows())?, record.start(data)?);
        let method = LogisticMethod::parse(&record.solver, record.seed)?;
        let (n_classes, intercept) = (record.n_classes, record.intercept);
        let known = Digests::default();
        if let Data::Csr32(_) | Data::Csr64(_) = data {
            let digests = digests(py, &[data])?;
            known.before.get_or_init(|| digests);
        }
        let fitted = unchanged_between(py, (&[data], &known), || {
            run_session(py, run.n_threads, run.callback.as_ref(), |session: &Session<'_>| {
                let problem =
                    LogisticProblem::digested(data, labels, n_classes, weights, intercept)?;
                if let Some(digest) = problem.digest() {
                    known.before.get_or_init(|| vec![digest]);
                }
                let observe = &mut |epoch: &_| session.observe(epoch);
                let target = run.target();
                let fitted =
                    fit_logistic(&problem, method, target, start, session.interrupt, observe)?;
                if let Some(digest) = data.parallel_digest() {
                    known.after.get_or_init(|| vec![digest]);
                }
                Ok(fitted)
            })
        })?;
        fit_dict(py, fitted)
    })
}

fn fit_dict(py: Python<'_>, fitted: LogisticFit) -> PyResult<Bound<'_, PyDict>> {
    let LogisticFit { model, method, trace, null_objective } = fitted;
    let n_outputs = model.intercepts.len();
    let result = trace_dict(py, &trace)?;
    result.set_item("null_objective", null_objective)?;
    let shape = [n_outputs, model.weights.len() / n_outputs];
    result.set_item("weights", PyArray1::from_vec(py, model.weights).reshape(shape)?)?;
    result.set_item("intercepts", PyArray1::from_vec(py, model.intercepts))?;
    result.set_item("solver", method.name())?;
    Ok(result)
}
