use super::{OutputLoss, Target};

/// Binary logistic per output, targets ±1: Σ_c log(1 + exp(−y_c o_c)) (SPEC 7, 8).
#[derive(Debug, Clone, Copy)]
pub struct BinaryLogistic;

impl OutputLoss for BinaryLogistic {
    fn value_and_gradient(&self, target: Target<'_>, outputs: &[f64], gradient: &mut [f64]) -> f64 {
        let mut value = 0.0;
        for ((slot, output), target) in gradient.iter_mut().zip(outputs).zip(target.values()) {
            let margin = target * output;
            // exp of a negative number only: neither branch overflows.
            let small = (-margin.abs()).exp();
            value += small.ln_1p() + (-margin).max(0.0);
            let wrong = if margin > 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) };
            *slot = -target * wrong;
        }
        value
    }

    fn smoothness(&self, _n_outputs: usize) -> f64 {
        0.25
    }

    fn takes_classes(&self) -> bool {
        false
    }
}
