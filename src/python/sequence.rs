//! Fits of sequence labellers.

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::arrays::{Matrix, Vector, slice};
use super::mapped::MappedRows;
use super::records::{RunRecord, SharesRecord};
use super::session::{Session, guarded, run_session};
use super::trace::{piece_tuple, trace_dict};
use crate::dual::Shares;
use crate::error::Result;
use crate::names::find;
use crate::parallel::map_items;
use crate::run::Trace;
use crate::solver::{Sampling, Target};
use crate::structured::{
    Chain, ChainFit, ChainPoint, ConditionalFit, DescentOptions, ElasticNet, Hamming, Links, Model,
    chain_objective, chain_path, conditional_objective, conditional_path, fit_chain,
    fit_conditional,
};

/// The final state of a fit, from which a later fit on the same sentences can start.
#[pyclass(frozen)]
pub(super) struct SequencePoint(Point);

#[pymethods]
impl SequencePoint {
    /// Creates a state from which a fit with logistic loss starts at these weights.
    #[staticmethod]
    fn of_weights(weights: Vec<f64>) -> Self {
        SequencePoint(Point::Weights(weights))
    }

    /// Transfers the dual point to the sentences of another problem. Sentence i gets the dual variables of the old
    /// sentence `places[i]`, or no dual variables if `places[i]` is -1. `numbers` has the new index of each label, or
    /// -1 for a removed label. Returns the new state, and how many sentences have dual variables. Returns None if this
    /// state consists of weights, if the problem has logistic loss, or if `places` has a wrong length.
    fn moved(
        &self,
        problem: &SequenceProblem,
        places: Vec<i64>,
        numbers: Vec<i64>,
    ) -> Option<(Self, usize)> {
        let Point::Dual(point) = &self.0 else { return None };
        let numbers: Vec<_> = numbers.into_iter().map(|new| u16::try_from(new).ok()).collect();
        let places: Vec<_> = places.into_iter().map(|old| usize::try_from(old).ok()).collect();
        if problem.log || places.len() != problem.chain.n_examples() {
            return None;
        }
        let (point, n_known) = point.moved(&problem.chain, &places, &numbers);
        Some((Self(Point::Dual(point)), n_known))
    }

    /// Whether a fit of this problem can start from this state.
    fn fits(&self, problem: &SequenceProblem) -> bool {
        let SequenceProblem { chain, log } = problem;
        match &self.0 {
            Point::Weights(weights) => *log && weights.len() == chain.n_weights(),
            Point::Dual(point) => !log && point.fits(chain),
        }
    }
}

/// A state from which a later fit starts: a dual point for the hinge loss, or weights for the
/// logistic loss.
#[derive(Clone)]
enum Point {
    Dual(ChainPoint),
    Weights(Vec<f64>),
}

/// The allowed transitions between labels, and the costs of errors.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ChainRecord<'py> {
    n_states: usize,
    loss: String,
    /// A code for each pair of labels; see [`Links::from_codes`].
    links: Vector<'py, u8>,
    seen_pairs: bool,
    token_weight: Option<Vector<'py, f64>>,
    /// A flag per row: 1 if its label is known, otherwise 0. None if all labels are known.
    known: Option<Vector<'py, u8>>,
    edges: Option<Matrix<'py>>,
}

impl ChainRecord<'_> {
    fn chain(&self, rows: &SequenceRows<'_>, offsets: &[i64], labels: &[u32]) -> Result<Chain> {
        let offsets: Vec<usize> = offsets.iter().map(|offset| *offset as usize).collect();
        let loss = Hamming::parse(if self.loss == "logistic" { "hamming" } else { &self.loss })?;
        let links = Links::from_codes(self.n_states, slice(&self.links)?)?;
        let labels = Some(labels);
        let chain = match rows {
            SequenceRows::Given(rows) => {
                Chain::new(rows.rows()?, &offsets, labels, self.n_states, false, loss)?
            }
            SequenceRows::Mapped(rows) => {
                Chain::stored(rows.0.clone(), &offsets, labels, self.n_states, loss)?
            }
        };
        let chain = match &self.known {
            Some(known) => {
                let known: Vec<bool> = slice(known)?.iter().map(|known| *known != 0).collect();
                chain.with_known(&known)?
            }
            None => chain,
        };
        let mut chain = chain.with_links(links)?;
        if self.seen_pairs {
            chain = chain.with_seen_pairs()?;
        }
        if let Some(costs) = &self.token_weight {
            chain = chain.with_costs(slice(costs)?)?;
        }
        if let Some(edges) = &self.edges {
            chain = chain.with_transition_features(edges.rows()?)?;
        }
        Ok(chain)
    }
}

/// The features of all tokens: arrays in memory, which are copied, or a file, which is read in place.
#[derive(FromPyObject)]
enum SequenceRows<'py> {
    #[pyo3(transparent)]
    Given(Matrix<'py>),
    #[pyo3(transparent)]
    Mapped(MappedRows),
}

/// Lists of labels, one per column: the end of each list, and the concatenated lists.
type PairArrays<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u16>>);

/// Labelled sentences. Sentences in memory are copied, so that Python can free its own copy before the fit.
#[pyclass(frozen)]
pub(super) struct SequenceProblem {
    chain: Chain,
    log: bool,
}

#[pymethods]
impl SequenceProblem {
    /// Creates a problem from the rows of all sentences and the index of each row's label. Sentence
    /// i has the rows from offset i to offset i + 1. `settings` is a dictionary with the fields of
    /// [`ChainRecord`].
    #[new]
    fn new(
        rows: SequenceRows<'_>,
        offsets: Vector<'_, i64>,
        labels: Vector<'_, u32>,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        guarded(|| {
            let record: ChainRecord<'_> = settings.extract()?;
            let chain = record.chain(&rows, slice(&offsets)?, slice(&labels)?)?;
            Ok(Self { chain, log: record.loss == "logistic" })
        })
    }

    /// Checks that transition tables for this number of labels fit into memory.
    #[staticmethod]
    fn check_labels(n_labels: usize) -> PyResult<()> {
        guarded(|| Ok(Chain::check_states(n_labels)?))
    }

    /// Creates a problem with hinge loss, in which the best labels at the given weights replace unknown labels. Also
    /// returns the labels of all rows.
    fn complete<'py>(
        &self,
        py: Python<'py>,
        weights: Vector<'_, f64>,
        n_threads: usize,
    ) -> PyResult<(Self, Bound<'py, PyArray1<u32>>)> {
        guarded(|| {
            let (chain, weights) = (&self.chain, slice(&weights)?);
            if weights.len() != chain.n_weights() {
                return Err(PyValueError::new_err("the weights belong to another problem"));
            }
            let labels = run_session(py, n_threads, None, |session| {
                let labels = map_items(0..chain.n_examples(), 1, |example| {
                    session.interrupt.check()?;
                    Ok(chain.complete(example, weights))
                });
                Ok(labels.into_iter().collect::<Result<Vec<_>>>()?.concat())
            })?;
            let chain = chain.completed(labels.clone())?;
            Ok((Self { chain, log: false }, PyArray1::from_vec(py, labels)))
        })
    }

    /// The mean number of features of a token; see [`Chain::features_per_row`].
    fn features_per_token(&self, weights: Option<Vector<'_, f64>>) -> PyResult<f64> {
        guarded(|| {
            let weights = weights.as_ref().map(slice).transpose()?;
            if weights.is_some_and(|weights| weights.len() != self.chain.n_examples()) {
                return Err(PyValueError::new_err(
                    "sample_weight: must have one entry per sentence",
                ));
            }
            Ok(self.chain.features_per_row(weights))
        })
    }

    /// The (column, label) pairs that have a weight, as one list of labels per column. None if all pairs have a weight.
    fn pairs<'py>(&self, py: Python<'py>) -> Option<PairArrays<'py>> {
        let pairs = self.chain.pairs()?;
        let ends = PyArray1::from_iter(py, pairs.ends.iter().map(|end| *end as i64));
        Some((ends, PyArray1::from_slice(py, &pairs.labels)))
    }
}

/// Settings of a fit.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FitRecord {
    sampling: String,
    seed: u64,
    l1_ratio: f64,
    start: Option<Py<SequencePoint>>,
    keep_point: bool,
}

impl FitRecord {
    fn plan(&self, problem: &SequenceProblem) -> Result<Plan> {
        let sampling = find("sampling", &self.sampling, Sampling::NAMES)?;
        let options = DescentOptions { sampling, seed: self.seed };
        let penalty = ElasticNet::new(self.l1_ratio)?;
        Ok(Plan { log: problem.log, options, penalty, start: self.start(problem) })
    }

    /// The state to start from, if it matches these sentences and this loss.
    fn start(&self, problem: &SequenceProblem) -> Option<Point> {
        let point = self.start.as_ref()?.get();
        point.fits(problem).then(|| point.0.clone())
    }
}

/// The checked settings of a fit, without its sentences.
struct Plan {
    log: bool,
    options: DescentOptions,
    penalty: ElasticNet,
    start: Option<Point>,
}

/// The result of a fit with any loss.
struct Fitted {
    trace: Trace,
    null_objective: f64,
    weights: Vec<f64>,
    /// The dual point, if a later fit needs it besides the weights.
    point: Option<ChainPoint>,
}

impl Plan {
    fn fit(
        self,
        chain: &Chain,
        shares: Shares,
        target: Target,
        session: &Session<'_>,
    ) -> Result<Fitted> {
        let (interrupt, observe) = (session.interrupt, &mut |epoch: &_| session.observe(epoch));
        if self.log {
            let start = match self.start {
                Some(Point::Weights(weights)) => Some(weights),
                _ => None,
            };
            let problem = (chain, shares);
            let ended = fit_conditional(problem, self.penalty, target, start, interrupt, observe)?;
            let ConditionalFit { trace, null_objective, weights } = ended;
            Ok(Fitted { trace, null_objective, weights, point: None })
        } else {
            let start = match self.start {
                Some(Point::Dual(point)) => Some(point),
                _ => None,
            };
            let ended =
                fit_chain((chain, shares), self.options, target, start, interrupt, observe)?;
            let ChainFit { trace, null_objective, weights, point } = ended;
            Ok(Fitted { trace, null_objective, weights, point: Some(point) })
        }
    }
}

/// Fits a tagger. `settings` is a dictionary with the fields of [`FitRecord`], [`RunRecord`] and
/// [`SharesRecord`].
#[pyfunction]
pub(super) fn fit_sequences<'py>(
    py: Python<'py>,
    problem: &Bound<'py, SequenceProblem>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    guarded(|| {
        let record: FitRecord = settings.extract()?;
        let (run, shares): (RunRecord, SharesRecord<'_>) =
            (settings.extract()?, settings.extract()?);
        let problem = problem.get();
        let shares = shares.shares(problem.chain.n_examples())?;
        let (plan, target) = (record.plan(problem)?, run.target());
        let solver = if plan.log { "lbfgs" } else { "block-frank-wolfe" };
        let ended = run_session(py, run.n_threads, run.callback.as_ref(), |session| {
            plan.fit(&problem.chain, shares, target, session)
        })?;
        let result = trace_dict(py, &ended.trace)?;
        result.set_item("null_objective", ended.null_objective)?;
        result.set_item("solver", (solver, ended.trace.n_first))?;
        let Fitted { weights, point, .. } = ended;
        if record.keep_point {
            let point = point.map_or_else(|| Point::Weights(weights.clone()), Point::Dual);
            result.set_item("point", Py::new(py, SequencePoint(point))?)?;
        }
        result.set_item("weights", PyArray1::from_vec(py, weights))?;
        Ok(result)
    })
}

/// Returns the objective at the given weights; `settings` are as for [`fit_sequences`].
#[pyfunction]
pub(super) fn sequence_objective(
    py: Python<'_>,
    problem: &Bound<'_, SequenceProblem>,
    settings: &Bound<'_, PyDict>,
    weights: Vector<'_, f64>,
) -> PyResult<f64> {
    guarded(|| {
        let record: FitRecord = settings.extract()?;
        let (run, shares): (RunRecord, SharesRecord<'_>) =
            (settings.extract()?, settings.extract()?);
        let problem = problem.get();
        let own = (&problem.chain, shares.shares(problem.chain.n_examples())?);
        let (penalty, weights) = (ElasticNet::new(record.l1_ratio)?, slice(&weights)?);
        run_session(py, run.n_threads, None, |session| {
            if problem.log {
                conditional_objective(own, penalty, weights, session.interrupt)
            } else {
                chain_objective(own, weights.to_vec(), session.interrupt)
            }
        })
    })
}

/// Computes a path over λ from the `regularization` in `settings` down to `until`; `settings` are
/// as for [`fit_sequences`]. The path consists of pieces, each of which covers an interval of λ:
/// (largest λ, smallest λ, weights at the largest λ, gap, relative gap, epochs).
#[pyfunction]
pub(super) fn sequence_path<'py>(
    py: Python<'py>,
    problem: &Bound<'py, SequenceProblem>,
    settings: &Bound<'py, PyDict>,
    until: f64,
) -> PyResult<Bound<'py, PyList>> {
    guarded(|| {
        let record: FitRecord = settings.extract()?;
        let (run, shares): (RunRecord, SharesRecord<'_>) =
            (settings.extract()?, settings.extract()?);
        let problem = problem.get();
        let (chain, target) = (&problem.chain, run.target());
        let shares = shares.shares(chain.n_examples())?;
        let Plan { log, options, .. } = record.plan(problem)?;
        let pieces = run_session(py, run.n_threads, run.callback.as_ref(), |session| {
            let observe = &mut |epoch: &_| session.observe(epoch);
            if log {
                conditional_path(chain, shares, until, target, session.interrupt, observe)
            } else {
                chain_path((chain, shares), until, options, target, session.interrupt, observe)
            }
        })?;
        let pieces = pieces.into_iter().map(|piece| piece_tuple(py, piece));
        PyList::new(py, pieces.collect::<Vec<_>>())
    })
}
