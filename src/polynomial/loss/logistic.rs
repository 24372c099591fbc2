//! The multi-class logistic loss.

use super::{LossTarget, OutputLoss, TargetKind, log_sum_exp};
use crate::linalg::softmax;

/// Multi-class logistic: log Σ_c exp(o_c − o_y) (Blondel et al. 2017, Table 3).
#[derive(Debug, Clone, Copy)]
pub struct Logistic;

impl OutputLoss for Logistic {
    fn value_and_gradient(
        &self,
        target: LossTarget<'_>,
        outputs: &[f64],
        gradient: &mut [f64],
    ) -> f64 {
        let label = target.class();
        gradient.copy_from_slice(outputs);
        let value = softmax(gradient) - outputs[label];
        gradient[label] -= 1.0;
        // Rounding may make a loss of 0 slightly negative.
        value.max(0.0)
    }

    fn value(&self, target: LossTarget<'_>, outputs: &[f64]) -> f64 {
        (log_sum_exp(outputs.iter().copied()) - outputs[target.class()]).max(0.0)
    }

    fn smoothness(&self, _n_outputs: usize) -> f64 {
        0.5
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }
}
