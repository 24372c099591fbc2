//! The simplex, the polytope of the max hinge.

use super::capped::Capped;
use super::distance::{excess, parts};
use super::faces::box_face;
use super::select::maximum;
use super::{CappedBox, Polytope, Scratch};
use crate::dual::Curvatures;
use crate::error::Result;
use crate::linalg::Sparse;

/// The simplex {β >= 0, 1ᵀβ <= 1} of the max hinge max(0, max_j v_j), Crammer and Singer's loss; with
/// a cost vector Δ it is the structured hinge (docs/mathematics/polytopes.md#the-sets).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxHinge;

impl Polytope for MaxHinge {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn support(&self, v: &[f64], _: usize, _: &mut Scratch) -> f64 {
        maximum(v).max(0.0)
    }

    fn vertex(&self, v: &[f64], label: usize, scratch: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let loss = self.support(v, label, scratch);
        if loss > 0.0 {
            vertex.extend(v.iter().position(|&v| v == loss).map(|class| (class as u32, 1.0)));
        }
        loss
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let set = Capped { upper: f64::INFINITY, floor: 0.0, cap: 1.0, bias };
        let guess = scratch.take_guess();
        scratch.multiplier = if bias == 1.0 {
            set.project_few(v, guess, beta)
        } else {
            let tau = set.multiplier(v, guess);
            set.write(v, tau, beta);
            tau
        };
        beta[label] = 0.0;
    }

    fn curvature(&self, beta: &[f64], label: usize, _: &mut Scratch, curvatures: &mut Curvatures) {
        box_face(beta, label, (f64::INFINITY, 1.0), curvatures);
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, _: usize) -> f64 {
        if let [(_, value)] = beta
            && (0.0..=1.0).contains(value)
        {
            return 0.0;
        }
        let (sum, negative) = parts(beta);
        excess(sum, 1.0) + negative
    }

    fn capped_box(&self) -> Option<CappedBox> {
        Some(CappedBox { floor: 0.0, upper: 1.0, cap: 1.0 })
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, _: usize) -> f64 {
        1.0
    }
}
