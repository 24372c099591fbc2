//! The best label of a chain by the Viterbi algorithm (1967), vectorised over the labels.

use pulp::{Simd, WithSimd};

use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::structured::fold::{Max, fold};
use crate::structured::model::{CACHED_ENTRIES, Work};

/// Number of additions between two interrupt checks; together they take well below 100 ms.
const ADDITIONS_PER_CHECK: usize = 1 << 24;

/// The scores of a sequence: `nodes`\[t, k\] for each position, and `edges`\[a, b\] for the
/// transitions. If `stride` is 0, all positions share the transition scores; if it is K², the
/// scores of transitions into position t + 1 begin at t · `stride`.
#[derive(Debug, Clone, Copy)]
pub struct ChainScores<'a> {
    /// The T × K scores of the nodes.
    pub nodes: &'a [f64],
    /// The scores of transitions: one K × K table for all positions, or T − 1 tables.
    pub edges: &'a [f64],
    /// Distance between the transition scores of consecutive positions; 0 if all positions share
    /// them.
    pub stride: usize,
    /// Number K of labels.
    pub n_states: usize,
}

impl<'a> ChainScores<'a> {
    /// Returns the scores of the transitions into a position t > 0.
    #[inline(always)]
    pub fn edges_into(&self, t: usize) -> &'a [f64] {
        &self.edges[(t - 1) * self.stride..][..self.n_states * self.n_states]
    }

    /// Returns the score of a label.
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

    /// Whether the sequence has no positions.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a recursion checks its interrupt at this position.
    pub fn checks_interrupt(&self, t: usize) -> bool {
        t.is_multiple_of((ADDITIONS_PER_CHECK / (self.n_states * self.n_states)).max(1))
    }

    /// Writes the label sequence with the largest score and returns this score. If several label sequences have this
    /// score, writes the one with the smallest state at the last position, then at the position before it, and so on.
    /// After an interrupt, all labels of the sequence are 0.
    pub fn decode(&self, work: &mut Work, label: &mut Vec<u32>) -> f64 {
        let (len, n_states) = (self.len(), self.n_states);
        label.clear();
        label.resize(len, 0);
        let n_nodes = self.nodes.len();
        let Work { values, indices, interrupt } = work;
        values.resize(2 * n_nodes + 2 * n_states, 0.0);
        let (best, rest) = values.split_at_mut(n_nodes);
        let (incoming, rest) = rest.split_at_mut(n_nodes);
        let (highest, bounds) = rest.split_at_mut(n_states);
        let rows = Rows { highest, bounds, order: indices };
        if arch().dispatch(Forward { scores: *self, best, incoming, rows, interrupt }).is_none() {
            return 0.0;
        }
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

/// Returns the smallest index of the largest value.
pub fn first_maximum(values: &[f64]) -> u32 {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best as u32
}

/// The forward pass: incoming_t\[b\] = max_a best_{t−1}\[a\] + edges\[a, b\], and
/// best_t = nodes_t + incoming_t.
struct Forward<'a> {
    scores: ChainScores<'a>,
    best: &'a mut [f64],
    incoming: &'a mut [f64],
    rows: Rows<'a>,
    interrupt: &'a Interrupt,
}

impl WithSimd for Forward<'_> {
    /// Number of rows of large tables that were read; None after an interrupt.
    type Output = Option<usize>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<usize> {
        let Self { scores, best, incoming, mut rows, interrupt } = self;
        let n_states = scores.n_states;
        // Only the rows of a large table that may contain a maximum are read.
        let is_large = scores.stride == 0 && n_states * n_states > CACHED_ENTRIES;
        if is_large {
            rows.prepare(scores.edges);
        }
        let (mut before, mut n_read): (&[f64], _) = (&[], 0);
        let steps = scores.nodes.chunks_exact(n_states).zip(incoming.chunks_exact_mut(n_states));
        let steps = steps.zip(best.chunks_exact_mut(n_states)).enumerate();
        for (t, ((nodes, incoming), best)) in steps {
            if scores.checks_interrupt(t) && interrupt.is_raised() {
                return None;
            }
            if before.is_empty() {
                best.copy_from_slice(nodes);
            } else {
                let (from, edges) = (before.iter().enumerate(), scores.edges_into(t));
                if is_large {
                    n_read += rows.maxima(simd, before, edges, incoming);
                } else {
                    fold::<Max, S, f64>(
                        simd,
                        from.map(
                            #[inline(always)]
                            |(state, best)| (*best, &edges[state * n_states..]),
                        ),
                        incoming,
                    );
                }
                for ((best, node), incoming) in best.iter_mut().zip(nodes).zip(&*incoming) {
                    *best = node + incoming;
                }
            }
            before = best;
        }
        Some(n_read)
    }
}

/// Maxima over the rows of a large table that all positions share. Rows are read in decreasing order of an upper bound
/// on their sums, until no later row can change a maximum. The maxima equal the maxima over all rows, bit for bit,
/// because rounding is monotone.
struct Rows<'a> {
    /// The largest entry of each row.
    highest: &'a mut [f64],
    /// For each row, its best score plus its largest entry: an upper bound on its sums.
    bounds: &'a mut [f64],
    /// The rows by decreasing bound.
    order: &'a mut Vec<u32>,
}

impl Rows<'_> {
    fn prepare(&mut self, edges: &[f64]) {
        for (highest, row) in self.highest.iter_mut().zip(edges.chunks_exact(self.bounds.len())) {
            *highest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
        self.order.clear();
        self.order.extend(0..self.bounds.len() as u32);
    }

    /// Computes maxima\[b\] = max_a best\[a\] + edges\[a, b\]. Returns the number of rows that were
    /// read.
    #[inline(always)]
    fn maxima<S: Simd>(
        &mut self,
        simd: S,
        best: &[f64],
        edges: &[f64],
        maxima: &mut [f64],
    ) -> usize {
        let Self { highest, bounds, order } = self;
        let sums = best.iter().zip(&**highest);
        bounds.iter_mut().zip(sums).for_each(|(bound, (best, highest))| *bound = best + highest);
        // The order for the previous position is nearly correct for this position, so a stable sort is fast.
        order.sort_by(|a, b| bounds[*b as usize].total_cmp(&bounds[*a as usize]));
        maxima.fill(f64::NEG_INFINITY);
        let mut lowest = f64::NEG_INFINITY;
        for (n_read, &row) in order.iter().enumerate() {
            let row = row as usize;
            if bounds[row] <= lowest {
                return n_read;
            }
            raise(simd, best[row], &edges[row * best.len()..][..best.len()], maxima);
            // Checks only when the number of rows read is a power of two, because finding the
            // smallest maximum takes as long as reading a row.
            if (n_read + 1).is_power_of_two() {
                lowest = maxima.iter().copied().fold(f64::INFINITY, f64::min);
            }
        }
        order.len()
    }
}

/// Replaces `maxima` by max(maxima, x + row), entry by entry.
#[inline(always)]
fn raise<S: Simd>(simd: S, x: f64, row: &[f64], maxima: &mut [f64]) {
    let (row, row_rest) = S::as_simd_f64s(row);
    let (maxima, maxima_rest) = S::as_mut_simd_f64s(maxima);
    let all = simd.splat_f64s(x);
    for (maximum, row) in maxima.iter_mut().zip(row) {
        *maximum = simd.max_f64s(*maximum, simd.add_f64s(all, *row));
    }
    for (maximum, row) in maxima_rest.iter_mut().zip(row_rest) {
        *maximum = maximum.max(x + row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maxima over large tables, and the number of rows read for each position.
    fn forward(n_states: usize, nodes: &[f64], edges: &[f64]) -> (Vec<f64>, Option<usize>) {
        let scores = ChainScores { nodes, edges, stride: 0, n_states };
        let (mut best, mut incoming) = (vec![0.0; nodes.len()], vec![0.0; nodes.len()]);
        let (mut highest, mut bounds) = (vec![0.0; n_states], vec![0.0; n_states]);
        let rows = Rows { highest: &mut highest, bounds: &mut bounds, order: &mut Vec::new() };
        let (best, interrupt) = (&mut best[..], &Interrupt::default());
        let n_read =
            arch().dispatch(Forward { scores, best, incoming: &mut incoming, rows, interrupt });
        (incoming.split_off(n_states), n_read)
    }

    #[test]
    fn large_tables_are_read_only_as_far_as_necessary() {
        let (n_states, len) = (400, 4);
        assert!(n_states * n_states > CACHED_ENTRIES);
        let noise = |i: usize| (i * 2654435761 % 1000) as f64;
        let nodes: Vec<f64> = (0..len * n_states).map(noise).collect();
        let (_, n_read) = forward(n_states, &nodes, &vec![0.0; n_states * n_states]);
        // If no transition has a weight, one row contains all maxima.
        assert_eq!(n_read, Some(len - 1));
        let edges: Vec<f64> = (0..n_states * n_states).map(|i| 0.01 * noise(i + 7)).collect();
        let (maxima, n_read) = forward(n_states, &nodes, &edges);
        assert!(n_read.unwrap() < (len - 1) * n_states / 4, "{n_read:?}");
        let mut before = nodes[..n_states].to_vec();
        for (maxima, nodes) in maxima.chunks(n_states).zip(nodes.chunks(n_states).skip(1)) {
            for (to, maximum) in maxima.iter().enumerate() {
                let sums = before.iter().zip(edges[to..].iter().step_by(n_states));
                let all = sums.map(|(a, b)| a + b).fold(f64::NEG_INFINITY, f64::max);
                assert_eq!(*maximum, all);
            }
            before = nodes.iter().zip(maxima).map(|(node, incoming)| node + incoming).collect();
        }
    }

    #[test]
    fn an_interrupt_ends_a_recursion() {
        let (nodes, edges) = (vec![1.0; 8], vec![0.0; 4]);
        let scores = ChainScores { nodes: &nodes, edges: &edges, stride: 0, n_states: 2 };
        let (mut work, mut label) = (Work::default(), Vec::new());
        assert_eq!(scores.decode(&mut work, &mut label), 4.0);
        work.interrupt.raise();
        assert_eq!((scores.decode(&mut work, &mut label), label), (0.0, vec![0; 4]));
    }
}
