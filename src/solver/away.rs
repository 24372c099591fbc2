//! Batch away-step and pairwise Frank-Wolfe over vertices of the whole dual domain, and the randomized
//! away-step method (Lacoste-Julien and Jaggi 2015; Kerdreux et al. 2018).

use std::rc::Rc;

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::Step;
use super::active_set::{StepKind, largest};
use crate::dual::rounding::{TINY, gamma, norm_above};
use crate::dual::{BlockDual, Bounded, DualValue, Image, objective};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::vectors::{axpy, dot_in_order, squared_norm};
use crate::linalg::{Sparse, sparse};
use crate::run::{Certificate, Progress, Solver};

/// A vertex of the whole domain, which consists of one vertex per block.
struct Atom {
    vertices: Vec<Rc<Sparse>>,
    /// The weights w that correspond to the vertex.
    image: Vec<f64>,
    /// Linear term Σ p_i l_i of the vertex.
    linear: f64,
    weight: f64,
    /// Bounds on the rounding errors of the image and of the linear term.
    drift: [f64; 2],
}

/// Frank-Wolfe with an explicit active set of vertices of the whole domain; each step moves all
/// blocks at once. With `subsample` below 1, each step calls the oracles of only a random share of
/// the blocks. In the other blocks, the new vertex equals the best active vertex. Such a step
/// maximises over the active set and a random subset of the vertices, like the randomized method.
/// Each active vertex takes the memory of one weight vector. Smoothed problems are not supported.
pub struct AwayFrankWolfe<'d, D> {
    dual: &'d mut D,
    step: Step,
    asked: usize,
    random: Pcg64Mcg,
    weights: Vec<f64>,
    linear: f64,
    atoms: Vec<Atom>,
    epochs: usize,
}

/// Number of steps between certificates. A certificate calls the oracles of all blocks once more.
const CERTIFIED_EVERY: usize = 10;

impl<'d, D: BlockDual> AwayFrankWolfe<'d, D> {
    /// Starts at the start vertex of every block. `subsample` is the share of the blocks whose
    /// oracles a step calls, more than 0 and at most 1.
    pub fn new(dual: &'d mut D, step: Step, subsample: f64, seed: u64) -> Self {
        let n = dual.shares().n_blocks();
        let vertices = (0..n).map(|block| Rc::new(dual.start(block))).collect();
        let image = vec![0.0; dual.n_weights()];
        Self {
            asked: ((subsample * n as f64).ceil() as usize).clamp(1, n),
            random: Pcg64Mcg::new(u128::from(seed)),
            weights: image.clone(),
            linear: 0.0,
            atoms: vec![Atom { vertices, image, linear: 0.0, weight: 1.0, drift: [0.0; 2] }],
            epochs: 0,
            dual,
            step,
        }
    }

    /// Returns the weights w.
    pub fn into_weights(self) -> Vec<f64> {
        self.weights
    }

    /// The weights of the active vertices.
    #[cfg(test)]
    pub fn active(&self) -> impl Iterator<Item = f64> {
        self.atoms.iter().map(|atom| atom.weight)
    }

    /// The slope of D towards an atom, up to a constant: Σ p_i l_i − λ ⟨w, w_a⟩.
    fn slope(&self, atom: &Atom) -> f64 {
        atom.linear - self.dual.shares().lambda() * dot_in_order(&self.weights, &atom.image)
    }

    /// The atom with the vertices `found` in `blocks`, and with the vertices of the active atom
    /// `from` in all other blocks.
    fn build(&mut self, blocks: &[u32], from: usize, found: Vec<Sparse>) -> Atom {
        let base = &self.atoms[from];
        let (mut vertices, mut image) = (base.vertices.clone(), base.image.clone());
        let (mut linear, mut direction) = (base.linear, Sparse::new());
        // For the rounding error: the summed sizes of all terms (of the image and of the linear
        // part), and the number of terms.
        let mut sizes = [norm_above(&image), linear.abs()];
        let (mut drift, mut n_terms) = (base.drift, 8);
        for (block, vertex) in blocks.iter().zip(found) {
            let index = *block as usize;
            sparse::subtract(&vertex, &vertices[index], &mut direction);
            if direction.is_empty() {
                continue;
            }
            let share = self.dual.shares().of(index);
            let (scales, length) = (self.dual.scales(index), 2.0 * length(&direction));
            sizes[0] += share / self.dual.shares().lambda() * scales.feature * length;
            sizes[1] += share * scales.cost * length;
            n_terms += direction.len() + 4;
            let mut moved = self.dual.image(index, &direction);
            moved.add_to(1.0, &mut image);
            linear += share * moved.linear();
            vertices[index] = Rc::new(vertex);
        }
        for (drift, size) in drift.iter_mut().zip(sizes) {
            *drift += gamma(n_terms) * size;
        }
        Atom { vertices, image, linear, weight: 0.0, drift }
    }

    /// Takes a step towards the vertex `to`, away from the worst active vertex, or both.
    fn walk(&mut self, to: usize) {
        let slopes: Vec<f64> = self.atoms.iter().map(|atom| self.slope(atom)).collect();
        let active = (0..self.atoms.len()).filter(|index| self.atoms[*index].weight > 0.0);
        let Some(from) = largest(active.map(|index| (index, -slopes[index]))) else { return };
        let here = self.linear - self.dual.shares().lambda() * squared_norm(&self.weights);
        let (towards, away) = (slopes[to] - here, here - slopes[from]);
        let kind = match self.step {
            Step::FrankWolfe => StepKind::Towards(to),
            Step::Pairwise => StepKind::Pairwise(to, from),
            Step::Away => StepKind::better(to, towards, from, away, self.atoms[from].weight),
        };
        let (target, source, slope) = match kind {
            StepKind::Towards(to) => (&self.atoms[to].image, &self.weights, towards),
            StepKind::Away(from) => (&self.weights, &self.atoms[from].image, away),
            StepKind::Pairwise(to, from) => {
                (&self.atoms[to].image, &self.atoms[from].image, towards + away)
            }
        };
        if slope <= 0.0 {
            return;
        }
        let distance = target.iter().zip(source).map(|(to, from)| (to - from).powi(2));
        let curvature = self.dual.shares().lambda() * distance.sum::<f64>();
        let longest = kind.longest(|index| self.atoms[index].weight);
        let step = if curvature > 0.0 { (slope / curvature).min(longest) } else { longest };
        for (index, atom) in self.atoms.iter_mut().enumerate() {
            atom.weight = kind.weight(index, atom.weight, step, step >= longest);
        }
        self.drop_unused();
    }

    /// Drops atoms without weight and recomputes w, so that rounding errors do not accumulate.
    fn drop_unused(&mut self) {
        self.atoms.retain(|atom| atom.weight > 0.0);
        let total: f64 = self.atoms.iter().map(|atom| atom.weight).sum();
        self.weights.fill(0.0);
        self.linear = 0.0;
        for atom in &mut self.atoms {
            atom.weight /= total;
            self.linear += atom.weight * atom.linear;
            axpy(&mut self.weights, atom.weight, &atom.image);
        }
    }
}

impl<D: BlockDual> Solver for AwayFrankWolfe<'_, D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let n = self.dual.shares().n_blocks();
        let mut blocks: Vec<u32> = (0..n as u32).collect();
        if self.asked < n {
            let (chosen, _) = blocks.partial_shuffle(&mut self.random, self.asked);
            chosen.sort_unstable();
            blocks = chosen.to_vec();
        }
        let found = self.dual.vertices(&blocks, &self.weights, interrupt)?;
        let best = largest(self.atoms.iter().map(|atom| self.slope(atom)).enumerate());
        let atom = self.build(&blocks, best.unwrap_or(0), found);
        // An active vertex found again is not added twice.
        let known = self.atoms.iter().position(|other| other.vertices == atom.vertices);
        let to = known.unwrap_or_else(|| {
            self.atoms.push(atom);
            self.atoms.len() - 1
        });
        self.walk(to);
        self.epochs += 1;
        if self.epochs.is_multiple_of(CERTIFIED_EVERY) || self.epochs == 1 {
            Ok(Progress::Epoch(self.certify(interrupt)?))
        } else {
            Ok(Progress::Uncertified)
        }
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let lambda = self.dual.shares().lambda();
        let loss = self.dual.block_gaps(&self.weights, &|_| &[], interrupt)?.loss;
        // The point is the combination of the atoms, with their weights divided by the sum of the
        // weights.
        let depth = gamma(4 * self.atoms.len() + 16);
        let (mut norm, mut linear) = (norm_above(&self.weights) + TINY.sqrt(), 0.0);
        for Atom { image, linear: value, weight, drift, .. } in &self.atoms {
            norm += weight * (drift[0] + depth * norm_above(image));
            linear += weight * (drift[1] + depth * value.abs());
        }
        let linear = Bounded::new(self.linear, linear);
        let dual = DualValue::of(lambda, linear, norm * (1.0 + depth), 0.0).bound();
        Ok(Certificate { primal: objective(lambda, &self.weights, loss), dual })
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.weights.clone()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.weights);
        true
    }
}

/// The L1 norm ‖δ‖₁.
fn length(direction: &[(u32, f64)]) -> f64 {
    direction.iter().map(|(_, value)| value.abs()).sum()
}
