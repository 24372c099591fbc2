//! The polytope of the top-k hinge.

use super::capped::Capped;
use super::distance::{excess, overshoot, parts};
use super::faces::face_between;
use super::root::{LinearPiece, root};
use super::select::largest;
use super::{CappedBox, Polytope, Scratch, VERTICAL, replace_by_vertex};
use crate::dual::Curvatures;
use crate::dual::rounding::gamma;
use crate::error::{Error, Result};
use crate::linalg::Sparse;

/// The set conv({0} ∪ permutations of (1/k, .., 1/k, 0, ..)) = {0 <= β_j <= 1ᵀβ/k, 1ᵀβ <= 1} of the
/// top-k hinge max(0, mean of the k largest v_j) (Lapin et al. 2015; Tajima et al. 2020, 2.5 and 2.11;
/// docs/mathematics/polytopes.md#the-sets).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopK {
    k: usize,
}

impl TopK {
    /// The top-k set for k >= 1.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for k = 0.
    pub fn new(k: usize) -> Result<Self> {
        if k == 0 { Err(Error::argument("k", "must be at least 1")) } else { Ok(Self { k }) }
    }
}

/// The projection. For a given size ζ = 1ᵀβ, the coordinates off the label are at most ζ/k, and their sum is ζ minus
/// the label's share, which is between 0 and ζ/k. The derivative of the minimum with respect to ζ is monotone and
/// piecewise linear, so a second root search finds ζ.
impl TopK {
    /// The set of the coordinates off the label for a given ζ.
    fn scaled(&self, size: f64, bias: f64) -> Capped {
        let upper = size / self.k as f64;
        let floor = if self.k == 1 { 0.0 } else { size - upper };
        Capped { upper, floor, cap: size, bias }
    }

    /// If rounding has moved a point with large margins out of the set, replaces the point by the vertex of the largest
    /// margins, which is then as good as the projection.
    fn replace_if_outside(
        &self,
        v: &[f64],
        label: usize,
        tau: f64,
        scratch: &mut Scratch,
        beta: &mut [f64],
    ) {
        if tau.abs() > VERTICAL {
            replace_by_vertex(self, v, label, scratch, beta);
        }
    }

    /// −d/dζ of the minimum over the coordinates off the label, as a linear piece of a function of ζ.
    ///
    /// With μ = τ − bias·1ᵀb, its value is κ = μ + (Σ_j max(0, v_j − τ − ζ/k) + max(0, −μ)) / k. Raising ζ moves the
    /// bounds ζ/k of all coordinates, and also the bound on their sum if it is active (μ ≠ 0).
    fn pull(&self, size: f64, bias: f64, v: &[f64], tau: f64) -> LinearPiece {
        let set = self.scaled(size, bias);
        let k = self.k as f64;
        let (sum, n_between) = set.sum(v, tau);
        let (overshoot, n_upper) = set.overshoot(v, tau);
        let scale = tau.abs() + bias * sum + overshoot / k;
        let mu = tau - bias * sum;
        let bound = if mu.abs() <= 1e-13 * scale {
            None
        } else {
            // d(1ᵀb)/dζ: 1 if the sum is at the cap, and 1 − 1/k if it is at the floor.
            Some(if mu > 0.0 { 1.0 } else { 1.0 - 1.0 / k })
        };
        let (mu, mu_slope, tau_slope) = match bound {
            None => (0.0, 0.0, bias * n_upper / k / (1.0 + bias * n_between)),
            Some(sum_slope) => {
                let free = n_between > 0.0;
                let tau_slope = if free { (n_upper / k - sum_slope) / n_between } else { 0.0 };
                (mu, tau_slope - bias * sum_slope, tau_slope)
            }
        };
        let label_share = if mu < 0.0 { 1.0 - 1.0 / k } else { 1.0 };
        let pull = label_share * mu + overshoot / k;
        let slope = label_share * mu_slope - n_upper / k * (tau_slope + 1.0 / k);
        LinearPiece::linear(size, pull, slope, scale)
    }
}

/// Checks that k is below the number of classes, so that the last of the weights is 0
/// (docs/mathematics/polytopes.md#the-sets).
pub(super) fn check_k(k: usize, n_classes: usize) -> Result<()> {
    if k < n_classes {
        return Ok(());
    }
    Err(Error::argument(
        "k",
        format!("must be below the number of classes (k = {k} with {n_classes} classes)"),
    ))
}

impl Polytope for TopK {
    fn check(&self, n_classes: usize) -> Result<()> {
        check_k(self.k, n_classes)
    }

    fn support(&self, v: &[f64], _: usize, scratch: &mut Scratch) -> f64 {
        largest(v, self.k, false, scratch);
        let sum: f64 = scratch.order.iter().map(|&class| v[class]).sum();
        (sum / self.k as f64).max(0.0)
    }

    fn vertex(&self, v: &[f64], label: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let loss = self.support(v, label, scratch);
        if loss > 0.0 {
            let others = scratch.order.iter().filter(|class| **class != label);
            vertex.extend(others.map(|&class| (class as u32, 1.0 / self.k as f64)));
        }
        loss
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let mut tau = scratch.take_guess();
        if self.support(v, label, scratch) <= 0.0 {
            beta.fill(0.0);
            scratch.multiplier = 0.0;
            return;
        }
        let others = &mut scratch.values;
        others.clear();
        others.extend_from_slice(v);
        others[label] = f64::NEG_INFINITY;
        let size = root(0.0, 1.0, 1.0, |size| {
            tau = self.scaled(size, bias).multiplier(others, tau);
            self.pull(size, bias, others, tau)
        });
        let set = self.scaled(size, bias);
        tau = set.multiplier(others, tau);
        set.write(others, tau, beta);
        scratch.multiplier = tau;
        self.replace_if_outside(v, label, tau, scratch, beta);
    }

    fn curvature(
        &self,
        beta: &[f64],
        label: usize,
        scratch: &mut Scratch,
        curvatures: &mut Curvatures,
    ) {
        let share = |place: usize| if place < self.k { 1.0 / self.k as f64 } else { 0.0 };
        let rho = (0..beta.len()).map(share);
        let room = (&mut scratch.order, &mut scratch.work);
        face_between(beta, label, rho, room, curvatures);
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, _: usize) -> f64 {
        let (sum, negative) = parts(beta);
        let (largest, k) =
            (beta.iter().map(|(_, value)| *value).fold(0.0, f64::max), self.k as f64);
        let size = sum.upper().max(k * largest).min(1.0);
        let rounding = gamma(8) * size;
        let above = overshoot(beta, size / k) + rounding * beta.len() as f64;
        let missing = (size * (1.0 - 1.0 / k) - sum.lower()).max(0.0) + rounding;
        // Reducing coordinates to their upper bounds lowers the sum by `above`, and may move it below its lower bound.
        2.0 * above + excess(sum, size) + missing + negative
    }

    fn capped_box(&self) -> Option<CappedBox> {
        // Let s be the sum of all coordinates except the label's. The label's coordinate may add up to s/(k − 1) to the
        // full sum, so the bound 1ᵀβ/k becomes β_j <= s/(k − 1). If s >= 1 − 1/k, β_j <= 1/k implies this bound.
        let upper = 1.0 / self.k as f64;
        Some(CappedBox { upper, cap: 1.0, floor: if self.k == 1 { 0.0 } else { 1.0 - upper } })
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, _: usize) -> f64 {
        1.0
    }
}
