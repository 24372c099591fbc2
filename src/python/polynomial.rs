//! Fits and predictions of polynomial networks and factorization machines.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Table, Vector, slice};
use super::session::{Session, guarded, run_session, unchanged};
use super::trace::trace_dict;
use crate::data::{Chunked, Rows};
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::memory::require;
use crate::penalty;
use crate::polynomial::basis_selection::{Bounding, SelectionMethod, select};
use crate::polynomial::conditional_gradient::{
    ConditionalGradient, ConditionalGradientSettings, FAILURE, PathPoint,
};
use crate::polynomial::curvature::n_remembered;
use crate::polynomial::evaluation::predict;
use crate::polynomial::gradient_matrices::GradientMatrices;
use crate::polynomial::kernel::PolynomialKernel;
use crate::polynomial::loss;
use crate::polynomial::model::PolynomialModel;
use crate::polynomial::problem::{Objective, PolynomialProblem, Targets, column_memory};
use crate::polynomial::refit::Refit;
use crate::polynomial::spectral::spectrum::bound_memory;
use crate::polynomial::spectral_bounds::MAX_FACTORISED;
use crate::polynomial::validation::Validation;
use crate::run::{Returned, Trace, run};
use crate::solver::Target;

/// Targets as NumPy arrays: class indices, or rows of values.
#[derive(FromPyObject)]
pub(super) enum TargetArray<'py> {
    #[pyo3(transparent)]
    Classes(Vector<'py, u32>),
    #[pyo3(transparent)]
    Values(Table<'py, f64>),
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

/// A model as NumPy arrays: `basis` of shape k × d', `output` of shape k × m, and `linear` of shape (d + 1) × m or
/// None.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct PolynomialArrays<'py> {
    basis: Table<'py, f64>,
    output: Table<'py, f64>,
    linear: Option<Table<'py, f64>>,
}

impl PolynomialArrays<'_> {
    fn model(
        &self,
        kernel: PolynomialKernel,
        augmented: bool,
        n_features: usize,
    ) -> Result<PolynomialModel> {
        let layers = (self.basis.as_array(), self.output.as_array());
        let linear = self.linear.as_ref().map(|linear| linear.as_array());
        PolynomialModel::from_layers(kernel, augmented, n_features, layers, linear)
    }
}

/// Settings of `fit_polynomial`; see `dualgap.polynomial` for the parameters.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct PolynomialRecord<'py> {
    n_outputs: usize,
    kernel: String,
    augmented: bool,
    alpha: Option<f64>,
    loss: String,
    penalty: String,
    radius: f64,
    n_components: usize,
    reoptimize: String,
    selection: String,
    selection_tol: f64,
    tol: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    sample_weight: Option<Vector<'py, f64>>,
    target_means: Option<Vector<'py, f64>>,
    init: Option<PolynomialArrays<'py>>,
    validation: Option<(Matrix<'py>, TargetArray<'py>)>,
    callback: Option<Py<PyAny>>,
}

impl PolynomialRecord<'_> {
    fn method(&self) -> Result<ConditionalGradientSettings> {
        Ok(ConditionalGradientSettings {
            n_components: self.n_components,
            refit: Refit::parse(&self.reoptimize)?,
            selection: SelectionMethod::parse(&self.selection)?,
            selection_tol: self.selection_tol,
            tol: self.tol,
            seed: self.seed,
        })
    }
}

struct Fitted {
    trace: Trace,
    path: Vec<PathPoint>,
    model: PolynomialModel,
    scale: f64,
}

/// Fits a model by conditional gradient. `chunks` of rows are treated as one matrix.
#[pyfunction]
pub(super) fn fit_polynomial<'py>(
    py: Python<'py>,
    chunks: Vec<Matrix<'py>>,
    targets: TargetArray<'py>,
    settings: PolynomialRecord<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let (loss, penalty) = (loss::parse(&settings.loss)?, penalty::parse(&settings.penalty)?);
        let chunks = chunks.iter().map(Matrix::rows).collect::<Result<Vec<_>>>()?;
        let rows = Chunked::new(&chunks)?;
        let (n_features, n_outputs) = (rows.n_cols(), settings.n_outputs);
        require_memory(&rows, n_outputs, settings.n_threads)?;
        let means = settings.target_means.as_ref().map(slice).transpose()?;
        let objective = Objective {
            n_outputs,
            kernel: PolynomialKernel::parse(&settings.kernel)?,
            augmented: settings.augmented,
            ridge: settings.alpha,
            loss: &*loss,
            penalty: &*penalty,
            radius: settings.radius,
            target_means: means.unwrap_or_default(),
        };
        let method = settings.method()?;
        let init = settings.init.as_ref();
        let init = init.map(|init| init.model(objective.kernel, objective.augmented, n_features));
        let init = init.transpose()?;
        let weights = settings.sample_weight.as_ref().map(slice).transpose()?;
        let targets = targets.targets()?;
        let held_out = settings.validation.as_ref();
        let held_out = held_out.map(|(rows, y)| Ok::<_, Error>((rows.rows()?, y.targets()?)));
        let held_out = held_out.transpose()?;
        let borrowed: Vec<_> =
            chunks.iter().copied().chain(held_out.iter().map(|(data, _)| *data)).collect();
        let validation = match held_out {
            Some((data, y)) => Some(Validation::new(data, y, &*loss, n_features, n_outputs)?),
            None => None,
        };
        let (n_threads, max_epochs) = (settings.n_threads, settings.max_iter);
        let kernel = |session: &Session<'_>| {
            let problem = PolynomialProblem::new(rows, targets, weights, objective)?;
            let init = init.unwrap_or_else(|| problem.null_model());
            fit(problem, method, init, validation.as_ref(), max_epochs, session)
        };
        let callback = settings.callback.as_ref();
        let fitted = unchanged(py, &borrowed, || run_session(py, n_threads, callback, kernel))?;
        fitted.into_dict(py)
    })
}

/// Number of vectors that a refit stores in addition to the pairs of steps and gradient changes. Each vector has the
/// size of the linear weights.
const COPIES: usize = 10;

/// Returns an error if the outputs and the linear weights of a fit do not fit into memory. The estimate includes:
/// - the outputs of all rows and their residuals;
/// - the vectors as long as the linear weights that quasi-Newton steps store if they use no metric: pairs of steps and
///   gradient changes, points, gradients and a direction;
/// - the vectors that bound the eigenvalues of gradient matrices;
/// - wide rows stored by columns, with their factors.
///
/// It does not include memory for basis vectors that the fit adds later.
fn require_memory(rows: &Chunked<'_>, m: usize, n_threads: usize) -> Result<()> {
    let (n, d) = (rows.n_rows(), rows.n_cols());
    let what = || {
        format!("the outputs and weights for n = {n} rows, m = {m} outputs and d = {d} features")
    };
    let copies = COPIES + 2 * (n_remembered(m.saturating_mul(d + 1)) + 1);
    let bytes = 8 * m as u128 * (2 * n as u128 + copies as u128 * (d as u128 + 1));
    let bytes = bytes + 8 * bound_memory(d + 1, m, n_threads) as u128;
    let bytes = bytes + column_memory(*rows, m);
    require(bytes, what, "fit fewer rows, fewer outputs or fewer features")
}

fn fit(
    problem: PolynomialProblem<'_, Chunked<'_>>,
    settings: ConditionalGradientSettings,
    model: PolynomialModel,
    validation: Option<&Validation<'_>>,
    max_epochs: usize,
    session: &Session<'_>,
) -> Result<Fitted> {
    let interrupt = session.interrupt;
    let mut solver = ConditionalGradient::new(problem, settings, model, validation, interrupt)?;
    let null_objective = solver.null_objective(interrupt)?;
    let scale = null_objective.upper();
    let mut stopping = Target { tol: settings.tol, max_epochs }.stopping(null_objective);
    // With validation data, the model is chosen by its validation score instead of its objective.
    stopping.null_objective = stopping.null_objective.filter(|_| validation.is_none());
    if settings.tol > 0.0 {
        stopping.floor = stopping.floor.max(solver.smallest_gap());
    }
    let trace = run(&mut solver, stopping, interrupt, &mut |epoch| session.observe(epoch))?;
    let null = (trace.returned == Returned::Zero).then(|| solver.null_model());
    let (model, path) = solver.into_result();
    let model = null.unwrap_or(model);
    Ok(Fitted { trace, path, model, scale })
}

impl Fitted {
    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let result = trace_dict(py, &self.trace)?;
        result.set_item("scale", self.scale)?;
        result.set_item("certain", self.model.basis_length() <= MAX_FACTORISED)?;
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
        let PolynomialModel { n_bases: k, n_outputs: m, .. } = self.model;
        let width = self.model.basis_length();
        let basis = column(self.model.basis).reshape([width, k])?.transpose()?;
        result.set_item("basis", basis)?;
        result.set_item("output", column(self.model.output).reshape([k, m])?)?;
        let linear =
            self.model.linear.map(|linear| column(linear).reshape([self.model.n_features + 1, m]));
        result.set_item("linear", linear.transpose()?)?;
        Ok(result)
    }
}

/// Returns the outputs o(x) of a model, n × m. Products are computed in the precision of the rows, or in double
/// precision if the model or its outputs require it.
#[pyfunction]
#[pyo3(signature = (rows, model, *, kernel, augmented, n_threads))]
pub(super) fn predict_polynomial<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    model: PolynomialArrays<'py>,
    kernel: &str,
    augmented: bool,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    guarded(|| {
        let data = rows.rows()?;
        let model = model.model(PolynomialKernel::parse(kernel)?, augmented, data.n_cols())?;
        let shape = [data.n_rows(), model.n_outputs];
        let what = || format!("the outputs for n = {} rows and m = {} outputs", shape[0], shape[1]);
        require(8 * shape[0] as u128 * shape[1] as u128, what, "predict for fewer rows at a time")?;
        let outputs = run_session(py, n_threads, None, |session: &Session<'_>| {
            let interrupt: &Interrupt = session.interrupt;
            predict(&model, data, interrupt)
        })?;
        PyArray1::from_vec(py, outputs).reshape(shape)
    })
}

/// Settings of `select_basis`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct SelectionRecord {
    kernel: String,
    penalty: String,
    selection: String,
    tol: f64,
    seed: u64,
    n_threads: usize,
}

/// Selects one basis vector h for given negative gradients −∂F/∂o (n × m). Returns h, g_h and the bound on ω*(g).
#[pyfunction]
pub(super) fn select_basis<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    weights: Table<'py, f64>,
    settings: SelectionRecord,
) -> PyResult<(Vec<f64>, Vec<f64>, f64)> {
    guarded(|| {
        let kernel = PolynomialKernel::parse(&settings.kernel)?;
        let penalty = penalty::parse(&settings.penalty)?;
        let method = SelectionMethod::parse(&settings.selection)?;
        let SelectionRecord { tol, seed, n_threads, .. } = settings;
        let data = rows.rows()?;
        let m = weights.as_array().ncols();
        let contiguous = |_| Error::argument("weights", "must be contiguous (C order)");
        let weights = weights.as_slice().map_err(contiguous)?;
        let selected = run_session(py, n_threads, None, |session: &Session<'_>| {
            for_data!(data, rows => {
                let gamma = GradientMatrices::new(&rows, kernel, weights, m, session.interrupt)?;
                let bounding = Bounding { accuracy: &|_| tol, failure: FAILURE };
                select(&gamma, &*penalty, method, (tol, seed), bounding)
            })
        })?;
        Ok((selected.vector, selected.gradient, selected.bound))
    })
}
