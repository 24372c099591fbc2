//! Block Frank-Wolfe on chains with pairwise steps (Lacoste-Julien et al. 2013; Osokin et al.
//! 2016), for many sequences with many features.
//!
//! Every visit decodes one sequence at the current weights; certificates decode all sequences in
//! parallel. The image of a step in weight space is gathered in a small vector, which is added to
//! the weights once. The model is the average of the iterates (`docs/mathematics/sequences.md`).

mod active_labels;
mod average;
mod image;
mod path;
mod point;
mod warm_start;

pub use path::chain_path;
pub use point::ChainPoint;

use std::ops::ControlFlow;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use self::active_labels::{ActiveLabels, PointBuffers};
use self::average::Average;
use self::image::{ChainImage, Gatherer};
use super::model::{Chain, Model, Work};
use crate::dual::rounding::{Sum, gamma, norm_above};
use crate::dual::{BlockTerms, Bounded, DualValue, Shares, Totals, objective};
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::Sparse;
use crate::linalg::sparse::{self, dot};
use crate::memory::require;
use crate::parallel::map_items_with;
use crate::run::{Certificate, Epoch, Progress, Solver, Stopping, Trace, run};
use crate::solver::{Block, BlockOptions, NewtonEnd, Pace, Sampling, SumTree, Target};
use crate::structured::StructuredDual;
use crate::structured::single_precision::{allows_single, round_to_single};

/// Number of sequences that a certificate evaluates together.
const GROUP: usize = 256;

/// Initial `promise` of a run that starts at the true labels. The sum of the gaps at the visits is about
/// `COLD_PROMISE` times the gap of the averaged weights, which a certificate measures.
const COLD_PROMISE: f64 = 1.3;

/// Options of a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DescentOptions {
    /// The rule that selects the sequences of an epoch.
    pub sampling: Sampling,
    /// Seed for the order of the sequences.
    pub seed: u64,
}

/// The result of a fit.
pub struct ChainFit {
    /// The record of the run.
    pub trace: Trace,
    /// The objective at zero weights, P(0).
    pub null_objective: f64,
    /// The weights of the model.
    pub weights: Vec<f64>,
    /// The dual point.
    pub point: ChainPoint,
}

/// Minimises λ/2 ‖w‖² + Σ p_i Φ_i(w), the structured hinge loss of labelled sequences, starting at
/// the true labels or at the dual point of an earlier fit to the same sequences.
///
/// # Errors
/// Errors of [`run`]; [`Error::InvalidArgument`] for sequences without labels and for a dual point
/// that belongs to other sequences; [`Error::Memory`].
pub fn fit_chain(
    (chain, shares): (&Chain, Shares),
    options: DescentOptions,
    target: Target,
    start: Option<ChainPoint>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<ChainFit> {
    let is_new = start.is_none();
    let mut solver = ChainDescent::new((chain, shares), options, start, interrupt)?;
    let null_objective = solver.loss_sum(interrupt)?;
    if !is_new {
        solver.recompute_weights(interrupt)?;
        solver.begin_warm();
    }
    solver.relative = target.tol;
    let stopping = target.stopping(null_objective);
    let (n_examples, n_weights) = (chain.n_examples(), chain.n_weights());
    if NewtonEnd::is_possible(&solver.shares, n_weights) {
        // A vertex differs from the true label in two entries for each feature and each transition of a token.
        let rows = chain.emissions().rows();
        let n_entries = 2.0 * (rows.n_stored() + rows.len()) as f64 / n_examples as f64;
        solver.pace = Some(Pace::new(stopping, (n_examples, n_weights), n_entries));
    }
    let mut trace = run(&mut solver, stopping, interrupt, observe)?;
    let null_objective = null_objective.upper();
    let ChainDescent { weights, blocks, .. } = solver;
    let weights = trace.take_other(weights.len()).unwrap_or(weights);
    Ok(ChainFit { trace, null_objective, weights, point: ChainPoint::new(blocks) })
}

/// Returns the objective P at the given weights, rounded up.
///
/// # Errors
/// As for [`fit_chain`].
pub fn chain_objective(
    problem: (&Chain, Shares),
    weights: Vec<f64>,
    interrupt: &Interrupt,
) -> Result<f64> {
    let options = DescentOptions { sampling: Sampling::Permutation, seed: 0 };
    let mut solver = ChainDescent::new(problem, options, None, interrupt)?;
    if weights.len() != solver.weights.len() {
        return Err(Error::argument("weights", "must have one entry for each weight"));
    }
    solver.weights = weights;
    solver.primal(interrupt)
}

/// Buffers for one sequence at a time.
#[derive(Default)]
struct SequenceBuffers {
    /// The margins θ + c: scores plus costs of the parts.
    margins: Vec<f64>,
    costs: Vec<f64>,
    work: Work,
    label: Vec<u32>,
    vertex: Sparse,
    truth: Sparse,
    direction: Sparse,
    buffers: PointBuffers,
    gatherer: Gatherer,
}

impl SequenceBuffers {
    fn load_costs(&mut self, chain: &Chain, example: usize) {
        self.costs.clear();
        self.costs.resize(chain.n_parts(example), 0.0);
        chain.add_costs(example, &mut self.costs);
    }

    /// Computes the margins at the given weights (None means 0) and finds the label with the largest margin. Returns
    /// this margin minus the margin of the true label.
    fn find(&mut self, chain: &Chain, example: usize, weights: Option<&[f64]>) -> f64 {
        self.load_costs(chain, example);
        self.margins.resize(self.costs.len(), 0.0);
        match weights {
            Some(weights) => chain.scores(example, weights, &mut self.margins),
            None => chain.scores_at_zero(example, &mut self.margins),
        }
        self.margins.iter_mut().zip(&self.costs).for_each(|(margin, cost)| *margin += cost);
        chain.decode(example, &self.margins, &mut self.work, &mut self.label);
        chain.parts(example, chain.truth(example), &mut self.truth);
        chain.parts(example, &self.label, &mut self.vertex);
        (dot(&self.margins, &self.vertex) - dot(&self.margins, &self.truth)).max(0.0)
    }

    /// The largest cost.
    fn largest_cost(&self) -> f64 {
        self.costs.iter().fold(0.0, |largest: f64, cost| largest.max(cost.abs()))
    }
}

/// Newton's method on the labels found so far. It finishes a run that converges too slowly.
struct ChainEnd<'a> {
    dual: StructuredDual<'a>,
    newton: NewtonEnd,
    blocks: Vec<Block>,
}

struct ChainDescent<'a> {
    /// Measures the convergence rate of the run, if Newton's method may finish it.
    pace: Option<Pace>,
    end: Option<ChainEnd<'a>>,
    chain: &'a Chain,
    shares: Shares,
    blocks: Vec<ActiveLabels>,
    /// The weights w(μ) of the current dual point μ.
    iterate: Vec<f64>,
    average: Average,
    /// The model: the average at the last certificate.
    weights: Vec<f64>,
    random: Pcg64Mcg,
    sampling: Sampling,
    gaps: SumTree,
    /// The weighted loss p_i Φ_i of each sequence at its last visit.
    losses: Vec<f64>,
    order: Vec<u32>,
    /// Sequences that start at their true labels in a warm-started run, because the earlier fit did not contain them.
    fresh: Vec<u32>,
    /// A certificate is expected to meet the tolerance as soon as the sum of the gaps at the last visits is at most
    /// this many times the tolerance.
    promise: f64,
    /// The tolerance, as a fraction of the objective.
    relative: f64,
    epochs: usize,
    /// The dual value D when the weights were last recomputed.
    value: Option<DualValue>,
    interrupt: Interrupt,
}

impl<'a> ChainDescent<'a> {
    fn new(
        (chain, shares): (&'a Chain, Shares),
        options: DescentOptions,
        start: Option<ChainPoint>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if !chain.is_labelled() {
            return Err(Error::argument("y", "the examples have no labels"));
        }
        if chain.has_unknown() {
            return Err(Error::argument("y", "some labels are unknown"));
        }
        if start.as_ref().is_some_and(|start| !start.fits(chain)) {
            let message = "the dual point belongs to other sequences";
            return Err(Error::argument("warm_start", message));
        }
        let shares = shares.with_features(chain.norms())?;
        let (n, n_weights) = (shares.n_blocks(), chain.n_weights());
        let what = || format!("d = {n_weights} weights");
        require(40 * n_weights as u128, what, "use fewer features")?;
        let at_truth = |example| ActiveLabels::at(chain.truth(example));
        let ChainPoint { blocks, fresh } = start
            .unwrap_or_else(|| ChainPoint::new((0..chain.n_examples()).map(at_truth).collect()));
        Ok(Self {
            pace: None,
            end: None,
            blocks,
            iterate: vec![0.0; n_weights],
            average: Average::new(n_weights),
            weights: vec![0.0; n_weights],
            random: Pcg64Mcg::new(u128::from(options.seed)),
            sampling: options.sampling,
            gaps: SumTree::new(n),
            losses: vec![0.0; n],
            order: (0..n as u32).collect(),
            fresh,
            promise: COLD_PROMISE,
            relative: 0.0,
            epochs: 0,
            value: None,
            interrupt: interrupt.clone(),
            chain,
            shares,
        })
    }

    /// Applies `map` to the given sequences in parallel, and returns the results in order.
    fn map_sequences<R: Send>(
        &self,
        examples: &[u32],
        map: impl Fn(&Self, usize, &mut SequenceBuffers) -> R + Sync,
    ) -> Vec<R> {
        let apply =
            |scratch: &mut SequenceBuffers, example: &u32| map(self, *example as usize, scratch);
        map_items_with(examples, 4, || self.buffers(), apply)
    }

    fn buffers(&self) -> SequenceBuffers {
        let work = Work::of(&self.interrupt);
        let mut scratch = SequenceBuffers { work, ..SequenceBuffers::default() };
        scratch.gatherer.prepare(self.chain);
        scratch
    }

    /// Takes a pairwise step with exact line search. In the dual point of one sequence, the step moves weight from the
    /// worst label to the best label at the current weights.
    fn visit(&mut self, example: usize, scratch: &mut SequenceBuffers) {
        let (chain, share) = (self.chain, self.shares.of(example));
        self.losses[example] = share * scratch.find(chain, example, Some(&self.iterate));
        let margins = chain.chain_scores(example, &scratch.margins);
        let block = &mut self.blocks[example];
        let (mean, from) = block.mean_and_worst(|label| margins.of(label));
        let gap = (share * (dot(&scratch.margins, &scratch.vertex) - mean)).max(0.0);
        self.gaps.set(example, gap);
        if gap <= 0.0 {
            return self.average.visit(None);
        }
        let worst: Vec<u32> = block.label(from).collect();
        chain.parts(example, &worst, &mut scratch.truth);
        sparse::subtract(&scratch.vertex, &scratch.truth, &mut scratch.direction);
        scratch.gatherer.add(chain, example, &scratch.direction);
        let image = scratch.gatherer.finish(chain);
        let slope = image.dot(&self.iterate) + dot(&scratch.costs, &scratch.direction);
        if slope <= 0.0 {
            return self.average.visit(None);
        }
        let scale = share / self.shares.lambda();
        let curvature = scale * image.squared_norm();
        let longest = block.weight(from);
        let step = if curvature > 0.0 { (slope / curvature).min(longest) } else { longest };
        image.add_to(-step * scale, &mut self.iterate);
        self.average.visit(Some((&image, -step * scale)));
        block.shift(from, &scratch.label, step);
    }

    /// Returns the loss Φ_i of the model with a bound on its rounding error. `norm` is an upper bound on the norm of
    /// the model's weights.
    fn loss(&self, example: usize, norm: f64, scratch: &mut SequenceBuffers) -> Bounded {
        let weights = (norm > 0.0).then_some(&self.weights[..]);
        let loss = scratch.find(self.chain, example, weights);
        let cost = scratch.largest_cost();
        Bounded::new(loss, self.chain.size(example).loss_error(cost, norm))
    }

    /// Returns the contribution of the sequence to the dual value: its terms, and the image of the difference between
    /// its dual point and its true label.
    fn terms(&self, example: usize, scratch: &mut SequenceBuffers) -> (BlockTerms, ChainImage) {
        let chain = self.chain;
        let outside = self.blocks[example].point(chain, example, &mut scratch.buffers);
        let point = &scratch.buffers.point;
        chain.parts(example, chain.truth(example), &mut scratch.truth);
        sparse::subtract(point, &scratch.truth, &mut scratch.vertex);
        let rounding = gamma(2) * (length(point) + length(&scratch.truth));
        scratch.load_costs(chain, example);
        let terms = BlockTerms {
            linear: dot(&scratch.costs, &scratch.vertex),
            bend: 0.0,
            length: length(&scratch.vertex),
            n_entries: scratch.vertex.len(),
            defect: outside + rounding,
            scales: chain.size(example).scales(scratch.largest_cost()),
        };
        scratch.gatherer.add(chain, example, &scratch.vertex);
        (terms, scratch.gatherer.finish(chain))
    }

    /// Returns the objective P of the model, rounded up.
    fn primal(&self, interrupt: &Interrupt) -> Result<f64> {
        Ok(objective(self.shares.lambda(), &self.weights, self.loss_sum(interrupt)?))
    }

    /// Returns the weighted loss of the model, Σ p_i Φ_i.
    fn loss_sum(&self, interrupt: &Interrupt) -> Result<Bounded> {
        let norm = norm_above(&self.weights);
        let mut sum = Sum::default();
        let all: Vec<u32> = (0..self.shares.n_blocks() as u32).collect();
        for group in all.chunks(GROUP) {
            interrupt.check()?;
            let losses = self.map_sequences(group, |solver, example, scratch| {
                solver.loss(example, norm, scratch)
            });
            interrupt.check()?;
            for (example, loss) in group.iter().zip(losses) {
                sum.add(loss * Bounded::exact(self.shares.of(*example as usize)));
            }
        }
        Ok(sum.total())
    }

    /// Recomputes the weights, which removes accumulated rounding errors, and returns the dual value D, rounded down.
    fn recompute_weights(&mut self, interrupt: &Interrupt) -> Result<f64> {
        let lambda = self.shares.lambda();
        let mut weights = std::mem::take(&mut self.iterate);
        weights.fill(0.0);
        let mut totals = Totals::default();
        let all: Vec<u32> = (0..self.shares.n_blocks() as u32).collect();
        for group in all.chunks(GROUP) {
            interrupt.check()?;
            let found = self.map_sequences(group, Self::terms);
            for (example, (terms, image)) in group.iter().zip(found) {
                let example = *example as usize;
                image.add_to(-self.shares.of(example) / lambda, &mut weights);
                totals.add(&self.shares, example, &terms);
            }
        }
        // A weight is a sum over the rows in which its feature occurs, so the number of rows bounds
        // the number of terms.
        let distance = totals.distance_within(self.chain.emissions().rows().len());
        let norm = norm_above(&weights) + distance;
        self.iterate = weights;
        let value = totals.value(lambda, norm);
        self.value = Some(value);
        Ok(value.bound())
    }

    /// Chooses the sequence to visit. Returns None if the loss of this sequence has weight 0.
    fn draw(&mut self, visit: usize) -> Option<usize> {
        let n = self.order.len();
        // The gaps are not known yet in the first pass.
        let sampling = if self.epochs == 0 { Sampling::Permutation } else { self.sampling };
        let example = match sampling {
            Sampling::Permutation => self.order[visit] as usize,
            Sampling::Uniform => self.random.random_range(0..n),
            Sampling::Gap => self.gaps.find(self.random.random()).unwrap_or(visit),
        };
        (self.shares.of(example) > 0.0).then_some(example)
    }

    /// Returns the average of the iterates, rounded to single precision if the tolerance allows it.
    fn model(&self) -> Vec<f64> {
        let mut weights = self.average.of(&self.iterate);
        if allows_single(self.relative) {
            round_to_single(&mut weights);
        }
        weights
    }

    /// Whether this epoch needs a certificate to measure the convergence rate.
    fn is_paced(&self) -> bool {
        self.pace.is_some() && self.epochs.is_power_of_two()
    }

    /// Hands over to Newton's method.
    fn hand_over(&mut self, stopping: Stopping, certificate: Certificate) -> Result<()> {
        let mut dual = StructuredDual::new(self.chain, self.shares.clone())?;
        let options = BlockOptions { cache: true, ..BlockOptions::default() };
        let blocks = self.blocks.iter().enumerate().map(|(example, block)| {
            Block::combining(block.vertices(self.chain, example), &options)
        });
        let blocks: Vec<Block> = blocks.collect();
        let newton = NewtonEnd::new(&mut dual, options, (stopping, certificate), &blocks);
        self.average = Average::new(self.iterate.len());
        self.end = Some(ChainEnd { dual: dual.stopped_by(&self.interrupt), newton, blocks });
        Ok(())
    }
}

impl Solver for ChainDescent<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if let Some(ChainEnd { dual, newton, blocks }) = &mut self.end {
            let progress = newton.advance(dual, (&mut self.iterate, blocks), interrupt)?;
            for (example, (own, block)) in self.blocks.iter_mut().zip(blocks).enumerate() {
                *own = ActiveLabels::of_block(block, self.chain, example);
            }
            self.weights.clone_from(&self.iterate);
            return Ok(progress);
        }
        self.order.shuffle(&mut self.random);
        let mut scratch = self.buffers();
        self.visit_fresh(&mut scratch, interrupt)?;
        for visit in 0..self.order.len() {
            if let Some(example) = self.draw(visit) {
                self.visit(example, &mut scratch);
                interrupt.check()?;
            }
        }
        self.epochs += 1;
        if !self.is_promising() && !self.is_paced() {
            return Ok(Progress::Uncertified);
        }
        let certificate = self.certify(interrupt)?;
        self.learn_promise(certificate);
        if let Some(pace) = &mut self.pace
            && pace.is_too_slow(self.epochs, certificate)
        {
            let stopping = pace.stopping();
            self.hand_over(stopping, certificate)?;
        }
        Ok(Progress::Epoch(certificate))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        if let Some(end) = &self.end {
            return Ok(end.newton.certificate());
        }
        let dual = self.recompute_weights(interrupt)?;
        self.weights = self.model();
        Ok(Certificate { primal: self.primal(interrupt)?, dual })
    }

    fn n_first(&self) -> Option<usize> {
        self.end.as_ref().map(|_| self.epochs)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.model()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.weights);
        true
    }
}

/// Returns ‖δ‖₁, rounded up.
fn length(delta: &[(u32, f64)]) -> f64 {
    let size: f64 = delta.iter().map(|(_, value)| value.abs()).sum();
    size * (1.0 + gamma(delta.len()))
}
