//! Epochs over the examples that are not optimal, looking at their candidate classes alone.
//!
//! A candidate whose β is 0 and whose margin is below that of every class with β > 0 cannot gain and
//! leaves the visit, as in LIBLINEAR's shrinking (Keerthi et al. 2008, section 4); an example without
//! anything to move leaves the epoch. Certificates bring both back.

use num_traits::Float;
use pulp::Simd;
use rand::seq::SliceRandom;

use super::average::Average;
use super::dual_block::Rest;
use super::scorer::Scorer;
use super::state::{EpochBuffers, GROUP, SHORTEST_WAIT, State};
use super::visit::VisitBounds;
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, Kernel, Lane};

/// Passes over the examples that are due between two certificates.
const PASSES: usize = 200;
/// They end early once a pass gains less than this share of what the first one gained; epochs of visits alone, where
/// most examples rest in most passes, end later (`SPENT_ALONE`).
const SPENT: f64 = 0.03;
const SPENT_ALONE: f64 = 0.005;
/// They also end where the estimate of the gap is this share of what ends the run.
const SAFE: f64 = 0.8;
/// The conjugate gradient method is worth its time only where visits creep: where a pass still gains this
/// share of what the pass `PASSES_COMPARED` before it gained.
const CREEPING: f64 = 0.8;
/// The share from which it is worth asking whether they would be too dear.
const SLOWING: f64 = 0.5;
const PASSES_COMPARED: usize = 3;
/// Passes that say what visits gain at present; those kept from epoch to epoch suffice.
const RECENT: usize = PASSES_COMPARED;
/// The maximum number of passes between two attempts: doubled up to it after one that gained less than passes
/// would have.
const LONGEST_WAIT: usize = 12;
/// Share of what passes would gain in its time from which an attempt has paid: it also finds bounds at which
/// the next visits stop to look.
const WORTH: f64 = 0.6;
/// What a visit costs beside the numbers that it reads, in such numbers.
const VISIT_OVERHEAD: usize = 256;
/// Where an epoch makes visits alone, an example rests for a pass after a visit that gained less than this share of
/// what visits of recent passes gained on average, and twice as long after each further one, but for so many passes
/// at most. Of one pass alone the average would often be that of a few examples that move much.
const SMALL: f64 = 0.6;
const LONGEST_REST: u8 = 16;
/// What is left of a rest's length for the next epoch, which brings other candidates.
const REST_KEPT: u8 = 4;
/// Numbers that are read between two looks at the interrupt: some milliseconds, however long the rows are.
const PATIENCE: usize = 1 << 22;

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
        self.betas.begin_average();
        self.betas.check_memory(self.problem.n_classes())?;
        let mut weights = self.model.take_weights();
        self.note_pace();
        self.alone = self.goes_alone(&due, weights.len());
        let spent = if self.alone { SPENT_ALONE } else { SPENT };
        let (mut n_active, mut moved) = (due.len(), false);
        let mut average = Average::default();
        let mut first = 0.0;
        due.iter().for_each(|at| self.duals[*at as usize].rest.begin_epoch());
        for pass in 1..=PASSES {
            shuffle_groups(&mut due[..n_active], &mut self.random);
            let (gain, work) = self.pass(&mut due, &mut n_active, &mut weights, interrupt);
            if work == 0 && n_active > 0 {
                // All rest.
                continue;
            }
            let n_visits = self.passes.last().map_or(0, |(_, n_visits)| *n_visits);
            moved |= gain > 0.0 && self.moves(gain, n_visits);
            self.betas.average(average.share_of_next(gain));
            first = if pass == 1 { gain } else { first };
            self.waited += 1;
            let n_recent = if self.alone { RECENT } else { 1 };
            let recent = &self.passes[self.passes.len().saturating_sub(n_recent)..];
            self.estimate.note(recent.iter().map(|(gain, _)| *gain), n_active);
            let wanted = SAFE * self.options.tolerance * self.size;
            // From there on weights gather rounding, and nothing is gained.
            let is_rounding = gain < n_visits as f64 * self.rounding;
            self.spent = gain <= spent * first || is_rounding || pass == PASSES;
            // The last pass is one of visits: they leave each margin exact where it counts, and the primal
            // needs that more than the dual.
            let ends = pass > 1 && (self.spent || self.estimate.is_within(wanted));
            if interrupt.is_raised() || ends {
                break;
            }
            if self.try_gradients(pass, &due[..n_active], &mut weights, work, interrupt) {
                (moved, average) = (true, Average::default());
            }
        }
        // Also when interrupted: weights and duals belong together.
        self.model.give_weights(weights);
        self.passes.drain(..self.passes.len().saturating_sub(PASSES_COMPARED));
        interrupt.check()?;
        // The certificate that follows sums up its weights.
        if average.pays(4.0 * M::Value::epsilon().widen() * self.size) {
            self.betas.use_average();
        }
        Ok(moved)
    }

    /// Tries conjugate gradients if it is time to and passes creep, the last of which, the epoch's `pass`-th, read so
    /// many numbers; returns whether the dual rose.
    fn try_gradients(
        &mut self,
        pass: usize,
        due: &[u32],
        weights: &mut Aligned<M::Value>,
        work: usize,
        interrupt: &Interrupt,
    ) -> bool {
        if self.alone || self.waited < self.wait {
            return false;
        }
        // An epoch that cannot move at all ends without a pass.
        let Some(&(gain, _)) = self.passes.last() else { return false };
        // Passes of the epochs before count: an epoch that ends early may creep as well.
        let (earlier, _) = self.passes[self.passes.len().saturating_sub(PASSES_COMPARED + 1)];
        let ratio = gain / earlier;
        self.alone = ratio > SLOWING && self.is_dear(due, weights.len());
        // An epoch's first passes gain from its new candidates, which says nothing of those after them.
        let is_early = !self.tried && pass <= PASSES_COMPARED && ratio > 1.0;
        if self.alone || ratio <= CREEPING || is_early {
            return false;
        }
        (self.waited, self.tried) = (0, true);
        let attempt = self.accelerate(due, weights, interrupt);
        let pace = ratio.powf((PASSES_COMPARED as f64).recip());
        let rival = gain * geometric_sum(pace, attempt.work as f64 / work.max(1) as f64);
        self.wait = match attempt.gain > WORTH * rival {
            true => SHORTEST_WAIT,
            false => (2 * self.wait).min(LONGEST_WAIT),
        };
        attempt.gain > 0.0
    }

    /// Visits the first `n_active` examples once; those that cannot move are put behind the others. Returns
    /// by how much the dual rose (in units of λ), and the numbers read.
    fn pass(
        &mut self,
        due: &mut [u32],
        n_active: &mut usize,
        weights: &mut Aligned<M::Value>,
        interrupt: &Interrupt,
    ) -> (f64, usize) {
        M::Value::dispatch(Pass { state: self, due, n_active, weights, interrupt })
    }

    /// Maximises over the candidates of one dual block. Returns the numbers read as well.
    #[inline(always)]
    fn visit<S: Simd>(
        &mut self,
        simd: S,
        at: usize,
        bounds: VisitBounds,
        weights: &mut [M::Value],
    ) -> (Visit, usize)
    where
        M::Value: Lane<S>,
    {
        let dual = &mut self.duals[at];
        let example = dual.example as usize;
        let EpochBuffers { row, few, scratch, .. } = &mut self.work;
        let row = self.model.row(example, row);
        let n = self.betas.copy_classes(at, &mut few.classes);
        few.classes[n] = self.problem.label(example) as u32;
        let n_numbers = 2 * (n + 1) * row.len();
        self.model.score_few(simd, weights, row, &few.classes[..=n], &mut few.scores[..=n]);
        let Some(n) = few.shrink(self.problem, dual, &mut self.betas, at, bounds) else {
            return (Visit::Idle, n_numbers);
        };
        let steepness = dual.curvature + self.problem.shares().smoothing();
        few.aim(steepness, dual.sum, self.betas.row(at).1);
        match &bounds.simplex {
            // The label's coordinate, which is 0, would stay so.
            Some(simplex) => {
                let (target, projection) = (&few.target[..n], &mut few.projection[..n]);
                dual.multiplier = simplex.project_few(target, dual.multiplier, projection);
            }
            None => {
                scratch.guess = Some(dual.multiplier);
                let (target, projection) = (&few.target[..=n], &mut few.projection[..=n]);
                self.problem.polytope().project(target, n, 1.0, scratch, projection);
                dual.multiplier = scratch.multiplier;
            }
        }
        let Some(gain) = few.replace(steepness, dual, self.betas.row_mut(at).1) else {
            return (Visit::Optimal, n_numbers);
        };
        self.model.add_few(simd, weights, row, &few.classes[..=n], &few.change[..=n]);
        (Visit::Moved(gain), n_numbers)
    }

    /// What a visit of recent passes gained on average.
    fn mean_gain(&self) -> f64 {
        let recent = &self.passes[self.passes.len().saturating_sub(RECENT)..];
        let gain: f64 = recent.iter().map(|(gain, _)| gain).sum();
        let n_visits: usize = recent.iter().map(|(_, n_visits)| n_visits).sum();
        gain / n_visits.max(1) as f64
    }
}

/// [`State::pass`], all of it compiled for the vectors of this machine.
struct Pass<'a, 'p, M: Scorer> {
    state: &'a mut State<'p, M>,
    due: &'a mut [u32],
    n_active: &'a mut usize,
    weights: &'a mut [M::Value],
    interrupt: &'a Interrupt,
}

impl<M: Scorer> Kernel<M::Value> for Pass<'_, '_, M> {
    type Output = (f64, usize);

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) -> (f64, usize)
    where
        M::Value: Lane<S>,
    {
        let Self { state, due, n_active, weights, interrupt } = self;
        let bounds = state.bounds();
        let (mut gain, mut place, mut work, mut next_look) = (0.0, 0, 0, PATIENCE);
        let (mut n_visits, small) = (0, SMALL * state.mean_gain());
        while place < *n_active {
            if work >= next_look {
                if interrupt.is_raised() {
                    break;
                }
                next_look = work + PATIENCE;
            }
            let at = due[place] as usize;
            if state.alone && state.duals[at].rest.is_taken() {
                place += 1;
                continue;
            }
            let (visit, n_numbers) = state.visit(simd, at, bounds, weights);
            n_visits += 1;
            work += VISIT_OVERHEAD + n_numbers;
            match visit {
                Visit::Moved(more) => {
                    gain += more;
                    state.duals[at].rest.follow(more < small);
                }
                Visit::Optimal => state.duals[at].rest.follow(true),
                Visit::Idle => {
                    *n_active -= 1;
                    due.swap(place, *n_active);
                    continue;
                }
            }
            place += 1;
        }
        if n_visits > 0 {
            state.passes.push((gain, n_visits));
        }
        (gain, work)
    }
}

impl Rest {
    /// Whether the example rests now.
    #[inline(always)]
    fn is_taken(&mut self) -> bool {
        let rests = self.left > 0;
        self.left -= u8::from(rests);
        rests
    }

    /// What follows a visit.
    #[inline(always)]
    fn follow(&mut self, small: bool) {
        self.length = if small { (2 * self.length).clamp(1, LONGEST_REST) } else { 0 };
        self.left = self.length;
    }

    /// What a new epoch makes of it: all are visited at first.
    fn begin_epoch(&mut self) {
        *self = Self { length: self.length.min(REST_KEPT), left: 0 };
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
