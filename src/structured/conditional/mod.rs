//! The logistic loss of conditional random fields (Lafferty, McCallum and Pereira 2001), with a duality gap.
//!
//! The dual of P(w) = λ/2 ‖w‖² + Σ p_i Φ_i(w), Φ_i(w) = ln Σ_y exp ⟨w, φ(x_i, y) − φ(x_i, y_i)⟩, has a
//! distribution over labels for each sequence, D = Σ p_i H(α_i) − λ/2 ‖w(α)‖² (Collins et al. 2008; Le Priol,
//! Piché and Lacoste-Julien 2018). At the model's own distributions, which every gradient sums up anyway,
//! P − D = λ/2 ‖w − w(α)‖² = ‖∇P(w)‖² / (2 λ): each pass has its certificate
//! (`docs/mathematics/sequences.md`).

mod dual_point;
mod rounding;
mod solver;

use std::ops::Range;

use rayon::prelude::*;

pub use solver::{ConditionalFit, conditional_path, fit_conditional};

use self::dual_point::DualPoint;
use self::rounding::Reach;
use super::marginals::chain_marginals;
use super::model::{Chain, ChainLink, Model, Work};
use crate::dual::rounding::{Sum, gamma, norm_above};
use crate::dual::{BlockTerms, Bounded, Shares, Totals, objective};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::linalg::sparse::dot;
use crate::linalg::vectors::{self, PIECE};

/// Parts of the sequences that are summed up apart, unless sums take too much memory.
const MAX_GROUPS: usize = 16;

/// Fewest sequences worth sums of their own.
const MIN_GROUP: usize = 1024;

/// Weights in the sums of all groups together, unless those of two groups are more: they are added up.
const SUM_SIZE: usize = 1 << 24;

/// A training problem: sequences with their labels.
#[derive(Clone)]
struct Field<'a> {
    chain: &'a Chain,
    shares: Shares,
    /// Each so-manyth sequence counts, and no other.
    stride: usize,
}

/// What a pass finds at a model.
struct Evaluation {
    /// P, rounded up.
    primal: f64,
    dual: DualPoint,
    gradient: Vec<f64>,
    /// The diagonal of the Hessian as far as it comes from single parts, and λ.
    diagonal: Option<Vec<f64>>,
}

/// What a group of sequences adds up to, and the buffers that this takes.
#[derive(Default)]
struct Group {
    loss: Sum,
    totals: Totals,
    /// Σ p_i Aᵀ(μ_i − μ(y_i)).
    pull: Vec<f64>,
    diagonal: Vec<f64>,
    scratch: Scratch,
}

/// The groups that are summed up at a time, one for each thread.
type Groups = Vec<Group>;

/// Buffers for one sequence at a time.
#[derive(Default)]
struct Scratch {
    scores: Vec<f64>,
    marginals: Vec<f64>,
    variances: Vec<f64>,
    work: Work,
    truth: Sparse,
}

impl<'a> Field<'a> {
    fn new(chain: &'a Chain, shares: Shares) -> Result<Self> {
        if !chain.is_labelled() {
            return Err(Error::argument("Y", "the examples have no labels"));
        }
        if shares.n_blocks() != chain.n_examples() {
            return Err(Error::argument("X", "must have an example for each share"));
        }
        Ok(Self { chain, shares, stride: 1 })
    }

    /// Number of sequences that count.
    fn n_used(&self) -> usize {
        self.shares.n_blocks().div_ceil(self.stride)
    }

    /// P(0).
    fn null_objective(&self, interrupt: &Interrupt) -> Result<f64> {
        let mut scratch = Scratch::default();
        let mut sum = Sum::default();
        for example in 0..self.shares.n_blocks() {
            interrupt.check()?;
            scratch.scores.resize(self.chain.n_parts(example), 0.0);
            self.chain.scores_at_zero(example, &mut scratch.scores);
            let share = Bounded::exact(self.shares.of(example));
            sum.add(scratch.look(self.chain, example, 0.0).0 * share);
        }
        Ok(sum.total().upper())
    }

    /// One pass over all sequences.
    fn evaluate(
        &self,
        weights: &[f64],
        curved: bool,
        slots: &mut Groups,
        interrupt: &Interrupt,
    ) -> Result<Evaluation> {
        let (n, lambda) = (self.n_used(), self.shares.lambda());
        let n_groups = (SUM_SIZE / weights.len().max(1)).min(n / MIN_GROUP).clamp(2, MAX_GROUPS);
        let norm = norm_above(weights);
        slots.resize_with(rayon::current_num_threads().min(n_groups), Group::default);
        let (mut loss, mut totals) = (Sum::default(), Totals::default());
        let mut pull = vec![0.0; weights.len()];
        let mut diagonal = vec![lambda; if curved { weights.len() } else { 0 }];
        for first in (0..n_groups).step_by(slots.len()) {
            let now = (n_groups - first).min(slots.len());
            slots[..now].par_iter_mut().enumerate().for_each(|(slot, group)| {
                let range = (first + slot) * n / n_groups..(first + slot + 1) * n / n_groups;
                self.sum(range, (weights, norm), curved, group, interrupt);
            });
            interrupt.check()?;
            // In their order, whatever the number of threads.
            for group in &slots[..now] {
                loss.join(&group.loss);
                totals.join(&group.totals);
                add(&mut pull, 1.0, &group.pull);
                add(&mut diagonal, 1.0, &group.diagonal);
            }
        }
        let own: Vec<f64> = pull.iter().map(|value| -value / lambda).collect();
        let primal = objective(lambda, weights, loss.total());
        let dual = DualPoint { linear: totals.linear(), error: totals.distance(), weights: own };
        let mut gradient = pull;
        gradient.iter_mut().zip(weights).for_each(|(slope, weight)| *slope += lambda * weight);
        let diagonal = curved.then_some(diagonal);
        Ok(Evaluation { primal, dual, gradient, diagonal })
    }

    fn sum(
        &self,
        range: Range<usize>,
        (weights, norm): (&[f64], f64),
        curved: bool,
        group: &mut Group,
        interrupt: &Interrupt,
    ) {
        let Group { loss, totals, pull, diagonal, scratch } = group;
        (*loss, *totals) = (Sum::default(), Totals::default());
        pull.clear();
        pull.resize(weights.len(), 0.0);
        diagonal.clear();
        diagonal.resize(if curved { weights.len() } else { 0 }, 0.0);
        for example in range.map(|index| index * self.stride) {
            let share = self.shares.of(example);
            if share == 0.0 || interrupt.is_raised() {
                continue;
            }
            scratch.scores.resize(self.chain.n_parts(example), 0.0);
            if norm > 0.0 {
                self.chain.scores(example, weights, &mut scratch.scores);
            } else {
                self.chain.scores_at_zero(example, &mut scratch.scores);
            }
            let found = scratch.look(self.chain, example, norm);
            loss.add(found.0 * Bounded::exact(share));
            totals.add(&self.shares, example, &scratch.terms(self.chain, example, found));
            if curved {
                scratch.variances.clear();
                scratch
                    .variances
                    .extend(scratch.marginals.iter().map(|p| (p * (1.0 - p)).max(0.0)));
                let image = (&scratch.variances[..], share, true);
                add_image(self.chain, example, image, diagonal);
            }
            scratch.truth.iter().for_each(|(part, one)| scratch.marginals[*part as usize] -= one);
            add_image(self.chain, example, (&scratch.marginals, share, false), pull);
        }
    }
}

impl Scratch {
    /// Φ_i at the scores, rounded outwards, for weights of at most this norm, and the size of its numbers; its
    /// marginals are kept.
    fn look(&mut self, chain: &Chain, example: usize, norm: f64) -> (Bounded, Reach) {
        self.marginals.resize(self.scores.len(), 0.0);
        let scores = chain.chain_scores(example, &self.scores);
        let log_sum = chain_marginals(scores, &mut self.work, &mut self.marginals);
        chain.parts(example, chain.truth(example), &mut self.truth);
        let reach = Reach::of(scores);
        let error = chain.size(example).loss_error(0.0, norm) + reach.log_error();
        (Bounded::new(log_sum - dot(&self.scores, &self.truth), error), reach)
    }

    /// What the distribution of the scores adds to the dual value.
    fn terms(&self, chain: &Chain, example: usize, (loss, reach): (Bounded, Reach)) -> BlockTerms {
        // H = Φ − ⟨θ, μ − μ(y)⟩, for the θ as computed.
        let linear = vectors::dot(&self.scores, &self.marginals);
        let entropy = loss.value() + dot(&self.scores, &self.truth) - linear;
        // One part for each position, and one for each transition.
        let n_parts = 2 * chain.sequence_len(example);
        let defect = reach.relative_error() * n_parts as f64;
        let rounding = (defect + gamma(self.scores.len()) * n_parts as f64) * reach.largest;
        BlockTerms {
            linear: entropy - 2.0 * reach.log_error() - rounding,
            bend: 0.0,
            length: 2.0 * n_parts as f64 * (1.0 + gamma(8)) + defect,
            n_entries: self.scores.len(),
            defect,
            scales: chain.size(example).scales(0.0),
        }
    }
}

/// y += scale x.
fn add(y: &mut [f64], scale: f64, x: &[f64]) {
    let pieces = y.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE));
    pieces.for_each(|(y, x)| vectors::axpy(y, scale, x));
}

/// target += scale Aᵀ δ for a dense δ; with the squares of A's entries if `squared`.
fn add_image(
    chain: &Chain,
    example: usize,
    (delta, scale, squared): (&[f64], f64, bool),
    target: &mut [f64],
) {
    let (n_states, len) = (chain.n_states(), chain.sequence_len(example));
    let (nodes, edges) = delta.split_at(len * n_states);
    let (links, first) = (chain.links(), chain.transitions());
    chain.emissions().add_rows(chain.rows_of(example), (nodes, scale, squared), target);
    for t in [0, len.saturating_sub(1)].into_iter().take(len.min(2)) {
        for at in links.at_ends(t, len) {
            for (index, value) in (at..).zip(&nodes[t * n_states..][..n_states]) {
                if links.of(index) == ChainLink::Weighted {
                    target[first + index] += scale * value;
                }
            }
        }
    }
    let n_edges = n_states * n_states;
    for (t, values) in edges.chunks_exact(n_edges).enumerate() {
        for (index, value) in values.iter().enumerate() {
            if links.of(index) == ChainLink::Weighted {
                target[first + index] += scale * value;
            }
        }
        if let Some(rows) = chain.edge_rows() {
            rows.visit(chain.rows_of(example).start + t + 1, |feature, x| {
                let scale = scale * if squared { x * x } else { x };
                let target = &mut target[chain.edge_features() + feature * n_edges..][..n_edges];
                target.iter_mut().zip(values).for_each(|(target, value)| *target += scale * value);
            });
        }
    }
}
