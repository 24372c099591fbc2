//! The cube, the polytope of the Weston-Watkins loss.

use super::capped::{Capped, positive_sum};
use super::distance::{overshoot, parts};
use super::faces::box_face;
use super::{CappedBox, Polytope, Scratch, walrus};
use crate::dual::Curvatures;
use crate::error::Result;
use crate::linalg::Sparse;

/// The cube \[0, 1\]^{m−1} of the Weston-Watkins loss Σ_{j≠y} max(0, v_j)
/// (docs/mathematics/polytopes.md#the-sets).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cube;

impl Polytope for Cube {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn support(&self, v: &[f64], _: usize, _: &mut Scratch) -> f64 {
        positive_sum(v)
    }

    fn vertex(&self, v: &[f64], _: usize, _: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let mut loss = 0.0;
        for (class, &v) in v.iter().enumerate() {
            if v > 0.0 {
                vertex.push((class as u32, 1.0));
                loss += v;
            }
        }
        loss
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, scratch: &mut Scratch, beta: &mut [f64]) {
        let tau = walrus::multiplier(v, 1.0, bias, scratch.take_guess());
        scratch.multiplier = tau;
        let set = Capped { upper: 1.0, floor: 0.0, cap: f64::INFINITY, bias };
        set.write(v, tau, beta);
        beta[label] = 0.0;
    }

    fn curvature(&self, beta: &[f64], label: usize, _: &mut Scratch, curvatures: &mut Curvatures) {
        box_face(beta, label, (1.0, f64::INFINITY), curvatures);
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, _: usize) -> f64 {
        overshoot(beta, 1.0) + parts(beta).1
    }

    fn capped_box(&self) -> Option<CappedBox> {
        Some(CappedBox { floor: 0.0, upper: 1.0, cap: f64::INFINITY })
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, n_classes: usize) -> f64 {
        (n_classes - 1) as f64
    }
}
