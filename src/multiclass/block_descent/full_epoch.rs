//! Epochs that visit every example and read all of its classes, a block of examples at a time.
//!
//! Scores are computed for the whole block and then corrected for the changes of earlier examples in the block, so the
//! iterates equal those of the sequential method up to rounding.

use num_traits::Zero;
use pulp::Simd;
use rand::seq::SliceRandom;

use super::State;
use super::block_step::{BlockSet, BlockStep, DualBlock, FullBuffers, Margins, RowScores, lower};
use super::candidates::{Candidates, Select, limit_new};
use super::rows::WeightStore;
use super::schedule::PassGain;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Element, Kernel, Lane};

/// Number of score vectors that are corrected in registers at a time.
const VECTORS: usize = 4;

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

    /// Adds the previous block's changes to the weights, then computes the scores of the next block.
    fn next_block(&mut self, places: &[usize]) {
        let FullBuffers { previous, next, scores, .. } = &mut self.work.full;
        std::mem::swap(previous, next);
        next.examples.clear();
        next.examples.extend(places.iter().map(|at| self.dual.blocks[*at].example));
        let scores = &mut scores[..places.len() * self.store.shape().padded];
        self.store.next_block(previous, next, scores);
        next.changed.clear();
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
        let (problem, set, shape) = (self.problem, self.set, self.store.shape());
        let (full, step) = (&mut self.work.full, &mut self.work.step);
        full.correct_scores(simd, row, (shape.padded, shape.panel));
        let block = &mut self.dual.blocks[at];
        let (example, m) = (block.example as usize, problem.n_classes());
        let label = problem.label(example);
        let (classes, betas) = self.dual.betas.row(at);
        let scores = &full.current[..m];
        let place = RowScores { scores, row: 0, n_rows: 1, padded: m, panel: m };
        let slopes = &mut full.slopes[..];
        let costs = problem.cost_row(example);
        let largest = Margins { place, costs, label, margins: slopes }.compute(simd);
        if classes.is_empty() && largest <= 0.0 {
            return renewed.replace(at, 0, std::iter::empty());
        }
        self.dual.betas.scatter(at, &mut full.beta);
        lower(slopes, &full.beta, set.smoothing(), block.sum, label);
        pass.rounding += set.rounding(block, scores[0], scores[label]);
        let (n, threshold) = full.choose(simd, &set, block, (&mut *step, label), (classes, betas));
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
            let change = &mut full.next.changes[row * shape.padded..][..shape.padded];
            change.fill(M::Value::zero());
            for (class, step) in step.classes[..n].iter().zip(&step.change) {
                change[*class as usize] = *step;
            }
            change[label] = step.change[own];
            full.next.changed.push(row);
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
        let block_size = state.work.full.block_size;
        state.work.full.next.changed.clear();
        for places in order.chunks(block_size) {
            if interrupt.is_raised() {
                break;
            }
            state.next_block(places);
            for (row, &at) in places.iter().enumerate() {
                state.visit_row(simd, (row, at), names, (renewed, &mut pass));
                if names && !renewed.row(at).0.is_empty() {
                    next_due.push(at as u32);
                }
            }
            pass.n_visits += places.len();
        }
        state.next_block(&[]);
        pass
    }
}

impl<T: Element> FullBuffers<T> {
    /// Passes the candidates of a row with their slopes and β to the step, and clears β. Returns the number of
    /// candidates and the slope above which a class is a candidate. If the set is not a box, all classes are passed in
    /// their order, because the set may treat classes differently.
    #[inline(always)]
    fn choose<S: Simd>(
        &mut self,
        simd: S,
        set: &BlockSet,
        block: &DualBlock,
        (step, label): (&mut BlockStep<T>, usize),
        (classes, betas): (&[u32], &[T]),
    ) -> (usize, f64)
    where
        T: Lane<S>,
    {
        let Self { slopes, beta, values, found, .. } = self;
        if !set.is_box() {
            let m = slopes.len();
            step.slopes[..m].copy_from_slice(slopes);
            (0..).zip(&mut step.classes[..m]).for_each(|(class, place)| *place = class);
            values.copy_from_slice(beta);
            beta.fill(T::zero());
            return (m, f64::NEG_INFINITY);
        }
        let positive = classes.iter().zip(betas).filter(|(_, beta)| **beta > T::zero());
        let positive = positive.map(|(class, _)| slopes[*class as usize]);
        let threshold = set.threshold(block.sum, positive).max(0.0);
        let mut n = Select { values: beta, targets: slopes, threshold, found }.compute(simd);
        n = limit_new(slopes, beta, label, &mut found[..n]);
        for (place, class) in found[..n].iter().enumerate() {
            step.classes[place] = *class;
            step.slopes[place] = slopes[*class as usize];
            values[place] = beta[*class as usize];
        }
        classes.iter().for_each(|class| beta[*class as usize] = T::zero());
        (n, threshold)
    }

    /// Computes the current scores of a row: its scores before the block plus the changes by the earlier rows of the
    /// block, Σ_j ⟨x_i, x_j⟩ δ_j.
    #[inline(always)]
    fn correct_scores<S: Simd>(&mut self, simd: S, row: usize, (padded, panel): (usize, usize))
    where
        T: Lane<S>,
    {
        let Self { next, scores, current, .. } = self;
        let n_rows = next.examples.len();
        let place = RowScores { scores, row, n_rows, padded, panel };
        for (index, current) in current.chunks_mut(panel).enumerate() {
            current.copy_from_slice(&place.panel(index)[..current.len()]);
        }
        // Blocks of one row, as for sparse data, have no inner products.
        let gram = next.gram.get(row * n_rows..).unwrap_or_default();
        let (changes, changed) = (&next.changes, &next.changed);
        EarlierChanges { gram, changes, changed, scores: current }.compute(simd);
    }
}

/// Adds the changes by some rows to the scores of a later row, Σ_j ⟨x_i, x_j⟩ δ_j.
struct EarlierChanges<'a, T> {
    /// ⟨x_i, x_j⟩ for all rows of the block.
    gram: &'a [T],
    /// δ_j, one padded row each.
    changes: &'a [T],
    /// The rows that changed, j.
    changed: &'a [usize],
    scores: &'a mut [T],
}

impl<T: Element> Kernel<T> for EarlierChanges<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { gram, changes, changed, scores } = self;
        let stride = scores.len() / T::LANES;
        let (scores, changes) = (T::vectors_mut(scores).0, T::vectors(changes).0);
        let (mut first, rows) = (0, (gram, changed));
        let (wide, rest) = scores.as_chunks_mut::<VECTORS>();
        for scores in wide {
            correct::<S, T, VECTORS, 2>(simd, changes, (stride, first), rows, scores);
            first += VECTORS;
        }
        for scores in rest.as_chunks_mut::<1>().0 {
            correct::<S, T, 1, VECTORS>(simd, changes, (stride, first), rows, scores);
            first += 1;
        }
    }
}

/// Adds V vectors of one change.
#[inline(always)]
fn add<S: Simd, T: Lane<S>, const V: usize>(
    simd: S,
    change: &[T::Vector],
    product: T,
    sums: &mut [T::Vector; V],
) {
    let product = T::splat(simd, product);
    for (sum, change) in sums.iter_mut().zip(&change[..V]) {
        *sum = T::fused(simd, product, *change, *sum);
    }
}

/// Corrects V vectors of scores. The sums over every P-th change are independent of each other, so that multiply-adds
/// do not wait for each other.
#[inline(always)]
fn correct<S: Simd, T: Lane<S>, const V: usize, const P: usize>(
    simd: S,
    changes: &[T::Vector],
    (stride, first): (usize, usize),
    (gram, changed): (&[T], &[usize]),
    out: &mut [T::Vector; V],
) {
    let mut sums = [[T::splat(simd, T::zero()); V]; P];
    sums[0] = *out;
    let (groups, rest) = changed.as_chunks::<P>();
    for rows in groups {
        for (sums, row) in sums.iter_mut().zip(rows) {
            add::<S, T, V>(simd, &changes[row * stride + first..], gram[*row], sums);
        }
    }
    for row in rest {
        add::<S, T, V>(simd, &changes[row * stride + first..], gram[*row], &mut sums[0]);
    }
    for (at, out) in out.iter_mut().enumerate() {
        *out = sums[1..].iter().fold(sums[0][at], |sum, other| T::plus(simd, sum, other[at]));
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};
    use crate::dual::Shares;
    use crate::multiclass::block_descent::Options;
    use crate::multiclass::block_descent::candidates::MAX_NEW;
    use crate::multiclass::block_descent::rows::DenseStore;
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
}
