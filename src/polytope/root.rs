//! Roots of monotone piecewise linear functions of one variable: Newton's method inside a bracket.

/// The linear piece of a decreasing piecewise linear function at some point, represented by its
/// root.
pub(super) struct LinearPiece {
    /// Root of the linear piece; infinite, with the right sign, if the piece is flat.
    pub root: f64,
    /// Size of the numbers from which the root was computed. The rounding error of the root is relative to this size.
    pub scale: f64,
}

impl LinearPiece {
    /// The piece with this value and slope at `point`. The rounding error of the value is relative
    /// to `noise`.
    #[inline(always)]
    pub fn linear(point: f64, value: f64, slope: f64, noise: f64) -> Self {
        // If the slope is 0, the sign of the value shows on which side of the point the root is.
        let met = value.abs() <= 4.0 * f64::EPSILON * noise;
        Self { root: if met { point } else { point + value / slope.abs() }, scale: point.abs() }
    }
}

/// Finds the root in \[`low`, `high`\] of the function whose linear piece at a point is `piece`,
/// starting from `start`.
///
/// After a few steps, Newton's method reaches the linear piece that contains the root and is then
/// exact up to rounding. Every eighth step, and each step that would leave the current bracket, is
/// replaced by bisection, so the search cannot fail.
#[inline(always)]
pub(super) fn root(
    low: f64,
    high: f64,
    start: f64,
    mut piece: impl FnMut(f64) -> LinearPiece,
) -> f64 {
    let (mut left, mut right) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut point = start.max(low).min(high);
    for step in 1..200 {
        let LinearPiece { root, scale } = piece(point);
        // The root may be an end point.
        let root = root.max(low).min(high);
        if (root - point).abs() <= 4.0 * f64::EPSILON * scale {
            return root;
        }
        if root > point {
            left = point;
        } else {
            right = point;
        }
        let is_eighth = step % 8 == 0;
        point = if left < root && root < right && !is_eighth {
            root
        } else {
            0.5 * (left.max(low) + right.min(high))
        };
        if !(left < point && point < right) {
            break;
        }
    }
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_steps_find_roots_at_kinks_and_end_points() {
        // f(x) = Σ_j max(0, v_j − x) − total.
        let v = [3.0, 2.5, 2.5, 1.0, -2.0];
        for (total, expected) in
            [(0.5, 2.5), (1.0, 7.0 / 3.0), (0.0, 3.0), (5.0, 1.0), (13.0, -1.0)]
        {
            for start in [-5.0, -1.0, 0.3, 1.0, 2.5, 2.9, 9.0] {
                let mut n_steps = 0;
                let found = root(-1.0, 3.0, start, |x| {
                    n_steps += 1;
                    let sum: f64 = v.iter().map(|v| (v - x).max(0.0)).sum();
                    let slope = v.iter().filter(|v| **v > x).count() as f64;
                    LinearPiece::linear(x, sum - total, -slope, total + 1.0)
                });
                assert!((found - expected).abs() < 1e-15, "{total} from {start}: {found}");
                assert!(n_steps <= 6, "{total} from {start}: {n_steps} steps");
            }
        }
    }

    #[test]
    fn a_root_at_zero_is_found_without_bisection() {
        let mut n_steps = 0;
        let found = root(0.0, 1.0, 0.7, |x| {
            n_steps += 1;
            LinearPiece { root: 0.0, scale: x }
        });
        assert_eq!((found, n_steps), (0.0, 2));
    }
}
