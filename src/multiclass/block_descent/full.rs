//! Epochs that visit every example and look at all of its classes, a block of examples at a time.
//!
//! Scores are computed for the whole block and corrected for what the block's earlier examples
//! changed, so that the iterates are those of the sequential method up to rounding.

use num_traits::Zero;
use rand::seq::SliceRandom;

use super::candidates::Candidates;
use super::kernels::{CurrentScores, Move, Target};
use super::scorer::Scorer;
use super::state::{GROUP, State, Work};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Element;

impl<M: Scorer> State<'_, M> {
    /// Visits every example that is due once; returns whether any dual block changed.
    pub(super) fn descend_fully(&mut self, interrupt: &Interrupt) -> Result<bool> {
        self.n_full += 1;
        self.passes.clear();
        let n = self.duals.len();
        let mut due = vec![self.due.is_none() || !self.options.shrink; n];
        self.due.take().iter().flatten().for_each(|at| due[*at as usize] = true);
        let mut groups: Vec<usize> = (0..n.div_ceil(GROUP)).collect();
        groups.shuffle(&mut self.random);
        let all = groups.iter().flat_map(|group| group * GROUP..n.min((group + 1) * GROUP));
        let (order, rest): (Vec<usize>, Vec<usize>) =
            all.partition(|at| due[*at] && !self.duals[*at].settled);
        let mut renewed = Candidates::new(n);
        rest.iter().for_each(|at| renewed.copy(*at, &self.betas));
        self.work.changes.changed.clear();
        let (mut moved, mut n_done) = (false, 0);
        for duals in order.chunks(self.work.block_size) {
            if interrupt.is_raised() {
                break;
            }
            self.score_block(duals);
            for (row, &at) in duals.iter().enumerate() {
                self.correct_scores(row);
                self.betas.scatter(at, &mut self.work.beta);
                self.aim(at);
                self.step(row, at);
                renewed.gather(at, &self.work.beta);
                self.work.beta.fill(M::Value::zero());
            }
            moved |= !self.work.changes.changed.is_empty();
            n_done += duals.len();
        }
        // Also when interrupted: weights and duals belong together.
        order[n_done..].iter().for_each(|at| renewed.copy(*at, &self.betas));
        renewed.check_memory(self.problem.n_classes())?;
        self.betas = renewed;
        if !self.work.changes.changed.is_empty() {
            self.model.update(&self.work.changes, &self.work.next);
            self.work.changes.changed.clear();
        }
        interrupt.check()?;
        Ok(moved)
    }

    /// Brings the last block's changes to the weights and scores the next block.
    fn score_block(&mut self, duals: &[usize]) {
        let work = &mut self.work;
        std::mem::swap(&mut work.previous, &mut work.next);
        work.next.examples.clear();
        work.next.examples.extend(duals.iter().map(|at| self.duals[*at].example));
        self.model.gather(&mut work.next);
        self.model.multiply_rows(&mut work.next);
        let scores = &mut work.scores[..duals.len() * work.current.len()];
        self.model.update_and_score(&work.changes, &work.previous, &work.next, scores);
        work.changes.changed.clear();
    }

    /// The current scores of a row of the block: those before the block, and what the rows before it
    /// changed.
    fn correct_scores(&mut self, row: usize) {
        let Work { next, scores, changes, corrections, current, .. } = &mut self.work;
        let n_rows = next.examples.len();
        corrections.clear();
        let earlier = changes.changed.iter();
        corrections.extend(earlier.map(|&other| (next.gram[row * n_rows + other], other)));
        M::Value::dispatch(CurrentScores {
            scores,
            row,
            n_rows,
            panel_width: self.model.panel_width(),
            changes: &changes.values,
            corrections,
            out: current,
        });
    }

    /// Computes u from the current scores.
    fn aim(&mut self, at: usize) {
        let (scale, m) = (self.steepness(at).recip(), self.work.target.len());
        let dual = &self.duals[at];
        let example = dual.example as usize;
        M::Value::dispatch(Target {
            scores: &self.work.current[..m],
            beta: &self.work.beta,
            costs: self.problem.cost_row(example),
            label: self.problem.label(example),
            curvature: dual.curvature,
            sum: dual.sum,
            scale,
            out: &mut self.work.target,
        });
    }

    /// Maximises over the dual block: β_i becomes the projection of u. Notes the change for the
    /// weights, C_i (α_i' − α_i), its example being a row of the block.
    fn step(&mut self, row: usize, at: usize) {
        let Work { changes, target, projection, current, beta, scratch, .. } = &mut self.work;
        let dual = &mut self.duals[at];
        let label = self.problem.label(dual.example as usize);
        scratch.guess = Some(dual.multiplier);
        self.problem.polytope().project(target, label, 1.0, scratch, projection);
        dual.multiplier = scratch.multiplier;
        let padded = current.len();
        let change = &mut changes.values[row * padded..][..padded];
        let (n_changed, sum) =
            M::Value::dispatch(Move { target: projection, beta, change, weight: dual.weight });
        if n_changed > 0 {
            dual.sum += sum;
            change[label] = Real::narrow(dual.weight * sum);
            changes.changed.push(row);
        }
    }
}
