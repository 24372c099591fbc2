//! Exact block coordinate descent on the dual: Walrus for the cube, Crammer and Singer's step for the
//! simplex, and the like for every set that can be projected onto (SPEC 12, 13).

mod kernels;
mod model;

use num_traits::{Float, Zero};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use self::kernels::{CurrentScores, Move, Target};
use self::model::{Block, Changes, DenseModel, Model, SparseModel};
use super::squared_norm;
use crate::data::{Data, Real};
use crate::error::Result;
use crate::linalg::Element;
use crate::polytope::Scratch;
use crate::problem::{Problem, Workspace};
use crate::run::{Certificate, Interrupt, Progress, Solver};

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

/// Block coordinate descent: for one example after the other, in random order, the dual is maximised
/// exactly over its β_i (SPEC 12; paper 001, Algorithm 1).
///
/// With C_i = p_i/λ, A_i = ‖x_i‖², h = C_i A_i + γ and the margins v at the current weights, that is
/// the projection with bias 1 of u = (v + C_i A_i (β_i + 1ᵀβ_i)) / h. Scores are computed for a block of
/// examples at once and corrected for what the block's earlier examples changed, so that the iterates
/// are those of the sequential method up to rounding.
pub struct BlockDescent<'p>(Box<dyn Descent + 'p>);

trait Descent: Solver + Send {
    fn coefficients(&self) -> Vec<f64>;
    fn beta(&self, example: usize) -> Vec<f64>;
}

impl<'p> BlockDescent<'p> {
    /// Starts at the dual point 0, in the precision of the data. `data` and `bias` are those of the
    /// problem's feature map.
    pub fn new(problem: &'p Problem<'p>, data: Data<'p>, bias: f64, options: Options) -> Self {
        let m = problem.n_classes();
        Self(match data {
            Data::Dense32(x) => boxed(problem, DenseModel::new(x, bias, m), options),
            Data::Dense64(x) => boxed(problem, DenseModel::new(x, bias, m), options),
            Data::Csr32(x) => boxed(problem, SparseModel::new(x, bias, m), options),
            Data::Csr64(x) => boxed(problem, SparseModel::new(x, bias, m), options),
        })
    }

    /// The weights, class after class, the constant feature's last.
    pub fn coefficients(&self) -> Vec<f64> {
        self.0.coefficients()
    }

    /// β_i of an example, a point of the loss's set, 0 at its label.
    pub fn beta(&self, example: usize) -> Vec<f64> {
        self.0.beta(example)
    }
}

impl Solver for BlockDescent<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.0.advance(interrupt)
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.0.certify(interrupt)
    }
}

fn boxed<'p, M: Model + 'p>(
    problem: &'p Problem<'p>,
    model: M,
    options: Options,
) -> Box<dyn Descent + 'p> {
    Box::new(State::new(problem, model, options))
}

/// Longest rest of an example that stayed as it was, in epochs.
const LONGEST_REST: u8 = 15;

/// Duals of a piece of a certificate.
const SCORED: usize = 64;

/// Neighbouring duals that are visited one after the other. They are neighbours by chance; reading
/// memory in order is faster than in a new random order each epoch.
const GROUP: usize = 8;

struct State<'p, M: Model> {
    problem: &'p Problem<'p>,
    model: M,
    options: Options,
    random: Pcg64Mcg,
    /// The dual blocks, in a random order.
    duals: Vec<Dual>,
    /// β_i for each of them, one row of classes each.
    betas: Vec<M::Value>,
    /// Order in which groups of neighbouring duals are visited.
    order: Vec<u32>,
    work: Work<M::Value>,
}

/// What is kept of an example's dual block beside β_i.
#[derive(Debug, Clone, Copy, Default)]
struct Dual {
    /// i.
    example: u32,
    /// C_i = p_i/λ.
    weight: f64,
    /// C_i A_i.
    curvature: f64,
    /// 1ᵀβ_i.
    sum: f64,
    /// The last multiplier of its projection.
    multiplier: f64,
    /// Epochs that it still rests.
    rest: u8,
    /// How many visits in a row changed nothing.
    idle: u8,
    /// Whether its block is optimal whatever the weights.
    settled: bool,
}

impl Dual {
    /// Whether the example is due.
    fn wakes(&mut self) -> bool {
        let due = self.rest == 0;
        self.rest -= u8::from(!due);
        due && !self.settled
    }
}

/// Buffers of an epoch.
struct Work<T> {
    block_size: usize,
    previous: Block<T>,
    next: Block<T>,
    scores: Vec<T>,
    changes: Changes<T>,
    corrections: Vec<(T, usize)>,
    current: Vec<T>,
    target: Vec<f64>,
    projection: Vec<f64>,
    scratch: Scratch,
}

impl<'p, M: Model> State<'p, M> {
    fn new(problem: &'p Problem<'p>, model: M, options: Options) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let block_size = options.block_size.unwrap_or_else(|| model.block_size());
        let block_size = block_size.clamp(1, M::LARGEST_BLOCK);
        let padded = model.padded();
        let work = Work {
            block_size,
            previous: Block::default(),
            next: Block::default(),
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
        let dual = |&example: &u32| Dual { example, ..Dual::default() };
        let mut state = Self {
            random,
            duals: examples.iter().map(dual).collect(),
            betas: vec![M::Value::zero(); n * m],
            order: (0..n.div_ceil(GROUP) as u32).collect(),
            problem,
            model,
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
        dual.weight = self.problem.importance(example) / self.problem.lambda;
        dual.curvature = dual.weight * squared_norm;
        dual.settled = self.problem.importance(example) == 0.0;
        if dual.settled || squared_norm > 0.0 || self.problem.smoothing > 0.0 {
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
            self.betas[at * m + class] = Real::narrow(weight);
            dual.sum += weight;
        }
    }

    /// One pass over the examples that do not rest; returns an estimate of the gap met on the way.
    fn descend(&mut self, interrupt: &Interrupt) -> Result<(f64, usize)> {
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
        for duals in active.chunks(self.work.block_size) {
            interrupt.check()?;
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
                if row == 0 {
                    gap += self.step::<true>(row, at);
                    n_probed += 1;
                } else {
                    self.step::<false>(row, at);
                }
            }
            n_changed += self.work.changes.changed.len();
        }
        if !active.is_empty() {
            self.model.update(&self.work.changes, &self.work.next);
        }
        Ok((gap * active.len() as f64 / n_probed.max(1) as f64, n_changed))
    }

    /// Maximises over a dual block, its example being a row of the block; with `PROBE` returns its share
    /// of the gap before.
    fn step<const PROBE: bool>(&mut self, row: usize, at: usize) -> f64 {
        let Work {
            next, scores, changes, corrections, current, target, projection, scratch, ..
        } = &mut self.work;
        let (problem, n_rows) = (self.problem, next.examples.len());
        let (padded, m) = (current.len(), target.len());
        let dual = &mut self.duals[at];
        let beta = &mut self.betas[at * m..][..m];
        let example = dual.example as usize;
        let label = problem.label(example);

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
        let h = dual.curvature + problem.smoothing;
        M::Value::dispatch(Target {
            scores: &current[..m],
            beta,
            costs: problem.cost_row(example),
            label,
            curvature: dual.curvature,
            sum: dual.sum,
            scale: h.recip(),
            out: target,
        });
        let gap = if PROBE {
            h * probe(problem, target, beta, dual.sum, label, scratch, projection)
        } else {
            0.0
        };
        scratch.guess = Some(dual.multiplier);
        problem.polytope().project(target, label, 1.0, scratch, projection);
        dual.multiplier = scratch.multiplier;
        let change = &mut changes.values[row * padded..][..padded];
        let (n_changed, sum) =
            M::Value::dispatch(Move { target: projection, beta, change, weight: dual.weight });
        if n_changed == 0 {
            dual.idle = dual.idle.saturating_add(1);
            if self.options.shrink {
                dual.rest = (1u8 << dual.idle.min(6)).saturating_sub(2).min(LONGEST_REST);
            }
        } else {
            dual.idle = 0;
            dual.sum += sum;
            change[label] = Real::narrow(dual.weight * sum);
            changes.changed.push(row);
        }
        problem.importance(example) * gap
    }
}

/// ⟨β, w⟩ under the best vertex, for w = u − β − 1ᵀβ off the label: the example's gap divided by h.
fn probe<T: Real>(
    problem: &Problem<'_>,
    target: &[f64],
    beta: &[T],
    sum: f64,
    label: usize,
    scratch: &mut Scratch,
    direction: &mut [f64],
) -> f64 {
    let mut attained = 0.0;
    for ((direction, target), beta) in direction.iter_mut().zip(target).zip(beta) {
        *direction = target - beta.widen() - sum;
        attained += *direction * beta.widen();
    }
    direction[label] = 0.0;
    problem.polytope().support(direction, label, scratch) - attained
}

/// What a run of examples adds to a certificate.
#[derive(Default)]
struct Terms {
    loss: f64,
    dual: f64,
    /// Duals that rest although they could still gain.
    roused: Vec<usize>,
}

impl<M: Model> State<'_, M> {
    /// The terms of duals `first..end`, at the current weights.
    fn terms(&self, first: usize, end: usize, buffers: &mut Buffers<M::Value>) -> Terms {
        let Buffers { block, scores, margins, work } = buffers;
        let m = self.problem.n_classes();
        let (padded, width) = (self.model.padded(), self.model.panel_width());
        let mut terms = Terms::default();
        for start in (first..end).step_by(M::LARGEST_BLOCK) {
            block.examples.clear();
            let duals = &self.duals[start..end.min(start + M::LARGEST_BLOCK)];
            block.examples.extend(duals.iter().map(|dual| dual.example));
            let n_rows = block.examples.len();
            self.model.gather(block);
            scores.resize(n_rows * padded, M::Value::zero());
            self.model.score(block, scores);
            for row in 0..n_rows {
                let (at, dual) = (start + row, &duals[row]);
                let example = dual.example as usize;
                let share = self.problem.importance(example);
                if share == 0.0 {
                    continue;
                }
                for (panel, margins) in margins.chunks_mut(width).enumerate() {
                    let columns = width.min(padded - panel * width);
                    let scores = &scores[panel * width * n_rows + row * columns..];
                    for (margin, score) in margins.iter_mut().zip(scores) {
                        *margin = score.widen();
                    }
                }
                self.problem.margins(example, margins);
                let loss = self.problem.loss(example, margins, work);
                let beta = &self.betas[at * m..][..m];
                terms.loss += share * loss;
                terms.dual += share * self.dual_term(dual, beta);
                if dual.rest > 0 && self.could_gain(margins, beta, dual.sum, loss) {
                    terms.roused.push(at);
                }
            }
        }
        terms
    }

    /// ⟨Δ, β⟩ − γ/2 (‖β‖² + (1ᵀβ)²).
    fn dual_term(&self, dual: &Dual, beta: &[M::Value]) -> f64 {
        let sum = dual.sum;
        let linear = match self.problem.cost_row(dual.example as usize) {
            None => sum,
            Some(costs) => beta.iter().zip(costs).map(|(beta, cost)| beta.widen() * cost).sum(),
        };
        if self.problem.smoothing == 0.0 {
            return linear;
        }
        let squares: f64 = beta.iter().map(|beta| beta.widen().powi(2)).sum();
        linear - 0.5 * self.problem.smoothing * (squares + sum * sum)
    }

    /// Whether the example's share of the gap, Φ − ⟨v, β⟩ + γ/2 (‖β‖² + (1ᵀβ)²), is more than rounding.
    fn could_gain(&self, margins: &[f64], beta: &[M::Value], sum: f64, loss: f64) -> bool {
        let (mut attained, mut size, mut squares) = (0.0, loss.abs(), 0.0);
        for (margin, beta) in margins.iter().zip(beta) {
            let beta = beta.widen();
            attained += margin * beta;
            size += (margin * beta).abs();
            squares += beta * beta;
        }
        let envelope = 0.5 * self.problem.smoothing * (squares + sum * sum);
        let rounding = 16.0 * M::Value::epsilon().widen();
        loss - attained + envelope > rounding * (size + envelope)
    }
}

/// What a thread needs to evaluate terms.
struct Buffers<T> {
    block: Block<T>,
    scores: Vec<T>,
    margins: Vec<f64>,
    work: Workspace,
}

impl<M: Model> Solver for State<'_, M> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let all = self.duals.iter().all(|dual| dual.rest == 0);
        let (estimate, n_changed) = self.descend(interrupt)?;
        // Where nothing changes any more, the working precision is used up.
        let exhausted = all && n_changed == 0;
        if !exhausted && estimate > self.options.certify_below {
            return Ok(Progress::Uncertified);
        }
        let certificate = self.certify(interrupt)?;
        Ok(if exhausted { Progress::Exhausted(certificate) } else { Progress::Epoch(certificate) })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let (n, m) = (self.problem.n_examples(), self.problem.n_classes());
        let state: &Self = self;
        let buffers = || Buffers {
            block: Block::default(),
            scores: Vec::new(),
            margins: vec![0.0; m],
            work: Workspace::default(),
        };
        let terms: Vec<Terms> = (0..n.div_ceil(SCORED))
            .into_par_iter()
            .map_init(buffers, |buffers, piece| {
                if interrupt.is_raised() {
                    return Terms::default();
                }
                state.terms(piece * SCORED, n.min((piece + 1) * SCORED), buffers)
            })
            .collect();
        interrupt.check()?;
        let regularizer = 0.5 * self.problem.lambda * squared_norm(self.model.weights());
        for at in terms.iter().flat_map(|terms| &terms.roused) {
            let dual = &mut self.duals[*at];
            (dual.rest, dual.idle) = (0, 0);
        }
        let loss: f64 = terms.iter().map(|terms| terms.loss).sum();
        let dual: f64 = terms.iter().map(|terms| terms.dual).sum();
        Ok(Certificate { primal: loss + regularizer, dual: dual - regularizer })
    }
}

impl<M: Model> Descent for State<'_, M> {
    fn coefficients(&self) -> Vec<f64> {
        let (m, d) = (self.problem.n_classes(), self.model.n_features());
        let weight = |at: usize| self.model.weight(at % d, at / d);
        (0..m * d).map(weight).collect()
    }

    fn beta(&self, example: usize) -> Vec<f64> {
        let m = self.problem.n_classes();
        let at = self.duals.iter().position(|dual| dual.example as usize == example);
        let beta = &self.betas[at.expect("an example of the problem") * m..][..m];
        beta.iter().map(|beta| beta.widen()).collect()
    }
}
