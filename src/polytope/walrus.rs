//! The Weston-Watkins block step: argmin over 0 <= b <= C of ½ bᵀ(I + 11ᵀ)b − vᵀb
//! (Wang and Scott 2021, (4)), with bias·11ᵀ in place of 11ᵀ for other uses.
//!
//! The minimiser is clip(v − γ, 0, C) with γ = bias·1ᵀb. γ is found in one of two ways: by the root search that the
//! projections use, or by Wang and Scott's Algorithm 2, which sorts.

use super::capped::Capped;

/// Number of coordinates up to which sorting is faster than searching.
const MAX_SORTED: usize = 12;

/// The multiplier γ in expected O(k) time: Newton's method on the monotone equation
/// γ = bias·Σ_j clip(v_j − γ, 0, C), from any `guess` (docs/mathematics/block-descent.md#sorted-sweep).
pub fn multiplier(v: &[f64], c: f64, bias: f64, guess: f64) -> f64 {
    if v.len() > MAX_SORTED {
        return Capped { upper: c, floor: 0.0, cap: f64::INFINITY, bias }.multiplier(v, guess);
    }
    let mut sorted = [0.0; MAX_SORTED];
    let mut n_positive = 0;
    for &v in v.iter().filter(|v| **v > 0.0) {
        let place = sorted[..n_positive].iter().rposition(|other| *other >= v).map_or(0, |p| p + 1);
        sorted.copy_within(place..n_positive, place + 1);
        sorted[place] = v;
        n_positive += 1;
    }
    sweep(&sorted[..n_positive], c, bias)
}

/// The multiplier γ by sorting, in O(k log k) time; `sorted` is work space.
pub fn multiplier_by_sorting(v: &[f64], c: f64, bias: f64, sorted: &mut Vec<f64>) -> f64 {
    sorted.clear();
    sorted.extend(v.iter().copied().filter(|&v| v > 0.0));
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    sweep(sorted, c, bias)
}

/// Algorithm 2 on the positive v_j in decreasing order, with the index of Subroutine 4 corrected
/// (docs/mathematics/errata.md#index-in-the-sweep-of-walrus).
///
/// The sweep lowers γ. At γ = v_j, j enters the middle set; at γ = v_j − C, it moves to the upper set. Both sequences
/// of values have the same order, so a single sort is enough. Subroutine 5 tests whether γ̂ lies between two
/// neighbouring values. The sweep comes from above, so it is enough to test that γ̂ is not below the next value. Unlike
/// a test for equality, this test succeeds at some step for any rounding.
fn sweep(sorted: &[f64], c: f64, bias: f64) -> f64 {
    let (mut n_upper, mut n_middle, mut sum_middle) = (0, 0, 0.0);
    let gamma = |n_upper: usize, n_middle: usize, sum_middle: f64| {
        bias * (c * n_upper as f64 + sum_middle) / (1.0 + bias * n_middle as f64)
    };
    // Each step moves one value into or out of the middle set. The loop reaches its limit only if a value is NaN,
    // because no test holds for NaN. This can occur if the rows are overwritten during a fit.
    for _ in 0..2 * sorted.len() + 1 {
        let up = if n_middle > 0 { sorted[n_upper] - c } else { f64::NEG_INFINITY };
        let down = sorted.get(n_upper + n_middle).copied().unwrap_or(f64::NEG_INFINITY);
        if gamma(n_upper, n_middle, sum_middle) >= up.max(down) {
            // The running sum has rounding errors from subtracting large values, so the sum is recomputed.
            let sum = sorted[n_upper..n_upper + n_middle].iter().sum();
            return gamma(n_upper, n_middle, sum);
        }
        if n_middle == 0 && n_upper == sorted.len() {
            break;
        }
        if up >= down {
            sum_middle -= sorted[n_upper];
            n_upper += 1;
            n_middle -= 1;
        } else {
            sum_middle += down;
            n_middle += 1;
        }
    }
    f64::NAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_ends_the_sweep() {
        for bias in [f64::NAN, f64::INFINITY] {
            for v in [&[][..], &[1.0, 2.0], &[f64::INFINITY, 1.0, f64::NAN]] {
                assert!(multiplier_by_sorting(v, 1.0, bias, &mut Vec::new()).is_nan());
            }
        }
    }
}
