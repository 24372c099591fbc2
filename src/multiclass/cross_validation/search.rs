//! The input and the results of a search over C.

use super::scoring::{Bracket, Measure};
use crate::error::{Error, Result};
use crate::multiclass::solvers::Stages;
use crate::multiclass::{MarginProblem, MulticlassMethod};
use crate::run::{Certificate, Outcome};
use crate::solver::Target;

/// The training rows and the held-out rows of a fold.
#[derive(Debug, Clone, Copy)]
pub struct Fold<'a> {
    /// Weights of all rows; 0 for held-out rows.
    pub weights: &'a [f64],
    /// The rows to score.
    pub held_out: &'a [u32],
}

/// Creates the problem of a fold for a given λ, with its weights ordered for
/// [`Order::Examples`](crate::multiclass::Order::Examples).
pub type Problems<'a> = dyn Fn(&Fold<'a>, f64) -> Result<MarginProblem<'a>> + Sync + 'a;

/// A custom score of a model, given the index of the fold, the index of C, and the weights, class by class.
pub type OwnScore<'a> = dyn Fn(usize, usize, Vec<f64>) -> Result<f64> + Sync + 'a;

/// The score by which models are compared.
pub enum Scoring<'a> {
    /// A built-in metric, for which bounds are available.
    Bounded(Measure),
    /// A custom score, without bounds.
    Own(&'a OwnScore<'a>),
}

/// The models to fit and to score.
pub struct Search<'a> {
    /// Creates the problem of each fold from rows, labels, loss and costs.
    pub problems: &'a Problems<'a>,
    /// The folds, each with its training rows and held-out rows.
    pub folds: Vec<Fold<'a>>,
    /// The values of C, in increasing order.
    pub grid: Vec<f64>,
    /// The score by which the models are compared.
    pub scoring: Scoring<'a>,
    /// The tolerance and the maximum number of epochs of each fit.
    pub target: Target,
    /// Wanted distance between the bounds on a score; None if bounds are not requested.
    pub width: Option<f64>,
    /// The solver: block descent, with or without a hand-over to Newton's method, or Newton's method alone.
    pub method: MulticlassMethod,
}

/// The result for one model, that is, for one fold and one C.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The score, with its bounds.
    pub bracket: Bracket,
    /// The certificate of the fit.
    pub certificate: Certificate,
    /// The reason why the last run ended.
    pub outcome: Outcome,
    /// Total number of epochs.
    pub n_epochs: usize,
    /// Total time of the fits, in seconds.
    pub seconds: f64,
    /// The final β, from which the fit may continue.
    pub(super) point: Vec<Entry>,
}

/// A nonzero coordinate of β: example, class, value.
pub(super) type Entry = (u32, u32, f64);

impl Search<'_> {
    /// The stages of each fit.
    pub(super) fn stages(&self) -> Result<Stages> {
        let fail = |_| Error::argument("solver", "cross-validation needs block descent or Newton");
        Stages::of(self.method).map_err(fail)
    }

    /// The λ that corresponds to a C in a fold.
    pub(super) fn lambda(&self, fold: usize, c_index: usize) -> f64 {
        let total: f64 = self.folds[fold].weights.iter().sum();
        1.0 / (self.grid[c_index] * total)
    }
}
