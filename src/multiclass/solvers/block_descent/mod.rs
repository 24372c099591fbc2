//! Exact block coordinate descent on the dual: Walrus for the cube (Wang and Scott 2021), Crammer and Singer's step for
//! the simplex, and the corresponding step for every set with a projection (`docs/mathematics/block-descent.md`).

mod block_step;
mod candidates;
mod certificate;
mod face;
mod full_epoch;
mod rows;
mod schedule;
mod warm_start;
mod working_set_epoch;

use num_traits::Zero;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use self::block_step::{BlockSet, BlockStep, DualBlock, FullBuffers};
use self::candidates::Candidates;
use self::rows::{DenseStore, Shape, SparseStore, WeightStore};
use self::schedule::{EpochKind, Schedule};
use crate::data::Data;
use crate::dual::Shares;
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::{Design, Element};
use crate::multiclass::{MarginProblem, ScoreMap};
use crate::polytope::Scratch;
use crate::run::{Certificate, Progress, Solver};

/// Options of block descent. None of them changes the optimum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Seed of the order of the examples.
    pub seed: u64,
    /// Whether epochs may leave out examples and classes that the last certificate found optimal.
    pub shrink: bool,
    /// Number of examples whose scores are computed together; chosen from the data by default.
    pub block_size: Option<usize>,
    /// The relative gap at which the run ends; 0 if unknown. An epoch ends early once it has probably reached this gap.
    pub tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, shrink: true, block_size: None, tolerance: 0.0 }
    }
}

/// Block coordinate descent: visits the examples in random order, and maximises the dual exactly over each β_i
/// (`docs/mathematics/block-descent.md`).
///
/// With C_i = p_i/λ, A_i = ‖x_i‖², h = C_i A_i + γ and the margins v at the current weights, the maximiser is the
/// projection with bias 1 of u = (v + C_i A_i (β_i + 1ᵀβ_i)) / h.
///
/// There are two kinds of epochs. While many classes of many examples still move, a full epoch makes one visit to each
/// example not known to be optimal. It reads all classes and computes scores for a block of examples at a time. Later,
/// a working-set epoch makes passes over the candidate classes of the examples that are not optimal, with conjugate
/// gradient steps in between if single-block steps are slow. Each epoch ends with a certificate, which reads all
/// classes of all examples and selects the next candidates, so no example or class is left out permanently.
pub trait BlockDescent: Solver + Send {
    /// Moves to a dual point, given as β (examples × classes), with each β_i in the loss's set, and replaces the
    /// regulariser by λ/2 ‖w − w₀‖².
    ///
    /// With an origin w₀ (class by class, the constant feature last), the weights of a dual point are w₀ + w(β). The
    /// block step does not change otherwise. An empty origin is 0.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    fn start_around(
        &mut self,
        origin: Vec<f64>,
        betas: &[f64],
        interrupt: &Interrupt,
    ) -> Result<()>;

    /// Calls [`BlockDescent::start_around`] with the origin 0.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    fn start_at(&mut self, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        self.start_around(Vec::new(), betas, interrupt)
    }

    /// Sets a λ different from the problem's, before the run starts. The problem itself does not change.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) unless λ is positive and finite.
    fn begin_at(&mut self, lambda: f64) -> Result<()>;

    /// Runs the first epochs from the dual point 0. If their gains are steady, returns the number of further passes
    /// that closing the remaining gap would take at this pace. Returns 0 if the gains fall.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    fn begin(&mut self, interrupt: &Interrupt) -> Result<f64>;

    /// Continues with a λ different from the problem's, from a dual point near the optimum at that λ; returns the
    /// certificate of this point. The problem itself does not change, and there must be no origin.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) unless λ is positive and finite, and
    /// [`Interrupted`](crate::error::Error::Interrupted).
    fn move_to(&mut self, lambda: f64, interrupt: &Interrupt) -> Result<Certificate>;

    /// The weights, class by class, the constant feature last.
    fn coefficients(&self) -> Vec<f64> {
        let mut weights = Vec::new();
        self.copy_weights(&mut weights);
        weights
    }

    /// A bound on the distance of the weights from w(β) (or w₀ + w(β)) in exact arithmetic, valid right after a
    /// certificate.
    fn distance(&self) -> f64;

    /// β (examples × classes). Each β_i is a point of the loss's set and is 0 at the label.
    fn betas(&self) -> Vec<f64>;

    /// Number of values read so far, a measure of the time that does not depend on the machine.
    fn work(&self) -> f64;

    /// Ends epochs early once [`BlockDescent::work`] exceeds `most`.
    fn limit_work(&mut self, most: f64);
}

/// Creates block descent at the dual point 0, in the precision of the data.
pub fn block_descent<'p>(
    problem: &'p MarginProblem<'p>,
    options: Options,
) -> Box<dyn BlockDescent + 'p> {
    let (Design { data, bias }, m) = (problem.map().design(), problem.n_classes());
    match data {
        Data::Dense16(x) => boxed(problem, DenseStore::<_, f32>::new(x, bias, m), options),
        Data::Dense32(x) => boxed(problem, DenseStore::<_, f32>::new(x, bias, m), options),
        Data::Dense64(x) => boxed(problem, DenseStore::<_, f64>::new(x, bias, m), options),
        Data::Csr32(x) => boxed(problem, SparseStore::<_, f32>::new(x, bias, m), options),
        Data::Csr64(x) => boxed(problem, SparseStore::<_, f64>::new(x, bias, m), options),
    }
}

fn boxed<'p, M: WeightStore + 'p>(
    problem: &'p MarginProblem<'p>,
    store: M,
    options: Options,
) -> Box<dyn BlockDescent + 'p> {
    Box::new(State::new(problem, store, options))
}

/// A dual point: its blocks in random order, and their β.
struct DualPoint<T> {
    /// The blocks of the examples with a positive share p_i.
    blocks: Vec<DualBlock>,
    /// The indices of the blocks, in the order in which the examples' rows are stored.
    by_example: Vec<u32>,
    /// β_i of each block.
    betas: Candidates<T>,
    /// The indices of the blocks that the last certificate (or, before the first certificate, the last pass) found not
    /// to be optimal; None means all blocks.
    due: Option<Vec<u32>>,
}

/// Buffers of a run, allocated once.
struct Work<T> {
    step: BlockStep<T>,
    full: FullBuffers<T>,
    /// A row in the precision of the weights, if it is stored in another precision.
    row: Vec<T>,
    scratch: Scratch,
}

/// A run of block descent.
struct State<'p, M: WeightStore> {
    problem: &'p MarginProblem<'p>,
    /// The feasible set of the blocks.
    set: BlockSet,
    /// The shares of the problem, with a λ that may differ from the problem's.
    shares: Shares,
    shrink: bool,
    dual: DualPoint<M::Value>,
    /// The rows, and w(β) or w₀ + w(β).
    store: M,
    /// The weights in double precision as of the last certificate, if those of `store` are less precise.
    exact: Option<M::Exact>,
    /// w₀, stored class by class; empty if it is 0.
    origin: Vec<f64>,
    schedule: Schedule,
    random: Pcg64Mcg,
    /// A bound on the distance of the weights from w(β) in exact arithmetic, as of the last certificate.
    distance: f64,
    work: Work<M::Value>,
}

impl<'p, M: WeightStore> State<'p, M> {
    fn new(problem: &'p MarginProblem<'p>, store: M, options: Options) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let Shape { padded, block_size, largest_block } = store.shape();
        let block_size = options.block_size.unwrap_or(block_size).clamp(1, largest_block);
        let work = Work {
            step: BlockStep::new(m),
            full: FullBuffers::new(block_size, padded, m),
            row: Vec::new(),
            scratch: Scratch::default(),
        };
        let mut random = Pcg64Mcg::new(u128::from(options.seed));
        let mut state = Self {
            problem,
            set: BlockSet::new::<M::Value>(problem),
            shares: problem.shares().clone(),
            shrink: options.shrink,
            dual: DualPoint::new(problem, n, &mut random),
            store,
            exact: None,
            origin: Vec::new(),
            schedule: Schedule::new(options.tolerance),
            random,
            distance: 0.0,
            work,
        };
        state.size_blocks();
        state.settle_linear_blocks();
        state
    }

    /// Runs full epochs from the dual point 0; returns their gains. If the set is a box, these epochs select candidates
    /// themselves, so no certificate is needed between them.
    fn first_epochs(&mut self, interrupt: &Interrupt) -> Result<Vec<f64>> {
        let mut gains = vec![self.full_epoch(interrupt)?.gain];
        while self.set.is_box() && gains.last() > Some(&0.0) && self.next_epoch() == EpochKind::Full
        {
            // Visit all examples, because those without candidates may have some by now.
            self.dual.due = None;
            gains.push(self.full_epoch(interrupt)?.gain);
        }
        Ok(gains)
    }

    /// The kind of the next epoch.
    fn next_epoch(&self) -> EpochKind {
        if !self.shrink {
            return EpochKind::Full;
        }
        let count = |due: &Vec<u32>| -> usize {
            due.iter().map(|at| self.dual.betas.row(*at as usize).0.len()).sum()
        };
        let n_pairs = self.dual.blocks.len() * self.problem.n_classes();
        self.schedule.next_epoch(self.dual.due.as_ref().map(count), n_pairs)
    }

    /// Average number of values read to compute all scores of an example.
    fn mean_cost(&self) -> usize {
        self.problem.map().cost() / self.problem.n_examples().max(1)
    }

    /// Whether the weights are still 0, as at the start of a run.
    fn is_at_zero(&self) -> bool {
        self.dual.due.is_none() && self.store.weights().iter().all(Zero::is_zero)
    }
}

impl<M: WeightStore> Solver for State<'_, M> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.exact = None;
        if self.shrink && self.is_at_zero() {
            self.first_epochs(interrupt)?;
        } else if self.shrink && self.dual.due.is_none() && !self.schedule.has_begun() {
            // The start may already be near the optimum, where a full epoch would change β only by rounding errors.
            let certificate = self.certificate(interrupt)?;
            if self.schedule.is_met(certificate.relative_gap()) {
                return Ok(Progress::Epoch(certificate));
            }
        }
        let mut moved = false;
        if self.next_epoch() == EpochKind::WorkingSet {
            moved = self.working_set_epoch(interrupt)?;
        }
        // If the pass over candidates made no progress, a pass over all classes may.
        if !moved {
            moved = self.full_epoch(interrupt)?.moved();
        }
        let certificate = self.certificate(interrupt)?;
        // If only rounding errors still change anything, the working precision is exhausted.
        let exhausted = !moved || self.dual.due.as_ref().is_some_and(Vec::is_empty);
        Ok(if exhausted { Progress::Exhausted(certificate) } else { Progress::Epoch(certificate) })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.certificate(interrupt)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.coefficients()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        match &self.exact {
            Some(exact) => exact.copy_by_class(weights),
            None => self.store.copy_by_class(weights),
        }
        true
    }
}

impl<T: Element> DualPoint<T> {
    /// Creates the dual point 0.
    fn new(problem: &MarginProblem<'_>, n_examples: usize, random: &mut Pcg64Mcg) -> Self {
        let has_share = |example: &u32| problem.shares().of(*example as usize) > 0.0;
        let mut examples: Vec<u32> = (0..n_examples as u32).filter(has_share).collect();
        let mut by_example = vec![u32::MAX; n_examples];
        examples.shuffle(random);
        for (place, example) in (0..).zip(&examples) {
            by_example[*example as usize] = place;
        }
        by_example.retain(|place| *place != u32::MAX);
        let block = |&example: &u32| DualBlock { example, ..DualBlock::default() };
        let blocks = examples.iter().map(block).collect();
        Self { blocks, by_example, betas: Candidates::new(examples.len()), due: None }
    }
}
