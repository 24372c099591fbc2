//! The built-in structured models, together with their examples, as Python objects.

use numpy::PyArray1;
use pyo3::prelude::*;

use super::arrays::{Matrix, Vector, slice};
use super::session::{guarded, run_session};
use crate::error::{Error, Result};
use crate::names::find;
use crate::parallel::map_items_with;
use crate::structured::{
    Chain, Graph, Hamming, Marginals, Matching, Multiclass, Multilabel, Pairs, Work,
};

/// A structured model and a set of examples, with or without their labels.
#[pyclass(frozen)]
pub(super) struct StructuredModel(Box<dyn Marginals>);

impl StructuredModel {
    pub fn model(&self) -> &dyn Marginals {
        &*self.0
    }

    fn new(model: impl Marginals + 'static) -> Self {
        Self(Box::new(model))
    }

    /// Calls `map` with the best label of each example, and returns the results.
    fn decoded<R: Default + Clone + Send>(
        &self,
        py: Python<'_>,
        weights: &Vector<'_, f64>,
        n_threads: usize,
        map: impl Fn(usize, Vec<u32>) -> R + Sync,
    ) -> PyResult<Vec<R>> {
        let (model, weights) = (self.model(), slice(weights)?);
        if weights.len() != model.n_weights() {
            let message = format!("must have {} weights", model.n_weights());
            return Err(Error::argument("coef", message).into());
        }
        run_session(py, n_threads, None, |session| {
            let decode = |(scores, work): &mut (Vec<f64>, Work), example: usize| {
                if session.interrupt.is_raised() {
                    return R::default();
                }
                scores.clear();
                scores.resize(model.n_parts(example), 0.0);
                model.scores(example, weights, scores);
                let mut label = Vec::new();
                model.decode(example, scores, work, &mut label);
                map(example, label)
            };
            let start = || (Vec::new(), Work::of(session.interrupt));
            let found = map_items_with(0..model.n_examples(), 16, start, decode);
            session.interrupt.check()?;
            Ok(found)
        })
    }
}

/// Lists of different lengths, as NumPy arrays (offsets, concatenated values).
type Ragged<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>);

/// Maximum number of labels in a graph. It is limited because the choice of a tree considers all pairs of labels.
const MAX_LABELS: usize = 1 << 13;

/// The graph of a multi-label model, as pairs of labels or by name.
#[derive(FromPyObject)]
enum Edges {
    #[pyo3(transparent)]
    Name(String),
    #[pyo3(transparent)]
    Pairs(Vec<[u32; 2]>),
}

impl Edges {
    fn graph(&self, labels: &[u8], n_labels: usize) -> Result<Graph> {
        if n_labels == 0 || n_labels > MAX_LABELS {
            let message = format!("must be between 1 and {MAX_LABELS} (is {n_labels})");
            return Err(Error::argument("n_labels", message));
        }
        if !labels.len().is_multiple_of(n_labels) {
            return Err(Error::argument("y", format!("must have rows of {n_labels} labels")));
        }
        match self {
            Self::Pairs(pairs) => Graph::new(n_labels, pairs),
            Self::Name(name) => Ok(find("edges", name, Graph::REGISTRY)?(labels, n_labels)),
        }
    }
}

fn read(offsets: &Vector<'_, i64>) -> Result<Vec<usize>> {
    Ok(slice(offsets)?.iter().map(|offset| *offset as usize).collect())
}

#[pymethods]
impl StructuredModel {
    /// Creates a model of chains. `rows` are the concatenated rows of all sequences; sequence i has the rows from
    /// offset i to offset i + 1.
    #[staticmethod]
    #[pyo3(signature = (rows, offsets, labels, *, n_states, boundaries, loss))]
    fn chain(
        rows: Matrix<'_>,
        offsets: Vector<'_, i64>,
        labels: Option<Vector<'_, u32>>,
        n_states: usize,
        boundaries: bool,
        loss: &str,
    ) -> PyResult<Self> {
        guarded(|| {
            let labels = labels.as_ref().map(slice).transpose()?;
            let (offsets, loss) = (read(&offsets)?, Hamming::parse(loss)?);
            Ok(Self::new(Chain::new(rows.rows()?, &offsets, labels, n_states, boundaries, loss)?))
        })
    }

    /// Creates a model that chooses one of several classes per row.
    #[staticmethod]
    #[pyo3(signature = (rows, labels, *, n_classes, costs))]
    fn multiclass(
        rows: Matrix<'_>,
        labels: Option<Vector<'_, u32>>,
        n_classes: usize,
        costs: Option<Vector<'_, f64>>,
    ) -> PyResult<Self> {
        guarded(|| {
            let labels = labels.as_ref().map(slice).transpose()?;
            let costs = costs.as_ref().map(slice).transpose()?;
            Ok(Self::new(Multiclass::new(rows.rows()?, labels, n_classes, costs)?))
        })
    }

    /// Creates a model that chooses a set of labels per row. `edges` are pairs of labels, "full" for all pairs, or
    /// "tree" for a tree that is computed from the training labels.
    #[staticmethod]
    #[pyo3(signature = (rows, labels, *, n_labels, edges, loss))]
    fn multilabel(
        rows: Matrix<'_>,
        labels: Option<Vector<'_, u8>>,
        n_labels: usize,
        edges: Edges,
        loss: &str,
    ) -> PyResult<Self> {
        guarded(|| {
            let labels = labels.as_ref().map(slice).transpose()?;
            let graph = edges.graph(labels.unwrap_or(&[]), n_labels)?;
            let loss = Hamming::parse(loss)?;
            Ok(Self::new(Multilabel::new(rows.rows()?, labels, n_labels, graph, loss)?))
        })
    }

    /// Creates a model that chooses a matching for each example. `rows` are the features of all pairs, example by
    /// example. Example i has the size `sizes[i]` and the correct pairs from offset i to offset i + 1.
    #[staticmethod]
    #[pyo3(signature = (rows, sizes, truth, *, costs, max_links))]
    fn matching(
        rows: Matrix<'_>,
        sizes: Vec<[u32; 2]>,
        truth: Option<(Vec<[u32; 2]>, Vector<'_, i64>)>,
        costs: (f64, f64),
        max_links: [usize; 2],
    ) -> PyResult<Self> {
        guarded(|| {
            let (positive, negative) = costs;
            let truth = match &truth {
                Some((pairs, offsets)) => Some((pairs, read(offsets)?)),
                None => None,
            };
            let truth = truth.as_ref().map(|(pairs, offsets)| Pairs { pairs, offsets });
            let model = Matching::new(rows.rows()?, &sizes, truth, positive, negative)?;
            Ok(Self::new(model.with_max_links(max_links)?))
        })
    }

    /// Returns the pairs of labels that interact in a multi-label model.
    #[staticmethod]
    fn label_edges(
        labels: Vector<'_, u8>,
        n_labels: usize,
        edges: Edges,
    ) -> PyResult<Vec<[u32; 2]>> {
        guarded(|| Ok(edges.graph(slice(&labels)?, n_labels)?.edges().to_vec()))
    }

    #[getter]
    fn n_weights(&self) -> usize {
        self.0.n_weights()
    }

    /// Computes the best label of each example, as (offsets, concatenated labels).
    fn decode<'py>(
        &self,
        py: Python<'py>,
        weights: Vector<'py, f64>,
        n_threads: usize,
    ) -> PyResult<Ragged<'py>> {
        guarded(|| {
            let labels = self.decoded(py, &weights, n_threads, |_, label| label)?;
            let mut offsets = vec![0];
            for label in &labels {
                offsets.push(offsets[offsets.len() - 1] + label.len() as i64);
            }
            Ok((PyArray1::from_vec(py, offsets), PyArray1::from_vec(py, labels.concat())))
        })
    }

    /// Computes the loss of the best label of each example.
    fn losses<'py>(
        &self,
        py: Python<'py>,
        weights: Vector<'py, f64>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        guarded(|| {
            let model = self.model();
            if !model.is_labelled() {
                return Err(Error::argument("y", "the examples have no labels").into());
            }
            let losses = self.decoded(py, &weights, n_threads, |example, label| {
                let mut costs = vec![0.0; model.n_parts(example)];
                let constant = model.add_costs(example, &mut costs);
                let mut parts = Vec::new();
                model.parts(example, &label, &mut parts);
                let costs = parts.iter().map(|(part, count)| count * costs[*part as usize]);
                constant + costs.sum::<f64>()
            })?;
            Ok(PyArray1::from_vec(py, losses))
        })
    }
}
