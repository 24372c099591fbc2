//! Variational fits of two-sided factorization machines.

use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, slice};
use super::session::{Session, run_session};
use crate::data::{Csr, Data};
use crate::error::{Error, Result};
use crate::polynomial::penalty;
use crate::recommend::{Likelihood, Ratings, Settings, VariationalRefit};
use crate::run::{Stopping, run};

/// Fits blocks to ratings; see `dualgap.recommend` for the parameters.
#[pyfunction]
#[pyo3(signature = (users, items, values, *, n_users, n_items, tempering, n_components, penalty,
    radius, output_ridge, hold, feature_ridge, relaxation, popularity, n_sweeps, seed, n_threads,
    user_features=None, item_features=None, callback=None))]
#[allow(clippy::too_many_arguments)]
pub(super) fn fit_variational<'py>(
    py: Python<'py>,
    users: PyReadonlyArray1<'py, u32>,
    items: PyReadonlyArray1<'py, u32>,
    values: PyReadonlyArray1<'py, f64>,
    n_users: usize,
    n_items: usize,
    tempering: Option<Vec<f64>>,
    n_components: usize,
    penalty: &str,
    radius: f64,
    output_ridge: f64,
    hold: usize,
    feature_ridge: f64,
    relaxation: f64,
    popularity: bool,
    n_sweeps: usize,
    seed: u64,
    n_threads: usize,
    user_features: Option<Matrix<'py>>,
    item_features: Option<Matrix<'py>>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let penalty = penalty::parse(penalty)?;
    let ratings = Ratings {
        users: slice(&users)?,
        items: slice(&items)?,
        values: slice(&values)?,
        n_users,
        n_items,
    };
    let settings = Settings {
        n_components,
        likelihood: tempering.map_or(Likelihood::Gaussian, Likelihood::Ordinal),
        penalty: &*penalty,
        radius,
        output_ridge,
        hold,
        feature_ridge,
        relaxation,
        seed,
    };
    let user_features = user_features.as_ref().map(features).transpose()?;
    let item_features = item_features.as_ref().map(features).transpose()?;
    let (trace, blocks) =
        run_session(py, n_threads, callback.as_ref(), |session: &Session<'_>| {
            let mut solver =
                VariationalRefit::new(ratings, user_features, item_features, popularity, settings)?;
            let stopping = Stopping { max_epochs: n_sweeps, gap: 0.0 };
            let trace =
                run(&mut solver, stopping, session.interrupt, &mut |epoch| session.observe(epoch))?;
            Ok((trace, solver.blocks()))
        })?;
    let result = super::trace_dict(py, &trace)?;
    result.set_item("users", blocks.users.into_pyarray(py))?;
    result.set_item("items", blocks.items.into_pyarray(py))?;
    result.set_item("output", blocks.output.as_standard_layout().into_owned().into_pyarray(py))?;
    result.set_item("intercept", blocks.intercept.into_pyarray(py))?;
    Ok(result)
}

fn features<'a>(matrix: &'a Matrix<'_>) -> Result<Csr<'a, f64>> {
    match matrix.rows()? {
        Data::Csr64(csr) => Ok(csr),
        _ => Err(Error::argument("features", "must be a float64 CSR matrix")),
    }
}
