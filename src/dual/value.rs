//! The dual value at a point, as a bound that holds in exact arithmetic.

use super::rounding::{Bounded, Sum, TINY, bounded_squared_norm, gamma, norm_above, root_above};
use super::{BlockDual, Image, Points};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Sparse, sparse};

/// The size of a block's functions, for bounds on their rounding errors. Points and directions are measured
/// by ‖δ‖₁, the sum of the sizes of their entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// |l_i(δ)| is at most this times ‖δ‖₁.
    pub cost: f64,
    /// The norm of A_iᵀ δ, each of its terms taken as positive, is at most this times ‖δ‖₁.
    pub feature: f64,
    /// Number of features of a part.
    pub n_features: usize,
}

/// What the dual value at a point is made of, each part with its rounding taken against us. The point is
/// feasible in exact arithmetic: where the stored one is not, one as near to it as its defects say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DualValue {
    lambda: f64,
    /// Σ p_i l_i(μ_i).
    linear: Bounded,
    /// At least ‖w(μ)‖.
    norm: f64,
    /// At least γ Σ p_i ‖μ_i‖².
    bend: f64,
}

impl DualValue {
    /// The value at sums that come with bounds on their errors.
    pub fn of(lambda: f64, linear: Bounded, norm: f64, bend: f64) -> Self {
        Self { lambda, linear, norm, bend }
    }

    /// D(μ), rounded down.
    pub fn bound(&self) -> f64 {
        self.bound_at(1.0)
    }

    /// The same for λ divided by `factor`, where w(μ) is as much longer.
    pub fn bound_at(&self, factor: f64) -> f64 {
        let norm = Bounded::exact(self.norm);
        let regularizer = Bounded::exact(0.5 * self.lambda) * norm * norm * Bounded::exact(factor);
        (self.linear - regularizer - Bounded::exact(0.5 * self.bend)).lower()
    }
}

/// λ/2 ‖w‖² + the loss, rounded up.
pub fn objective(lambda: f64, weights: &[f64], loss: Bounded) -> f64 {
    (Bounded::exact(0.5 * lambda) * bounded_squared_norm(weights) + loss).upper()
}

/// What the blocks seen so far add to a [`DualValue`].
#[derive(Default)]
struct Totals {
    linear: Sum,
    bend: f64,
    /// λ Σ p_i/λ ‖A_iᵀ‖ ‖δ_i‖₁, the sum of all terms' sizes.
    reach: f64,
    /// What the repair of points that are outside of their sets may add to ‖w‖, and underflow.
    repair: f64,
    n_blocks: usize,
    n_parts: usize,
}

/// The dual value at a point, with w(μ) summed anew in one pass: rounding that the weights of a run have
/// gathered does not count. `drift(i)` bounds ‖·‖₁ of what separates a block's point from the convex
/// combination of vertices that it stands for.
///
/// # Errors
/// [`crate::Error::Interrupted`].
pub fn dual_value<D: BlockDual>(
    dual: &mut D,
    points: &Points<'_>,
    drift: &dyn Fn(usize) -> f64,
    interrupt: &Interrupt,
) -> Result<DualValue> {
    let (lambda, smoothing) = (dual.shares().lambda(), dual.shares().smoothing());
    let mut weights = vec![0.0; dual.n_weights()];
    let (mut totals, mut direction) = (Totals::default(), Sparse::new());
    for block in 0..dual.shares().n_blocks() {
        interrupt.check()?;
        let share = dual.shares().of(block);
        if share == 0.0 {
            continue;
        }
        let (point, start) = (points(block), dual.start(block));
        sparse::subtract(point, &start, &mut direction);
        let rounding = gamma(2) * (length(point) + length(&start));
        let defect = dual.defect(block, point, &|| drift(block)) + rounding;
        let (scales, length) = (dual.scales(block), length(&direction));
        if length == 0.0 && defect == 0.0 {
            continue;
        }
        let mut image = dual.image(block, &direction);
        image.add_to(1.0, &mut weights);
        let (linear, bend) = (image.linear(), image.bend());
        let error = scales.cost * (gamma(direction.len() + 4) * length + defect);
        totals.linear.add(Bounded::new(linear, error) * Bounded::exact(share));
        // ‖α + δ‖ ≤ ‖α‖ + √2 ‖δ‖₁.
        let longest = root_above(bend) * (1.0 + gamma(direction.len() + 4))
            + 1.5 * root_above(smoothing) * defect;
        totals.bend += share * longest * longest;
        let unit = share / lambda * scales.feature;
        let n_products = (direction.len() * scales.n_features) as f64;
        totals.reach += unit * length;
        totals.repair += unit * defect + n_products * TINY * (1.0 + scales.feature);
        totals.n_blocks += 1;
        totals.n_parts = totals.n_parts.max(direction.len());
    }
    let Totals { linear, bend, reach, repair, n_blocks, n_parts } = totals;
    let depth = gamma(n_blocks + n_parts + 8);
    let grown = 1.0 + gamma(dual.shares().n_blocks() + 8);
    let norm = norm_above(&weights) + (depth * reach + repair) * grown;
    Ok(DualValue::of(lambda, linear.total(), norm * (1.0 + gamma(4)), bend * grown))
}

/// ‖δ‖₁, up to rounding.
fn length(direction: &[(u32, f64)]) -> f64 {
    let size: f64 = direction.iter().map(|(_, value)| value.abs()).sum();
    size * (1.0 + gamma(direction.len()))
}
