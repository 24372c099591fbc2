//! Projected quasi-Newton steps for a costly smooth function over a set with a cheap projection
//! (Schmidt et al. 2009).

use super::curvature::{Constrained, Hessian};
use crate::error::Result;
use crate::linalg::vectors::long_dot;
use crate::solver::shorter_step;

/// Number of consecutive small gains after which the search ends. It is above 1 because the first
/// steps, without remembered pairs, often gain little.
const MAX_SMALL_GAINS: usize = 10;

/// Stopping rule of a search.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest gain of a step that counts as small.
    pub tol: f64,
    /// Largest fraction of the total gain so far that counts as a small gain.
    pub share: f64,
    /// Maximum number of steps.
    pub max_steps: usize,
}

/// If this number of consecutive steps each gain only a small fraction of the total gain, the search is close to the
/// minimum, and ends.
const MAX_SMALL_SHARES: usize = 3;

/// Initial curvature of a search, in units of the metric.
pub(super) const FIRST_CURVATURE: f64 = 1.0;

/// Decreases f from a point x of the set until steps gain too little. Returns f(x), which never
/// increases.
///
/// Each step minimises a quadratic model, with the L-BFGS approximation of the Hessian, over the
/// set by projected gradients. A line search then moves x towards the minimiser until f decreases
/// enough. `hessian` is the initial approximation; on return it is the final approximation.
pub fn minimise(
    problem: &mut impl Constrained,
    x: &mut Vec<f64>,
    hessian: &mut Hessian,
    limits: Limits,
) -> Result<f64> {
    let Limits { tol, share, max_steps } = limits;
    let mut gradient = Vec::new();
    let mut value = problem.evaluate(x, &mut gradient)?;
    let before = value;
    let (mut trial, mut trial_gradient) = (x.clone(), Vec::new());
    let (mut small_gains, mut small_shares) = (0, 0);
    for _ in 0..max_steps {
        let direction = hessian.model_step(problem, x, &gradient)?.unwrap_or_default();
        let slope = long_dot(&direction, &gradient);
        let line = Line { x, direction: &direction, value, slope };
        let Some(next) = line.search(problem, &mut trial, &mut trial_gradient)? else {
            // Without the remembered pairs, there may still be a step that decreases f.
            if !hessian.has_memory() {
                break;
            }
            hessian.forget(FIRST_CURVATURE);
            continue;
        };
        let gain = value - next;
        let difference =
            |new: &[f64], old: &[f64]| new.iter().zip(old).map(|(n, o)| n - o).collect();
        hessian.push(problem, difference(&trial, x), difference(&trial_gradient, &gradient));
        std::mem::swap(x, &mut trial);
        std::mem::swap(&mut gradient, &mut trial_gradient);
        value = next;
        small_gains = if gain <= tol { small_gains + 1 } else { 0 };
        small_shares = if gain <= share * (before - value) { small_shares + 1 } else { 0 };
        if small_gains == MAX_SMALL_GAINS || small_shares == MAX_SMALL_SHARES {
            break;
        }
    }
    Ok(value)
}

/// A search direction, with the function's value and slope at its start.
struct Line<'a> {
    x: &'a [f64],
    direction: &'a [f64],
    value: f64,
    slope: f64,
}

impl Line<'_> {
    /// Tries step length 1 and then smaller lengths until f decreases enough. Returns the new
    /// value, and leaves the new point and gradient in `trial` and `gradient`. Returns None if no
    /// length works.
    fn search(
        &self,
        problem: &mut impl Constrained,
        trial: &mut [f64],
        gradient: &mut Vec<f64>,
    ) -> Result<Option<f64>> {
        let Self { x, direction, value, slope } = *self;
        let mut step = 1.0;
        while slope < 0.0 && step >= 1e-10 {
            for ((trial, x), d) in trial.iter_mut().zip(x).zip(direction) {
                *trial = x + step * d;
            }
            let next = problem.evaluate(trial, gradient)?;
            match shorter_step(step, slope, value, next) {
                None => return Ok(Some(next)),
                Some(shorter) => step = shorter,
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vectors::dot;

    const LIMITS: Limits = Limits { tol: 0.0, share: 0.0, max_steps: 500 };

    /// Rosenbrock's function on the unit disc. The minimum lies on the circle; the test compares the result with the
    /// best point of a fine grid of angles.
    struct Valley;

    impl Constrained for Valley {
        fn evaluate(&mut self, x: &[f64], gradient: &mut Vec<f64>) -> Result<f64> {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            *gradient = vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b];
            Ok(a * a + 100.0 * b * b)
        }

        fn project(&self, x: &mut [f64]) -> Result<()> {
            let length = dot(x, x).sqrt().max(1.0);
            x.iter_mut().for_each(|x| *x /= length);
            Ok(())
        }
    }

    #[test]
    fn a_curved_valley_is_followed_to_the_edge_of_the_set() {
        let mut x = vec![-0.5, 0.5];
        let mut hessian = Hessian::new(FIRST_CURVATURE, 2);
        let value = minimise(&mut Valley, &mut x, &mut hessian, LIMITS).unwrap();
        // The value at the best point of the grid.
        let best = (0..1_000_000)
            .map(|i| {
                let angle = f64::from(i) * 1e-6;
                Valley.evaluate(&[angle.cos(), angle.sin()], &mut Vec::new()).unwrap()
            })
            .fold(f64::INFINITY, f64::min);
        assert!((value - best).abs() < 1e-9, "{value} {best}");
        assert!(dot(&x, &x) <= 1.0 + 1e-12);
    }
}
