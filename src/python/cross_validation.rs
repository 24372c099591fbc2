//! Cross-validation of C.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Table, Vector, slice};
use super::records::{MarginRecord, RunRecord};
use super::session::{Session, guarded, run_session, unchanged};
use super::trace::outcome_name;
use crate::dual::Shares;
use crate::error::{Error, Result};
use crate::multiclass::{Candidate, Fold, Measure, Order, Scoring, Search};
use crate::run::Epoch;

/// The settings of a search over C, and of the scores by which it selects C.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SearchRecord<'py> {
    #[pyo3(item("Cs"))]
    grid: Vec<f64>,
    /// Weights of shape folds × rows; 0 for held-out rows.
    fold_weights: Table<'py, f64>,
    held_out: Vec<Vector<'py, u32>>,
    /// The name of a metric. None if `score` computes the scores.
    measure: Option<String>,
    top_k: usize,
    /// A function that is called with the fold, the index of C, and the weights, of shape (classes,
    /// features).
    score: Option<Py<PyAny>>,
    width: Option<f64>,
    seed: u64,
}

impl SearchRecord<'_> {
    fn folds(&self) -> Result<Vec<Fold<'_>>> {
        let fail = || {
            Error::argument("cv", "the folds' weights must be contiguous, with one row per fold")
        };
        let weights = self.fold_weights.as_slice().map_err(|_| fail())?;
        let n_rows = self.fold_weights.as_array().ncols();
        if weights.len() != self.held_out.len() * n_rows || n_rows == 0 {
            return Err(fail());
        }
        let folds = weights.chunks_exact(n_rows).zip(&self.held_out);
        let fold = |(weights, held_out)| {
            let held_out = slice(held_out)?;
            if held_out.iter().any(|row| *row as usize >= n_rows) {
                return Err(Error::argument(
                    "cv",
                    "a fold contains the index of a row that does not exist",
                ));
            }
            Ok(Fold { weights, held_out })
        };
        folds.map(fold).collect()
    }

    fn measure(&self) -> Result<Option<Measure>> {
        Ok(match self.measure.as_deref() {
            None => None,
            Some("accuracy") => Some(Measure::Accuracy),
            Some("balanced_accuracy") => Some(Measure::BalancedAccuracy),
            Some("top_k") => Some(Measure::TopK(self.top_k)),
            Some("cost") => Some(Measure::Cost),
            Some(_) => return Err(Error::argument("scoring", "unknown metric")),
        })
    }
}

/// A scorer written in Python.
struct Scorer {
    function: Option<Py<PyAny>>,
    n_classes: usize,
    /// The scorer's exception, kept until the computation ends.
    failure: Mutex<Option<PyErr>>,
}

impl Scorer {
    fn score(&self, fold: usize, c_index: usize, weights: Vec<f64>) -> Result<f64> {
        let shape = [self.n_classes, weights.len() / self.n_classes];
        let score = Python::attach(|py| match &self.function {
            Some(function) => {
                let weights = PyArray1::from_vec(py, weights).reshape(shape)?;
                function.call1(py, (fold, c_index, weights))?.extract(py)
            }
            None => Ok(f64::NAN),
        });
        score.map_err(|error: PyErr| {
            *self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            Error::Interrupted
        })
    }

    /// Raises the scorer's exception unchanged, if there is one. Otherwise returns the result of
    /// the computation.
    fn raise<T>(self, result: PyResult<T>) -> PyResult<T> {
        match self.failure.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => result,
        }
    }
}

/// Fits and scores a model for each fold and each C. `settings` is a dictionary with the fields of `SearchRecord`,
/// `MarginRecord` and `RunRecord`. After each fit, the callback is called with the number of finished fits, the seconds
/// since the first fit began, the objective and its lower bound.
#[pyfunction]
pub(super) fn cross_validate<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: MarginRecord<'py> = settings.extract()?;
        let search: SearchRecord<'py> = settings.extract()?;
        let run: RunRecord = settings.extract()?;
        let (data, labels) = (rows.rows()?, slice(&labels)?);
        let at_once = run.n_threads.clamp(1, search.held_out.len().max(1));
        // The λ of each fold's first fit, which has the smallest C. Each fit for a larger C starts
        // from the previous solution.
        let largest = search.grid.first().map_or(1.0, |first| 1.0 / (first * data.n_rows() as f64));
        let size = record.size(data, false, largest);
        let method = size.projecting_method(search.seed, at_once);
        size.require(method, at_once)?;
        let parts = record.parts();
        let problems = |fold: &Fold<'_>, lambda: f64| {
            let shares = Shares::new(data.n_rows(), lambda)?.with_sample_weights(fold.weights)?;
            parts.clone().problem(data, labels, shares, Order::Examples)
        };
        let function = search.score.as_ref().map(|function| function.clone_ref(py));
        let scorer = Scorer { function, n_classes: parts.n_classes, failure: Mutex::new(None) };
        let own =
            |fold: usize, c_index: usize, weights: Vec<f64>| scorer.score(fold, c_index, weights);
        let scoring = match search.measure()? {
            Some(measure) => Scoring::Bounded(measure),
            None => Scoring::Own(&own),
        };
        let wanted = Search {
            problems: &problems,
            folds: search.folds()?,
            grid: search.grid.clone(),
            scoring,
            target: run.target(),
            width: search.width,
            method,
        };
        let (start, count) = (Instant::now(), AtomicUsize::new(0));
        let kernel = |session: &Session<'_>| {
            let observe = |candidate: &Candidate| {
                let epoch = Epoch {
                    epoch: count.fetch_add(1, Ordering::Relaxed) + 1,
                    seconds: start.elapsed().as_secs_f64(),
                    objective: Some(candidate.certificate.primal),
                    certificate: Some(candidate.certificate),
                };
                // An unfinished search has no model to return, so a callback cannot stop it.
                let _ = session.observe(&epoch);
            };
            wanted.run(session.interrupt, &observe)
        };
        let search = || run_session(py, run.n_threads, run.callback.as_ref(), kernel);
        let found = unchanged(py, &[data], search);
        drop(wanted);
        table(py, &scorer.raise(found)?)
    })
}

/// Returns a dictionary with one array of shape folds × Cs for each field of a candidate.
fn table<'py>(py: Python<'py>, found: &[Vec<Candidate>]) -> PyResult<Bound<'py, PyDict>> {
    let shape = [found.len(), found.first().map_or(0, Vec::len)];
    let result = PyDict::new(py);
    let column = |name: &str, value: &dyn Fn(&Candidate) -> f64| {
        let values = PyArray1::from_iter(py, found.iter().flatten().map(value));
        result.set_item(name, values.reshape(shape)?)
    };
    column("score", &|candidate| candidate.bracket.score)?;
    column("lower", &|candidate| candidate.bracket.lower)?;
    column("upper", &|candidate| candidate.bracket.upper)?;
    column("n_undecided", &|candidate| candidate.bracket.n_undecided as f64)?;
    column("objective", &|candidate| candidate.certificate.primal)?;
    column("dual_objective", &|candidate| candidate.certificate.dual)?;
    column("n_iter", &|candidate| candidate.n_epochs as f64)?;
    column("seconds", &|candidate| candidate.seconds)?;
    let outcomes = found.iter().flatten().map(|candidate| outcome_name(candidate.outcome));
    result.set_item("outcome", outcomes.collect::<Vec<_>>())?;
    Ok(result)
}
