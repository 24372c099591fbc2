//! Block Frank-Wolfe (BCFW): Frank-Wolfe on one block of the dual after the other, with closed-form line
//! search (Lacoste-Julien et al. 2013; SPEC 10.3, 15), its away and pairwise steps, gap sampling and
//! oracle cache (Osokin et al. 2016).

mod block;
mod sampling;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

pub use block::{Atom, Block};

use self::sampling::SumTree;
use super::active_set::Kind;
use crate::dual::{BlockDual, Survey};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::linalg::{Sparse, sparse};
use crate::run::{Certificate, Progress, Solver};

/// Which steps a block makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockStep {
    /// Towards the best vertex.
    FrankWolfe,
    /// Towards the best vertex or away from the worst active one, whichever has the larger slope.
    Away,
    /// From the worst active vertex to the best one.
    Pairwise,
}

/// Which blocks an epoch visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Each once, in random order.
    Permutation,
    /// As many as there are, drawn uniformly.
    Uniform,
    /// As many as there are, drawn in proportion to their last known gaps.
    Gap,
}

impl BlockStep {
    /// Names by which callers choose.
    pub const NAMES: &[(&str, Self)] =
        &[("frank-wolfe", Self::FrankWolfe), ("away", Self::Away), ("pairwise", Self::Pairwise)];
}

impl Sampling {
    /// Names by which callers choose.
    pub const NAMES: &[(&str, Self)] =
        &[("permutation", Self::Permutation), ("uniform", Self::Uniform), ("gap", Self::Gap)];
}

/// How block Frank-Wolfe goes about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockOptions {
    /// Of the order of the blocks.
    pub seed: u64,
    /// The steps.
    pub step: BlockStep,
    /// The order.
    pub sampling: Sampling,
    /// Whether vertices found before are tried before the oracle is called.
    pub cache: bool,
    /// Whether the model is the average of the iterates, the k-th weighted by k; the dual value remains
    /// that of the last one. Not with smoothing.
    pub averaging: bool,
    /// A certificate costs a pass: it is taken in epochs whose measured gaps sum to less than this, and
    /// otherwise after 1, 2, 4, 8, 10, 20, 30, ... epochs.
    pub certify_below: f64,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            step: BlockStep::FrankWolfe,
            sampling: Sampling::Permutation,
            cache: false,
            averaging: false,
            certify_below: f64::INFINITY,
        }
    }
}

/// A remembered vertex is taken if its gap is at least this share of the block's last known one...
const CACHE_BLOCK_SHARE: f64 = 0.25;
/// ...and this share of the mean one (F and ν of Osokin et al.).
const CACHE_MEAN_SHARE: f64 = 0.01;

/// Frank-Wolfe on one block of the dual at a time.
///
/// A block's point is kept as a sparse vector over its parts, never as a vector of weights; away and
/// pairwise steps and the cache also keep the vertices that it is made of.
pub struct BlockFrankWolfe<D> {
    dual: D,
    options: BlockOptions,
    random: Pcg64Mcg,
    weights: Vec<f64>,
    average: Option<Average>,
    blocks: Vec<Block>,
    /// p_i times the last known gap of each block.
    gaps: SumTree,
    order: Vec<u32>,
    epochs: usize,
    oracle_calls: usize,
    vertex: Sparse,
    direction: Sparse,
    spare: Sparse,
}

/// The weighted average of the iterates: w̄ = w − drift / Σk, where drift = Σ_k (0 + 1 + … + (k − 1)) Δ_k
/// and Δ_k is the change of w in step k.
struct Average {
    drift: Vec<f64>,
    steps: f64,
    weights: Vec<f64>,
}

impl Average {
    /// Counts a step; returns the mass before it.
    fn tick(&mut self) -> f64 {
        let before = self.mass();
        self.steps += 1.0;
        before
    }

    /// Σ of the step numbers so far.
    fn mass(&self) -> f64 {
        0.5 * self.steps * (self.steps + 1.0)
    }
}

impl<D: BlockDual> BlockFrankWolfe<D> {
    /// Starts with every block at its start vertex, or at the given blocks and their weights.
    pub fn new(dual: D, options: BlockOptions, start: Option<(Vec<f64>, Vec<Block>)>) -> Self {
        let n = dual.n_blocks();
        let keep_atoms = options.cache || options.step != BlockStep::FrankWolfe;
        let (weights, blocks) = start.unwrap_or_else(|| {
            let block = |index| Block::at(dual.start(index), keep_atoms, options.cache);
            (vec![0.0; dual.n_weights()], (0..n).map(block).collect())
        });
        let average = options.averaging.then(|| Average {
            drift: vec![0.0; weights.len()],
            steps: 0.0,
            weights: weights.clone(),
        });
        Self {
            random: Pcg64Mcg::new(u128::from(options.seed)),
            average,
            gaps: SumTree::new(n),
            order: (0..n as u32).collect(),
            epochs: 0,
            oracle_calls: 0,
            vertex: Sparse::new(),
            direction: Sparse::new(),
            spare: Sparse::new(),
            dual,
            options,
            weights,
            blocks,
        }
    }

    /// The model: w(μ), or the average.
    pub fn weights(&self) -> &[f64] {
        self.average.as_ref().map_or(&self.weights, |average| &average.weights)
    }

    /// The dual point, block by block.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Calls of the oracle so far, those of the certificates included.
    pub fn oracle_calls(&self) -> usize {
        self.oracle_calls
    }

    /// Gives back the problem, w(μ) and the blocks.
    pub fn into_parts(self) -> (D, Vec<f64>, Vec<Block>) {
        (self.dual, self.weights, self.blocks)
    }

    /// One step of one block.
    fn visit(&mut self, index: usize) -> Result<()> {
        let share = self.dual.share(index);
        if share == 0.0 {
            return Ok(());
        }
        let before = self.average.as_mut().map_or(0.0, Average::tick);
        let cached = if self.options.cache { self.look_up(index, share) } else { None };
        let to = match cached {
            Some(to) => to,
            None => self.ask(index, share)?,
        };
        let Some(kind) = self.aim(index, to) else { return Ok(()) };
        let slope = self.dual.along(&self.weights, &self.direction);
        if slope <= 0.0 {
            return Ok(());
        }
        let block = &mut self.blocks[index];
        let longest = if block.atoms.is_empty() { 1.0 } else { block.longest(kind) };
        let curvature = self.dual.curvature(index, &self.direction);
        let step = if curvature > 0.0 { (slope / curvature).min(longest) } else { longest };
        self.dual.advance(index, &self.direction, step, &mut self.weights);
        if let Some(average) = &mut self.average {
            self.dual.advance(index, &self.direction, step * before, &mut average.drift);
        }
        let dust = self.dual.dust();
        if !block.atoms.is_empty() {
            block.step(kind, step, &self.direction, dust, &mut self.spare);
        } else if step == 1.0 {
            std::mem::swap(&mut block.point, &mut self.vertex);
        } else {
            sparse::add(&mut block.point, step, &self.direction, dust, &mut self.spare);
        }
        Ok(())
    }

    /// The best remembered vertex, if it is good enough to save a call of the oracle.
    fn look_up(&mut self, index: usize, share: f64) -> Option<usize> {
        let block = &self.blocks[index];
        self.dual.load_at(index, &block.parts, &self.weights, &block.point);
        let (dual, weights) = (&self.dual, &self.weights);
        let best = block.best(|vertex| dual.along(weights, vertex))?;
        let value = dual.along(weights, &block.atoms[best].vertex);
        let gap = share * (value - dual.along(weights, &block.point));
        let mean = self.gaps.total() / self.blocks.len() as f64;
        let enough = (CACHE_BLOCK_SHARE * self.gaps.get(index)).max(CACHE_MEAN_SHARE * mean);
        let good = gap > 0.0 && gap >= enough;
        if good {
            self.blocks[index].touch(best);
        }
        good.then_some(best)
    }

    /// Calls the oracle; notes the block's gap. The index of the vertex counts only with an active set.
    fn ask(&mut self, index: usize, share: f64) -> Result<usize> {
        let block = &mut self.blocks[index];
        self.dual.load(index, &self.weights, &block.point);
        self.dual.vertex(index, &self.weights, &mut self.vertex)?;
        self.oracle_calls += 1;
        let value = |point: &[(u32, f64)]| self.dual.along(&self.weights, point);
        let gap = value(&self.vertex) - value(&block.point);
        self.gaps.set(index, (share * gap).max(0.0));
        Ok(if block.atoms.is_empty() { 0 } else { block.remember(&self.vertex) })
    }

    /// Chooses the kind of step, given the vertex to go to, and writes its direction.
    fn aim(&mut self, index: usize, to: usize) -> Option<Kind> {
        let (dual, weights, block) = (&self.dual, &self.weights, &self.blocks[index]);
        if block.atoms.is_empty() {
            sparse::subtract(&self.vertex, &block.point, &mut self.direction);
            return Some(Kind::Towards(0));
        }
        let value = |point: &Sparse| dual.along(weights, point);
        let target = &block.atoms[to].vertex;
        let kind = match self.options.step {
            BlockStep::FrankWolfe => Kind::Towards(to),
            BlockStep::Pairwise => Kind::Pairwise(to, block.worst(value)?),
            BlockStep::Away => {
                let from = block.worst(value)?;
                let middle = value(&block.point);
                let towards = value(target) - middle;
                let away = middle - value(&block.atoms[from].vertex);
                Kind::better(to, towards, from, away, block.atoms[from].weight)
            }
        };
        let direction = &mut self.direction;
        match kind {
            Kind::Towards(_) => sparse::subtract(target, &block.point, direction),
            Kind::Away(from) => {
                sparse::subtract(&block.point, &block.atoms[from].vertex, direction)
            }
            Kind::Pairwise(_, from) => {
                sparse::subtract(target, &block.atoms[from].vertex, direction);
            }
        }
        Some(kind)
    }

    /// Passes over all blocks at the current weights and takes note of their gaps.
    fn survey(&mut self, interrupt: &Interrupt) -> Result<Survey> {
        let blocks = &self.blocks;
        let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
        let survey = self.dual.survey(&self.weights, &points, interrupt)?;
        self.oracle_calls += blocks.len();
        for (index, gap) in survey.gaps.iter().enumerate() {
            self.gaps.set(index, gap.max(0.0));
        }
        Ok(survey)
    }

    fn draw(&mut self, visit: usize) -> usize {
        match self.options.sampling {
            Sampling::Permutation => self.order[visit] as usize,
            Sampling::Uniform => self.random.random_range(0..self.blocks.len()),
            Sampling::Gap => {
                let share = self.random.random::<f64>();
                self.gaps.find(share).unwrap_or(visit)
            }
        }
    }

    /// Whether this epoch ends with a certificate.
    fn is_certified(&self) -> bool {
        let plotted = self.epochs.is_multiple_of(10) || matches!(self.epochs, 1 | 2 | 4 | 8);
        plotted || self.gaps.total() <= self.options.certify_below
    }
}

impl<D: BlockDual> Solver for BlockFrankWolfe<D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if self.epochs == 0 && self.options.sampling == Sampling::Gap {
            self.survey(interrupt)?;
        }
        if self.options.sampling == Sampling::Permutation {
            self.order.shuffle(&mut self.random);
        }
        for visit in 0..self.blocks.len() {
            interrupt.check()?;
            let index = self.draw(visit);
            self.visit(index)?;
        }
        self.epochs += 1;
        if self.is_certified() {
            Ok(Progress::Epoch(self.certify(interrupt)?))
        } else {
            Ok(Progress::Uncertified)
        }
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let lambda = self.dual.lambda();
        let survey = self.survey(interrupt)?;
        let regularizer = 0.5 * lambda * squared_norm(&self.weights);
        // Steps never lower the dual value, so that the average point's would be behind.
        let dual = survey.linear - regularizer;
        let Some(average) = &mut self.average else {
            return Ok(Certificate { primal: regularizer + survey.loss, dual });
        };
        let mass = average.mass().max(1.0);
        for (target, (weight, drift)) in
            average.weights.iter_mut().zip(self.weights.iter().zip(&average.drift))
        {
            *target = weight - drift / mass;
        }
        let regularizer = 0.5 * lambda * squared_norm(&average.weights);
        let blocks = &self.blocks;
        let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
        let loss = self.dual.survey(&average.weights, &points, interrupt)?.loss;
        self.oracle_calls += blocks.len();
        Ok(Certificate { primal: regularizer + loss, dual })
    }
}
