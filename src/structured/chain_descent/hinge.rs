//! The structured hinge loss: block Frank-Wolfe (Lacoste-Julien et al. 2013).

use super::image::Image;
use super::{BlockLoss, Proposal, Scratch, Task, Terms};
use crate::dual::Bounded;
use crate::dual::rounding::gamma;
use crate::linalg::sparse::{self, dot};
use crate::linalg::Sparse;
use crate::solver::{Block, BlockOptions};
use crate::structured::model::{Chain, Model};

/// Entries of a point at most this large are nothing but rounding.
const DUST: f64 = 1e-15;

/// Φ_i(w) = max over y of L_i(y) + ⟨w, φ(x_i, y) − φ(x_i, y_i)⟩, its blocks being convex combinations of
/// labels' parts.
pub struct Hinge {
    blocks: Vec<Block>,
    spare: Sparse,
}

/// The dual points by sequence: parts and their values.
pub type HingePoint = Vec<Sparse>;

/// A step towards a label.
pub struct Move {
    vertex: Sparse,
    direction: Sparse,
    /// ⟨c, direction⟩.
    cost: f64,
}

impl Hinge {
    /// Starts at the right labels, or at points of an earlier fit to the same sequences.
    pub fn new(chain: &Chain, start: Option<HingePoint>) -> Self {
        let options = BlockOptions::default();
        let blocks = match start {
            Some(points) => {
                let block = |point| Block::combining([(point, 1.0)], &options);
                points.into_iter().map(block).collect()
            }
            None => {
                let mut truth = Sparse::new();
                let mut block = |example| {
                    chain.parts(example, chain.truth(example), &mut truth);
                    Block::at(truth.clone(), &options)
                };
                (0..chain.n_examples()).map(&mut block).collect()
            }
        };
        Self { blocks, spare: Sparse::new() }
    }

    /// The dual point.
    pub fn into_points(self) -> HingePoint {
        self.blocks.into_iter().map(|block| block.point).collect()
    }
}

impl Scratch {
    /// The scores and the costs of all parts.
    fn load(&mut self, chain: &Chain, example: usize, weights: Option<&[f64]>) {
        let n_parts = chain.n_parts(example);
        self.scores.resize(n_parts, 0.0);
        match weights {
            Some(weights) => chain.scores(example, weights, &mut self.scores),
            None => chain.scores_at_zero(example, &mut self.scores),
        }
        self.trial.clear();
        self.trial.resize(n_parts, 0.0);
        chain.add_costs(example, &mut self.trial);
        self.scores.iter_mut().zip(&self.trial).for_each(|(score, cost)| *score += cost);
    }

    /// The best label's parts, and its margin over the right one.
    fn find(&mut self, chain: &Chain, example: usize) -> f64 {
        chain.decode(example, &self.scores, &mut self.work, &mut self.label);
        chain.parts(example, chain.truth(example), &mut self.truth);
        if self.label == chain.truth(example) {
            self.vertex.clone_from(&self.truth);
            return 0.0;
        }
        chain.parts(example, &self.label, &mut self.vertex);
        (dot(&self.scores, &self.vertex) - dot(&self.scores, &self.truth)).max(0.0)
    }

    /// The largest cost.
    fn largest_cost(&self) -> f64 {
        self.trial.iter().fold(0.0, |largest: f64, cost| largest.max(cost.abs()))
    }
}

impl BlockLoss for Hinge {
    type Change = Move;

    fn propose(
        &self,
        task: &Task<'_>,
        example: usize,
        weights: &[f64],
        scratch: &mut Scratch,
    ) -> Proposal<Move> {
        let (chain, share) = (task.chain, task.shares.of(example));
        scratch.load(chain, example, Some(weights));
        let loss = share * scratch.find(chain, example);
        let mut direction = Sparse::new();
        sparse::subtract(&scratch.vertex, &self.blocks[example].point, &mut direction);
        let gap = share * dot(&scratch.scores, &direction);
        if gap <= 0.0 {
            return Proposal { example, image: Image::default(), gap, loss, change: None };
        }
        scratch.gatherer.add_parts(chain, example, &direction);
        let image = scratch.gatherer.finish(chain);
        let cost = dot(&scratch.trial, &direction);
        let change = Some(Move { vertex: scratch.vertex.clone(), direction, cost });
        Proposal { example, image, gap, loss, change }
    }

    fn step(&self, _: usize, change: &Move, slope: f64, curvature: f64) -> f64 {
        let slope = slope + change.cost;
        if curvature > 0.0 { (slope / curvature).clamp(0.0, 1.0) } else { f64::from(slope > 0.0) }
    }

    fn accept(&mut self, example: usize, mut change: Move, step: f64) {
        if step == 1.0 {
            self.blocks[example].jump(&mut change.vertex);
        } else if step > 0.0 {
            self.blocks[example].approach(step, &change.direction, DUST, &mut self.spare);
        }
    }

    fn loss(
        &self,
        task: &Task<'_>,
        example: usize,
        (weights, norm): (&[f64], f64),
        scratch: &mut Scratch,
    ) -> Bounded {
        scratch.load(task.chain, example, (norm > 0.0).then_some(weights));
        let loss = scratch.find(task.chain, example);
        let cost = scratch.largest_cost();
        Bounded::new(loss, task.chain.size(example).loss_error(cost, norm))
    }

    fn terms(&self, task: &Task<'_>, example: usize, scratch: &mut Scratch) -> (Terms, Image) {
        let (chain, block) = (task.chain, &self.blocks[example]);
        chain.parts(example, chain.truth(example), &mut scratch.truth);
        sparse::subtract(&block.point, &scratch.truth, &mut scratch.vertex);
        scratch.trial.clear();
        scratch.trial.resize(chain.n_parts(example), 0.0);
        chain.add_costs(example, &mut scratch.trial);
        let size = chain.size(example);
        let rounding = gamma(2) * (length(&block.point) + length(&scratch.truth));
        let terms = Terms {
            linear: dot(&scratch.trial, &scratch.vertex),
            bend: 0.0,
            length: length(&scratch.vertex),
            n_entries: scratch.vertex.len(),
            defect: block.drift() + rounding,
            scales: size.scales(scratch.largest_cost()),
        };
        scratch.gatherer.add_parts(chain, example, &scratch.vertex);
        (terms, scratch.gatherer.finish(chain))
    }
}

/// ‖δ‖₁, rounded up.
fn length(delta: &[(u32, f64)]) -> f64 {
    let size: f64 = delta.iter().map(|(_, value)| value.abs()).sum();
    size * (1.0 + gamma(delta.len()))
}
