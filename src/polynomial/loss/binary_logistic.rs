//! The binary logistic loss of each output.

use super::{LossTarget, OutputLoss, TargetKind};
use crate::linalg::exp_minus;

/// Binary logistic per output, targets ±1: Σ_c log(1 + exp(−y_c o_c)) (Blondel et al. 2017,
/// section 6.5; docs/mathematics/polynomial-networks.md#losses).
#[derive(Debug, Clone, Copy)]
pub struct BinaryLogistic;

impl OutputLoss for BinaryLogistic {
    fn value_and_gradient(
        &self,
        target: LossTarget<'_>,
        outputs: &[f64],
        gradient: &mut [f64],
    ) -> f64 {
        for ((slot, output), target) in gradient.iter_mut().zip(outputs).zip(target.values()) {
            let margin = target * output;
            // The exponential is at most 1, so it cannot overflow.
            let small = exp_minus(margin.abs());
            let wrong = if margin > 0.0 { small } else { 1.0 };
            *slot = -target * wrong / (1.0 + small);
        }
        self.value(target, outputs)
    }

    fn value(&self, target: LossTarget<'_>, outputs: &[f64]) -> f64 {
        let mut value = 0.0;
        // One logarithm of a product replaces many logarithms. A product of 512 factors of at most
        // 2 cannot overflow.
        for (outputs, targets) in outputs.chunks(512).zip(target.values().chunks(512)) {
            let mut product = 1.0;
            for (output, target) in outputs.iter().zip(targets) {
                let margin = target * output;
                product *= 1.0 + exp_minus(margin.abs());
                value += (-margin).max(0.0);
            }
            value += product.ln();
        }
        value
    }

    fn smoothness(&self, _n_outputs: usize) -> f64 {
        0.25
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Signs
    }
}
