//! The squared error.

use super::{LossTarget, OutputLoss, TargetKind};

/// Squared error over the outputs: ½‖y − o‖² (docs/mathematics/polynomial-networks.md#losses).
#[derive(Debug, Clone, Copy)]
pub struct Squared;

impl OutputLoss for Squared {
    fn value_and_gradient(
        &self,
        target: LossTarget<'_>,
        outputs: &[f64],
        gradient: &mut [f64],
    ) -> f64 {
        let mut value = 0.0;
        for ((slot, output), target) in gradient.iter_mut().zip(outputs).zip(target.values()) {
            *slot = output - target;
            value += 0.5 * *slot * *slot;
        }
        value
    }

    fn value(&self, target: LossTarget<'_>, outputs: &[f64]) -> f64 {
        let errors = outputs.iter().zip(target.values()).map(|(o, y)| o - y);
        errors.map(|error| 0.5 * error * error).sum()
    }

    fn smoothness(&self, _n_outputs: usize) -> f64 {
        1.0
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Values
    }
}
