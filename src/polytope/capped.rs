//! Projection onto a box cut by bounds on the sum: the common form of the unweighted sets.

use pulp::Arch;

use super::root::{Piece, root};

/// The set {0 <= b_j <= upper, floor <= 1ᵀb <= cap} and the rank-one bias of the quadratic form.
///
/// Its argmin of ½‖b‖² + bias/2 (1ᵀb)² − vᵀb is b_j = clip(v_j − τ, 0, upper), where the multiplier τ
/// is bias·1ᵀb while the sum stays between its bounds (SPEC 12, 13).
#[derive(Debug, Clone, Copy)]
pub(super) struct Capped {
    pub upper: f64,
    pub floor: f64,
    pub cap: f64,
    pub bias: f64,
}

impl Capped {
    /// The multiplier τ for margins v, in expected O(m) time from any guess.
    ///
    /// Margins of −∞ stand for coordinates that the set does not have.
    pub fn multiplier(&self, v: &[f64], guess: f64) -> f64 {
        // One dispatch for the whole search: every pass over v is inlined below it.
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let high = largest(v).max(0.0);
                let low = if self.floor > 0.0 {
                    // Here every coordinate is at its upper bound.
                    smallest(v) - self.upper
                } else if self.cap <= self.upper {
                    // The largest coordinate alone may not exceed the cap.
                    (high - self.cap).max(0.0)
                } else {
                    0.0
                };
                root(low, high, guess, |tau| self.piece(v, tau))
            },
        )
    }

    /// What the coordinates strictly between 0 and `upper` at τ say about the root.
    #[inline(always)]
    fn piece(&self, v: &[f64], tau: f64) -> Piece {
        let (sum, n_between) = clipped_sum(v, tau, self.upper);
        let sum_reaches = |bound: f64| {
            let excess = sum - bound;
            // On a flat piece the sum is the bound to rounding, or not at all.
            let met = n_between == 0.0 && excess.abs() <= 64.0 * f64::EPSILON * bound;
            if met { tau } else { tau + excess / n_between }
        };
        let mut root = tau + (self.bias * sum - tau) / (1.0 + self.bias * n_between);
        // The sum falls as τ rises: the cap bounds τ from below, the floor from above.
        if self.cap < f64::INFINITY {
            root = root.max(sum_reaches(self.cap));
        }
        if self.floor > 0.0 {
            root = root.min(sum_reaches(self.floor));
        }
        Piece { root, scale: tau.abs() + sum }
    }

    /// 1ᵀb and the number of coordinates strictly between their bounds, at the multiplier τ.
    pub fn sum(&self, v: &[f64], tau: f64) -> (f64, f64) {
        Arch::new().dispatch(
            #[inline(always)]
            || clipped_sum(v, tau, self.upper),
        )
    }

    /// Σ_j max(0, v_j − τ − upper) and the number of its positive terms: the pull on the upper bounds.
    pub fn overshoot(&self, v: &[f64], tau: f64) -> (f64, f64) {
        Self { upper: f64::INFINITY, ..*self }.sum(v, tau + self.upper)
    }

    /// b = clip(v − τ, 0, upper).
    pub fn write(&self, v: &[f64], tau: f64, b: &mut [f64]) {
        for (b, &v) in b.iter_mut().zip(v) {
            *b = clip(v - tau, self.upper);
        }
    }
}

const LANES: usize = 16;

/// 1ᵀb and the number of 0 < b_j < upper for b = clip(v − τ, 0, upper).
#[inline(always)]
fn clipped_sum(v: &[f64], tau: f64, upper: f64) -> (f64, f64) {
    let mut sums = [0.0; LANES];
    let mut counts = [0.0; LANES];
    let (chunks, rest) = v.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let b = chunk[lane] - tau;
            sums[lane] += clip(b, upper);
            counts[lane] += if b > 0.0 && b < upper { 1.0 } else { 0.0 };
        }
    }
    let (mut sum, mut count) = (sums.iter().sum::<f64>(), counts.iter().sum::<f64>());
    for &v in rest {
        let b = v - tau;
        sum += clip(b, upper);
        count += if b > 0.0 && b < upper { 1.0 } else { 0.0 };
    }
    (sum, count)
}

/// clip(b, 0, upper), by comparisons that become single instructions.
#[inline(always)]
fn clip(b: f64, upper: f64) -> f64 {
    let b = if b > 0.0 { b } else { 0.0 };
    if b < upper { b } else { upper }
}

#[inline(always)]
fn largest(v: &[f64]) -> f64 {
    fold(v, f64::NEG_INFINITY, |best, v| if v > best { v } else { best })
}

/// The smallest finite entry.
#[inline(always)]
fn smallest(v: &[f64]) -> f64 {
    fold(v, f64::INFINITY, |best, v| if v < best && v > f64::NEG_INFINITY { v } else { best })
}

#[inline(always)]
fn fold(v: &[f64], start: f64, better: impl Fn(f64, f64) -> f64) -> f64 {
    let mut best = [start; LANES];
    let (chunks, rest) = v.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = better(best[lane], chunk[lane]);
        }
    }
    best.iter().chain(rest).fold(start, |best, &v| better(best, v))
}
