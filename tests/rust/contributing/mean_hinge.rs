//! The polytope of the hinge of the mean margin.

use super::{Polytope, Scratch};
use crate::error::Result;
use crate::linalg::Sparse;

/// The segment {t/(m−1) · 1 : 0 <= t <= 1} of the hinge of the mean margin, max(0, mean_{j≠y} v_j).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanHinge;

/// The mean margin.
fn mean(v: &[f64]) -> f64 {
    v.iter().sum::<f64>() / (v.len() - 1) as f64 // the label's own margin is 0
}

impl Polytope for MeanHinge {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn support(&self, v: &[f64], _: usize, _: &mut Scratch) -> f64 {
        mean(v).max(0.0)
    }

    fn vertex(&self, v: &[f64], label: usize, _: &mut Scratch, vertex: &mut Sparse) -> f64 {
        vertex.clear();
        let (loss, share) = (mean(v).max(0.0), 1.0 / (v.len() - 1) as f64);
        if loss > 0.0 {
            let others = (0..v.len()).filter(|class| *class != label);
            vertex.extend(others.map(|class| (class as u32, share)));
        }
        loss
    }

    fn project(&self, v: &[f64], label: usize, bias: f64, _: &mut Scratch, beta: &mut [f64]) {
        // The minimum of t²/2 (1/(m−1) + bias) − t mean(v) over 0 <= t <= 1.
        let share = 1.0 / (v.len() - 1) as f64;
        beta.fill(share * (mean(v) / (share + bias)).clamp(0.0, 1.0));
        beta[label] = 0.0;
    }

    fn distance(&self, beta: &[(u32, f64)], _: usize, n_classes: usize) -> f64 {
        // Starts from the point whose coordinates all equal their mean, or the largest feasible value.
        let others = (n_classes - 1) as f64;
        let sum: f64 = beta.iter().map(|(_, value)| value).sum();
        let share = (sum / others).clamp(0.0, 1.0 / others);
        let missing = (others - beta.len() as f64) * share;
        let distance: f64 = beta.iter().map(|(_, value)| (value - share).abs()).sum();
        (distance + missing) + 2.0 * others * f64::EPSILON * sum
    }

    fn is_symmetric(&self) -> bool {
        true
    }

    fn radius(&self, _: usize) -> f64 {
        1.0
    }
}
