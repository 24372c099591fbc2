//! Marginals of label sets: by message passing if the graph is a forest, otherwise by enumerating
//! all sets.

use super::sum_product::softmax;
use super::{Marginals, Projection};
use crate::error::Result;
use crate::linalg::exp_minus;
use crate::structured::model::{ForestNode, Link, Multilabel, Work};

impl Marginals for Multilabel {
    fn default_projection(&self) -> Projection {
        Projection::Entropic
    }

    /// Writes the expectation of μ(y) under p(y) ∝ exp ⟨potentials, μ(y)⟩, whose entropy is H; the result is exact up
    /// to rounding.
    fn entropic(
        &self,
        _: usize,
        potentials: &[f64],
        _: f64,
        work: &mut Work,
        marginals: &mut [f64],
    ) -> Result<f64> {
        match self.forest() {
            Some(forest) => pass_messages(forest, self.n_labels(), potentials, work, marginals),
            None => self.enumerate_marginals(potentials, work, marginals),
        }
        Ok(0.0)
    }
}

impl Multilabel {
    /// Computes the marginals from the sums F(S) = Σ p(T) over the sets T that contain S. The
    /// marginal of a label a is F({a}). The marginal of the joint state (1, 0) of two labels a and b is F({a}) −
    /// F({a, b}).
    fn enumerate_marginals(&self, potentials: &[f64], work: &mut Work, marginals: &mut [f64]) {
        let shares = self.tabulate(potentials, work);
        softmax(shares);
        for bit in 0..self.n_labels() {
            for block in shares.chunks_exact_mut(2 << bit) {
                let (without, with) = block.split_at_mut(1 << bit);
                without.iter_mut().zip(with).for_each(|(sum, with)| *sum += *with);
            }
        }
        let (nodes, pairs) = marginals.split_at_mut(self.n_labels());
        for (label, node) in nodes.iter_mut().enumerate() {
            *node = shares[1 << label].min(1.0);
        }
        for (&[a, b], pair) in self.edges().iter().zip(pairs.as_chunks_mut::<4>().0) {
            let (first, second) = (shares[1 << a], shares[1 << b]);
            let both = shares[1 << a | 1 << b];
            let neither = shares[0] - first - second + both;
            *pair = [neither, second - both, first - both, both].map(|share| share.max(0.0));
        }
    }
}

/// Passes sum-product messages to the roots in logarithms, then computes the marginals of each
/// label and of its pair with the parent.
fn pass_messages(
    forest: &[ForestNode],
    n_labels: usize,
    potentials: &[f64],
    work: &mut Work,
    marginals: &mut [f64],
) {
    let (nodes, joint) = potentials.split_at(n_labels);
    let joint = joint.as_chunks::<4>().0;
    work.values.clear();
    work.values.extend(nodes.iter().flat_map(|node| [0.0, *node]));
    let beliefs = work.values.as_chunks_mut::<2>().0;
    for &ForestNode { label, parent } in forest.iter().rev() {
        let Some(parent) = parent else { continue };
        let own = beliefs[label as usize];
        for state in [0, 1] {
            let [off, on] =
                [0, 1].map(|mine| own[mine] + joint[parent.edge as usize][at(parent, state, mine)]);
            let message = off.max(on) + exp_minus((off - on).abs()).ln_1p();
            beliefs[parent.label as usize][state] += message;
        }
    }
    let (nodes, pairs) = marginals.split_at_mut(n_labels);
    let pairs = pairs.as_chunks_mut::<4>().0;
    for &ForestNode { label, parent } in forest {
        let own = beliefs[label as usize];
        let Some(parent) = parent else {
            let mut shares = own;
            softmax(&mut shares);
            nodes[label as usize] = shares[1];
            continue;
        };
        let above = nodes[parent.label as usize];
        let pair = &mut pairs[parent.edge as usize];
        for (state, share) in [1.0 - above, above].into_iter().enumerate() {
            let mut shares =
                [0, 1].map(|mine| own[mine] + joint[parent.edge as usize][at(parent, state, mine)]);
            softmax(&mut shares);
            shares
                .iter()
                .zip([0, 1])
                .for_each(|(own, mine)| pair[at(parent, state, mine)] = share * own);
        }
        nodes[label as usize] = pair[at(parent, 0, 1)] + pair[at(parent, 1, 1)];
    }
}

/// Index of the joint state of a parent and a child.
fn at(parent: Link, state: usize, mine: usize) -> usize {
    if parent.first { 2 * state + mine } else { 2 * mine + state }
}
