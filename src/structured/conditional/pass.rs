//! A pass over all sequences at given weights: the objective, its gradient and a dual point.

use std::borrow::Cow;
use std::mem::take;
use std::ops::Range;

use super::{Field, FieldBuffers, visit_transitions};
use crate::data::Real;
use crate::dual::rounding::{Sum, norm_above};
use crate::dual::{Bounded, Totals};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::long_axpy;
use crate::parallel::for_items;
use crate::structured::model::Model;

/// Maximum number of groups of sequences with separate sums.
const MAX_GROUPS: usize = 16;

/// Minimum number of sequences per group.
const MIN_GROUP: usize = 1024;

/// Maximum number of values in the sums of all groups together; two groups are always allowed.
const SUM_SIZE: usize = 1 << 24;

/// The result of a pass, from which the gradient is computed.
pub struct FieldPass {
    /// Objective P, rounded up.
    pub primal: f64,
    /// Σ p_i H(α_i) for the distributions α of the model, rounded down.
    pub linear: f64,
    /// An upper bound on the distance of the computed weights of this dual point from w(α).
    pub error: f64,
    /// p_i (μ_i − μ(y_i)) for all rows and labels, if the gradient is computed by column.
    delta: Vec<f64>,
    /// Σ p_i Aᵀ(μ_i − μ(y_i)) in the order of a pass. If the gradient is computed by column, contains only the
    /// transitions.
    pull: Vec<f64>,
    /// Like `pull`, but with the variances instead of μ_i − μ(y_i) and with the squares of A; None
    /// unless requested.
    diagonal: Option<Vec<f64>>,
}

/// The groups that are processed at the same time, one for each thread.
pub type PassGroups = Vec<Group>;

/// Sums over a group of sequences, and buffers.
#[derive(Default)]
pub struct Group {
    loss: Sum,
    totals: Totals,
    pull: Vec<f64>,
    diagonal: Vec<f64>,
    scratch: FieldBuffers,
}

/// The weights at which a pass is computed.
struct Point<'a, T: Real> {
    /// The weights in the order of a pass.
    laid: Cow<'a, [T]>,
    /// The weights of transitions.
    transitions: Vec<f64>,
    /// An upper bound on the norm of the weights.
    norm: f64,
}

impl Field<'_> {
    /// Evaluates the objective and a dual point in one pass over all sequences. If `curved`, also prepares the diagonal
    /// of the Hessian.
    pub(super) fn pass<T: Real>(
        &self,
        weights: &[T],
        curved: bool,
        slots: &mut PassGroups,
        interrupt: &Interrupt,
    ) -> Result<FieldPass> {
        let n = self.shares.n_blocks();
        let largest =
            if self.columns.is_some() { MAX_GROUPS } else { SUM_SIZE / weights.len().max(1) };
        let n_groups = largest.min(n / MIN_GROUP).clamp(2, MAX_GROUPS);
        let laid = self.laid(weights);
        let transitions = laid[self.n_emissions()..].iter().map(|weight| weight.widen()).collect();
        let at = Point { laid, transitions, norm: norm_above(weights) };
        slots.resize_with(rayon::current_num_threads().min(n_groups), Group::default);
        let (mut loss, mut totals) = (Sum::default(), Totals::default());
        let mut delta = vec![0.0; if self.columns.is_some() { self.n_marginals(0..n) } else { 0 }];
        let mut pull = vec![0.0; self.n_sums()];
        let mut diagonal = vec![0.0; if curved { pull.len() } else { 0 }];
        let mut rest = &mut delta[..];
        for first in (0..n_groups).step_by(slots.len()) {
            let now = (n_groups - first).min(slots.len());
            let mut jobs = Vec::with_capacity(now);
            for (group, slot) in (first..n_groups).zip(slots.iter_mut()) {
                let range = group * n / n_groups..(group + 1) * n / n_groups;
                let n_own = self.n_marginals(range.clone()).min(rest.len());
                let (own, others) = take(&mut rest).split_at_mut(n_own);
                rest = others;
                jobs.push((range, slot, own));
            }
            for_items(jobs, 1, |(range, group, delta)| {
                self.sum(range, &at, curved, (group, delta), interrupt);
            });
            interrupt.check()?;
            // Groups are added in order, so the result does not depend on the number of threads.
            for group in &slots[..now] {
                loss.join(&group.loss);
                totals.join(&group.totals);
                long_axpy(&mut pull, 1.0, &group.pull);
                long_axpy(&mut diagonal, 1.0, &group.diagonal);
            }
        }
        let primal = self.penalty.objective(self.shares.lambda(), weights, loss.total());
        // A weight is a sum over the rows in which its feature occurs, so the number of rows bounds
        // the number of terms.
        let error = totals.distance_within(self.chain.emissions().rows().len());
        let diagonal = curved.then_some(diagonal);
        Ok(FieldPass { primal, linear: totals.linear(), error, delta, pull, diagonal })
    }

    /// Returns the gradient of the smooth part of the objective.
    pub(super) fn gradient<T: Real>(&self, pass: &mut FieldPass, weights: &[T]) -> Vec<T> {
        let ridge = self.penalty.ridge(self.shares.lambda());
        let (mut gradient, pull) = (Vec::new(), take(&mut pass.pull));
        self.finish((&pass.delta, false), pull, &mut gradient, |index, sum| {
            sum + ridge * weights[index].widen()
        });
        gradient
    }

    /// Writes λ plus the diagonal of the loss's Hessian, ignoring the covariances between different parts. Leaves
    /// `target` unchanged if the pass has not prepared the diagonal.
    pub(super) fn diagonal<T: Real>(&self, pass: FieldPass, target: &mut Vec<T>) {
        let FieldPass { mut delta, diagonal: Some(diagonal), .. } = pass else { return };
        if self.columns.is_some() {
            self.variances(&mut delta);
        }
        let lambda = self.shares.lambda();
        self.finish((&delta, true), diagonal, target, |_, sum| sum + lambda);
    }

    /// Replaces p_i (μ − μ(y)) by p_i μ (1 − μ) for each row and label.
    fn variances(&self, mut delta: &mut [f64]) {
        for example in 0..self.shares.n_blocks() {
            let (share, n_own) = (self.shares.of(example), self.n_marginals(example..example + 1));
            let (own, others) = take(&mut delta).split_at_mut(n_own);
            delta = others;
            // μ(y) is 0 or 1, so |μ − μ(y)| is μ or 1 − μ.
            for value in own {
                let size = value.abs();
                *value = (size * (1.0 - size / share)).max(0.0);
            }
        }
    }

    /// Calls `end`(index, sum) for each sum of a pass, in the chain's order, and stores the results
    /// in `target`.
    fn finish<T: Real>(
        &self,
        delta: (&[f64], bool),
        sums: Vec<f64>,
        target: &mut Vec<T>,
        end: impl Fn(usize, f64) -> f64 + Sync,
    ) {
        if let Some(columns) = &self.columns {
            target.resize(self.chain.n_weights(), T::zero());
            let n_emissions = self.chain.transitions();
            let (emissions, transitions) = target.split_at_mut(n_emissions);
            columns.sum(delta, emissions, &end);
            for ((index, target), sum) in (n_emissions..).zip(transitions).zip(sums) {
                *target = T::narrow(end(index, sum));
            }
        } else {
            target.clear();
            let sums = self.packed(sums).into_iter().enumerate();
            *target = sums.map(|(index, sum)| T::narrow(end(index, sum))).collect();
        }
    }

    /// Number of values in the sums of a group.
    fn n_sums(&self) -> usize {
        if self.columns.is_some() { self.n_laid() - self.n_emissions() } else { self.n_laid() }
    }

    /// Number of pairs of a row and a label in the given sequences.
    fn n_marginals(&self, examples: Range<usize>) -> usize {
        examples.map(|example| self.chain.sequence_len(example) * self.chain.n_states()).sum()
    }

    fn sum<T: Real>(
        &self,
        range: Range<usize>,
        at: &Point<'_, T>,
        curved: bool,
        (group, mut all): (&mut Group, &mut [f64]),
        interrupt: &Interrupt,
    ) {
        let Group { loss, totals, pull, diagonal, scratch } = group;
        scratch.work.interrupt.clone_from(interrupt);
        (*loss, *totals) = (Sum::default(), Totals::default());
        pull.clear();
        pull.resize(self.n_sums(), 0.0);
        diagonal.clear();
        diagonal.resize(if curved { pull.len() } else { 0 }, 0.0);
        for example in range {
            let n_own = self.n_marginals(example..example + 1).min(all.len());
            let (delta, others) = take(&mut all).split_at_mut(n_own);
            all = others;
            let share = self.shares.of(example);
            if share == 0.0 || interrupt.is_raised() {
                continue;
            }
            scratch.scores.resize(self.chain.n_parts(example), 0.0);
            if at.norm > 0.0 {
                self.scores(example, &at.laid, &at.transitions, &mut scratch.scores);
            } else {
                self.chain.scores_at_zero(example, &mut scratch.scores);
            }
            let found = scratch.evaluate(self.chain, example, at.norm);
            loss.add(found.0 * Bounded::exact(share));
            if !self.is_partial() {
                totals.add(&self.shares, example, &scratch.terms(self.chain, example, found));
            }
            if curved {
                scratch.variances.clear();
                scratch
                    .variances
                    .extend(scratch.marginals.iter().map(|p| (p * (1.0 - p)).max(0.0)));
                let image = (&scratch.variances[..], share, true);
                self.add_image(example, image, diagonal);
            }
            scratch.subtract_truth();
            delta.iter_mut().zip(&scratch.marginals).for_each(|(delta, m)| *delta = share * m);
            self.add_image(example, (&scratch.marginals, share, false), pull);
        }
    }

    /// Writes the scores of a sequence's parts. `weights` are in the order of a pass.
    pub(super) fn scores<T: Real>(
        &self,
        example: usize,
        weights: &[T],
        transitions: &[f64],
        scores: &mut [f64],
    ) {
        let chain = self.chain;
        let nodes = &mut scores[..chain.sequence_len(example) * chain.n_states()];
        match &self.layout {
            Some(layout) => layout.scores(example, weights, nodes),
            None => chain.emissions().scores(chain.rows_of(example), weights, nodes),
        }
        chain.add_transitions(example, transitions, scores);
    }

    /// Adds scale Aᵀ δ to `target` for a dense δ. If the gradient is computed by column, adds only the transitions.
    /// If `squared`, uses the squares of A's entries.
    fn add_image(
        &self,
        example: usize,
        (delta, scale, squared): (&[f64], f64, bool),
        target: &mut [f64],
    ) {
        let chain = self.chain;
        let nodes = &delta[..chain.sequence_len(example) * chain.n_states()];
        let n_transitions = self.n_laid() - self.n_emissions();
        let (emissions, transitions) = target.split_at_mut(target.len() - n_transitions);
        match &self.layout {
            _ if self.columns.is_some() => {}
            Some(layout) => layout.add_rows(example, (nodes, scale, squared), emissions),
            None => {
                let range = chain.rows_of(example);
                chain.emissions().add_rows(range, (nodes, scale, squared), emissions);
            }
        }
        visit_transitions(chain, example, delta, |index, x, value| {
            transitions[index] += scale * if squared { x * x } else { x } * value;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Csr;
    use crate::dual::Shares;
    use crate::structured::conditional::ElasticNet;
    use crate::structured::model::{Chain, Hamming};

    #[test]
    fn gradient_by_column_equals_gradient_from_sums() {
        let (n_states, n_features) = (3, 12);
        let ends = [0, 2, 5, 6, 6, 8, 9];
        let columns = [0, 7, 1, 4, 7, 11, 0, 7, 3];
        let x = [1.0, 2.0, -1.0, 0.5, 1.0, 3.0, 1.0, -2.0, 1.0];
        let rows = Csr::new(&ends, &columns, &x, n_features).unwrap();
        let labels = [0, 2, 1, 1, 0, 2];
        let offsets = [0, 2, 2, 5, 6];
        let mode = Hamming::Count;
        let chain = Chain::new(rows.into(), &offsets, Some(&labels), n_states, true, mode).unwrap();
        let shares = Shares::new(4, 0.1).unwrap();
        let by_column = Field::new(&chain, shares, ElasticNet::new(0.0).unwrap()).unwrap();
        assert!(by_column.columns.is_some());
        let by_sums = Field { columns: None, ..by_column.clone() };
        let weights: Vec<f64> = (0..chain.n_weights()).map(|at| (at as f64 * 0.7).sin()).collect();
        let evaluate = |field: &Field<'_>| {
            let mut groups = PassGroups::default();
            let mut pass = field.pass(&weights, true, &mut groups, &Interrupt::default()).unwrap();
            let (primal, linear) = (pass.primal, pass.linear);
            let (gradient, mut diagonal) = (field.gradient(&mut pass, &weights), Vec::new());
            field.diagonal(pass, &mut diagonal);
            (primal, linear, gradient, diagonal)
        };
        let (found, expected) = (evaluate(&by_column), evaluate(&by_sums));
        assert_eq!((found.0, found.1), (expected.0, expected.1));
        for (found, expected) in [(found.2, expected.2), (found.3, expected.3)] {
            assert_eq!(found.len(), chain.n_weights());
            assert!(found.iter().zip(&expected).all(|(f, e): (&f64, &f64)| (f - e).abs() < 1e-14));
        }
    }
}
