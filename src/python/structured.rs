//! Fits of structured models, which are built in or written in Python.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::arrays::{Vector, slice};
use super::oracle::PythonOracle;
use super::records::{MethodRecord, RunRecord, SharesRecord};
use super::session::{Session, guarded, run_session};
use super::structured_models::StructuredModel;
use super::trace::{piece_tuple, trace_dict};
use crate::dual::{BlockDual, Shares, SignCone};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::solver::{
    Block, BlockOptions, BlockPath, DualPoint, Fit, Method, PathSettings, Piece, minimize, path,
};
use crate::structured::{CallbackDual, StructuredChoices, StructuredDual, StructuredMethod, fit};

/// The settings of a fit in `dualgap.structured`.
struct Settings<'py> {
    shares: SharesRecord<'py>,
    method: MethodRecord,
    extragradient: ExtragradientRecord,
    run: RunRecord,
    warm_start: WarmStart<'py>,
    constraints: ConstraintRecord<'py>,
}

/// Sign constraints on the weights, and whether a decoder written in Python is exact.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ConstraintRecord<'py> {
    signs: Option<Vector<'py, i8>>,
    exact: bool,
}

/// Options of the extragradient method.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ExtragradientRecord {
    projection: Option<String>,
    radius: Option<f64>,
}

/// The state from which a fit starts, and whether the fit returns its final state.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WarmStart<'py> {
    keep_dual: bool,
    start: Option<Start<'py>>,
}

/// A dual point: the model's weights, the vertices of each block with their shares, and the entries of each vertex.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Start<'py> {
    weights: Vector<'py, f64>,
    atoms: Vector<'py, i64>,
    shares: Vector<'py, f64>,
    lengths: Vector<'py, i64>,
    parts: Vector<'py, u32>,
    values: Vector<'py, f64>,
}

impl<'py> Settings<'py> {
    fn read(settings: &Bound<'py, PyDict>) -> PyResult<Self> {
        Ok(Self {
            shares: settings.extract()?,
            method: settings.extract()?,
            extragradient: settings.extract()?,
            run: settings.extract()?,
            warm_start: settings.extract()?,
            constraints: settings.extract()?,
        })
    }

    fn shares(&self, n_examples: usize) -> Result<Shares> {
        let shares = self.shares.shares(n_examples)?;
        match &self.constraints.signs {
            Some(signs) => Ok(shares.with_cone(SignCone::new(slice(signs)?)?)),
            None => Ok(shares),
        }
    }

    /// Creates the dual problem of a model written in Python.
    fn callback<'o>(
        &self,
        oracle: &'o PythonOracle,
        n_examples: usize,
        n_weights: usize,
        norm: f64,
    ) -> Result<CallbackDual<'o>> {
        let shares = self.shares(n_examples)?.with_features([norm].into_iter())?;
        let dual = CallbackDual::new(oracle, n_weights, shares);
        Ok(if self.constraints.exact { dual } else { dual.approximate() })
    }

    fn method(&self) -> Result<StructuredMethod> {
        StructuredMethod::parse(&StructuredChoices {
            common: self.method.choices(),
            projection: self.extragradient.projection.as_deref(),
            radius: self.extragradient.radius,
        })
    }

    fn start(&self, method: StructuredMethod, shape: &Shape<'_>) -> Result<Option<DualPoint>> {
        let Some(start) = &self.warm_start.start else { return Ok(None) };
        match method {
            StructuredMethod::Vertices(Method::BlockFrankWolfe(options)) => {
                start.read(&options, shape).map(Some)
            }
            _ => {
                let message = "only \"block-frank-wolfe\" can be continued";
                Err(Error::argument("warm_start", message))
            }
        }
    }

    /// Runs a computation with the number of threads and the callback of these settings.
    fn session<T: Send>(
        &self,
        py: Python<'py>,
        kernel: impl FnOnce(&Session<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        run_session(py, self.run.n_threads, self.run.callback.as_ref(), kernel)
    }
}

/// The sizes of a problem: the number of examples, the number of weights, and the number of parts of each example.
struct Shape<'m> {
    n_blocks: usize,
    n_weights: usize,
    n_parts: &'m dyn Fn(usize) -> usize,
}

impl Start<'_> {
    fn read(&self, options: &BlockOptions, shape: &Shape<'_>) -> Result<DualPoint> {
        if !self.fits(shape)? {
            let message = "the dual point belongs to another problem";
            return Err(Error::argument("warm_start", message));
        }
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

    /// Checks that the dual point of each example is a convex combination of vertices with valid
    /// parts.
    fn fits(&self, shape: &Shape<'_>) -> Result<bool> {
        let (atoms, shares) = (slice(&self.atoms)?, slice(&self.shares)?);
        let (lengths, parts) = (slice(&self.lengths)?, slice(&self.parts)?);
        let (weights, values) = (slice(&self.weights)?, slice(&self.values)?);
        let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
        let sums_to = |counts: &[i64], total: usize| {
            let sum = counts
                .iter()
                .try_fold(0usize, |sum, count| sum.checked_add(usize::try_from(*count).ok()?));
            sum == Some(total)
        };
        if atoms.len() != shape.n_blocks
            || weights.len() != shape.n_weights
            || shares.len() != lengths.len()
            || parts.len() != values.len()
            || !sums_to(atoms, lengths.len())
            || !sums_to(lengths, parts.len())
            || ![weights, values, shares].into_iter().all(finite)
        {
            return Ok(false);
        }
        let (mut shares, mut lengths, mut parts) = (shares, lengths.iter(), parts);
        Ok(atoms.iter().enumerate().all(|(block, n_atoms)| {
            let own = shares.split_off(..*n_atoms as usize).unwrap_or_default();
            let sum: f64 = own.iter().sum();
            let n_parts = (shape.n_parts)(block);
            let inside = lengths.by_ref().take(own.len()).all(|length| {
                let atom = parts.split_off(..*length as usize).unwrap_or_default();
                atom.is_sorted_by(|a, b| a < b)
                    && atom.last().is_none_or(|part| (*part as usize) < n_parts)
            });
            inside && own.iter().all(|share| *share >= 0.0) && (sum - 1.0).abs() < 1e-6
        }))
    }
}

/// A model and its examples.
#[derive(FromPyObject)]
pub(super) enum Source<'py> {
    /// A built-in model.
    #[pyo3(transparent)]
    Builtin(Bound<'py, StructuredModel>),
    /// A model written in Python: (oracle, number of examples, number of weights, maximum norm of
    /// the features).
    #[pyo3(transparent)]
    Oracle((Py<PyAny>, usize, usize, f64)),
}

/// Fits a structured model to its examples.
#[pyfunction]
pub(super) fn fit_structured<'py>(
    py: Python<'py>,
    source: Source<'py>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let settings = Settings::read(settings)?;
        let method = settings.method()?;
        let target = settings.run.target();
        let ended = match source {
            Source::Builtin(model) => {
                let model = model.get().model();
                let shares = settings.shares(model.n_examples())?;
                let (n_blocks, n_weights) = (model.n_examples(), model.n_weights());
                let n_parts = &|block| model.n_parts(block);
                let start = settings.start(method, &Shape { n_blocks, n_weights, n_parts })?;
                settings.session(py, |session| {
                    let observe = &mut |epoch: &_| session.observe(epoch);
                    fit(model, shares, method, target, start, session.interrupt, observe)
                })?
            }
            Source::Oracle((oracle, n_examples, n_weights, norm)) => {
                let shape = Shape { n_blocks: n_examples, n_weights, n_parts: &|_| n_weights + 1 };
                let start = settings.start(method, &shape)?;
                let (oracle, method) = (PythonOracle::new(oracle), method.vertices()?);
                let mut dual = settings.callback(&oracle, n_examples, n_weights, norm)?;
                let result = settings.session(py, |session| {
                    let observe = &mut |epoch: &_| session.observe(epoch);
                    minimize(&mut dual, method, target, start, session.interrupt, observe)
                });
                oracle.raise(result)?
            }
        };
        let result = fit_dict(py, &ended, settings.warm_start.keep_dual)?;
        result.set_item("solver", (settings.method.choices().solver, ended.trace.n_first))?;
        Ok(result)
    })
}

/// Computes a certified regularisation path from `settings.regularization` down to `until`. The
/// path consists of pieces. Each piece covers an interval of λ, and is returned as (largest λ,
/// smallest λ, weights at the largest λ, gap, relative gap, epochs).
#[pyfunction]
pub(super) fn structured_path<'py>(
    py: Python<'py>,
    source: Source<'py>,
    settings: &Bound<'py, PyDict>,
    until: f64,
) -> PyResult<Bound<'py, PyList>> {
    guarded(|| {
        let settings = Settings::read(settings)?;
        let pieces = match source {
            Source::Builtin(model) => {
                let model = model.get().model();
                let shares = settings.shares(model.n_examples())?;
                let dual = StructuredDual::new(model, shares)?;
                follow(py, dual, StructuredDual::stopped_by, &settings, until)?
            }
            Source::Oracle((oracle, n_examples, n_weights, norm)) => {
                let oracle = PythonOracle::new(oracle);
                let dual = settings.callback(&oracle, n_examples, n_weights, norm)?;
                let result = follow(py, dual, |dual, _| dual, &settings, until);
                oracle.raise(result)?
            }
        };
        let pieces = pieces.into_iter().map(|piece| piece_tuple(py, piece));
        PyList::new(py, pieces.collect::<Vec<_>>())
    })
}

fn follow<D: BlockDual + Send>(
    py: Python<'_>,
    dual: D,
    stopped_by: impl FnOnce(D, &Interrupt) -> D + Send,
    settings: &Settings<'_>,
    until: f64,
) -> PyResult<Vec<Piece>> {
    let options = settings.method()?.path_options()?;
    let (from, target) = (settings.shares.regularization, settings.run.target());
    run_session(py, settings.run.n_threads, settings.run.callback.as_ref(), |session| {
        let mut dual = stopped_by(dual, session.interrupt);
        let null_objective = dual.null_objective(session.interrupt)?;
        let stopping = target.stopping(null_objective);
        let settings = PathSettings { from, until, stopping };
        let observe = &mut |epoch: &_| session.observe(epoch);
        let mut solver = BlockPath::new(&mut dual, options)?;
        path(&mut solver, settings, session.interrupt, observe)
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

/// Converts a dual point to a Python dictionary, from which [`Start`] can be read.
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
