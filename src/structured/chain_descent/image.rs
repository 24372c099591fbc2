//! The image Aᵀδ in weight space of a change δ of one sequence's parts, gathered in a small vector.

use crate::linalg::Sparse;
use crate::structured::model::{Chain, ChainLink, Model};

/// The image Aᵀδ for one sequence, stored as runs of consecutive weights with their values.
#[derive(Debug, Clone, Default)]
pub struct ChainImage {
    /// Index of the first weight, and length, of each run.
    runs: Vec<(usize, u32)>,
    values: Vec<f64>,
}

impl ChainImage {
    fn runs(&self) -> impl Iterator<Item = (usize, &[f64])> {
        let mut values = &self.values[..];
        self.runs.iter().map(move |(start, len)| {
            let (own, rest) = values.split_at(*len as usize);
            values = rest;
            (*start, own)
        })
    }

    /// Returns the squared norm ‖image‖².
    pub fn squared_norm(&self) -> f64 {
        dot(&self.values, &self.values)
    }

    /// Returns the inner product ⟨weights, image⟩.
    pub fn dot(&self, weights: &[f64]) -> f64 {
        self.runs().map(|(start, values)| dot(&weights[start..start + values.len()], values)).sum()
    }

    /// Adds scale · image to `weights`.
    pub fn add_to(&self, scale: f64, weights: &mut [f64]) {
        for (start, values) in self.runs() {
            let weights = &mut weights[start..start + values.len()];
            weights.iter_mut().zip(values).for_each(|(weight, value)| *weight += scale * value);
        }
    }
}

/// Returns ⟨a, b⟩, computed as eight partial sums, which gives the same result on every processor.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.into_iter().sum()
}

/// Rows of values for the few features that occur, in the order of their first occurrence.
#[derive(Debug, Default)]
struct Slots {
    /// The slot of each feature plus 1; 0 if it has no slot.
    slot_of: Vec<u32>,
    features: Vec<u32>,
    values: Vec<f64>,
    width: usize,
}

impl Slots {
    fn prepare(&mut self, n_features: usize, width: usize) {
        if self.slot_of.len() != n_features {
            self.slot_of = vec![0; n_features];
        }
        self.width = width;
    }

    #[inline(always)]
    fn of(&mut self, feature: usize) -> &mut [f64] {
        if self.slot_of[feature] == 0 {
            self.features.push(feature as u32);
            self.slot_of[feature] = self.features.len() as u32;
            self.values.resize(self.features.len() * self.width, 0.0);
        }
        let slot = self.slot_of[feature] as usize - 1;
        &mut self.values[slot * self.width..][..self.width]
    }

    fn clear(&mut self) {
        self.features.drain(..).for_each(|feature| self.slot_of[feature as usize] = 0);
        self.values.clear();
    }
}

/// Buffers for computing images.
#[derive(Debug, Default)]
pub struct Gatherer {
    nodes: Slots,
    edges: Slots,
    links: Vec<f64>,
}

impl Gatherer {
    /// Prepares buffers for a model's sequences.
    pub fn prepare(&mut self, chain: &Chain) {
        self.nodes.prepare(chain.emissions().rows().n_features(), chain.n_states());
        if let Some(rows) = chain.edge_rows() {
            self.edges.prepare(rows.n_features(), chain.n_states() * chain.n_states());
        }
        self.links.clear();
        self.links.resize(chain.n_states() * (chain.n_states() + 2), 0.0);
    }

    /// Adds `value` for a label at position t: to the position's features and, at an end of the sequence, to the
    /// first-label or last-label link.
    fn add_label(&mut self, chain: &Chain, example: usize, (t, label): (usize, usize), value: f64) {
        let rows = chain.rows_of(example);
        for first in chain.links().at_ends(t, rows.len()) {
            self.links[first + label] += value;
        }
        let nodes = &mut self.nodes;
        chain.emissions().rows().visit(rows.start + t, |feature, x| {
            nodes.of(feature)[label] += x * value;
        });
    }

    /// Adds a sparse vector over the parts of a sequence.
    pub fn add(&mut self, chain: &Chain, example: usize, delta: &Sparse) {
        let (n_states, len) = (chain.n_states(), chain.sequence_len(example));
        let (n_nodes, n_edges) = (len * n_states, n_states * n_states);
        for (part, value) in delta {
            let part = *part as usize;
            let Some(edge) = part.checked_sub(n_nodes) else {
                self.add_label(chain, example, (part / n_states, part % n_states), *value);
                continue;
            };
            let (t, index) = (edge / n_edges, edge % n_edges);
            self.links[index] += value;
            if let Some(rows) = chain.edge_rows() {
                let edges = &mut self.edges;
                rows.visit(chain.rows_of(example).start + t + 1, |feature, x| {
                    edges.of(feature)[index] += x * value;
                });
            }
        }
    }

    /// Returns the image of the parts added so far, restricted to the model's weights, and clears the buffers.
    pub fn finish(&mut self, chain: &Chain) -> ChainImage {
        let mut image = ChainImage::default();
        let n_states = chain.n_states();
        image.runs.reserve(self.nodes.features.len() + 1);
        let slots = self.nodes.features.iter().zip(self.nodes.values.chunks_exact(n_states));
        match chain.pairs() {
            None => {
                let starts = self.nodes.features.iter();
                image
                    .runs
                    .extend(starts.map(|feature| (*feature as usize * n_states, n_states as u32)));
                image.values.extend_from_slice(&self.nodes.values);
            }
            Some(pairs) => {
                for (feature, values) in slots {
                    let range = pairs.range(*feature as usize);
                    image.runs.push((range.start, range.len() as u32));
                    let labels = pairs.labels[range].iter();
                    image.values.extend(labels.map(|label| values[usize::from(*label)]));
                }
            }
        }
        self.nodes.clear();
        let links = chain.links();
        image.runs.push((chain.transitions(), links.n_weights() as u32));
        image.values.extend(self.links[..links.n_weights()].iter().enumerate().map(
            |(index, value)| if links.of(index) == ChainLink::Weighted { *value } else { 0.0 },
        ));
        self.links.fill(0.0);
        let n_edges = n_states * n_states;
        for (feature, values) in
            self.edges.features.iter().zip(self.edges.values.chunks_exact(n_edges.max(1)))
        {
            let start = chain.edge_features() + *feature as usize * n_edges;
            image.runs.push((start, n_edges as u32));
            image.values.extend_from_slice(values);
        }
        self.edges.clear();
        debug_assert!(image.runs.iter().all(|run| run.0 + run.1 as usize <= chain.n_weights()));
        image
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An image with these values for consecutive weights, starting at `start`.
    pub fn image(start: usize, values: &[f64]) -> ChainImage {
        ChainImage { runs: vec![(start, values.len() as u32)], values: values.to_vec() }
    }
}
