//! The multi-class squared hinge.

use super::{LossTarget, OutputLoss, TargetKind};

/// Multi-class squared hinge: Σ_{c≠y} max(0, 1 + o_c − o_y)² (Blondel et al. 2017, Table 3).
#[derive(Debug, Clone, Copy)]
pub struct SquaredHinge;

impl OutputLoss for SquaredHinge {
    fn value_and_gradient(
        &self,
        target: LossTarget<'_>,
        outputs: &[f64],
        gradient: &mut [f64],
    ) -> f64 {
        let label = target.class();
        let (mut value, mut total) = (0.0, 0.0);
        for (class, (slot, output)) in gradient.iter_mut().zip(outputs).enumerate() {
            let violation =
                if class == label { 0.0 } else { (1.0 + output - outputs[label]).max(0.0) };
            value += violation * violation;
            total += violation;
            *slot = 2.0 * violation;
        }
        gradient[label] = -2.0 * total;
        value
    }

    fn value(&self, target: LossTarget<'_>, outputs: &[f64]) -> f64 {
        let label = target.class();
        let margins = outputs.iter().map(|o| (1.0 + o - outputs[label]).max(0.0).powi(2));
        // The sum includes the label itself, which contributes 1.
        margins.sum::<f64>() - 1.0
    }

    fn smoothness(&self, n_outputs: usize) -> f64 {
        2.0 * n_outputs as f64
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }
}
