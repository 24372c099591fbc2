//! A greedy inner solver like Shark's (Igel et al. 2008; Wang and Scott 2021, section 5).

/// Improves b for max uᵀb − ½ bᵀ(I + 11ᵀ)b on \[0, c\]^k by exact steps in the coordinate that
/// violates its optimality condition most, until all violations are below `epsilon`. `gradient` is
/// the gradient at b, and is updated. Returns the number of steps.
pub fn shark(b: &mut [f64], gradient: &mut [f64], c: f64, epsilon: f64) -> usize {
    let max_steps = 10 * b.len();
    for step in 0..max_steps {
        // The coordinate of largest violation. Along one coordinate, the curvature is 2.
        let mut best = (0, 0.0);
        for (j, (&g, &b)) in gradient.iter().zip(&*b).enumerate() {
            let violation = if g > 0.0 && b < c {
                g
            } else if g < 0.0 && b > 0.0 {
                -g
            } else {
                0.0
            };
            if violation > best.1 {
                best = (j, violation);
            }
        }
        let (j, violation) = best;
        if violation < epsilon {
            return step;
        }
        let change = (b[j] + 0.5 * gradient[j]).clamp(0.0, c) - b[j];
        b[j] += change;
        for gradient in gradient.iter_mut() {
            *gradient -= change;
        }
        gradient[j] -= change;
    }
    max_steps
}
