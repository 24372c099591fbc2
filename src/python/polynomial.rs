//! Fits and predictions of polynomial networks and factorization machines.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, slice};
use super::session::{Session, run_session};
use crate::data::{Chunked, Data, Rows};
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::polynomial::basis_selection::{Method, select};
use crate::polynomial::conditional_gradient::{ConditionalGradient, PathPoint, Settings};
use crate::polynomial::evaluation::outputs;
use crate::polynomial::kernel::{GradientMatrices, Kernel};
use crate::polynomial::model::Model;
use crate::polynomial::problem::{Problem, Targets};
use crate::polynomial::refit::Refit;
use crate::polynomial::validation::Validation;
use crate::polynomial::{loss, penalty};
use crate::run::{Stopping, Trace, run};

/// Targets as NumPy hands them over: class numbers or rows of values.
#[derive(FromPyObject)]
pub(super) enum TargetArray<'py> {
    #[pyo3(transparent)]
    Classes(PyReadonlyArray1<'py, u32>),
    #[pyo3(transparent)]
    Values(PyReadonlyArray2<'py, f64>),
}

impl TargetArray<'_> {
    fn targets(&self) -> Result<Targets<'_>> {
        let contiguous = |_| Error::argument("y", "must be contiguous (C order)");
        Ok(match self {
            Self::Classes(array) => Targets::Classes(array.as_slice().map_err(contiguous)?),
            Self::Values(array) => Targets::Values(array.as_slice().map_err(contiguous)?),
        })
    }
}

/// A model as NumPy arrays: `basis` k × d', `output` k × m, `linear` (d + 1) × m or None.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct ModelArrays<'py> {
    basis: PyReadonlyArray2<'py, f64>,
    output: PyReadonlyArray2<'py, f64>,
    linear: Option<PyReadonlyArray2<'py, f64>>,
}

impl ModelArrays<'_> {
    fn model(&self, kernel: Kernel, augmented: bool, n_features: usize) -> Result<Model> {
        let (basis, output) = (self.basis.as_array(), self.output.as_array());
        let fits = basis.ncols() == n_features + usize::from(augmented)
            && basis.nrows() == output.nrows()
            && self
                .linear
                .as_ref()
                .is_none_or(|linear| linear.as_array().dim() == (n_features + 1, output.ncols()));
        if !fits {
            return Err(Error::argument("X", "the model was fitted with other features"));
        }
        Ok(Model {
            kernel,
            augmented,
            n_features,
            n_outputs: output.ncols(),
            n_bases: basis.nrows(),
            basis: basis.t().iter().copied().collect(),
            output: output.iter().copied().collect(),
            linear: self.linear.as_ref().map(|linear| linear.as_array().iter().copied().collect()),
        })
    }
}

struct Fitted {
    trace: Trace,
    path: Vec<PathPoint>,
    model: Model,
    scale: f64,
}

/// Fits by conditional gradient; see `dualgap.polynomial` for the parameters. `chunks` of rows count as
/// one matrix.
#[pyfunction]
#[pyo3(signature = (chunks, targets, *, n_outputs, kernel, augmented, alpha, loss, penalty, radius,
    n_components, refit, selection="refined", selection_tol, tol, max_iter, seed, n_threads,
    sample_weight=None, init=None, validation=None, callback=None))]
#[allow(clippy::too_many_arguments)]
pub(super) fn fit_polynomial<'py>(
    py: Python<'py>,
    chunks: Vec<Matrix<'py>>,
    targets: TargetArray<'py>,
    n_outputs: usize,
    kernel: &str,
    augmented: bool,
    alpha: Option<f64>,
    loss: &str,
    penalty: &str,
    radius: f64,
    n_components: usize,
    refit: &str,
    selection: &str,
    selection_tol: f64,
    tol: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    sample_weight: Option<PyReadonlyArray1<'py, f64>>,
    init: Option<ModelArrays<'py>>,
    validation: Option<(Matrix<'py>, TargetArray<'py>)>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (loss, penalty) = (loss::parse(loss)?, penalty::parse(penalty)?);
    let kernel = Kernel::parse(kernel)?;
    let (refit, selection) = (Refit::parse(refit)?, Method::parse(selection)?);
    let settings = Settings { n_components, refit, selection, selection_tol, tol, seed };
    let chunks = chunks.iter().map(Matrix::rows).collect::<Result<Vec<_>>>()?;
    let rows = Chunked::new(&chunks)?;
    let n_features = rows.n_cols();
    let model = match &init {
        Some(init) => init.model(kernel, augmented, n_features)?,
        None => Model::new(kernel, augmented, n_features, n_outputs, alpha.is_some()),
    };
    let weights = sample_weight.as_ref().map(slice).transpose()?;
    let targets = targets.targets()?;
    let held_out: Option<(Data<'_>, Targets<'_>)> = match &validation {
        Some((rows, targets)) => Some((rows.rows()?, targets.targets()?)),
        None => None,
    };
    let validation = match held_out {
        Some((data, targets)) => {
            Some(Validation::new(data, targets, &*loss, n_features, n_outputs)?)
        }
        None => None,
    };
    let fitted = run_session(py, n_threads, callback.as_ref(), |session: &Session<'_>| {
        let problem = Problem {
            rows,
            targets,
            n_outputs,
            weights,
            kernel,
            augmented,
            ridge: alpha,
            loss: &*loss,
            penalty: &*penalty,
            radius,
        };
        fit(problem, settings, model, validation.as_ref(), max_iter, session)
    })?;
    fitted.into_dict(py)
}

fn fit(
    problem: Problem<'_, Chunked<'_>>,
    settings: Settings,
    model: Model,
    validation: Option<&Validation<'_>>,
    max_epochs: usize,
    session: &Session<'_>,
) -> Result<Fitted> {
    let interrupt = session.interrupt;
    let mut solver = ConditionalGradient::new(problem, settings, model, validation, interrupt)?;
    let scale = solver.scale();
    let stopping = Stopping { max_epochs, gap: settings.tol * scale };
    let trace = run(&mut solver, stopping, interrupt, &mut |epoch| session.observe(epoch))?;
    let (model, path) = solver.into_result();
    Ok(Fitted { trace, path, model, scale })
}

impl Fitted {
    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let result = super::trace_dict(py, &self.trace)?;
        result.set_item("scale", self.scale)?;
        let column = |values: Vec<f64>| PyArray1::from_vec(py, values);
        let history = PyDict::new(py);
        let n_bases: Vec<i64> = self.path.iter().map(|point| point.n_bases as i64).collect();
        history.set_item("n_components", PyArray1::from_vec(py, n_bases))?;
        let scores: Option<Vec<_>> = self.path.iter().map(|point| point.validation).collect();
        if let Some(scores) = scores.filter(|scores| !scores.is_empty()) {
            let losses = scores.iter().map(|score| score.loss).collect();
            history.set_item("validation_loss", column(losses))?;
            let scores = scores.iter().map(|score| score.score).collect();
            history.set_item("validation_score", column(scores))?;
        }
        result.set_item("path", history)?;
        let Model { n_bases: k, n_outputs: m, .. } = self.model;
        let width = self
            .model
            .basis
            .len()
            .checked_div(k)
            .unwrap_or(self.model.n_features + usize::from(self.model.augmented));
        let basis = column(self.model.basis).reshape([width, k])?.transpose()?;
        result.set_item("basis", basis)?;
        result.set_item("output", column(self.model.output).reshape([k, m])?)?;
        let linear =
            self.model.linear.map(|linear| column(linear).reshape([self.model.n_features + 1, m]));
        result.set_item("linear", linear.transpose()?)?;
        Ok(result)
    }
}

/// Outputs o(x) of a model, n × m, with products in the precision of the rows.
#[pyfunction]
#[pyo3(signature = (rows, model, *, kernel, augmented, n_threads))]
pub(super) fn predict_polynomial<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    model: ModelArrays<'py>,
    kernel: &str,
    augmented: bool,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let data = rows.rows()?;
    let model = model.model(Kernel::parse(kernel)?, augmented, data.n_cols())?;
    let (n, m) = (data.n_rows(), model.n_outputs);
    let outputs = run_session(py, n_threads, None, |session: &Session<'_>| {
        let interrupt: &Interrupt = session.interrupt;
        match data {
            Data::Dense32(rows) => outputs::<f32>(&model, &rows, interrupt),
            Data::Csr32(rows) => outputs::<f32>(&model, &rows, interrupt),
            Data::Dense64(rows) => outputs::<f64>(&model, &rows, interrupt),
            Data::Csr64(rows) => outputs::<f64>(&model, &rows, interrupt),
        }
    })?;
    PyArray1::from_vec(py, outputs).reshape([n, m])
}

/// One basis vector for given gradients −∂F/∂o (n × m): its vector, g_h and the bound on ω*(g).
#[pyfunction]
#[pyo3(signature = (rows, weights, *, kernel, penalty, selection, tol, seed, n_threads))]
#[allow(clippy::too_many_arguments)]
pub(super) fn select_basis<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    weights: PyReadonlyArray2<'py, f64>,
    kernel: &str,
    penalty: &str,
    selection: &str,
    tol: f64,
    seed: u64,
    n_threads: usize,
) -> PyResult<(Vec<f64>, Vec<f64>, f64)> {
    let (kernel, penalty) = (Kernel::parse(kernel)?, penalty::parse(penalty)?);
    let method = Method::parse(selection)?;
    let data = rows.rows()?;
    let (n, m) = weights.as_array().dim();
    let contiguous = |_| Error::argument("weights", "must be contiguous (C order)");
    let weights = weights.as_slice().map_err(contiguous)?;
    if n != data.n_rows() || n == 0 || m == 0 {
        return Err(Error::argument("weights", "a row of weights per row of X is needed").into());
    }
    let selected = run_session(py, n_threads, None, |session: &Session<'_>| {
        for_data!(data, rows => {
            let gamma = GradientMatrices::new(&rows, kernel, weights, m, session.interrupt)?;
            select(&gamma, &*penalty, method, tol, seed)
        })
    })?;
    Ok((selected.vector, selected.gradient, selected.bound))
}
