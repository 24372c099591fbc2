//! Cross-validation of C: the folds side by side, C upwards from one dual point to the next, and bounds on
//! the scores of the optimal models (`docs/mathematics/cross-validation.md`).

mod chain;
mod measure;
mod narrow;

pub use measure::{Ball, Bracket, Measure, radius};

use self::chain::Chain;
use super::MarginProblem;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::parallel::run_tasks;
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
/// [`Order::Examples`](super::Order::Examples).
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
    point: Vec<Entry>,
}

/// A coordinate of β that is not 0: example, class, value.
type Entry = (u32, u32, f64);

impl Search<'_> {
    /// Fits and scores all models: those of a fold by rising C, then those of the next fold.
    ///
    /// Each is fitted to the target. Then, if bounds are asked for, the fits go on until these are narrow
    /// enough, the model's score is known to be beaten, or the epochs are used up. `observe` is told of each
    /// fit as it ends.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for folds or values of C that are none, and what fits return.
    pub fn run(
        &self,
        interrupt: &Interrupt,
        observe: &(dyn Fn(&Candidate) + Sync),
    ) -> Result<Vec<Vec<Candidate>>> {
        if self.folds.is_empty() || self.grid.is_empty() {
            return Err(Error::argument("Cs", "there must be at least one value and one fold"));
        }
        if self.grid.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(Error::argument("Cs", "must be in rising order"));
        }
        let mut found = run_tasks(self.folds.len(), |fold| self.chain(fold, interrupt, observe))?;
        if let (Some(width), Scoring::Bounded(_)) = (self.width, &self.scoring) {
            self.narrow(&mut found, width, interrupt, observe)?;
        }
        Ok(found)
    }

    /// All models of a fold, each from where the one before it ended.
    fn chain(
        &self,
        fold: usize,
        interrupt: &Interrupt,
        observe: &(dyn Fn(&Candidate) + Sync),
    ) -> Result<Vec<Candidate>> {
        let problem = (self.problems)(&self.folds[fold], self.lambda(fold, 0))?;
        let mut chain = Chain::new(self, &problem, fold);
        let mut found = Vec::with_capacity(self.grid.len());
        for at in 0..self.grid.len() {
            let candidate = chain.fit(at, self.target, interrupt)?;
            observe(&candidate);
            found.push(candidate);
        }
        Ok(found)
    }

    /// λ of a fold and a C.
    fn lambda(&self, fold: usize, at: usize) -> f64 {
        let total: f64 = self.folds[fold].weights.iter().sum();
        1.0 / (self.grid[at] * total)
    }
}
