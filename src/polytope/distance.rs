//! The distance in ‖·‖₁ by which rounding errors may have moved a point out of its set.
//!
//! All sets are defined by upper bounds on the sums of the j largest coordinates, so the distance is the largest excess
//! over such a bound. For sets with lower bounds, the largest shortfall is added (Frank and Tardos 1988, on generalised
//! polymatroids; docs/mathematics/polytopes.md#distance).

use crate::dual::rounding::{Bounded, Sum, gamma};

/// The sum of the positive coordinates, and ‖·‖₁ of the negative coordinates.
pub(super) fn parts(beta: &[(u32, f64)]) -> (Bounded, f64) {
    let (mut sum, mut negative) = (Sum::default(), 0.0);
    for &(_, value) in beta {
        if value > 0.0 {
            sum.add(Bounded::exact(value));
        } else {
            negative -= value;
        }
    }
    (sum.total(), negative * (1.0 + gamma(beta.len())))
}

/// The total excess over an upper bound on each coordinate, Σ_j max(0, β_j − upper).
pub(super) fn overshoot(beta: &[(u32, f64)], upper: f64) -> f64 {
    let over: f64 = beta.iter().map(|(_, value)| (value - upper).max(0.0)).sum();
    over * (1.0 + gamma(beta.len() + 2))
}

/// The amount by which the sum of the positive coordinates exceeds a bound.
pub(super) fn excess(sum: Bounded, bound: f64) -> f64 {
    if sum.value() <= bound && sum.value() == sum.upper() {
        return 0.0;
    }
    let excess = sum.upper() - bound;
    if excess > 0.0 { excess.next_up() } else { 0.0 }
}

/// Pairs (S_j, R_j) for j = 1, 2, ..., at most `n`: S_j is the sum of the j largest positive coordinates, and R_j is
/// the sum of the first j weights.
pub(super) fn partial_sums(
    beta: &[(u32, f64)],
    rho: &[f64],
    n: usize,
) -> impl Iterator<Item = (f64, f64)> {
    let mut sorted: Vec<f64> = beta.iter().map(|(_, value)| value.max(0.0)).collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let values = sorted.into_iter().chain(std::iter::repeat(0.0));
    let weights = rho.iter().copied().chain(std::iter::repeat(0.0));
    values.zip(weights).take(n).scan((0.0, 0.0), |sums, (value, rho)| {
        *sums = (sums.0 + value, sums.1 + rho);
        Some(*sums)
    })
}

/// The distance from {β ≥ 0: the j largest sum to at most R_j}.
pub(super) fn below(beta: &[(u32, f64)], rho: &[f64]) -> f64 {
    let n = beta.len();
    let mut worst = 0.0_f64;
    let mut size = 0.0;
    for (sum, bound) in partial_sums(beta, rho, n) {
        worst = worst.max(sum - bound);
        size = sum + bound;
    }
    // The last S_j + R_j is the largest, so the second term covers the rounding errors of all partial sums.
    let negative = parts(beta).1;
    worst + gamma(2 * n + 4) * size + negative
}

/// The distance from conv({0} ∪ permutations of ρ), without the label's coordinate. It is the largest excess over the
/// upper bounds plus the largest shortfall below the lower bounds. Both are computed for the set scaled by ζ: the
/// smallest ζ <= 1 for which the point satisfies the upper bounds, or 1 if there is none.
pub(super) fn between(beta: &[(u32, f64)], rho: &[f64]) -> f64 {
    let n_weights = rho.iter().take_while(|rho| **rho > 0.0).count();
    let n = beta.len().max(n_weights);
    let sums: Vec<(f64, f64)> = partial_sums(beta, rho, n).collect();
    let Some(&(total, all)) = sums.last() else { return 0.0 };
    let size = sums.iter().map(|(sum, bound)| sum / bound).fold(0.0, f64::max).min(1.0);
    let above = sums.iter().map(|(sum, bound)| sum - size * bound).fold(0.0, f64::max);
    // Lower bounds on the sum of the m − 1 − j smallest coordinates: the label's coordinate, which
    // is free, may be one of the j + 1 largest coordinates.
    let before = std::iter::once(&(0.0, 0.0)).chain(&sums);
    let shortfall =
        before.zip(&sums).map(|((sum, _), (_, bound))| size * (all - bound) - (total - sum));
    let missing = shortfall.fold(0.0, f64::max);
    above + missing + gamma(2 * n + 16) * (total + all) + parts(beta).1
}
