//! The dual point of one sequence, as a convex combination of labels.

use crate::dual::rounding::gamma;
use crate::linalg::{Sparse, sparse};
use crate::solver::Block;
use crate::structured::model::{Chain, Model};

/// A label of the sequence and its positive weight; the weights sum to 1 up to rounding.
#[derive(Debug, Clone, PartialEq)]
struct Atom {
    label: Box<[u16]>,
    weight: f64,
}

/// The labels that a sequence's dual point μ_i combines.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveLabels {
    atoms: Vec<Atom>,
}

/// Converts a label to a compact form, with two bytes per position.
fn compact(label: &[u32]) -> Box<[u16]> {
    // A chain has at most 2¹⁵ states.
    label.iter().map(|state| *state as u16).collect()
}

impl ActiveLabels {
    /// Creates a dual point with all weight on one label.
    pub fn at(label: &[u32]) -> Self {
        Self { atoms: vec![Atom { label: compact(label), weight: 1.0 }] }
    }

    /// Renumbers the states of all labels. Returns None if a state has no new number.
    pub fn renumbered(&self, numbers: &[Option<u16>]) -> Option<Self> {
        let atoms = self.atoms.iter().map(|atom| {
            let new = |state: &u16| *numbers.get(usize::from(*state))?;
            let label = atom.label.iter().map(new).collect::<Option<_>>()?;
            Some(Atom { label, weight: atom.weight })
        });
        Some(Self { atoms: atoms.collect::<Option<_>>()? })
    }

    /// Whether all labels are valid for this sequence.
    pub fn fits(&self, chain: &Chain, example: usize) -> bool {
        self.atoms.iter().all(|atom| {
            let label: Vec<u32> = atom.label.iter().map(|state| u32::from(*state)).collect();
            label.len() == chain.sequence_len(example)
                && label.iter().all(|state| (*state as usize) < chain.n_states())
                && chain.links().check_label(example, &label).is_ok()
        })
    }

    /// Returns the weighted mean of the labels' values, and the index of the first label with the smallest value.
    pub fn mean_and_worst(&self, value: impl Fn(&[u16]) -> f64) -> (f64, usize) {
        let (mut sum, mut total, mut worst) = (0.0, 0.0, (f64::INFINITY, 0));
        for (index, atom) in self.atoms.iter().enumerate() {
            let own = value(&atom.label);
            (sum, total) = (sum + atom.weight * own, total + atom.weight);
            worst = if own < worst.0 { (own, index) } else { worst };
        }
        (sum / total, worst.1)
    }

    /// Returns the label with the given index.
    pub fn label(&self, index: usize) -> impl Iterator<Item = u32> {
        self.atoms[index].label.iter().map(|state| u32::from(*state))
    }

    /// Returns the weight of the label with the given index.
    pub fn weight(&self, index: usize) -> f64 {
        self.atoms[index].weight
    }

    /// Moves weight from one of the labels to another label, which may be new.
    pub fn shift(&mut self, from: usize, to: &[u32], step: f64) {
        let same = |atom: &Atom| atom.label.iter().zip(to).all(|(a, b)| u32::from(*a) == *b);
        match self.atoms.iter_mut().find(|atom| same(atom)) {
            Some(atom) => atom.weight += step,
            None => self.atoms.push(Atom { label: compact(to), weight: step }),
        }
        let atom = &mut self.atoms[from];
        atom.weight -= step;
        if atom.weight <= 0.0 {
            self.atoms.swap_remove(from);
        }
    }

    /// Returns the labels as vertices of the general structured dual, with their weights.
    pub fn vertices<'s>(
        &'s self,
        chain: &'s Chain,
        example: usize,
    ) -> impl Iterator<Item = (Sparse, f64)> + 's {
        self.atoms.iter().enumerate().map(move |(index, atom)| {
            let (label, mut vertex) = (self.label(index).collect::<Vec<u32>>(), Sparse::new());
            chain.parts(example, &label, &mut vertex);
            (vertex, atom.weight)
        })
    }

    /// Reads the labels and their weights from a block of the general structured dual. The first entries of each
    /// vertex are the node parts, one per position.
    pub fn of_block(block: &Block, chain: &Chain, example: usize) -> Self {
        let (len, n_states) = (chain.sequence_len(example), chain.n_states() as u32);
        let label = |vertex: &Sparse| -> Vec<u32> {
            let nodes = (0..).zip(&vertex[..len]);
            nodes.map(|(t, (part, _))| part - t * n_states).collect()
        };
        let atoms = block.combination();
        let atom =
            |(vertex, weight): (&Sparse, f64)| Atom { label: compact(&label(vertex)), weight };
        Self { atoms: atoms.map(atom).collect() }
    }

    /// Computes the point μ_i, which rounding may move away from the convex combinations of labels. Returns a bound on
    /// its distance from them in ‖·‖₁.
    pub fn point(&self, chain: &Chain, example: usize, buffers: &mut PointBuffers) -> f64 {
        let PointBuffers { point, vertex, spare, label } = buffers;
        let total: f64 = self.atoms.iter().map(|atom| atom.weight).sum();
        let mut size = 0.0;
        point.clear();
        for atom in &self.atoms {
            label.clear();
            label.extend(atom.label.iter().map(|state| u32::from(*state)));
            chain.parts(example, label, vertex);
            let weight = atom.weight / total;
            sparse::add(point, weight, vertex, 0.0, spare);
            size += weight * vertex.iter().map(|(_, value)| value.abs()).sum::<f64>();
        }
        gamma(self.atoms.len() + 8) * size
    }
}

/// Buffers for computing a point, and the point.
#[derive(Debug, Default)]
pub struct PointBuffers {
    /// The block's dual point μ_i.
    pub point: Sparse,
    vertex: Sparse,
    spare: Sparse,
    label: Vec<u32>,
}
