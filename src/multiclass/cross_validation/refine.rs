//! Refines fits until the bounds on their scores are narrow.

use super::chain::FoldPath;
use super::search::{Candidate, Search};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::multiclass::solvers::MarginBlocks;
use crate::parallel::run_tasks;
use crate::run::Outcome;
use crate::solver::Target;

/// Factor by which each round reduces the gap. After each round, models that cannot be the best
/// model are dropped.
const STEP: f64 = 0.1;

impl Search<'_> {
    /// Refines the fits in rounds until the bounds of each pending model are at most `width` apart.
    ///
    /// All models finish a round before the next one begins, so that the set of dropped models does
    /// not depend on timing.
    pub(super) fn refine(
        &self,
        found: &mut [Vec<Candidate>],
        width: f64,
        interrupt: &Interrupt,
        observe: &(dyn Fn(&Candidate) + Sync),
    ) -> Result<()> {
        loop {
            let pending = self.pending(found, width);
            if pending.is_empty() {
                return Ok(());
            }
            let renewed = run_tasks(pending.len(), |task| {
                let (fold, c_index) = pending[task];
                let candidate = self.fit_on(&found[fold][c_index], (fold, c_index), interrupt)?;
                observe(&candidate);
                Ok(candidate)
            })?;
            for ((fold, c_index), candidate) in pending.into_iter().zip(renewed) {
                found[fold][c_index] = candidate;
            }
        }
    }

    /// The models whose bounds are too far apart and that may still be the best model.
    ///
    /// The C with the best score comes first: its bounds matter most, and the narrower they are,
    /// the sooner other models can be dropped.
    fn pending(&self, found: &[Vec<Candidate>], width: f64) -> Vec<(usize, usize)> {
        let mean = |c_index: usize, value: &dyn Fn(&Candidate) -> f64| {
            found.iter().map(|row| value(&row[c_index])).sum::<f64>() / found.len() as f64
        };
        let lower =
            (0..self.grid.len()).map(|c_index| mean(c_index, &|candidate| candidate.bracket.lower));
        let best = lower.fold(f64::NEG_INFINITY, f64::max);
        let open = |c_index: &usize| mean(*c_index, &|candidate| candidate.bracket.upper) >= best;
        let open: Vec<usize> = (0..self.grid.len()).filter(open).collect();
        let score = |c_index: usize| mean(c_index, &|candidate| candidate.bracket.score);
        let better =
            |best: usize, c_index: usize| if score(c_index) > score(best) { c_index } else { best };
        let leader = open.iter().copied().reduce(better);
        let unfinished = |candidate: &Candidate| {
            candidate.bracket.width() > width
                && candidate.outcome != Outcome::Exhausted
                && candidate.n_epochs < self.target.max_epochs
        };
        let of = |c_index: usize| {
            let folds = (0..found.len()).map(move |fold| (fold, c_index));
            folds.filter(|(fold, c_index)| unfinished(&found[*fold][*c_index]))
        };
        let first: Vec<_> = leader.into_iter().flat_map(of).collect();
        if first.is_empty() { open.into_iter().flat_map(of).collect() } else { first }
    }

    /// Continues a fit until its relative gap is [`STEP`] times the current relative gap.
    fn fit_on(
        &self,
        known: &Candidate,
        (fold, c_index): (usize, usize),
        interrupt: &Interrupt,
    ) -> Result<Candidate> {
        let problem = (self.problems)(&self.folds[fold], self.lambda(fold, c_index))?;
        let blocks = MarginBlocks::new(&problem);
        let tol = STEP * known.certificate.relative_gap();
        let target = Target { tol, max_epochs: self.target.max_epochs - known.n_epochs };
        let mut chain =
            FoldPath::resume(self, (fold, c_index), &blocks, target, &known.point, interrupt)?;
        let mut candidate = chain.fit(c_index, &blocks, interrupt)?;
        candidate.n_epochs += known.n_epochs;
        candidate.seconds += known.seconds;
        Ok(candidate)
    }
}
