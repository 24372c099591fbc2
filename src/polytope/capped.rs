//! Projection onto a box cut by bounds on the sum: the common form of the unweighted sets.

use pulp::{Arch, Simd, WithSimd};

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

/// Σ_j max(0, v_j).
pub(super) fn positive_sum(v: &[f64]) -> f64 {
    Arch::new().dispatch(Sum { v, tau: 0.0, upper: f64::INFINITY }).0
}

impl Capped {
    /// The multiplier τ for margins v, in expected O(m) time from any guess.
    ///
    /// Margins of −∞ stand for coordinates that the set does not have.
    pub fn multiplier(&self, v: &[f64], guess: f64) -> f64 {
        // One dispatch for the whole search: every pass over v is inlined below it.
        Arch::new().dispatch(Search { set: self, v, guess })
    }

    /// What the coordinates strictly between 0 and `upper` at τ say about the root.
    #[inline(always)]
    fn piece<S: Simd>(&self, simd: S, v: &[f64], tau: f64) -> Piece {
        let (sum, n_between) = clipped_sum(simd, v, tau, self.upper);
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
        Arch::new().dispatch(Sum { v, tau, upper: self.upper })
    }

    /// Σ_j max(0, v_j − τ − upper) and the number of its positive terms: the pull on the upper bounds.
    pub fn overshoot(&self, v: &[f64], tau: f64) -> (f64, f64) {
        Self { upper: f64::INFINITY, ..*self }.sum(v, tau + self.upper)
    }

    /// b = clip(v − τ, 0, upper).
    pub fn write(&self, v: &[f64], tau: f64, b: &mut [f64]) {
        Arch::new().dispatch(Write { v, tau, upper: self.upper, b });
    }
}

// Dispatched work is a struct, since a closure's body would not be inlined into the dispatch.
struct Search<'a> {
    set: &'a Capped,
    v: &'a [f64],
    guess: f64,
}

impl WithSimd for Search<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { set, v, guess } = self;
        let (low, high) = if set.cap == f64::INFINITY {
            (0.0, set.bias * set.upper * v.len() as f64)
        } else {
            let high = largest(v).max(0.0);
            let low = if set.floor > 0.0 {
                // Here every coordinate is at its upper bound.
                smallest(v) - set.upper
            } else if set.cap <= set.upper {
                // The largest coordinate alone may not exceed the cap.
                (high - set.cap).max(0.0)
            } else {
                0.0
            };
            (low, high)
        };
        root(
            low,
            high,
            guess,
            #[inline(always)]
            |tau| set.piece(simd, v, tau),
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

struct Sum<'a> {
    v: &'a [f64],
    tau: f64,
    upper: f64,
}

impl WithSimd for Sum<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
        clipped_sum(simd, self.v, self.tau, self.upper)
    }
}

const LANES: usize = 16;

/// 1ᵀb and the number of 0 < b_j < upper for b = clip(v − τ, 0, upper).
///
/// Written out in vectors, several accumulators deep: it is where projections spend their time, and
/// the compiler leaves the plain loop scalar.
#[inline(always)]
fn clipped_sum<S: Simd>(simd: S, v: &[f64], tau: f64, upper: f64) -> (f64, f64) {
    const DEPTH: usize = 4;
    let mut parts = [Clipped::new(simd, tau, upper); DEPTH];
    let (vectors, tail) = S::as_simd_f64s(v);
    let (chunks, rest) = vectors.as_chunks::<DEPTH>();
    for chunk in chunks {
        for at in 0..DEPTH {
            parts[at].add(simd, chunk[at]);
        }
    }
    for &vector in rest {
        parts[0].add(simd, vector);
    }
    let (mut sum, mut count) = (0.0, 0.0);
    for part in parts {
        sum += simd.reduce_sum_f64s(part.sum);
        count += simd.reduce_sum_f64s(part.count);
    }
    for &v in tail {
        let b = v - tau;
        sum += clip(b, upper);
        count += if b > 0.0 && b < upper { 1.0 } else { 0.0 };
    }
    (sum, count)
}

/// One accumulator of [`clipped_sum`].
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
        let (zero, splat) = (simd.splat_f64s(0.0), |x| simd.splat_f64s(x));
        Self { tau: splat(tau), upper: splat(upper), sum: zero, count: zero }
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
