//! The descent itself: epochs of exact steps, block of rows by block of rows.

use num_traits::Zero;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::dual_block::{DualBlock, add_images};
use super::kernels::{CurrentScores, Move, Target};
use super::scorer::{Changes, RowBlock, Scorer};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Element;
use crate::multiclass::MarginProblem;
use crate::polytope::Scratch;
use crate::run::{Certificate, Progress, Solver};

/// How block descent goes about it; nothing of this changes what it converges to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Of the order of the examples.
    pub seed: u64,
    /// Epochs are certified only once an estimate of the gap is below this; each certificate costs a
    /// pass over the data.
    pub certify_below: f64,
    /// Whether examples that stay as they are may be skipped for some epochs.
    pub shrink: bool,
    /// Examples whose scores are computed together; by default what suits the data.
    pub block_size: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, certify_below: f64::INFINITY, shrink: true, block_size: None }
    }
}

/// Neighbouring duals that are visited one after the other. They are neighbours by chance; reading
/// memory in order is faster than in a new random order each epoch.
const GROUP: usize = 8;

/// Rows, weights and dual blocks of a run.
pub(super) struct State<'p, M: Scorer> {
    pub problem: &'p MarginProblem<'p>,
    pub model: M,
    /// The weights in double precision as of the last certificate, where `model` is less precise.
    pub exact: Option<M::Exact>,
    /// w₀, class after class; empty where it is 0.
    pub origin: Vec<f64>,
    pub options: Options,
    pub random: Pcg64Mcg,
    /// The dual blocks, in a random order.
    pub duals: Vec<DualBlock>,
    /// β_i for each of them, one row of classes each.
    pub betas: Vec<M::Value>,
    /// Order in which groups of neighbouring duals are visited.
    pub order: Vec<u32>,
    pub work: Work<M::Value>,
}

/// What a pass over some examples found.
struct Pass {
    /// An estimate of the gap met on the way.
    gap: f64,
    n_visited: usize,
    /// How many dual blocks changed.
    n_changed: usize,
}

/// Buffers of an epoch.
pub(super) struct Work<T> {
    block_size: usize,
    previous: RowBlock<T>,
    next: RowBlock<T>,
    scores: Vec<T>,
    changes: Changes<T>,
    corrections: Vec<(T, usize)>,
    current: Vec<T>,
    target: Vec<f64>,
    projection: Vec<f64>,
    scratch: Scratch,
}

impl<'p, M: Scorer> State<'p, M> {
    pub fn new(problem: &'p MarginProblem<'p>, model: M, options: Options) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let block_size = options.block_size.unwrap_or_else(|| model.block_size());
        let block_size = block_size.clamp(1, M::LARGEST_BLOCK);
        let padded = model.padded();
        let work = Work {
            block_size,
            previous: RowBlock::default(),
            next: RowBlock::default(),
            scores: vec![M::Value::zero(); block_size * padded],
            changes: Changes::new(block_size, padded),
            corrections: Vec::new(),
            current: vec![M::Value::zero(); padded],
            target: vec![0.0; m],
            projection: vec![0.0; m],
            scratch: Scratch::default(),
        };
        let mut random = Pcg64Mcg::new(u128::from(options.seed));
        let mut examples: Vec<u32> = (0..n as u32).collect();
        examples.shuffle(&mut random);
        let dual = |&example: &u32| DualBlock { example, ..DualBlock::default() };
        let mut state = Self {
            random,
            duals: examples.iter().map(dual).collect(),
            betas: vec![M::Value::zero(); n * m],
            order: (0..n.div_ceil(GROUP) as u32).collect(),
            problem,
            model,
            exact: None,
            origin: Vec::new(),
            options,
            work,
        };
        (0..n).for_each(|at| state.settle(at));
        state
    }

    /// Examples without weight never count; those whose row is 0 have their optimal vertex at once.
    fn settle(&mut self, at: usize) {
        let dual = &mut self.duals[at];
        let example = dual.example as usize;
        let squared_norm = self.model.squared_norm(example);
        dual.weight = self.problem.shares().of(example) / self.problem.shares().lambda();
        dual.curvature = dual.weight * squared_norm;
        dual.settled = self.problem.shares().of(example) == 0.0;
        if dual.settled || squared_norm > 0.0 || self.problem.shares().smoothing() > 0.0 {
            return;
        }
        dual.settled = true;
        let target = &mut self.work.target;
        target.fill(0.0);
        self.problem.margins(example, target);
        let (mut vertex, label) = (Vec::new(), self.problem.label(example));
        self.problem.polytope().vertex(target, label, &mut self.work.scratch, &mut vertex);
        let m = target.len();
        for (class, weight) in vertex {
            self.betas[at * m + class as usize] = Real::narrow(weight);
            dual.sum += weight;
        }
    }

    /// One pass over the examples that do not rest.
    fn descend(&mut self, interrupt: &Interrupt) -> Result<Pass> {
        let mut order = std::mem::take(&mut self.order);
        order.shuffle(&mut self.random);
        let mut active = Vec::with_capacity(self.duals.len());
        for group in &order {
            let start = *group as usize * GROUP;
            let end = self.duals.len().min(start + GROUP);
            active.extend((start..end).filter(|at| self.duals[*at].wakes()));
        }
        self.order = order;
        let (mut gap, mut n_probed, mut n_changed) = (0.0, 0usize, 0usize);
        self.work.changes.changed.clear();
        self.exact = None;
        for duals in active.chunks(self.work.block_size) {
            if interrupt.is_raised() {
                break;
            }
            let work = &mut self.work;
            std::mem::swap(&mut work.previous, &mut work.next);
            work.next.examples.clear();
            work.next.examples.extend(duals.iter().map(|at| self.duals[*at].example));
            self.model.gather(&mut work.next);
            self.model.multiply_rows(&mut work.next);
            let scores = &mut work.scores[..duals.len() * work.current.len()];
            self.model.update_and_score(&work.changes, &work.previous, &work.next, scores);
            work.changes.changed.clear();
            for (row, &at) in duals.iter().enumerate() {
                self.correct_scores(row);
                self.aim(at);
                if row == 0 {
                    gap += self.gap(at);
                    n_probed += 1;
                }
                self.step(row, at);
            }
            n_changed += self.work.changes.changed.len();
        }
        // Also when interrupted: weights and duals belong together.
        self.flush();
        interrupt.check()?;
        let gap = gap * active.len() as f64 / n_probed.max(1) as f64;
        Ok(Pass { gap, n_visited: active.len(), n_changed })
    }

    /// Brings the last block's changes to the weights.
    fn flush(&mut self) {
        if !self.work.changes.changed.is_empty() {
            self.model.update(&self.work.changes, &self.work.next);
            self.work.changes.changed.clear();
        }
    }

    /// The current scores of a row of the block: those before the block, and what the rows before it
    /// changed.
    fn correct_scores(&mut self, row: usize) {
        let Work { next, scores, changes, corrections, current, .. } = &mut self.work;
        let n_rows = next.examples.len();
        corrections.clear();
        let earlier = changes.changed.iter();
        corrections.extend(earlier.map(|&other| (next.gram[row * n_rows + other], other)));
        M::Value::dispatch(CurrentScores {
            scores,
            row,
            n_rows,
            panel_width: self.model.panel_width(),
            changes: &changes.values,
            corrections,
            out: current,
        });
    }

    /// h = C_i A_i + γ.
    fn steepness(&self, at: usize) -> f64 {
        self.duals[at].curvature + self.problem.shares().smoothing()
    }

    /// Computes u from the current scores.
    fn aim(&mut self, at: usize) {
        let (scale, m) = (self.steepness(at).recip(), self.work.target.len());
        let dual = &self.duals[at];
        let example = dual.example as usize;
        M::Value::dispatch(Target {
            scores: &self.work.current[..m],
            beta: &self.betas[at * m..][..m],
            costs: self.problem.cost_row(example),
            label: self.problem.label(example),
            curvature: dual.curvature,
            sum: dual.sum,
            scale,
            out: &mut self.work.target,
        });
    }

    /// The example's share of the gap at the current scores, p_i h (max over B of ⟨b, w⟩ − ⟨β_i, w⟩)
    /// for w = u − β_i − 1ᵀβ_i off the label.
    fn gap(&mut self, at: usize) -> f64 {
        let h = self.steepness(at);
        let Work { target, projection: direction, scratch, .. } = &mut self.work;
        let dual = &self.duals[at];
        let (example, m) = (dual.example as usize, target.len());
        let beta = &self.betas[at * m..][..m];
        let label = self.problem.label(example);
        let mut attained = 0.0;
        for ((direction, target), beta) in direction.iter_mut().zip(target).zip(beta) {
            *direction = *target - beta.widen() - dual.sum;
            attained += *direction * beta.widen();
        }
        direction[label] = 0.0;
        let best = self.problem.polytope().support(direction, label, scratch);
        self.problem.shares().of(example) * h * (best - attained)
    }

    /// Maximises over the dual block: β_i becomes the projection of u.
    fn step(&mut self, row: usize, at: usize) {
        let Work { target, projection, scratch, .. } = &mut self.work;
        let dual = &mut self.duals[at];
        let label = self.problem.label(dual.example as usize);
        scratch.guess = Some(dual.multiplier);
        self.problem.polytope().project(target, label, 1.0, scratch, projection);
        dual.multiplier = scratch.multiplier;
        if self.replace(row, at) {
            self.duals[at].idle = 0;
        } else if self.options.shrink {
            self.duals[at].tire();
        }
    }

    /// Replaces β_i, its example being a row of the block, by the projection just computed, and notes
    /// the change for the weights: C_i (α_i' − α_i). Returns whether anything changed.
    fn replace(&mut self, row: usize, at: usize) -> bool {
        let Work { changes, projection, current, .. } = &mut self.work;
        let (padded, m) = (current.len(), projection.len());
        let dual = &mut self.duals[at];
        let beta = &mut self.betas[at * m..][..m];
        let change = &mut changes.values[row * padded..][..padded];
        let (n_changed, sum) =
            M::Value::dispatch(Move { target: projection, beta, change, weight: dual.weight });
        if n_changed == 0 {
            return false;
        }
        dual.sum += sum;
        change[self.problem.label(dual.example as usize)] = Real::narrow(dual.weight * sum);
        changes.changed.push(row);
        true
    }

    /// Moves to a dual point, the weights' origin being w₀ (empty for 0).
    pub fn start(&mut self, origin: Vec<f64>, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        let (m, d) = (self.problem.n_classes(), self.model.n_features());
        for (dual, beta) in self.duals.iter_mut().zip(self.betas.chunks_exact_mut(m)) {
            if !dual.settled {
                let start = &betas[dual.example as usize * m..][..m];
                beta.iter_mut().zip(start).for_each(|(beta, start)| *beta = Real::narrow(*start));
                dual.sum = beta.iter().map(|beta| beta.widen()).sum();
            }
        }
        self.exact = None;
        self.origin = origin;
        let origin = &self.origin;
        self.model.load(|feature, class| origin.get(class * d + feature).copied().unwrap_or(0.0));
        add_images(self.problem, &self.duals, &self.betas, &mut self.model, interrupt)
    }

    /// The weights, class after class.
    pub fn coefficients(&self) -> Vec<f64> {
        let (m, d) = (self.problem.n_classes(), self.model.n_features());
        let weight = |feature: usize, class: usize| match &self.exact {
            Some(exact) => exact.weight(feature, class),
            None => self.model.weight(feature, class),
        };
        let mut coefficients = vec![0.0; m * d];
        // Feature by feature, as the models keep their weights.
        for feature in 0..d {
            for class in 0..m {
                coefficients[class * d + feature] = weight(feature, class);
            }
        }
        coefficients
    }

    /// β_i after β_i in the order of the examples.
    pub fn betas(&self) -> Vec<f64> {
        let m = self.problem.n_classes();
        let mut betas = vec![0.0; self.betas.len()];
        for (dual, beta) in self.duals.iter().zip(self.betas.chunks_exact(m)) {
            let row = &mut betas[dual.example as usize * m..][..m];
            row.iter_mut().zip(beta).for_each(|(to, beta)| *to = beta.widen());
        }
        betas
    }
}

impl<M: Scorer> Solver for State<'_, M> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        // Passes over few examples make one epoch together.
        let enough = self.duals.iter().filter(|dual| !dual.settled).count() / 2;
        let (mut n_visited, mut estimate) = (0, 0.0);
        let exhausted = loop {
            let all = self.duals.iter().all(|dual| dual.rest == 0);
            let pass = self.descend(interrupt)?;
            n_visited += pass.n_visited;
            estimate += pass.gap * pass.n_visited as f64;
            // Where nothing changes any more, the working precision is used up.
            let exhausted = all && pass.n_changed == 0;
            if exhausted || n_visited > enough {
                break exhausted;
            }
        };
        estimate /= n_visited.max(1) as f64;
        if !exhausted && estimate > self.options.certify_below {
            return Ok(Progress::Uncertified);
        }
        let certificate = self.certify(interrupt)?;
        Ok(if exhausted { Progress::Exhausted(certificate) } else { Progress::Epoch(certificate) })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.certificate(interrupt)
    }
}
