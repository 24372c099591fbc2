//! Fits of structured models: built-in ones, and models written in Python.

use std::sync::Mutex;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::arrays::slice;
use super::oracle_dual::OracleDual;
use super::session::{Session, run_session};
use super::structured_models::StructuredModel;
use super::trace_dict;
use crate::dual::{BlockDual, DualOracle};
use crate::error::{Error, Result};
use crate::linalg::Sparse;
use crate::multiclass::shares;
use crate::run::{Stopping, run};
use crate::solver::{Block, BlockOptions, BlockStep, PathSettings, Piece, path};
use crate::structured::{
    Extragradient, Projection, StructuredEnd, StructuredMethod, StructuredOptions,
    minimize_structured,
};
use crate::structured::{Marginals, Problem};

/// What a fit is to do, as `dualgap.structured` says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Settings<'py> {
    regularization: f64,
    sample_weight: Option<PyReadonlyArray1<'py, f64>>,
    solver: String,
    step: Option<String>,
    sampling: String,
    cache: bool,
    averaging: bool,
    subsample: f64,
    projection: String,
    radius: Option<f64>,
    tol: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    keep_dual: bool,
    start: Option<Start<'py>>,
    callback: Option<Py<PyAny>>,
}

/// A dual point: for each block its vertices' weights, and for each of them its entries.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Start<'py> {
    weights: PyReadonlyArray1<'py, f64>,
    atoms: PyReadonlyArray1<'py, i64>,
    shares: PyReadonlyArray1<'py, f64>,
    lengths: PyReadonlyArray1<'py, i64>,
    parts: PyReadonlyArray1<'py, u32>,
    values: PyReadonlyArray1<'py, f64>,
}

impl Settings<'_> {
    fn options(&self) -> StructuredOptions<'_> {
        StructuredOptions {
            step: self.step.as_deref(),
            sampling: &self.sampling,
            cache: self.cache,
            averaging: self.averaging,
            subsample: self.subsample,
            seed: self.seed,
        }
    }

    fn problem<'a>(&self, model: &'a Bound<'_, StructuredModel>) -> Result<Problem<'a>> {
        let problem = Problem::new(model.get().model(), self.regularization)?;
        match &self.sample_weight {
            Some(weights) => problem.with_sample_weights(slice(weights)?),
            None => Ok(problem),
        }
    }

    /// Calls `work` with the dual of a model written in Python; what that raises comes out unchanged.
    fn with_oracle<T>(
        &self,
        (oracle, n_examples, n_weights): (Py<PyAny>, usize, usize),
        work: impl FnOnce(OracleDual<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let failure = Mutex::new(None);
        let shares = match &self.sample_weight {
            Some(weights) => shares(slice(weights)?, n_examples)?,
            None => vec![1.0 / n_examples as f64; n_examples],
        };
        let lambda = self.regularization;
        let result = work(OracleDual::new(oracle, n_weights, lambda, shares, &failure));
        match failure.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => result,
        }
    }
}

impl Start<'_> {
    fn read(&self, method: StructuredMethod) -> Result<(Vec<f64>, Vec<Block>)> {
        let (keep, cached) = match method {
            StructuredMethod::BlockFrankWolfe(options) => {
                (options.cache || options.step != BlockStep::FrankWolfe, options.cache)
            }
            _ => (false, false),
        };
        let mut entries =
            slice(&self.parts)?.iter().copied().zip(slice(&self.values)?.iter().copied());
        let mut atoms = slice(&self.shares)?.iter().zip(slice(&self.lengths)?);
        let mut block = |n_atoms: &i64| {
            let atoms = atoms.by_ref().take(*n_atoms as usize);
            let atoms = atoms.map(|(share, length)| {
                (entries.by_ref().take(*length as usize).collect::<Sparse>(), *share)
            });
            Block::combining(atoms, keep, cached)
        };
        let blocks = slice(&self.atoms)?.iter().map(&mut block).collect();
        Ok((slice(&self.weights)?.to_vec(), blocks))
    }
}

/// A problem's model and examples.
#[derive(FromPyObject)]
pub(super) enum Source<'py> {
    /// A built-in model.
    #[pyo3(transparent)]
    Builtin(Bound<'py, StructuredModel>),
    /// A model written in Python: (oracle, number of examples, number of weights).
    #[pyo3(transparent)]
    Oracle((Py<PyAny>, usize, usize)),
}

/// Fits a structured model to its examples.
#[pyfunction]
pub(super) fn fit_structured<'py>(
    py: Python<'py>,
    source: Source<'py>,
    settings: Settings<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    match source {
        Source::Builtin(model) if settings.solver == "extragradient" => {
            fit_extragradient(py, model.get().model(), &settings)
        }
        Source::Builtin(model) => fit(py, settings.problem(&model)?, &settings),
        Source::Oracle(oracle) => settings.with_oracle(oracle, |dual| fit(py, dual, &settings)),
    }
}

/// A certified regularisation path from `settings.regularization` down to `until`: the objective of
/// w = 0 and a list of (lambda, until, weights, gap, epochs).
#[pyfunction]
pub(super) fn structured_path<'py>(
    py: Python<'py>,
    source: Source<'py>,
    settings: Settings<'py>,
    until: f64,
) -> PyResult<(f64, Bound<'py, PyList>)> {
    match source {
        Source::Builtin(model) => follow(py, settings.problem(&model)?, &settings, until),
        Source::Oracle(oracle) => {
            settings.with_oracle(oracle, |dual| follow(py, dual, &settings, until))
        }
    }
}

fn fit<'py, D: BlockDual + DualOracle + Send>(
    py: Python<'py>,
    mut dual: D,
    settings: &Settings<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let method = StructuredMethod::parse(&settings.solver, &settings.options())?;
    let start = settings.start.as_ref().map(|start| start.read(method)).transpose()?;
    let (max_epochs, tol) = (settings.max_iter, settings.tol);
    let kernel = |session: &Session<'_>| {
        let zero = vec![0.0; BlockDual::n_weights(&dual)];
        let null_objective = dual.survey(&zero, &|_| &[], session.interrupt)?.loss;
        let stopping = Stopping { max_epochs, gap: tol * null_objective };
        let observe = &mut |epoch: &_| session.observe(epoch);
        let interrupt = session.interrupt;
        let end = minimize_structured(dual, method, stopping, start, interrupt, observe)?;
        Ok((null_objective, end))
    };
    let (null_objective, end) =
        run_session(py, settings.n_threads, settings.callback.as_ref(), kernel)?;
    let result = end_dict(py, &end, settings.keep_dual)?;
    result.set_item("null_objective", null_objective)?;
    Ok(result)
}

fn fit_extragradient<'py>(
    py: Python<'py>,
    model: &dyn Marginals,
    settings: &Settings<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let n = model.n_examples();
    let projection = Projection::parse(&settings.projection)?;
    if settings.start.is_some() {
        let message = "only \"block-frank-wolfe\" can be continued";
        return Err(Error::argument("warm_start", message).into());
    }
    let shares = match &settings.sample_weight {
        Some(weights) => shares(slice(weights)?, n)?,
        None => vec![1.0 / n.max(1) as f64; n],
    };
    let mut problem = Problem::new(model, settings.regularization)?;
    if let Some(weights) = &settings.sample_weight {
        problem = problem.with_sample_weights(slice(weights)?)?;
    }
    let (max_epochs, tol, lambda) = (settings.max_iter, settings.tol, settings.regularization);
    let given = settings.radius;
    let kernel = |session: &Session<'_>| {
        let null_objective = problem.null_objective(session.interrupt)?;
        // The ball that holds the regularised optimum (SPEC 10.3).
        let largest = (null_objective / lambda).sqrt();
        let radius = given.unwrap_or(if largest > 0.0 { largest } else { 1.0 });
        let mut solver = Extragradient::new(model, shares, projection, radius)?;
        let stopping = Stopping { max_epochs, gap: tol * null_objective };
        let observe = &mut |epoch: &_| session.observe(epoch);
        let trace = run(&mut solver, stopping, session.interrupt, observe)?;
        let weights = solver.weights().to_vec();
        Ok((null_objective, StructuredEnd { trace, weights, dual: None, oracle_calls: None }))
    };
    let (null_objective, end) =
        run_session(py, settings.n_threads, settings.callback.as_ref(), kernel)?;
    let result = end_dict(py, &end, false)?;
    result.set_item("null_objective", null_objective)?;
    Ok(result)
}

fn end_dict<'py>(
    py: Python<'py>,
    end: &StructuredEnd,
    keep_dual: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let result = trace_dict(py, &end.trace)?;
    result.set_item("weights", PyArray1::from_slice(py, &end.weights))?;
    result.set_item("oracle_calls", end.oracle_calls)?;
    let dual = end.dual.as_ref().filter(|_| keep_dual);
    let dual = dual.map(|(weights, blocks)| dual_dict(py, weights, blocks)).transpose()?;
    result.set_item("dual_point", dual)?;
    Ok(result)
}

/// [`Start`] as Python keeps it.
fn dual_dict<'py>(
    py: Python<'py>,
    weights: &[f64],
    blocks: &[Block],
) -> PyResult<Bound<'py, PyDict>> {
    let (mut atoms, mut shares, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    let (mut parts, mut values) = (Vec::new(), Vec::new());
    let mut push = |vertex: &Sparse, share: f64| {
        shares.push(share);
        lengths.push(vertex.len() as i64);
        parts.extend(vertex.iter().map(|(part, _)| *part));
        values.extend(vertex.iter().map(|(_, value)| *value));
    };
    for block in blocks {
        if block.atoms.is_empty() {
            push(&block.point, 1.0);
            atoms.push(1);
            continue;
        }
        let active = block.atoms.iter().filter(|atom| atom.weight > 0.0);
        active.clone().for_each(|atom| push(&atom.vertex, atom.weight));
        atoms.push(active.count() as i64);
    }
    let result = PyDict::new(py);
    result.set_item("weights", PyArray1::from_slice(py, weights))?;
    result.set_item("atoms", PyArray1::from_vec(py, atoms))?;
    result.set_item("shares", PyArray1::from_vec(py, shares))?;
    result.set_item("lengths", PyArray1::from_vec(py, lengths))?;
    result.set_item("parts", PyArray1::from_vec(py, parts))?;
    result.set_item("values", PyArray1::from_vec(py, values))?;
    Ok(result)
}

fn follow<'py, D: BlockDual + Send>(
    py: Python<'py>,
    mut dual: D,
    settings: &Settings<'py>,
    until: f64,
) -> PyResult<(f64, Bound<'py, PyList>)> {
    let method = StructuredMethod::parse(&settings.solver, &settings.options())?;
    let StructuredMethod::BlockFrankWolfe(options) = method else {
        return Err(Error::argument("solver", "a path needs \"block-frank-wolfe\"").into());
    };
    let options = BlockOptions { averaging: false, ..options };
    let (from, max_epochs, tol) = (settings.regularization, settings.max_iter, settings.tol);
    let kernel = |session: &Session<'_>| {
        let zero = vec![0.0; dual.n_weights()];
        let null_objective = dual.survey(&zero, &|_| &[], session.interrupt)?.loss;
        let gap = tol * null_objective;
        let settings = PathSettings { from, until, gap, max_epochs, options };
        let observe = &mut |epoch: &_| session.observe(epoch);
        Ok((null_objective, path(dual, settings, session.interrupt, observe)?))
    };
    let (null_objective, pieces) =
        run_session(py, settings.n_threads, settings.callback.as_ref(), kernel)?;
    let pieces = pieces.into_iter().map(|piece| {
        let Piece { lambda, until, weights, gap, epochs } = piece;
        (lambda, until, PyArray1::from_vec(py, weights), gap, epochs)
    });
    Ok((null_objective, PyList::new(py, pieces.collect::<Vec<_>>())?))
}
