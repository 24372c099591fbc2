//! The best label of a chain, by the recursion of Viterbi (1967) in vectors over the labels.

use pulp::{Simd, WithSimd};

use crate::linalg::arch;
use crate::linalg::fold::{Max, fold};
use crate::structured::model::Work;

/// The scores of a sequence: `nodes`\[t, k\] of each position, and `edges`\[a, b\] of the transitions, the same
/// everywhere or (`stride` = K²) those into position t + 1 at t · `stride`.
#[derive(Debug, Clone, Copy)]
pub struct ChainScores<'a> {
    /// T × K.
    pub nodes: &'a [f64],
    /// K × K, once or T − 1 times.
    pub edges: &'a [f64],
    /// 0 where transitions score the same everywhere.
    pub stride: usize,
    /// K.
    pub n_states: usize,
}

impl<'a> ChainScores<'a> {
    /// The scores of the transitions into a position t > 0.
    #[inline(always)]
    pub fn edges_into(&self, t: usize) -> &'a [f64] {
        &self.edges[(t - 1) * self.stride..][..self.n_states * self.n_states]
    }

    /// The score of a label.
    pub fn of(&self, label: &[u16]) -> f64 {
        let n_states = self.n_states;
        let nodes = label.iter().zip(self.nodes.chunks_exact(n_states));
        let nodes: f64 = nodes.map(|(state, nodes)| nodes[usize::from(*state)]).sum();
        let steps = label.windows(2).zip(1..);
        let edges = steps.map(|(pair, t)| {
            self.edges_into(t)[usize::from(pair[0]) * n_states + usize::from(pair[1])]
        });
        nodes + edges.sum::<f64>()
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.nodes.len() / self.n_states
    }

    /// Whether there is no position.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Writes the label of the largest score, among equal ones the smallest read from the end; returns its
    /// score.
    pub fn decode(&self, work: &mut Work, label: &mut Vec<u32>) -> f64 {
        let (len, n_states) = (self.len(), self.n_states);
        label.clear();
        label.resize(len, 0);
        let n_nodes = self.nodes.len();
        work.values.resize(2 * n_nodes, 0.0);
        let (best, incoming) = work.values.split_at_mut(n_nodes);
        arch().dispatch(Forward { scores: *self, best, incoming });
        let (Some(last), Some(best_last)) = (label.last_mut(), best.chunks_exact(n_states).last())
        else {
            return 0.0;
        };
        *last = first_maximum(best_last);
        let score = best_last[*last as usize];
        for t in (1..len).rev() {
            let (next, edges) = (label[t] as usize, self.edges_into(t));
            let reached = incoming[t * n_states + next];
            let best = &best[(t - 1) * n_states..][..n_states];
            let arrives =
                |(from, best): (usize, &f64)| best + edges[from * n_states + next] == reached;
            label[t - 1] = best.iter().enumerate().position(arrives).unwrap_or(0) as u32;
        }
        score
    }
}

/// The smallest index of the largest value.
pub fn first_maximum(values: &[f64]) -> u32 {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best as u32
}

/// incoming_t\[b\] = max_a best_{t−1}\[a\] + edges\[a, b\] and best_t = nodes_t + incoming_t.
struct Forward<'a> {
    scores: ChainScores<'a>,
    best: &'a mut [f64],
    incoming: &'a mut [f64],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { scores, best, incoming } = self;
        let n_states = scores.n_states;
        let mut before: &[f64] = &[];
        let steps = scores.nodes.chunks_exact(n_states).zip(incoming.chunks_exact_mut(n_states));
        let steps = steps.zip(best.chunks_exact_mut(n_states)).enumerate();
        for (t, ((nodes, incoming), best)) in steps {
            if before.is_empty() {
                best.copy_from_slice(nodes);
            } else {
                let (from, edges) = (before.iter().enumerate(), scores.edges_into(t));
                fold::<Max, S>(
                    simd,
                    from.map(
                        #[inline(always)]
                        |(state, best)| (*best, &edges[state * n_states..]),
                    ),
                    incoming,
                );
                for ((best, node), incoming) in best.iter_mut().zip(nodes).zip(&*incoming) {
                    *best = node + incoming;
                }
            }
            before = best;
        }
    }
}
