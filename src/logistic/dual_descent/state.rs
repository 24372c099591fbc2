//! The dual point of a run, its weights, and passes over its blocks.

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::block_step::PADDING;
use super::exact_step::{exact_step, sigmoid};
use super::pass::{AddRows, ClassPass, DualExample, DualParts, Found};
use crate::data::{Csr, Real, in_precision};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element, softmax, transpose};
use crate::logistic::{LogisticModel, LogisticProblem};

/// Number of visited blocks between two checks of the interrupt.
const PIECE: usize = 256;
/// A block is not changed if its gap is below this fraction of the mean gap of the last pass.
const IGNORED: f64 = 0.03;

/// The dual point of a run and its weights, in any precision.
pub(super) trait DualState: Sync {
    /// Visits every block once.
    fn pass(&mut self, interrupt: &Interrupt) -> Result<Found>;
    /// Moves to the softmax of a model's scores.
    fn start_at(&mut self, model: &LogisticModel, interrupt: &Interrupt) -> Result<()>;
    /// Moves to the dual point of another state.
    fn take_shares(&mut self, from: &dyn DualState, interrupt: &Interrupt) -> Result<()>;
    /// Appends α of an example, one share per class.
    fn append_shares(&self, example: usize, shares: &mut Vec<f64>);
    /// The intercepts.
    fn intercepts(&self) -> Vec<f64>;
    /// Replaces the intercepts.
    fn set_intercepts(&mut self, intercepts: Vec<f64>);
    /// Copies W, output by output.
    fn copy_weights(&self, weights: &mut Vec<f64>);
    /// Makes the intercept the weight of a constant feature. `square` is the square of the
    /// feature's value, relative to the mean squared norm of the rows.
    fn set_constant(&mut self, square: f64);
    /// Adds `by`, multiplied by the square of the constant feature, to the intercepts.
    fn add_to_intercepts(&mut self, by: &[f64]);
    /// Σ c_i (e_y − α_i) of each output, and Σ c_i α_i (1 − α_i).
    fn residual(&self) -> (Vec<f64>, Vec<f64>);
    /// ½‖W‖², without a bound on the rounding error.
    fn penalty(&self) -> f64;
}

/// The dual point for rows stored with values of type R, in working precision T.
pub(super) struct State<'p, 'a, R, T> {
    problem: &'p LogisticProblem<'a>,
    rows: Csr<'a, R>,
    /// A copy of the stored values in precision T, if R is a different precision.
    values: Vec<T>,
    blocks: Vec<DualExample<T>>,
    /// The examples with a positive weight.
    order: Vec<u32>,
    /// Features × padded outputs.
    weights: Aligned<T>,
    /// Examples × padded outputs.
    shares: Aligned<T>,
    /// Padded with [`PADDING`].
    intercepts: Aligned<T>,
    /// The square of the constant feature; 0 without an intercept.
    constant: T,
    padded: usize,
    n_outputs: usize,
    buffer: Aligned<T>,
    left: Vec<u32>,
    ignored: f64,
    random: Pcg64Mcg,
}

impl<'p, 'a, R: Real, T: Element> State<'p, 'a, R, T> {
    /// Starts at α_i = e_y, for which W = 0, with intercepts of 0.
    pub fn new(problem: &'p LogisticProblem<'a>, rows: Csr<'a, R>, seed: u64) -> Self {
        let (n, n_outputs) = (problem.n_examples(), problem.n_outputs());
        let padded = if n_outputs == 1 { 1 } else { n_outputs.next_multiple_of(T::lanes()) };
        let mut values = Vec::new();
        if in_precision::<R, T>(rows.values()).is_none() {
            values.reserve_exact(rows.values().len());
            R::append_to(rows.values(), &mut values);
        }
        let block = |row: usize| {
            let square: f64 = rows.row(row).1.iter().map(|x| x.widen().powi(2)).sum();
            let (cost, label) = (problem.weight(row), problem.labels()[row]);
            let (square, entropy) = (T::narrow(square), T::zero());
            DualExample { cost: T::narrow(cost), square, entropy, label }
        };
        let has_weight = |row: &u32| problem.weight(*row as usize) > 0.0;
        let mut shares = Aligned::zeros(n * padded);
        if n_outputs > 1 {
            for (row, label) in problem.labels().iter().enumerate() {
                shares[row * padded + *label as usize] = T::one();
            }
        }
        let mut state = Self {
            problem,
            rows,
            values,
            blocks: (0..n).map(block).collect(),
            order: (0..n as u32).filter(has_weight).collect(),
            weights: Aligned::zeros(problem.n_features() * padded),
            shares,
            intercepts: Aligned::zeros(padded),
            constant: T::zero(),
            padded,
            n_outputs,
            buffer: Aligned::zeros(4 * padded),
            left: Vec::new(),
            ignored: 0.0,
            random: Pcg64Mcg::new(u128::from(seed)),
        };
        state.set_intercepts(vec![0.0; n_outputs]);
        state
    }

    /// Sets an example's α to the given shares, of which there is one per class.
    fn set_shares(&mut self, example: usize, shares: &[f64]) {
        let own = &mut self.shares[example * self.padded..][..self.n_outputs];
        match own {
            [other] => *other = T::narrow(shares[1 - self.blocks[example].label as usize]),
            _ => own.iter_mut().zip(shares).for_each(|(own, share)| *own = T::narrow(*share)),
        }
    }

    /// Solves the blocks on which Newton's method did not converge, in double precision.
    fn step_exactly(&mut self) {
        let (padded, m) = (self.padded, self.n_outputs);
        let values = in_precision(self.rows.values()).unwrap_or(&self.values);
        let rows = self.rows.with_values(values);
        let (mut targets, mut changes) = (vec![0.0; m], Aligned::<T>::zeros(padded));
        for example in self.left.drain(..) {
            let example = example as usize;
            let (columns, values) = rows.row(example);
            let start = targets.iter_mut().zip(self.intercepts.iter());
            start.for_each(|(target, intercept)| *target = intercept.widen());
            for (column, x) in columns.iter().zip(values) {
                let weights = &self.weights[*column as usize * padded..][..m];
                for (target, weight) in targets.iter_mut().zip(weights) {
                    *target += x.widen() * weight.widen();
                }
            }
            let block = &mut self.blocks[example];
            let present = &mut self.shares[example * padded..][..m];
            let q = block.curvature(self.constant).widen();
            for (target, share) in targets.iter_mut().zip(present.iter()) {
                *target += q * share.widen();
            }
            block.entropy = T::narrow(exact_step(&mut targets, q));
            let mut sum = T::zero();
            for ((change, share), target) in changes.iter_mut().zip(present).zip(&targets) {
                let before = *share;
                *share = T::narrow(*target);
                *change = block.cost * (before - *share);
                sum = sum + *change;
            }
            let own = &mut changes[block.label as usize];
            *own = *own - sum;
            for (intercept, change) in self.intercepts.iter_mut().zip(changes.iter()) {
                *intercept = *intercept + self.constant * *change;
            }
            let weights = &mut self.weights;
            T::dispatch(AddRows { rows, first: example, weights, changes: &changes, padded });
        }
    }

    /// Recomputes the weights and the entropies from α.
    fn recompute(&mut self, interrupt: &Interrupt) -> Result<()> {
        let (padded, m) = (self.padded, self.n_outputs);
        let values = in_precision(self.rows.values()).unwrap_or(&self.values);
        let rows = self.rows.with_values(values);
        self.weights.fill(T::zero());
        let (mut changes, mut own) = (Aligned::<T>::zeros(PIECE * padded), vec![0.0; m]);
        for first in (0..self.blocks.len()).step_by(PIECE) {
            interrupt.check()?;
            let blocks = &mut self.blocks[first..];
            let n_rows = blocks.len().min(PIECE);
            for (row, block) in blocks[..n_rows].iter_mut().enumerate() {
                let shares = &self.shares[(first + row) * padded..][..m];
                let change = &mut changes[row * padded..][..m];
                own.fill(0.0);
                block.subtract(shares, &mut own);
                change.iter_mut().zip(&own).for_each(|(to, own)| *to = T::narrow(*own));
                block.entropy = T::narrow(entropy(shares));
            }
            let (changes, weights) = (&changes[..n_rows * padded], &mut self.weights[..]);
            if m > 1 {
                T::dispatch(AddRows { rows, first, weights, changes, padded });
                continue;
            }
            for (row, change) in changes.iter().enumerate() {
                let (columns, values) = rows.row(first + row);
                for (column, x) in columns.iter().zip(values) {
                    let weight = &mut weights[*column as usize];
                    *weight = *weight + *change * *x;
                }
            }
        }
        Ok(())
    }
}

/// H(α); a single share represents a distribution over two classes.
fn entropy<T: Real>(shares: &[T]) -> f64 {
    let term = |share: f64| if share > 0.0 { -share * share.ln() } else { 0.0 };
    let rest = if let [share] = shares { term(1.0 - share.widen()) } else { 0.0 };
    rest + shares.iter().map(|share| term(share.widen())).sum::<f64>()
}

impl<R: Real, T: Element> DualState for State<'_, '_, R, T> {
    fn pass(&mut self, interrupt: &Interrupt) -> Result<Found> {
        self.order.shuffle(&mut self.random);
        let (order, mut all) = (std::mem::take(&mut self.order), Found::default());
        for order in order.chunks(PIECE) {
            if interrupt.is_raised() {
                break;
            }
            let values = in_precision(self.rows.values()).unwrap_or(&self.values);
            let rows = self.rows.with_values(values);
            let Self { blocks, weights, shares, intercepts, left, buffer, .. } = self;
            let (constant, ignored) = (self.constant, self.ignored);
            let blocks = DualParts { rows, blocks, weights, shares, intercepts, constant, ignored };
            let found = if self.padded == 1 {
                blocks.binary_pass(order)
            } else {
                T::dispatch(ClassPass { blocks, order, left, buffer })
            };
            (all.gap, all.loss) = (all.gap + found.gap, all.loss + found.loss);
            self.step_exactly();
        }
        self.ignored = IGNORED * all.gap / order.len() as f64;
        self.order = order;
        interrupt.check()?;
        Ok(all)
    }

    fn start_at(&mut self, model: &LogisticModel, interrupt: &Interrupt) -> Result<()> {
        let (padded, m, d) = (self.padded, self.n_outputs, self.problem.n_features());
        if d > 0 {
            transpose(&model.weights, d, &mut self.weights, padded);
        }
        self.set_intercepts(model.intercepts.clone());
        let mut scores = vec![0.0; m];
        for row in 0..self.problem.n_examples() {
            if row % PIECE == 0 {
                interrupt.check()?;
            }
            let (columns, values) = self.rows.row(row);
            scores.copy_from_slice(&model.intercepts);
            for (column, x) in columns.iter().zip(values) {
                let weights = &self.weights[*column as usize * padded..][..m];
                for (score, weight) in scores.iter_mut().zip(weights) {
                    *score += x.widen() * weight.widen();
                }
            }
            if let [score] = scores[..] {
                self.set_shares(row, &[sigmoid(-score).0, sigmoid(score).0]);
            } else {
                softmax(&mut scores);
                self.set_shares(row, &scores);
            }
        }
        self.recompute(interrupt)
    }

    fn take_shares(&mut self, from: &dyn DualState, interrupt: &Interrupt) -> Result<()> {
        let mut shares = Vec::new();
        for example in 0..self.blocks.len() {
            shares.clear();
            from.append_shares(example, &mut shares);
            self.set_shares(example, &shares);
        }
        self.recompute(interrupt)
    }

    fn append_shares(&self, example: usize, shares: &mut Vec<f64>) {
        let own = &self.shares[example * self.padded..][..self.n_outputs];
        match own {
            [other] => {
                let other = other.widen();
                let label = self.blocks[example].label;
                shares.extend(if label == 1 { [other, 1.0 - other] } else { [1.0 - other, other] });
            }
            _ => shares.extend(own.iter().map(|share| share.widen())),
        }
    }

    fn intercepts(&self) -> Vec<f64> {
        self.intercepts[..self.n_outputs].iter().map(|intercept| intercept.widen()).collect()
    }

    fn set_intercepts(&mut self, intercepts: Vec<f64>) {
        self.intercepts.fill(T::narrow(PADDING));
        for (own, intercept) in self.intercepts.iter_mut().zip(intercepts) {
            *own = T::narrow(intercept);
        }
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) {
        let d = self.problem.n_features();
        weights.clear();
        weights.resize(self.n_outputs * d, 0.0);
        if d > 0 {
            transpose(&self.weights, self.padded, weights, d);
        }
    }

    fn set_constant(&mut self, square: f64) {
        let sum: f64 = self.blocks.iter().map(|block| block.square.widen()).sum();
        let mean = sum / self.blocks.len() as f64;
        // If all rows are zero, any scale works.
        self.constant = T::narrow(square * if mean > 0.0 { mean } else { 1.0 });
    }

    fn add_to_intercepts(&mut self, by: &[f64]) {
        let square = self.constant.widen();
        let now =
            self.intercepts.iter().zip(by).map(|(now, by)| now.widen() + square * by).collect();
        self.set_intercepts(now);
    }

    fn residual(&self) -> (Vec<f64>, Vec<f64>) {
        let (mut residual, mut variance) = (vec![0.0; self.n_outputs], vec![0.0; self.n_outputs]);
        for (block, shares) in self.blocks.iter().zip(self.shares.chunks_exact(self.padded)) {
            let shares = &shares[..self.n_outputs];
            block.subtract(shares, &mut residual);
            let cost = block.cost.widen();
            for (variance, share) in variance.iter_mut().zip(shares) {
                *variance += cost * share.widen() * (1.0 - share.widen());
            }
        }
        (residual, variance)
    }

    fn penalty(&self) -> f64 {
        let mut sums = [T::zero(); 16];
        let (whole, rest) = self.weights.as_chunks::<16>();
        for values in whole {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = *sum + *value * *value);
        }
        let sum = sums.iter().map(|sum| sum.widen()).sum::<f64>();
        0.5 * (sum + rest.iter().map(|value| value.widen().powi(2)).sum::<f64>())
    }
}
