//! The structured model of multi-label classification with scores of pairs of labels.

use super::chain::first_maximum;
use super::graph::{ForestNode, Graph, Link};
use super::rows::CompactRows;
use super::{Hamming, Model, PartSize, Work};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::linalg::{Sparse, TouchedVector};

/// Any subset of q labels for each row x, with scores of pairs (Finley and Joachims 2008): ⟨w, φ(x,
/// y)⟩ = Σ_l y_l ⟨W_l, x⟩ + Σ_{e = (a, b)} P_e\[y_a, y_b\].
///
/// The weights are W by feature, then label; then P, with four numbers for each pair e of the
/// graph, in the order (y_a, y_b) = 00, 01, 10, 11. Part l means that label l is set, and part q +
/// 4 e + 2 y_a + y_b that the pair e is in this state. A label is the vector y of zeros and ones,
/// and the loss is [`Hamming`].
#[derive(Debug, Clone)]
pub struct Multilabel {
    rows: CompactRows,
    labels: Option<Vec<u32>>,
    n_labels: usize,
    graph: Graph,
    loss: Hamming,
}

impl Multilabel {
    /// Maximum number of labels of a graph with cycles, for which all sets of labels are
    /// enumerated.
    pub const MAX_ENUMERATED: usize = 16;

    /// Creates the model from rows and, for training, their 0/1 label matrix, row by row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument: `X`, `y`, `n_labels`, or `edges`, if
    /// the graph has a different number of labels, or has cycles and more labels than can be
    /// enumerated.
    pub fn new(
        data: Data<'_>,
        labels: Option<&[u8]>,
        n_labels: usize,
        edges: Graph,
        loss: Hamming,
    ) -> Result<Self> {
        let rows = CompactRows::new(data)?;
        if n_labels == 0 || n_labels > 1 << 16 {
            let message = format!("must be between 1 and 65536 (is {n_labels})");
            return Err(Error::argument("n_labels", message));
        }
        if edges.n_labels() != n_labels {
            let message =
                format!("the graph has {} labels, but y has {n_labels}", edges.n_labels());
            return Err(Error::argument("edges", message));
        }
        if edges.forest().is_none() && n_labels > Self::MAX_ENUMERATED {
            let message = format!(
                "a graph with cycles may have at most {} labels (has {n_labels}); use a tree",
                Self::MAX_ENUMERATED
            );
            return Err(Error::argument("edges", message));
        }
        if let Some(labels) = labels {
            if labels.len() != rows.len() * n_labels {
                let message =
                    format!("must be {} × {n_labels}, with one row for each row of X", rows.len());
                return Err(Error::argument("y", message));
            }
            if labels.iter().any(|label| *label > 1) {
                return Err(Error::argument("y", "must contain only zeros and ones"));
            }
        }
        let labels = labels.map(|labels| labels.iter().map(|label| u32::from(*label)).collect());
        Ok(Self { rows, labels, n_labels, graph: edges, loss })
    }

    /// The pairs of labels that interact.
    pub fn edges(&self) -> &[[u32; 2]] {
        self.graph.edges()
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.n_labels
    }

    /// The labels with parents before children; None if the graph has a cycle.
    pub(in crate::structured) fn forest(&self) -> Option<&[ForestNode]> {
        self.graph.forest()
    }

    /// Index of the first pairwise weight.
    fn pairwise(&self) -> usize {
        self.rows.n_features() * self.n_labels
    }

    /// Decodes by enumerating all label sets. Among sets of equal value, chooses the smallest as a
    /// binary number.
    fn enumerate(&self, scores: &[f64], work: &mut Work, label: &mut [u32]) {
        let best = first_maximum(self.tabulate(scores, work));
        label.iter_mut().enumerate().for_each(|(at, label)| *label = best >> at & 1);
    }

    /// Computes the value Σ_{l in S} u_l + Σ_{a, b in S} J_ab of every label set S, relative to the
    /// empty set. Each value is computed from the value of S without its last label.
    pub(in crate::structured) fn tabulate<'w>(
        &self,
        scores: &[f64],
        work: &'w mut Work,
    ) -> &'w mut [f64] {
        let q = self.n_labels;
        let (nodes, pairs) = scores.split_at(q);
        work.values.clear();
        work.values.resize(q * (q + 1) + (3 << q) / 2, 0.0);
        let (coefficients, tables) = work.values.split_at_mut(q * (q + 1));
        let (unary, joint) = coefficients.split_at_mut(q);
        let (values, sums) = tables.split_at_mut(1 << q);
        unary.copy_from_slice(nodes);
        for (&[a, b], pair) in self.edges().iter().zip(pairs.as_chunks::<4>().0) {
            let (a, b) = (a as usize, b as usize);
            unary[a] += pair[2] - pair[0];
            unary[b] += pair[1] - pair[0];
            joint[a.max(b) * q + a.min(b)] = (pair[3] - pair[2]) - (pair[1] - pair[0]);
        }
        for (last, &unary) in unary.iter().enumerate() {
            // sums[S] = u_last + Σ_{a in S} J_{a, last} is the gain from adding label `last` to the
            // set S.
            sums[0] = unary;
            for (a, joint) in joint[last * q..][..last].iter().enumerate() {
                let (without, with) = sums[..2 << a].split_at_mut(1 << a);
                with.iter_mut().zip(without).for_each(|(with, without)| *with = *without + joint);
            }
            let (without, with) = values[..2 << last].split_at_mut(1 << last);
            for ((with, without), sum) in with.iter_mut().zip(without).zip(&*sums) {
                *with = *without + sum;
            }
        }
        values
    }
}

/// Decodes by max-sum message passing from the leaves; ties go to state 0.
fn pass_messages(forest: &[ForestNode], scores: &[f64], work: &mut Work, label: &mut [u32]) {
    let (nodes, pairs) = scores.split_at(label.len());
    let pairs = pairs.as_chunks::<4>().0;
    work.values.clear();
    work.values.extend(nodes.iter().flat_map(|node| [0.0, *node]));
    let beliefs = work.values.as_chunks_mut::<2>().0;
    // Indexed by (parent's state, own state).
    let joint = |parent: Link, state: [usize; 2]| {
        let [first, second] = if parent.first { state } else { [state[1], state[0]] };
        pairs[parent.edge as usize][2 * first + second]
    };
    for &ForestNode { label, parent } in forest.iter().rev() {
        let Some(parent) = parent else { continue };
        let own = beliefs[label as usize];
        for (state, belief) in beliefs[parent.label as usize].iter_mut().enumerate() {
            let [off, on] = [0, 1].map(|mine| own[mine] + joint(parent, [state, mine]));
            *belief += off.max(on);
        }
    }
    for &ForestNode { label: at, parent } in forest {
        let mut own = beliefs[at as usize];
        if let Some(parent) = parent {
            let state = label[parent.label as usize] as usize;
            own.iter_mut().enumerate().for_each(|(mine, own)| *own += joint(parent, [state, mine]));
        }
        label[at as usize] = u32::from(own[1] > own[0]);
    }
}

impl Model for Multilabel {
    fn n_examples(&self) -> usize {
        self.rows.len()
    }

    fn is_labelled(&self) -> bool {
        self.labels.is_some()
    }

    fn n_weights(&self) -> usize {
        self.pairwise() + 4 * self.edges().len()
    }

    fn n_parts(&self, _: usize) -> usize {
        self.n_labels + 4 * self.edges().len()
    }

    fn size(&self, example: usize) -> PartSize {
        let (norm, n_features) = self.rows.largest();
        let n_parts = self.n_parts(example);
        PartSize { norm: norm.max(1.0), n_features, n_parts, depth: n_parts }
    }

    fn scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let (nodes, pairs) = scores.split_at_mut(self.n_labels);
        self.rows.scores(example..example + 1, self.n_labels, weights, nodes);
        pairs.copy_from_slice(&weights[self.pairwise()..]);
    }

    fn scores_at(&self, example: usize, parts: &[u32], weights: &[f64], scores: &mut [f64]) {
        for &part in parts {
            let part = part as usize;
            scores[part] = match part.checked_sub(self.n_labels) {
                None => self.rows.score(example, part, self.n_labels, weights),
                Some(pair) => weights[self.pairwise() + pair],
            };
        }
    }

    fn add_costs(&self, example: usize, scores: &mut [f64]) -> f64 {
        let cost = self.loss.cost(self.n_labels);
        let mut constant = 0.0;
        for (score, right) in scores.iter_mut().zip(self.truth(example)) {
            if *right == 1 {
                *score -= cost;
                constant += cost;
            } else {
                *score += cost;
            }
        }
        constant
    }

    fn decode(&self, _: usize, scores: &[f64], work: &mut Work, label: &mut Vec<u32>) {
        label.resize(self.n_labels, 0);
        match self.graph.forest() {
            Some(forest) => pass_messages(forest, scores, work, label),
            None => self.enumerate(scores, work, label),
        }
    }

    fn parts(&self, _: usize, label: &[u32], parts: &mut Sparse) {
        parts.clear();
        parts.extend((0..).zip(label).filter(|(_, on)| **on == 1).map(|(at, _)| (at, 1.0)));
        let mut first = self.n_labels as u32;
        for &[a, b] in self.edges() {
            parts.push((first + 2 * label[a as usize] + label[b as usize], 1.0));
            first += 4;
        }
    }

    fn truth(&self, example: usize) -> &[u32] {
        let first = example * self.n_labels;
        self.labels.as_ref().map_or(&[], |labels| &labels[first..first + self.n_labels])
    }

    fn add_image(
        &self,
        example: usize,
        delta: &[(u32, f64)],
        scale: f64,
        image: &mut TouchedVector,
    ) {
        let n_labels = self.n_labels;
        let (nodes, pairs) =
            delta.split_at(delta.partition_point(|(part, _)| (*part as usize) < n_labels));
        if !nodes.is_empty() {
            self.rows.add_image(example, nodes.iter().copied(), n_labels, scale, image);
        }
        for (part, value) in pairs {
            image.add(self.pairwise() + *part as usize - n_labels, scale * value);
        }
    }
}
