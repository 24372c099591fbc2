//! Minimisation by Frank-Wolfe methods, over functions and sets that come with the crate or that the user writes in
//! Python.

use std::sync::{Arc, Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arrays::{Matrix, Vector, slice};
use super::session::{Session, guarded, run_session};
use super::trace::trace_dict;
use crate::error::{Error, Result};
use crate::frank_wolfe::{
    Birkhoff, ConvexHull, FrankWolfeMethod, FrankWolfeOptions, KSparse, L1Ball, LeastSquares,
    LinearOracle, LogisticSum, LowRankMinimum, MatrixCompletion, Minimum, NuclearNormBall,
    ProductSet, Simplex, SmoothFunction, StepSize, Vertex,
};
use crate::interrupt::Interrupt;
use crate::names::{find, names};

/// The first exception raised by a function or a set written in Python.
type Failure = Arc<Mutex<Option<PyErr>>>;

/// Stores an exception until the computation ends.
fn fail<T>(failure: &Failure, result: PyResult<T>) -> Result<T> {
    result.map_err(|error| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        Error::Interrupted
    })
}

/// Raises the stored exception if there is one. Otherwise returns the result.
fn raise<T>(failure: &Failure, result: PyResult<T>) -> PyResult<T> {
    match failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => result,
    }
}

/// A function written in Python: an object with `size`, `value_and_gradient(x)` and `line_search(x,
/// direction, longest)`. `_user.py` checks the values that it returns.
struct UserFunction {
    object: Py<PyAny>,
    n: usize,
    failure: Failure,
}

impl SmoothFunction for UserFunction {
    fn n_coordinates(&self) -> usize {
        self.n
    }

    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let answer = Python::attach(|py| -> PyResult<f64> {
            let x = PyArray1::from_slice(py, x);
            let answer = self.object.call_method1(py, "value_and_gradient", (x,))?;
            let (value, found): (f64, Vector<'_, f64>) = answer.extract(py)?;
            gradient.copy_from_slice(slice(&found)?);
            Ok(value)
        });
        fail(&self.failure, answer)
    }

    fn line_search(&self, x: &[f64], direction: &[f64], longest: f64) -> Result<Option<f64>> {
        let answer = Python::attach(|py| {
            let (x, direction) = (PyArray1::from_slice(py, x), PyArray1::from_slice(py, direction));
            self.object.call_method1(py, "line_search", (x, direction, longest))?.extract(py)
        });
        fail(&self.failure, answer)
    }
}

/// A set written in Python: an object with `size`, `radius` and `vertex(gradient)`. `_user.py`
/// checks the values that it returns.
struct UserSet {
    object: Py<PyAny>,
    n: usize,
    radius: Option<f64>,
    failure: Failure,
}

impl LinearOracle for UserSet {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        let answer = Python::attach(|py| -> PyResult<Vec<f64>> {
            let gradient = PyArray1::from_slice(py, gradient);
            let found: Vector<'_, f64> =
                self.object.call_method1(py, "vertex", (gradient,))?.extract(py)?;
            Ok(slice(&found)?.to_vec())
        });
        fail(&self.failure, answer).map(Vertex::Dense)
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.n)
    }

    fn radius(&self) -> Option<f64> {
        self.radius
    }
}

/// A function, built in or written in Python.
enum Function {
    Vector(Box<dyn SmoothFunction>),
    Completion(MatrixCompletion),
}

impl Function {
    /// Reads `(name, arguments...)`, or an object as described at [`UserFunction`].
    fn of(record: &Bound<'_, PyAny>, failure: &Failure) -> PyResult<Self> {
        let Ok(tuple) = record.cast::<PyTuple>() else {
            let n = record.getattr("size")?.extract()?;
            let (object, failure) = (record.clone().unbind(), failure.clone());
            return Ok(Self::Vector(Box::new(UserFunction { object, n, failure })));
        };
        let name: String = tuple.get_item(0)?.extract()?;
        if name == "matrix-completion" {
            type Entries<'py> =
                (String, (usize, usize), Vector<'py, u32>, Vector<'py, u32>, Vector<'py, f64>);
            let (_, shape, rows, columns, values): Entries<'_> = tuple.extract()?;
            let (rows, columns, values) = (slice(&rows)?, slice(&columns)?, slice(&values)?);
            return Ok(Self::Completion(MatrixCompletion::new(shape, rows, columns, values)?));
        }
        let (_, matrix, targets): (String, Matrix<'_>, Vector<'_, f64>) = tuple.extract()?;
        let (data, targets) = (matrix.rows()?, slice(&targets)?);
        Ok(Self::Vector(if name == "logistic" {
            Box::new(LogisticSum::new(&data, targets)?)
        } else {
            Box::new(LeastSquares::new(&data, targets)?)
        }))
    }

    fn as_dyn(&self) -> &dyn SmoothFunction {
        match self {
            Self::Vector(function) => function.as_ref(),
            Self::Completion(function) => function,
        }
    }
}

/// A set, as described by Python. Each run builds its own oracle from this description.
enum SetRecord {
    Simplex(usize, f64),
    L1Ball(usize, f64),
    KSparse(usize, usize, f64),
    Birkhoff(usize),
    Nuclear((usize, usize), f64),
    ConvexHull(Vec<f64>, usize),
    Product(Vec<Self>),
    User(Py<PyAny>, usize, Option<f64>),
}

impl SetRecord {
    /// Reads `(name, arguments...)`, or an object as described at [`UserSet`].
    fn of(record: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(tuple) = record.cast::<PyTuple>() else {
            let (size, radius) = (record.getattr("size")?, record.getattr("radius")?);
            return Ok(Self::User(record.clone().unbind(), size.extract()?, radius.extract()?));
        };
        let name: String = tuple.get_item(0)?.extract()?;
        let first = tuple.get_item(1)?;
        let radius = || -> PyResult<f64> { tuple.get_item(tuple.len() - 1)?.extract() };
        Ok(match name.as_str() {
            "simplex" => Self::Simplex(first.extract()?, radius()?),
            "l1-ball" => Self::L1Ball(first.extract()?, radius()?),
            "k-sparse" => Self::KSparse(first.extract()?, tuple.get_item(2)?.extract()?, radius()?),
            "birkhoff" => Self::Birkhoff(first.extract()?),
            "nuclear" => Self::Nuclear(first.extract()?, radius()?),
            "hull" => {
                let points: Vector<'_, f64> = first.extract()?;
                Self::ConvexHull(slice(&points)?.to_vec(), tuple.get_item(2)?.extract()?)
            }
            _ => {
                let factors: Vec<Bound<'_, PyAny>> = first.extract()?;
                Self::Product(factors.iter().map(Self::of).collect::<PyResult<_>>()?)
            }
        })
    }

    /// Whether the oracle calls code written in Python.
    fn calls_python(&self) -> bool {
        match self {
            Self::User(..) => true,
            Self::Product(factors) => factors.iter().any(Self::calls_python),
            _ => false,
        }
    }

    /// Builds the oracle of a run. `interrupt` can stop the oracle.
    fn build(self, interrupt: &Interrupt, failure: &Failure) -> Result<Box<dyn LinearOracle>> {
        Ok(match self {
            Self::Simplex(n, radius) => Box::new(Simplex::new(n, radius)?),
            Self::L1Ball(n, radius) => Box::new(L1Ball::new(n, radius)?),
            Self::KSparse(n, k, radius) => Box::new(KSparse::new(n, k, radius)?),
            Self::Birkhoff(n) => Box::new(Birkhoff::new(n)?.stopped_by(interrupt)),
            Self::Nuclear(shape, radius) => {
                Box::new(NuclearNormBall::new(shape, radius)?.stopped_by(interrupt))
            }
            Self::ConvexHull(points, n) => Box::new(ConvexHull::new(points, n)?),
            Self::Product(factors) => {
                let factors = factors.into_iter().map(|factor| factor.build(interrupt, failure));
                Box::new(ProductSet::new(factors.collect::<Result<_>>()?)?)
            }
            Self::User(object, n, radius) => {
                Box::new(UserSet { object, n, radius, failure: failure.clone() })
            }
        })
    }
}

/// The settings of a run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FrankWolfeRecord {
    method: String,
    line_search: String,
    subsample: f64,
    tol: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    callback: Option<Py<PyAny>>,
}

impl FrankWolfeRecord {
    fn options(&self) -> Result<FrankWolfeOptions> {
        let method = match find("method", &self.method, &FrankWolfeMethod::NAMES)? {
            FrankWolfeMethod::RandomizedAway { .. } => {
                FrankWolfeMethod::RandomizedAway { share: self.subsample }
            }
            other => other,
        };
        Ok(FrankWolfeOptions {
            method,
            step_size: find("line_search", &self.line_search, &StepSize::NAMES)?,
            tol: self.tol,
            max_iter: self.max_iter,
            seed: self.seed,
        })
    }
}

/// Returns the allowed names for each parameter whose values are names.
pub(super) fn choices(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let choices = PyDict::new(py);
    choices.set_item("method", names(&FrankWolfeMethod::NAMES))?;
    choices.set_item("line_search", names(&StepSize::NAMES))?;
    Ok(choices)
}

/// The result of a run.
enum Found {
    Vector(Minimum),
    LowRank(LowRankMinimum),
}

/// Minimises a function over a set. Starts at `start`, a point of the set, or at a vertex if
/// `start` is None. Without a start, matrix completion over the nuclear norm ball returns factors.
#[pyfunction]
pub(super) fn minimize_frank_wolfe<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    set: &Bound<'py, PyAny>,
    start: Option<Vector<'py, f64>>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: FrankWolfeRecord = settings.extract()?;
        let options = record.options()?;
        let failure = Failure::default();
        let (f, set) = (Function::of(function, &failure)?, SetRecord::of(set)?);
        let start = start.as_ref().map(slice).transpose()?.map(<[f64]>::to_vec);
        let calls_python = !function.is_instance_of::<PyTuple>() || set.calls_python();
        let kernel = |session: &Session<'_>| -> Result<Found> {
            let observe = &mut |epoch: &_| session.observe(epoch);
            let interrupt = session.interrupt;
            if let (Function::Completion(f), SetRecord::Nuclear(shape, radius), None) =
                (&f, &set, &start)
            {
                if f.shape() != *shape {
                    let message = format!("has shape {shape:?}, but f has {:?}", f.shape());
                    return Err(Error::argument("oracle", message));
                }
                return options.complete(f, *radius, interrupt, observe).map(Found::LowRank);
            }
            let (f, oracle) = (f.as_dyn(), set.build(interrupt, &failure)?);
            let start = match start {
                Some(start) => start,
                None => {
                    let n = oracle.n_coordinates().unwrap_or(f.n_coordinates());
                    oracle.vertex(&vec![1.0; n])?.to_dense(n)
                }
            };
            let oracle = oracle.as_ref();
            options.minimize_from(start, f, oracle, interrupt, observe).map(Found::Vector)
        };
        let found = run_session(py, record.n_threads, record.callback.as_ref(), |session| {
            if !calls_python {
                return kernel(session);
            }
            // Without the outer `attach`, each call of the user's code would create and destroy a thread state. This
            // one keeps the state; `detach` lets other threads run Python during the computation.
            Python::attach(|py| py.detach(|| kernel(session)))
        });
        found_dict(py, raise(&failure, found)?)
    })
}

fn found_dict(py: Python<'_>, found: Found) -> PyResult<Bound<'_, PyDict>> {
    let (result, certificate) = match found {
        Found::Vector(Minimum { x, certificate, trace, active }) => {
            let result = trace_dict(py, &trace)?;
            result.set_item("x", PyArray1::from_vec(py, x))?;
            let weights = active.iter().map(|each| each.weight);
            result.set_item("weights", PyArray1::from_iter(py, weights))?;
            let vertices =
                PyTuple::new(py, active.into_iter().map(|each| vertex_pair(py, each.vertex)))?;
            result.set_item("vertices", vertices)?;
            (result, certificate)
        }
        Found::LowRank(LowRankMinimum { left, right, certificate, trace, weights }) => {
            let result = trace_dict(py, &trace)?;
            let k = weights.len();
            let (rows, columns) = (left.len() / k.max(1), right.len() / k.max(1));
            result.set_item("left", PyArray1::from_vec(py, left).reshape([k, rows])?)?;
            result.set_item("right", PyArray1::from_vec(py, right).reshape([k, columns])?)?;
            result.set_item("weights", PyArray1::from_vec(py, weights))?;
            (result, certificate)
        }
    };
    result.set_item("objective", certificate.primal)?;
    result.set_item("dual_objective", certificate.dual)?;
    Ok(result)
}

type VertexPair<'py> = (Option<Bound<'py, PyArray1<u32>>>, Bound<'py, PyArray1<f64>>);

/// A vertex as (indices, values). If the indices are None, there is a value for every coordinate.
fn vertex_pair(py: Python<'_>, vertex: Vertex) -> VertexPair<'_> {
    match vertex {
        Vertex::Dense(values) => (None, PyArray1::from_vec(py, values)),
        Vertex::Sparse(entries) => {
            let (indices, values) = entries.into_iter().unzip();
            (Some(PyArray1::from_vec(py, indices)), PyArray1::from_vec(py, values))
        }
    }
}

/// Finds the vertex v of a set that minimises ⟨gradient, v⟩.
#[pyfunction]
pub(super) fn linear_vertex<'py>(
    py: Python<'py>,
    set: &Bound<'py, PyAny>,
    gradient: Vector<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    guarded(|| {
        let (set, gradient) = (SetRecord::of(set)?, slice(&gradient)?);
        let failure = Failure::default();
        let vertex = run_session(py, 1, None, |session| {
            let oracle = set.build(session.interrupt, &failure)?;
            Ok(oracle.vertex(gradient)?.to_dense(gradient.len()))
        });
        Ok(PyArray1::from_vec(py, raise(&failure, vertex)?))
    })
}

/// Evaluates a built-in function and its gradient.
#[pyfunction]
pub(super) fn smooth_value<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    x: Vector<'py, f64>,
) -> PyResult<(f64, Bound<'py, PyArray1<f64>>)> {
    guarded(|| {
        let function = Function::of(function, &Failure::default())?;
        let (f, x) = (function.as_dyn(), slice(&x)?);
        if x.len() != f.n_coordinates() {
            let message = format!("has {} coordinates, but f has {}", x.len(), f.n_coordinates());
            return Err(Error::argument("x", message).into());
        }
        let mut gradient = vec![0.0; x.len()];
        let value = run_session(py, 1, None, |_| f.value_and_gradient(x, &mut gradient))?;
        Ok((value, PyArray1::from_vec(py, gradient)))
    })
}
