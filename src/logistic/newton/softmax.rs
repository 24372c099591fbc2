//! Computes probabilities, losses and residuals of a block of rows from its scores, one vector of rows at a time.

use pulp::{Simd, WithSimd};

use crate::data::Real;
use crate::linalg::{arch, exp_minus};

/// Number of rows that are processed together; the compiler vectorises loops of this length.
const LANES: usize = 16;
/// The distance from the largest score beyond which [`exp_minus`] returns a constant.
const FARTHEST: f64 = 700.0;

/// A precision in which probabilities are computed.
pub(super) trait Precision: Real + std::ops::AddAssign {
    /// exp(−x) for x ≥ 0.
    fn exp_minus(x: Self) -> Self;
    /// log(1 + x) for x ≥ 0, with a small relative error.
    fn log_1p(x: Self) -> Self;
}

impl Precision for f64 {
    #[inline(always)]
    fn exp_minus(x: Self) -> Self {
        exp_minus(x)
    }

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
    fn exp_minus(x: Self) -> Self {
        const LN2_HIGH: f32 = 0.693_359_4;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        // Adding and subtracting 1.5 · 2²³ rounds to the nearest integer, left in the low bits.
        const ROUND: f32 = 12_582_912.0;
        let y = if -x < -87.0 { -87.0 } else { -x };
        let shifted = y * std::f32::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        let r = (y - n * LN2_HIGH) - n * LN2_LOW;
        let mut p = 1.0 / 720.0;
        for factor in [120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
            p = p * r + 1.0 / factor;
        }
        let exponent = (shifted.to_bits() as i32) << 23;
        Self::from_bits((exponent + (127 << 23)) as u32) * p
    }

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
/// classes, p (1 − p).
pub(super) fn softmax<T: Precision>(
    scores: &mut [T],
    targets: BlockTargets<'_, T>,
    shares: &mut [f32],
) -> BlockSums {
    arch().dispatch(Softmax { scores, targets, shares })
}

struct Softmax<'a, T> {
    scores: &'a mut [T],
    targets: BlockTargets<'a, T>,
    shares: &'a mut [f32],
}

/// Separate sums for each lane.
struct LaneSums<T>([[T; LANES]; 4]);

impl<T: Precision> LaneSums<T> {
    #[inline(always)]
    fn add(&mut self, lane: usize, weight: T, [loss, entropy, distance]: [T; 3]) {
        let double = loss + loss;
        let slope = if double < T::one() { double } else { T::one() };
        self.0[0][lane] += weight * loss;
        self.0[1][lane] += weight * slope;
        self.0[2][lane] += weight * entropy;
        self.0[3][lane] += weight * distance;
    }

    fn total(&self) -> BlockSums {
        let [loss, slope, entropy, distance] =
            self.0.map(|lanes| lanes.into_iter().map(T::widen).sum());
        BlockSums { loss, slope, entropy, distance }
    }
}

impl<T: Precision> WithSimd for Softmax<'_, T> {
    type Output = BlockSums;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> BlockSums {
        let n_rows = self.targets.labels.len();
        let mut sums = LaneSums([[T::zero(); LANES]; 4]);
        for row in (0..n_rows).step_by(LANES) {
            let own = BlockTargets {
                labels: &self.targets.labels[row..row + LANES],
                weights: &self.targets.weights[row..row + LANES],
            };
            if self.scores.len() == n_rows {
                let range = row..row + LANES;
                two(&mut self.scores[range.clone()], own, &mut self.shares[range], &mut sums);
            } else {
                many(&mut *self.scores, (n_rows, row), own, &mut *self.shares, &mut sums);
            }
        }
        sums.total()
    }
}

/// [`softmax`] for two classes.
#[inline(always)]
fn two<T: Precision>(
    scores: &mut [T],
    targets: BlockTargets<'_, T>,
    shares: &mut [f32],
    sums: &mut LaneSums<T>,
) {
    let farthest = T::narrow(FARTHEST);
    let lanes = scores.iter_mut().zip(shares).zip(targets.labels).zip(targets.weights);
    for (lane, (((score, share), label), weight)) in lanes.enumerate().take(LANES) {
        let far = if *score < T::zero() { -*score } else { *score };
        let rest = T::exp_minus(far);
        let inverse = T::one() / (T::one() + rest);
        // Whether the class with the larger score is the label.
        let right = (*score > T::zero()) == (*label == 1);
        let distance = if right { rest * inverse } else { inverse };
        let log_sum = T::log_1p(rest);
        let loss = log_sum + if right { T::zero() } else { far };
        let clipped = if far < farthest { far } else { farthest };
        sums.add(lane, *weight, [loss, log_sum + rest * inverse * clipped, distance]);
        *share = T::widen(rest * inverse * inverse) as f32;
        let signed = if *label == 1 { -distance } else { distance };
        *score = *weight * signed;
    }
}

/// [`softmax`] for more than two classes.
#[inline(always)]
fn many<T: Precision>(
    scores: &mut [T],
    (n_rows, row): (usize, usize),
    targets: BlockTargets<'_, T>,
    shares: &mut [f32],
    sums: &mut LaneSums<T>,
) {
    let farthest = T::narrow(FARTHEST);
    let mut own = [T::zero(); LANES];
    for (lane, (own, label)) in own.iter_mut().zip(targets.labels).enumerate() {
        *own = scores[*label as usize * n_rows + row + lane];
    }
    let mut most = [T::neg_infinity(); LANES];
    for line in scores.chunks_exact(n_rows) {
        for (most, score) in most.iter_mut().zip(&line[row..row + LANES]) {
            *most = if *score > *most { *score } else { *most };
        }
    }
    // The largest exponential is 1; it is left out of the sum so that a small sum of the others keeps its digits.
    let (mut rest, mut ties, mut entropy) =
        ([T::zero(); LANES], [-T::one(); LANES], [T::zero(); LANES]);
    for line in scores.chunks_exact_mut(n_rows) {
        let line = &mut line[row..row + LANES];
        for lane in 0..LANES {
            let far = most[lane] - line[lane];
            let share = T::exp_minus(far);
            let is_top = far == T::zero();
            rest[lane] += if is_top { T::zero() } else { share };
            ties[lane] += if is_top { T::one() } else { T::zero() };
            entropy[lane] += share * if far < farthest { far } else { farthest };
            line[lane] = share;
        }
    }
    let mut inverse = [T::zero(); LANES];
    let mut distance = [T::zero(); LANES];
    for lane in 0..LANES {
        let rest = rest[lane] + ties[lane];
        inverse[lane] = T::one() / (T::one() + rest);
        let far = most[lane] - own[lane];
        let others = if far == T::zero() { rest } else { T::one() + rest - T::exp_minus(far) };
        distance[lane] = others * inverse[lane];
        let log_sum = T::log_1p(rest);
        let entropy = log_sum + entropy[lane] * inverse[lane];
        sums.add(lane, targets.weights[lane], [log_sum + far, entropy, distance[lane]]);
    }
    for (line, shares) in scores.chunks_exact_mut(n_rows).zip(shares.chunks_exact_mut(n_rows)) {
        let (line, shares) = (&mut line[row..row + LANES], &mut shares[row..row + LANES]);
        for lane in 0..LANES {
            let share = line[lane] * inverse[lane];
            shares[lane] = T::widen(share) as f32;
            line[lane] = share * targets.weights[lane];
        }
    }
    for (lane, label) in targets.labels.iter().enumerate() {
        scores[*label as usize * n_rows + row + lane] = -distance[lane] * targets.weights[lane];
    }
}

/// Multiplies the scores of a direction by c_i (diag p_i − p_i p_iᵀ), in place.
pub(super) fn curve(scores: &mut [f32], targets: BlockTargets<'_, f32>, shares: &[f32]) {
    arch().dispatch(Curve { scores, targets, shares });
}

struct Curve<'a> {
    scores: &'a mut [f32],
    targets: BlockTargets<'a, f32>,
    shares: &'a [f32],
}

impl WithSimd for Curve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { scores, targets, shares } = self;
        let n_rows = targets.labels.len();
        if scores.len() == n_rows {
            for ((score, share), weight) in scores.iter_mut().zip(shares).zip(targets.weights) {
                *score *= share * weight;
            }
            return;
        }
        for row in (0..n_rows).step_by(LANES) {
            // Scores relative to the label's score keep their digits if the label has a probability close to 1.
            let mut own = [0.0; LANES];
            for (lane, own) in own.iter_mut().enumerate() {
                *own = scores[targets.labels[row + lane] as usize * n_rows + row + lane];
            }
            let mut mean = [0.0; LANES];
            for (line, shares) in scores.chunks_exact_mut(n_rows).zip(shares.chunks_exact(n_rows)) {
                let (line, shares) = (&mut line[row..row + LANES], &shares[row..row + LANES]);
                for lane in 0..LANES {
                    line[lane] -= own[lane];
                    mean[lane] += shares[lane] * line[lane];
                }
            }
            let weights = &targets.weights[row..row + LANES];
            for (line, shares) in scores.chunks_exact_mut(n_rows).zip(shares.chunks_exact(n_rows)) {
                let (line, shares) = (&mut line[row..row + LANES], &shares[row..row + LANES]);
                for lane in 0..LANES {
                    line[lane] = weights[lane] * shares[lane] * (line[lane] - mean[lane]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_exponentials_match_the_standard_library() {
        for i in 0..4000 {
            let x = 10f64.powf(f64::from(i) / 200.0 - 17.0);
            let expected = x.ln_1p();
            assert!((f64::log_1p(x) - expected).abs() <= 1e-15 * expected, "{x}");
            let single = x as f32;
            let expected = f64::from(single).ln_1p();
            assert!((f64::from(f32::log_1p(single)) - expected).abs() <= 4e-7 * expected, "{x}");
            let x = f32::min(single, 80.0);
            let expected = (-f64::from(x)).exp();
            let error = (f64::from(f32::exp_minus(x)) - expected).abs();
            assert!(error <= 4e-7 * expected * f64::from(1.0 + x), "{x}");
        }
        assert_eq!((f32::exp_minus(0.0), f64::log_1p(0.0)), (1.0, 0.0));
    }

    fn check<T: Precision>(n_outputs: usize, tolerance: f64) {
        let n_rows = 2 * LANES;
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
            assert!((found - expected).abs() < tolerance * 50.0, "{found} {expected}");
        }
    }

    #[test]
    fn sums_and_residuals_match_their_definition() {
        for n_outputs in [1, 3, 4, 9] {
            check::<f32>(n_outputs, 1e-6);
            check::<f64>(n_outputs, 1e-14);
        }
    }
}
