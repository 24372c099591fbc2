//! The exact step of a block: the distribution α that maximises the dual while all other distributions are fixed.
//!
//! With scores s, q = c ‖x‖² and the current α⁰, the step solves log α + q α = s + q α⁰ − λ, Σ α = 1. It uses Newton's
//! method in (log α, λ) jointly, starting at the softmax of s.

use pulp::Simd;

use crate::linalg::Lane;

/// Maximum number of Newton steps of a block, after which the exact method solves it.
const STEPS: usize = 8;

/// Newton's method ends after a step whose mean squared change of log α is below this. Convergence is quadratic, so the
/// next change would be negligible.
const SMALL: f64 = 1e-4;

/// Newton's method does not end while Σ α differs from 1 by more than this.
const NORMALISED: f64 = 1e-3;

/// Divergences below this are computed by a formula that does not subtract entropies.
const NEAR: f64 = 1e-4;

/// Maximum distance between a score and the largest score; lower scores, such as padding, are raised to this
/// distance.
const LOWEST: f64 = 1e4;

/// The score of padding, before it is raised as [`LOWEST`] describes.
pub(super) const PADDING: f64 = -1e30;

/// Buffers of a step, one value for each padded class.
pub(super) struct Buffers<'b, V> {
    /// Scores; after the step, the change α⁰ − α.
    pub scores: &'b mut [V],
    pub logs: &'b mut [V],
    pub shares: &'b mut [V],
    pub targets: &'b mut [V],
}

/// Quantities of the block before its step.
pub(super) struct Visited<T> {
    /// KL(α⁰ ‖ softmax(s)): the block's gap divided by c.
    pub divergence: T,
    /// log Σ exp s.
    pub log_sum: T,
}

/// Writes log softmax(s) of the scores s to `logs` and softmax(s) to `shares`, and computes the block's gap. `present`
/// is α⁰, and `entropy` is H(α⁰).
#[inline(always)]
pub(super) fn visit<S: Simd, T: Lane<S>>(
    simd: S,
    Buffers { scores, logs, shares, .. }: &mut Buffers<'_, T::Vector>,
    present: &[T::Vector],
    entropy: T,
) -> Visited<T> {
    let splat = |value| T::splat(simd, value);
    let mut largest = scores[0];
    for score in scores.iter() {
        largest = T::larger(simd, largest, *score);
    }
    let largest = T::largest(simd, largest);
    let (shift, least) = (splat(-largest), splat(T::narrow(-LOWEST)));
    let mut sum = splat(T::zero());
    for ((score, share), log) in scores.iter().zip(shares.iter_mut()).zip(logs.iter_mut()) {
        *log = T::larger(simd, T::plus(simd, *score, shift), least);
        *share = T::exponential(simd, *log);
        sum = T::plus(simd, sum, *share);
    }
    let sum = T::total(simd, sum);
    let (inverse, shift) = (splat(T::one() / sum), splat(-sum.ln()));
    let mut product = splat(T::zero());
    for ((log, share), present) in logs.iter_mut().zip(shares.iter_mut()).zip(present) {
        *log = T::plus(simd, *log, shift);
        *share = T::times(simd, *share, inverse);
        product = T::fused(simd, *present, *log, product);
    }
    let mut divergence = -entropy - T::total(simd, product);
    if divergence < T::narrow(NEAR) {
        divergence = discrimination(simd, shares, present);
    }
    Visited { divergence, log_sum: largest + sum.ln() }
}

/// Σ (α − p)²/(α + p), which approximates KL(α ‖ p) for close points without the rounding error of a difference.
#[inline(always)]
fn discrimination<S: Simd, T: Lane<S>>(simd: S, shares: &[T::Vector], present: &[T::Vector]) -> T {
    let mut sum = T::splat(simd, T::zero());
    for (share, present) in shares.iter().zip(present) {
        let by = T::fused(simd, T::splat(simd, -T::one()), *share, *present);
        let scale = T::over(simd, by, T::plus(simd, *share, *present));
        sum = T::fused(simd, by, scale, sum);
    }
    T::total(simd, sum)
}

/// Takes the step after [`visit`]: replaces α⁰ by α and returns the entropy of α. If Newton's method does not converge,
/// keeps α⁰ and returns None.
#[inline(always)]
pub(super) fn step<S: Simd, T: Lane<S>>(
    simd: S,
    Buffers { scores, logs, shares, targets }: &mut Buffers<'_, T::Vector>,
    present: &mut [T::Vector],
    curvature: T,
) -> Option<T> {
    let splat = |value| T::splat(simd, value);
    let (zero, one, minus) = (splat(T::zero()), splat(T::one()), splat(-T::one()));
    let q = splat(curvature);
    for ((target, log), present) in targets.iter_mut().zip(logs.iter()).zip(present.iter()) {
        *target = T::fused(simd, q, *present, *log);
    }
    let (small, normalised) = (T::narrow(SMALL), T::narrow(NORMALISED));
    let mut excess = T::zero();
    for _ in 0..STEPS {
        // Both loops need r = target − log α − q α and 1/(1 + q α). The second loop recomputes them.
        let (mut above, mut below) = (zero, zero);
        for ((log, share), target) in logs.iter().zip(shares.iter()).zip(targets.iter()) {
            let bend = T::times(simd, q, *share);
            let rest = T::fused(simd, minus, T::plus(simd, *log, bend), *target);
            let weight = T::over(simd, *share, T::plus(simd, one, bend));
            above = T::fused(simd, weight, rest, above);
            below = T::plus(simd, below, weight);
        }
        let lambda = (T::total(simd, above) + excess) / T::total(simd, below);
        let shift = splat(-lambda);
        let (mut sum, mut moved) = (zero, zero);
        for ((log, share), target) in logs.iter_mut().zip(shares.iter_mut()).zip(targets.iter()) {
            let bend = T::times(simd, q, *share);
            let rest =
                T::fused(simd, minus, T::plus(simd, *log, bend), T::plus(simd, *target, shift));
            let by = T::over(simd, rest, T::plus(simd, one, bend));
            *log = T::smaller(simd, T::plus(simd, *log, by), zero);
            *share = T::exponential(simd, *log);
            sum = T::plus(simd, sum, *share);
            moved = T::fused(simd, T::times(simd, by, by), *share, moved);
        }
        let sum = T::total(simd, sum);
        excess = sum - T::one();
        if excess.abs() < normalised && T::total(simd, moved) < small {
            let inverse = splat(T::one() / sum);
            let mut product = zero;
            for (((log, share), present), score) in
                logs.iter().zip(shares.iter()).zip(present).zip(scores.iter_mut())
            {
                let share = T::times(simd, *share, inverse);
                product = T::fused(simd, share, *log, product);
                *score = T::fused(simd, minus, share, *present);
                *present = share;
            }
            return Some(sum.ln() - T::total(simd, product));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{Aligned, Element, Kernel};
    use crate::logistic::dual_descent::exact_step::exact_step;

    /// A visit and a step; returns the divergence and, if the step converges, α and its entropy.
    struct Visit<'a, T> {
        scores: &'a [f64],
        present: &'a [f64],
        curvature: T,
    }

    impl<T: Element> Kernel<T> for Visit<'_, T> {
        type Output = (f64, Option<(Vec<f64>, f64)>);

        #[inline(always)]
        fn compute<S: Simd>(self, simd: S) -> Self::Output
        where
            T: Lane<S>,
        {
            let padded = self.scores.len().next_multiple_of(<T as Lane<S>>::LANES);
            let fill = |values: &[f64], rest: f64| {
                let mut filled = Aligned::<T>::zeros(padded);
                filled.fill(T::narrow(rest));
                filled.iter_mut().zip(values).for_each(|(to, value)| *to = T::narrow(*value));
                filled
            };
            let (mut scores, mut present) = (fill(self.scores, PADDING), fill(self.present, 0.0));
            let (mut logs, mut shares, mut targets) =
                (fill(&[], 0.0), fill(&[], 0.0), fill(&[], 0.0));
            let mut buffers = Buffers {
                scores: T::vectors_mut(&mut scores).0,
                logs: T::vectors_mut(&mut logs).0,
                shares: T::vectors_mut(&mut shares).0,
                targets: T::vectors_mut(&mut targets).0,
            };
            let terms = self.present.iter().filter(|share| **share > 0.0);
            let entropy = T::narrow(-terms.map(|share| share * share.ln()).sum::<f64>());
            let vectors = T::vectors_mut(&mut present).0;
            let divergence = visit(simd, &mut buffers, vectors, entropy).divergence.widen();
            let stepped = step(simd, &mut buffers, vectors, self.curvature);
            let shares = present[..self.scores.len()].iter().map(|share| share.widen()).collect();
            (divergence, stepped.map(|entropy| (shares, entropy.widen())))
        }
    }

    fn check<T: Element>(precision: f64) {
        let mut n_left = 0;
        for n_classes in [3, 8, 20, 33, 150] {
            for (case, q) in [0.0, 0.01, 1.0, 30.0, 1e4].into_iter().enumerate() {
                for scale in [0.0, 0.5, 5.0, 40.0] {
                    let value = |class: usize, seed: usize| {
                        ((class * 37 + seed * 101 + case * 11) % 53) as f64 / 53.0
                    };
                    let scores: Vec<f64> =
                        (0..n_classes).map(|class| scale * (value(class, 1) - 0.5)).collect();
                    let mut present: Vec<f64> =
                        (0..n_classes).map(|class| value(class, 2).powi(3)).collect();
                    let sum: f64 = present.iter().sum();
                    present.iter_mut().for_each(|share| *share /= sum);
                    let curvature = T::narrow(q);
                    let (divergence, stepped) =
                        T::dispatch(Visit { scores: &scores, present: &present, curvature });
                    let (mut softmax, mut exact) = (scores.clone(), scores.clone());
                    crate::linalg::softmax(&mut softmax);
                    let pairs = present.iter().zip(&softmax).filter(|(own, _)| **own > 0.0);
                    let expected: f64 = pairs.map(|(own, p)| own * (own / p).ln()).sum();
                    assert!((divergence - expected).abs() < precision * (1.0 + expected));
                    let Some((shares, entropy)) = stepped else {
                        n_left += 1;
                        continue;
                    };
                    exact.iter_mut().zip(&present).for_each(|(s, share)| *s += q * share);
                    let exact_entropy = exact_step(&mut exact, q);
                    let distance: f64 = shares.iter().zip(&exact).map(|(a, b)| (a - b).abs()).sum();
                    assert!(distance < 1e-3, "{n_classes} {q} {scale}: {distance}");
                    assert!((entropy - exact_entropy).abs() < 1e-3 * (1.0 + exact_entropy));
                }
            }
        }
        // Fewer than 10 of 100 blocks do not converge.
        assert!(n_left < 10, "{n_left}");
    }

    #[test]
    fn steps_match_the_exact_method() {
        check::<f32>(1e-4);
        check::<f64>(1e-12);
    }

    #[test]
    fn divergences_of_close_points_are_accurate() {
        let present: [f64; 3] = [0.5, 0.3, 0.2];
        let scores = present.map(|share| share.ln() + 7.0 + 1e-6 * share);
        let visit = Visit { scores: &scores, present: &present, curvature: 1.0f64 };
        let (divergence, _) = f64::dispatch(visit);
        let expected = 0.5
            * 1e-12
            * (present[0].powi(3) + present[1].powi(3) + present[2].powi(3)
                - present.iter().map(|p| p * p).sum::<f64>().powi(2));
        assert!((divergence / expected - 1.0).abs() < 1e-3, "{divergence} {expected}");
    }
}
