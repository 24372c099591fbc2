//! Marginals of a chain by the forward-backward recursions, in probabilities scaled at each position.

use pulp::{Simd, WithSimd};

use super::sum_product::{log_marginals, transpose};
use crate::linalg::fold::{Sum, fold};
use crate::linalg::{arch, exp_minus};
use crate::structured::model::{ChainScores, Work};

/// Marginals that are lost in the sum of their row.
const NEGLIGIBLE: f64 = 1e-20;

/// A scale at which digits may have been lost to underflow.
const SMALLEST: f64 = 1e-200;

/// Writes the marginals of p(y) ∝ exp(score of y), nodes then transitions as the scores have them, and returns
/// ln Σ_y exp(score of y) (Rabiner 1989, with scaling).
///
/// One exponential for each node and each table of transitions is all that it needs; where probabilities
/// underflow it is done again [in logarithms](log_marginals).
pub fn chain_marginals(scores: ChainScores<'_>, work: &mut Work, marginals: &mut [f64]) -> f64 {
    let (n_states, n_nodes) = (scores.n_states, scores.nodes.len());
    let (n_tables, n_edges) = (scores.edges.len(), n_states * n_states);
    if n_nodes == 0 {
        marginals.fill(0.0);
        return 0.0;
    }
    work.values.resize(2 * n_nodes + n_tables + n_edges + n_states, 0.0);
    let (factors, rest) = work.values.split_at_mut(n_nodes);
    let (forward, rest) = rest.split_at_mut(n_nodes);
    let (edges, rest) = rest.split_at_mut(n_tables);
    let (transposed, ahead) = rest.split_at_mut(n_edges);
    let passes = Passes { scores, factors, forward, edges, transposed, ahead, marginals };
    match arch().dispatch(passes) {
        Some(log_sum) => log_sum,
        None => log_marginals(scores, work, marginals),
    }
}

struct Passes<'a> {
    scores: ChainScores<'a>,
    /// exp(node − the largest of its position).
    factors: &'a mut [f64],
    forward: &'a mut [f64],
    /// exp(edge − the largest of its table).
    edges: &'a mut [f64],
    transposed: &'a mut [f64],
    /// Factors times backward sums of the next position, scaled as the forward sums.
    ahead: &'a mut [f64],
    marginals: &'a mut [f64],
}

impl WithSimd for Passes<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> Option<f64> {
        let log_sum = self.forward(simd)?;
        self.backward(simd);
        // A sum that is no number, or lost its digits on the way back, is told by its marginals.
        let (n_states, n_nodes) = (self.scores.n_states, self.scores.nodes.len());
        let exact = self.marginals[..n_nodes].chunks_exact(n_states).all(|marginals| {
            let sum: f64 = marginals.iter().sum();
            (sum - 1.0).abs() < 1e-9
        });
        exact.then_some(log_sum)
    }
}

impl Passes<'_> {
    #[inline(always)]
    fn forward<S: Simd>(&mut self, simd: S) -> Option<f64> {
        let (scores, n_states) = (self.scores, self.scores.n_states);
        let n_edges = n_states * n_states;
        let mut log_sum = 0.0;
        for (factors, nodes) in
            self.factors.chunks_exact_mut(n_states).zip(scores.nodes.chunks_exact(n_states))
        {
            log_sum += exponentials(nodes, factors);
        }
        for (table, (edges, logs)) in
            self.edges.chunks_exact_mut(n_edges).zip(scores.edges.chunks_exact(n_edges)).enumerate()
        {
            let largest = exponentials(logs, edges);
            // The table of all transitions counts for each of them.
            let times = if scores.stride > 0 { 1 } else { scores.len() - 1 };
            log_sum += if table < scores.len() { times as f64 * largest } else { 0.0 };
        }
        for t in 0..scores.len() {
            let at = t * n_states;
            let (before, forward) = self.forward.split_at_mut(at);
            let (forward, factors) = (&mut forward[..n_states], &self.factors[at..at + n_states]);
            if t == 0 {
                forward.copy_from_slice(factors);
            } else {
                let edges = &self.edges[(t - 1) * scores.stride..];
                let from = before[at - n_states..].iter().enumerate();
                fold::<Sum, S>(
                    simd,
                    from.map(
                        #[inline(always)]
                        |(state, value)| (*value, &edges[state * n_states..]),
                    ),
                    forward,
                );
                forward.iter_mut().zip(factors).for_each(|(sum, factor)| *sum *= factor);
            }
            let scale: f64 = forward.iter().sum();
            // Written so that what is no number ends here as well.
            if !(scale > SMALLEST && scale < 1.0 / SMALLEST) {
                return None;
            }
            let inverse = 1.0 / scale;
            forward.iter_mut().for_each(|value| *value *= inverse);
            log_sum += scale.ln();
        }
        Some(log_sum)
    }

    #[inline(always)]
    fn backward<S: Simd>(&mut self, simd: S) {
        let (scores, n_states) = (self.scores, self.scores.n_states);
        let (n_nodes, n_edges) = (scores.nodes.len(), n_states * n_states);
        let (nodes, counts) = self.marginals.split_at_mut(n_nodes);
        counts.fill(0.0);
        let last = n_nodes - n_states;
        nodes[last..].copy_from_slice(&self.forward[last..]);
        self.ahead.copy_from_slice(&self.factors[last..]);
        for t in (1..scores.len()).rev() {
            let (edges, at) =
                (&self.edges[(t - 1) * scores.stride..][..n_edges], (t - 1) * n_states);
            if scores.stride > 0 || t + 1 == scores.len() {
                transpose(edges, self.transposed, n_states);
            }
            let (forward, backward) =
                (&self.forward[at..at + n_states], &mut nodes[at..at + n_states]);
            let (ahead, transposed) = (&*self.ahead, &*self.transposed);
            fold::<Sum, S>(
                simd,
                ahead.iter().enumerate().map(
                    #[inline(always)]
                    |(state, value)| (*value, &transposed[state * n_states..]),
                ),
                backward,
            );
            // The scale for which the marginals sum to 1.
            let sum: f64 = backward.iter().zip(forward).map(|(back, forth)| back * forth).sum();
            let inverse = 1.0 / sum;
            let counts = &mut counts[(t - 1) * scores.stride..];
            for (from, forth) in forward.iter().enumerate() {
                let share = forth * inverse;
                if share * backward[from] > NEGLIGIBLE {
                    let own = from * n_states..(from + 1) * n_states;
                    let terms = edges[own.clone()].iter().zip(ahead);
                    for (count, (edge, ahead)) in counts[own].iter_mut().zip(terms) {
                        *count += share * edge * ahead;
                    }
                }
            }
            let factors = &self.factors[at..at + n_states];
            for ((ahead, back), factor) in self.ahead.iter_mut().zip(&*backward).zip(factors) {
                *ahead = back * factor * inverse;
            }
            backward.iter_mut().zip(forward).for_each(|(back, forth)| *back *= forth * inverse);
        }
    }
}

/// Writes exp(log − the largest) and returns the largest.
#[inline(always)]
fn exponentials(logs: &[f64], values: &mut [f64]) -> f64 {
    let largest = logs.iter().fold(f64::NEG_INFINITY, |largest: f64, log| largest.max(*log));
    for (value, log) in values.iter_mut().zip(logs) {
        *value = exp_minus(largest - log);
    }
    largest
}
