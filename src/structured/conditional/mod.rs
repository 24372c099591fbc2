//! The logistic loss of conditional random fields (Lafferty, McCallum and Pereira 2001), with a duality gap.
//!
//! The objective is P(w) = λ/2 ‖w‖² + Σ p_i Φ_i(w) with
//! Φ_i(w) = ln Σ_y exp ⟨w, φ(x_i, y) − φ(x_i, y_i)⟩. Its dual has a distribution α_i over labels for
//! each sequence: D(α) = Σ p_i H(α_i) − λ/2 ‖w(α)‖² (Collins et al. 2008; Le Priol, Piché and
//! Lacoste-Julien 2018). At the distributions of the model itself, which every gradient needs
//! anyway, P − D = λ/2 ‖w − w(α)‖² = ‖∇P(w)‖² / (2 λ). So each pass yields a certificate
//! (`docs/mathematics/sequences.md`).

mod columns;
mod dual_point;
mod layout;
mod pass;
mod penalty;
mod rounding;
mod solver;
mod stochastic;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

pub use penalty::ElasticNet;
pub use solver::{ConditionalFit, conditional_objective, conditional_path, fit_conditional};

use self::columns::FeatureColumns;
use self::layout::WeightLayout;
use self::rounding::Reach;
use super::marginals::chain_marginals;
use super::model::{Chain, ChainLink, FORBIDDEN, Model, Work};
use crate::data::Real;
use crate::dual::rounding::{Sum, gamma};
use crate::dual::{BlockTerms, Bounded, Shares};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::linalg::sparse::dot;
use crate::linalg::vectors;

/// A training problem: labelled sequences.
#[derive(Clone)]
struct Field<'a> {
    chain: &'a Chain,
    /// The layout of the weights in a pass, if it differs from the chain's.
    layout: Option<Arc<WeightLayout<'a>>>,
    /// The rows by column, if a pass computes the gradient feature by feature.
    columns: Option<Arc<FeatureColumns>>,
    shares: Shares,
    penalty: ElasticNet,
}

/// A loss above this value means that the true label has a forbidden transition.
const IMPOSSIBLE: f64 = -0.1 * FORBIDDEN;

/// Buffers for one sequence at a time.
#[derive(Default)]
struct FieldBuffers {
    scores: Vec<f64>,
    marginals: Vec<f64>,
    variances: Vec<f64>,
    work: Work,
    truth: Sparse,
    /// The logarithms of the costs of wrong labels, if there are costs.
    costs: Vec<f64>,
    /// The scores and the marginals of the labels that agree with the known labels, if not all
    /// labels of the sequence are known.
    agreeing: Vec<f64>,
    expected: Vec<f64>,
}

impl<'a> Field<'a> {
    fn new(chain: &'a Chain, shares: Shares, penalty: ElasticNet) -> Result<Self> {
        if !chain.is_labelled() {
            return Err(Error::argument("y", "the examples have no labels"));
        }
        if shares.n_blocks() != chain.n_examples() {
            return Err(Error::argument("X", "must have an example for each share"));
        }
        let shares = shares.with_features(chain.norms())?;
        let layout = WeightLayout::new(chain).map(Arc::new);
        let columns = FeatureColumns::new(chain).map(Arc::new);
        Ok(Self { chain, layout, columns, shares, penalty })
    }

    /// Whether some labels are unknown. The loss is then not convex, and there is no certificate.
    fn is_partial(&self) -> bool {
        self.chain.has_unknown()
    }

    /// Returns the objective at zero weights, P(0).
    fn null_objective(&self, interrupt: &Interrupt) -> Result<Bounded> {
        let mut scratch = FieldBuffers { work: Work::of(interrupt), ..FieldBuffers::default() };
        let (mut sum, mut known) = (Sum::default(), HashMap::new());
        for example in 0..self.shares.n_blocks() {
            interrupt.check()?;
            let share = Bounded::exact(self.shares.of(example));
            let len = self.chain.sequence_len(example);
            if let Some(loss) = known.get(&len) {
                sum.add(*loss * share);
                continue;
            }
            scratch.scores.resize(self.chain.n_parts(example), 0.0);
            self.chain.scores_at_zero(example, &mut scratch.scores);
            let loss = scratch.evaluate(self.chain, example, 0.0).0;
            interrupt.check()?;
            if loss.value() > IMPOSSIBLE {
                let message = format!(
                    "transitions forbid all labels of sentence {example} that agree with y"
                );
                return Err(Error::argument("y", message));
            }
            sum.add(loss * share);
            if self.chain.is_uniform() {
                known.insert(len, loss);
            }
        }
        Ok(sum.total())
    }

    /// Number of values that the weights of (feature, label) pairs take up in the layout of a pass, including padding.
    fn n_emissions(&self) -> usize {
        self.layout.as_deref().map_or(self.chain.transitions(), WeightLayout::len)
    }

    /// Number of values that all weights take up in the layout of a pass, including padding.
    fn n_laid(&self) -> usize {
        self.n_emissions() + self.chain.n_weights() - self.chain.transitions()
    }

    /// Converts weights to the layout of a pass.
    fn laid<'w, T: Real>(&self, weights: &'w [T]) -> Cow<'w, [T]> {
        match &self.layout {
            Some(layout) => Cow::Owned(layout.expand(weights)),
            None => Cow::Borrowed(weights),
        }
    }

    /// Converts sums of a pass to the chain's order.
    fn packed(&self, sums: Vec<f64>) -> Vec<f64> {
        let Some(layout) = &self.layout else { return sums };
        let mut packed = vec![0.0; self.chain.n_weights()];
        layout.add_to(&sums, &mut packed);
        packed[self.chain.transitions()..].copy_from_slice(&sums[layout.len()..]);
        packed
    }
}

impl FieldBuffers {
    /// Adds the costs to the scores, and computes the marginals. Returns Φ_i, with a bound on its rounding error for
    /// weights of norm at most `norm`, and the size of the numbers in its sum.
    fn evaluate(&mut self, chain: &Chain, example: usize, norm: f64) -> (Bounded, Reach) {
        self.marginals.resize(self.scores.len(), 0.0);
        chain.log_costs(example, &mut self.costs);
        self.scores.iter_mut().zip(&self.costs).for_each(|(score, cost)| *score += cost);
        let scores = chain.chain_scores(example, &self.scores);
        let log_sum = chain_marginals(scores, &mut self.work, &mut self.marginals);
        let cost = largest(&self.costs);
        let mut reach = Reach::of(scores);
        reach.largest += cost;
        let error = chain.size(example).loss_error(cost, norm) + reach.log_error();
        (Bounded::new(log_sum - self.true_score(chain, example), error), reach)
    }

    /// Returns the score of the true labels. If some labels are unknown, returns ln Σ exp(score) over all labels that
    /// agree with the known labels.
    fn true_score(&mut self, chain: &Chain, example: usize) -> f64 {
        self.expected.clear();
        if chain.is_known(example) {
            chain.parts(example, chain.truth(example), &mut self.truth);
            return dot(&self.scores, &self.truth);
        }
        self.agreeing.clone_from(&self.scores);
        chain.forbid_others(example, &mut self.agreeing);
        self.expected.resize(self.scores.len(), 0.0);
        let scores = chain.chain_scores(example, &self.agreeing);
        chain_marginals(scores, &mut self.work, &mut self.expected)
    }

    /// Subtracts the parts of the true label, or their expectation, from the marginals.
    fn subtract_truth(&mut self) {
        if self.expected.is_empty() {
            self.truth.iter().for_each(|(part, one)| self.marginals[*part as usize] -= one);
        } else {
            let expected = self.marginals.iter_mut().zip(&self.expected);
            expected.for_each(|(marginal, expected)| *marginal -= expected);
        }
    }

    /// Returns the terms that the distribution defined by the scores adds to the dual value.
    fn terms(&self, chain: &Chain, example: usize, (loss, reach): (Bounded, Reach)) -> BlockTerms {
        // H = Φ − ⟨θ, μ − μ(y)⟩. The computed θ includes the costs, so the expected cost is added.
        let linear = vectors::dot(&self.scores, &self.marginals);
        let entropy = loss.value() + dot(&self.scores, &self.truth) - linear;
        let costs =
            self.costs.iter().zip(&self.marginals).filter(|(cost, _)| is_finite_cost(**cost));
        let cost: f64 = costs.map(|(cost, marginal)| cost * marginal).sum();
        // One part per position, and one per transition.
        let n_parts = 2 * chain.sequence_len(example);
        let defect = reach.relative_error() * n_parts as f64;
        let rounding = (defect + gamma(self.scores.len()) * n_parts as f64) * reach.largest;
        BlockTerms {
            linear: entropy + cost - 2.0 * reach.log_error() - 2.0 * rounding,
            bend: 0.0,
            length: 2.0 * n_parts as f64 * (1.0 + gamma(8)) + defect,
            n_entries: self.scores.len(),
            defect,
            scales: chain.size(example).scales(largest(&self.costs)),
        }
    }
}

/// Whether a cost with this logarithm is above 0.
fn is_finite_cost(cost: f64) -> bool {
    cost > 1e-3 * FORBIDDEN
}

/// Returns the largest absolute value of the logarithms of costs that are not 0.
fn largest(costs: &[f64]) -> f64 {
    let costs = costs.iter().filter(|cost| is_finite_cost(**cost));
    costs.fold(0.0, |largest, cost| largest.max(cost.abs()))
}

/// Calls `visit(index, x, entry)` for each entry of δ at a transition, a first label or a last label that has a weight.
/// `index` counts weights from the first transition, and `x` is the value of the feature.
fn visit_transitions(
    chain: &Chain,
    example: usize,
    delta: &[f64],
    mut visit: impl FnMut(usize, f64, f64),
) {
    let (n_states, len) = (chain.n_states(), chain.sequence_len(example));
    let (nodes, edges) = delta.split_at(len * n_states);
    let links = chain.links();
    let mut visit_links = |first: usize, values: &[f64]| {
        for (index, value) in (first..).zip(values) {
            if links.of(index) == ChainLink::Weighted {
                visit(index, 1.0, *value);
            }
        }
    };
    for t in [0, len.saturating_sub(1)].into_iter().take(len.min(2)) {
        for first in links.at_ends(t, len) {
            visit_links(first, &nodes[t * n_states..][..n_states]);
        }
    }
    let n_edges = n_states * n_states;
    edges.chunks_exact(n_edges).for_each(|values| visit_links(0, values));
    let Some(rows) = chain.edge_rows() else { return };
    for (row, values) in (chain.rows_of(example).start + 1..).zip(edges.chunks_exact(n_edges)) {
        rows.visit(row, |feature, x| {
            let first = links.n_weights() + feature * n_edges;
            (first..).zip(values).for_each(|(index, value)| visit(index, x, *value));
        });
    }
}
