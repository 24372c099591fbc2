//! Variational fits of factorization machines for recommenders.

use ndarray::Array2;
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Vector, slice};
use super::session::{Session, guarded, run_session};
use super::trace::trace_dict;
use crate::data::{Csr, Data};
use crate::error::{Error, Result};
use crate::penalty;
use crate::recommend::{
    Factors, Groups, LearnedPrior, Likelihood, Ratings, Spread, VariationalRefit,
    VariationalSettings,
};
use crate::run::{Stopping, run};

/// Settings of `fit_variational`; see `dualgap.recommend` for the parameters.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct VariationalRecord<'py> {
    n_users: usize,
    n_items: usize,
    /// One weight per threshold between rating levels; None for a Gaussian likelihood.
    tempering: Option<Vec<f64>>,
    n_components: usize,
    penalty: String,
    radius: f64,
    output_ridge: f64,
    hold: usize,
    feature_ridge: f64,
    relaxation: f64,
    popularity: bool,
    tol: f64,
    max_iter: usize,
    seed: u64,
    n_threads: usize,
    user_features: Option<Matrix<'py>>,
    item_features: Option<Matrix<'py>>,
    /// One weight per rating, or None.
    weights: Option<Vector<'py, f64>>,
    /// For users and for items: the group of each rating among the ratings of its user (or item), and the number of
    /// groups.
    groups: Option<[(Vector<'py, u32>, usize); 2]>,
    callback: Option<Py<PyAny>>,
}

/// Fits the parameters of users and items to ratings.
#[pyfunction]
pub(super) fn fit_variational<'py>(
    py: Python<'py>,
    users: Vector<'py, u32>,
    items: Vector<'py, u32>,
    values: Vector<'py, f64>,
    settings: VariationalRecord<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let penalty = penalty::parse(&settings.penalty)?;
        let method = VariationalSettings {
            n_components: settings.n_components,
            likelihood: settings.tempering.map_or(Likelihood::Gaussian, Likelihood::Ordinal),
            penalty: &*penalty,
            radius: settings.radius,
            output_ridge: settings.output_ridge,
            hold: settings.hold,
            feature_ridge: settings.feature_ridge,
            relaxation: settings.relaxation,
            popularity: settings.popularity,
            tol: settings.tol,
            seed: settings.seed,
        };
        let mut groups = [Groups::default(); 2];
        for (group, (of, n)) in groups.iter_mut().zip(settings.groups.iter().flatten()) {
            *group = Groups { of: slice(of)?, n: *n };
        }
        let ratings = Ratings {
            users: slice(&users)?,
            items: slice(&items)?,
            values: slice(&values)?,
            weights: settings.weights.as_ref().map_or(Ok(&[][..]), slice)?,
            n_users: settings.n_users,
            n_items: settings.n_items,
            groups,
        };
        let n_threads = settings.n_threads;
        let user_features = settings.user_features.as_ref().map(features).transpose()?;
        let item_features = settings.item_features.as_ref().map(features).transpose()?;
        let stopping = Stopping {
            max_epochs: settings.max_iter,
            relative: 0.0,
            floor: 0.0,
            null_objective: None,
        };
        let (trace, solver_state) =
            run_session(py, n_threads, settings.callback.as_ref(), |session: &Session<'_>| {
                let (users, items) = (user_features, item_features);
                let interrupt = session.interrupt;
                let mut solver = VariationalRefit::new(ratings, users, items, method, interrupt)?;
                let trace = run(&mut solver, stopping, session.interrupt, &mut |epoch| {
                    session.observe(epoch)
                })?;
                let fitted = (solver.factors(), solver.effects());
                Ok((trace, (fitted, solver.learned(interrupt)?, solver.precision())))
            })?;
        let result = trace_dict(py, &trace)?;
        describe(&result, solver_state)?;
        Ok(result)
    })
}

type Fit = ((Factors, [Option<Array2<f64>>; 2]), [(LearnedPrior, Spread); 2], f64);

/// Adds the fitted parameters to the dictionary with the record of the run.
fn describe(result: &Bound<'_, PyDict>, (fitted, learned, precision): Fit) -> PyResult<()> {
    let (py, (factors, effects)) = (result.py(), fitted);
    for (side, effects) in ["user", "item"].into_iter().zip(effects) {
        let effects = effects.map(|effects| effects.into_pyarray(py));
        result.set_item(format!("{side}_effects"), effects)?;
    }
    result.set_item("precision", precision)?;
    for (side, (prior, spread)) in ["user", "item"].into_iter().zip(learned) {
        let LearnedPrior { base, centre, features, covariance } = prior;
        let record = PyDict::new(py);
        record.set_item("base", base.into_pyarray(py))?;
        record.set_item("centre", centre)?;
        record.set_item("features", features.map(|weights| weights.into_pyarray(py)))?;
        record.set_item("covariance", covariance.into_pyarray(py))?;
        record.set_item("spread", spread.into_pyarray(py))?;
        result.set_item(format!("{side}_prior"), record)?;
    }
    result.set_item("users", factors.users.into_pyarray(py))?;
    result.set_item("items", factors.items.into_pyarray(py))?;
    let output = factors.output.as_standard_layout().into_owned();
    result.set_item("output", output.into_pyarray(py))?;
    result.set_item("intercept", factors.intercept.into_pyarray(py))
}

/// Borrows a matrix of features; returns an error if it is not sparse.
pub(super) fn features<'a>(matrix: &'a Matrix<'_>) -> Result<Csr<'a, f64>> {
    match matrix.rows()? {
        Data::Csr64(csr) => Ok(csr),
        _ => Err(Error::argument("features", "must be a float64 CSR matrix")),
    }
}
