//! Sums over the examples, from which a certificate is computed, and the resulting bounds.

use super::{LogisticModel, LogisticTotals};
use crate::dual::rounding::{Bounded, Sum, TINY, bounded_squared_norm, gamma};
use crate::linalg::{exp_minus, minus_ln};
use crate::run::Certificate;

/// A bound on the relative error of the exponential of a rounded difference of at most 700, and of its quotient by a
/// sum of such exponentials that includes 1.
pub(super) const EXPONENTIAL: f64 = 8e-14;
/// The largest argument for which [`exp_minus`] is accurate.
const FARTHEST: f64 = 700.0;

/// Upper limit on the number of roundings by which rescaled c_i, and sums of them, differ from the old values times the
/// factor.
pub(super) const RESCALED: usize = 8;

/// Sums over some examples.
#[derive(Default, Clone)]
pub(super) struct Terms {
    /// Σ c_i log-loss of example i.
    pub loss: Sum,
    /// Σ c_i H(α_i), a lower bound.
    pub entropy: f64,
    /// Σ c_i (1 − α_iy).
    pub distance: f64,
    /// Σ c_i (e_y − α_i) of each output.
    pub residual: Vec<f64>,
    /// Σ c_i (e_y − α_i) x_iᵀ, stored output by output.
    pub image: Vec<f64>,
    /// The maximum number of successive additions in the computation of an entry of the image.
    pub depth: usize,
}

/// The probabilities of an example, and their contributions to the sums.
#[derive(Default)]
pub(super) struct Distribution {
    /// α, one for each class.
    pub shares: Vec<f64>,
    /// The distance d of each score below the largest score; log α = −d − `log_sum`.
    distances: Vec<f64>,
    log_sum: f64,
}

impl Distribution {
    /// Sets α to the softmax of scores, and returns the loss of a label. For two classes, the score of the first class
    /// is 0. `error` bounds the error of each score.
    #[inline(always)]
    pub fn softmax(&mut self, scores: &[f64], label: usize, error: f64) -> Bounded {
        self.distances.clear();
        self.distances.extend((scores.len() == 1).then_some(0.0));
        self.distances.extend_from_slice(scores);
        let (mut top, mut highest) = (0, f64::NEG_INFINITY);
        for (class, score) in self.distances.iter().enumerate() {
            if *score > highest {
                (top, highest) = (class, *score);
            }
        }
        self.distances.iter_mut().for_each(|score| *score = highest - *score);
        self.shares.clear();
        self.shares.extend(self.distances.iter().map(|distance| exp_minus(*distance)));
        let own = self.distances[label];
        self.normalise(top);
        loss(self.log_sum, own, (self.shares.len(), error))
    }

    /// Sets α proportional to the numbers that `append` appends; they must be non-negative and not all 0.
    #[inline(always)]
    pub fn given(&mut self, append: impl FnOnce(&mut Vec<f64>)) {
        self.shares.clear();
        append(&mut self.shares);
        let (mut top, mut highest) = (0, 0.0);
        for (class, share) in self.shares.iter().enumerate() {
            if *share > highest {
                (top, highest) = (class, *share);
            }
        }
        self.distances.clear();
        self.distances.extend(self.shares.iter().map(|share| minus_ln(share / highest)));
        self.shares.iter_mut().for_each(|share| *share /= highest);
        self.normalise(top);
    }

    /// Divides the shares by their sum. Requires that the largest share is 1.
    #[inline(always)]
    fn normalise(&mut self, top: usize) {
        self.shares[top] = 0.0;
        let rest: f64 = self.shares.iter().sum();
        self.shares[top] = 1.0;
        let inverse = 1.0 / (1.0 + rest);
        self.shares.iter_mut().for_each(|share| *share *= inverse);
        self.log_sum = rest.ln_1p();
    }

    /// Multiplies α_k by 1 + δ_k − ⟨α, δ⟩, which keeps the sum at 1; returns a lower bound on the new entropy.
    ///
    /// The bound uses log(1 + t) ≤ t − t²/2 + t³/3 for all t > −1.
    #[inline(always)]
    pub fn tilt(&mut self, tilt: &[f64]) -> f64 {
        let mean: f64 = self.shares.iter().zip(tilt).map(|(share, tilt)| share * tilt).sum();
        let (mut entropy, mut size) = (self.log_sum, 0.0);
        for ((share, distance), tilt) in self.shares.iter_mut().zip(&self.distances).zip(tilt) {
            let t = tilt - mean;
            *share *= 1.0 + t;
            let gained = t * (1.0 - t * (0.5 - t / 3.0));
            entropy += *share * (distance.min(FARTHEST) - gained);
            size += *share * t.abs();
        }
        entropy - (entropy + size) * (EXPONENTIAL + gamma(self.shares.len() + 4))
    }

    /// A lower bound on the entropy.
    #[inline(always)]
    pub fn entropy(&self) -> f64 {
        let pairs = self.shares.iter().zip(&self.distances);
        let entropy: f64 = self.log_sum
            + pairs.map(|(share, distance)| share * distance.min(FARTHEST)).sum::<f64>();
        entropy * (1.0 - EXPONENTIAL - gamma(self.shares.len() + 4))
    }

    /// Replaces α by e_y − α and returns 1 − α_y.
    #[inline(always)]
    pub fn residual(&mut self, label: usize) -> f64 {
        self.shares[label] = 0.0;
        let others = self.shares.iter().sum();
        self.shares.iter_mut().for_each(|share| *share = -*share);
        self.shares[label] = others;
        others
    }
}

/// Returns a loss: `log_sum`, the log of the sum of exponentials relative to the largest score, plus `own`, the
/// distance of the label's score below the largest.
///
/// The absolute derivatives with respect to the scores sum to 2 (1 − p_y) ≤ 2 loss.
fn loss(log_sum: f64, own: f64, (n_classes, error): (usize, f64)) -> Bounded {
    let value = log_sum + own;
    let moved = 2.0 * error * if error < 0.1 { (2.0 * value).min(1.0) } else { 1.0 };
    let rounded = (EXPONENTIAL + gamma(n_classes + 4)) * value;
    // The last term covers underflow in the exponentials.
    Bounded::new(value, moved + rounded + n_classes as f64 * 1e-300)
}

impl Terms {
    /// Creates sums over no examples.
    pub fn zeros(n_outputs: usize) -> Self {
        Self { residual: vec![0.0; n_outputs], ..Self::default() }
    }

    /// Adds the sums over other examples, except the image.
    pub fn join(&mut self, other: &Self) {
        self.loss.join(&other.loss);
        self.entropy += other.entropy;
        self.distance += other.distance;
        self.residual.iter_mut().zip(&other.residual).for_each(|(a, b)| *a += b);
        self.depth = self.depth.max(other.depth) + 1;
    }

    /// Multiplies all c_i by a factor.
    pub fn rescale(&mut self, factor: f64) {
        let rounded = gamma(RESCALED);
        let loss = self.loss.total().upper() * factor;
        self.loss = Sum::from_iter([Bounded::new(loss, rounded * loss)]);
        self.entropy = factor * (self.entropy - rounded * self.entropy.abs());
        self.distance *= factor * (1.0 + rounded);
        self.residual.iter_mut().chain(&mut self.image).for_each(|sum| *sum *= factor);
        self.depth += RESCALED;
    }

    /// A bound on the rounding error of Σ c_i (e_y − α_i).
    fn lost(&self) -> f64 {
        2.0 * gamma(self.depth + self.residual.len() + 12) * self.distance
    }

    /// An upper bound on the smallest τ for which some distribution q makes the mixtures (1 − τ) α_i + τ q satisfy the
    /// constraint of the intercept: Σ c_i ((1 − τ) α_i + τ q) = Σ c_i e_y. Such a q exists if (1 − τ) Σ c_i α_i ≤ Σ c_i
    /// e_y in every class. Returns 0 without an intercept, and at least 1 if a class has no weight.
    fn mixed_share(&self, totals: &LogisticTotals) -> f64 {
        if !totals.intercept {
            return 0.0;
        }
        let mut share = 0.0_f64;
        let mut add = |class: usize, residual: f64| {
            let own = totals.class_totals[class];
            let excess = self.lost() - residual;
            let sum = own * (1.0 - gamma(totals.n_examples + 2)) + excess;
            // A class whose sum is small enough even with its rounding error does not need the mixture.
            share = if excess <= 0.0 { share } else { share.max(excess / sum) };
            if own <= 0.0 {
                share = 1.0;
            }
        };
        match self.residual[..] {
            [second] => [(0, -second), (1, second)].into_iter().for_each(|(k, r)| add(k, r)),
            _ => self.residual.iter().enumerate().for_each(|(k, r)| add(k, *r)),
        }
        share * (1.0 + gamma(8))
    }

    /// Objective of a model and dual value, divided by Σ c_i and rounded outwards.
    pub fn certificate(&self, totals: &LogisticTotals, model: &LogisticModel) -> Certificate {
        let (primal, dual) = (self.objective(model), self.dual_value(totals));
        let total = totals.total;
        let wrong = gamma(16);
        let primal = (primal / total * (1.0 + wrong) + TINY).next_up();
        let dual = (dual / total * (1.0 - wrong) - TINY).next_down();
        Certificate { primal, dual: dual.max(0.0).min(primal) }
    }

    /// ½‖W‖² + Σ c_i loss_i, rounded up.
    pub fn objective(&self, model: &LogisticModel) -> f64 {
        let norm = Bounded::exact(0.5) * bounded_squared_norm(&model.weights);
        (norm + self.loss.total()).upper()
    }

    /// The dual value of the distributions, rounded down; −∞ if [`Self::mixed_share`] is NaN or at least 1.
    pub fn dual_value(&self, totals: &LogisticTotals) -> f64 {
        let n_features = totals.n_features().max(1);
        let share = self.mixed_share(totals);
        if share.is_nan() || share >= 1.0 {
            return f64::NEG_INFINITY;
        }
        // The error of each column of the image is at most the column's largest value times this bound.
        let wrong = self.lost() + 3.0 * share * totals.total;
        let mut squares = vec![0.0; totals.n_features()];
        for row in self.image.chunks_exact(n_features) {
            squares.iter_mut().zip(row).for_each(|(square, value)| *square += value * value);
        }
        let underflown = (totals.n_examples + 2) as f64 * TINY;
        let (mut crossed, mut own) = (0.0, 0.0);
        for (square, size) in squares.iter().zip(&totals.column_sizes) {
            let error = wrong * size + totals.n_outputs() as f64 * underflown;
            crossed += square.sqrt() * error;
            own += error * error;
        }
        let norm = bounded_squared_norm(&self.image).upper();
        let grown = 1.0 + gamma(self.image.len() + 8);
        let image = Bounded::exact(0.5 * norm).upper() + (crossed + 0.5 * own) * grown;
        let entropy = self.entropy * (1.0 - share) * (1.0 - gamma(self.depth + 8));
        (entropy - image * (1.0 + gamma(2))).next_down()
    }
}
