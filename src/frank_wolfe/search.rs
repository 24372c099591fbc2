//! Step sizes.

use crate::error::Result;
use crate::solver::shorter_step;

/// The rule for the step size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StepSize {
    /// Exact for quadratic functions and for functions with their own line search; otherwise the
    /// secant method.
    #[default]
    Auto,
    /// The step 2/(t + 2) in iteration t; only for the batch method.
    OpenLoop,
    /// The step that minimises the function along the direction, in closed form.
    Exact,
    /// The step at which the derivative along the direction is about 0, found by the secant method.
    Secant,
    /// Shortens the step until Armijo's condition holds; evaluates only values.
    Backtracking,
}

impl StepSize {
    /// All rules with their names.
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("open-loop", Self::OpenLoop),
        ("exact", Self::Exact),
        ("secant", Self::Secant),
        ("backtracking", Self::Backtracking),
    ];
}

/// Value and derivative of the function along a direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Along {
    pub value: f64,
    pub derivative: f64,
}

/// Maximum number of evaluations in a line search.
const MAX_TRIALS: usize = 40;

/// The secant method accepts a step if the absolute value of the derivative is at most this fraction of its initial
/// value, and the function has not risen.
const FLAT: f64 = 0.1;

/// Finds the step in (0, longest] at which the derivative of a convex function is about 0, or `longest` if the function
/// still falls there. Starts at the step `first`. Returns 0 if there is no such step in floating point. The last call
/// of `evaluate` is at the returned step, unless that is 0.
pub(super) fn secant(
    start: Along,
    first: f64,
    longest: f64,
    evaluate: &mut dyn FnMut(f64) -> Result<Along>,
) -> Result<f64> {
    // The derivative is negative at `low` and positive at `high`.
    let (mut low, mut high) = ((0.0, start.derivative), None::<(f64, f64)>);
    let mut step = first.min(longest);
    for _ in 0..MAX_TRIALS {
        let Along { value, derivative } = evaluate(step)?;
        let is_flat = derivative.abs() <= -FLAT * start.derivative && value <= start.value;
        if is_flat || derivative <= 0.0 && step >= longest {
            return Ok(step);
        }
        let previous = low;
        if derivative < 0.0 {
            low = (step, derivative);
        } else {
            high = Some((step, derivative));
        }
        step = match high {
            Some((end, slope)) => {
                let width = end - low.0;
                let zero = low.0 - low.1 * (width / (slope - low.1));
                zero.clamp(low.0 + 0.05 * width, end - 0.05 * width)
            }
            None => {
                let zero = step - derivative * ((step - previous.0) / (derivative - previous.1));
                let far = 10.0 * step;
                if zero.is_finite() { zero.clamp(2.0 * step, far) } else { far }.min(longest)
            }
        };
        if !(step > low.0 && high.is_none_or(|(end, _)| step < end)) {
            break;
        }
    }
    if low.0 > 0.0 {
        evaluate(low.0)?;
    }
    Ok(low.0)
}

/// Shortens the step, starting at `first`, until the value is low enough. Returns 0 if there is no such step in
/// floating point. The last call of `evaluate` is at the returned step, unless that is 0.
pub(super) fn backtracking(
    start: Along,
    first: f64,
    evaluate: &mut dyn FnMut(f64) -> Result<Along>,
) -> Result<f64> {
    let mut step = first;
    for _ in 0..MAX_TRIALS {
        let value = evaluate(step)?.value;
        match shorter_step(step, start.derivative, start.value, value) {
            None => return Ok(step),
            Some(shorter) => step = shorter,
        }
    }
    Ok(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of both searches on f(x) = eˣ − 3x, whose minimum is at ln 3.
    fn searched(first: f64, longest: f64) -> (f64, f64) {
        let at = |x: f64| Along { value: x.exp() - 3.0 * x, derivative: x.exp() - 3.0 };
        let mut last = 0.0;
        let mut evaluate = |x: f64| {
            last = x;
            Ok(at(x))
        };
        let by_secant = secant(at(0.0), first, longest, &mut evaluate).unwrap();
        assert_eq!(last, by_secant);
        let mut evaluate = |x: f64| Ok(at(x));
        (by_secant, backtracking(at(0.0), longest, &mut evaluate).unwrap())
    }

    #[test]
    fn searches_end_near_the_minimum_or_at_the_longest_step() {
        let minimum = 3f64.ln();
        for first in [1e-6, 0.1, 1.0, 5.0] {
            let (by_secant, shorter) = searched(first, 10.0);
            assert!((by_secant.exp() - 3.0).abs() <= 0.2, "{by_secant} {minimum}");
            assert!(shorter > 0.0 && shorter.exp() - 3.0 * shorter < 1.0, "{shorter}");
        }
        assert_eq!(searched(1.0, 0.25), (0.25, 0.25));
    }
}
