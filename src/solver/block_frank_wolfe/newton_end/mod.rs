//! Newton's method on the known vertices, which finishes a block Frank-Wolfe run that stalls.
//!
//! An epoch calls the oracle for a vertex of every block, and then solves the dual restricted to
//! all known vertices (`docs/mathematics/newton.md`). Rescaling the features hardly changes the
//! number of epochs.

mod pace;
mod problem;
mod solve;
mod system;

pub(crate) use pace::Pace;

use problem::{Plane, PlaneBlock, Restricted};

use super::block::Block;
use super::options::BlockOptions;
use crate::dual::{BlockDual, Image, Shares, dual_value, objective};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Sparse, sparse};
use crate::run::{Certificate, Progress, Stopping};
use crate::solver::newton::FACTORISED;

/// Number of epochs after which a vertex is dropped if its weight stays 0.
const MAX_IDLE: usize = 10;
/// Maximum size of all planes in bytes, estimated with four planes per block.
const MAX_PLANE_BYTES: u128 = 1 << 29;

/// A restricted problem is solved until its gap is at most this share of the gap of the whole problem, but no further
/// than [`SHARE_OF_GOAL`] allows.
const SHARE_OF_GAP: f64 = 0.05;
/// No restricted problem is solved to a gap below this share of the tolerated gap.
const SHARE_OF_GOAL: f64 = 0.3;

/// The vertices of the blocks and their planes.
pub(crate) struct NewtonEnd {
    options: BlockOptions,
    stopping: Stopping,
    restricted: Restricted,
    /// The last certificate.
    last: Certificate,
    /// Number of successive epochs that found no new vertex and hardly reduced the gap.
    n_idle: usize,
}

impl NewtonEnd {
    /// Whether Newton's method can handle a dual with these shares: the systems of the restricted problem must be small
    /// enough to factorise, and the planes must fit into memory. Smoothing and sign constraints are not supported.
    pub fn is_possible(shares: &Shares, n_weights: usize) -> bool {
        let bytes = 64 * n_weights as u128 * shares.n_blocks() as u128;
        let is_plain = shares.smoothing() == 0.0 && shares.cone().is_everything();
        is_plain && n_weights <= FACTORISED && bytes <= MAX_PLANE_BYTES
    }

    /// Starts from the active vertices of the given blocks. A block without vertices begins at its
    /// start vertex.
    pub fn new<D: BlockDual>(
        dual: &mut D,
        options: BlockOptions,
        (stopping, last): (Stopping, Certificate),
        blocks: &[Block],
    ) -> Self {
        let (shares, n_weights) = (dual.shares(), dual.n_weights());
        let scale = |block: usize| shares.of(block) / shares.lambda();
        let empty = |block| PlaneBlock { scale: scale(block), planes: Vec::new() };
        let empty = (0..blocks.len()).map(empty).collect();
        // Newton's method needs the vertices of every block from here on.
        let options = BlockOptions { cache: true, ..options };
        let restricted = Restricted { n_weights, blocks: empty };
        let mut end = Self { options, stopping, restricted, last, n_idle: 0 };
        let mut dense = vec![0.0; n_weights];
        for (index, block) in blocks.iter().enumerate() {
            let start = dual.start(index);
            let first = end.remember(dual, index, start, &mut dense);
            if block.atoms.is_empty() {
                first.weight = 1.0;
            }
            for atom in &block.atoms {
                end.remember(dual, index, atom.vertex.clone(), &mut dense).weight = atom.weight;
            }
        }
        end
    }

    /// Runs an epoch: calls the oracle for new vertices at the current weights, solves the dual
    /// restricted to all known vertices, and moves the weights and the blocks to the solution.
    /// Calls the oracle twice for every block.
    pub fn advance<D: BlockDual>(
        &mut self,
        dual: &mut D,
        (weights, blocks): (&mut Vec<f64>, &mut [Block]),
        interrupt: &Interrupt,
    ) -> Result<Progress> {
        let is_new = self.add_vertices(dual, weights, interrupt)?;
        let before = self.last.gap();
        let goal = SHARE_OF_GOAL * self.stopping.allowed(self.last.primal);
        let goal = goal.max(SHARE_OF_GAP * before);
        self.restricted.solve(weights, goal / dual.shares().lambda(), interrupt)?;
        for (block, own) in blocks.iter_mut().zip(&mut self.restricted.blocks) {
            own.planes.retain(|plane| plane.n_idle <= MAX_IDLE);
            let active = own.planes.iter().filter(|plane| plane.weight > 0.0);
            let atoms = active.map(|plane| (plane.vertex.clone(), plane.weight));
            *block = Block::combining(atoms, &self.options);
        }
        self.last = certificate(dual, weights, blocks, interrupt)?;
        let is_idle = !is_new && self.last.gap() > 0.9 * before;
        self.n_idle = if is_idle { self.n_idle + 1 } else { 0 };
        // Continue after the first idle epoch: it may have moved to weights at which the oracle
        // finds new vertices.
        let progress = if self.n_idle > 1 { Progress::Exhausted } else { Progress::Epoch };
        Ok(progress(self.last))
    }

    /// The certificate of the last epoch.
    pub fn certificate(&self) -> Certificate {
        self.last
    }

    fn add_vertices<D: BlockDual>(
        &mut self,
        dual: &mut D,
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<bool> {
        let n_blocks = self.restricted.blocks.len() as u32;
        let has_share = |block: &u32| dual.shares().of(*block as usize) > 0.0;
        let asked: Vec<u32> = (0..n_blocks).filter(has_share).collect();
        let found = dual.vertices(&asked, weights, interrupt)?;
        let mut dense = vec![0.0; weights.len()];
        let before = self.restricted.n_planes();
        for (block, vertex) in asked.into_iter().zip(found) {
            self.remember(dual, block as usize, vertex, &mut dense);
        }
        Ok(self.restricted.n_planes() > before)
    }

    /// Returns the plane of a vertex. If there is none, adds a plane of weight 0. `dense` is scratch memory; it must be
    /// all 0, and is all 0 again on return.
    fn remember<D: BlockDual>(
        &mut self,
        dual: &mut D,
        index: usize,
        vertex: Sparse,
        dense: &mut [f64],
    ) -> &mut Plane {
        let PlaneBlock { scale, planes } = &mut self.restricted.blocks[index];
        let known = planes.iter().position(|plane| plane.vertex == vertex);
        let place = known.unwrap_or(planes.len());
        if known.is_none() {
            let mut direction = Sparse::new();
            sparse::subtract(&vertex, &dual.start(index), &mut direction);
            let mut image = dual.image(index, &direction);
            let linear = image.linear();
            let mut entries = Sparse::new();
            if *scale > 0.0 {
                image.add_to(1.0 / *scale, dense);
                let places = (0..).zip(dense).filter(|(_, value)| **value != 0.0);
                entries.extend(places.map(|(at, value)| (at, std::mem::take(value))));
            }
            planes.push(Plane { vertex, linear, image: entries, weight: 0.0, n_idle: 0 });
        }
        &mut planes[place]
    }
}

/// Returns the certificate for the given weights and the blocks' points: the objective at the weights, and the dual
/// value at the points.
fn certificate<D: BlockDual>(
    dual: &mut D,
    weights: &[f64],
    blocks: &[Block],
    interrupt: &Interrupt,
) -> Result<Certificate> {
    let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
    let loss = dual.block_gaps(weights, &points, interrupt)?.loss;
    let bound = dual_value(dual, &points, &|index| blocks[index].drift(), interrupt)?.bound();
    Ok(Certificate { primal: objective(dual.shares().lambda(), weights, loss), dual: bound })
}
