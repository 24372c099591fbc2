//! Projection onto a box with a bounded sum: the form that all unweighted sets have in common.

use pulp::{Simd, WithSimd};

use super::STEEP;
use super::root::{LinearPiece, root};
use crate::linalg::arch;

/// Number of margins up to which plain loops are faster than vector instructions.
const MAX_PLAIN: usize = 10;

/// The set {0 <= b_j <= upper, floor <= 1ᵀb <= cap}, and the bias of projections onto it.
///
/// The minimiser of ½‖b‖² + bias/2 (1ᵀb)² − vᵀb over the set is b_j = clip(v_j − τ, 0, upper). The multiplier τ is
/// bias·1ᵀb if the sum is strictly between its bounds (docs/mathematics/polytopes.md#boxes-with-a-bounded-sum).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capped {
    pub upper: f64,
    pub floor: f64,
    pub cap: f64,
    pub bias: f64,
}

/// The sum of the positive entries, Σ_j max(0, v_j).
pub(super) fn positive_sum(v: &[f64]) -> f64 {
    arch().dispatch(LaneSums { v, tau: 0.0, upper: f64::INFINITY }).0
}

impl Capped {
    /// The multiplier τ for margins v, in expected O(m) time from any guess.
    ///
    /// Margins of −∞ mark coordinates outside the set.
    pub fn multiplier(&self, v: &[f64], guess: f64) -> f64 {
        if v.len() <= MAX_PLAIN {
            return self.multiplier_of_few(v, guess);
        }
        // A single dispatch for the whole search, so that every pass over v is inlined.
        arch().dispatch(MultiplierSearch { set: self, v, guess })
    }

    /// Projects onto a simplex with a bias of 1; returns the multiplier. The function is inlined for callers that
    /// project many short margin vectors in a row.
    #[inline(always)]
    pub fn project_few(&self, v: &[f64], guess: f64, b: &mut [f64]) -> f64 {
        debug_assert!(self.floor == 0.0 && self.cap <= self.upper && self.bias == 1.0);
        let tau = match v.len() <= MAX_PLAIN {
            true => simplex_multiplier(v, self.cap, guess),
            false => self.multiplier(v, guess),
        };
        self.write(v, tau, b);
        tau
    }

    /// The multiplier for few margins, for which vector instructions cost more than they save.
    fn multiplier_of_few(&self, v: &[f64], guess: f64) -> f64 {
        let finite = v.iter().filter(|v| **v > f64::NEG_INFINITY);
        let largest = v.iter().fold(0.0, |best: f64, v| best.max(*v));
        let smallest = || finite.fold(0.0, |best: f64, v| best.min(*v));
        let (low, high) = self.bracket(v.len(), largest, smallest);
        root(low, high, guess, |tau| {
            let (mut sum, mut n_between) = (0.0, 0.0);
            for v in v {
                let b = v - tau;
                sum += clip(b, self.upper);
                n_between += if 0.0 < b && b < self.upper { 1.0 } else { 0.0 };
            }
            self.piece(sum, n_between, tau)
        })
    }

    /// The interval that contains the multiplier, for margins between `smallest` and `largest`.
    #[inline(always)]
    fn bracket(
        &self,
        n_margins: usize,
        largest: f64,
        smallest: impl FnOnce() -> f64,
    ) -> (f64, f64) {
        if self.cap == f64::INFINITY {
            return (0.0, self.bias * self.upper * n_margins as f64);
        }
        let low = if self.floor > 0.0 {
            // At this multiplier, every coordinate is at its upper bound.
            smallest() - self.upper
        } else if self.cap <= self.upper {
            // Even the largest coordinate alone must not exceed the cap.
            (largest - self.cap).max(0.0)
        } else {
            0.0
        };
        (low, largest)
    }

    /// The linear piece at τ, given 1ᵀb and the number of coordinates strictly between 0 and `upper`.
    #[inline(always)]
    fn piece(&self, sum: f64, n_between: f64, tau: f64) -> LinearPiece {
        let sum_reaches = |bound: f64| {
            let excess = sum - bound;
            // On a flat piece, the sum either equals the bound up to rounding or does not reach it at all.
            let met = n_between == 0.0 && excess.abs() <= 64.0 * f64::EPSILON * bound;
            if met { tau } else { tau + excess / n_between }
        };
        let mut root = tau + (self.bias * sum - tau) / (1.0 + self.bias * n_between);
        // The sum falls as τ rises, so the cap bounds τ from below and the floor bounds it from above.
        if self.cap < f64::INFINITY {
            root = root.max(sum_reaches(self.cap));
        }
        if self.floor > 0.0 {
            root = root.min(sum_reaches(self.floor));
        }
        LinearPiece { root, scale: tau.abs() + sum }
    }

    /// Computes 1ᵀb and the number of coordinates strictly between their bounds, at the multiplier τ.
    pub fn sum(&self, v: &[f64], tau: f64) -> (f64, f64) {
        arch().dispatch(LaneSums { v, tau, upper: self.upper })
    }

    /// The amount cut off by the upper bounds, Σ_j max(0, v_j − τ − upper), and the number of its positive terms.
    pub fn overshoot(&self, v: &[f64], tau: f64) -> (f64, f64) {
        Self { upper: f64::INFINITY, ..*self }.sum(v, tau + self.upper)
    }

    /// Writes b = clip(v − τ, 0, upper).
    #[inline]
    pub fn write(&self, v: &[f64], tau: f64, b: &mut [f64]) {
        if v.len() <= MAX_PLAIN {
            b.iter_mut().zip(v).for_each(|(b, v)| *b = clip(v - tau, self.upper));
        } else {
            arch().dispatch(Write { v, tau, upper: self.upper, b });
        }
        if tau > STEEP * self.cap {
            self.restore_sum(v, tau, b);
        }
    }

    /// Restores the sum to its cap if v − τ has lost digits: for margins of size 1e12, this difference is accurate to
    /// only 1e-4.
    fn restore_sum(&self, v: &[f64], tau: f64, b: &mut [f64]) {
        let sum: f64 = b.iter().sum();
        let missing = self.cap - sum;
        if missing < -1e-10 * self.cap {
            b.iter_mut().for_each(|b| *b *= self.cap / sum);
        } else if missing > 1e-10 * self.cap {
            // The missing amount is given to the coordinates whose margins equal τ up to rounding.
            let near = tau * (1.0 - 8.0 * f64::EPSILON);
            let open = |b: f64, v: f64| v >= near && b < self.upper;
            let count = b.iter().zip(v).filter(|(b, v)| open(**b, **v)).count();
            for (b, _) in b.iter_mut().zip(v).filter(|(b, v)| open(**b, **v)) {
                *b = (*b + missing / count as f64).min(self.upper);
            }
        }
    }
}

/// The multiplier of {b >= 0, 1ᵀb <= cap} with a bias of 1, by Newton's method without a bracket. It is the larger of
/// the roots of two convex decreasing functions, Σ_j max(0, v_j − τ) − τ and Σ_j max(0, v_j − τ) − cap. From the first
/// step on, the iterates therefore approach the root from the left, and each step drops some v_j until only the v_j
/// above the root remain.
#[inline(always)]
fn simplex_multiplier(v: &[f64], cap: f64, guess: f64) -> f64 {
    let (mut tau, mut n_before) = (guess.max(0.0), -1.0);
    for _ in 0..v.len() + 2 {
        let (mut sum, mut n) = (0.0, 0.0);
        for v in v {
            let above = *v > tau;
            sum += if above { *v } else { 0.0 };
            n += if above { 1.0 } else { 0.0 };
        }
        if n == n_before {
            break;
        }
        n_before = n;
        tau = sum / (n + 1.0);
        if n > 0.0 && tau > cap {
            tau = tau.max((sum - cap) / n);
        }
    }
    tau
}

// A struct, because a closure's body would not be inlined into the dispatch.
struct MultiplierSearch<'a> {
    set: &'a Capped,
    v: &'a [f64],
    guess: f64,
}

impl WithSimd for MultiplierSearch<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { set, v, guess } = self;
        let n_margins = v.len();
        let v = MarginChunks::new(simd, v);
        let largest = if set.cap == f64::INFINITY { 0.0 } else { v.largest(simd) };
        let (low, high) = set.bracket(n_margins, largest, || v.smallest(simd));
        root(
            low,
            high,
            guess,
            #[inline(always)]
            |tau| {
                let (sum, n_between) = v.clipped_sum(simd, tau, set.upper);
                set.piece(sum, n_between, tau)
            },
        )
    }
}

struct Write<'a> {
    v: &'a [f64],
    tau: f64,
    upper: f64,
    b: &'a mut [f64],
}

impl WithSimd for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (b, &v) in self.b.iter_mut().zip(self.v) {
            *b = clip(v - self.tau, self.upper);
        }
    }
}

struct LaneSums<'a> {
    v: &'a [f64],
    tau: f64,
    upper: f64,
}

impl WithSimd for LaneSums<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
        MarginChunks::new(simd, self.v).clipped_sum(simd, self.tau, self.upper)
    }
}

/// Number of SIMD vectors per chunk. Each position in a chunk has a separate sum, so that additions do not wait for
/// each other.
const DEPTH: usize = 4;

/// Margins in chunks of [`DEPTH`] SIMD vectors. The last chunk is padded with −∞, which does not change any sum.
struct MarginChunks<'a, S: Simd> {
    chunks: &'a [[S::f64s; DEPTH]],
    last: [S::f64s; DEPTH],
}

// Written in explicit vectors because projections spend most of their time here and the compiler
// does not vectorise plain loops.
impl<'a, S: Simd> MarginChunks<'a, S> {
    #[inline(always)]
    fn new(simd: S, v: &'a [f64]) -> Self {
        let chunks = S::as_simd_f64s(v).0.as_chunks::<DEPTH>().0;
        let n_rest = v.len() - chunks.len() * DEPTH * S::F64_LANES;
        let mut filled = [f64::NEG_INFINITY; DEPTH * 8];
        filled[DEPTH * 8 - n_rest..].copy_from_slice(&v[v.len() - n_rest..]);
        let mut last = [simd.splat_f64s(f64::NEG_INFINITY); DEPTH];
        let tail = S::as_simd_f64s(&filled).0;
        for (last, &vector) in last.iter_mut().zip(&tail[tail.len() - DEPTH..]) {
            *last = vector;
        }
        Self { chunks, last }
    }

    /// 1ᵀb and the number of j with 0 < b_j < upper, for b = clip(v − τ, 0, upper).
    #[inline(always)]
    fn clipped_sum(&self, simd: S, tau: f64, upper: f64) -> (f64, f64) {
        let mut parts = [Clipped::new(simd, tau, upper); DEPTH];
        for chunk in self.chunks {
            for (part, &vector) in parts.iter_mut().zip(chunk) {
                part.add(simd, vector);
            }
        }
        for (part, &vector) in parts.iter_mut().zip(&self.last) {
            part.add(simd, vector);
        }
        let [a, b, c, d] = parts;
        let sum = total(simd, [a.sum, b.sum, c.sum, d.sum]);
        let count = total(simd, [a.count, b.count, c.count, d.count]);
        (sum, count)
    }

    /// The largest margin, or 0 if no margin is positive.
    #[inline(always)]
    fn largest(&self, simd: S) -> f64 {
        let [a, b, c, d] = self.last;
        let mut best = simd.max_f64s(simd.max_f64s(a, b), simd.max_f64s(c, d));
        for &vector in self.chunks.as_flattened() {
            best = simd.max_f64s(vector, best);
        }
        simd.reduce_max_f64s(best).max(0.0)
    }

    /// The smallest finite margin, or 0 if no finite margin is negative.
    #[inline(always)]
    fn smallest(&self, simd: S) -> f64 {
        let mut best = simd.splat_f64s(0.0);
        for &vector in self.chunks.as_flattened().iter().chain(&self.last) {
            let missing = simd.equal_f64s(vector, simd.splat_f64s(f64::NEG_INFINITY));
            best = simd.min_f64s(simd.select_f64s(missing, best, vector), best);
        }
        simd.reduce_min_f64s(best)
    }
}

#[inline(always)]
fn total<S: Simd>(simd: S, [a, b, c, d]: [S::f64s; DEPTH]) -> f64 {
    simd.reduce_sum_f64s(simd.add_f64s(simd.add_f64s(a, b), simd.add_f64s(c, d)))
}

/// The sum and the count of one position in a chunk, separately for each lane.
#[derive(Clone, Copy)]
struct Clipped<S: Simd> {
    tau: S::f64s,
    upper: S::f64s,
    sum: S::f64s,
    count: S::f64s,
}

impl<S: Simd> Clipped<S> {
    #[inline(always)]
    fn new(simd: S, tau: f64, upper: f64) -> Self {
        let zero = simd.splat_f64s(0.0);
        Self { tau: simd.splat_f64s(tau), upper: simd.splat_f64s(upper), sum: zero, count: zero }
    }

    #[inline(always)]
    fn add(&mut self, simd: S, v: S::f64s) {
        let (zero, one) = (simd.splat_f64s(0.0), simd.splat_f64s(1.0));
        let b = simd.sub_f64s(v, self.tau);
        let clipped = simd.min_f64s(simd.max_f64s(b, zero), self.upper);
        let below = simd.less_than_f64s(b, self.upper);
        let between = simd.and_m64s(simd.less_than_f64s(zero, b), below);
        self.sum = simd.add_f64s(self.sum, clipped);
        self.count = simd.add_f64s(self.count, simd.select_f64s(between, one, zero));
    }
}

/// clip(b, 0, upper), by comparisons that compile to single instructions.
#[inline(always)]
fn clip(b: f64, upper: f64) -> f64 {
    let b = if b > 0.0 { b } else { 0.0 };
    if b < upper { b } else { upper }
}
