//! One block's point and the vertices that it is made of.

use super::BlockOptions;
use crate::dual::rounding::gamma;
use crate::linalg::{Sparse, sparse};
use crate::solver::active_set::{Kind, largest};

/// Vertices that a block remembers; the unused ones go first.
const MAX_ATOMS: usize = 100;

/// Visits after which the point is summed anew from its vertices, so that rounding does not accumulate.
const REBUILT: u32 = 64;

/// A vertex and its weight in the block's convex combination.
#[derive(Debug, Clone, PartialEq)]
pub struct Atom {
    /// The vertex.
    pub vertex: Sparse,
    /// Not negative; the weights of a block sum to 1.
    pub weight: f64,
    /// When it was last the best one, in visits.
    used: u32,
}

/// μ_i, and its active set where the steps need one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// μ_i.
    pub point: Sparse,
    /// The active set; empty where it is not kept.
    pub atoms: Vec<Atom>,
    /// The parts of all atoms (for the cache).
    pub parts: Vec<u32>,
    /// Whether vertices of weight 0 are remembered.
    cached: bool,
    visits: u32,
    /// Without an active set: a bound on ‖·‖₁ of what rounding has done to the point.
    drift: f64,
}

impl Block {
    /// A block at a vertex, which is all of its active set where the options ask for one.
    pub fn at(vertex: Sparse, options: &BlockOptions) -> Self {
        let mut block = Self { point: vertex.clone(), cached: options.cache, ..Self::default() };
        if options.keeps_atoms() {
            let index = block.remember(&vertex);
            block.atoms[index].weight = 1.0;
        }
        block
    }

    /// A block at a convex combination of points of its polytope.
    pub fn combining(
        atoms: impl IntoIterator<Item = (Sparse, f64)>,
        options: &BlockOptions,
    ) -> Self {
        let mut block = Self { cached: options.cache, ..Self::default() };
        for (vertex, weight) in atoms {
            let index = block.remember(&vertex);
            block.atoms[index].weight += weight;
        }
        block.rebuild(&mut Sparse::new());
        if !options.keeps_atoms() {
            let size: f64 = block.atoms.iter().map(|atom| atom.weight * length(&atom.vertex)).sum();
            block.drift = gamma(block.atoms.len() + 8) * size;
            block.atoms.clear();
        }
        block
    }

    /// The convex combination that the block is: its active vertices, or its point where it keeps none.
    pub fn combination(&self) -> impl Iterator<Item = (&Sparse, f64)> {
        let point = self.atoms.is_empty().then_some((&self.point, 1.0));
        let active = self.atoms.iter().filter(|atom| atom.weight > 0.0);
        active.map(|atom| (&atom.vertex, atom.weight)).chain(point)
    }

    /// Moves to a vertex, leaving the old point in its place (no active set).
    pub fn jump(&mut self, vertex: &mut Sparse) {
        std::mem::swap(&mut self.point, vertex);
        self.drift = 0.0;
    }

    /// Moves part of the way to a vertex (no active set); `direction` is all of the way.
    pub fn approach(&mut self, step: f64, direction: &Sparse, rounding: f64, spare: &mut Sparse) {
        sparse::add(&mut self.point, step, direction, rounding, spare);
        // The direction, its product with the step and the sum are rounded, and dust is dropped.
        let n_entries = (self.point.len() + direction.len()) as f64;
        let size = length(&self.point) + length(direction);
        self.drift = (1.0 - step) * self.drift + gamma(4) * size + n_entries * rounding;
    }

    /// A bound on ‖·‖₁ of what separates the point from a convex combination of vertices.
    pub fn drift(&self) -> f64 {
        if self.atoms.is_empty() {
            return self.drift;
        }
        let mut exact = self.clone();
        let (mut spare, mut difference) = (Sparse::new(), Sparse::new());
        exact.rebuild(&mut spare);
        sparse::subtract(&exact.point, &self.point, &mut difference);
        let active = exact.atoms.iter().filter(|atom| atom.weight > 0.0);
        let size: f64 = active.map(|atom| atom.weight * length(&atom.vertex)).sum();
        length(&difference) * (1.0 + gamma(4)) + gamma(exact.atoms.len() + 8) * size
    }

    /// Notes that an atom is the best one.
    pub fn touch(&mut self, index: usize) {
        self.visits += 1;
        self.atoms[index].used = self.visits;
    }

    /// The atom that is this vertex, a new one of weight 0 if need be.
    pub fn remember(&mut self, vertex: &Sparse) -> usize {
        if let Some(found) = self.atoms.iter().position(|atom| atom.vertex == *vertex) {
            self.touch(found);
            return found;
        }
        self.visits += 1;
        if self.atoms.len() >= MAX_ATOMS {
            self.forget_one();
        }
        self.atoms.push(Atom { vertex: vertex.clone(), weight: 0.0, used: self.visits });
        if self.cached {
            sparse::unite(&mut self.parts, vertex);
        }
        self.atoms.len() - 1
    }

    /// Drops the atom of weight 0 that was useless for longest, if there is one.
    fn forget_one(&mut self) {
        let idle = (0..self.atoms.len()).filter(|index| self.atoms[*index].weight == 0.0);
        if let Some(index) = idle.min_by_key(|index| self.atoms[*index].used) {
            self.atoms.swap_remove(index);
            self.parts.clear();
            for atom in &self.atoms {
                sparse::unite(&mut self.parts, &atom.vertex);
            }
        }
    }

    /// The remembered vertex with the largest value, the first of equals.
    pub fn best(&self, value: impl Fn(&Sparse) -> f64) -> Option<usize> {
        largest(self.atoms.iter().enumerate().map(|(index, atom)| (index, value(&atom.vertex))))
    }

    /// The vertex of the combination with the smallest value, the first of equals.
    pub fn worst(&self, value: impl Fn(&Sparse) -> f64) -> Option<usize> {
        let active = self.atoms.iter().enumerate().filter(|(_, atom)| atom.weight > 0.0);
        largest(active.map(|(index, atom)| (index, -value(&atom.vertex))))
    }

    /// The longest step of a kind that keeps all weights non-negative.
    pub fn longest(&self, kind: Kind) -> f64 {
        kind.longest(|index| self.atoms[index].weight)
    }

    /// Moves the weights and the point; `direction` is that of a unit step.
    pub fn step(
        &mut self,
        kind: Kind,
        step: f64,
        direction: &Sparse,
        rounding: f64,
        spare: &mut Sparse,
    ) {
        let full = step >= self.longest(kind);
        for (index, atom) in self.atoms.iter_mut().enumerate() {
            atom.weight = kind.weight(index, atom.weight, step, full);
        }
        if full && matches!(kind, Kind::Towards(_)) || self.visits.is_multiple_of(REBUILT) {
            self.rebuild(spare);
        } else {
            sparse::add(&mut self.point, step, direction, rounding, spare);
        }
        if !self.cached {
            self.atoms.retain(|atom| atom.weight > 0.0);
        }
    }

    /// Sums the point anew, the weights scaled to the sum 1, so that rounding does not accumulate.
    fn rebuild(&mut self, spare: &mut Sparse) {
        let total: f64 = self.atoms.iter().map(|atom| atom.weight).sum();
        self.point.clear();
        for atom in self.atoms.iter_mut().filter(|atom| atom.weight > 0.0) {
            atom.weight /= total;
            sparse::add(&mut self.point, atom.weight, &atom.vertex, 0.0, spare);
        }
    }
}

/// ‖v‖₁.
fn length(vector: &[(u32, f64)]) -> f64 {
    vector.iter().map(|(_, value)| value.abs()).sum()
}
