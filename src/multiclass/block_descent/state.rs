//! The descent itself: its state, and which kind of epoch comes next.

use num_traits::{Float, Zero};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::candidates::Candidates;
use super::dual_block::{DualBlock, add_images};
use super::estimate::GapEstimate;
use super::kernels::TOGETHER;
use super::scorer::{Changes, GatheredRows, Scorer};
use super::visit;
use crate::data::Real;
use crate::dual::Shares;
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::Aligned;
use crate::multiclass::{MarginProblem, ScoreMap};
use crate::polytope::{Capped, Scratch};
use crate::run::{Certificate, Progress, Solver};

/// How block descent goes about it; nothing of this changes what it converges to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Of the order of the examples.
    pub seed: u64,
    /// Whether epochs may leave out examples and classes that the last certificate found at rest.
    pub shrink: bool,
    /// Examples whose scores are computed together; by default what suits the data.
    pub block_size: Option<usize>,
    /// The gap in units of the objective that will do: an epoch that has likely come there ends. 0 where none is known.
    pub tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, shrink: true, block_size: None, tolerance: 0.0 }
    }
}

/// Neighbouring duals that are visited one after the other. They are neighbours by chance; reading
/// memory in order is faster than in a new random order each epoch.
pub(super) const GROUP: usize = 8;

/// Passes that may look at all classes of all examples while it pays: where they are not enough, blocks creep, and
/// conjugate gradients are needed.
const FULL_PASSES: usize = 12;

/// Passes over all classes before the gains of the last two say anything of the next: the first from zero gains far more
/// than any other.
const PACED: usize = 3;

/// Where a pass over all classes gains less than this share of what the one before it gained, candidates hardly change
/// from pass to pass.
const SETTLING: f64 = 0.4;

/// So many candidates an example, on average over all, are then passed over faster than all classes.
const FEW: usize = 2;

/// Curvature below which a block is linear: its step, the slope divided by this, would overflow.
const VANISHING: f64 = 1e-250;

/// What visits gain, in units of what rounding makes them gain, where more than that moves: the first ones with weights
/// that were summed up anew gain more than those after them.
const MOVING: f64 = 2.0;

/// Steps of the first attempt at the conjugate gradient method.
pub(super) const FIRST_STEPS: usize = 10;

/// Passes before the first attempt at it, and after one that paid.
pub(super) const SHORTEST_WAIT: usize = 3;

/// Rows, weights and dual blocks of a run.
pub(super) struct State<'p, M: Scorer> {
    pub problem: &'p MarginProblem<'p>,
    pub model: M,
    /// The weights in double precision as of the last certificate, where `model` is less precise.
    pub exact: Option<M::Exact>,
    /// w₀, class after class; empty where it is 0.
    pub origin: Vec<f64>,
    /// Those of the problem, but for λ, which may be changed.
    pub shares: Shares,
    pub options: Options,
    pub random: Pcg64Mcg,
    /// The dual blocks of the examples that have a share, in a random order.
    pub duals: Vec<DualBlock>,
    /// Their places in the order of the examples, in which the rows lie.
    pub by_example: Vec<u32>,
    /// β_i for each of them.
    pub betas: Candidates<M::Value>,
    /// The dual blocks that the last certificate, or before it the last pass, found not to be optimal; all before that.
    pub due: Option<Vec<u32>>,
    /// Steps of the conjugate gradient method that are worth trying at once.
    pub gradient_steps: usize,
    /// Passes before the next attempt at it.
    pub wait: usize,
    /// Passes since the last one.
    pub waited: usize,
    /// Whether there has been one.
    pub tried: bool,
    /// What the last passes over candidates gained (in units of λ), and their visits.
    pub passes: Vec<(f64, usize)>,
    /// Whether visits are all that the epoch makes: the conjugate gradient method would cost more than it gains.
    pub alone: bool,
    /// Whether the last epoch over candidates went on until little was gained.
    pub spent: bool,
    /// Whether such an epoch of visits alone made little of the gap; kept when λ changes.
    pub creeps: bool,
    /// What a visit gains by the rounding of its slopes alone, on average (in units of λ); 0 in double precision, where
    /// projections are no more precise than slopes.
    pub rounding: f64,
    /// The gap before the last epoch over candidates.
    pub gap_before: f64,
    pub estimate: GapEstimate,
    /// Whether the last of the first passes gained much less than the one before it.
    pub settles: bool,
    /// The objective over λ, as of the last certificate; before, the dual's.
    pub size: f64,
    /// The relative gap of the last certificate.
    pub gap: f64,
    /// Passes so far that looked at all classes, also with other λ: counted anew they make more epochs (4 to 8 % in
    /// cross-validations), which take as long altogether.
    pub n_full: usize,
    /// What may separate the weights from w(β) in exact arithmetic, as of the last certificate.
    pub distance: f64,
    pub work: EpochBuffers<M::Value>,
}

/// Buffers of an epoch.
pub(super) struct EpochBuffers<T> {
    pub block_size: usize,
    pub previous: GatheredRows<T>,
    pub next: GatheredRows<T>,
    pub scores: Vec<T>,
    pub changes: Changes<T>,
    /// Current scores of rows that are corrected together.
    pub current: Aligned<T>,
    /// Rows that had changed before the first of them.
    pub n_earlier: usize,
    /// A dense row of β.
    pub beta: Vec<T>,
    pub target: Vec<f64>,
    pub projection: Vec<f64>,
    /// A row in the precision of the weights, where it is stored in another.
    pub row: Vec<T>,
    pub few: visit::Buffers<T>,
    pub scratch: Scratch,
}

impl<'p, M: Scorer> State<'p, M> {
    pub fn new(problem: &'p MarginProblem<'p>, model: M, options: Options) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let block_size = options.block_size.unwrap_or_else(|| model.block_size());
        let block_size = block_size.clamp(1, M::LARGEST_BLOCK);
        let padded = model.padded();
        let work = EpochBuffers {
            block_size,
            previous: GatheredRows::default(),
            next: GatheredRows::default(),
            scores: vec![M::Value::zero(); block_size * padded],
            changes: Changes::new(block_size, padded),
            current: Aligned::zeros(TOGETHER * padded),
            n_earlier: 0,
            beta: vec![M::Value::zero(); m],
            target: vec![0.0; m],
            projection: vec![0.0; m],
            row: Vec::new(),
            few: visit::Buffers::new(m),
            scratch: Scratch::default(),
        };
        let mut random = Pcg64Mcg::new(u128::from(options.seed));
        let has_share = |example: &u32| problem.shares().of(*example as usize) > 0.0;
        let mut examples: Vec<u32> = (0..n as u32).filter(has_share).collect();
        examples.shuffle(&mut random);
        let n_duals = examples.len();
        let dual = |&example: &u32| DualBlock { example, ..DualBlock::default() };
        let mut state = Self {
            random,
            duals: examples.iter().map(dual).collect(),
            by_example: places(&examples, n),
            betas: Candidates::new(n_duals),
            due: None,
            gradient_steps: FIRST_STEPS,
            wait: SHORTEST_WAIT,
            waited: 0,
            tried: false,
            passes: Vec::new(),
            alone: false,
            spent: false,
            creeps: false,
            rounding: 0.0,
            gap_before: f64::INFINITY,
            estimate: GapEstimate::new(f64::NAN),
            settles: false,
            size: 0.0,
            gap: f64::INFINITY,
            n_full: 0,
            distance: 0.0,
            shares: problem.shares().clone(),
            problem,
            model,
            exact: None,
            origin: Vec::new(),
            options,
            work,
        };
        (0..n_duals).for_each(|at| state.settle(at));
        state.measure_blocks();
        state
    }

    /// Examples whose row is 0, or as good as that, have their optimal vertex at once.
    fn settle(&mut self, at: usize) {
        let dual = &mut self.duals[at];
        let example = dual.example as usize;
        let squared_norm = self.problem.map().row_size(example).norm.powi(2);
        dual.weight = self.shares.of(example) / self.shares.lambda();
        dual.curvature = dual.weight * squared_norm;
        if dual.curvature + self.shares.smoothing() > VANISHING {
            return;
        }
        dual.settled = true;
        let target = &mut self.work.target;
        target.fill(0.0);
        self.problem.margins(example, target);
        let (mut vertex, label) = (Vec::new(), self.problem.label(example));
        self.problem.polytope().vertex(target, label, &mut self.work.scratch, &mut vertex);
        let (classes, weights): (Vec<u32>, Vec<f64>) = vertex.into_iter().unzip();
        dual.sum = weights.iter().sum();
        let values: Vec<_> = weights.iter().map(|weight| Real::narrow(*weight)).collect();
        self.betas.append(&[at as u32], &[classes.len() as u32], &classes, &values);
    }

    /// Notes what follows from the blocks' curvature as it is: the gap of a block whose slopes are off by δ is of the
    /// order of C δ, and a visit gains C δ²/2h.
    pub fn measure_blocks(&mut self) {
        // √(2 C h) by the mean of C_i h_i.
        let units = (0..self.duals.len()).map(|at| self.duals[at].weight * self.steepness(at));
        self.estimate =
            GapEstimate::new((2.0 * units.sum::<f64>() / self.duals.len() as f64).sqrt());
        if M::IS_DOUBLE {
            return;
        }
        // Slopes are of the size of the costs at least.
        let unsettled = || self.duals.iter().enumerate().filter(|(_, dual)| !dual.settled);
        let costs = unsettled().map(|(_, dual)| self.problem.largest_cost(dual.example as usize));
        let error = M::Value::epsilon().widen() * costs.fold(f64::INFINITY, f64::min);
        let flattest = unsettled().map(|(at, _)| self.steepness(at)).fold(f64::INFINITY, f64::min);
        // h/C by its mean makes the least of the gains.
        let inverse = unsettled().map(|(at, dual)| self.steepness(at) / dual.weight);
        let (n, sum) = (unsettled().count() as f64, inverse.sum::<f64>());
        // Where an error would move a block from end to end of its set, gains are of another size.
        let is_known = n > 0.0 && flattest > error;
        self.rounding = if is_known { 0.5 * error * error * n / sum } else { 0.0 };
    }

    /// Whether so many visits gained clearly more than rounding makes them, as far as that is known.
    pub fn moves(&self, gain: f64, n_visits: usize) -> bool {
        self.rounding == 0.0 || gain > MOVING * n_visits as f64 * self.rounding
    }

    /// h = C_i A_i + γ.
    pub fn steepness(&self, at: usize) -> f64 {
        self.duals[at].curvature + self.problem.shares().smoothing()
    }

    /// Whether a sum of β is the largest possible.
    pub fn is_tight(&self, sum: f64) -> bool {
        sum >= self.problem.tight_sum(M::Value::epsilon().widen())
    }

    /// What visits ask the set, at once.
    pub fn bounds(&self) -> visit::VisitBounds {
        let simplex = self.problem.polytope().whole_box().filter(|set| set.cap <= set.upper);
        visit::VisitBounds {
            tight: self.problem.tight_sum(M::Value::epsilon().widen()),
            lowest: if self.is_box() { 0.0 } else { f64::NEG_INFINITY },
            simplex: simplex.map(|set| Capped {
                upper: set.cap,
                floor: 0.0,
                cap: set.cap,
                bias: 1.0,
            }),
        }
    }

    /// Whether the whole set is a box cut by a bound on the sum.
    pub fn is_box(&self) -> bool {
        self.problem.polytope().whole_box().is_some()
    }

    /// Whether the next epoch had better look at all classes of all examples.
    fn is_broad(&self) -> bool {
        let (n, m) = (self.duals.len(), self.problem.n_classes());
        let wide = |due: &Vec<u32>| {
            let candidates = due.iter().map(|at| self.betas.row(*at as usize).0.len());
            let n_candidates = candidates.sum::<usize>();
            let are_few = self.settles && n_candidates <= FEW * n;
            !are_few && n_candidates as f64 > self.model.full_share() * (n * m) as f64
        };
        !self.options.shrink || self.n_full < FULL_PASSES && self.due.as_ref().is_none_or(wide)
    }
}

/// The places of examples in a list of them, in the order of the examples.
fn places(examples: &[u32], n_examples: usize) -> Vec<u32> {
    let mut places = vec![u32::MAX; n_examples];
    for (place, example) in (0..).zip(examples) {
        places[*example as usize] = place;
    }
    places.retain(|place| *place != u32::MAX);
    places
}

impl<M: Scorer> Solver for State<'_, M> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.exact = None;
        let from_nothing = self.options.shrink
            && self.due.is_none()
            && self.model.weights().iter().all(Zero::is_zero);
        let is_near = from_nothing && self.begin(interrupt)?;
        // What candidates alone do not move, all classes may.
        let moved = is_near
            || !self.is_broad() && self.descend_on_candidates(interrupt)?
            || self.descend_fully(interrupt)?.is_some();
        let certificate = self.certify(interrupt)?;
        // Where nothing changes any more but by rounding, the working precision is used up.
        let exhausted = !moved || self.due.as_ref().is_some_and(Vec::is_empty);
        Ok(if exhausted { Progress::Exhausted(certificate) } else { Progress::Epoch(certificate) })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.certificate(interrupt)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.coefficients()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        self.copy_coefficients(weights);
        true
    }
}

impl<M: Scorer> State<'_, M> {
    /// The first passes from the dual point 0, without certificates: the passes themselves name candidates. Returns
    /// whether they may have come near enough to the optimum.
    fn begin(&mut self, interrupt: &Interrupt) -> Result<bool> {
        let mut gain = self.descend_fully(interrupt)?.unwrap_or_default();
        self.size = gain;
        while self.is_box() && self.is_broad() {
            // All examples again: those without candidates may have some by now.
            self.due = None;
            let next = self.descend_fully(interrupt)?.unwrap_or_default();
            let before = std::mem::replace(&mut gain, next);
            self.size += gain;
            // At this pace the next pass gains gain²/before.
            self.estimate.note([gain * gain / before].into_iter(), self.duals.len());
            let is_near = self.estimate.is_within(self.options.tolerance * self.size);
            self.estimate.note([gain].into_iter(), self.duals.len());
            let is_paced = self.n_full >= PACED;
            self.settles = is_paced && gain < SETTLING * before;
            // Where nothing is gained nothing moves but for rounding.
            if is_paced && is_near || gain <= 0.0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to a dual point, around an origin where one is given.
    pub fn start(&mut self, origin: Vec<f64>, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        let m = self.problem.n_classes();
        let mut started = Candidates::new(self.duals.len());
        for (at, dual) in self.duals.iter_mut().enumerate() {
            if dual.settled {
                started.copy(at, &self.betas);
                continue;
            }
            let start = &betas[dual.example as usize * m..][..m];
            let dense = &mut self.work.beta;
            dense.iter_mut().zip(start).for_each(|(beta, start)| *beta = Real::narrow(*start));
            dual.sum = dense.iter().map(|beta| beta.widen()).sum();
            started.gather_above(at, dense, &self.work.target, f64::INFINITY);
        }
        self.betas = started;
        self.work.beta.fill(M::Value::zero());
        (self.exact, self.due) = (None, None);
        self.origin = origin;
        self.model.begin_at(&self.origin);
        let duals = (&self.duals[..], &self.by_example[..]);
        add_images(self.problem, duals, &self.betas, &mut self.model, interrupt)
    }

    fn copy_coefficients(&self, weights: &mut Vec<f64>) {
        match &self.exact {
            Some(exact) => exact.copy_by_class(weights),
            None => self.model.copy_by_class(weights),
        }
    }

    /// The weights, class after class, the constant feature's last.
    pub fn coefficients(&self) -> Vec<f64> {
        let mut weights = Vec::new();
        self.copy_coefficients(&mut weights);
        weights
    }

    /// β_i after β_i (examples × classes).
    pub fn betas(&self) -> Vec<f64> {
        let m = self.problem.n_classes();
        let mut betas = vec![0.0; self.problem.n_examples() * m];
        for (at, dual) in self.duals.iter().enumerate() {
            let row = &mut betas[dual.example as usize * m..][..m];
            let (classes, values) = self.betas.row(at);
            for (class, value) in classes.iter().zip(values) {
                row[*class as usize] = value.widen();
            }
        }
        betas
    }
}
