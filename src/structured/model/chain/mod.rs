//! Chains: sequences whose neighbouring labels interact.

mod emissions;
mod known;
mod links;
mod viterbi;

pub(in crate::structured) use emissions::Emissions;
pub use emissions::SeenPairs;
pub use links::{ChainLink, FORBIDDEN, Links};
pub use viterbi::{ChainScores, first_maximum};

use super::rows::CompactRows;
use super::{Hamming, Model, PartSize, StoredRows, Work};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::linalg::{Sparse, TouchedVector};
use crate::memory::require;

/// Maximum number of labels: decoding stores labels in 16 bits, and the parts of a sequence have
/// 32-bit indices.
const MAX_STATES: usize = 1 << 15;

/// Minimum number of bytes that a fit keeps for each pair of labels: five numbers (the weight in the solver and in its
/// best model; the score, the cost and the image of one sequence), and one byte in each of three tables.
const TABLE_BYTES: u128 = 5 * 8 + 3;

/// Sequences whose neighbouring labels interact: y_t in 0..K for each row x_t (Taskar, Guestrin and Koller 2003).
///
/// ⟨w, φ(x, y)⟩ = Σ_t ⟨W_{y_t}, x_t⟩ + Σ_{t>0} T\[y_{t−1}, y_t\] + start\[y_0\] + end\[y_last\], and, if transitions
/// have features z_t, Σ_{t>0} ⟨E_{y_{t−1}, y_t}, z_t⟩. The weights are W by feature, then class; T, K × K; `start` and
/// `end`, if requested; and E by feature, then K × K. Part t K + k means y_t = k. Part len K + a K + b counts the
/// transitions from a to b; with transition features, each position t > 0 has separate parts. The loss is [`Hamming`],
/// or the sum of the costs of the wrong positions.
#[derive(Debug, Clone)]
pub struct Chain {
    emissions: Emissions,
    offsets: Vec<usize>,
    labels: Option<Vec<u32>>,
    links: Links,
    /// The features of the transition into each row.
    edges: Option<CompactRows>,
    loss: Hamming,
    /// The cost of an error at each row; 1 by default.
    costs: Option<Vec<f64>>,
    /// Whether each row's label is known, if not all are.
    known: Option<Vec<bool>>,
}

impl Chain {
    /// Creates the model. Sequence i has the rows `offsets[i]..offsets[i + 1]` of `data` and, in training, these
    /// entries of `labels`; `boundaries` adds the weights `start` and `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument: `X` or `y`;
    /// [`Error::Memory`].
    pub fn new(
        data: Data<'_>,
        offsets: &[usize],
        labels: Option<&[u32]>,
        n_states: usize,
        boundaries: bool,
        loss: Hamming,
    ) -> Result<Self> {
        Self::check_states(n_states)?;
        let links = Links::all(n_states, boundaries);
        Self::of_rows(CompactRows::new(data)?, offsets, labels, links, loss)
    }

    /// Creates the model of sequences whose rows are not copied.
    ///
    /// # Errors
    /// As for [`Chain::new`].
    pub fn stored(
        rows: StoredRows,
        offsets: &[usize],
        labels: Option<&[u32]>,
        n_states: usize,
        loss: Hamming,
    ) -> Result<Self> {
        Self::check_states(n_states)?;
        let links = Links::all(n_states, false);
        Self::of_rows(CompactRows::stored(rows), offsets, labels, links, loss)
    }

    fn of_rows(
        rows: CompactRows,
        offsets: &[usize],
        labels: Option<&[u32]>,
        links: Links,
        loss: Hamming,
    ) -> Result<Self> {
        let n_states = links.n_states();
        if offsets.first() != Some(&0)
            || offsets.last() != Some(&rows.len())
            || offsets.windows(2).any(|pair| pair[0] > pair[1])
        {
            let message = "the offsets of the sequences must increase from 0 to the number of rows";
            return Err(Error::argument("X", message));
        }
        if let Some(labels) = labels {
            check_labels(labels, rows.len(), n_states)?;
        }
        let chain = Self {
            emissions: Emissions::new(rows, n_states),
            offsets: offsets.to_vec(),
            labels: labels.map(<[u32]>::to_vec),
            links,
            edges: None,
            loss,
            costs: None,
            known: None,
        };
        chain.check_parts()?;
        Ok(chain)
    }

    /// Checks that the tables of transitions between this many labels fit into memory; called
    /// before any of them is allocated.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `n_states` or `y`; [`Error::Memory`].
    pub fn check_states(n_states: usize) -> Result<()> {
        if n_states == 0 {
            return Err(Error::argument("n_states", "must be at least 1"));
        }
        if n_states > MAX_STATES {
            let message =
                format!("must have at most {MAX_STATES} different labels (has {n_states})");
            return Err(Error::argument("y", message));
        }
        let bytes = TABLE_BYTES * n_states as u128 * n_states as u128;
        let what = || format!("the tables of transitions between m = {n_states} labels");
        require(bytes, what, "merge labels: a chain has m × m transition weights")
    }

    /// Replaces the links between labels.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `transitions` for links with a wrong number of labels, and `y` for a true
    /// label with forbidden links.
    pub fn with_links(mut self, links: Links) -> Result<Self> {
        if links.n_states() != self.n_states() {
            return Err(Error::argument("transitions", "must cover all labels"));
        }
        if self.is_labelled() {
            for example in (0..self.n_examples()).filter(|example| self.is_known(*example)) {
                links.check_label(example, self.truth(example))?;
            }
        }
        self.links = links;
        Ok(self)
    }

    /// Restricts the weights to the (feature, label) pairs that occur in the labelled rows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `y` if there are no labels.
    pub fn with_seen_pairs(mut self) -> Result<Self> {
        let Some(labels) = &self.labels else {
            return Err(Error::argument("y", "the examples have no labels"));
        };
        self.emissions.restrict(labels, self.known.as_deref());
        Ok(self)
    }

    /// Sets the costs of an error at each row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `token_weight` unless there is a finite, non-negative cost
    /// for each row.
    pub fn with_costs(mut self, costs: &[f64]) -> Result<Self> {
        let valid = |cost: &f64| *cost >= 0.0 && cost.is_finite();
        if costs.len() != self.emissions.rows().len() || !costs.iter().all(valid) {
            let message = "must have one finite, non-negative value for each row";
            return Err(Error::argument("token_weight", message));
        }
        self.costs = Some(costs.to_vec());
        Ok(self)
    }

    /// Adds features of the transition into each row; the features of first rows are not used.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `X` unless there is one row of features per row.
    pub fn with_transition_features(mut self, data: Data<'_>) -> Result<Self> {
        let edges = CompactRows::new(data)?;
        if edges.len() != self.emissions.rows().len() {
            return Err(Error::argument(
                "X",
                "transitions must have a row of features for each row",
            ));
        }
        self.edges = Some(edges);
        self.check_parts()?;
        Ok(self)
    }

    /// Returns an error if a sequence has too many parts for their indices.
    fn check_parts(&self) -> Result<()> {
        let longest = self.offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let rows = if self.edges.is_some() { self.n_states() } else { 1 };
        let n_parts =
            (longest.saturating_mul(rows) + self.n_states()).saturating_mul(self.n_states());
        if u32::try_from(n_parts).is_err() {
            return Err(Error::argument("X", "a sequence has too many rows"));
        }
        Ok(())
    }

    /// Number of rows of a sequence.
    pub fn sequence_len(&self, example: usize) -> usize {
        self.offsets[example + 1] - self.offsets[example]
    }

    /// Returns the mean number of features of a row, where a value x with |x| < 1 counts as x². Without weights, all
    /// sequences have the weight 1.
    pub fn features_per_row(&self, weights: Option<&[f64]>) -> f64 {
        let (mut total, mut n_rows) = (0.0, 0.0);
        for example in 0..self.n_examples() {
            let weight = weights.map_or(1.0, |weights| weights[example]);
            let mut sum = 0.0;
            for row in self.rows_of(example) {
                self.emissions.rows().visit(row, |_, value| sum += (value * value).min(1.0));
            }
            total += weight * sum;
            n_rows += weight * self.sequence_len(example) as f64;
        }
        total / n_rows
    }

    /// Number of labels K.
    pub fn n_states(&self) -> usize {
        self.links.n_states()
    }

    /// Returns the (feature, label) pairs that have weights, or None if all have.
    pub fn pairs(&self) -> Option<&SeenPairs> {
        self.emissions.pairs()
    }

    /// The links between labels.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The rows of features and their weights.
    pub(in crate::structured) fn emissions(&self) -> &Emissions {
        &self.emissions
    }

    /// The features of the transition into each row, if there are any.
    pub(in crate::structured) fn edge_rows(&self) -> Option<&CompactRows> {
        self.edges.as_ref()
    }

    /// Returns the indices of a sequence's rows.
    pub(in crate::structured) fn rows_of(&self, example: usize) -> std::ops::Range<usize> {
        self.offsets[example]..self.offsets[example + 1]
    }

    /// Distance, in parts, between the transitions into consecutive positions; 0 if all positions share their
    /// transitions.
    pub fn stride(&self) -> usize {
        if self.edges.is_some() { self.n_states() * self.n_states() } else { 0 }
    }

    /// Arranges the scores of parts for recursions over positions.
    pub fn chain_scores<'a>(&self, example: usize, scores: &'a [f64]) -> ChainScores<'a> {
        let (nodes, edges) = scores.split_at(self.sequence_len(example) * self.n_states());
        ChainScores { nodes, edges, stride: self.stride(), n_states: self.n_states() }
    }

    /// Index of the first transition weight.
    pub(in crate::structured) fn transitions(&self) -> usize {
        self.emissions.n_weights()
    }

    /// Index of the first weight of the transitions' features.
    pub(in crate::structured) fn edge_features(&self) -> usize {
        self.transitions() + self.links.n_weights()
    }

    /// Adds the transitions to the scores of an example, given the scores of its rows. `weights` begin with the first
    /// transition.
    pub(in crate::structured) fn add_transitions(
        &self,
        example: usize,
        weights: &[f64],
        scores: &mut [f64],
    ) {
        let (len, n_states) = (self.sequence_len(example), self.n_states());
        let edges = &mut scores[len * n_states..];
        match &self.edges {
            Some(rows) if len > 1 => {
                let range = self.offsets[example] + 1..self.offsets[example + 1];
                let weights = &weights[self.links.n_weights()..];
                rows.scores(range, n_states * n_states, weights, edges);
            }
            _ => edges.fill(0.0),
        }
        self.add_links(example, weights, scores);
    }

    /// Adds the scores of transitions, first and last labels, given their weights.
    fn add_links(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let (len, n_states) = (self.sequence_len(example), self.n_states());
        let (nodes, edges) = scores.split_at_mut(len * n_states);
        for t in [0, len.saturating_sub(1)].into_iter().take(len.min(2)) {
            // In a sequence of one row, the first label is also the last.
            for first in self.links.at_ends(t, len) {
                let nodes = nodes[t * n_states..][..n_states].iter_mut();
                nodes.zip(first..).for_each(|(node, index)| {
                    *node += self.links.score(index, weights);
                });
            }
        }
        for table in edges.chunks_exact_mut(n_states * n_states) {
            if self.links.is_plain() {
                table.iter_mut().zip(weights).for_each(|(edge, weight)| *edge += weight);
                continue;
            }
            let edges = table.iter_mut().enumerate();
            edges.for_each(|(index, edge)| *edge += self.links.score(index, weights));
        }
    }

    /// Whether the loss at w = 0 depends only on the length of a sequence.
    pub(in crate::structured) fn is_uniform(&self) -> bool {
        self.costs.is_none() && self.known.is_none()
    }

    /// Writes the scores of all parts at w = 0: 0 except for forbidden links.
    pub(in crate::structured) fn scores_at_zero(&self, example: usize, scores: &mut [f64]) {
        let zero = vec![0.0; self.links.n_weights()];
        scores.fill(0.0);
        self.add_links(example, &zero, scores);
    }

    /// Returns the cost of an error at a row of a sequence with `len` rows.
    fn cost(&self, row: usize, len: usize) -> f64 {
        self.loss.cost(len) * self.costs.as_ref().map_or(1.0, |costs| costs[row])
    }
}

/// Checks that each example has a label, and that all labels are below the number of classes.
pub(super) fn check_labels(labels: &[u32], n_examples: usize, n_classes: usize) -> Result<()> {
    if labels.len() != n_examples {
        let message = format!("has {} labels, but X has {n_examples} rows", labels.len());
        return Err(Error::argument("y", message));
    }
    match labels.iter().find(|label| **label as usize >= n_classes) {
        Some(label) => {
            let message = format!("labels must be below {n_classes}, found {label}");
            Err(Error::argument("y", message))
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
        let n_edges = self.n_states() * self.n_states();
        let edges = self.edges.as_ref().map_or(0, |rows| rows.n_features() * n_edges);
        self.edge_features() + edges
    }

    fn n_parts(&self, example: usize) -> usize {
        let (len, n_states) = (self.sequence_len(example), self.n_states());
        let n_tables = if self.edges.is_some() { len.saturating_sub(1) } else { 1 };
        (len + n_tables * n_states) * n_states
    }

    fn size(&self, example: usize) -> PartSize {
        let (mut norm, mut n_features) = self.emissions.rows().largest();
        if let Some(edges) = &self.edges {
            let (edge_norm, n_edge_features) = edges.largest();
            (norm, n_features) = (norm.max(edge_norm), n_features.max(n_edge_features));
        }
        // Besides the features of its row, a node may have the two boundary features, and a
        // transition has the feature of its two labels.
        let n_parts = 2 * self.sequence_len(example);
        let norm = (norm * norm + 2.0).sqrt() * (1.0 + f64::EPSILON);
        PartSize { norm, n_features: n_features + 2, n_parts, depth: n_parts }
    }

    fn scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let nodes = &mut scores[..self.sequence_len(example) * self.n_states()];
        self.emissions.scores(self.rows_of(example), weights, nodes);
        self.add_transitions(example, &weights[self.transitions()..], scores);
    }

    fn scores_at(&self, example: usize, parts: &[u32], weights: &[f64], scores: &mut [f64]) {
        let (len, n_states) = (self.sequence_len(example), self.n_states());
        let (n_nodes, n_edges) = (len * n_states, n_states * n_states);
        let links = &weights[self.transitions()..];
        for &part in parts {
            let part = part as usize;
            scores[part] = if part < n_nodes {
                let (t, class) = (part / n_states, part % n_states);
                let score = self.emissions.score(self.offsets[example] + t, class, weights);
                let ends = self.links.at_ends(t, len);
                score + ends.map(|first| self.links.score(first + class, links)).sum::<f64>()
            } else {
                let (t, index) = ((part - n_nodes) / n_edges, (part - n_nodes) % n_edges);
                let own = self.edges.as_ref().map_or(0.0, |rows| {
                    let row = self.offsets[example] + t + 1;
                    rows.score(row, index, n_edges, &weights[self.edge_features()..])
                });
                self.links.score(index, links) + own
            };
        }
    }

    fn add_costs(&self, example: usize, scores: &mut [f64]) -> f64 {
        let (truth, rows) = (self.truth(example), self.rows_of(example));
        let positions = scores.chunks_exact_mut(self.n_states()).zip(truth);
        for ((scores, &right), row) in positions.zip(rows) {
            let (kept, cost) = (scores[right as usize], self.cost(row, truth.len()));
            scores.iter_mut().for_each(|score| *score += cost);
            scores[right as usize] = kept;
        }
        0.0
    }

    /// Uses the Viterbi algorithm. If several label sequences have the largest score, returns the one with the smallest
    /// state at the last position, then at the position before it, and so on.
    fn decode(&self, example: usize, scores: &[f64], work: &mut Work, label: &mut Vec<u32>) {
        self.chain_scores(example, scores).decode(work, label);
    }

    fn parts(&self, example: usize, label: &[u32], parts: &mut Sparse) {
        let (n_states, stride) = (self.n_states() as u32, self.stride() as u32);
        parts.clear();
        parts.extend(label.iter().zip(0..).map(|(state, t)| (t * n_states + state, 1.0)));
        let first = self.sequence_len(example) as u32 * n_states;
        let n_nodes = parts.len();
        let pairs = label.windows(2).zip(0..);
        parts.extend(
            pairs.map(|(pair, t)| (first + t * stride + pair[0] * n_states + pair[1], 1.0)),
        );
        parts[n_nodes..].sort_unstable_by_key(|(part, _)| *part);
        parts.dedup_by(|next, counted| {
            let same = next.0 == counted.0;
            counted.1 += if same { next.1 } else { 0.0 };
            same
        });
    }

    fn truth(&self, example: usize) -> &[u32] {
        self.labels.as_ref().map_or(&[], |labels| &labels[self.rows_of(example)])
    }

    fn add_image(
        &self,
        example: usize,
        delta: &[(u32, f64)],
        scale: f64,
        image: &mut TouchedVector,
    ) {
        let (n_states, len) = (self.n_states(), self.sequence_len(example));
        let (n_nodes, n_edges) = (len * n_states, n_states * n_states);
        let add = |index: usize, value: f64, image: &mut TouchedVector| {
            if self.links.of(index) == ChainLink::Weighted {
                image.add(self.transitions() + index, value);
            }
        };
        let (nodes, edges) =
            delta.split_at(delta.partition_point(|(part, _)| (*part as usize) < n_nodes));
        for group in nodes.chunk_by(|a, b| a.0 as usize / n_states == b.0 as usize / n_states) {
            let t = group[0].0 as usize / n_states;
            let classes = group.iter().map(|(part, value)| (part % n_states as u32, *value));
            for first in self.links.at_ends(t, len) {
                for (class, value) in classes.clone() {
                    add(first + class as usize, scale * value, image);
                }
            }
            self.emissions.add_image(self.offsets[example] + t, classes, scale, image);
        }
        for (part, value) in edges {
            let at = *part as usize - n_nodes;
            let (t, index) = (at / n_edges, at % n_edges);
            add(index, scale * value, image);
            if let Some(rows) = &self.edges {
                let first = self.edge_features();
                rows.visit(self.offsets[example] + t + 1, |feature, x| {
                    image.add(first + feature * n_edges + index, scale * value * x);
                });
            }
        }
    }
}
