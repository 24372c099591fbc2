//! Epochs over the examples that are not optimal, looking at their candidate classes alone.
//!
//! A candidate whose β is 0 and whose margin is below that of every class with β > 0 cannot gain and
//! leaves the visit, as in LIBLINEAR's shrinking (Keerthi et al. 2008, section 4); an example without
//! anything to move leaves the epoch. Certificates bring both back.

use rand::seq::SliceRandom;

use super::candidates::Candidates;
use super::dual_block::DualBlock;
use super::scorer::Scorer;
use super::state::{GROUP, State, Work};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Aligned;
use crate::multiclass::MarginProblem;

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

/// Numbers of a visit, one for each candidate of the example; class and score of the label come last.
#[derive(Debug)]
pub(super) struct Buffers<T> {
    pub classes: Vec<u32>,
    pub scores: Vec<T>,
    pub change: Vec<T>,
    margins: Vec<f64>,
    target: Vec<f64>,
    projection: Vec<f64>,
}

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

impl<T> Default for Buffers<T> {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            scores: Vec::new(),
            change: Vec::new(),
            margins: Vec::new(),
            target: Vec::new(),
            projection: Vec::new(),
        }
    }
}

impl<T: Real> Buffers<T> {
    /// Turns scores into slopes v_j − γ(β_j + 1ᵀβ) and drops the candidates that cannot gain. Returns
    /// whether anything can move.
    fn shrink(
        &mut self,
        problem: &MarginProblem<'_>,
        dual: &DualBlock,
        betas: &mut Candidates<T>,
        at: usize,
        tight: bool,
    ) -> bool {
        let (example, smoothing) = (dual.example as usize, problem.shares().smoothing());
        let (classes, values) = betas.row_mut(at);
        let mut count = classes.len();
        let own = self.scores[count].widen();
        self.margins.clear();
        // Without a bound that holds the sum, classes compete with 0 as well.
        let mut low = if tight { f64::INFINITY } else { 0.0 };
        let costs = problem.cost_row(example);
        for ((class, value), score) in classes.iter().zip(&*values).zip(&self.scores) {
            let cost = costs.map_or(1.0, |costs| costs[*class as usize]);
            let beta = value.widen();
            let margin = cost + score.widen() - own - smoothing * (beta + dual.sum);
            if beta > 0.0 {
                low = low.min(margin);
            }
            self.margins.push(margin);
        }
        let mut place = 0;
        while place < count {
            if values[place] == T::zero() && self.margins[place] < low {
                count -= 1;
                classes.swap(place, count);
                values.swap(place, count);
                self.margins.swap_remove(place);
            } else {
                place += 1;
            }
        }
        self.classes.clear();
        self.classes.extend_from_slice(&classes[..count]);
        let alone = count == 1 && tight && values[0] > T::zero() && self.margins[0] >= 0.0;
        betas.truncate(at, count);
        self.classes.push(problem.label(example) as u32);
        count > 0 && !alone
    }

    /// u = (v + C_i A_i (β + 1ᵀβ)) / h for the candidates, the label's own coordinate last.
    fn aim(&mut self, problem: &MarginProblem<'_>, dual: &DualBlock, values: &[T]) {
        let steepness = dual.curvature + problem.shares().smoothing();
        self.target.clear();
        // The slopes hold −γ(β + 1ᵀβ) already, so that h rather than C_i A_i brings the point back.
        let target = |(slope, beta): (&f64, &T)| slope / steepness + beta.widen() + dual.sum;
        self.target.extend(self.margins.iter().zip(values).map(target));
        self.target.push(0.0);
        self.projection.resize(self.target.len(), 0.0);
    }

    /// Replaces β by the projection and writes the change of the weights' coefficients. Returns by how
    /// much the dual rises, or nothing where β stays as it is.
    fn replace(
        &mut self,
        problem: &MarginProblem<'_>,
        dual: &mut DualBlock,
        betas: &mut Candidates<T>,
        at: usize,
    ) -> Option<f64> {
        let (mut moved, mut total, mut sum) = (0.0, 0.0, 0.0);
        let (mut along, mut squares) = (0.0, 0.0);
        self.change.clear();
        let values = betas.row_mut(at).1;
        for ((value, new), slope) in values.iter_mut().zip(&self.projection).zip(&self.margins) {
            let new = T::narrow(*new);
            let change = new.widen() - value.widen();
            *value = new;
            moved += change.abs();
            total += change;
            sum += new.widen();
            along += change * slope;
            squares += change * change;
            self.change.push(T::narrow(-dual.weight * change));
        }
        if moved == 0.0 {
            return None;
        }
        dual.sum = sum;
        self.change.push(T::narrow(dual.weight * total));
        let steepness = dual.curvature + problem.shares().smoothing();
        Some(dual.weight * (along - 0.5 * steepness * (squares + total * total)))
    }
}

/// Shuffles groups of neighbours.
fn shuffle_groups(due: &mut [u32], random: &mut rand_pcg::Pcg64Mcg) {
    let groups = due.as_chunks_mut::<GROUP>().0;
    groups.shuffle(random);
}
