//! The dual value at a point, computed as a lower bound that holds in exact arithmetic.

use super::rounding::{
    Bounded, Sum, bounded_squared_norm, gamma, norm_above, root_above, underflow,
};
use super::{BlockDual, Image, Points, Scales, Shares};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Sparse, sparse};

/// The terms of a dual value, each rounded so that the result is a lower bound. The result bounds the dual value at a
/// point that is feasible in exact arithmetic: the stored point or, if the stored point is infeasible, a feasible point
/// close to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DualValue {
    lambda: f64,
    /// Σ p_i l_i(μ_i).
    linear: Bounded,
    /// An upper bound on ‖w(μ)‖.
    norm: f64,
    /// An upper bound on γ Σ p_i ‖μ_i‖².
    bend: f64,
}

impl DualValue {
    /// The dual value, given bounds on its terms.
    pub fn of(lambda: f64, linear: Bounded, norm: f64, bend: f64) -> Self {
        Self { lambda, linear, norm, bend }
    }

    /// D(μ), rounded down.
    pub fn bound(&self) -> f64 {
        self.bound_at(1.0)
    }

    /// D(tμ), rounded down, and the t in [0, 1] that maximises it. The polytopes must contain 0,
    /// and l_i(0) must be 0.
    pub fn bound_along(&self) -> (f64, f64) {
        let curvature = self.lambda * self.norm * self.norm + self.bend;
        let best = self.linear.value() / curvature;
        let scale = if best < 1.0 { best.max(0.0) } else { 1.0 };
        let (norm, exact) = (Bounded::exact(scale) * Bounded::exact(self.norm), Bounded::exact);
        let regularizer = exact(0.5 * self.lambda) * norm * norm;
        let bend = exact(0.5 * self.bend) * exact(scale) * exact(scale);
        ((exact(scale) * self.linear - regularizer - bend).lower(), scale)
    }

    /// The bound after dividing λ by `factor`, which multiplies w(μ) by `factor`.
    pub fn bound_at(&self, factor: f64) -> f64 {
        let norm = Bounded::exact(self.norm);
        let regularizer = Bounded::exact(0.5 * self.lambda) * norm * norm * Bounded::exact(factor);
        (self.linear - regularizer - Bounded::exact(0.5 * self.bend)).lower()
    }
}

/// The objective λ/2 ‖w‖² + loss, rounded up.
pub fn objective<T: Real>(lambda: f64, weights: &[T], loss: Bounded) -> f64 {
    (Bounded::exact(0.5 * lambda) * bounded_squared_norm(weights) + loss).upper()
}

/// The terms that a block adds to the dual, apart from its image.
#[derive(Debug, Clone, Copy)]
pub struct BlockTerms {
    /// The change of l_i along the direction from the block's start to its point.
    pub linear: f64,
    /// γ ‖direction‖², the term that smoothing adds.
    pub bend: f64,
    /// The L1 norm ‖direction‖₁.
    pub length: f64,
    /// Number of entries of the direction.
    pub n_entries: usize,
    /// Distance of the point from its polytope in ‖·‖₁.
    pub defect: f64,
    /// The sizes of the block's functions.
    pub scales: Scales,
}

/// Sums over the blocks so far, for a [`DualValue`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    linear: Sum,
    bend: f64,
    /// Σ p_i/λ ‖A_iᵀ‖ ‖δ_i‖₁, an upper bound on the sum of the norms of all terms of w(μ).
    reach: f64,
    /// A bound on the increase of ‖w‖ when infeasible points are moved into their sets, and on the
    /// effect of underflow.
    repair: f64,
    n_blocks: usize,
    n_entries: usize,
    /// The maximum number of additions to an entry of the image.
    n_additions: usize,
}

impl Totals {
    /// Adds the terms of a block, weighted by the block's share.
    #[inline]
    pub fn add(&mut self, shares: &Shares, block: usize, terms: &BlockTerms) {
        let BlockTerms { linear, bend, length, n_entries, defect, scales } = *terms;
        let (share, lambda) = (shares.of(block), shares.lambda());
        self.n_blocks += 1;
        self.n_additions += if scales.adds_terms { n_entries } else { 1 };
        if share == 0.0 || length == 0.0 && defect == 0.0 {
            return;
        }
        let error =
            scales.cost * (gamma(n_entries + 4) * length + defect) + underflow(n_entries as f64);
        self.linear.add(Bounded::new(linear, error) * Bounded::exact(share));
        // Uses ‖α + δ‖ ≤ ‖α‖ + √2 ‖δ‖₁.
        if shares.smoothing() > 0.0 {
            let longest = root_above(bend) * (1.0 + gamma(n_entries + 4))
                + 1.5 * root_above(shares.smoothing()) * defect;
            self.bend += share * longest * longest;
        }
        let unit = share / lambda * scales.feature;
        let n_products = (n_entries * scales.n_features) as f64;
        self.reach += unit * length;
        self.repair += unit * defect + underflow(n_products * (1.0 + scales.feature));
        self.n_entries = self.n_entries.max(n_entries);
    }

    /// Adds a block that is at its start, which is feasible and contributes 0.
    #[inline]
    pub fn add_start(&mut self) {
        self.n_blocks += 1;
    }

    /// Adds the sums over some other blocks.
    pub fn join(&mut self, other: &Self) {
        self.linear.join(&other.linear);
        self.bend += other.bend;
        self.reach += other.reach;
        self.repair += other.repair;
        self.n_blocks += other.n_blocks;
        self.n_additions += other.n_additions;
        self.n_entries = self.n_entries.max(other.n_entries);
    }

    /// The maximum number of successive roundings in the computation of an entry of the image. A block adds either a
    /// sum of at most `n_entries` terms to a weight, because no row lists a feature twice, or these terms one by one.
    pub fn depth(&self) -> usize {
        self.n_additions + self.n_entries + 8
    }

    /// A bound on the distance between w(μ) and its computed image, summed in any order.
    pub fn distance(&self) -> f64 {
        self.distance_within(self.n_additions)
    }

    /// Like [`distance`](Self::distance), for images whose entries are the results of at most `n_sums` successive
    /// additions.
    pub fn distance_within(&self, n_sums: usize) -> f64 {
        let depth = n_sums + self.n_entries + 8;
        (gamma(depth) * self.reach + self.repair) * (1.0 + gamma(self.n_blocks + 8))
    }

    /// The dual value, given an upper bound on ‖w(μ)‖.
    pub fn value(&self, lambda: f64, norm: f64) -> DualValue {
        let bend = self.bend * (1.0 + gamma(self.n_blocks + 8));
        DualValue::of(lambda, self.linear.total(), norm * (1.0 + gamma(4)), bend)
    }

    /// Σ p_i l_i − γ/2 Σ p_i ‖μ_i‖², rounded down.
    pub fn linear(&self) -> f64 {
        self.value(0.0, 0.0).bound()
    }
}

/// The dual value at a point. w(μ) is recomputed in one pass, so that rounding errors accumulated
/// in a run's weights do not count. `drift(i)` bounds, in ‖·‖₁, the distance of a block's point
/// from the convex combination of vertices that it represents.
///
/// # Errors
/// [`crate::Error::Interrupted`].
pub fn dual_value<D: BlockDual>(
    dual: &mut D,
    points: &Points<'_>,
    drift: &dyn Fn(usize) -> f64,
    interrupt: &Interrupt,
) -> Result<DualValue> {
    let mut weights = vec![0.0; dual.n_weights()];
    let (mut totals, mut direction) = (Totals::default(), Sparse::new());
    for block in 0..dual.shares().n_blocks() {
        interrupt.check()?;
        if dual.shares().of(block) == 0.0 {
            continue;
        }
        let (point, start) = (points(block), dual.start(block));
        sparse::subtract(point, &start, &mut direction);
        let rounding = gamma(2) * (length(point) + length(&start));
        let defect = dual.defect(block, point, &|| drift(block)) + rounding;
        let (scales, length) = (dual.scales(block), length(&direction));
        let mut image = dual.image(block, &direction);
        image.add_to(1.0, &mut weights);
        let (linear, bend, n_entries) = (image.linear(), image.bend(), direction.len());
        drop(image);
        let terms = BlockTerms { linear, bend, length, n_entries, defect, scales };
        totals.add(dual.shares(), block, &terms);
    }
    // Projections do not increase the distance between two points.
    dual.shares().cone().project(&mut weights);
    Ok(totals.value(dual.shares().lambda(), norm_above(&weights) + totals.distance()))
}

/// The L1 norm ‖δ‖₁, rounded up.
fn length(direction: &[(u32, f64)]) -> f64 {
    let size: f64 = direction.iter().map(|(_, value)| value.abs()).sum();
    size * (1.0 + gamma(direction.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_are_added_one_by_one_count_one_by_one() {
        let shares = Shares::new(10, 1.0).unwrap();
        let totals = |adds_terms: bool| {
            let scales = Scales { cost: 1.0, feature: 1.0, n_features: 3, adds_terms };
            let n_entries = 4;
            let terms =
                BlockTerms { linear: 1.0, bend: 0.0, length: 1.0, n_entries, defect: 0.0, scales };
            let (mut first, mut second) = (Totals::default(), Totals::default());
            (0..5).for_each(|block| first.add(&shares, block, &terms));
            (5..10).for_each(|block| second.add(&shares, block, &terms));
            first.join(&second);
            first
        };
        let (together, single) = (totals(false), totals(true));
        assert_eq!((together.depth(), single.depth()), (10 + 4 + 8, 40 + 4 + 8));
        assert!(single.distance() > 2.0 * together.distance());
    }
}
