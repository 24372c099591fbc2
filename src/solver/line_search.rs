//! Backtracking line search with quadratic interpolation.

/// Constant of Armijo's sufficient decrease condition.
const SUFFICIENT_DECREASE: f64 = 1e-4;

/// Returns None if `step` is accepted: its value `next` is low enough compared with `value`, the value at step 0.
/// Otherwise returns the next step to try. `slope` is the slope at step 0.
pub(crate) fn shorter_step(step: f64, slope: f64, value: f64, next: f64) -> Option<f64> {
    if next <= value + SUFFICIENT_DECREASE * step * slope {
        return None;
    }
    // The minimiser of the parabola through both values and the slope.
    let best = -0.5 * step * slope * step / (next - value - step * slope);
    Some(if best > 0.1 * step && best < 0.5 * step { best } else { 0.3 * step })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_at_the_minimum_of_the_parabola() {
        // x² − x from 0: the minimum is at 1/2, and the value at 1 is 0.
        let value = |x: f64| x * x - x;
        assert_eq!(shorter_step(0.5, -1.0, 0.0, value(0.5)), None);
        assert_eq!(shorter_step(2.0, -1.0, 0.0, value(2.0)), Some(0.5));
        // The minimum of the parabola is too close to 0 here, and a NaN carries no information.
        assert_eq!(shorter_step(100.0, -1.0, 0.0, value(100.0)), Some(30.0));
        assert_eq!(shorter_step(1.0, -1.0, 0.0, f64::NAN), Some(0.3));
    }
}
