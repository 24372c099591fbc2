//! One exact step: maximises the dual over β_i, for all classes or only for the candidates.

use super::candidates::Candidates;
use super::schedule::Tuning;
use crate::data::Real;
use crate::linalg::{Aligned, Element};
use crate::multiclass::MarginProblem;
use crate::polytope::{Capped, Scratch};

/// Number of margins compared at a time.
const LANES: usize = 8;

/// Counter of the passes that skip an example because its visits gained little.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wait {
    /// Length of the last wait, in passes.
    length: u8,
    /// Number of remaining passes of the wait.
    left: u8,
}

impl Wait {
    /// Whether the next pass skips the example; counts that pass.
    #[inline(always)]
    pub fn skips(&mut self) -> bool {
        let skips = self.left > 0;
        self.left -= u8::from(skips);
        skips
    }

    /// Doubles the wait after a visit that gained little, and ends it after one that gained more.
    #[inline(always)]
    pub fn follow(&mut self, gained_little: bool) {
        self.length =
            if gained_little { (2 * self.length).clamp(1, Tuning::LONGEST_WAIT) } else { 0 };
        self.left = self.length;
    }

    /// Makes the first pass of an epoch visit the example.
    pub fn begin_epoch(&mut self) {
        self.left = 0;
    }
}

/// The state of one example's dual block, except β_i itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DualBlock {
    /// The index i of the example.
    pub example: u32,
    /// The weight C_i = p_i/λ of the example.
    pub weight: f64,
    /// The curvature C_i A_i of the block, where A_i = ‖x_i‖².
    pub curvature: f64,
    /// The sum 1ᵀβ_i.
    pub sum: f64,
    /// The multiplier of the block's last projection. The next projection starts its search at this value.
    pub multiplier: f64,
    /// Whether the block is optimal for any weights.
    pub settled: bool,
    /// Counts the passes that skip the example.
    pub wait: Wait,
}

/// The feasible set of a block, in the form that a step needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSet {
    /// A sum of β that is at least this value counts as the largest possible one.
    tight: f64,
    /// The slope below which a class with β_j = 0 cannot gain if the sum may still rise: 0 for a box, otherwise −∞.
    lowest: f64,
    /// The simplex, if the set is one, as for the max hinge. Its projections are so short that they
    /// are inlined.
    simplex: Option<Capped>,
    /// Whether the loss is the largest margin.
    pub is_max: bool,
    /// The smoothing parameter γ.
    smoothing: f64,
    /// The relative precision of scores. It is 0 in double precision, because projections are then no more precise than
    /// scores.
    epsilon: f64,
}

impl BlockSet {
    /// The feasible set of a problem's blocks if β and scores have the precision T.
    pub fn new<T: Element>(problem: &MarginProblem<'_>) -> Self {
        let epsilon = T::epsilon().widen();
        let (whole, smoothing) = (problem.polytope().whole_box(), problem.shares().smoothing());
        let simplex = whole.filter(|set| set.cap <= set.upper);
        Self {
            tight: problem.tight_sum(epsilon),
            lowest: if whole.is_some() { 0.0 } else { f64::NEG_INFINITY },
            simplex: simplex.map(|set| Capped {
                upper: set.cap,
                floor: 0.0,
                cap: set.cap,
                bias: 1.0,
            }),
            is_max: simplex.is_some_and(|set| set.cap == 1.0) && smoothing == 0.0,
            smoothing,
            epsilon: if epsilon > f64::EPSILON { epsilon } else { 0.0 },
        }
    }

    /// The apparent gain that rounding errors of two scores can cause: with an error of δ in a slope, a visit seems to
    /// gain C δ²/2h.
    #[inline(always)]
    pub fn rounding<T: Real>(&self, block: &DualBlock, a: T, b: T) -> f64 {
        let error = self.epsilon * (a.widen().abs() + b.widen().abs());
        0.5 * block.weight * error * error / self.steepness(block)
    }

    /// Whether the whole set is a box with an upper bound on the sum.
    pub fn is_box(&self) -> bool {
        self.lowest == 0.0
    }

    /// Whether a sum of β is the largest possible.
    pub fn is_tight(&self, sum: f64) -> bool {
        sum >= self.tight
    }

    /// The curvature h = C_i A_i + γ of the block, including smoothing.
    pub fn steepness(&self, block: &DualBlock) -> f64 {
        block.curvature + self.smoothing
    }

    /// The candidate rule. Converts the margins of an example to slopes v_j − γ(β_j + 1ᵀβ), and returns a threshold:
    /// the candidates are the classes with β_j ≠ 0 or a slope above it. `beta` is 0 at first and receives β.
    #[inline(always)]
    pub fn turn_into_slopes<T: Real>(
        &self,
        block: &DualBlock,
        label: usize,
        (classes, values): (&[u32], &[T]),
        margins: &mut [f64],
        beta: &mut [T],
    ) -> f64 {
        for (class, value) in classes.iter().zip(values) {
            beta[*class as usize] = *value;
        }
        if self.smoothing > 0.0 {
            for (margin, beta) in margins.iter_mut().zip(&*beta) {
                *margin -= self.smoothing * (beta.widen() + block.sum);
            }
            margins[label] = 0.0;
        }
        let positive = classes.iter().zip(values).filter(|(_, value)| **value > T::zero());
        let positive = positive.map(|(class, _)| margins[*class as usize]);
        // The label's slope is 0.
        self.threshold(block.sum, positive).max(0.0)
    }

    /// The slope below which a class with β_j = 0 cannot gain, given the slopes of the classes with β_j > 0.
    ///
    /// If the sum is fixed, classes compete only with each other; in a box, they also compete with 0. In other sets,
    /// raising one class may make room for another, so the threshold is −∞ while the sum can grow. A class becomes a
    /// candidate if its slope is above this threshold and above 0, the label's slope.
    #[inline(always)]
    fn threshold(&self, sum: f64, positive: impl Iterator<Item = f64>) -> f64 {
        let lowest = if sum >= self.tight { f64::INFINITY } else { self.lowest };
        positive.fold(lowest, |low, slope| if slope < low { slope } else { low })
    }
}

/// Buffers of a step, with one number for each of its classes.
///
/// The vectors always have room for all classes, and a visit uses the first few elements. Resizing them at each visit
/// would be slower: the processor stalls when it reads a length that was just written by an access of another size.
#[derive(Debug)]
pub(super) struct BlockStep<T> {
    /// The candidates, the label last.
    pub classes: Vec<u32>,
    /// The scores of these classes.
    pub scores: Vec<T>,
    /// The slopes v_j − γ(β_j + 1ᵀβ) of these classes.
    pub slopes: Vec<f64>,
    /// The multiple of the row that the step adds to the weights of each of these classes.
    pub change: Vec<T>,
    target: Vec<f64>,
    projection: Vec<f64>,
    scratch: Scratch,
}

impl<T: Element> BlockStep<T> {
    /// Allocates room for all classes.
    pub fn new(n_classes: usize) -> Self {
        let n = n_classes + 1;
        Self {
            classes: vec![0; n],
            scores: vec![T::zero(); n],
            slopes: vec![0.0; n],
            change: vec![T::zero(); n],
            target: vec![0.0; n],
            projection: vec![0.0; n],
            scratch: Scratch::default(),
        }
    }

    /// Converts the scores of an example's candidates to slopes and drops the candidates that cannot gain. Returns the
    /// number of remaining candidates, or None if none of them can move.
    #[inline(always)]
    pub fn shrink(
        &mut self,
        problem: &MarginProblem<'_>,
        set: &BlockSet,
        block: &DualBlock,
        betas: &mut Candidates<T>,
        at: usize,
    ) -> Option<usize> {
        let (classes, values) = betas.row_mut(at);
        let n = classes.len();
        let base = -self.scores[n].widen() - set.smoothing * block.sum;
        let costs = problem.cost_row(block.example as usize);
        let slopes = &mut self.slopes[..n];
        let numbers = classes.iter().zip(&*values).zip(&self.scores);
        for (slope, ((class, value), score)) in slopes.iter_mut().zip(numbers) {
            let cost = costs.map_or(1.0, |costs| costs[*class as usize]);
            *slope = cost + (score.widen() + base) - set.smoothing * value.widen();
        }
        let known = slopes.iter().zip(&*values).filter(|(_, value)| **value > T::zero());
        let low = set.threshold(block.sum, known.map(|(slope, _)| *slope));
        let is_idle = |value: T, slope: f64| value == T::zero() && slope < low;
        let mut idle = slopes.iter().zip(&*values).map(|(slope, value)| is_idle(*value, *slope));
        let mut count = idle.position(|idle| idle).unwrap_or(n);
        // The remaining classes stay in ascending order, so that neighbours share vectors of weights.
        for place in count + 1..n {
            if !is_idle(values[place], slopes[place]) {
                (classes[count], values[count]) = (classes[place], values[place]);
                slopes[count] = slopes[place];
                count += 1;
            }
        }
        // Whether the only candidate left already has the whole sum, which is fixed.
        let is_full =
            count == 1 && set.is_tight(block.sum) && values[0] > T::zero() && slopes[0] >= 0.0;
        if count < n {
            self.classes[..count].copy_from_slice(&classes[..count]);
            self.classes[count] = problem.label(block.example as usize) as u32;
            betas.truncate(at, count);
        }
        (count > 0 && !is_full).then_some(count)
    }

    /// Replaces β by the projection of u = (v + C_i A_i (β + 1ᵀβ)) / h, where the label's coordinate is at `label`
    /// (after the candidates, or among all classes), and writes `change`. Returns the increase of the dual (in units of
    /// λ), or None if β does not change.
    #[inline(always)]
    pub fn solve(
        &mut self,
        problem: &MarginProblem<'_>,
        set: &BlockSet,
        block: &mut DualBlock,
        label: usize,
        values: &mut [T],
    ) -> Option<f64> {
        let n = values.len();
        let (steepness, scratch) = (set.steepness(block), &mut self.scratch);
        let scale = steepness.recip();
        // The slopes already include −γ(β + 1ᵀβ), so β + 1ᵀβ is multiplied by h instead of C_i A_i.
        for (target, (slope, beta)) in self.target.iter_mut().zip(self.slopes.iter().zip(&*values))
        {
            *target = slope * scale + (beta.widen() + block.sum);
        }
        self.target[label] = 0.0;
        match &set.simplex {
            // The label's coordinate is 0, and the projection would leave it at 0.
            Some(simplex) => {
                let (target, projection) = (&self.target[..n], &mut self.projection[..n]);
                block.multiplier = simplex.project_few(target, block.multiplier, projection);
            }
            None => {
                scratch.guess = Some(block.multiplier);
                let n = n.max(label + 1);
                let (target, projection) = (&self.target[..n], &mut self.projection[..n]);
                problem.polytope().project(target, label, 1.0, scratch, projection);
                block.multiplier = scratch.multiplier;
            }
        }
        let (mut moved, mut total, mut sum) = (0.0, 0.0, 0.0);
        let (mut along, mut squares) = (0.0, 0.0);
        let numbers = self.projection.iter().zip(&self.slopes).zip(&mut self.change);
        for (value, ((new, slope), step)) in values.iter_mut().zip(numbers) {
            let new = T::narrow(*new);
            let change = new.widen() - value.widen();
            *value = new;
            moved += change.abs();
            total += change;
            sum += new.widen();
            along += change * slope;
            squares += change * change;
            *step = T::narrow(-block.weight * change);
        }
        if moved == 0.0 {
            return None;
        }
        block.sum = sum;
        self.change[label] = T::narrow(block.weight * total);
        Some(block.weight * (along - 0.5 * steepness * (squares + total * total)))
    }
}

/// Buffers of a full epoch.
pub(super) struct FullBuffers<T> {
    /// Number of rows that are scored together.
    pub block_size: usize,
    /// Current scores of the row that is being visited.
    pub current: Aligned<T>,
    /// The slopes of all classes.
    pub slopes: Vec<f64>,
    /// β of a row over all classes.
    pub beta: Vec<T>,
    /// β of a row over its candidates.
    pub values: Vec<T>,
}

impl<T: Element> FullBuffers<T> {
    /// Allocates the buffers.
    pub fn new(block_size: usize, padded: usize, n_classes: usize) -> Self {
        Self {
            block_size,
            current: Aligned::zeros(padded),
            slopes: vec![0.0; n_classes],
            beta: vec![T::zero(); n_classes],
            values: vec![T::zero(); n_classes],
        }
    }
}

/// Computes the margins v_j = Δ_j + s_j − s_y of a row, 0 at the label. Returns the largest margin. Without `costs`, Δ
/// is 1 off the label.
#[inline(always)]
pub(super) fn compute_margins<T: Real>(
    scores: &[T],
    costs: Option<&[f64]>,
    label: usize,
    margins: &mut [f64],
) -> f64 {
    let own = scores[label].widen();
    match costs {
        None => {
            let shift = 1.0 - own;
            for (margin, score) in margins.iter_mut().zip(scores) {
                *margin = score.widen() + shift;
            }
        }
        Some(costs) => {
            for (margin, (score, cost)) in margins.iter_mut().zip(scores.iter().zip(costs)) {
                *margin = score.widen() + (cost - own);
            }
        }
    }
    margins[label] = 0.0;
    // The label's margin is 0, so the largest margin is at least 0.
    let (mut largest, mut lanes) = (0.0, [0.0; LANES]);
    let (whole, rest) = margins.as_chunks::<LANES>();
    for margins in whole {
        for (lane, &margin) in lanes.iter_mut().zip(margins) {
            *lane = if margin > *lane { margin } else { *lane };
        }
    }
    for &margin in lanes.iter().chain(rest) {
        largest = if margin > largest { margin } else { largest };
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end() {
        let mut wait = Wait::default();
        let skipped = |wait: &mut Wait| (0..100).take_while(|_| wait.skips()).count();
        assert_eq!(skipped(&mut wait), 0);
        let waits = [1, 2, 4, 8, 16, 16].map(|_| {
            wait.follow(true);
            skipped(&mut wait)
        });
        assert_eq!(waits, [1, 2, 4, 8, 16, 16]);
        wait.follow(true);
        wait.begin_epoch();
        assert_eq!(skipped(&mut wait), 0);
        wait.follow(false);
        assert_eq!(skipped(&mut wait), 0);
    }
}
