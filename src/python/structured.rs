//! Fits of structured models: built-in ones, and models written in Python.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::arrays::slice;
use super::oracle::PythonOracle;
use super::records::{MethodRecord, RunRecord, SharesRecord};
use super::session::{Session, run_session};
use super::structured_models::StructuredModel;
use super::trace::trace_dict;
use crate::dual::BlockDual;
use crate::error::{Error, Result};
use crate::linalg::Sparse;
use crate::solver::{
    Block, BlockOptions, DualPoint, Fit, Method, PathSettings, Piece, minimize, path,
};
use crate::structured::{CallbackDual, StructuredChoices, StructuredDual, StructuredMethod, fit};

/// What a fit is to do, as `dualgap.structured` says it.
struct Settings<'py> {
    shares: SharesRecord<'py>,
    method: MethodRecord,
    extragradient: ExtragradientRecord,
    run: RunRecord,
    warm_start: WarmStart<'py>,
}

/// Options of the extragradient method.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ExtragradientRecord {
    projection: Option<String>,
    radius: Option<f64>,
}

/// Where a fit starts, and whether a later one is to start where it ends.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WarmStart<'py> {
    keep_dual: bool,
    start: Option<Start<'py>>,
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

impl<'py> Settings<'py> {
    fn read(settings: &Bound<'py, PyDict>) -> PyResult<Self> {
        Ok(Self {
            shares: settings.extract()?,
            method: settings.extract()?,
            extragradient: settings.extract()?,
            run: settings.extract()?,
            warm_start: settings.extract()?,
        })
    }

    fn method(&self) -> Result<StructuredMethod> {
        StructuredMethod::parse(&StructuredChoices {
            common: self.method.choices(),
            projection: self.extragradient.projection.as_deref(),
            radius: self.extragradient.radius,
        })
    }

    fn start(&self, method: StructuredMethod) -> Result<Option<DualPoint>> {
        let Some(start) = &self.warm_start.start else { return Ok(None) };
        match method {
            StructuredMethod::Vertices(Method::BlockFrankWolfe(options)) => {
                start.read(&options).map(Some)
            }
            _ => {
                let message = "only \"block-frank-wolfe\" can be continued";
                Err(Error::argument("warm_start", message))
            }
        }
    }

    /// Runs a kernel with this call's threads and callback.
    fn session<T: Send>(
        &self,
        py: Python<'py>,
        kernel: impl FnOnce(&Session<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        run_session(py, self.run.n_threads, self.run.callback.as_ref(), kernel)
    }
}

impl Start<'_> {
    fn read(&self, options: &BlockOptions) -> Result<DualPoint> {
        let mut entries =
            slice(&self.parts)?.iter().copied().zip(slice(&self.values)?.iter().copied());
        let mut atoms = slice(&self.shares)?.iter().zip(slice(&self.lengths)?);
        let mut block = |n_atoms: &i64| {
            let atoms = atoms.by_ref().take(*n_atoms as usize);
            let atoms = atoms.map(|(share, length)| {
                (entries.by_ref().take(*length as usize).collect::<Sparse>(), *share)
            });
            Block::combining(atoms, options)
        };
        let blocks = slice(&self.atoms)?.iter().map(&mut block).collect();
        Ok(DualPoint::Blocks { weights: slice(&self.weights)?.to_vec(), blocks })
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
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = Settings::read(settings)?;
    let method = settings.method()?;
    let (start, target) = (settings.start(method)?, settings.run.target());
    let ended = match source {
        Source::Builtin(model) => {
            let model = model.get().model();
            let shares = settings.shares.shares(model.n_examples())?;
            settings.session(py, |session| {
                let observe = &mut |epoch: &_| session.observe(epoch);
                fit(model, shares, method, target, start, session.interrupt, observe)
            })?
        }
        Source::Oracle((oracle, n_examples, n_weights)) => {
            let (oracle, method) = (PythonOracle::new(oracle), method.vertices()?);
            let mut dual =
                CallbackDual::new(&oracle, n_weights, settings.shares.shares(n_examples)?);
            let result = settings.session(py, |session| {
                let observe = &mut |epoch: &_| session.observe(epoch);
                minimize(&mut dual, method, target, start, session.interrupt, observe)
            });
            oracle.raise(result)?
        }
    };
    fit_dict(py, &ended, settings.warm_start.keep_dual)
}

/// A certified regularisation path from `settings.regularization` down to `until`: the objective of
/// w = 0 and a list of (lambda, until, weights, gap, epochs).
#[pyfunction]
pub(super) fn structured_path<'py>(
    py: Python<'py>,
    source: Source<'py>,
    settings: &Bound<'py, PyDict>,
    until: f64,
) -> PyResult<(f64, Bound<'py, PyList>)> {
    let settings = Settings::read(settings)?;
    let (null_objective, pieces) = match source {
        Source::Builtin(model) => {
            let model = model.get().model();
            let shares = settings.shares.shares(model.n_examples())?;
            follow(py, StructuredDual::new(model, shares)?, &settings, until)?
        }
        Source::Oracle((oracle, n_examples, n_weights)) => {
            let oracle = PythonOracle::new(oracle);
            let dual = CallbackDual::new(&oracle, n_weights, settings.shares.shares(n_examples)?);
            let result = follow(py, dual, &settings, until);
            oracle.raise(result)?
        }
    };
    let pieces = pieces.into_iter().map(|piece| {
        let Piece { lambda, until, weights, gap, epochs } = piece;
        (lambda, until, PyArray1::from_vec(py, weights), gap, epochs)
    });
    Ok((null_objective, PyList::new(py, pieces.collect::<Vec<_>>())?))
}

fn follow<D: BlockDual + Send>(
    py: Python<'_>,
    mut dual: D,
    settings: &Settings<'_>,
    until: f64,
) -> PyResult<(f64, Vec<Piece>)> {
    let options = settings.method()?.path_options()?;
    let (from, target) = (settings.shares.regularization, settings.run.target());
    run_session(py, settings.run.n_threads, settings.run.callback.as_ref(), |session| {
        let null_objective = dual.null_objective(session.interrupt)?;
        let stopping = target.stopping(null_objective);
        let (gap, max_epochs) = (stopping.gap, stopping.max_epochs);
        let settings = PathSettings { from, until, gap, max_epochs, options };
        let observe = &mut |epoch: &_| session.observe(epoch);
        Ok((null_objective, path(&mut dual, settings, session.interrupt, observe)?))
    })
}

fn fit_dict<'py>(py: Python<'py>, ended: &Fit, keep_dual: bool) -> PyResult<Bound<'py, PyDict>> {
    let result = trace_dict(py, &ended.trace)?;
    result.set_item("null_objective", ended.null_objective)?;
    result.set_item("weights", PyArray1::from_slice(py, ended.weights()))?;
    result.set_item("oracle_calls", ended.oracle_calls)?;
    let dual = match &ended.point {
        DualPoint::Blocks { weights, blocks } if keep_dual => Some(dual_dict(py, weights, blocks)?),
        _ => None,
    };
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
    for block in blocks {
        let before = shares.len();
        for (vertex, share) in block.combination() {
            shares.push(share);
            lengths.push(vertex.len() as i64);
            parts.extend(vertex.iter().map(|(part, _)| *part));
            values.extend(vertex.iter().map(|(_, value)| *value));
        }
        atoms.push((shares.len() - before) as i64);
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
