//! Epochs that visit every example and look at all of its classes, a block of examples at a time.
//!
//! Scores are computed for the whole block and corrected for what the block's earlier examples
//! changed, so that the iterates are those of the sequential method up to rounding.

use num_traits::Zero;
use rand::seq::SliceRandom;

use super::candidates::Candidates;
use super::kernels::{EarlierChanges, LateChanges, Move, ProjectionTarget, RowScores, TOGETHER};
use super::scorer::Scorer;
use super::state::{EpochBuffers, GROUP, State};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Element;

impl<M: Scorer> State<'_, M> {
    /// Visits every example that is due once; returns by how much the dual rose (in units of λ), or nothing where that
    /// is no more than rounding. Where the set is a box it also names the candidates of each, unless it is the first pass: they
    /// would be those of its start.
    pub(super) fn descend_fully(&mut self, interrupt: &Interrupt) -> Result<Option<f64>> {
        self.n_full += 1;
        self.passes.clear();
        let (n, names) = (self.duals.len(), self.n_full > 1 && self.is_box());
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
        let (mut gain, mut moved, mut n_done, mut next_due) = (0.0, false, 0, Vec::new());
        for duals in order.chunks(self.work.block_size) {
            if interrupt.is_raised() {
                break;
            }
            self.score_block(duals);
            for (row, &at) in duals.iter().enumerate() {
                self.correct_scores(row);
                self.betas.scatter(at, &mut self.work.beta);
                self.aim(row, at);
                let least = if names { self.least_target(at) } else { f64::INFINITY };
                gain += self.step(row, at);
                let EpochBuffers { target, beta, .. } = &mut self.work;
                renewed.gather_above(at, beta, target, least);
                if names && !renewed.row(at).0.is_empty() {
                    next_due.push(at as u32);
                }
                beta.fill(M::Value::zero());
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
        if names {
            self.due = Some(next_due);
        }
        Ok((moved && self.moves(gain, n_done)).then_some(gain))
    }

    /// The u from which on a class is a candidate, by the slopes before the step: above that of some class with
    /// β > 0 where the sum cannot rise, and above 0.
    fn least_target(&self, at: usize) -> f64 {
        // The label's u, which is 0, is below it, also where the sum is 0 but for its rounding.
        let (sum, work) = (self.duals[at].sum.max(0.0), &self.work);
        if !self.is_tight(sum) {
            return sum;
        }
        let mut least = f64::INFINITY;
        for (target, beta) in work.target.iter().zip(&work.beta) {
            if *beta > M::Value::zero() {
                least = least.min(target - beta.widen());
            }
        }
        least.max(sum)
    }

    /// Brings the last block's changes to the weights and scores the next block.
    fn score_block(&mut self, duals: &[usize]) {
        let work = &mut self.work;
        std::mem::swap(&mut work.previous, &mut work.next);
        work.next.examples.clear();
        work.next.examples.extend(duals.iter().map(|at| self.duals[*at].example));
        self.model.gather(&mut work.next);
        self.model.multiply_rows(&mut work.next);
        let scores = &mut work.scores[..duals.len() * self.model.padded()];
        self.model.update_and_score(&work.changes, &work.previous, &work.next, scores);
        work.changes.changed.clear();
    }

    /// The current scores of a row of the block: those before the block, and what the rows before it
    /// changed.
    fn correct_scores(&mut self, row: usize) {
        let EpochBuffers { next, scores, changes, current, n_earlier, .. } = &mut self.work;
        let (n_rows, padded) = (next.examples.len(), self.model.padded());
        let gram = &next.gram[row * n_rows..];
        if row.is_multiple_of(TOGETHER) {
            *n_earlier = changes.changed.len();
            let width = self.model.panel_width();
            M::Value::dispatch(EarlierChanges {
                place: RowScores { scores, row, n_rows, padded, width },
                gram,
                changes: &changes.values,
                changed: &changes.changed,
                out: &mut current[..(n_rows - row).min(TOGETHER) * padded],
            });
        }
        M::Value::dispatch(LateChanges {
            gram,
            changes: &changes.values,
            changed: &changes.changed[*n_earlier..],
            scores: &mut current[row % TOGETHER * padded..][..padded],
        });
    }

    /// Computes u from the current scores.
    fn aim(&mut self, row: usize, at: usize) {
        let (scale, m) = (self.steepness(at).recip(), self.work.target.len());
        let dual = &self.duals[at];
        let example = dual.example as usize;
        M::Value::dispatch(ProjectionTarget {
            scores: &self.work.current[row % TOGETHER * self.model.padded()..][..m],
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
    /// weights, C_i (α_i' − α_i), its example being a row of the block. Returns by how much the dual rises.
    fn step(&mut self, row: usize, at: usize) -> f64 {
        let EpochBuffers { changes, target, projection, beta, scratch, .. } = &mut self.work;
        let dual = &mut self.duals[at];
        let steepness = dual.curvature + self.problem.shares().smoothing();
        let label = self.problem.label(dual.example as usize);
        scratch.guess = Some(dual.multiplier);
        self.problem.polytope().project(target, label, 1.0, scratch, projection);
        dual.multiplier = scratch.multiplier;
        let padded = self.model.padded();
        let change = &mut changes.values[row * padded..][..padded];
        let moved = M::Value::dispatch(Move {
            aim: target,
            target: projection,
            beta,
            change,
            weight: dual.weight,
        });
        if moved.n_changed == 0 {
            return 0.0;
        }
        // The slope of β_j is h times u_j − β_j − 1ᵀβ.
        let along = moved.along - dual.sum * moved.sum;
        dual.sum += moved.sum;
        change[label] = Real::narrow(dual.weight * moved.sum);
        changes.changed.push(row);
        dual.weight * steepness * (along - 0.5 * (moved.squares + moved.sum * moved.sum))
    }
}
