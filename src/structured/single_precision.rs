//! Weights in single precision, which take half the space in model files.

/// Smallest relative tolerance of a fit whose weights are rounded. It is thousands of times larger than the relative
/// change of the objective that rounding causes.
const MIN_TOLERANCE: f64 = 1e-5;

/// Whether a fit to this relative tolerance may round its weights.
pub(crate) fn allows_single(tolerance: f64) -> bool {
    tolerance >= MIN_TOLERANCE
}

/// Rounds weights to single precision. Weights outside its range stay unchanged.
pub(crate) fn round_to_single(weights: &mut [f64]) {
    for weight in weights {
        let single = *weight as f32;
        if single.is_normal() {
            *weight = f64::from(single);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_in_the_range_of_single_precision_are_rounded() {
        let mut weights = [0.1, -3.5, 0.0, 1e-42, 1e40, -0.1];
        round_to_single(&mut weights);
        assert_eq!(weights, [f64::from(0.1_f32), -3.5, 0.0, 1e-42, 1e40, f64::from(-0.1_f32)]);
        assert!(allows_single(0.1) && !allows_single(1e-8));
    }
}
