//! Recommenders for clicks: factors, item-item weights, and blends of their scores.

use std::sync::Arc;

use ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{Matrix, Table, Vector, slice};
use super::ranking::{ExclusionRecord, ListsFound, PartRecord, ranked};
use super::recommend::features;
use super::session::{Session, fold_in_size, guarded, run_request, run_session};
use super::trace::trace_dict;
use crate::error::{Error, Result};
use crate::memory::require;
use crate::recommend::{
    Blend, Clicks, DenseWeights, InteractionFit, InteractionSettings, Interactions, ItemModel,
    ItemWeights, Lists, factor_gram as gram_of_factors, fold_in_interactions,
};
use crate::run::{Stopping, run};

/// The observed pairs and the settings for `fit_interactions` and `fold_in_interactions`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct InteractionRecord<'py> {
    users: Vector<'py, u32>,
    items: Vector<'py, u32>,
    targets: Option<Vector<'py, f64>>,
    weights: Option<Vector<'py, f64>>,
    n_users: usize,
    n_items: usize,
    n_components: usize,
    unobserved: f64,
    ridge: f64,
    tol: f64,
    seed: u64,
    start: Option<(Table<'py, f64>, Table<'py, f64>)>,
    user_features: Option<Matrix<'py>>,
    item_features: Option<Matrix<'py>>,
    feature_ridge: f64,
    max_iter: usize,
    n_threads: usize,
    callback: Option<Py<PyAny>>,
}

impl InteractionRecord<'_> {
    fn pairs(&self) -> Result<Interactions<'_>> {
        Ok(Interactions {
            users: slice(&self.users)?,
            items: slice(&self.items)?,
            targets: self.targets.as_ref().map_or(Ok(&[][..]), slice)?,
            weights: self.weights.as_ref().map_or(Ok(&[][..]), slice)?,
            n_users: self.n_users,
            n_items: self.n_items,
        })
    }

    fn settings(&self) -> InteractionSettings {
        InteractionSettings {
            n_components: self.n_components,
            unobserved: self.unobserved,
            ridge: self.ridge,
            tol: self.tol,
            seed: self.seed,
        }
    }
}

/// Fits factors to the observed pairs of users and items.
#[pyfunction]
pub(super) fn fit_interactions<'py>(
    py: Python<'py>,
    record: InteractionRecord<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let (pairs, settings) = (record.pairs()?, record.settings());
        let start = record.start.as_ref();
        let start = start.map(|(users, items)| (users.as_array(), items.as_array()));
        let tables = [&record.user_features, &record.item_features];
        let [of_users, of_items] = tables.map(|table| table.as_ref().map(features).transpose());
        let tables = [of_users?, of_items?];
        let stopping = Stopping {
            max_epochs: record.max_iter,
            relative: 0.0,
            floor: 0.0,
            null_objective: None,
        };
        let callback = record.callback.as_ref();
        let (trace, ((users, items), [of_users, of_items])) =
            run_session(py, record.n_threads, callback, |session: &Session<'_>| {
                let interrupt = session.interrupt;
                let mut solver = InteractionFit::new(pairs, settings)?.with_features(
                    tables,
                    record.feature_ridge,
                    interrupt,
                )?;
                if let Some((users, items)) = start {
                    solver = solver.start_from(users, items, interrupt)?;
                }
                let trace = run(&mut solver, stopping, session.interrupt, &mut |epoch| {
                    session.observe(epoch)
                })?;
                Ok((trace, (solver.factors(), solver.feature_weights())))
            })?;
        let result = trace_dict(py, &trace)?;
        result.set_item("users", users.into_pyarray(py))?;
        result.set_item("items", items.into_pyarray(py))?;
        for (name, weights) in [("user_weights", of_users), ("item_weights", of_items)] {
            result.set_item(name, weights.map(|weights| weights.into_pyarray(py)))?;
        }
        Ok(result)
    })
}

/// Returns the Gram matrix Σ b bᵀ over the rows b of a table of factors.
#[pyfunction]
pub(super) fn factor_gram<'py>(
    py: Python<'py>,
    factors: Table<'py, f64>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    guarded(|| {
        let factors = factors.as_array();
        let found =
            run_session(py, n_threads, None, |_: &Session<'_>| Ok(gram_of_factors(factors)))?;
        Ok(found.into_pyarray(py))
    })
}

/// Computes the factors of new users from their observed pairs, the items' factors, the Gram matrix of these factors,
/// and the prior means of the users.
#[pyfunction(name = "fold_in_interactions")]
pub(super) fn new_interactions<'py>(
    py: Python<'py>,
    record: InteractionRecord<'py>,
    items: Table<'py, f64>,
    gram: Table<'py, f64>,
    means: Option<Table<'py, f64>>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    guarded(|| {
        let (pairs, settings) = (record.pairs()?, record.settings());
        let items = (items.as_array(), gram.as_array());
        let means = means.as_ref().map(|means| means.as_array());
        let size = (record.n_users, fold_in_size(pairs.users.len()));
        let users = run_request(py, size, record.n_threads, |interrupt| {
            fold_in_interactions(pairs, items, means, &settings, interrupt)
        })?;
        Ok(users.into_pyarray(py))
    })
}

/// The clicks that determine the item-item weights.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct ClicksRecord<'py> {
    users: Vector<'py, u32>,
    items: Vector<'py, u32>,
    values: Vector<'py, f32>,
    n_users: usize,
    n_items: usize,
    n_kept: usize,
    n_threads: usize,
}

impl ClicksRecord<'_> {
    fn clicks(&self) -> Result<Clicks> {
        let shape = (self.n_users, self.n_items);
        Clicks::new(slice(&self.users)?, slice(&self.items)?, slice(&self.values)?, shape)
    }
}

/// Sparse weights as (offsets, items, values).
type Weights<'py> =
    (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<f32>>);

fn weights(py: Python<'_>, found: ItemWeights) -> Weights<'_> {
    let ItemWeights { offsets, items, values } = found;
    (offsets.into_pyarray(py), items.into_pyarray(py), values.into_pyarray(py))
}

/// Returns the item-item graph that connects items clicked by the same users.
#[pyfunction]
pub(super) fn item_graph<'py>(
    py: Python<'py>,
    record: ClicksRecord<'py>,
) -> PyResult<Weights<'py>> {
    guarded(|| {
        let clicks = record.clicks()?;
        let found = run_session(py, record.n_threads, None, |session: &Session<'_>| {
            clicks.item_graph(record.n_kept, session.interrupt)
        })?;
        Ok(weights(py, found))
    })
}

/// Computes the weights of a regression of each item on the other items.
#[pyfunction]
pub(super) fn item_regression<'py>(
    py: Python<'py>,
    record: ClicksRecord<'py>,
    head: Vector<'py, u32>,
    ridge: f64,
    dropout: f64,
) -> PyResult<Weights<'py>> {
    guarded(|| {
        let (clicks, head) = (record.clicks()?, slice(&head)?);
        let found = run_session(py, record.n_threads, None, |session: &Session<'_>| {
            clicks.item_regression(head, (ridge, dropout), record.n_kept, session.interrupt)
        })?;
        Ok(weights(py, found))
    })
}

/// A matrix in compressed sparse row format.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct ListsRecord<'py> {
    offsets: Vector<'py, i64>,
    columns: Vector<'py, i32>,
    values: Vector<'py, f32>,
}

impl ListsRecord<'_> {
    fn lists(&self) -> Result<Lists<'_>> {
        Ok(Lists {
            offsets: slice(&self.offsets)?,
            columns: slice(&self.columns)?,
            values: slice(&self.values)?,
        })
    }
}

/// An item-item model as a dense matrix, prepared once for many calls.
#[pyclass(frozen)]
pub(super) struct DenseItems(Arc<DenseWeights>);

#[pymethods]
impl DenseItems {
    /// Fills in the zeros of a sparse `n_items` × `n_items` matrix.
    #[new]
    fn new(lists: ListsRecord<'_>, n_items: usize) -> PyResult<Self> {
        Ok(Self(Arc::new(DenseWeights::new(lists.lists()?, n_items)?)))
    }
}

/// An item-item model, sparse or already dense.
#[derive(FromPyObject)]
enum ModelRecord<'py> {
    #[pyo3(transparent)]
    Dense(Py<DenseItems>),
    #[pyo3(transparent)]
    Sparse(ListsRecord<'py>),
}

impl ModelRecord<'_> {
    fn model(&self) -> Result<ItemModel<'_>> {
        Ok(match self {
            Self::Dense(weights) => ItemModel::Dense(weights.get().0.clone()),
            Self::Sparse(lists) => ItemModel::Sparse(lists.lists()?),
        })
    }
}

/// The recommenders whose scores are blended for given users, with the weight of each recommender.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct BlendRecord<'py> {
    factors: PartRecord<'py>,
    models: Vec<ModelRecord<'py>>,
    history: ListsRecord<'py>,
    weights: Vec<f32>,
    n_items: usize,
    n_threads: usize,
}

impl BlendRecord<'_> {
    fn blend(&self) -> PyResult<Blend<'_>> {
        Ok(Blend {
            factors: self.factors.part()?,
            models: self.models.iter().map(ModelRecord::model).collect::<Result<Vec<_>>>()?,
            history: self.history.lists()?,
            weights: self.weights.clone(),
            n_items: self.n_items,
        })
    }
}

/// Returns the items with the highest blended scores for each user, and these scores.
#[pyfunction]
pub(super) fn best_of_blend<'py>(
    py: Python<'py>,
    record: BlendRecord<'py>,
    excluded: ExclusionRecord<'py>,
    n: usize,
) -> PyResult<ListsFound<'py>> {
    guarded(|| ranked(py, &record.blend()?, &excluded, n))
}

/// Returns the blended scores of all items for each user.
#[pyfunction]
pub(super) fn scores_of_blend<'py>(
    py: Python<'py>,
    record: BlendRecord<'py>,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    guarded(|| {
        let blend = record.blend()?;
        let shape = (blend.history.offsets.len().saturating_sub(1), record.n_items);
        let what = || format!("the scores of {} users", shape.0);
        require(4 * shape.0 as u128 * shape.1 as u128, what, "score fewer users at a time")?;
        let scores = run_session(py, record.n_threads, None, |session: &Session<'_>| {
            blend.scores(shape.0, session.interrupt)
        })?;
        let shaped = |error: ndarray::ShapeError| Error::Numerical(error.to_string());
        Ok(Array2::from_shape_vec(shape, scores).map_err(shaped)?.into_pyarray(py))
    })
}

/// Measures how well a blend ranks held-out items, for each choice of its weights.
#[pyfunction]
pub(super) fn compare_blends(
    py: Python<'_>,
    record: BlendRecord<'_>,
    held_out: ListsRecord<'_>,
    weightings: Vec<Vec<f32>>,
) -> PyResult<Vec<f64>> {
    guarded(|| {
        let (blend, held_out) = (record.blend()?, held_out.lists()?);
        run_session(py, record.n_threads, None, |session: &Session<'_>| {
            blend.compare(held_out, &weightings, session.interrupt)
        })
    })
}
