//! The current point of one block, and the vertices of which it is a convex combination.

use super::BlockOptions;
use crate::dual::rounding::gamma;
use crate::linalg::{Sparse, sparse};
use crate::solver::active_set::{StepKind, largest};

/// When a block remembers this number of vertices, each new vertex replaces the vertex of weight 0
/// that has been unused for longest, if there is one.
const MAX_ATOMS: usize = 100;

/// Number of visits after which the point is recomputed from its vertices, so that rounding errors do not accumulate.
const VISITS_PER_REBUILD: u32 = 64;

/// A vertex and its weight in the block's convex combination.
#[derive(Debug, Clone, PartialEq)]
pub struct Atom {
    /// The vertex.
    pub vertex: Sparse,
    /// The weight, which is not negative; the weights of a block sum to 1.
    pub weight: f64,
    /// Number of the last visit in which this was the best vertex.
    used: u32,
}

/// The point μ_i of a block, and its active set if the step rule needs one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// The point μ_i.
    pub point: Sparse,
    /// The active set; empty if it is not kept.
    pub atoms: Vec<Atom>,
    /// The parts in which any atom has an entry (for the cache).
    pub parts: Vec<u32>,
    /// Whether vertices of weight 0 stay in the cache.
    cached: bool,
    visits: u32,
    /// Without an active set: a bound on the L1 norm of the point's rounding errors.
    drift: f64,
}

impl Block {
    /// A block whose point is a vertex. The vertex is also its active set if the options require
    /// one.
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

    /// The active vertices with their weights, or only the point if no vertices are kept.
    pub fn combination(&self) -> impl Iterator<Item = (&Sparse, f64)> {
        let point = self.atoms.is_empty().then_some((&self.point, 1.0));
        let active = self.atoms.iter().filter(|atom| atom.weight > 0.0);
        active.map(|atom| (&atom.vertex, atom.weight)).chain(point)
    }

    /// For blocks without an active set: moves the point to `vertex`, and stores the old point in
    /// `vertex`.
    pub fn jump(&mut self, vertex: &mut Sparse) {
        std::mem::swap(&mut self.point, vertex);
        self.drift = 0.0;
    }

    /// For blocks without an active set: moves the point by `step` along `direction`, which leads to a vertex.
    pub fn approach(&mut self, step: f64, direction: &Sparse, rounding: f64, spare: &mut Sparse) {
        sparse::add(&mut self.point, step, direction, rounding, spare);
        // The direction, its product with the step and the sum are rounded, and tiny entries are
        // dropped.
        let n_entries = (self.point.len() + direction.len()) as f64;
        let size = length(&self.point) + length(direction);
        self.drift = (1.0 - step) * self.drift + gamma(4) * size + n_entries * rounding;
    }

    /// A bound, in ‖·‖₁, on the distance of the point from a convex combination of vertices.
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

    /// Records that this atom was the best atom in this visit.
    pub fn touch(&mut self, index: usize) {
        self.visits += 1;
        self.atoms[index].used = self.visits;
    }

    /// Returns the index of the atom with this vertex. If there is none, adds an atom of weight 0.
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

    /// Drops the atom of weight 0 that has been unused for longest, if there is one.
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

    /// The remembered vertex with the largest value; if several are equal, the first.
    pub fn best(&self, value: impl Fn(&Sparse) -> f64) -> Option<usize> {
        largest(self.atoms.iter().enumerate().map(|(index, atom)| (index, value(&atom.vertex))))
    }

    /// The active vertex with the smallest value; if several are equal, the first.
    pub fn worst(&self, value: impl Fn(&Sparse) -> f64) -> Option<usize> {
        let active = self.atoms.iter().enumerate().filter(|(_, atom)| atom.weight > 0.0);
        largest(active.map(|(index, atom)| (index, -value(&atom.vertex))))
    }

    /// The longest step of this kind that keeps all weights non-negative.
    pub fn longest(&self, kind: StepKind) -> f64 {
        kind.longest(|index| self.atoms[index].weight)
    }

    /// Takes a step along `direction`: changes the weights and the point.
    pub fn step(
        &mut self,
        kind: StepKind,
        step: f64,
        direction: &Sparse,
        rounding: f64,
        spare: &mut Sparse,
    ) {
        let full = step >= self.longest(kind);
        for (index, atom) in self.atoms.iter_mut().enumerate() {
            atom.weight = kind.weight(index, atom.weight, step, full);
        }
        if full && matches!(kind, StepKind::Towards(_))
            || self.visits.is_multiple_of(VISITS_PER_REBUILD)
        {
            self.rebuild(spare);
        } else {
            sparse::add(&mut self.point, step, direction, rounding, spare);
        }
        if !self.cached {
            self.atoms.retain(|atom| atom.weight > 0.0);
        }
    }

    /// Recomputes the point, with the weights scaled to sum to 1, so that rounding errors do not
    /// accumulate.
    fn rebuild(&mut self, spare: &mut Sparse) {
        let total: f64 = self.atoms.iter().map(|atom| atom.weight).sum();
        self.point.clear();
        for atom in self.atoms.iter_mut().filter(|atom| atom.weight > 0.0) {
            atom.weight /= total;
            sparse::add(&mut self.point, atom.weight, &atom.vertex, 0.0, spare);
        }
    }
}

/// The L1 norm ‖v‖₁.
fn length(vector: &[(u32, f64)]) -> f64 {
    vector.iter().map(|(_, value)| value.abs()).sum()
}
