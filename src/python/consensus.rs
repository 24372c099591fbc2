//! Subproblems of consensus training. Each partition solves one subproblem in each round.

use std::ops::ControlFlow;

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Vector, slice};
use super::records::{MarginRecord, SharesRecord};
use super::session::{guarded, run_session, unchanged_since};
use crate::error::{Error, Result};
use crate::multiclass::consensus::{Subproblem, SubproblemSolver, expand, solve};
use crate::multiclass::{MulticlassMethod, Order};
use crate::run::Stopping;
use crate::solver;

/// The settings of a subproblem.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RoundRecord<'py> {
    consensus: Vector<'py, f64>,
    multiplier: Vector<'py, f64>,
    rho: f64,
    beta: Option<Vector<'py, f64>>,
    check_beta: bool,
    gap: f64,
    relative_gap: f64,
    tol: f64,
    max_iter: usize,
    solver: String,
    seed: u64,
    n_threads: usize,
    callback: Option<Py<PyAny>>,
}

impl RoundRecord<'_> {
    fn subproblem(&self) -> Result<Subproblem<'_>> {
        Ok(Subproblem {
            consensus: slice(&self.consensus)?,
            multiplier: slice(&self.multiplier)?,
            rho: self.rho,
            betas: self.beta.as_ref().map(slice).transpose()?.unwrap_or_default(),
            check_betas: self.check_beta,
            solver: SubproblemSolver::parse(&self.solver)?,
            seed: self.seed,
            stopping: Stopping {
                max_epochs: self.max_iter,
                relative: self.tol,
                floor: self.gap,
                null_objective: None,
            },
            relative_gap: self.relative_gap,
        })
    }
}

/// Solves the subproblem of one partition in a round; see `dualgap.distributed`. `settings` is a
/// dictionary with the fields of the problem's records and of this subproblem's record.
///
/// Nothing is stored between calls: β is passed in (None if it is 0) and returned, so the caller can save β or move it
/// to another machine. `callback` is called as in other fits; if it returns a true value, the subproblem ends early.
#[pyfunction]
pub(super) fn consensus_round<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: MarginRecord<'py> = settings.extract()?;
        let shares: SharesRecord<'py> = settings.extract()?;
        let round: RoundRecord<'py> = settings.extract()?;
        let data = rows.rows()?;
        // A subproblem needs the memory of a block descent fit that returns its dual point.
        let size = record.size(data, true, shares.regularization);
        size.require(MulticlassMethod::BlockDescent(round.seed), 1)?;
        let rows = (data, slice(&labels)?);
        let subproblem = round.subproblem()?;
        let made = record.problem(py, rows, &shares, Order::Batches, round.n_threads)?;
        let (problem, before) = made;
        let ended = unchanged_since(py, (&[data], &before), || {
            run_session(py, round.n_threads, round.callback.as_ref(), |session| {
                let observe = &mut |epoch: &_| -> ControlFlow<()> { session.observe(epoch) };
                solve(problem, &subproblem, session.interrupt, observe)
            })
        })?;
        let result = PyDict::new(py);
        result.set_item("loss", ended.loss)?;
        result.set_item("dual_term", ended.dual_term)?;
        result.set_item("image", PyArray1::from_vec(py, ended.image))?;
        result.set_item("image_error", ended.image_error)?;
        result.set_item("gap", ended.gap)?;
        result.set_item("n_epochs", ended.n_epochs)?;
        result.set_item("weights", PyArray1::from_vec(py, ended.weights))?;
        result.set_item("beta", PyArray1::from_vec(py, ended.betas))?;
        Ok(result)
    })
}

/// The settings of a Newton round.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ExpansionRecord<'py> {
    consensus: Vector<'py, f64>,
    beta: Vector<'py, f64>,
    width: f64,
    n_threads: usize,
    callback: Option<Py<PyAny>>,
}

/// Evaluates one partition at given weights, for a Newton step; see `dualgap.distributed`.
/// `settings` is a dictionary with the fields of the problem's records and of this round's record.
#[pyfunction]
pub(super) fn newton_round<'py>(
    py: Python<'py>,
    rows: Matrix<'py>,
    labels: Vector<'py, u32>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: MarginRecord<'py> = settings.extract()?;
        let shares: SharesRecord<'py> = settings.extract()?;
        let round: ExpansionRecord<'py> = settings.extract()?;
        let data = rows.rows()?;
        let size = record.size(data, true, shares.regularization);
        size.require(MulticlassMethod::Newton, 1)?;
        let rows = (data, slice(&labels)?);
        let (weights, betas) = (slice(&round.consensus)?, slice(&round.beta)?);
        let made = record.problem(py, rows, &shares, Order::Batches, round.n_threads)?;
        let (problem, before) = made;
        let found = unchanged_since(py, (&[data], &before), || {
            run_session(py, round.n_threads, round.callback.as_ref(), |session| {
                expand(problem, weights, betas, round.width, session.interrupt)
            })
        })?;
        let result = PyDict::new(py);
        result.set_item("loss", found.loss)?;
        result.set_item("dual_term", found.dual_term)?;
        result.set_item("image", PyArray1::from_vec(py, found.image))?;
        result.set_item("image_error", found.image_error)?;
        result.set_item("beta", PyArray1::from_vec(py, found.betas))?;
        result.set_item("sums", PyArray1::from_vec(py, found.sums))?;
        result.set_item("unit", found.unit)?;
        Ok(result)
    })
}

/// Computes the Newton direction from sums over all partitions.
#[pyfunction]
pub(super) fn newton_direction<'py>(
    py: Python<'py>,
    sums: Vector<'py, f64>,
    n_classes: usize,
    residual: Vector<'py, f64>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    guarded(|| {
        let (sums, residual) = (slice(&sums)?, slice(&residual)?);
        let d = residual.len() / n_classes.max(1);
        if n_classes < 2
            || residual.len() != n_classes * d
            || sums.len() != solver::n_sums(n_classes, d)
        {
            return Err(Error::argument("sums", "must match the classes and the residual").into());
        }
        let direction = run_session(py, n_threads, None, |session| {
            solver::newton_direction(sums, n_classes, residual, session.interrupt)
        })?;
        Ok(PyArray1::from_vec(py, direction))
    })
}
