//! Ascent in the dual of a chain, one sequence after the other: structured hinge and logistic loss.
//!
//! Each sequence's block of the dual is moved so that the dual rises, with the block's own step length
//! (Lacoste-Julien et al. 2013 for the hinge; Collins et al. 2008 and Le Priol, Piché and Lacoste-Julien 2018
//! for the logistic loss; `docs/mathematics/sequences.md`). The moves of a few sequences are proposed in
//! parallel at the same weights, and then made in order at the current ones, so that the model does not
//! depend on the number of threads.

mod hinge;
mod image;
mod log;

use std::ops::ControlFlow;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

pub use hinge::{Hinge, HingePoint};
pub use log::{Log, LogPoint};

use self::image::{Gatherer, Image};
use super::model::{Chain, Model, Work};
use crate::dual::rounding::{Sum, norm_above};
use crate::dual::{Bounded, Shares, Totals, objective};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::{Sparse, squared_norm};
use crate::run::{Certificate, Epoch, Progress, Solver, Trace, run};
use crate::solver::{Sampling, SumTree, Target};

/// Most sequences whose moves are proposed at the same weights.
const MAX_BATCH: usize = 32;

/// There are at least this many batches: the weights of a proposal must not be too old.
const MIN_BATCHES: usize = 64;

/// Sequences of a pass without steps that are looked at together.
const GROUP: usize = 256;

/// Buffers for one sequence at a time.
#[derive(Debug, Default)]
pub struct Scratch {
    scores: Vec<f64>,
    trial: Vec<f64>,
    marginals: Vec<f64>,
    work: Work,
    label: Vec<u32>,
    vertex: Sparse,
    truth: Sparse,
    gatherer: Gatherer,
}

/// A move of one block, and what it does to the weights.
pub struct Proposal<C> {
    example: usize,
    image: Image,
    /// p_i times the block's duality gap at the weights of the proposal.
    gap: f64,
    /// p_i Φ_i at these weights.
    loss: f64,
    /// What becomes of the block; none where it stays.
    change: Option<C>,
}

/// What a block is to [`ChainDescent`]: a loss and its dual points.
pub trait BlockLoss: Sync {
    /// What a move does to the block.
    type Change: Send;

    /// Looks at a sequence at some weights and proposes a move.
    fn propose(
        &self,
        task: &Task<'_>,
        example: usize,
        weights: &[f64],
        scratch: &mut Scratch,
    ) -> Proposal<Self::Change>;

    /// How far to go, 0 to 1, given the slope ⟨w, Aᵀδ⟩ at the current weights and the curvature
    /// p_i/λ ‖Aᵀδ‖².
    fn step(&self, example: usize, change: &Self::Change, slope: f64, curvature: f64) -> f64;

    /// Moves the block; a step of 0 says that the move was refused.
    fn accept(&mut self, example: usize, change: Self::Change, step: f64);

    /// Φ_i, rounded outwards, at weights of at most this norm.
    fn loss(
        &self,
        task: &Task<'_>,
        example: usize,
        weights: (&[f64], f64),
        scratch: &mut Scratch,
    ) -> Bounded;

    /// What the block adds to the dual value: its terms, and the image of its point less the truth.
    fn terms(&self, task: &Task<'_>, example: usize, scratch: &mut Scratch) -> (Terms, Image);
}

/// See [`BlockLoss::terms`].
pub type Terms = crate::dual::BlockTerms;

/// A training problem.
pub struct Task<'a> {
    /// The sequences.
    pub chain: &'a Chain,
    /// λ and the weights of the sequences.
    pub shares: Shares,
}

/// The solver.
pub struct ChainDescent<'a, L> {
    task: Task<'a>,
    loss: L,
    weights: Vec<f64>,
    random: Pcg64Mcg,
    sampling: Sampling,
    gaps: SumTree,
    /// p_i Φ_i when last visited.
    losses: Vec<f64>,
    order: Vec<u32>,
    relative: f64,
    epochs: usize,
}

/// Options of a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DescentOptions {
    /// Which sequences an epoch visits.
    pub sampling: Sampling,
    /// Of their order.
    pub seed: u64,
}

/// Where a fit ended.
pub struct Descent<L> {
    /// The record of the run.
    pub trace: Trace,
    /// P(0).
    pub null_objective: f64,
    /// The model.
    pub weights: Vec<f64>,
    /// The dual point.
    pub loss: L,
}

impl<L> Descent<L> {
    /// The same with what `make` makes of the dual point.
    pub fn map<R>(self, make: impl FnOnce(L) -> R) -> Descent<R> {
        let Self { trace, null_objective, weights, loss } = self;
        Descent { trace, null_objective, weights, loss: make(loss) }
    }
}

/// Minimises λ/2 ‖w‖² + Σ p_i Φ_i(w) for sequences with their labels.
///
/// # Errors
/// What [`run`] returns; [`Error::InvalidArgument`] for sequences without labels.
pub fn descend<L: BlockLoss>(
    task: Task<'_>,
    loss: L,
    options: DescentOptions,
    target: Target,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Descent<L>> {
    if !task.chain.is_labelled() {
        return Err(Error::argument("Y", "the examples have no labels"));
    }
    let n = task.shares.n_blocks();
    let mut solver = ChainDescent {
        weights: vec![0.0; task.chain.n_weights()],
        random: Pcg64Mcg::new(u128::from(options.seed)),
        sampling: options.sampling,
        gaps: SumTree::new(n),
        losses: vec![0.0; n],
        order: (0..n as u32).collect(),
        relative: target.tol,
        epochs: 0,
        task,
        loss,
    };
    let null_objective = solver.primal(interrupt)?;
    let (_, weights) = solver.dual(interrupt)?;
    solver.weights = weights;
    let stopping = target.stopping(null_objective);
    let trace = run(&mut solver, stopping, interrupt, observe)?;
    Ok(Descent { trace, null_objective, weights: solver.weights, loss: solver.loss })
}

impl<L: BlockLoss> ChainDescent<'_, L> {
    /// What `look` finds for some sequences, in parallel and in their order.
    fn look<R: Send>(
        &self,
        examples: &[u32],
        look: impl Fn(&Self, usize, &mut Scratch) -> R + Sync,
    ) -> Vec<R> {
        let new = || {
            let mut scratch = Scratch::default();
            scratch.gatherer.prepare(self.task.chain);
            scratch
        };
        let examples = examples.par_iter().with_min_len(4);
        examples.map_init(new, |scratch, example| look(self, *example as usize, scratch)).collect()
    }

    /// P(w), rounded up.
    fn primal(&self, interrupt: &Interrupt) -> Result<f64> {
        let (shares, norm) = (&self.task.shares, norm_above(&self.weights));
        let mut sum = Sum::default();
        let all: Vec<u32> = (0..shares.n_blocks() as u32).collect();
        for group in all.chunks(GROUP) {
            interrupt.check()?;
            let losses = self.look(group, |solver, example, scratch| {
                let weights = (&solver.weights[..], norm);
                solver.loss.loss(&solver.task, example, weights, scratch)
            });
            for (example, loss) in group.iter().zip(losses) {
                sum.add(loss * Bounded::exact(shares.of(*example as usize)));
            }
        }
        Ok(objective(shares.lambda(), &self.weights, sum.total()))
    }

    /// D at the dual point, rounded down, and its weights.
    fn dual(&self, interrupt: &Interrupt) -> Result<(f64, Vec<f64>)> {
        let shares = &self.task.shares;
        let mut weights = vec![0.0; self.weights.len()];
        let mut totals = Totals::default();
        let all: Vec<u32> = (0..shares.n_blocks() as u32).collect();
        for group in all.chunks(GROUP) {
            interrupt.check()?;
            let found = self.look(group, |solver, example, scratch| {
                solver.loss.terms(&solver.task, example, scratch)
            });
            for (example, (terms, image)) in group.iter().zip(found) {
                let example = *example as usize;
                image.add_to(-shares.of(example) / shares.lambda(), &mut weights);
                totals.add(shares, example, &terms);
            }
        }
        let norm = norm_above(&weights) + totals.distance();
        Ok((totals.value(shares.lambda(), norm).bound(), weights))
    }

    /// Visits some sequences: their moves are proposed at the same weights and made one after the other.
    fn visit(&mut self, batch: &[u32]) {
        let found = self.look(batch, |solver, example, scratch| {
            solver.loss.propose(&solver.task, example, &solver.weights, scratch)
        });
        for Proposal { example, image, gap, loss, change } in found {
            self.gaps.set(example, gap.max(0.0));
            self.losses[example] = loss;
            let Some(change) = change else { continue };
            let scale = self.task.shares.of(example) / self.task.shares.lambda();
            let curvature = scale * image.squared_norm();
            let step = self.loss.step(example, &change, image.dot(&self.weights), curvature);
            if step > 0.0 {
                image.add_to(-step * scale, &mut self.weights);
            }
            self.loss.accept(example, change, step);
        }
    }

    /// The sequences of the next batch, each once.
    fn draw(&mut self, start: usize, size: usize) -> Vec<u32> {
        let n = self.order.len();
        let end = (start + size).min(n);
        let mut batch: Vec<u32> = match self.sampling {
            Sampling::Permutation => self.order[start..end].to_vec(),
            Sampling::Uniform => {
                (start..end).map(|_| self.random.random_range(0..n) as u32).collect()
            }
            Sampling::Gap => {
                let mut find = |visit| {
                    let share = self.random.random::<f64>();
                    self.gaps.find(share).unwrap_or(visit) as u32
                };
                (start..end).map(&mut find).collect()
            }
        };
        batch.retain(|example| self.task.shares.of(*example as usize) > 0.0);
        if self.sampling != Sampling::Permutation {
            batch.sort_unstable();
            batch.dedup();
        }
        batch
    }

    /// Whether the blocks' gaps when last visited promise the tolerance.
    fn is_promising(&self) -> bool {
        let lambda = self.task.shares.lambda();
        let objective =
            0.5 * lambda * squared_norm(&self.weights) + self.losses.iter().sum::<f64>();
        self.gaps.total() <= self.relative * objective
    }

    fn certificate(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let (dual, weights) = self.dual(interrupt)?;
        // Rounding that the weights have gathered ends here.
        self.weights = weights;
        let primal = self.primal(interrupt)?;
        Ok(Certificate { primal, dual })
    }
}

impl<L: BlockLoss> Solver for ChainDescent<'_, L> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        // The first pass visits all, whatever the sampling: no gap is known before.
        let sampling = self.sampling;
        if self.epochs == 0 {
            self.sampling = Sampling::Permutation;
        }
        self.order.shuffle(&mut self.random);
        let size = (self.order.len() / MIN_BATCHES).clamp(1, MAX_BATCH);
        for start in (0..self.order.len()).step_by(size) {
            interrupt.check()?;
            let batch = self.draw(start, size);
            self.visit(&batch);
        }
        self.sampling = sampling;
        self.epochs += 1;
        if self.is_promising() {
            Ok(Progress::Epoch(self.certificate(interrupt)?))
        } else {
            Ok(Progress::Uncertified)
        }
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.certificate(interrupt)
    }
}
