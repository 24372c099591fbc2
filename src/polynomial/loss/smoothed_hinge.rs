//! The smoothed multi-class hinge.

use super::{LossTarget, OutputLoss, TargetKind, log_sum_exp};
use crate::linalg::softmax;

/// Smoothed multi-class hinge: log(1 + Σ_{c≠y} exp(1 + o_c − o_y)) (Blondel et al. 2017,
/// Table 3).
#[derive(Debug, Clone, Copy)]
pub struct SmoothedHinge;

impl OutputLoss for SmoothedHinge {
    fn value_and_gradient(
        &self,
        target: LossTarget<'_>,
        outputs: &[f64],
        gradient: &mut [f64],
    ) -> f64 {
        let label = target.class();
        for (slot, output) in gradient.iter_mut().zip(outputs) {
            *slot = output + 1.0;
        }
        gradient[label] = outputs[label];
        let value = softmax(gradient) - outputs[label];
        gradient[label] -= 1.0;
        value.max(0.0)
    }

    fn value(&self, target: LossTarget<'_>, outputs: &[f64]) -> f64 {
        let label = target.class();
        let raised = outputs.iter().enumerate();
        let raised = raised.map(|(class, o)| if class == label { *o } else { o + 1.0 });
        (log_sum_exp(raised) - outputs[label]).max(0.0)
    }

    fn smoothness(&self, _n_outputs: usize) -> f64 {
        0.5
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }
}
