//! The line search along a Newton direction.

use super::blocks::Blocks;
use super::passes::Line;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::linalg::vectors::long_dot;

/// The derivative counts as 0 between these multiples of its absolute value at the start, so a step may end before the
/// minimum or slightly beyond it.
const FLAT_SLOPES: (f64, f64) = (-0.3, 0.05);
/// The largest step that a search returns.
const MAX_STEP: f64 = 64.0;
/// The minimum distance of a trial step from both ends of the bracket, as a share of the bracket.
const MARGIN: f64 = 0.1;
/// The maximum number of trial steps.
const MAX_TRIALS: usize = 40;

/// Finds a step along a direction at which the derivative of the inner problem is close to 0. Returns the step, the
/// derivative at the start divided by λ, and whether `points` are the maximisers at this step. `residual` is the
/// gradient at the start divided by λ.
pub(super) fn search<B: Blocks>(
    line: &Line<'_, B>,
    (weights, residual): (&[f64], &[f64]),
    direction: &[f64],
    points: &mut [f64],
    interrupt: &Interrupt,
) -> Result<(f64, f64, bool)> {
    let (along, square) = (long_dot(weights, direction), squared_norm(direction));
    let slope = long_dot(residual, direction);
    let mut last = 0.0;
    let step = zero_of_derivative(slope, |step| {
        last = step;
        Ok(along + step * square + line.slope(step, points, interrupt)?)
    })?;
    Ok((step, if step > 0.0 { slope } else { 0.0 }, step > 0.0 && step == last))
}

/// Finds a step at which an increasing, continuous derivative is close to 0, given `slope`, its value at 0.
/// Returns 0 unless that value is negative.
///
/// The search begins at the Newton step and doubles it while the derivative is negative. Then it takes secant steps
/// inside the bracket.
pub(in crate::solver) fn zero_of_derivative(
    slope: f64,
    mut derivative: impl FnMut(f64) -> Result<f64>,
) -> Result<f64> {
    if slope.is_nan() || slope >= 0.0 {
        return Ok(0.0);
    }
    let (mut low, mut high) = ((0.0, slope), None);
    let mut step = 1.0;
    for _ in 0..MAX_TRIALS {
        let at = derivative(step)?;
        if at.is_nan() {
            break;
        }
        if at >= FLAT_SLOPES.0 * -slope && at <= FLAT_SLOPES.1 * -slope {
            return Ok(step);
        }
        // Halve the value at the end of the bracket that stays (Illinois method). If the minimum is far below the first
        // step, plain secants converge no faster than bisection.
        if at < 0.0 {
            low = (step, at);
            high = high.map(|(far, rise)| (far, 0.5 * rise));
        } else {
            low.1 *= if high.is_some() { 0.5 } else { 1.0 };
            high = Some((step, at));
        }
        step = match high {
            None if step >= MAX_STEP => return Ok(step),
            None => 2.0 * step,
            Some((far, rise)) => {
                let width = far - low.0;
                let secant = low.0 - low.1 * width / (rise - low.1);
                // Avoids `clamp`, which would panic if an overflow made the secant NaN.
                secant.max(low.0 + MARGIN * width).min(far - MARGIN * width)
            }
        };
    }
    Ok(low.0)
}
