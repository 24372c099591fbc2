//! Cross-validation of C. Folds run in parallel. Each fold fits one model per value of C, in increasing order and with
//! warm starts. The scores of the optimal models are bounded (`docs/mathematics/cross-validation.md`).

mod chain;
mod directional_bounds;
mod refine;
mod scoring;
mod search;

pub use scoring::Measure;
pub use search::{Candidate, Fold, Scoring, Search};

use self::chain::FoldPath;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::multiclass::solvers::MarginBlocks;
use crate::parallel::run_tasks;

impl Search<'_> {
    /// Fits and scores all models. Returns them fold by fold, by increasing C within each fold.
    ///
    /// Each model is fitted to the target. If bounds are requested, each fit then continues until
    /// its bounds are narrow enough, its model cannot be the best model, or its epochs are used up.
    /// `observe` is called after each fit.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no folds or no values of C, or if the values are not sorted; errors of
    /// fits.
    pub fn run(
        &self,
        interrupt: &Interrupt,
        observe: &(dyn Fn(&Candidate) + Sync),
    ) -> Result<Vec<Vec<Candidate>>> {
        if self.folds.is_empty() || self.grid.is_empty() {
            return Err(Error::argument("Cs", "there must be at least one value and one fold"));
        }
        if self.grid.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(Error::argument("Cs", "must be in increasing order"));
        }
        let mut found = run_tasks(self.folds.len(), |fold| self.chain(fold, interrupt, observe))?;
        if let (Some(width), Scoring::Bounded(_)) = (self.width, &self.scoring) {
            self.refine(&mut found, width, interrupt, observe)?;
        }
        Ok(found)
    }

    /// Fits all models of a fold, each warm-started from the previous model.
    fn chain(
        &self,
        fold: usize,
        interrupt: &Interrupt,
        observe: &(dyn Fn(&Candidate) + Sync),
    ) -> Result<Vec<Candidate>> {
        let problem = (self.problems)(&self.folds[fold], self.lambda(fold, 0))?;
        problem.shares().check_range(self.lambda(fold, self.grid.len() - 1))?;
        let first = MarginBlocks::new(&problem);
        let blocks = (0..self.grid.len())
            .map(|c_index| first.with_lambda(self.lambda(fold, c_index)))
            .collect::<Result<Vec<_>>>()?;
        let mut chain = FoldPath::new(self, fold, &blocks[0], self.target)?;
        let mut found = Vec::with_capacity(self.grid.len());
        for (c_index, blocks) in blocks.iter().enumerate() {
            let candidate = chain.fit(c_index, blocks, interrupt)?;
            observe(&candidate);
            found.push(candidate);
        }
        Ok(found)
    }
}
