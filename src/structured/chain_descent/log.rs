//! The logistic loss of conditional random fields (Lafferty, McCallum and Pereira 2001), in the dual.
//!
//! A block of the dual is a distribution over labels, and its gap is the Kullback-Leibler divergence from the
//! model's (Le Priol, Piché and Lacoste-Julien 2018). Each is kept as p(y) ∝ exp ⟨θ_i, μ(y)⟩, so that it takes
//! as much room as the scores of its parts, and moves on the arc of such distributions towards the model's,
//! θ_i ← (1 − η) θ_i + η A_i w (Collins et al. 2008), by a step η that is searched along it.

use super::image::Image;
use super::{BlockLoss, Proposal, Scratch, Task, Terms};
use crate::dual::Bounded;
use crate::dual::rounding::gamma;
use crate::structured::marginals::marginals;
use crate::structured::model::{Chain, ChainScores, FORBIDDEN, Model};

/// What the right labels' nodes score at the start: a distribution near them, but not at the border, where
/// the entropy has no slope.
const HEAD_START: f32 = 6.0;

/// The first step of each block.
const FIRST_STEP: f32 = 0.3;

/// Steps are not made shorter than this.
const SHORTEST: f64 = 1e-4;

/// Trials of a visit.
const TRIALS: usize = 3;

/// Marginals that move by less are left where they are.
const STILL: f32 = 1e-7;

/// Marginals that differ by less from the truth are counted as an error, not added up.
const NEGLIGIBLE: f64 = 1e-12;

/// Φ_i(w) = ln Σ_y exp ⟨w, φ(x_i, y) − φ(x_i, y_i)⟩, its blocks being distributions over labels.
pub struct Log {
    /// Where the parts of each sequence begin.
    offsets: Vec<usize>,
    /// θ.
    potentials: Vec<f32>,
    /// The expected parts, as far as the weights know of them.
    marginals: Vec<f32>,
    entropies: Vec<f64>,
    steps: Vec<f32>,
}

/// The dual point: θ of all sequences after one another.
pub type LogPoint = Vec<f32>;

/// A block's new distribution.
pub struct Move {
    potentials: Vec<f32>,
    marginals: Vec<f32>,
    entropy: f64,
    /// How much more entropy it has.
    gain: f64,
    /// The step to begin with next time.
    next: f32,
}

/// What a trial step comes to.
struct Trial {
    entropy: f64,
    /// What the dual gains but for the image's norm.
    gain: f64,
    /// ½ p_i/λ ‖Aᵀδ‖².
    loss: f64,
    image: Image,
    potentials: Vec<f32>,
    marginals: Vec<f32>,
}

impl Log {
    /// Starts near the right labels, or at the point of an earlier fit to the same sequences.
    pub fn new(chain: &Chain, start: Option<LogPoint>) -> Self {
        let mut offsets = vec![0];
        for example in 0..chain.n_examples() {
            offsets.push(offsets[example] + chain.n_parts(example));
        }
        let n_parts = offsets[chain.n_examples()];
        let potentials = start.unwrap_or_else(|| Self::near_truth(chain, n_parts));
        let mut log = Self {
            potentials,
            marginals: vec![0.0; n_parts],
            entropies: vec![0.0; chain.n_examples()],
            steps: vec![FIRST_STEP; chain.n_examples()],
            offsets,
        };
        let mut scratch = Scratch::default();
        for example in 0..chain.n_examples() {
            log.entropies[example] = log.expectations(chain, example, &mut scratch).0;
            let range = log.range(example);
            for (kept, found) in log.marginals[range].iter_mut().zip(&scratch.marginals) {
                *kept = *found as f32;
            }
        }
        log
    }

    fn near_truth(chain: &Chain, n_parts: usize) -> Vec<f32> {
        let (mut potentials, mut scores) = (Vec::with_capacity(n_parts), Vec::new());
        for example in 0..chain.n_examples() {
            scores.resize(chain.n_parts(example), 0.0);
            chain.scores_at_zero(example, &mut scores);
            let start = potentials.len();
            potentials.extend(scores.iter().map(|score| *score as f32));
            for (t, label) in chain.truth(example).iter().enumerate() {
                potentials[start + t * chain.n_states() + *label as usize] += HEAD_START;
            }
        }
        potentials
    }

    /// The dual point.
    pub fn into_point(self) -> LogPoint {
        self.potentials
    }

    fn range(&self, example: usize) -> std::ops::Range<usize> {
        self.offsets[example]..self.offsets[example + 1]
    }

    /// Writes a block's expected parts to the scratch space; returns its entropy, and a bound on the relative
    /// error of each expectation.
    fn expectations(&self, chain: &Chain, example: usize, scratch: &mut Scratch) -> (f64, f64) {
        scratch.trial.clear();
        scratch.trial.extend(self.potentials[self.range(example)].iter().map(|x| f64::from(*x)));
        scratch.marginals.resize(scratch.trial.len(), 0.0);
        let scores = chain.chain_scores(example, &scratch.trial);
        let log_sum = marginals(scores, &mut scratch.work, &mut scratch.marginals);
        (log_sum - inner(&scratch.trial, &scratch.marginals), relative_error(scores))
    }

    /// A step of length `step` towards the scores.
    fn attempt(&self, task: &Task<'_>, example: usize, step: f64, scratch: &mut Scratch) -> Trial {
        let (chain, range) = (task.chain, self.range(example));
        let old = &self.potentials[range.clone()];
        let towards = old.iter().zip(&scratch.scores);
        let blend = |(old, new): (&f32, &f64)| ((1.0 - step) * f64::from(*old) + step * new) as f32;
        let potentials: Vec<f32> = towards.map(blend).collect();
        scratch.trial.clear();
        scratch.trial.extend(potentials.iter().map(|x| f64::from(*x)));
        let scores = chain.chain_scores(example, &scratch.trial);
        let log_sum = marginals(scores, &mut scratch.work, &mut scratch.marginals);
        let entropy = log_sum - inner(&scratch.trial, &scratch.marginals);
        let before = &self.marginals[range];
        let mut found: Vec<f32> = scratch.marginals.iter().map(|x| *x as f32).collect();
        // The directions take the place of the marginals.
        for (delta, (new, old)) in scratch.marginals.iter_mut().zip(found.iter().zip(before)) {
            *delta = f64::from(*new) - f64::from(*old);
        }
        let n_states = chain.n_states();
        let n_nodes = chain.sequence_len(example) * n_states;
        let is_still = |values: &[f64]| values.iter().all(|x| x.abs() < f64::from(STILL));
        for (t, values) in scratch.marginals[..n_nodes].chunks_exact_mut(n_states).enumerate() {
            if is_still(values) {
                let own = t * n_states..(t + 1) * n_states;
                found[own.clone()].copy_from_slice(&before[own]);
                values.fill(0.0);
            } else {
                scratch.gatherer.add_node(chain, example, t, values);
            }
        }
        let n_edges = n_states * n_states;
        for (t, values) in scratch.marginals[n_nodes..].chunks_exact_mut(n_edges).enumerate() {
            scratch.gatherer.add_edges(chain, example, t, values);
        }
        let image = scratch.gatherer.finish(chain);
        let gain =
            entropy - self.entropies[example] + inner(&scratch.scores, &scratch.marginals);
        let scale = 0.5 * task.shares.of(example) / task.shares.lambda();
        let loss = scale * image.squared_norm();
        Trial { entropy, gain, loss, image, potentials, marginals: found }
    }
}

impl BlockLoss for Log {
    type Change = Move;

    fn propose(
        &self,
        task: &Task<'_>,
        example: usize,
        weights: &[f64],
        scratch: &mut Scratch,
    ) -> Proposal<Move> {
        let (chain, share) = (task.chain, task.shares.of(example));
        let n_parts = chain.n_parts(example);
        scratch.scores.resize(n_parts, 0.0);
        scratch.marginals.resize(n_parts, 0.0);
        chain.scores(example, weights, &mut scratch.scores);
        let scores = chain.chain_scores(example, &scratch.scores);
        let log_sum = marginals(scores, &mut scratch.work, &mut scratch.marginals);
        chain.parts(example, chain.truth(example), &mut scratch.truth);
        let loss = share * (log_sum - crate::linalg::sparse::dot(&scratch.scores, &scratch.truth));
        let now = self.marginals[self.range(example)].iter().zip(&scratch.scores);
        let linear: f64 = now.map(|(marginal, score)| f64::from(*marginal) * score).sum();
        let gap = share * (log_sum - self.entropies[example] - linear);
        let mut proposal = Proposal { example, image: Image::default(), gap, loss, change: None };
        if gap <= 0.0 {
            return proposal;
        }
        let mut step = f64::from(self.steps[example]);
        for trial in 1..=TRIALS {
            let found = self.attempt(task, example, step, scratch);
            // On the arc the gain is nearly s (η − η²/2) − c η².
            let (rise, fall) = (found.gain / (step - 0.5 * step * step), found.loss / (step * step));
            let best = if rise > 0.0 { rise / (rise + 2.0 * fall) } else { 0.25 * step };
            let best = best.clamp(SHORTEST, 1.0);
            let near = best < 1.6 * step && step < 1.6 * best;
            if found.gain > found.loss && (near || trial == TRIALS) {
                proposal.image = found.image;
                proposal.change = Some(Move {
                    potentials: found.potentials,
                    marginals: found.marginals,
                    entropy: found.entropy,
                    gain: found.entropy - self.entropies[example],
                    next: best as f32,
                });
                return proposal;
            }
            step = if near { 0.5 * step } else { best };
        }
        proposal
    }

    fn step(&self, _: usize, change: &Move, slope: f64, curvature: f64) -> f64 {
        f64::from(change.gain + slope > 0.5 * curvature)
    }

    fn accept(&mut self, example: usize, change: Move, step: f64) {
        if step == 0.0 {
            self.steps[example] = (0.5 * self.steps[example]).max(SHORTEST as f32);
            return;
        }
        let range = self.range(example);
        self.potentials[range.clone()].copy_from_slice(&change.potentials);
        self.marginals[range].copy_from_slice(&change.marginals);
        self.entropies[example] = change.entropy;
        self.steps[example] = change.next;
    }

    fn loss(
        &self,
        task: &Task<'_>,
        example: usize,
        (weights, norm): (&[f64], f64),
        scratch: &mut Scratch,
    ) -> Bounded {
        let chain = task.chain;
        scratch.scores.resize(chain.n_parts(example), 0.0);
        scratch.marginals.resize(scratch.scores.len(), 0.0);
        match norm > 0.0 {
            true => chain.scores(example, weights, &mut scratch.scores),
            false => chain.scores_at_zero(example, &mut scratch.scores),
        }
        let scores = chain.chain_scores(example, &scratch.scores);
        let log_sum = marginals(scores, &mut scratch.work, &mut scratch.marginals);
        chain.parts(example, chain.truth(example), &mut scratch.truth);
        let truth = crate::linalg::sparse::dot(&scratch.scores, &scratch.truth);
        let error = chain.size(example).loss_error(0.0, norm) + log_error(scores);
        Bounded::new(log_sum - truth, error)
    }

    fn terms(&self, task: &Task<'_>, example: usize, scratch: &mut Scratch) -> (Terms, Image) {
        let chain = task.chain;
        let (entropy, relative) = self.expectations(chain, example, scratch);
        let scores = chain.chain_scores(example, &scratch.trial);
        let n_parts = 2 * scores.len();
        // Expectations of at most one part for each position and transition.
        let mut defect = relative * n_parts as f64;
        let missing = log_error(scores) + defect * largest(&scratch.trial);
        chain.parts(example, chain.truth(example), &mut scratch.truth);
        for (part, value) in &scratch.truth {
            scratch.marginals[*part as usize] -= value;
        }
        let length: f64 = scratch.marginals.iter().map(|x| x.abs()).sum();
        let n_states = chain.n_states();
        let (nodes, edges) =
            scratch.marginals.split_at(chain.sequence_len(example) * n_states);
        for (t, values) in nodes.chunks_exact(n_states).enumerate() {
            if values.iter().all(|value| value.abs() < NEGLIGIBLE) {
                defect += values.iter().map(|value| value.abs()).sum::<f64>();
            } else {
                scratch.gatherer.add_node(chain, example, t, values);
            }
        }
        for (t, values) in edges.chunks_exact(n_states * n_states).enumerate() {
            scratch.gatherer.add_edges(chain, example, t, values);
        }
        let n_entries = scratch.marginals.len();
        let terms = Terms {
            linear: entropy - missing,
            bend: 0.0,
            length: length * (1.0 + gamma(n_entries)),
            n_entries,
            defect,
            scales: chain.size(example).scales(0.0),
        };
        (terms, scratch.gatherer.finish(chain))
    }
}

/// ⟨a, b⟩, where what has no share in `b` counts nothing.
fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The largest potential that is not forbidden.
fn largest(potentials: &[f64]) -> f64 {
    let sizes = potentials.iter().map(|x| x.abs()).filter(|x| *x < -1e-3 * FORBIDDEN);
    sizes.fold(0.0, f64::max)
}

/// A bound on the relative error of each expectation: sums of products of positive numbers, two for each
/// position, whose factors are exponentials known to 1e-14 and to the rounding of what is in them.
fn relative_error(scores: ChainScores<'_>) -> f64 {
    let reach = 2.0 * scores.len() as f64 * (largest(scores.nodes) + largest(scores.edges));
    let step = 8e-14 + gamma(2 * scores.n_states + 32) + gamma(8) * reach;
    4.0 * scores.len() as f64 * step
}

/// A bound on the error of ln Σ exp(scores) and of what it is compared with.
fn log_error(scores: ChainScores<'_>) -> f64 {
    let reach = 2.0 * scores.len() as f64 * (largest(scores.nodes) + largest(scores.edges));
    relative_error(scores) + gamma(8 * scores.len() + scores.n_states + 16) * reach
}
