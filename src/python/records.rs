//! Records with the options of fits. The fields of each record are read from a dictionary.

use std::sync::Arc;

use pyo3::prelude::*;

use super::arrays::{Table, Vector, slice};
use super::own_loss::{OwnLoss, OwnPolytope};
use super::session::{Session, digests, run_session};
use crate::data::Data;
use crate::dual::Shares;
use crate::error::Result;
use crate::multiclass::{Costs, Linear, MarginProblem, Order, ScoreMap, Size};
use crate::polytope::{self, Parameters, Polytope};
use crate::solver::{Choices, Target};

/// A linear multiclass problem, without its rows and labels.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct MarginRecord<'py> {
    n_classes: usize,
    loss: LossRecord,
    k: Option<usize>,
    weights: Option<Vec<f64>>,
    costs: Option<Table<'py, f64>>,
    costs_per_row: bool,
    smoothing: f64,
    bias: f64,
}

/// A built-in loss by its name, or a loss written in Python.
#[derive(FromPyObject)]
enum LossRecord {
    Named(String),
    Own(Own),
}

/// A loss written in Python, shared between the problems that use it.
#[derive(Clone)]
struct Own(Arc<OwnLoss>);

impl<'py> FromPyObject<'_, 'py> for Own {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Arc::new(object.extract()?)))
    }
}

impl MarginRecord<'_> {
    /// The loss, if it is written in Python.
    pub fn own_loss(&self) -> Option<&OwnLoss> {
        match &self.loss {
            LossRecord::Named(_) => None,
            LossRecord::Own(own) => Some(&own.0),
        }
    }

    /// Builds the problem, with its weights in the order that suits the solver.
    ///
    /// The problem is built in a separate session: rayon's global pool would outlive the call, and
    /// a forked child process would then wait for threads that it does not have. Also returns the
    /// digest of the rows, computed before anything else read them, for
    /// [`unchanged_since`](super::session::unchanged_since).
    pub fn problem<'a>(
        &self,
        py: Python<'_>,
        (rows, labels): (Data<'a>, &'a [u32]),
        shares: &SharesRecord<'_>,
        order: Order,
        n_threads: usize,
    ) -> PyResult<(MarginProblem<'a>, Vec<u64>)> {
        let (parts, shares) = (self.parts(), shares.shares(rows.n_rows())?);
        let sparse = match rows {
            Data::Csr32(_) | Data::Csr64(_) => digests(py, &[rows])?,
            _ => Vec::new(),
        };
        let make = |_: &Session<'_>| {
            let map = Linear::digested(rows, parts.n_classes, parts.bias, order);
            let digests = map.digest().into_iter().chain(sparse).collect();
            Ok((parts.on(map, labels, shares)?, digests))
        };
        run_session(py, n_threads, None, make)
    }

    /// Returns the parts of the problem. Several problems can be built from these parts, on any thread.
    pub fn parts(&self) -> MarginParts {
        MarginParts {
            n_classes: self.n_classes,
            loss: match &self.loss {
                LossRecord::Named(name) => {
                    let parameters = Parameters { k: self.k, weights: self.weights.clone() };
                    LossParts::Named(name.clone(), parameters)
                }
                LossRecord::Own(own) => LossParts::Own(own.clone()),
            },
            costs: self.costs(),
            smoothing: self.smoothing,
            bias: self.bias,
        }
    }

    /// Returns the sizes that determine the memory of the problem.
    pub fn size(&self, rows: Data<'_>, keep_dual: bool, lambda: f64) -> Size {
        let size = Size::of(rows, self.n_classes, self.smoothing > 0.0, keep_dual);
        // A loss written in Python never uses Newton's method, which calls the slow projection far
        // more often.
        match self.loss {
            LossRecord::Named(_) => size.with_newton(rows, self.bias, lambda),
            LossRecord::Own(_) => size,
        }
    }

    fn costs(&self) -> Costs {
        match self.costs.as_ref().map(|costs| costs.as_array().iter().copied().collect()) {
            None => Costs::Unit,
            Some(costs) if self.costs_per_row => Costs::PerExample(costs),
            Some(costs) => Costs::PerLabel(costs),
        }
    }
}

/// A linear multiclass problem, without its rows and labels, and without λ and the row weights.
#[derive(Clone)]
pub(super) struct MarginParts {
    pub n_classes: usize,
    loss: LossParts,
    costs: Costs,
    pub smoothing: f64,
    pub bias: f64,
}

#[derive(Clone)]
enum LossParts {
    Named(String, Parameters),
    Own(Own),
}

impl LossParts {
    fn polytope(self) -> Result<Box<dyn Polytope>> {
        match self {
            Self::Named(name, parameters) => polytope::parse(&name, parameters),
            Self::Own(own) => Ok(Box::new(OwnPolytope(own.0))),
        }
    }
}

impl MarginParts {
    /// Builds the problem, with its weights in the order that suits the solver.
    pub fn problem<'a>(
        self,
        rows: Data<'a>,
        labels: &'a [u32],
        shares: Shares,
        order: Order,
    ) -> Result<MarginProblem<'a>> {
        let map = Linear::new(rows, self.n_classes, self.bias, order);
        self.on(map, labels, shares)
    }

    /// Builds the problem for any kind of features.
    pub fn on<'a, M: ScoreMap>(
        self,
        map: M,
        labels: &'a [u32],
        shares: Shares,
    ) -> Result<MarginProblem<'a, M>> {
        let polytope = self.loss.polytope()?;
        let shares = shares.with_smoothing(self.smoothing)?;
        MarginProblem::new(map, labels, polytope, shares)?.with_costs(self.costs)
    }
}

/// λ and the weights of the examples.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct SharesRecord<'py> {
    pub regularization: f64,
    sample_weight: Option<Vector<'py, f64>>,
}

impl SharesRecord<'_> {
    pub fn shares(&self, n_examples: usize) -> Result<Shares> {
        let shares = Shares::new(n_examples, self.regularization)?;
        match &self.sample_weight {
            Some(weights) => shares.with_sample_weights(slice(weights)?),
            None => Ok(shares),
        }
    }
}

/// A solver and its options, by name. Options that an estimator does not have may be missing.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct MethodRecord {
    solver: String,
    step: Option<String>,
    sampling: String,
    #[pyo3(default = false)]
    cache: bool,
    #[pyo3(default = false)]
    averaging: bool,
    #[pyo3(default = 1.0)]
    subsample: f64,
    seed: u64,
}

impl MethodRecord {
    pub fn choices(&self) -> Choices<'_> {
        Choices {
            solver: &self.solver,
            step: self.step.as_deref(),
            sampling: &self.sampling,
            cache: self.cache,
            averaging: self.averaging,
            subsample: self.subsample,
            seed: self.seed,
        }
    }
}

/// The stopping rule, the number of threads and the callback of a fit.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct RunRecord {
    tol: f64,
    max_iter: usize,
    pub n_threads: usize,
    pub callback: Option<Py<PyAny>>,
}

impl RunRecord {
    pub fn target(&self) -> Target {
        Target { tol: self.tol, max_epochs: self.max_iter }
    }
}
