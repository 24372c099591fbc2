//! Computes probabilities, losses and residuals of a block of rows from its scores. Each lane of a vector belongs to a
//! different row.

use pulp::Simd;

use crate::data::Real;
use crate::linalg::{Element, Kernel, Lane};

/// Maximum number of additions to a lane, possibly in single precision, before the lane is added to a sum in double
/// precision.
const CHAIN: usize = 64;

/// A precision in which probabilities are computed.
pub(super) trait Precision: Real {
    /// log(1 + x) for x ≥ 0, with a small relative error.
    fn log_1p(x: Self) -> Self;
}

impl Precision for f64 {
    #[inline(always)]
    fn log_1p(x: Self) -> Self {
        // 1 + x = 2^e (1 + y), and log(1 + y) = 2 artanh(z), z = y / (2 + y), |z| < 0.172.
        let bits = (1.0 + x).to_bits() as i64;
        let exponent = (bits - 0x3fe6_a09e_667f_3bcd) >> 52;
        let scale = Self::from_bits(((1023 - exponent) << 52) as u64);
        let y = x * scale + (scale - 1.0);
        let z = y / (2.0 + y);
        let square = z * z;
        let mut sum = 1.0 / 21.0;
        for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
            sum = sum * square + 1.0 / odd;
        }
        exponent as Self * std::f64::consts::LN_2 + 2.0 * z * sum
    }
}

impl Precision for f32 {
    #[inline(always)]
    fn log_1p(x: Self) -> Self {
        let bits = (1.0 + x).to_bits() as i32;
        let exponent = (bits - 0x3f35_04f3) >> 23;
        let scale = Self::from_bits(((127 - exponent) << 23) as u32);
        let y = x * scale + (scale - 1.0);
        let z = y / (2.0 + y);
        let square = z * z;
        let mut sum = 1.0 / 9.0;
        for odd in [7.0, 5.0, 3.0, 1.0] {
            sum = sum * square + 1.0 / odd;
        }
        exponent as Self * std::f32::consts::LN_2 + 2.0 * z * sum
    }
}

/// Sums over the rows of a block. The c_i are in units of the largest c_i.
#[derive(Default, Clone, Copy)]
pub(super) struct BlockSums {
    /// Σ c_i loss_i.
    pub loss: f64,
    /// Σ c_i min(1, 2 loss_i). Twice this bounds the sum of the absolute derivatives of the losses with respect to the
    /// scores.
    pub slope: f64,
    /// Σ c_i H(p_i).
    pub entropy: f64,
    /// Σ c_i (1 − p_iy).
    pub distance: f64,
}

impl BlockSums {
    /// Adds the sums of another block.
    pub fn join(&mut self, other: &Self) {
        self.loss += other.loss;
        self.slope += other.slope;
        self.entropy += other.entropy;
        self.distance += other.distance;
    }

    /// Multiplies the sums by a factor.
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            loss: factor * self.loss,
            slope: factor * self.slope,
            entropy: factor * self.entropy,
            distance: factor * self.distance,
        }
    }
}

/// Labels and weights of the rows of a block; both are 0 for padding rows.
#[derive(Clone, Copy)]
pub(super) struct BlockTargets<'a, T> {
    pub labels: &'a [u32],
    pub weights: &'a [T],
}

/// Replaces the scores by c_i (p_i − e_y), and writes the values needed for the curvature: p of each class or, for two
/// classes, p (1 − p). The loss is not finite if a score is not finite.
pub(super) fn softmax<T: Precision + Element>(
    scores: &mut [T],
    targets: BlockTargets<'_, T>,
    shares: &mut [f32],
) -> BlockSums {
    T::dispatch(Softmax { scores, targets, shares })
}

struct Softmax<'a, T> {
    scores: &'a mut [T],
    targets: BlockTargets<'a, T>,
    shares: &'a mut [f32],
}

impl<T: Precision> Kernel<T> for Softmax<'_, T> {
    type Output = BlockSums;

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) -> BlockSums
    where
        T: Lane<S>,
    {
        let n_rows = self.targets.labels.len();
        let mut total = BlockSums::default();
        for stretch in (0..n_rows).step_by(CHAIN * T::LANES) {
            let mut sums = LaneSums([T::splat(simd, T::zero()); 4]);
            let end = n_rows.min(stretch + CHAIN * T::LANES);
            for row in (stretch..end).step_by(T::LANES) {
                let rows = row..row + T::LANES;
                let own = BlockTargets {
                    labels: &self.targets.labels[rows.clone()],
                    weights: &self.targets.weights[rows.clone()],
                };
                if self.scores.len() == n_rows {
                    let (scores, shares) = (&mut self.scores[rows.clone()], &mut self.shares[rows]);
                    two(simd, scores, own, shares, &mut sums);
                } else {
                    many(simd, &mut *self.scores, (n_rows, row), own, &mut *self.shares, &mut sums);
                }
            }
            total.join(&sums.total());
        }
        total
    }
}

/// Σ c_i loss_i, Σ c_i min(1, 2 loss_i), Σ c_i H(p_i) and Σ c_i (1 − p_iy), one sum for each lane.
struct LaneSums<S: Simd, T: Lane<S>>([T::Vector; 4]);

impl<S: Simd, T: Lane<S>> LaneSums<S, T> {
    #[inline(always)]
    fn add(&mut self, simd: S, weight: T::Vector, [loss, entropy, distance]: [T::Vector; 3]) {
        let slope = T::smaller(simd, T::splat(simd, T::one()), T::plus(simd, loss, loss));
        for (sum, value) in self.0.iter_mut().zip([loss, slope, entropy, distance]) {
            *sum = T::fused(simd, weight, value, *sum);
        }
    }

    #[inline(always)]
    fn total(mut self) -> BlockSums {
        let mut total = |at: usize| {
            T::values_mut(&mut self.0[at..=at]).iter().map(|value| value.widen()).sum::<f64>()
        };
        BlockSums { loss: total(0), slope: total(1), entropy: total(2), distance: total(3) }
    }
}

/// The vector at the start of a line, which holds at least one vector.
#[inline(always)]
fn first<S: Simd, T: Lane<S>>(_: S, line: &[T]) -> T::Vector {
    T::vectors(line).0[0]
}

/// Writes a vector to the start of a line.
#[inline(always)]
fn store<S: Simd, T: Lane<S>>(_: S, line: &mut [T], vector: T::Vector) {
    T::vectors_mut(line).0[0] = vector;
}

/// Writes a vector to a line in single precision.
#[inline(always)]
fn store_single<S: Simd, T: Lane<S>>(line: &mut [f32], vector: T::Vector) {
    let mut vector = [vector];
    for (to, value) in line.iter_mut().zip(T::values_mut(&mut vector)) {
        *to = value.widen() as f32;
    }
}

#[inline(always)]
fn log_1p<S: Simd, T: Lane<S> + Precision>(x: T::Vector) -> T::Vector {
    let mut x = [x];
    for value in T::values_mut(&mut x) {
        *value = T::log_1p(*value);
    }
    x[0]
}

/// [`softmax`] for two classes.
#[inline(always)]
fn two<S: Simd, T: Lane<S> + Precision>(
    simd: S,
    scores: &mut [T],
    targets: BlockTargets<'_, T>,
    shares: &mut [f32],
    sums: &mut LaneSums<S, T>,
) {
    let (zero, one) = (T::splat(simd, T::zero()), T::splat(simd, T::one()));
    let mut sign = [zero];
    for (sign, label) in T::values_mut(&mut sign).iter_mut().zip(targets.labels) {
        *sign = if *label == 1 { T::one() } else { -T::one() };
    }
    let margin = T::times(simd, first(simd, scores), sign[0]);
    let below = T::minus(simd, zero, margin);
    // As in `many`, the distance is clamped, so that the entropy is that of the probabilities that are written.
    let far = T::smaller(simd, T::larger(simd, margin, below), T::splat(simd, T::farthest()));
    let rest = T::exponential(simd, T::minus(simd, zero, far));
    let inverse = T::over(simd, one, T::plus(simd, one, rest));
    let smaller = T::times(simd, rest, inverse);
    // 1 − p_y: the smaller probability if the margin is not negative.
    let above = T::larger(simd, margin, zero);
    let distance = T::if_equal(simd, [above, margin], smaller, inverse);
    let log_sum = log_1p::<S, T>(rest);
    // 0 · margin is NaN if the score is not finite.
    let lost = T::fused(simd, zero, margin, T::larger(simd, below, zero));
    let entropy = T::fused(simd, smaller, far, log_sum);
    let weight = first(simd, targets.weights);
    sums.add(simd, weight, [T::plus(simd, log_sum, lost), entropy, distance]);
    store_single::<S, T>(shares, T::times(simd, smaller, inverse));
    let residual = T::times(simd, T::times(simd, weight, distance), sign[0]);
    store(simd, scores, T::minus(simd, zero, residual));
}

/// [`softmax`] for more than two classes.
#[inline(always)]
fn many<S: Simd, T: Lane<S> + Precision>(
    simd: S,
    scores: &mut [T],
    (n_rows, row): (usize, usize),
    targets: BlockTargets<'_, T>,
    shares: &mut [f32],
    sums: &mut LaneSums<S, T>,
) {
    let (zero, one) = (T::splat(simd, T::zero()), T::splat(simd, T::one()));
    let (weight, end) = (first(simd, targets.weights), row + T::LANES);
    let mut own = [zero];
    for (lane, own) in T::values_mut(&mut own).iter_mut().enumerate() {
        *own = scores[targets.labels[lane] as usize * n_rows + row + lane];
    }
    let mut most = T::splat(simd, T::neg_infinity());
    for line in scores.chunks_exact(n_rows) {
        most = T::larger(simd, first(simd, &line[row..end]), most);
    }
    let farthest = T::splat(simd, T::farthest());
    // The largest exponential is 1; it is left out of the sum so that a small sum of the others keeps its digits.
    let (mut rest, mut ties, mut entropy, mut check) = (zero, zero, zero, zero);
    for line in scores.chunks_exact_mut(n_rows) {
        let far = T::minus(simd, most, first(simd, &line[row..end]));
        // 0 · far is NaN if a score is not finite.
        check = T::fused(simd, zero, far, check);
        // `exponential` clamps its argument at `farthest`. The distance is clamped, too, so that the entropy is that of
        // the probabilities that are written.
        let far = T::smaller(simd, far, farthest);
        let share = T::exponential(simd, T::minus(simd, zero, far));
        rest = T::plus(simd, rest, T::if_equal(simd, [far, zero], zero, share));
        ties = T::plus(simd, ties, T::if_equal(simd, [far, zero], one, zero));
        entropy = T::fused(simd, share, far, entropy);
        store(simd, &mut line[row..end], share);
    }
    let rest = T::plus(simd, rest, T::minus(simd, ties, one));
    let whole = T::plus(simd, one, rest);
    let inverse = T::over(simd, one, whole);
    let own_far = T::minus(simd, most, own[0]);
    let lost = T::plus(simd, own_far, check);
    let own_far = T::smaller(simd, own_far, farthest);
    let others = T::minus(simd, whole, T::exponential(simd, T::minus(simd, zero, own_far)));
    let distance = T::times(simd, T::if_equal(simd, [own_far, zero], rest, others), inverse);
    let log_sum = log_1p::<S, T>(rest);
    let entropy = T::fused(simd, entropy, inverse, log_sum);
    sums.add(simd, weight, [T::plus(simd, log_sum, lost), entropy, distance]);
    for (line, shares) in scores.chunks_exact_mut(n_rows).zip(shares.chunks_exact_mut(n_rows)) {
        let share = T::times(simd, first(simd, &line[row..end]), inverse);
        store_single::<S, T>(&mut shares[row..end], share);
        store(simd, &mut line[row..end], T::times(simd, share, weight));
    }
    let mut residual = [T::times(simd, distance, weight)];
    for (lane, residual) in T::values_mut(&mut residual).iter().enumerate() {
        scores[targets.labels[lane] as usize * n_rows + row + lane] = -*residual;
    }
}

/// Multiplies the scores of a direction by c_i (diag p_i − p_i p_iᵀ), in place.
pub(super) fn curve(scores: &mut [f32], targets: BlockTargets<'_, f32>, shares: &[f32]) {
    f32::dispatch(Curve { scores, targets, shares });
}

struct Curve<'a> {
    scores: &'a mut [f32],
    targets: BlockTargets<'a, f32>,
    shares: &'a [f32],
}

impl Kernel<f32> for Curve<'_> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        f32: Lane<S>,
    {
        let Self { scores, targets, shares } = self;
        let n_rows = targets.labels.len();
        if scores.len() == n_rows {
            for ((score, share), weight) in scores.iter_mut().zip(shares).zip(targets.weights) {
                *score *= share * weight;
            }
            return;
        }
        let zero = f32::splat(simd, 0.0);
        for row in (0..n_rows).step_by(<f32 as Lane<S>>::LANES) {
            let end = row + <f32 as Lane<S>>::LANES;
            // Scores relative to the label's score keep their digits if the label has a probability close to 1.
            let mut own = [zero];
            for (lane, own) in f32::values_mut(&mut own).iter_mut().enumerate() {
                *own = scores[targets.labels[row + lane] as usize * n_rows + row + lane];
            }
            let relative = |line: &[f32]| f32::minus(simd, first(simd, &line[row..end]), own[0]);
            let mut mean = zero;
            for (line, shares) in scores.chunks_exact(n_rows).zip(shares.chunks_exact(n_rows)) {
                mean = f32::fused(simd, first(simd, &shares[row..end]), relative(line), mean);
            }
            let weight = first(simd, &targets.weights[row..end]);
            for (line, shares) in scores.chunks_exact_mut(n_rows).zip(shares.chunks_exact(n_rows)) {
                let share = f32::times(simd, weight, first(simd, &shares[row..end]));
                let moved = f32::minus(simd, relative(line), mean);
                store(simd, &mut line[row..end], f32::times(simd, share, moved));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_match_the_standard_library() {
        for i in 0..4000 {
            let x = 10f64.powf(f64::from(i) / 200.0 - 17.0);
            let expected = x.ln_1p();
            assert!((f64::log_1p(x) - expected).abs() <= 1e-15 * expected, "{x}");
            let single = x as f32;
            let expected = f64::from(single).ln_1p();
            assert!((f64::from(f32::log_1p(single)) - expected).abs() <= 4e-7 * expected, "{x}");
        }
        assert_eq!((f32::log_1p(0.0), f64::log_1p(0.0)), (0.0, 0.0));
    }

    fn check<T: Precision + Element>(n_outputs: usize, tolerance: f64) {
        let n_rows = 2048;
        let score = |line: usize, row: usize| ((line * 7 + row * 5) % 13) as f64 - 6.0;
        let labels: Vec<u32> = (0..n_rows).map(|row| (row % n_outputs.max(2)) as u32).collect();
        let weights: Vec<T> = (0..n_rows).map(|row| T::narrow(0.25 * (row % 4) as f64)).collect();
        let mut values: Vec<T> =
            (0..n_outputs * n_rows).map(|at| T::narrow(score(at / n_rows, at % n_rows))).collect();
        let mut shares = vec![0.0; values.len()];
        let targets = BlockTargets { labels: &labels, weights: &weights };
        let sums = softmax(&mut values, targets, &mut shares);
        let (mut loss, mut entropy, mut distance) = (0.0, 0.0, 0.0);
        for row in 0..n_rows {
            let mut scores: Vec<f64> = (0..n_outputs).map(|line| score(line, row)).collect();
            if n_outputs == 1 {
                scores.insert(0, 0.0);
            }
            let sum: f64 = scores.iter().map(|score| score.exp()).sum();
            let p: Vec<f64> = scores.iter().map(|score| score.exp() / sum).collect();
            let (label, weight) = (labels[row] as usize, weights[row].widen());
            loss -= weight * p[label].ln();
            entropy -= weight * p.iter().map(|p| p * p.ln()).sum::<f64>();
            distance += weight * (1.0 - p[label]);
            for line in 0..n_outputs {
                let class = line + p.len() - n_outputs;
                let expected = weight * (p[class] - f64::from(u8::from(class == label)));
                assert!((values[line * n_rows + row].widen() - expected).abs() < tolerance);
                let share = if n_outputs == 1 { p[0] * p[1] } else { p[class] };
                assert!((f64::from(shares[line * n_rows + row]) - share).abs() < 1e-6);
            }
        }
        for (found, expected) in
            [(sums.loss, loss), (sums.entropy, entropy), (sums.distance, distance)]
        {
            assert!(
                (found - expected).abs() < 1.5 * tolerance * n_rows as f64,
                "{found} {expected}"
            );
        }
    }

    /// Scores that are equal, or so far apart that exponentials are replaced by a constant.
    fn check_extremes<T: Precision + Element>(far: f64) {
        for (n_outputs, labels) in [(1, [0, 1]), (3, [2, 1])] {
            for label in labels {
                for (score, tied) in [(far, false), (0.0, true), (-far, false)] {
                    let n_rows = 16;
                    let mut scores = vec![T::zero(); n_outputs * n_rows];
                    scores[(n_outputs - 1) * n_rows..].fill(T::narrow(score));
                    let (labels, weights) = (vec![label; n_rows], vec![T::one(); n_rows]);
                    let targets = BlockTargets { labels: &labels, weights: &weights };
                    let mut shares = vec![0.0; scores.len()];
                    let sums = softmax(&mut scores, targets, &mut shares);
                    let is_last = label as usize == n_outputs.max(2) - 1;
                    let n_best = if tied {
                        n_outputs.max(2)
                    } else if score > 0.0 {
                        1
                    } else {
                        n_outputs.max(2) - 1
                    };
                    let is_best = tied || is_last == (score > 0.0);
                    let own = (n_best as f64).ln() + if is_best { 0.0 } else { far };
                    let loss = sums.loss / n_rows as f64;
                    assert!(
                        (loss - own).abs() <= 1e-6 * (1.0 + own),
                        "{n_outputs} {label} {score}: {loss} {own}"
                    );
                    let entropy = sums.entropy / n_rows as f64;
                    assert!((entropy - (n_best as f64).ln()).abs() < 1e-6, "{entropy}");
                    let distance = if is_best { 1.0 - 1.0 / n_best as f64 } else { 1.0 };
                    assert!((sums.distance / n_rows as f64 - distance).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn equal_and_distant_scores_give_the_right_sums() {
        check_extremes::<f32>(90.0);
        check_extremes::<f64>(800.0);
    }

    #[test]
    fn scores_that_are_not_finite_give_a_loss_that_is_not_finite() {
        fn check<T: Precision + Element>() {
            for (n_outputs, bad) in [(1, 0), (3, 0), (3, 2)] {
                for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let mut scores = vec![T::zero(); n_outputs * 16];
                    scores[bad * 16 + 3] = T::narrow(value);
                    let targets = BlockTargets { labels: &[1; 16], weights: &[T::one(); 16] };
                    let mut shares = vec![0.0; scores.len()];
                    assert!(!softmax(&mut scores, targets, &mut shares).loss.is_finite());
                }
            }
        }
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn sums_and_residuals_match_their_definition() {
        for n_outputs in [1, 3, 4, 9] {
            check::<f32>(n_outputs, 1e-6);
            check::<f64>(n_outputs, 1e-14);
        }
    }
}
