//! The Weston-Watkins block step: argmin over 0 <= b <= C of ½ bᵀ(I + 11ᵀ)b − vᵀb (SPEC 12, eq. 4).
//!
//! The minimiser is clip(v − γ, 0, C) with γ = 1ᵀb. Two ways to γ: the search that projections use,
//! and the paper's Algorithm 2, which sorts, as the reference.

use super::capped::Capped;

/// The multiplier γ in expected O(k) time: Newton's method on the monotone equation
/// γ = Σ_j clip(v_j − γ, 0, C), from any `guess` (SPEC 13).
pub fn multiplier(v: &[f64], c: f64, guess: f64) -> f64 {
    Capped { upper: c, floor: 0.0, cap: f64::INFINITY, bias: 1.0 }.multiplier(v, guess)
}

/// The multiplier γ by Algorithm 2 with the index of Subroutine 4 corrected (SPEC 14, E1.1), in
/// O(k log k) time. `sorted` is work space.
///
/// The sweep lowers γ past the values v_j, where j enters the middle set, and v_j − C, where it
/// leaves it for the upper one. Both lists fall in the same order, so one sort serves them. The test
/// of Subroutine 5 is that γ̂ lies between two neighbouring values; as the sweep comes from above, it
/// is enough that γ̂ is not below the next one, which unlike equality holds at some step in any
/// rounding.
pub fn multiplier_by_sorting(v: &[f64], c: f64, sorted: &mut Vec<f64>) -> f64 {
    sorted.clear();
    sorted.extend(v.iter().copied().filter(|&v| v > 0.0));
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let (mut n_upper, mut n_middle, mut sum_middle) = (0, 0, 0.0);
    loop {
        let gamma = (c * n_upper as f64 + sum_middle) / (n_middle as f64 + 1.0);
        let up = if n_middle > 0 { sorted[n_upper] - c } else { f64::NEG_INFINITY };
        let down = sorted.get(n_upper + n_middle).copied().unwrap_or(f64::NEG_INFINITY);
        if gamma >= up.max(down) {
            // The running sum has lost what large values left behind.
            let sum: f64 = sorted[n_upper..n_upper + n_middle].iter().sum();
            return (c * n_upper as f64 + sum) / (n_middle as f64 + 1.0);
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
}
