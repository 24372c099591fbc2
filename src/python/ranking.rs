//! Computations with fitted recommenders: parameters of new users and items, and the best items for many users.

use std::sync::Arc;

use ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::arrays::{Table, Vector, slice};
use super::session::{fold_in_size, guarded, run_request};
use crate::error::{Error, Result};
use crate::memory::require;
use crate::recommend::{
    Excluded, FittedOutput, FittedSide, ItemPanels, Likelihood, LinkFunction, NewPrior, Part,
    Ratings, Scorer, best_items, fold_in,
};

/// The parameters of a fitted machine that are needed to fold in new users or items.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct FoldInRecord<'py> {
    means: Table<'py, f64>,
    spread: Table<'py, f64>,
    output: Table<'py, f64>,
    intercept: Vector<'py, f64>,
    precision: f64,
    tempering: Vector<'py, f64>,
    prior_mean: Table<'py, f64>,
    covariance: Table<'py, f64>,
}

impl FoldInRecord<'_> {
    fn output(&self) -> Result<FittedOutput> {
        let tempering = slice(&self.tempering)?;
        Ok(FittedOutput {
            weights: owned(&self.output),
            intercept: slice(&self.intercept)?.to_vec(),
            precision: self.precision,
            likelihood: match tempering {
                [] => Likelihood::Gaussian,
                weights => Likelihood::Ordinal(weights.to_vec()),
            },
        })
    }
}

/// Computes, for each machine of a model, the parameters of new users given the items, or of new items given the users.
/// `counts` has the number of ratings of each item (or user) in the fit.
#[pyfunction(name = "fold_in")]
pub(super) fn new_blocks<'py>(
    py: Python<'py>,
    ratings: (Vector<'py, u32>, Vector<'py, u32>, Vector<'py, f64>),
    counts: Vector<'py, u32>,
    machines: Vec<FoldInRecord<'py>>,
    n_threads: usize,
) -> PyResult<Vec<Bound<'py, PyArray2<f64>>>> {
    guarded(|| {
        let (users, items, values) = (slice(&ratings.0)?, slice(&ratings.1)?, slice(&ratings.2)?);
        let counts = counts.as_array();
        let given = machines.iter().map(|machine| -> Result<_> {
            let (means, spread) = (machine.means.as_array(), machine.spread.as_array());
            let covariance = machine.covariance.as_array().to_owned();
            let prior = NewPrior { mean: owned(&machine.prior_mean), covariance };
            Ok((FittedSide { means, counts, spread }, machine.output()?, prior))
        });
        let given = given.collect::<Result<Vec<_>>>()?;
        let n_users = given.iter().map(|(_, _, prior)| prior.mean.nrows()).max().unwrap_or(0);
        let size = (n_users, fold_in_size(users.len()));
        let blocks = run_request(py, size, n_threads, |interrupt| {
            let fold = |(other, output, prior): (FittedSide<'_>, FittedOutput, NewPrior)| {
                let ratings = Ratings {
                    users,
                    items,
                    values,
                    weights: &[],
                    n_users: prior.mean.nrows(),
                    n_items: other.means.nrows(),
                    groups: Default::default(),
                };
                fold_in(ratings, other, &output, prior, interrupt)
            };
            given.into_iter().map(fold).collect::<Result<Vec<_>>>()
        })?;
        Ok(blocks.into_iter().map(|blocks| blocks.into_pyarray(py)).collect())
    })
}

fn owned(table: &Table<'_, f64>) -> Array2<f64> {
    table.as_array().as_standard_layout().into_owned()
}

/// Item vectors in the memory layout of matrix products, packed once for many calls.
#[pyclass(frozen)]
pub(super) struct PackedItems(Arc<ItemPanels>);

#[pymethods]
impl PackedItems {
    /// Packs a table of shape (n_items, width + n_outputs).
    #[new]
    fn new(items: PyReadonlyArrayDyn<'_, f32>) -> PyResult<Self> {
        Ok(Self(packed(&items)?))
    }
}

fn packed(items: &PyReadonlyArrayDyn<'_, f32>) -> PyResult<Arc<ItemPanels>> {
    let &[n_items, length] = items.shape() else {
        return Err(Error::argument("model", "the shapes of its arrays do not match").into());
    };
    Ok(Arc::new(ItemPanels::new(items.as_slice()?, n_items, length)?))
}

/// Item vectors, as a table or already packed.
#[derive(FromPyObject)]
pub(super) enum Items<'py> {
    #[pyo3(transparent)]
    Packed(Py<PackedItems>),
    #[pyo3(transparent)]
    Table(PyReadonlyArrayDyn<'py, f32>),
}

/// One term of the scores, with users of shape (n_users, n_outputs, width + 1) and items of shape
/// (n_items, width + n_outputs).
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct PartRecord<'py> {
    users: PyReadonlyArrayDyn<'py, f32>,
    items: Items<'py>,
    /// Gaps between successive rating levels. None if the output itself is the score.
    gaps: Option<Vec<f32>>,
    weight: f32,
}

impl PartRecord<'_> {
    pub(super) fn part(&self) -> PyResult<Part> {
        let (users, user_shape) = (self.users.as_slice()?, self.users.shape());
        let items = match &self.items {
            Items::Packed(items) => items.get().0.clone(),
            Items::Table(table) => packed(table)?,
        };
        let link = self.gaps.clone().map_or(LinkFunction::Identity, LinkFunction::Levels);
        if user_shape.len() != 3 || user_shape[2] == 0 {
            return Err(Error::argument("model", "the shapes of its arrays do not match").into());
        }
        let width = (user_shape[2] - 1, self.weight);
        Ok(Part::new(link, width, (users, user_shape[0]), items)?)
    }
}

/// The items to exclude from each user's recommendations.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct ExclusionRecord<'py> {
    offsets: Vector<'py, i64>,
    items: Vector<'py, i32>,
    allowed: Vector<'py, bool>,
    n_items: usize,
    n_threads: usize,
}

/// The items of each user with their scores, one row per user.
pub(super) type ListsFound<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray2<f32>>);

/// Finds the best items of each user, with their scores.
#[pyfunction(name = "best_items")]
pub(super) fn best<'py>(
    py: Python<'py>,
    parts: Vec<PartRecord<'py>>,
    excluded: ExclusionRecord<'py>,
    n: usize,
) -> PyResult<ListsFound<'py>> {
    guarded(|| {
        let parts = parts.iter().map(PartRecord::part).collect::<PyResult<Vec<Part>>>()?;
        ranked(py, &&parts[..], &excluded, n)
    })
}

/// Finds the best items of each user with any scorer.
pub(super) fn ranked<'py>(
    py: Python<'py>,
    scorer: &impl Scorer,
    excluded: &ExclusionRecord<'py>,
    n: usize,
) -> PyResult<ListsFound<'py>> {
    let lists = Excluded {
        offsets: slice(&excluded.offsets)?,
        items: slice(&excluded.items)?,
        allowed: slice(&excluded.allowed)?,
    };
    let shape = (lists.offsets.len().saturating_sub(1), excluded.n_items);
    let what = || format!("lists of n = {n} items for {} users", shape.0);
    let remedy = "ask for fewer users at a time";
    require(size_of::<(i64, f32)>() as u128 * shape.0 as u128 * n as u128, what, remedy)?;
    let (items, scores) = run_request(py, shape, excluded.n_threads, |interrupt| {
        best_items(scorer, shape, lists, n, interrupt)
    })?;
    let shaped = |error: ndarray::ShapeError| Error::Numerical(error.to_string());
    let items = Array2::from_shape_vec((shape.0, n), items).map_err(shaped)?;
    let scores = Array2::from_shape_vec((shape.0, n), scores).map_err(shaped)?;
    Ok((items.into_pyarray(py), scores.into_pyarray(py)))
}
