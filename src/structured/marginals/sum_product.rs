//! Marginals of a chain by the forward-backward recursions, in logarithms.

use pulp::{Simd, WithSimd};

use super::{Marginals, Projection};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{arch, exp_minus, transpose};
use crate::structured::fold::{Max, fold};
use crate::structured::model::{Chain, ChainScores, Work};

/// Marginals below this fraction of their row's sum are negligible compared with rounding errors.
const NEGLIGIBLE: f64 = 1e-20;

impl Marginals for Chain {
    fn default_projection(&self) -> Projection {
        Projection::Entropic
    }

    /// Writes the expectation of μ(y) under p(y) ∝ exp ⟨potentials, μ(y)⟩, whose entropy is H; the result is exact up
    /// to rounding.
    fn entropic(
        &self,
        example: usize,
        potentials: &[f64],
        _: f64,
        work: &mut Work,
        marginals: &mut [f64],
    ) -> Result<f64> {
        log_marginals(self.chain_scores(example, potentials), work, marginals);
        Ok(0.0)
    }
}

/// Writes the marginals of p(y) ∝ exp(score of y), nodes then transitions in the order of the
/// scores, and returns ln Σ_y exp(score of y). Works in logarithms, so that scores may have any
/// size. After an interrupt the results are meaningless.
pub fn log_marginals(scores: ChainScores<'_>, work: &mut Work, marginals: &mut [f64]) -> f64 {
    let (n_states, n_nodes) = (scores.n_states, scores.nodes.len());
    let Work { values, interrupt, .. } = work;
    values.resize(2 * n_nodes + n_states * (n_states + 3), 0.0);
    let (forward, rest) = values.split_at_mut(n_nodes);
    let (backward, rest) = rest.split_at_mut(n_nodes);
    let (transposed, rest) = rest.split_at_mut(n_states * n_states);
    let (ahead, rest) = rest.split_at_mut(n_states);
    let (largest, sums) = rest.split_at_mut(n_states);
    let messages = Messages { scores, transposed, forward, backward, ahead, largest, sums };
    arch().dispatch(SumProduct { messages, marginals, interrupt })
}

/// Logarithms of the forward sums and of the backward sums. The forward sum of a position includes this position; its
/// backward sum covers only the following positions.
struct Messages<'a> {
    scores: ChainScores<'a>,
    transposed: &'a mut [f64],
    forward: &'a mut [f64],
    backward: &'a mut [f64],
    /// Logarithms of the backward sums plus the node scores, both of the next position.
    ahead: &'a mut [f64],
    largest: &'a mut [f64],
    sums: &'a mut [f64],
}

struct SumProduct<'a> {
    messages: Messages<'a>,
    marginals: &'a mut [f64],
    interrupt: &'a Interrupt,
}

impl WithSimd for SumProduct<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { messages, marginals, interrupt } = self;
        let Messages { scores, transposed, forward, backward, ahead, largest, sums } = messages;
        let (nodes, n_nodes, n_states) = (scores.nodes, scores.nodes.len(), scores.n_states);
        let (marginals, counts) = marginals.split_at_mut(n_nodes);
        counts.fill(0.0);
        if n_nodes == 0 {
            return 0.0;
        }
        forward[..n_states].copy_from_slice(&nodes[..n_states]);
        for t in 1..scores.len() {
            if scores.checks_interrupt(t) && interrupt.is_raised() {
                return 0.0;
            }
            let at = t * n_states;
            let (before, forward) = forward[at - n_states..].split_at_mut(n_states);
            let forward = &mut forward[..n_states];
            log_sums(simd, before, scores.edges_into(t), largest, sums, forward);
            forward.iter_mut().zip(&nodes[at..]).for_each(|(forward, node)| *forward += node);
        }
        backward[n_nodes - n_states..].fill(0.0);
        for t in (0..scores.len()).rev() {
            if scores.checks_interrupt(t) && interrupt.is_raised() {
                return 0.0;
            }
            let (at, next) = (t * n_states, (t + 1) * n_states);
            if next < n_nodes {
                let nodes = nodes[next..].iter().zip(&backward[next..]);
                ahead
                    .iter_mut()
                    .zip(nodes)
                    .for_each(|(ahead, (node, after))| *ahead = node + after);
                if scores.stride > 0 || next + n_states == n_nodes {
                    transpose(scores.edges_into(t + 1), n_states, transposed, n_states);
                }
                log_sums(simd, ahead, transposed, largest, sums, &mut backward[at..next]);
            }
            let marginals = &mut marginals[at..next];
            let logs = forward[at..next].iter().zip(&backward[at..next]);
            marginals.iter_mut().zip(logs).for_each(|(marginal, (a, b))| *marginal = a + b);
            softmax(marginals);
            if next < n_nodes {
                let counts = &mut counts[t * scores.stride..];
                for (from, &marginal) in marginals.iter().enumerate() {
                    if marginal > NEGLIGIBLE {
                        let own = from * n_states..(from + 1) * n_states;
                        let edges = &scores.edges_into(t + 1)[own.clone()];
                        let logs = edges.iter().zip(&*ahead);
                        for (count, (edge, ahead)) in counts[own].iter_mut().zip(logs) {
                            *count += marginal * exp_minus(backward[at + from] - (edge + ahead));
                        }
                    }
                }
            }
        }
        let last = &forward[n_nodes - n_states..];
        let largest = last.iter().fold(f64::NEG_INFINITY, |largest: f64, log| largest.max(*log));
        largest + last.iter().map(|log| exp_minus(largest - log)).sum::<f64>().ln()
    }
}

/// Computes logs\[b\] = ln Σ_a exp(from\[a\] + edges\[a, b\]).
#[inline(always)]
fn log_sums<S: Simd>(
    simd: S,
    from: &[f64],
    edges: &[f64],
    largest: &mut [f64],
    sums: &mut [f64],
    logs: &mut [f64],
) {
    let n_states = from.len();
    let rows = from.iter().enumerate();
    fold::<Max, S, f64>(
        simd,
        rows.map(
            #[inline(always)]
            |(state, from)| (*from, &edges[state * n_states..]),
        ),
        largest,
    );
    sums.fill(0.0);
    for (from, edges) in from.iter().zip(edges.chunks_exact(n_states)) {
        for (sum, (largest, edge)) in sums.iter_mut().zip(largest.iter().zip(edges)) {
            *sum += exp_minus(largest - (from + edge));
        }
    }
    for (log, (largest, sum)) in logs.iter_mut().zip(largest.iter().zip(sums)) {
        *log = largest + sum.ln();
    }
}

/// Replaces logarithms by their exponentials, normalised to sum to 1.
#[inline(always)]
pub(in crate::structured) fn softmax(logs: &mut [f64]) {
    let largest = logs.iter().fold(f64::NEG_INFINITY, |largest: f64, log| largest.max(*log));
    logs.iter_mut().for_each(|log| *log = exp_minus(largest - *log));
    let sum: f64 = logs.iter().sum();
    logs.iter_mut().for_each(|value| *value /= sum);
}
