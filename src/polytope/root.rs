//! Roots of monotone piecewise linear functions of one variable: Newton's method inside a bracket.

/// What a falling piecewise linear function says about its root, seen from one point.
pub(super) struct Piece {
    /// Root of the linear piece at the point; infinite, with the right sign, where the piece is flat.
    pub root: f64,
    /// Size of the numbers it was computed from: it is known to rounding in these.
    pub scale: f64,
}

impl Piece {
    /// The piece with this value and slope at `point`; the value is known to rounding in `noise`.
    #[inline(always)]
    pub fn linear(point: f64, value: f64, slope: f64, noise: f64) -> Self {
        // A slope of 0 leaves the sign of the value to say where to look.
        let met = value.abs() <= 4.0 * f64::EPSILON * noise;
        Self { root: if met { point } else { point + value / slope.abs() }, scale: point.abs() }
    }
}

/// The root in \[`low`, `high`\], starting from `start`, of the function that `piece` describes.
///
/// Newton's method ends after a few steps, on the root's own piece, where it is exact to rounding. The
/// bracket takes over where it would leave the interval or only creep, so that it cannot fail.
#[inline(always)]
pub(super) fn root(
    mut low: f64,
    mut high: f64,
    start: f64,
    mut piece: impl FnMut(f64) -> Piece,
) -> f64 {
    let mut point = start.max(low).min(high);
    for step in 1..200 {
        let Piece { root, scale } = piece(point);
        if (root - point).abs() <= 4.0 * f64::EPSILON * scale {
            return root.max(low).min(high);
        }
        if root > point {
            low = point;
        } else {
            high = point;
        }
        let creeps = step % 8 == 0;
        point = if low < root && root < high && !creeps { root } else { 0.5 * (low + high) };
        if !(low < point && point < high) {
            break;
        }
    }
    point
}
