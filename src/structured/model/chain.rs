use pulp::{Simd, WithSimd};

use super::rows::Rows;
use super::{Hamming, Model, PartSize, Work};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::linalg::fold::{Max, fold};
use crate::linalg::{Sparse, TouchedVector, arch};

/// Sequences whose neighbouring labels interact: y_t in 0..K for each row x_t (Taskar, Guestrin and Koller 2003).
///
/// ⟨w, φ(x, y)⟩ = Σ_t ⟨W_{y_t}, x_t⟩ + Σ_{t>0} T\[y_{t−1}, y_t\] + start\[y_0\] + end\[y_last\]. The weights are
/// W by feature, then class; T, K × K; and, if asked for, `start` and `end`. Parts t K + k stand for
/// y_t = k, and parts len K + a K + b count the transitions from a to b. The loss is [`Hamming`].
#[derive(Debug, Clone)]
pub struct Chain {
    rows: Rows,
    offsets: Vec<usize>,
    labels: Option<Vec<u32>>,
    n_states: usize,
    boundaries: bool,
    loss: Hamming,
}

impl Chain {
    /// Sequence i has the rows `offsets[i]..offsets[i + 1]` of `data` and, in training, these entries of
    /// `labels`; `boundaries` asks for the weights `start` and `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming what does not fit: `X`, `Y` or `n_states`.
    pub fn new(
        data: Data<'_>,
        offsets: &[usize],
        labels: Option<&[u32]>,
        n_states: usize,
        boundaries: bool,
        loss: Hamming,
    ) -> Result<Self> {
        let rows = Rows::new(data)?;
        if n_states == 0 || n_states > 1 << 15 {
            let message = format!("must be between 1 and 32768 (is {n_states})");
            return Err(Error::argument("n_states", message));
        }
        if offsets.first() != Some(&0)
            || offsets.last() != Some(&rows.len())
            || offsets.windows(2).any(|pair| pair[0] > pair[1])
        {
            let message = "the offsets of the sequences must rise from 0 to the number of rows";
            return Err(Error::argument("X", message));
        }
        let longest = offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        if u32::try_from((longest + n_states).saturating_mul(n_states)).is_err() {
            return Err(Error::argument("X", "a sequence has too many rows"));
        }
        if let Some(labels) = labels {
            check_labels(labels, rows.len(), n_states)?;
        }
        let (offsets, labels) = (offsets.to_vec(), labels.map(<[u32]>::to_vec));
        Ok(Self { rows, offsets, labels, n_states, boundaries, loss })
    }

    /// Number of rows of a sequence.
    pub fn sequence_len(&self, example: usize) -> usize {
        self.offsets[example + 1] - self.offsets[example]
    }

    /// Number of labels K.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// Index of the first transition weight.
    fn transitions(&self) -> usize {
        self.rows.n_features() * self.n_states
    }

    /// The weights `start` and `end`, one after the other, that add to the score of (t, class).
    fn boundary(&self, example: usize, t: usize) -> impl Iterator<Item = usize> + use<> {
        let start = self.transitions() + self.n_states * self.n_states;
        let first = (self.boundaries && t == 0).then_some(start);
        let last = self.boundaries && t + 1 == self.sequence_len(example);
        first.into_iter().chain(last.then_some(start + self.n_states))
    }
}

/// Whether there are as many labels as examples, all below the number of classes.
pub(super) fn check_labels(labels: &[u32], n_examples: usize, n_classes: usize) -> Result<()> {
    if labels.len() != n_examples {
        let message = format!("{} labels for {n_examples} rows of X", labels.len());
        return Err(Error::argument("Y", message));
    }
    match labels.iter().find(|label| **label as usize >= n_classes) {
        Some(label) => {
            let message = format!("labels must be below {n_classes}, and one is {label}");
            Err(Error::argument("Y", message))
        }
        None => Ok(()),
    }
}

impl Model for Chain {
    fn n_examples(&self) -> usize {
        self.offsets.len() - 1
    }

    fn is_labelled(&self) -> bool {
        self.labels.is_some()
    }

    fn n_weights(&self) -> usize {
        let boundaries = if self.boundaries { 2 * self.n_states } else { 0 };
        self.transitions() + self.n_states * self.n_states + boundaries
    }

    fn n_parts(&self, example: usize) -> usize {
        (self.sequence_len(example) + self.n_states) * self.n_states
    }

    fn size(&self, example: usize) -> PartSize {
        let (norm, n_features) = self.rows.largest();
        // A node may have the two boundary features, a transition has one of its own.
        let n_parts = 2 * self.sequence_len(example);
        let norm = (norm * norm + 2.0).sqrt() * (1.0 + f64::EPSILON);
        PartSize { norm, n_features: n_features + 2, n_parts, depth: n_parts }
    }

    fn scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let (len, n_states) = (self.sequence_len(example), self.n_states);
        let (nodes, edges) = scores.split_at_mut(len * n_states);
        let rows = self.offsets[example]..self.offsets[example + 1];
        self.rows.scores(rows, n_states, weights, nodes);
        edges.copy_from_slice(&weights[self.transitions()..][..n_states * n_states]);
        for t in [0, len.saturating_sub(1)].into_iter().take(len) {
            for start in self.boundary(example, t) {
                let nodes = &mut nodes[t * n_states..][..n_states];
                nodes.iter_mut().zip(&weights[start..]).for_each(|(node, bias)| *node += bias);
            }
        }
    }

    fn scores_at(&self, example: usize, parts: &[u32], weights: &[f64], scores: &mut [f64]) {
        let n_nodes = self.sequence_len(example) * self.n_states;
        for &part in parts {
            let part = part as usize;
            scores[part] = if part < n_nodes {
                let (t, class) = (part / self.n_states, part % self.n_states);
                let row = self.offsets[example] + t;
                let score = self.rows.score(row, class, self.n_states, weights);
                let bias = self.boundary(example, t).map(|start| weights[start + class]);
                score + bias.sum::<f64>()
            } else {
                weights[self.transitions() + part - n_nodes]
            };
        }
    }

    fn add_costs(&self, example: usize, scores: &mut [f64]) -> f64 {
        let truth = self.truth(example);
        let cost = self.loss.cost(truth.len());
        for (scores, &right) in scores.chunks_exact_mut(self.n_states).zip(truth) {
            let kept = scores[right as usize];
            scores.iter_mut().for_each(|score| *score += cost);
            scores[right as usize] = kept;
        }
        0.0
    }

    /// The Viterbi algorithm; among equal labels it is the smallest one read from the end.
    fn decode(&self, example: usize, scores: &[f64], work: &mut Work, label: &mut Vec<u32>) {
        let (len, n_states) = (self.sequence_len(example), self.n_states);
        label.clear();
        label.resize(len, 0);
        let (nodes, edges) = scores.split_at(len * n_states);
        let n_nodes = nodes.len();
        work.values.resize(2 * n_nodes, 0.0);
        let (best, incoming) = work.values.split_at_mut(n_nodes);
        arch().dispatch(Forward { nodes, edges, n_states, best, incoming });
        let (Some(last), Some(best_last)) = (label.last_mut(), best.chunks_exact(n_states).last())
        else {
            return;
        };
        *last = first_maximum(best_last);
        for t in (1..len).rev() {
            let next = label[t] as usize;
            let reached = incoming[t * n_states + next];
            let best = &best[(t - 1) * n_states..][..n_states];
            let arrives =
                |(from, best): (usize, &f64)| best + edges[from * n_states + next] == reached;
            label[t - 1] = best.iter().enumerate().position(arrives).unwrap_or(0) as u32;
        }
    }

    fn parts(&self, example: usize, label: &[u32], parts: &mut Sparse) {
        let n_states = self.n_states as u32;
        parts.clear();
        parts.extend(label.iter().zip(0..).map(|(state, t)| (t * n_states + state, 1.0)));
        let first = self.sequence_len(example) as u32 * n_states;
        let n_nodes = parts.len();
        parts.extend(label.windows(2).map(|pair| (first + pair[0] * n_states + pair[1], 1.0)));
        parts[n_nodes..].sort_unstable_by_key(|(part, _)| *part);
        parts.dedup_by(|next, counted| {
            let same = next.0 == counted.0;
            counted.1 += if same { next.1 } else { 0.0 };
            same
        });
    }

    fn truth(&self, example: usize) -> &[u32] {
        let rows = self.offsets[example]..self.offsets[example + 1];
        self.labels.as_ref().map_or(&[], |labels| &labels[rows])
    }

    fn add_image(
        &self,
        example: usize,
        delta: &[(u32, f64)],
        scale: f64,
        image: &mut TouchedVector,
    ) {
        let n_states = self.n_states;
        let n_nodes = self.sequence_len(example) * n_states;
        let (nodes, edges) =
            delta.split_at(delta.partition_point(|(part, _)| (*part as usize) < n_nodes));
        for group in nodes.chunk_by(|a, b| a.0 as usize / n_states == b.0 as usize / n_states) {
            let t = group[0].0 as usize / n_states;
            let classes = group.iter().map(|(part, value)| (part % n_states as u32, *value));
            for start in self.boundary(example, t) {
                classes
                    .clone()
                    .for_each(|(class, value)| image.add(start + class as usize, scale * value));
            }
            self.rows.add_image(self.offsets[example] + t, classes, n_states, scale, image);
        }
        for (part, value) in edges {
            image.add(self.transitions() + *part as usize - n_nodes, scale * value);
        }
    }
}

/// The smallest index of the largest value.
pub(in crate::structured) fn first_maximum(values: &[f64]) -> u32 {
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
    nodes: &'a [f64],
    edges: &'a [f64],
    n_states: usize,
    best: &'a mut [f64],
    incoming: &'a mut [f64],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { nodes, edges, n_states, best, incoming } = self;
        let mut before: &[f64] = &[];
        let steps = nodes.chunks_exact(n_states).zip(incoming.chunks_exact_mut(n_states));
        for ((nodes, incoming), best) in steps.zip(best.chunks_exact_mut(n_states)) {
            if before.is_empty() {
                best.copy_from_slice(nodes);
            } else {
                let from = before.iter().enumerate();
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
