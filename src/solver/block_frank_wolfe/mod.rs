//! Block Frank-Wolfe (BCFW): Frank-Wolfe steps on one block of the dual after another, with a
//! closed-form line search (Lacoste-Julien et al. 2013). Also its variants: away and pairwise
//! steps, gap sampling and an oracle cache (Osokin et al. 2016).

mod block;
mod newton_end;
mod options;
mod sampling;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

pub use block::Block;
pub(crate) use newton_end::{NewtonEnd, Pace};
pub use options::{BlockOptions, Sampling, Step};
pub use sampling::SumTree;

use super::active_set::StepKind;
use crate::dual::{BlockDual, BlockGaps, DualValue, Gradient, Image, dual_value, objective};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::{Sparse, sparse};
use crate::run::{Certificate, Progress, Solver, Stopping};

/// A remembered vertex is used only if its gap is at least this share of the block's last known gap (F of Osokin et
/// al.).
const CACHE_BLOCK_SHARE: f64 = 0.25;
/// A remembered vertex is used only if its gap is at least this share of the mean gap of all blocks (ν of Osokin et
/// al.).
const CACHE_MEAN_SHARE: f64 = 0.01;

/// Frank-Wolfe on one block of the dual at a time.
///
/// A block's point is a sparse vector over its parts, never a weight vector. Away and pairwise
/// steps and the cache also keep the vertices of which the point is a convex combination.
pub struct BlockFrankWolfe<'d, D> {
    dual: &'d mut D,
    options: BlockOptions,
    random: Pcg64Mcg,
    /// The weights w: the image of the dual point, projected onto the cone by Π_K.
    weights: Vec<f64>,
    /// The part of the constrained weights that Π_K removes.
    slack: Vec<f64>,
    average: Option<Average>,
    blocks: Vec<Block>,
    /// For each block, p_i times its last known gap.
    gaps: SumTree,
    order: Vec<u32>,
    /// The objective at the last certificate; known after the first epoch.
    objective: f64,
    epochs: usize,
    oracle_calls: usize,
    /// The convergence rate of the run, kept if Newton's method may finish the run.
    pace: Option<Pace>,
    end: Option<NewtonEnd>,
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
    /// Counts a step; returns the sum of the step numbers before it.
    fn tick(&mut self) -> f64 {
        let before = self.mass();
        self.steps += 1.0;
        before
    }

    /// The sum of all step numbers so far.
    fn mass(&self) -> f64 {
        0.5 * self.steps * (self.steps + 1.0)
    }
}

/// A kind of step and the slope of the dual along its direction.
struct StepChoice {
    kind: StepKind,
    slope: f64,
}

impl StepChoice {
    /// Chooses the step of a block with an active set, given the best vertex, and writes the direction of the step.
    /// Returns None if no vertex is active.
    fn within(
        block: &Block,
        to: usize,
        step: Step,
        gradient: &impl Gradient,
        direction: &mut Sparse,
    ) -> Option<Self> {
        let value = |point: &Sparse| gradient.slope(point);
        let target = &block.atoms[to].vertex;
        let kind = match step {
            Step::FrankWolfe => StepKind::Towards(to),
            Step::Pairwise => StepKind::Pairwise(to, block.worst(value)?),
            Step::Away => {
                let from = block.worst(value)?;
                let middle = value(&block.point);
                let towards = value(target) - middle;
                let away = middle - value(&block.atoms[from].vertex);
                StepKind::better(to, towards, from, away, block.atoms[from].weight)
            }
        };
        let vertex = |index: usize| &block.atoms[index].vertex;
        match kind {
            StepKind::Towards(_) => sparse::subtract(target, &block.point, direction),
            StepKind::Away(from) => sparse::subtract(&block.point, vertex(from), direction),
            StepKind::Pairwise(_, from) => sparse::subtract(target, vertex(from), direction),
        }
        Some(Self { kind, slope: value(direction) })
    }
}

impl<'d, D: BlockDual> BlockFrankWolfe<'d, D> {
    /// Starts with every block at its start vertex, or with the given blocks and their w.
    pub fn new(
        dual: &'d mut D,
        options: BlockOptions,
        start: Option<(Vec<f64>, Vec<Block>)>,
    ) -> Self {
        let n = dual.shares().n_blocks();
        let (weights, blocks) = start.unwrap_or_else(|| {
            let block = |index| Block::at(dual.start(index), &options);
            (vec![0.0; dual.n_weights()], (0..n).map(block).collect())
        });
        let (weights, slack) = split(dual, weights, &blocks);
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
            objective: 0.0,
            epochs: 0,
            oracle_calls: 0,
            pace: None,
            end: None,
            vertex: Sparse::new(),
            direction: Sparse::new(),
            spare: Sparse::new(),
            dual,
            options,
            weights,
            slack,
            blocks,
        }
    }

    /// Lets Newton's method finish the run if the options request it and the dual allows it.
    #[must_use]
    pub fn stopping_at(mut self, stopping: Stopping) -> Self {
        let possible = self.options.newton && !self.options.averaging;
        let n_weights = self.dual.n_weights();
        if possible && NewtonEnd::is_possible(self.dual.shares(), n_weights) {
            self.pace = Some(Pace::new(stopping, (self.blocks.len(), n_weights), n_weights as f64));
        }
        self
    }

    /// The model: w(μ), or the average.
    #[cfg(test)]
    pub fn weights(&self) -> &[f64] {
        self.average.as_ref().map_or(&self.weights, |average| &average.weights)
    }

    /// Number of oracle calls so far, including those of certificates.
    pub fn oracle_calls(&self) -> usize {
        self.oracle_calls
    }

    /// Returns w(μ), the blocks, and the average if there is one.
    pub fn into_parts(self) -> (Vec<f64>, Vec<Block>, Option<Vec<f64>>) {
        (self.weights, self.blocks, self.average.map(|average| average.weights))
    }

    /// Takes one step in one block: towards a vertex, away from a vertex, or between two vertices. The step ends
    /// where the dual stops increasing or a vertex weight reaches 0.
    fn visit(&mut self, index: usize) -> Result<()> {
        let share = self.dual.shares().of(index);
        if share == 0.0 {
            return Ok(());
        }
        let before = self.average.as_mut().map_or(0.0, Average::tick);
        let remembered =
            if self.options.cache { self.choose_remembered(index, share) } else { None };
        let choose_step = match remembered {
            Some(choose_step) => Some(choose_step),
            None => self.choose_step(index, share)?,
        };
        let Some(StepChoice { kind, slope }) =
            choose_step.filter(|choose_step| choose_step.slope > 0.0)
        else {
            return Ok(());
        };
        let block = &mut self.blocks[index];
        let longest = if block.atoms.is_empty() { 1.0 } else { block.longest(kind) };
        let mut image = self.dual.image(index, &self.direction);
        let curvature = image.curvature();
        // If Π_K removes part of the image, the true curvature of the dual is smaller than
        // `curvature`, and this step is shorter than the best step.
        let step = if curvature > 0.0 { (slope / curvature).min(longest) } else { longest };
        image.add_to(step, &mut self.weights);
        if let Some(average) = &mut self.average {
            image.add_to(step * before, &mut average.drift);
        }
        drop(image);
        self.dual.shares().cone().split(&mut self.weights, &mut self.slack);
        let rounding = self.dual.rounding();
        if !block.atoms.is_empty() {
            block.step(kind, step, &self.direction, rounding, &mut self.spare);
        } else if step == 1.0 {
            block.jump(&mut self.vertex);
        } else {
            block.approach(step, &self.direction, rounding, &mut self.spare);
        }
        Ok(())
    }

    /// Chooses a step with the best remembered vertex, if this vertex is good enough to skip the oracle call.
    fn choose_remembered(&mut self, index: usize, share: f64) -> Option<StepChoice> {
        let mean = self.gaps.total() / self.blocks.len() as f64;
        let enough = (CACHE_BLOCK_SHARE * self.gaps.get(index)).max(CACHE_MEAN_SHARE * mean);
        let block = &mut self.blocks[index];
        let gradient = self.dual.slopes_at(index, &block.parts, &self.weights, &block.point);
        let best = block.best(|vertex| gradient.slope(vertex))?;
        let value = gradient.slope(&block.atoms[best].vertex);
        let gap = share * (value - gradient.slope(&block.point));
        if gap <= 0.0 || gap < enough {
            return None;
        }
        block.touch(best);
        StepChoice::within(block, best, self.options.step, &gradient, &mut self.direction)
    }

    /// Calls the oracle for a vertex, records the block's gap, and chooses a step with this vertex.
    fn choose_step(&mut self, index: usize, share: f64) -> Result<Option<StepChoice>> {
        let block = &mut self.blocks[index];
        let mut gradient = self.dual.gradient(index, &self.weights, &block.point);
        gradient.vertex(&mut self.vertex)?;
        self.oracle_calls += 1;
        let gap = gradient.slope(&self.vertex) - gradient.slope(&block.point);
        self.gaps.set(index, (share * gap).max(0.0));
        if block.atoms.is_empty() {
            sparse::subtract(&self.vertex, &block.point, &mut self.direction);
            let slope = gradient.slope(&self.direction);
            return Ok(Some(StepChoice { kind: StepKind::Towards(0), slope }));
        }
        let to = block.remember(&self.vertex);
        Ok(StepChoice::within(block, to, self.options.step, &gradient, &mut self.direction))
    }

    /// Evaluates all blocks at the current weights and records their gaps.
    fn block_gaps(&mut self, interrupt: &Interrupt) -> Result<BlockGaps> {
        let blocks = &self.blocks;
        let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
        let found = self.dual.block_gaps(&self.weights, &points, interrupt)?;
        self.oracle_calls += blocks.len();
        for (index, gap) in found.gaps.iter().enumerate() {
            self.gaps.set(index, gap.max(0.0));
        }
        Ok(found)
    }

    /// Dual value D at the dual point.
    pub fn dual_value(&mut self, interrupt: &Interrupt) -> Result<DualValue> {
        let blocks = &self.blocks;
        let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
        dual_value(&mut *self.dual, &points, &|index| blocks[index].drift(), interrupt)
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

    /// Whether this epoch ends by computing a certificate.
    fn is_certified(&self) -> bool {
        let plotted = self.epochs.is_multiple_of(10) || matches!(self.epochs, 1 | 2 | 4 | 8);
        let BlockOptions { certify_below, certify_relative, .. } = self.options;
        plotted || self.gaps.total() <= certify_below.max(certify_relative * self.objective)
    }
}

/// Π_K of the image of a dual point, and the part that the projection removes. The weights alone do
/// not determine that part, so with a cone the image is recomputed.
fn split<D: BlockDual>(
    dual: &mut D,
    mut weights: Vec<f64>,
    blocks: &[Block],
) -> (Vec<f64>, Vec<f64>) {
    let mut slack = Vec::new();
    if dual.shares().cone().is_everything() {
        return (weights, slack);
    }
    weights.fill(0.0);
    let mut direction = Sparse::new();
    for (index, block) in blocks.iter().enumerate() {
        sparse::subtract(&block.point, &dual.start(index), &mut direction);
        dual.image(index, &direction).add_to(1.0, &mut weights);
    }
    dual.shares().cone().split(&mut weights, &mut slack);
    (weights, slack)
}

impl<D: BlockDual> Solver for BlockFrankWolfe<'_, D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if let Some(end) = &mut self.end {
            self.oracle_calls += 2 * self.blocks.len();
            let state = (&mut self.weights, &mut self.blocks[..]);
            return end.advance(&mut *self.dual, state, interrupt);
        }
        if self.epochs == 0 && self.options.sampling == Sampling::Gap {
            self.block_gaps(interrupt)?;
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
            let certificate = self.certify(interrupt)?;
            if let Some(pace) = &mut self.pace
                && pace.is_too_slow(self.epochs, certificate)
            {
                let state = (pace.stopping(), certificate);
                let end = NewtonEnd::new(&mut *self.dual, self.options, state, &self.blocks);
                self.end = Some(end);
            }
            Ok(Progress::Epoch(certificate))
        } else {
            Ok(Progress::Uncertified)
        }
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        if let Some(end) = &self.end {
            return Ok(end.certificate());
        }
        let lambda = self.dual.shares().lambda();
        let found = self.block_gaps(interrupt)?;
        // Steps never lower the dual value, so the bound is the value of the last point, also with averaging.
        let dual = self.dual_value(interrupt)?.bound();
        let primal = match &mut self.average {
            None => objective(lambda, &self.weights, found.loss),
            Some(average) => {
                let mass = average.mass().max(1.0);
                for (target, (weight, drift)) in
                    average.weights.iter_mut().zip(self.weights.iter().zip(&average.drift))
                {
                    *target = weight - drift / mass;
                }
                let blocks = &self.blocks;
                let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
                let loss = self.dual.block_gaps(&average.weights, &points, interrupt)?.loss;
                self.oracle_calls += self.blocks.len();
                objective(lambda, &average.weights, loss)
            }
        };
        self.objective = primal;
        Ok(Certificate { primal, dual })
    }

    fn n_first(&self) -> Option<usize> {
        self.end.as_ref().map(|_| self.epochs)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        // With averaging, the model is only computed for certificates.
        self.average.is_none().then(|| vec![self.weights.clone()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(self.average.as_ref().map_or(&self.weights, |average| &average.weights));
        true
    }
}
