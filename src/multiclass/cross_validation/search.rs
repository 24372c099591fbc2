//! What is searched for and what is found.

use super::scoring::{Bracket, Measure};
use crate::error::Result;
use crate::multiclass::MarginProblem;
use crate::run::{Certificate, Outcome};
use crate::solver::Target;

/// The rows that a model is trained on and those that it is scored on.
#[derive(Debug, Clone, Copy)]
pub struct Fold<'a> {
    /// Weights of all rows, 0 for those that are not trained on.
    pub weights: &'a [f64],
    /// The rows to score.
    pub held_out: &'a [u32],
}

/// Makes the problem of a fold for some λ; its weights are ordered for
/// [`Order::Examples`](crate::multiclass::Order::Examples).
pub type Problems<'a> = dyn Fn(&Fold<'a>, f64) -> Result<MarginProblem<'a>> + Sync + 'a;

/// A score of one's own of a model, given the numbers of its fold and its C and its weights, class after class.
pub type OwnScore<'a> = dyn Fn(usize, usize, Vec<f64>) -> Result<f64> + Sync + 'a;

/// How models are scored.
pub enum Scoring<'a> {
    /// By a measure whose bounds are known.
    Bounded(Measure),
    /// By any other.
    Own(&'a OwnScore<'a>),
}

/// What is to be fitted and scored.
pub struct Search<'a> {
    /// Rows, labels, loss and costs.
    pub problems: &'a Problems<'a>,
    /// The folds.
    pub folds: Vec<Fold<'a>>,
    /// The values of C, in rising order.
    pub grid: Vec<f64>,
    /// What counts.
    pub scoring: Scoring<'a>,
    /// When a fit ends.
    pub target: Target,
    /// How far the bounds of a score may be apart, where that is asked for.
    pub width: Option<f64>,
    /// Of the order of the examples.
    pub seed: u64,
}

/// A model of a fold, as far as it is kept.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its score.
    pub bracket: Bracket,
    /// Its certificate.
    pub certificate: Certificate,
    /// Why its last run ended.
    pub outcome: Outcome,
    /// Epochs that it took.
    pub n_epochs: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Where it ended, if it may go on from there.
    pub(super) point: Vec<Entry>,
}

/// A coordinate of β that is not 0: example, class, value.
pub(super) type Entry = (u32, u32, f64);

impl Search<'_> {
    /// λ of a fold and a C.
    pub(super) fn lambda(&self, fold: usize, c_index: usize) -> f64 {
        let total: f64 = self.folds[fold].weights.iter().sum();
        1.0 / (self.grid[c_index] * total)
    }
}
