//! Epochs that visit each example that is due and read all of its classes, a block of examples at a time.
//!
//! Scores are computed for the whole block and then corrected for the changes of earlier examples in the block, so the
//! iterates equal those of the sequential method up to rounding.

use num_traits::Zero;
use pulp::Simd;
use rand::seq::SliceRandom;

use super::State;
use super::block_step::{BlockSet, BlockStep, DualBlock, FullBuffers, compute_margins};
use super::candidates::{Candidates, limit_new, select};
use super::rows::WeightStore;
use super::schedule::{PassGain, VISIT_OVERHEAD};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Element, Kernel, Lane};

impl<M: WeightStore> State<'_, M> {
    /// Visits all examples that are due, each of them once. If the set is a box, the pass also selects each example's
    /// candidates, except in the first pass, whose candidates would only reflect the starting point.
    pub(super) fn full_epoch(&mut self, interrupt: &Interrupt) -> Result<PassGain> {
        let names = self.schedule.begin_full() && self.set.is_box();
        let n = self.dual.blocks.len();
        let mut due = vec![self.dual.due.is_none() || !self.shrink; n];
        self.dual.due.take().iter().flatten().for_each(|at| due[*at as usize] = true);
        let (mut order, others): (Vec<usize>, Vec<usize>) =
            (0..n).partition(|at| due[*at] && !self.dual.blocks[*at].settled);
        order.shuffle(&mut self.random);
        let mut renewed = Candidates::new(n);
        others.iter().for_each(|at| renewed.copy(*at, &self.dual.betas));
        let mut next_due = Vec::new();
        let (order, renews) = (&order[..], (&mut renewed, &mut next_due));
        let pass = M::Value::dispatch(VisitAll { state: self, order, names, renews, interrupt });
        // This is done after an interrupt, too, because weights and duals must match.
        order[pass.n_visits..].iter().for_each(|at| renewed.copy(*at, &self.dual.betas));
        renewed.check_memory(self.problem.n_classes())?;
        self.dual.betas = renewed;
        interrupt.check()?;
        self.dual.due = names.then_some(next_due);
        self.schedule.note_full(pass);
        Ok(pass)
    }

    /// Visits one row of the block.
    #[inline(always)]
    fn visit_row<S: Simd>(
        &mut self,
        simd: S,
        (row, at): (usize, usize),
        names: bool,
        (renewed, pass): (&mut Candidates<M::Value>, &mut PassGain),
    ) where
        M::Value: Lane<S>,
    {
        let (problem, set) = (self.problem, self.set);
        let (full, step) = (&mut self.work.full, &mut self.work.step);
        self.store.score_row(simd, row, &mut self.work.row, &mut full.current);
        let block = &mut self.dual.blocks[at];
        let (example, m) = (block.example as usize, problem.n_classes());
        let label = problem.label(example);
        let (classes, betas) = self.dual.betas.row(at);
        let scores = &full.current[..m];
        let slopes = &mut full.slopes[..];
        let costs = problem.cost_row(example);
        let largest = compute_margins(scores, costs, label, slopes);
        if classes.is_empty() && largest <= 0.0 {
            return renewed.replace(at, 0, std::iter::empty());
        }
        pass.rounding += set.rounding(block, scores[0], scores[label]);
        let (n, threshold) = full.choose(&set, block, (&mut *step, label), (classes, betas));
        let own = if set.is_box() { n } else { label };
        step.classes[own] = label as u32;
        let gain = step.solve(problem, &set, block, own, &mut full.values[..n]);
        let entries = step.classes[..n].iter().copied().zip(full.values[..n].iter().copied());
        let entries = entries.zip(&step.slopes);
        let kept = |((_, value), slope): &((u32, M::Value), &f64)| {
            *value != M::Value::zero() || names && **slope > threshold
        };
        renewed.replace(at, n, entries.filter(kept).map(|(entry, _)| entry));
        if gain.is_some() {
            let changed = n.max(own + 1);
            let (classes, change) = (&step.classes[..changed], &step.change[..changed]);
            self.store.change_row(simd, row, &mut self.work.row, (classes, change));
        }
        pass.changed |= gain.is_some();
        pass.gain += gain.unwrap_or_default();
    }
}

/// A full epoch, compiled as a whole for this machine's vector instructions.
struct VisitAll<'a, 'p, M: WeightStore> {
    state: &'a mut State<'p, M>,
    order: &'a [usize],
    /// Whether the pass selects candidates.
    names: bool,
    /// The new candidates, and the blocks that have at least one.
    renews: (&'a mut Candidates<M::Value>, &'a mut Vec<u32>),
    interrupt: &'a Interrupt,
}

impl<M: WeightStore> Kernel<M::Value> for VisitAll<'_, '_, M> {
    type Output = PassGain;

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) -> PassGain
    where
        M::Value: Lane<S>,
    {
        let Self { state, order, names, renews: (renewed, next_due), interrupt } = self;
        let mut pass = PassGain::default();
        let mut examples = Vec::new();
        for places in order.chunks(state.work.full.block_size) {
            if interrupt.is_raised() {
                break;
            }
            examples.clear();
            examples.extend(places.iter().map(|at| state.dual.blocks[*at].example));
            state.store.begin_block(&examples);
            for (row, &at) in places.iter().enumerate() {
                state.visit_row(simd, (row, at), names, (renewed, &mut pass));
                if names && !renewed.row(at).0.is_empty() {
                    next_due.push(at as u32);
                }
            }
            pass.n_visits += places.len();
        }
        pass.n_read = pass.n_visits * (VISIT_OVERHEAD + 2 * state.mean_cost());
        state.store.begin_block(&[]);
        pass
    }
}

impl<T: Element> FullBuffers<T> {
    /// Passes the candidates of a row with their slopes and β to the step. Returns the number of candidates and the
    /// slope above which a class is a candidate. If the set is not a box, all classes are passed, because the set may
    /// treat classes differently.
    #[inline(always)]
    fn choose(
        &mut self,
        set: &BlockSet,
        block: &DualBlock,
        (step, label): (&mut BlockStep<T>, usize),
        row: (&[u32], &[T]),
    ) -> (usize, f64) {
        let Self { slopes, beta, values, .. } = self;
        let found = &mut step.classes[..];
        let threshold = set.turn_into_slopes(block, label, row, slopes, beta);
        let n = if set.is_box() {
            let n = select(beta, slopes, threshold, found);
            limit_new(slopes, beta, label, &mut found[..n])
        } else {
            (0..).zip(found).for_each(|(class, place)| *place = class);
            slopes.len()
        };
        for (place, class) in step.classes[..n].iter().enumerate() {
            step.slopes[place] = slopes[*class as usize];
            values[place] = beta[*class as usize];
        }
        row.0.iter().for_each(|class| beta[*class as usize] = T::zero());
        (n, threshold)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};
    use crate::dual::Shares;
    use crate::multiclass::solvers::block_descent::Options;
    use crate::multiclass::solvers::block_descent::candidates::MAX_NEW;
    use crate::multiclass::solvers::block_descent::rows::DenseStore;
    use crate::multiclass::{Linear, MarginProblem, Order};
    use crate::polytope::MaxHinge;

    #[test]
    fn a_class_for_each_row_does_not_make_all_pairs_candidates() {
        let n = 16 * MAX_NEW + 76;
        let value = |(row, column): (usize, usize)| ((row * 7919 + column * 104_729) as f64).sin();
        let x = Array2::from_shape_fn((n, 5), value);
        let labels: Vec<u32> = (0..n as u32).collect();
        let rows = Dense::new(x.view()).unwrap();
        let map = Linear::new(Data::Dense64(rows), n, 0.0, Order::Examples);
        let shares = Shares::new(n, 1.0 / n as f64).unwrap();
        let problem = MarginProblem::new(map, &labels, Box::new(MaxHinge), shares).unwrap();
        let store = DenseStore::<_, f64>::new(rows, 0.0, n);
        let mut state = State::new(&problem, store, Options::default());
        state.first_epochs(&Interrupt::default()).unwrap();
        let n_kept: usize = (0..n).map(|at| state.dual.betas.row(at).0.len()).sum();
        assert!(0 < n_kept && n_kept <= 4 * MAX_NEW * n, "{n_kept}");
    }

    #[test]
    fn the_work_is_the_number_of_values_read() {
        let (n, d, m) = (40, 5, 3);
        let x = Array2::from_shape_fn((n, d), |(row, column)| {
            ((row * 7 + column * 5) % 11) as f64 - 5.0
        });
        let labels: Vec<u32> = (0..n as u32).map(|row| row % 3).collect();
        let rows = Dense::new(x.view()).unwrap();
        let map = Linear::new(Data::Dense64(rows), m, 0.0, Order::Examples);
        // A quarter of the examples has no share.
        let weights: Vec<f64> = (0..n).map(|row| f64::from(u8::from(row >= 10))).collect();
        let shares = Shares::new(n, 0.1 / n as f64).unwrap().with_sample_weights(&weights).unwrap();
        let problem = MarginProblem::new(map, &labels, Box::new(MaxHinge), shares).unwrap();
        let store = DenseStore::<_, f64>::new(rows, 0.0, m);
        let (mut state, interrupt) =
            (State::new(&problem, store, Options::default()), Interrupt::default());
        state.full_epoch(&interrupt).unwrap();
        let (visits, scores) = (30 * (VISIT_OVERHEAD + 2 * d * m), 2 * 30 * d * m);
        assert_eq!(state.schedule.work(), visits as f64);
        state.certificate(&interrupt).unwrap();
        assert_eq!(state.schedule.work(), (visits + scores) as f64);
    }
}
