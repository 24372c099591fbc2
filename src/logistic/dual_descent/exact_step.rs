//! Exact steps of single blocks in double precision: for two classes, and for blocks on which Newton's method of
//! [`block_step`](super::block_step) does not converge.

/// Below this, ω = exp z to full precision.
const EXPONENTIAL: f64 = -40.0;
/// Above this, ω = z − ln z to full precision.
const LOGARITHMIC: f64 = 1e18;
/// Maximum number of Newton steps; enough to bisect the widest possible bracket down to a point.
const STEPS: usize = 500;
/// The iteration ends after a step of at most this size.
const LAST: f64 = 1e-9;

/// Solves ω + ln ω = z for ω (Lawrence, Corless and Jeffrey 2012).
fn wright_omega(z: f64) -> f64 {
    if z < EXPONENTIAL {
        return z.exp();
    }
    if z > LOGARITHMIC {
        return z - z.ln();
    }
    let mut omega = if z < -2.0 {
        z.exp()
    } else if z < 4.0 {
        1.0 + (z - 1.0) / 2.0 + (z - 1.0).powi(2) / 16.0
    } else {
        z - z.ln()
    };
    // Each step of Fritsch, Shafer and Crowley quadruples the number of correct digits.
    for _ in 0..3 {
        let rest = z - omega - omega.ln();
        let next = 1.0 + omega;
        let factor = next + 2.0 / 3.0 * rest;
        omega *=
            1.0 + rest / next * (2.0 * next * factor - rest) / (2.0 * next * factor - 2.0 * rest);
    }
    omega
}

/// Solves log α + q α = t for α.
fn share(t: f64, q: f64) -> f64 {
    let z = t + q.ln();
    if q == 0.0 || z < EXPONENTIAL { t.exp() } else { wright_omega(z) / q }
}

/// Replaces the targets s + q α⁰ by the solution α of log α + q α = target − λ, Σ α = 1; returns the entropy of α.
pub(super) fn exact_step(targets: &mut [f64], q: f64) -> f64 {
    let largest = targets.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    targets.iter_mut().for_each(|target| *target -= largest);
    // Σ α is convex and decreasing in λ. The largest α is 1 at the start, so Newton's method never overshoots the root.
    let mut lambda = -q;
    for _ in 0..STEPS {
        let (mut sum, mut slope) = (0.0, 0.0);
        for target in targets.iter() {
            let share = share(target - lambda, q);
            sum += share;
            slope += share / (1.0 + q * share);
        }
        let step = (sum - 1.0) / slope;
        lambda += step;
        if step.abs() <= LAST * (1.0 + lambda.abs()) * 1e-6 || (sum - 1.0).abs() <= 1e-15 {
            break;
        }
    }
    targets.iter_mut().for_each(|target| *target = share(*target - lambda, q));
    let sum: f64 = targets.iter().sum();
    let mut entropy = 0.0;
    for share in targets {
        *share /= sum;
        entropy -= if *share > 0.0 { *share * share.ln() } else { 0.0 };
    }
    entropy
}

/// 1/(1 + exp −z) and log(1 + exp z).
pub(super) fn sigmoid(z: f64) -> (f64, f64) {
    let small = (-z.abs()).exp();
    let share = small / (1.0 + small);
    let above = if z > 0.0 { z } else { 0.0 };
    (if z > 0.0 { 1.0 - share } else { share }, above + small.ln_1p())
}

/// Solves logit α = s + q (α⁰ − α) for the share α of one of two classes; also returns the entropy.
pub(super) fn binary_step(score: f64, q: f64, present: f64) -> (f64, f64) {
    let (mut share, _) = sigmoid(score);
    let mut rest = q * (share - present);
    // The root lies between the score and the logit of α⁰. The logit is infinite at 0 and 1.
    let (bound, anchor) = (score - rest, (present / (1.0 - present)).ln());
    let bound = if rest > 0.0 { bound.max(anchor) } else { bound.min(anchor) };
    let (mut low, mut high) = (bound.min(score) - 1.0, bound.max(score) + 1.0);
    let mut logit = score;
    for _ in 0..STEPS {
        let step = rest / (1.0 + q * share * (1.0 - share));
        let next = logit - step;
        let is_last = step.abs() <= LAST * (1.0 + logit.abs());
        logit = if is_last || next > low && next < high { next } else { 0.5 * (low + high) };
        share = sigmoid(logit).0;
        if is_last {
            break;
        }
        rest = logit - score + q * (share - present);
        if rest > 0.0 { high = logit } else { low = logit }
    }
    let (small, log) = sigmoid(-logit.abs());
    (share, log + logit.abs() * small)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVATURES: [f64; 8] = [0.0, 1e-300, 1e-9, 0.1, 3.0, 1e3, 1e9, 1e100];

    #[test]
    fn omega_solves_its_equation() {
        for i in -1000..1000 {
            let z = f64::from(i) * 0.07;
            let omega = wright_omega(z);
            assert!((omega + omega.ln() - z).abs() <= 1e-13 * (1.0 + z.abs()), "{z} {omega}");
        }
        assert!((wright_omega(1e300) / 1e300 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn exact_steps_meet_their_optimality_conditions() {
        for q in CURVATURES {
            for scale in [0.0, 1.0, 30.0, 1e4] {
                let present: [f64; 5] = [0.5, 0.0, 0.25, 0.25, 0.0];
                let scores = [0.3, -1.0, 0.9, 0.0, 1.0].map(|score| score * scale);
                let mut shares = [0.0; 5];
                for class in 0..5 {
                    shares[class] = scores[class] + q * present[class];
                }
                let entropy = exact_step(&mut shares, q);
                let sum: f64 = shares.iter().sum();
                assert!((sum - 1.0).abs() < 1e-14, "{q} {scale}: {sum}");
                // log α + q (α − α⁰) − s is the same for all classes with a positive share.
                let level = |class: usize| {
                    let bend = q * (shares[class] - present[class]);
                    shares[class].ln() + bend - scores[class]
                };
                let used = (0..5).filter(|class| shares[*class] > 1e-250);
                let levels: Vec<f64> = used.map(level).collect();
                let size = 1.0 + scale + q;
                for other in &levels {
                    let wrong = (other - levels[0]).abs();
                    assert!(wrong < 1e-11 * size, "{q} {scale}: {levels:?}");
                }
                let own = shares.iter().filter(|share| **share > 0.0);
                let expected: f64 = own.map(|share| -share * share.ln()).sum();
                assert!((entropy - expected).abs() < 1e-14);
            }
        }
    }

    /// The root by bisection.
    fn bisect(score: f64, q: f64, present: f64) -> f64 {
        let (mut low, mut high) = (0.0_f64, 1.0_f64);
        for _ in 0..2000 {
            let middle = 0.5 * (low + high);
            let rest = (middle / (1.0 - middle)).ln() - score + q * (middle - present);
            if rest > 0.0 { high = middle } else { low = middle }
        }
        low
    }

    #[test]
    fn binary_steps_match_bisection() {
        for q in CURVATURES {
            for score in [-300.0, -20.0, -1.0, 0.0, 0.3, 20.0] {
                for present in [0.0, 1e-9, 0.3, 1.0] {
                    let (share, entropy) = binary_step(score, q, present);
                    let expected = bisect(score, q, present);
                    let wrong = (share - expected).abs();
                    assert!(wrong <= 1e-9 * expected + 1e-300, "{q} {score} {present}: {share}");
                    let terms = [share, 1.0 - share].into_iter().filter(|share| *share > 0.0);
                    let expected: f64 = terms.map(|share| -share * share.ln()).sum();
                    assert!((entropy - expected).abs() < 1e-7, "{q} {score} {present}");
                }
            }
        }
    }
}
