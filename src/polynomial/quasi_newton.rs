//! Projected quasi-Newton steps for a costly smooth function over a set with a cheap projection
//! (Schmidt et al. 2009).

use std::collections::VecDeque;

use crate::error::Result;
use crate::linalg::vectors::{axpy, dot};

/// A smooth function on a closed convex set.
pub trait Constrained {
    /// f(x), with ∇f(x) written to `gradient`.
    fn evaluate(&mut self, x: &[f64], gradient: &mut Vec<f64>) -> Result<f64>;

    /// Moves x to the nearest point of the set.
    fn project(&self, x: &mut [f64]) -> Result<()>;

    /// P v, the first model of the curvature up to a factor.
    fn metric(&self, v: &[f64]) -> Vec<f64> {
        v.to_vec()
    }

    /// P⁻¹ v.
    fn solve(&self, v: &[f64]) -> Vec<f64> {
        v.to_vec()
    }
}

/// Maximum number of remembered pairs of steps and gradient changes.
const MEMORY: usize = 10;

/// Maximum number of values in all pairs together, unless two pairs have more.
const MEMORY_SIZE: usize = 1 << 21;

/// Maximum number of steps towards the minimiser of the quadratic model.
const MODEL_STEPS: usize = 30;

/// Share of the model's decrease below which a step towards its minimiser is the last.
const MODEL_TOL: f64 = 1e-2;

/// Small gains in a row after which nothing more is expected: the first steps of a model without memory
/// are often small.
const PATIENCE: usize = 10;

/// Armijo's constant.
const SUFFICIENT_DECREASE: f64 = 1e-4;

/// When steps end.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Gain of a step that is not worth another one.
    pub tol: f64,
    /// The same as a share of what all steps have gained.
    pub share: f64,
    /// Largest number of steps.
    pub max_steps: usize,
}

/// Steps in a row with a small share of the whole gain after which a rough minimum is reached.
const SHARE_PATIENCE: usize = 3;

/// Lowers f from a point x of the set until steps gain too little; returns f(x), which never rises.
///
/// Each step minimises the quadratic model with the L-BFGS approximation of the Hessian over the set by
/// projected gradients, and goes so far towards that point as lowers f enough. `curvature` is that of
/// the first model.
pub fn minimise(
    problem: &mut impl Constrained,
    x: &mut Vec<f64>,
    curvature: f64,
    limits: Limits,
) -> Result<f64> {
    let Limits { tol, share, max_steps } = limits;
    let mut gradient = Vec::new();
    let mut value = problem.evaluate(x, &mut gradient)?;
    let before = value;
    let mut hessian = Hessian::new(curvature);
    let (mut trial, mut trial_gradient) = (x.clone(), Vec::new());
    let (mut small_gains, mut small_shares) = (0, 0);
    for _ in 0..max_steps {
        let direction = hessian.model_step(problem, x, &gradient)?;
        let slope = dot(&direction, &gradient);
        if slope >= 0.0 || slope.is_nan() {
            break;
        }
        let mut step = 1.0;
        let next = loop {
            for ((trial, x), d) in trial.iter_mut().zip(&*x).zip(&direction) {
                *trial = x + step * d;
            }
            let next = problem.evaluate(&trial, &mut trial_gradient)?;
            if next <= value + SUFFICIENT_DECREASE * step * slope {
                break Some(next);
            }
            // The minimiser of the parabola through both values and the slope.
            let best = -0.5 * step * slope * step / (next - value - step * slope);
            step = if best > 0.1 * step && best < 0.5 * step { best } else { 0.3 * step };
            if step < 1e-10 {
                break None;
            }
        };
        let Some(next) = next else {
            // A model without memory may still find a way down.
            if hessian.pairs.is_empty() {
                break;
            }
            hessian = Hessian::new(curvature);
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
        if small_gains == PATIENCE || small_shares == SHARE_PATIENCE {
            break;
        }
    }
    Ok(value)
}

/// The L-BFGS approximation σ P + Σ_j (b_j b_jᵀ − a_j a_jᵀ) with b = y/√(yᵀs) and a = B s/√(sᵀB s), B
/// being the sum up to j.
struct Hessian {
    sigma: f64,
    pairs: VecDeque<(Vec<f64>, Vec<f64>)>,
    terms: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Hessian {
    fn new(sigma: f64) -> Self {
        Self { sigma, pairs: VecDeque::new(), terms: Vec::new() }
    }

    /// Takes in a step and the gradient's change along it, unless f is not convex there.
    fn push(&mut self, problem: &impl Constrained, s: Vec<f64>, y: Vec<f64>) {
        let curvature = dot(&s, &y);
        let floor = 1e-10 * (dot(&s, &s) * dot(&y, &y)).sqrt();
        if curvature <= floor || curvature.is_nan() {
            return;
        }
        self.sigma = dot(&y, &problem.solve(&y)) / curvature;
        let memory = (MEMORY_SIZE / s.len()).clamp(2, MEMORY);
        self.pairs.push_back((s, y));
        if self.pairs.len() > memory {
            self.pairs.pop_front();
        }
        self.terms.clear();
        for (s, y) in &self.pairs {
            let mut a = self.product(problem, s);
            let (sbs, sy) = (dot(s, &a), dot(s, y));
            a.iter_mut().for_each(|a| *a /= sbs.sqrt());
            self.terms.push((a, y.iter().map(|y| y / sy.sqrt()).collect()));
        }
    }

    /// B v.
    fn product(&self, problem: &impl Constrained, v: &[f64]) -> Vec<f64> {
        let mut product = problem.metric(v);
        product.iter_mut().for_each(|product| *product *= self.sigma);
        for (a, b) in &self.terms {
            let (along_a, along_b) = (dot(a, v), dot(b, v));
            for ((product, a), b) in product.iter_mut().zip(a).zip(b) {
                *product += along_b * b - along_a * a;
            }
        }
        product
    }

    /// −B⁻¹ g: the way to the minimiser where the set does not matter.
    fn newton_step(&self, problem: &impl Constrained, gradient: &[f64]) -> Vec<f64> {
        let mut q = gradient.to_vec();
        let mut shares = Vec::new();
        for (s, y) in self.pairs.iter().rev() {
            let share = dot(s, &q) / dot(s, y);
            axpy(&mut q, -share, y);
            shares.push(share);
        }
        let mut step = problem.solve(&q);
        step.iter_mut().for_each(|step| *step /= -self.sigma);
        for ((s, y), share) in self.pairs.iter().zip(shares.iter().rev()) {
            let other = dot(y, &step) / dot(s, y);
            axpy(&mut step, -share - other, s);
        }
        step
    }

    /// The way from x to the minimiser of gᵀd + dᵀB d/2 over the set, by projected gradients with
    /// Barzilai-Borwein lengths and exact line searches.
    fn model_step(
        &self,
        problem: &impl Constrained,
        x: &[f64],
        gradient: &[f64],
    ) -> Result<Vec<f64>> {
        let free = self.newton_step(problem, gradient);
        let ahead: Vec<f64> = x.iter().zip(&free).map(|(x, d)| x + d).collect();
        let mut target = ahead.clone();
        problem.project(&mut target)?;
        if target == ahead {
            return Ok(free);
        }
        let mut slope = gradient.to_vec();
        let mut d = vec![0.0; x.len()];
        let mut length = 1.0 / self.sigma;
        let mut decrease = 0.0;
        for _ in 0..MODEL_STEPS {
            for (((target, x), d), slope) in target.iter_mut().zip(x).zip(&d).zip(&slope) {
                *target = x + d - length * slope;
            }
            problem.project(&mut target)?;
            for ((target, x), d) in target.iter_mut().zip(x).zip(&d) {
                *target -= x + d;
            }
            let way = &target;
            let descent = dot(way, &slope);
            let bent = self.product(problem, way);
            let curvature = dot(way, &bent);
            if !(descent < 0.0 && curvature > 0.0) {
                break;
            }
            let step = (-descent / curvature).min(1.0);
            for ((d, slope), (way, bent)) in d.iter_mut().zip(&mut slope).zip(way.iter().zip(&bent))
            {
                *d += step * way;
                *slope += step * bent;
            }
            let gain = -step * (descent + 0.5 * step * curvature);
            decrease += gain;
            if gain <= MODEL_TOL * decrease {
                break;
            }
            length = dot(way, way) / curvature;
        }
        Ok(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { tol: 0.0, share: 0.0, max_steps: 500 };

    /// Rosenbrock's function in the disc of radius 1, where its minimum is known from a fine grid.
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
        let value = minimise(&mut Valley, &mut x, 1.0, LIMITS).unwrap();
        // The best point of the circle, by its angle.
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
