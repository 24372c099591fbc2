//! Labels, scores and probabilities of sequences under weights that are mostly zero.

use super::emissions::{EmissionTable, LabelWeights, Parts};
use super::known::KnownLabels;
use crate::data::{Data, Rows as _};
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::parallel::map_items_with;
use crate::structured::{ChainScores, FORBIDDEN, Links, Work, chain_marginals};

/// Number of sequences that a thread processes together.
const GROUP: usize = 16;

/// Paths with at most this score use a forbidden transition or label.
const IMPOSSIBLE: f64 = 0.1 * FORBIDDEN;

/// The weights of transitions, and of first and last labels.
#[derive(Debug, Clone)]
pub struct Transitions {
    /// The kinds of transitions, first labels and last labels.
    pub links: Links,
    /// The weights of transitions (K × K), then of first labels (K), then of last labels (K).
    pub weights: Vec<f64>,
    /// The weights of the features of transitions, K × K for each feature.
    pub features: Vec<f64>,
}

/// A trained chain model.
#[derive(Debug, Clone)]
pub struct Tagger {
    emissions: EmissionTable,
    transitions: Transitions,
    /// The scores of transitions without their features, which all positions share.
    edges: Vec<f64>,
}

/// The labels of a sequence, and their score.
pub type Ranked = (Vec<u32>, f64);

/// Buffers for one sequence at a time.
#[derive(Debug, Default)]
struct Scratch {
    parts: Parts,
    nodes: Vec<f64>,
    edges: Vec<f64>,
    other: Buffers,
}

impl Scratch {
    fn of(interrupt: &Interrupt) -> Self {
        let other = Buffers { work: Work::of(interrupt), ..Buffers::default() };
        Self { other, ..Self::default() }
    }
}

/// Buffers for computing a result from a sequence's scores.
#[derive(Debug, Default)]
struct Buffers {
    work: Work,
    label: Vec<u32>,
    marginals: Vec<f64>,
}

/// The rows and offsets of all sequences, the features of their transitions, and known labels.
#[derive(Clone, Copy)]
pub struct Sequences<'a> {
    /// The rows.
    pub rows: Data<'a>,
    /// Sequence i has the rows `offsets[i]..offsets[i + 1]`.
    pub offsets: &'a [i64],
    /// The features of the transition into each row.
    pub edges: Option<Data<'a>>,
    /// The labels that are known before decoding.
    pub known: Option<KnownLabels<'a>>,
}

impl Tagger {
    /// Creates a model from its weights.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the weights that are invalid or do not fit together.
    pub fn new(emissions: LabelWeights, transitions: Transitions) -> Result<Self> {
        let n_states = transitions.links.n_states();
        let emissions = EmissionTable::new(&emissions, n_states)?;
        let (n_edges, weights) = (n_states * n_states, &transitions.weights);
        if weights.len() != n_edges + 2 * n_states
            || n_states == 0
            || !transitions.features.len().is_multiple_of(n_edges)
        {
            return Err(Error::argument(
                "transitions",
                "must have a weight for each pair of labels",
            ));
        }
        if !weights.iter().chain(&transitions.features).all(|value| value.is_finite()) {
            return Err(Error::argument("transitions", "all weights must be finite"));
        }
        let edges = (0..n_edges).map(|index| transitions.links.score(index, weights)).collect();
        Ok(Self { emissions, transitions, edges })
    }

    /// Number of labels K.
    pub fn n_states(&self) -> usize {
        self.transitions.links.n_states()
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.emissions.n_features()
    }

    fn check(&self, sequences: &Sequences<'_>) -> Result<()> {
        let Sequences { rows, offsets, edges, .. } = sequences;
        let n_rows = rows.n_rows();
        let rises = offsets.first() == Some(&0)
            && offsets.last() == Some(&(n_rows as i64))
            && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let n_edges = self.n_states() * self.n_states();
        let n_edge_features = self.transitions.features.len() / n_edges;
        let same = edges.map_or(n_edge_features == 0, |edges| {
            edges.n_rows() == n_rows && edges.n_cols() == n_edge_features
        });
        if rises && same && rows.n_cols() == self.n_features() {
            return Ok(());
        }
        Err(Error::argument("X", "the sequences do not match the features of this model"))
    }

    /// Computes the scores of one sequence's nodes and transitions; also returns the other buffers.
    fn load<'s>(
        &'s self,
        sequences: &Sequences<'_>,
        sequence: usize,
        scratch: &'s mut Scratch,
    ) -> (ChainScores<'s>, &'s mut Buffers) {
        let n_states = self.n_states();
        let range = sequences.offsets[sequence] as usize..sequences.offsets[sequence + 1] as usize;
        let (len, Scratch { parts, nodes, edges, other }) = (range.len(), scratch);
        nodes.resize(len * n_states, 0.0);
        for_data!(sequences.rows, rows => self.emissions.scores(&rows, range.clone(), parts, nodes));
        let Transitions { links, weights, features } = &self.transitions;
        for t in [0, len.saturating_sub(1)].into_iter().take(len.min(2)) {
            for first in links.at_ends(t, len) {
                let nodes = nodes[t * n_states..][..n_states].iter_mut();
                nodes.zip(first..).for_each(|(node, index)| *node += links.score(index, weights));
            }
        }
        if let Some(known) = sequences.known {
            known.restrict(range.start, nodes, n_states);
        }
        let n_edges = n_states * n_states;
        let Some(data) = sequences.edges else {
            return (ChainScores { nodes, edges: &self.edges, stride: 0, n_states }, other);
        };
        edges.clear();
        for_data!(data, rows => for row in range.skip(1) {
            let start = edges.len();
            edges.extend_from_slice(&self.edges);
            rows.visit_row(row, |feature, value| {
                let weights = &features[feature * n_edges..][..n_edges];
                let own = edges[start..].iter_mut().zip(weights);
                own.for_each(|(edge, weight)| *edge += value * weight);
            });
        });
        (ChainScores { nodes, edges, stride: n_edges, n_states }, other)
    }

    /// Applies `map` to all sequences in parallel, and returns the results in the order of the sequences.
    fn map_sequences<R: Send + Clone>(
        &self,
        sequences: &Sequences<'_>,
        interrupt: &Interrupt,
        map: impl Fn(ChainScores<'_>, &mut Buffers, &mut Vec<R>) -> Result<()> + Sync,
    ) -> Result<Vec<R>> {
        self.map_indexed(sequences, interrupt, |_, scores, buffers, found| {
            map(scores, buffers, found)
        })
    }

    /// Like [`Self::map_sequences`], for a function that also takes the index of the sequence.
    fn map_indexed<R: Send + Clone>(
        &self,
        sequences: &Sequences<'_>,
        interrupt: &Interrupt,
        map: impl Fn(usize, ChainScores<'_>, &mut Buffers, &mut Vec<R>) -> Result<()> + Sync,
    ) -> Result<Vec<R>> {
        self.check(sequences)?;
        let n = sequences.offsets.len() - 1;
        let group = |scratch: &mut Scratch, group: usize| {
            let mut found = Vec::new();
            for sequence in group * GROUP..((group + 1) * GROUP).min(n) {
                interrupt.check()?;
                let (scores, buffers) = self.load(sequences, sequence, scratch);
                map(sequence, scores, buffers, &mut found)?;
                interrupt.check()?;
            }
            Ok(found)
        };
        let groups = 0..n.div_ceil(GROUP);
        let found = map_items_with(groups, 1, || Scratch::of(interrupt), group);
        Ok(found.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// Returns the best labels of all sequences, concatenated.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `X` for rows that do not fit the model, and for a sequence without an allowed
    /// labelling; [`Error::Interrupted`].
    pub fn decode(&self, sequences: &Sequences<'_>, interrupt: &Interrupt) -> Result<Vec<u32>> {
        self.map_sequences(sequences, interrupt, best_labels)
    }

    /// Returns the best labels of all sequences, computed on the calling thread.
    ///
    /// # Errors
    /// As for [`Tagger::decode`].
    pub fn decode_here(
        &self,
        sequences: &Sequences<'_>,
        interrupt: &Interrupt,
    ) -> Result<Vec<u32>> {
        self.check(sequences)?;
        let (mut scratch, mut found) = (Scratch::of(interrupt), Vec::new());
        for sequence in 0..sequences.offsets.len() - 1 {
            interrupt.check()?;
            let (scores, buffers) = self.load(sequences, sequence, &mut scratch);
            best_labels(scores, buffers, &mut found)?;
            interrupt.check()?;
        }
        Ok(found)
    }

    /// Returns the k best labellings of each sequence, or all labellings if there are fewer, best first. Each
    /// labelling comes with its score or, if `normalised`, with the logarithm of its probability.
    ///
    /// # Errors
    /// As for [`Tagger::decode`].
    pub fn decode_best(
        &self,
        sequences: &Sequences<'_>,
        k: usize,
        normalised: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<Ranked>>> {
        self.map_sequences(
            sequences,
            interrupt,
            |scores, Buffers { work, marginals, .. }, found| {
                let mut best = best(scores, k, &work.interrupt);
                work.interrupt.check()?;
                best.retain(|(_, score)| *score > IMPOSSIBLE);
                possible(best.first().map_or(IMPOSSIBLE, |(_, score)| *score))?;
                if normalised {
                    marginals.resize(scores.nodes.len() + scores.edges.len(), 0.0);
                    let log_sum = chain_marginals(scores, work, marginals);
                    best.iter_mut().for_each(|(_, score)| *score = (*score - log_sum).min(0.0));
                }
                found.push(best);
                Ok(())
            },
        )
    }

    /// Returns the score of one labelling of each sequence or, if `normalised`, the logarithm of its probability. The
    /// result is −∞ for a labelling with a forbidden transition. `labels` has the label of each row.
    ///
    /// # Errors
    /// As for [`Tagger::decode`], and [`Error::InvalidArgument`] naming `y` for a wrong number of labels, and for
    /// labels that do not exist.
    pub fn scores(
        &self,
        sequences: &Sequences<'_>,
        labels: &[u32],
        normalised: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let n_states = self.n_states();
        if labels.len() != sequences.rows.n_rows()
            || labels.iter().any(|label| *label as usize >= n_states)
        {
            return Err(Error::argument("y", "must have a known label for each row"));
        }
        let score = |sequence: usize, scores: ChainScores<'_>, buffers: &mut Buffers| {
            let range =
                sequences.offsets[sequence] as usize..sequences.offsets[sequence + 1] as usize;
            let label: Vec<u16> = labels[range].iter().map(|label| *label as u16).collect();
            let own = scores.of(&label);
            if own <= IMPOSSIBLE {
                return f64::NEG_INFINITY;
            }
            if !normalised {
                return own;
            }
            buffers.marginals.resize(scores.nodes.len() + scores.edges.len(), 0.0);
            (own - chain_marginals(scores, &mut buffers.work, &mut buffers.marginals)).min(0.0)
        };
        self.map_indexed(sequences, interrupt, |sequence, scores, buffers, found| {
            found.push(score(sequence, scores, buffers));
            Ok(())
        })
    }

    /// Returns the probability of each label at each position, as K numbers per position.
    ///
    /// # Errors
    /// As for [`Tagger::decode`].
    pub fn marginals(&self, sequences: &Sequences<'_>, interrupt: &Interrupt) -> Result<Vec<f64>> {
        self.map_sequences(
            sequences,
            interrupt,
            |scores, Buffers { work, label, marginals }, found| {
                possible(scores.decode(work, label))?;
                marginals.resize(scores.nodes.len() + scores.edges.len(), 0.0);
                chain_marginals(scores, work, marginals);
                found.extend_from_slice(&marginals[..scores.nodes.len()]);
                Ok(())
            },
        )
    }

    /// For each position and label, returns the score of the best labelling with this label at this position, minus the
    /// score of the best labelling of the sequence. The difference is −∞ if the label is forbidden. There are K numbers
    /// per position.
    ///
    /// # Errors
    /// As for [`Tagger::decode`].
    pub fn max_marginals(
        &self,
        sequences: &Sequences<'_>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        self.map_sequences(sequences, interrupt, |scores, Buffers { work, label, .. }, found| {
            possible(scores.decode(work, label))?;
            for values in max_marginals(scores, &work.interrupt).chunks_exact(scores.n_states) {
                // Up to rounding, the largest value is the same at every position. Subtracting the largest value of
                // each position makes the largest difference exactly 0.
                let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                found.extend(values.iter().map(|value| {
                    if *value > IMPOSSIBLE { value - best } else { f64::NEG_INFINITY }
                }));
            }
            Ok(())
        })
    }
}

fn best_labels(
    scores: ChainScores<'_>,
    Buffers { work, label, .. }: &mut Buffers,
    found: &mut Vec<u32>,
) -> Result<()> {
    possible(scores.decode(work, label))?;
    found.extend_from_slice(label);
    Ok(())
}

fn possible(best: f64) -> Result<()> {
    if best > IMPOSSIBLE {
        return Ok(());
    }
    let message =
        "transitions forbid all labels of a sequence with this length and these known labels";
    Err(Error::argument("X", message))
}

/// Returns, for each position and label, the best score of the labellings with this label there.
fn max_marginals(scores: ChainScores<'_>, interrupt: &Interrupt) -> Vec<f64> {
    let (n_states, len) = (scores.n_states, scores.len());
    let mut forward = scores.nodes.to_vec();
    for t in 1..len {
        if interrupt.is_raised() {
            return forward;
        }
        let edges = scores.edges_into(t);
        let (before, now) = forward.split_at_mut(t * n_states);
        let before = &before[(t - 1) * n_states..];
        for (to, now) in now[..n_states].iter_mut().enumerate() {
            let from = before.iter().zip(edges[to..].iter().step_by(n_states));
            *now += from.map(|(a, b)| a + b).fold(f64::NEG_INFINITY, f64::max);
        }
    }
    let mut after = vec![0.0; n_states];
    for t in (1..len).rev() {
        if interrupt.is_raised() {
            return forward;
        }
        let edges = scores.edges_into(t);
        let nodes = &scores.nodes[t * n_states..][..n_states];
        let ahead: Vec<f64> = after.iter().zip(nodes).map(|(a, b)| a + b).collect();
        for (from, after) in after.iter_mut().enumerate() {
            let to = edges[from * n_states..].iter().zip(&ahead);
            *after = to.map(|(a, b)| a + b).fold(f64::NEG_INFINITY, f64::max);
        }
        let own = &mut forward[(t - 1) * n_states..][..n_states];
        own.iter_mut().zip(&after).for_each(|(own, after)| *own += after);
    }
    forward
}

/// Returns the k best labellings by Viterbi's recursion with k paths for each label (list decoding, Foreman 1993). Ties
/// are ordered by the labels, compared from the end.
fn best(scores: ChainScores<'_>, k: usize, interrupt: &Interrupt) -> Vec<Ranked> {
    let (n_states, len) = (scores.n_states, scores.len());
    if len == 0 {
        return vec![(Vec::new(), 0.0)];
    }
    /// A path that ends in a label: its score, the preceding label, and the rank of the path without its last label
    /// among the paths that end in the preceding label.
    type Path = (f64, u32, u32);
    let descending = |a: &Path, b: &Path| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2)));
    let first = &scores.nodes[..n_states];
    let mut tables: Vec<Vec<Vec<Path>>> =
        vec![first.iter().map(|node| vec![(*node, 0, 0)]).collect()];
    for t in 1..len {
        if interrupt.is_raised() {
            return Vec::new();
        }
        let (edges, before) = (scores.edges_into(t), &tables[t - 1]);
        let into = |to: usize| {
            let mut paths: Vec<Path> = Vec::new();
            for (from, ranked) in before.iter().enumerate() {
                let step = edges[from * n_states + to] + scores.nodes[t * n_states + to];
                let ways = ranked.iter().zip(0..);
                paths.extend(ways.map(|((score, ..), rank)| (score + step, from as u32, rank)));
            }
            paths.sort_unstable_by(descending);
            paths.truncate(k);
            paths
        };
        let table = (0..n_states).map(into).collect();
        tables.push(table);
    }
    let last = tables[len - 1].iter().enumerate();
    let mut ends: Vec<Path> = last
        .flat_map(|(label, paths)| {
            paths.iter().zip(0..).map(move |((score, ..), rank)| (*score, label as u32, rank))
        })
        .collect();
    ends.sort_unstable_by(descending);
    ends.truncate(k);
    let trace = |(score, mut label, mut rank): Path| {
        let mut labels = vec![0; len];
        for t in (0..len).rev() {
            labels[t] = label;
            (_, label, rank) = tables[t][label as usize][rank as usize];
        }
        (labels, score)
    };
    ends.into_iter().map(trace).collect()
}
