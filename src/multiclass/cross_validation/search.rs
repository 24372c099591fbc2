//! The input and the results of a search over C.

use super::scoring::{Bracket, Measure};
use crate::error::{Error, Result};
use crate::multiclass::method::Stages;
use crate::multiclass::{MarginProblem, MulticlassMethod};
use crate::run::{Certificate, Outcome};
use crate::solver::Target;

/// The training rows and the held-out rows of a fold.
#[derive(Debug, Clone, Copy)]
pub struct Fold<'a> {
    /// Weights of all rows, 0 for held-out ones.
    pub weights: &'a [f64],
    /// The rows to score.
    pub held_out: &'a [u32],
}

/// Makes the problem of a fold for some λ; its weights are ordered for
/// [`Order::Examples`](crate::multiclass::Order::Examples).
pub type Problems<'a> = dyn Fn(&Fold<'a>, f64) -> Result<MarginProblem<'a>> + Sync + 'a;

/// A custom score of a model, given the index of its fold, the index of its C and its weights,
/// class after class.
pub type OwnScore<'a> = dyn Fn(usize, usize, Vec<f64>) -> Result<f64> + Sync + 'a;

/// The score of the models.
pub enum Scoring<'a> {
    /// A metric whose bounds are known.
    Bounded(Measure),
    /// Any other score.
    Own(&'a OwnScore<'a>),
}

/// The models to fit and to score.
pub struct Search<'a> {
    /// Rows, labels, loss and costs.
    pub problems: &'a Problems<'a>,
    /// The folds.
    pub folds: Vec<Fold<'a>>,
    /// The values of C, in increasing order.
    pub grid: Vec<f64>,
    /// The score.
    pub scoring: Scoring<'a>,
    /// The tolerance and the maximum number of epochs of each fit.
    pub target: Target,
    /// Maximum distance between the bounds of a score, if bounds are requested.
    pub width: Option<f64>,
    /// The solver: block descent, with a hand-over to Newton's method or not, or Newton's method alone.
    pub method: MulticlassMethod,
}

/// The result for a model of a fold.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its score.
    pub bracket: Bracket,
    /// Its certificate.
    pub certificate: Certificate,
    /// The reason why its last run ended.
    pub outcome: Outcome,
    /// Number of epochs of its fits.
    pub n_epochs: usize,
    /// Duration of its fits in seconds.
    pub seconds: f64,
    /// Its final β, if the fit may continue.
    pub(super) point: Vec<Entry>,
}

/// A nonzero coordinate of β: example, class, value.
pub(super) type Entry = (u32, u32, f64);

impl Search<'_> {
    /// The stages of the fits.
    pub(super) fn stages(&self) -> Result<Stages> {
        let fail = |_| Error::argument("solver", "cross-validation needs projections");
        Stages::of(self.method).map_err(fail)
    }

    /// λ of a fold and a value of C.
    pub(super) fn lambda(&self, fold: usize, c_index: usize) -> f64 {
        let total: f64 = self.folds[fold].weights.iter().sum();
        1.0 / (self.grid[c_index] * total)
    }
}
