//! Epochs over the examples that are not optimal, restricted to their candidate classes.
//!
//! A candidate with β = 0 that cannot gain is dropped, as in LIBLINEAR's shrinking (Keerthi et al. 2008, section 4).
//! Its slope is below the slope of every class with β > 0 and, if the sum of β can still grow, below 0. Unless the set
//! is a box, no candidate is dropped while the sum can grow. An example in which nothing can move is dropped from the
//! epoch. Certificates bring both back if needed.

use pulp::Simd;
use rand::seq::SliceRandom;

use super::State;
use super::rows::WeightStore;
use super::schedule::{PassGain, VISIT_OVERHEAD};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Element, Kernel, Lane};

/// Number of values read between two checks of the interrupt: some milliseconds, for rows of any length.
const PATIENCE: usize = 1 << 22;

/// The result of a visit.
enum Visit {
    /// The dual rose by this much (in units of λ).
    Moved(f64),
    /// The block was already optimal over its candidates.
    Optimal,
    /// Nothing can move: no candidate is left, or only one, which already has the whole sum.
    Idle,
}

impl<M: WeightStore> State<'_, M> {
    /// Visits the examples that are due until passes gain little; returns whether the dual rose.
    pub(super) fn working_set_epoch(&mut self, interrupt: &Interrupt) -> Result<bool> {
        let mut due = self.dual.due.clone().unwrap_or_default();
        let mut weights = self.store.take_weights();
        let with_gradients = self.uses_conjugate_gradients(&due, weights.len());
        self.schedule.begin_working_set(with_gradients);
        let (mut n_active, mut moved) = (due.len(), false);
        due.iter().for_each(|at| self.dual.blocks[*at as usize].wait.begin_epoch());
        loop {
            due[..n_active].shuffle(&mut self.random);
            let pass = M::Value::dispatch(VisitDue {
                state: self,
                due: &mut due,
                n_active: &mut n_active,
                weights: &mut weights,
                interrupt,
            });
            if pass.n_visits > 0 {
                self.schedule.note(pass);
                moved |= pass.moved();
            } else if n_active > 0 && !interrupt.is_raised() {
                // All examples are being skipped.
                continue;
            }
            if interrupt.is_raised() || self.schedule.ends_epoch(n_active) {
                break;
            }
            if self.schedule.attempts() {
                moved |= self.accelerate(&due[..n_active], &mut weights, interrupt) > 0.0;
            }
        }
        // This is done after an interrupt, too, because weights and duals must match.
        self.store.give_weights(weights);
        interrupt.check()?;
        Ok(moved)
    }

    /// Maximises the dual over the candidates of one block. Also returns the number of values read and the apparent
    /// gain that rounding errors can cause.
    #[inline(always)]
    fn visit<S: Simd>(
        &mut self,
        simd: S,
        at: usize,
        weights: &mut [M::Value],
    ) -> (Visit, usize, f64)
    where
        M::Value: Lane<S>,
    {
        let (block, set) = (&mut self.dual.blocks[at], self.set);
        let example = block.example as usize;
        let step = &mut self.work.step;
        let row = self.store.row(example, &mut self.work.row);
        let n = self.dual.betas.copy_classes(at, &mut step.classes);
        step.classes[n] = self.problem.label(example) as u32;
        let n_numbers = 2 * (n + 1) * row.len();
        self.store.score_few(simd, weights, row, &step.classes[..=n], &mut step.scores[..=n]);
        let rounding = set.rounding(block, step.scores[0], step.scores[n]);
        let Some(n) = step.shrink(self.problem, &set, block, &mut self.dual.betas, at) else {
            return (Visit::Idle, n_numbers, rounding);
        };
        let values = self.dual.betas.row_mut(at).1;
        let Some(gain) = step.solve(self.problem, &set, block, n, values) else {
            return (Visit::Optimal, n_numbers, rounding);
        };
        self.store.add_few(simd, weights, row, &step.classes[..=n], &step.change[..=n]);
        (Visit::Moved(gain), n_numbers, rounding)
    }
}

/// Visits the first `n_active` examples once, and moves those that cannot change to the end. Compiled as a whole for
/// this machine's vector instructions.
struct VisitDue<'a, 'p, M: WeightStore> {
    state: &'a mut State<'p, M>,
    due: &'a mut [u32],
    n_active: &'a mut usize,
    weights: &'a mut [M::Value],
    interrupt: &'a Interrupt,
}

impl<M: WeightStore> Kernel<M::Value> for VisitDue<'_, '_, M> {
    type Output = PassGain;

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) -> PassGain
    where
        M::Value: Lane<S>,
    {
        let Self { state, due, n_active, weights, interrupt } = self;
        let (mut pass, mut place, mut next_check) = (PassGain::default(), 0, PATIENCE);
        let (leaves_out, small) = (state.schedule.leaves_out(), state.schedule.small_gain());
        while place < *n_active {
            if pass.n_read >= next_check {
                if interrupt.is_raised() {
                    break;
                }
                next_check += PATIENCE;
            }
            let at = due[place] as usize;
            if leaves_out && state.dual.blocks[at].wait.skips() {
                place += 1;
                continue;
            }
            let (visit, n_numbers, rounding) = state.visit(simd, at, weights);
            pass.n_visits += 1;
            pass.n_read += VISIT_OVERHEAD + n_numbers;
            pass.rounding += rounding;
            let wait = &mut state.dual.blocks[at].wait;
            match visit {
                Visit::Moved(gain) => {
                    pass.gain += gain;
                    wait.follow(gain < small);
                }
                Visit::Optimal => wait.follow(true),
                Visit::Idle => {
                    *n_active -= 1;
                    due.swap(place, *n_active);
                    continue;
                }
            }
            place += 1;
        }
        pass.changed = pass.gain > 0.0;
        pass
    }
}
