//! Block descent for maps in which the features of different classes need not be orthogonal. Newton's method finishes
//! slow runs.

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::dual::{BlockDual, dual_value, objective};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::Sparse;
use crate::linalg::sparse::{dot, squared_norm};
use crate::multiclass::{MarginDual, ScoreMap};
use crate::polytope::{Scratch, lifted};
use crate::run::{Certificate, Progress, Solver, Stopping};
use crate::solver::{Block, BlockOptions, NewtonEnd, Pace};

/// Maximum number of steps per visit.
const MAX_STEPS: usize = 8;
/// A visit ends as soon as the slope is at most this share of the visit's largest slope.
const MIN_SLOPE_SHARE: f64 = 0.02;

/// Examples whose gap is below this share of the mean gap are skipped until the next certificate.
const MIN_GAP_SHARE: f64 = 0.01;

/// Maximum number of passes over the due examples between two certificates.
const MAX_PASSES: usize = 8;

/// Maximum number of weights with which Newton's method takes over. With 400 weights, it takes longer than descent on
/// some problems that descent solves. With 650 weights, it takes longer than 1000 epochs of descent.
const MAX_WEIGHTS: usize = 200;

/// Curvature below which a block counts as linear, because the slope divided by the curvature would
/// overflow.
const MIN_CURVATURE: f64 = 1e-250;

/// Block coordinate ascent on the dual of joint features.
///
/// The dual of one example is −½ αᵀ(C_i A_i A_iᵀ + γ I) α plus a linear term, with C_i = p_i/λ. Here the Gram matrix
/// A_i A_iᵀ of the ψ(x_i, j) replaces the ‖x_i‖² I of separate weights, so the maximiser is not a projection. A visit
/// therefore takes a few projected gradient steps. Let g be the gradient, that is, the shifted margins. The target β'
/// of a step is the projection of g/L + β + 1ᵀβ that includes the rank-one term ½ (1ᵀb)² (`bias` = 1 in
/// [`Polytope::project`](crate::polytope::Polytope::project)), and the step length towards β' is optimal. L is the
/// curvature of the last step (the spectral step of Barzilai and Borwein 1988 in the method of Birgin, Martínez and
/// Raydan 2000). Each step is feasible and increases the dual, for any L.
pub struct JointDescent<'d, 'p, 'a, M> {
    dual: &'d mut MarginDual<'p, 'a, M>,
    random: Pcg64Mcg,
    /// β_i of each example.
    points: Vec<Sparse>,
    /// L of each example; 0 before its first step.
    steepness: Vec<f64>,
    weights: Vec<f64>,
    /// The examples to visit until the next certificate.
    due: Vec<u32>,
    work: VisitBuffers,
    n_epochs: usize,
    /// The rate at which the gap falls; None if Newton's method cannot take over.
    pace: Option<Pace>,
    /// Newton's method and its blocks, after it has taken over.
    end: Option<(NewtonEnd, Vec<Block>)>,
}

/// Buffers for a visit, with a value for each class.
struct VisitBuffers {
    scores: Vec<f64>,
    slopes: Vec<f64>,
    beta: Vec<f64>,
    target: Vec<f64>,
    projection: Vec<f64>,
    spread: Vec<f64>,
    direction: Sparse,
    alpha: Sparse,
    scratch: Scratch,
}

impl VisitBuffers {
    fn new(n_classes: usize) -> Self {
        let zeros = || vec![0.0; n_classes];
        let (scores, slopes, beta, target) = (zeros(), zeros(), zeros(), zeros());
        let (direction, alpha) = (Sparse::new(), Sparse::new());
        let (projection, spread, scratch) = (zeros(), zeros(), Scratch::default());
        Self { scores, slopes, beta, target, projection, spread, direction, alpha, scratch }
    }
}

impl<'d, 'p, 'a, M: ScoreMap> JointDescent<'d, 'p, 'a, M> {
    /// Starts at the dual point 0.
    pub fn new(dual: &'d mut MarginDual<'p, 'a, M>, seed: u64) -> Self {
        let (n, m) = (dual.problem.n_examples(), dual.problem.n_classes());
        let has_share = |example: &u32| dual.problem.shares().of(*example as usize) > 0.0;
        Self {
            random: Pcg64Mcg::new(u128::from(seed)),
            points: vec![Sparse::new(); n],
            steepness: vec![0.0; n],
            weights: vec![0.0; dual.n_weights()],
            due: (0..n as u32).filter(has_share).collect(),
            work: VisitBuffers::new(m),
            n_epochs: 0,
            pace: None,
            end: None,
            dual,
        }
    }

    /// Lets Newton's method finish the run, if it can handle the dual and descent would be slow.
    #[must_use]
    pub fn stopping_at(mut self, stopping: Stopping) -> Self {
        let n_weights = self.dual.n_weights();
        let is_possible = NewtonEnd::is_possible(self.dual.shares(), n_weights);
        if is_possible && n_weights <= MAX_WEIGHTS {
            self.pace = Some(Pace::new(stopping, (self.points.len(), n_weights), n_weights as f64));
        }
        self
    }

    /// Returns the weights w(β).
    pub fn into_weights(self) -> Vec<f64> {
        self.weights
    }

    /// Starts Newton's method. Each example's β serves as the only vertex of its active set.
    fn hand_over(&mut self, stopping: Stopping, certificate: Certificate) {
        let options = BlockOptions { cache: true, ..BlockOptions::default() };
        let points = self.points.iter().cloned();
        let blocks: Vec<Block> = points.map(|point| Block::at(point, &options)).collect();
        let newton = NewtonEnd::new(self.dual, options, (stopping, certificate), &blocks);
        self.end = Some((newton, blocks));
    }

    /// Increases the dual by a few steps in one example's β; returns whether β changed.
    fn visit(&mut self, example: usize) -> bool {
        let (problem, work) = (&*self.dual.problem, &mut self.work);
        let shares = problem.shares();
        let (map, weight) = (problem.map(), shares.of(example) / shares.lambda());
        map.example_scores(example, &self.weights, &mut work.scores);
        work.beta.fill(0.0);
        let point = &mut self.points[example];
        point.iter().for_each(|&(class, value)| work.beta[class as usize] = value);
        let (mut first, mut moved) = (0.0, false);
        for _ in 0..MAX_STEPS {
            let Some(slope) = step(self.dual, example, work, &mut self.steepness[example]) else {
                break;
            };
            moved = true;
            if slope <= MIN_SLOPE_SHARE * f64::max(first, slope) {
                break;
            }
            first = f64::max(first, slope);
        }
        if !moved {
            return false;
        }
        work.direction.clear();
        let mut before = point.iter().copied().peekable();
        for (class, new) in (0..).zip(work.beta.iter().copied()) {
            let old = before.next_if(|(at, _)| *at == class).map_or(0.0, |(_, value)| value);
            if new != old {
                work.direction.push((class, new - old));
            }
        }
        point.clear();
        point.extend((0..).zip(work.beta.iter().copied()).filter(|(_, value)| *value != 0.0));
        lifted::scaled(&work.direction, problem.label(example), weight, &mut work.alpha);
        map.add_image(example, &work.alpha, &mut self.weights);
        true
    }
}

/// Takes one projected gradient step for the example whose scores and β are in the buffers. Returns
/// the slope along the step, or None if no step is possible.
fn step<M: ScoreMap>(
    dual: &MarginDual<'_, '_, M>,
    example: usize,
    work: &mut VisitBuffers,
    steepness: &mut f64,
) -> Option<f64> {
    let problem = &*dual.problem;
    let (label, shares, map) = (problem.label(example), problem.shares(), problem.map());
    let (weight, smoothing) = (shares.of(example) / shares.lambda(), shares.smoothing());
    work.slopes.copy_from_slice(&work.scores);
    problem.margins(example, &mut work.slopes);
    let sum = lifted::shift(&mut work.slopes, &work.beta, label, smoothing);
    if *steepness == 0.0 {
        *steepness = weight * map.row_size(example).norm.powi(2) + smoothing;
    }
    if *steepness <= MIN_CURVATURE {
        // If all features are 0 and there is no smoothing, the dual is linear, so the vertex for these slopes is
        // optimal.
        let (scratch, vertex) = (&mut work.scratch, &mut work.direction);
        problem.polytope().vertex(&work.slopes, label, scratch, vertex);
        work.projection.fill(0.0);
        vertex.iter().for_each(|&(class, value)| work.projection[class as usize] = value);
    } else {
        let terms = work.slopes.iter().zip(&work.beta);
        work.target.clear();
        work.target.extend(terms.map(|(slope, beta)| slope / *steepness + beta + sum));
        work.target[label] = 0.0;
        let (target, projection) = (&work.target, &mut work.projection);
        problem.polytope().project(target, label, 1.0, &mut work.scratch, projection);
    }
    work.direction.clear();
    let change = work.projection.iter().zip(&work.beta).map(|(new, old)| new - old);
    work.direction.extend((0..).zip(change).filter(|(_, change)| *change != 0.0));
    let slope = dot(&work.slopes, &work.direction);
    if slope.is_nan() || slope <= 0.0 {
        return None;
    }
    lifted::scaled(&work.direction, label, 1.0, &mut work.alpha);
    work.spread.fill(0.0);
    map.add_spread(example, &work.alpha, &mut work.spread);
    let square = squared_norm(&work.alpha);
    let curvature = weight * dot(&work.spread, &work.alpha) + smoothing * square;
    let length = if curvature > 0.0 { (slope / curvature).min(1.0) } else { 1.0 };
    for &(class, change) in &work.direction {
        let beta = &mut work.beta[class as usize];
        // A full step ends at the projection itself, which is in the set up to rounding.
        *beta =
            if length == 1.0 { work.projection[class as usize] } else { *beta + length * change };
    }
    let scores = work.scores.iter_mut().zip(&work.spread);
    scores.for_each(|(score, spread)| *score += length * weight * spread);
    if curvature > 0.0 {
        *steepness = (curvature / square).max(f64::MIN_POSITIVE);
    }
    Some(slope)
}

impl<M: ScoreMap> Solver for JointDescent<'_, '_, '_, M> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if let Some((newton, blocks)) = &mut self.end {
            return newton.advance(self.dual, (&mut self.weights, blocks), interrupt);
        }
        let mut moved = false;
        let n_passes = (self.points.len() / self.due.len().max(1)).clamp(1, MAX_PASSES);
        for _ in 0..n_passes {
            self.due.shuffle(&mut self.random);
            for at in 0..self.due.len() {
                interrupt.check()?;
                moved |= self.visit(self.due[at] as usize);
            }
        }
        let certificate = self.certify(interrupt)?;
        self.n_epochs += 1;
        if let Some(pace) = &mut self.pace
            && !pace.stopping().is_met(&certificate)
            && (self.n_epochs.is_power_of_two() && pace.is_too_slow(self.n_epochs, certificate)
                || !moved)
        {
            let stopping = pace.stopping();
            self.hand_over(stopping, certificate);
            return Ok(Progress::Epoch(certificate));
        }
        Ok(if moved { Progress::Epoch(certificate) } else { Progress::Exhausted(certificate) })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        if let Some((newton, _)) = &self.end {
            return Ok(newton.certificate());
        }
        let points = &self.points;
        let at = |block: usize| -> &[(u32, f64)] { &points[block] };
        let lambda = self.dual.shares().lambda();
        let found = self.dual.block_gaps(&self.weights, &at, interrupt)?;
        // Every built-in loss can compute a point's distance from its set, so no drift has to be
        // tracked.
        let dual = dual_value(self.dual, &at, &|_| f64::INFINITY, interrupt)?.bound();
        let mean = found.gaps.iter().sum::<f64>() / found.gaps.len().max(1) as f64;
        let open = (0..).zip(&found.gaps).filter(|(_, gap)| **gap > MIN_GAP_SHARE * mean.max(0.0));
        self.due = open.map(|(block, _)| block).collect();
        Ok(Certificate { primal: objective(lambda, &self.weights, found.loss), dual })
    }

    fn n_first(&self) -> Option<usize> {
        self.end.as_ref().map(|_| self.n_epochs)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.weights.clone()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.weights);
        true
    }
}
