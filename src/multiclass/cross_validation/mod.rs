//! Cross-validation of C: the folds side by side, C upwards from one dual point to the next, and bounds on
//! the scores of the optimal models (`docs/mathematics/cross-validation.md`).

mod chain;
mod directional_bounds;
mod refine;
mod scoring;
mod search;

pub use scoring::{Bracket, Measure};
pub use search::{Candidate, Fold, OwnScore, Scoring, Search};

use self::chain::FoldPath;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::parallel::run_tasks;

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
            self.refine(&mut found, width, interrupt, observe)?;
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
        problem.shares().check_range(self.lambda(fold, self.grid.len() - 1))?;
        let mut chain = FoldPath::new(self, &problem, fold);
        let mut found = Vec::with_capacity(self.grid.len());
        for c_index in 0..self.grid.len() {
            let candidate = chain.fit(c_index, self.target, interrupt)?;
            observe(&candidate);
            found.push(candidate);
        }
        Ok(found)
    }
}
