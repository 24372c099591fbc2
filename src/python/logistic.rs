//! Fits of logistic regression.

use std::ops::ControlFlow;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Table, Vector, slice};
use super::records::RunRecord;
use super::session::{
    Digests, Session, digests, guarded, run_session, unchanged, unchanged_between,
};
use super::trace::trace_dict;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::logistic::{
    InterceptCurvature, LogisticFit, LogisticMethod, LogisticModel, LogisticProblem,
    LogisticTotals, PartialSums, fit_logistic, fit_logistic_path, hessian_product,
};

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
    start: Option<ModelArrays<'py>>,
}

impl LogisticRecord<'_> {
    /// The model from which the fit starts, if there is one.
    fn start(&self, rows: Data<'_>) -> Result<Option<LogisticModel>> {
        let shape = (outputs(self.n_classes), rows.n_cols());
        self.start.as_ref().map(|given| model("start", given, shape)).transpose()
    }
}

/// Returns C times the weight of each row.
fn weighted(c: f64, weights: Option<&Vector<'_, f64>>, n_rows: usize) -> Result<Vec<f64>> {
    Ok(match weights {
        None => vec![c; n_rows],
        Some(weights) => slice(weights)?.iter().map(|weight| c * weight).collect(),
    })
}

/// Weights and intercepts.
type ModelArrays<'py> = (Table<'py, f64>, Vector<'py, f64>);

/// Number of outputs for a number of classes. Two classes share one output.
fn outputs(n_classes: usize) -> usize {
    if n_classes == 2 { 1 } else { n_classes }
}

/// Copies the weights and intercepts of a model from Python, after checking their shapes.
fn model(
    name: &'static str,
    (weights, intercepts): &ModelArrays<'_>,
    (n_outputs, n_features): (usize, usize),
) -> Result<LogisticModel> {
    let (weights, intercepts) = (weights.as_array(), slice(intercepts)?.to_vec());
    if weights.dim() != (n_outputs, n_features) || intercepts.len() != n_outputs {
        return Err(Error::argument(name, "the weights have the wrong shape"));
    }
    Ok(LogisticModel { weights: weights.iter().copied().collect(), intercepts })
}

/// Fits a model. `settings` is a dictionary with the fields of `LogisticRecord` and of `RunRecord`.
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
        let weights = weighted(record.c, record.sample_weight.as_ref(), data.n_rows())?;
        let start = record.start(data)?;
        let method = LogisticMethod::parse(&record.solver, record.seed)?;
        let (n_classes, intercept) = (record.n_classes, record.intercept);
        let known = Digests::default();
        if data.is_sparse() {
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

/// Fits a model for each value of C, in order. Each fit starts from the previous model. `settings`
/// is as for `fit_logistic_regression`, except that the list `Cs` replaces `C` and `start`. After
/// each fit, `ended` is called with the dictionary that `fit_logistic_regression` returns. If it returns True, no
/// further model is fitted.
#[pyfunction]
pub(super) fn fit_logistic_regressions<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
    ended: Py<PyAny>,
) -> PyResult<()> {
    guarded(|| {
        let record: LogisticPathRecord<'py> = settings.extract()?;
        let run: RunRecord = settings.extract()?;
        let (data, labels) = (rows.rows()?, slice(&labels)?);
        let weights = weighted(1.0, record.sample_weight.as_ref(), data.n_rows())?;
        let method = LogisticMethod::parse(&record.solver, record.seed)?;
        let (n_classes, intercept) = (record.n_classes, record.intercept);
        let mut raised = None;
        unchanged(py, &[data], || {
            run_session(py, run.n_threads, run.callback.as_ref(), |session: &Session<'_>| {
                let problem = LogisticProblem::new(data, labels, n_classes, weights, intercept)?;
                let observe = &mut |epoch: &_| session.observe(epoch);
                let report = &mut |fit| {
                    let go_on = Python::attach(|py| report_fit(py, &ended, fit));
                    go_on.unwrap_or_else(|error| {
                        raised = Some(error);
                        ControlFlow::Break(())
                    })
                };
                let (how, interrupt) = ((method, run.target()), session.interrupt);
                fit_logistic_path(&problem, how, &record.cs, interrupt, observe, report)
            })
        })?;
        raised.map_or(Ok(()), Err)
    })
}

/// Calls `ended` with a fit. Returns whether to fit the next model.
fn report_fit(py: Python<'_>, ended: &Py<PyAny>, fit: LogisticFit) -> PyResult<ControlFlow<()>> {
    let fit = fit_dict(py, fit)?;
    let stops: bool = ended.call1(py, (fit,))?.extract(py)?;
    Ok(if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// The settings of a path.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LogisticPathRecord<'py> {
    n_classes: usize,
    #[pyo3(item("Cs"))]
    cs: Vec<f64>,
    sample_weight: Option<Vector<'py, f64>>,
    intercept: bool,
    solver: String,
    seed: u64,
}

/// The result of a fit; "curvature" is None if there are no intercepts.
fn fit_dict(py: Python<'_>, fitted: LogisticFit) -> PyResult<Bound<'_, PyDict>> {
    let LogisticFit { model, method, trace, null_objective, curvature } = fitted;
    let n_outputs = model.intercepts.len();
    let result = trace_dict(py, &trace)?;
    result.set_item("null_objective", null_objective)?;
    let shape = [n_outputs, model.weights.len() / n_outputs];
    result.set_item("weights", PyArray1::from_vec(py, model.weights).reshape(shape)?)?;
    result.set_item("intercepts", PyArray1::from_vec(py, model.intercepts))?;
    result.set_item("solver", (method.name(), trace.n_first))?;
    let curvature = curvature.map(|found| curvature_dict(py, found, n_outputs)).transpose()?;
    result.set_item("curvature", curvature)?;
    Ok(result)
}

/// Converts a curvature to a dictionary. The matrix has shape (0, 0) if there are many outputs or if it is not known.
fn curvature_dict(
    py: Python<'_>,
    curvature: InterceptCurvature,
    n_outputs: usize,
) -> PyResult<Bound<'_, PyDict>> {
    let InterceptCurvature { matrix, centre, mean_square, largest_square } = curvature;
    let (result, n) = (PyDict::new(py), if matrix.is_empty() { 0 } else { n_outputs });
    result.set_item("matrix", PyArray1::from_vec(py, matrix).reshape([n, n])?)?;
    result.set_item("centre", PyArray1::from_vec(py, centre))?;
    result.set_item("mean_square", mean_square)?;
    result.set_item("largest_square", largest_square)?;
    Ok(result)
}

/// Settings for evaluating one partition in Newton's method.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PartitionRecord<'py> {
    n_classes: usize,
    #[pyo3(item("C"))]
    c: f64,
    sample_weight: Option<Vector<'py, f64>>,
    intercept: bool,
    model: ModelArrays<'py>,
    tilt: Option<Vector<'py, f64>>,
    direction: Option<ModelArrays<'py>>,
}

/// Evaluates a partition at a model. Without a direction, returns the sums for the certificate.
/// With a direction, returns the product of the Hessian with it (`image` and `residual`).
/// `settings` is a dictionary with the fields of the record above.
#[pyfunction]
pub(super) fn logistic_sums<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: PartitionRecord<'py> = settings.extract()?;
        let (data, labels) = (rows.rows()?, slice(&labels)?);
        let shape = (outputs(record.n_classes), data.n_cols());
        let at = model("model", &record.model, shape)?;
        let direction = record.direction.as_ref();
        let direction = direction.map(|given| model("direction", given, shape)).transpose()?;
        let tilt = record.tilt.as_ref().map(slice).transpose()?;
        if tilt.is_some_and(|tilt| tilt.len() != record.n_classes) {
            return Err(Error::argument("tilt", "must be one number per class").into());
        }
        let weights = weighted(record.c, record.sample_weight.as_ref(), data.n_rows())?;
        let (n_classes, intercept) = (record.n_classes, record.intercept);
        let (sums, sizes) = run_session(py, 1, None, |session: &Session<'_>| {
            let problem = LogisticProblem::new(data, labels, n_classes, weights, intercept)?;
            let interrupt = session.interrupt;
            let sums = match direction {
                None => Ok(PartialSums::of(&problem, &at, tilt, interrupt)?),
                Some(direction) => Err(hessian_product(&problem, &at, &direction, interrupt)?),
            };
            Ok((sums, problem.column_sizes().to_vec()))
        })?;
        let result = PyDict::new(py);
        let (image, residual) = match sums {
            Ok(sums) => {
                result.set_item("loss", sums.loss)?;
                result.set_item("entropy", sums.entropy)?;
                result.set_item("distance", sums.distance)?;
                result.set_item("depth", sums.depth)?;
                result.set_item("moments", PyArray1::from_vec(py, sums.moments))?;
                result.set_item("sizes", PyArray1::from_vec(py, sizes))?;
                (sums.image, sums.residual)
            }
            Err(product) => (product.weights, product.intercepts),
        };
        let image: Bound<'py, PyArray2<f64>> =
            PyArray1::from_vec(py, image).reshape([shape.0, shape.1])?;
        result.set_item("image", image)?;
        result.set_item("residual", PyArray1::from_vec(py, residual))?;
        Ok(result)
    })
}

/// The sums over all partitions, and the totals of their problem.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SumsRecord<'py> {
    loss: f64,
    entropy: f64,
    distance: f64,
    depth: usize,
    moments: Vector<'py, f64>,
    residual: Vector<'py, f64>,
    image: Table<'py, f64>,
    sizes: Vector<'py, f64>,
    n_examples: usize,
    intercept: bool,
    class_totals: Vector<'py, f64>,
    model: ModelArrays<'py>,
}

/// The objective, the lower bound, and a tilt.
type CertificateAndTilt<'py> = (f64, f64, Option<Bound<'py, PyArray1<f64>>>);

/// The objective of a model, its lower bound, and the tilt that improves the bound, if there is one. `sums` is a
/// dictionary with the fields of the record above.
#[pyfunction]
pub(super) fn logistic_certificate<'py>(
    py: Python<'py>,
    sums: &Bound<'py, PyDict>,
) -> PyResult<CertificateAndTilt<'py>> {
    guarded(|| {
        let record: SumsRecord<'py> = sums.extract()?;
        let class_totals = slice(&record.class_totals)?.to_vec();
        if class_totals.len() < 2 {
            return Err(Error::argument("class_totals", "needs at least two classes").into());
        }
        let totals = LogisticTotals {
            n_examples: record.n_examples,
            intercept: record.intercept,
            total: class_totals.iter().sum(),
            class_totals,
            column_sizes: slice(&record.sizes)?.to_vec(),
        };
        let shape = (totals.n_outputs(), totals.n_features());
        let at = model("model", &record.model, shape)?;
        let (image, residual) = (record.image.as_array(), slice(&record.residual)?.to_vec());
        let moments = slice(&record.moments)?.to_vec();
        let fits = image.dim() == shape && residual.len() == shape.0;
        if !(fits && (moments.is_empty() || moments.len() == shape.0 * shape.0)) {
            return Err(Error::argument("sums", "do not have the shape of the model").into());
        }
        let sums = PartialSums {
            loss: record.loss,
            entropy: record.entropy,
            distance: record.distance,
            residual,
            image: image.iter().copied().collect(),
            moments,
            depth: record.depth,
        };
        let certificate = sums.certificate(&totals, &at);
        let tilt = sums.tilt(&totals).map(|tilt| PyArray1::from_vec(py, tilt));
        Ok((certificate.primal, certificate.dual, tilt))
    })
}
