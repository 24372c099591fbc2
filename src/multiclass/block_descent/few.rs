//! Epochs over the examples that are not optimal, looking at their candidate classes alone.
//!
//! A candidate whose β is 0 and whose margin is below that of every class with β > 0 cannot gain and
//! leaves the visit, as in LIBLINEAR's shrinking (Keerthi et al. 2008, section 4); an example without
//! anything to move leaves the epoch. Certificates bring both back.

use rand::seq::SliceRandom;

use super::scorer::Scorer;
use super::state::{GROUP, State, Work};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Aligned;

/// Passes over the examples that are due between two certificates.
const PASSES: usize = 30;
/// They end early once a pass gains less than this share of what the first one gained.
const SPENT: f64 = 0.1;
/// Passes between two attempts at the conjugate gradient method...
const PASSES_PER_GRADIENT: usize = 3;
/// ...which is worth its passes only where visits creep: where a pass still gains this share of what the
/// pass that many before it gained.
const CREEPING: f64 = 0.3;
/// Visits between two looks at the interrupt.
const PATIENCE: usize = 4096;

/// What became of a visit.
enum Visit {
    /// The dual rose by this much (in units of λ).
    Moved(f64),
    /// The block was optimal among its candidates.
    Optimal,
    /// Nothing can move, whatever the weights: one candidate at most, and at its bound.
    Idle,
}

impl<M: Scorer> State<'_, M> {
    /// Visits the examples that are due until little is gained; returns whether any block changed.
    pub(super) fn descend_on_candidates(&mut self, interrupt: &Interrupt) -> Result<bool> {
        let mut due = self.due.clone().unwrap_or_default();
        let mut weights = self.model.take_weights();
        let (mut n_active, mut moved) = (due.len(), false);
        let (mut first, mut earlier) = (0.0, 0.0);
        for pass in 1..=PASSES {
            shuffle_groups(&mut due[..n_active], &mut self.random);
            let gain = self.pass(&mut due, &mut n_active, &mut weights, interrupt);
            moved |= gain > 0.0;
            if interrupt.is_raised() {
                break;
            }
            // The last pass is one of visits: they leave each margin exact where it counts, and the primal
            // needs that more than the dual.
            if pass == 1 {
                (first, earlier) = (gain, gain);
            } else if gain <= SPENT * first {
                break;
            }
            if pass % PASSES_PER_GRADIENT == 0 && pass < PASSES {
                if gain > CREEPING * earlier {
                    moved |= self.accelerate(&due[..n_active], &mut weights, interrupt);
                }
                earlier = gain;
            }
        }
        // Also when interrupted: weights and duals belong together.
        self.model.give_weights(weights);
        interrupt.check()?;
        Ok(moved)
    }

    /// Visits the first `n_active` examples once; those that cannot move are put behind the others.
    fn pass(
        &mut self,
        due: &mut [u32],
        n_active: &mut usize,
        weights: &mut Aligned<M::Value>,
        interrupt: &Interrupt,
    ) -> f64 {
        let (mut gain, mut place, mut n_visits) = (0.0, 0, 0usize);
        while place < *n_active {
            n_visits += 1;
            if n_visits.is_multiple_of(PATIENCE) && interrupt.is_raised() {
                break;
            }
            match self.visit(due[place] as usize, weights) {
                Visit::Moved(more) => gain += more,
                Visit::Optimal => {}
                Visit::Idle => {
                    *n_active -= 1;
                    due.swap(place, *n_active);
                    continue;
                }
            }
            place += 1;
        }
        gain
    }

    /// Maximises over the candidates of one dual block.
    fn visit(&mut self, at: usize, weights: &mut Aligned<M::Value>) -> Visit {
        let tight = self.is_tight(self.duals[at].sum);
        let dual = &mut self.duals[at];
        let example = dual.example as usize;
        let label = self.problem.label(example);
        let Work { row, few, scratch, .. } = &mut self.work;
        self.model.take_row(example, row);
        few.classes.clear();
        few.classes.extend_from_slice(self.betas.row(at).0);
        few.classes.push(label as u32);
        few.scores.resize(few.classes.len(), Real::narrow(0.0));
        self.model.score_few(weights, row, &few.classes, &mut few.scores);
        if !few.shrink(self.problem, dual, &mut self.betas, at, tight) {
            return Visit::Idle;
        }
        few.aim(self.problem, dual, self.betas.row(at).1);
        scratch.guess = Some(dual.multiplier);
        let last = few.target.len() - 1;
        self.problem.polytope().project(&few.target, last, 1.0, scratch, &mut few.projection);
        dual.multiplier = scratch.multiplier;
        let gain = few.replace(self.problem, dual, &mut self.betas, at);
        if gain.is_none() {
            return Visit::Optimal;
        }
        self.model.add_few(weights, row, &few.classes, &few.change);
        Visit::Moved(gain.unwrap_or(0.0))
    }
}

/// Shuffles groups of neighbours.
fn shuffle_groups(due: &mut [u32], random: &mut rand_pcg::Pcg64Mcg) {
    let groups = due.as_chunks_mut::<GROUP>().0;
    groups.shuffle(random);
}
