//! Epochs over the examples that are not optimal, looking at their candidate classes alone.
//!
//! A candidate whose β is 0 and whose margin is below that of every class with β > 0 cannot gain and
//! leaves the visit, as in LIBLINEAR's shrinking (Keerthi et al. 2008, section 4); an example without
//! anything to move leaves the epoch. Certificates bring both back.

use num_traits::Float;
use rand::seq::SliceRandom;

use super::average::Average;
use super::dual_block::Rest;
use super::scorer::Scorer;
use super::state::{GROUP, SHORTEST_WAIT, State};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;

/// Passes over the examples that are due between two certificates.
const PASSES: usize = 30;
/// They end early once a pass gains less than this share of what the first one gained.
const SPENT: f64 = 0.1;
/// The conjugate gradient method is worth its time only where visits creep: where a pass still gains this
/// share of what the pass `PASSES_COMPARED` before it gained.
const CREEPING: f64 = 0.5;
const PASSES_COMPARED: usize = 3;
/// The maximum number of passes between two attempts: doubled up to it after one that gained less than passes
/// would have.
const LONGEST_WAIT: usize = 12;
/// Share of what passes would gain in its time from which an attempt has paid: it also finds bounds at which
/// the next visits stop to look.
const WORTH: f64 = 0.3;

impl<M: Scorer> State<'_, M> {
    /// Visits the examples that are due until little is gained; returns whether any block changed.
    pub(super) fn descend_on_candidates(&mut self, interrupt: &Interrupt) -> Result<bool> {
        let mut due = self.due.clone().unwrap_or_default();
        self.betas.begin_average();
        self.betas.check_memory(self.problem.n_classes())?;
        let mut weights = self.model.take_weights();
        let (mut n_active, mut moved) = (due.len(), false);
        let mut average = Average::default();
        let (mut first, mut gains) = (0.0, std::mem::take(&mut self.gains));
        due.iter().for_each(|at| self.duals[*at as usize].rest = Rest::default());
        for pass in 1..=PASSES {
            shuffle_groups(&mut due[..n_active], &mut self.random);
            let (gain, work) = self.pass(&mut due, &mut n_active, &mut weights, interrupt);
            moved |= gain > 0.0;
            self.betas.average(average.share_of_next(gain));
            first = if pass == 1 { gain } else { first };
            gains.push(gain);
            self.waited += 1;
            // The last pass is one of visits: they leave each margin exact where it counts, and the primal
            // needs that more than the dual.
            if interrupt.is_raised() || pass == PASSES || pass > 1 && gain <= SPENT * first {
                break;
            }
            // Passes of the epochs before count: an epoch that ends early may creep as well.
            let earlier = gains[gains.len().saturating_sub(PASSES_COMPARED + 1)];
            if self.waited >= self.wait && gain > CREEPING * earlier {
                self.waited = 0;
                let attempt = self.accelerate(&due[..n_active], &mut weights, interrupt);
                if attempt.gain > 0.0 {
                    self.fall_behind();
                    (moved, average) = (true, Average::default());
                }
                self.alone = attempt.work == 0;
                let pace = (gain / earlier).powf((PASSES_COMPARED as f64).recip());
                let rival = gain * geometric_sum(pace, attempt.work as f64 / work.max(1) as f64);
                self.wait = match attempt.gain > WORTH * rival {
                    true => SHORTEST_WAIT,
                    false => (2 * self.wait).min(LONGEST_WAIT),
                };
            }
        }
        // Also when interrupted: weights and duals belong together.
        self.model.give_weights(weights);
        self.double = None;
        gains.drain(..gains.len().saturating_sub(PASSES_COMPARED));
        self.gains = gains;
        interrupt.check()?;
        // The certificate that follows sums up its weights.
        if average.pays(4.0 * M::Value::epsilon().widen() * self.size) {
            self.betas.use_average();
        }
        Ok(moved)
    }
}

/// 1 + r + r² + .. over `n` terms.
fn geometric_sum(ratio: f64, n: f64) -> f64 {
    if ratio < 0.999 { (1.0 - ratio.powf(n)) / (1.0 - ratio) } else { n }
}

/// Shuffles groups of neighbours.
fn shuffle_groups(due: &mut [u32], random: &mut rand_pcg::Pcg64Mcg) {
    let groups = due.as_chunks_mut::<GROUP>().0;
    groups.shuffle(random);
}
