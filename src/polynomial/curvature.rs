//! The curvature that projected quasi-Newton steps estimate, and the quadratic model that they
//! minimise.

use std::collections::VecDeque;
use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView1, s};

use crate::error::Result;
use crate::linalg::cholesky::invert;
use crate::linalg::vectors::{axpy, dot, long_axpy, long_dot};
use crate::solver::{Memory, Pair};

/// A smooth function on a closed convex set.
pub trait Constrained {
    /// Returns f(x), and writes ∇f(x) to `gradient`.
    fn evaluate(&mut self, x: &[f64], gradient: &mut Vec<f64>) -> Result<f64>;

    /// Projects x onto the set. Only the confined coordinates change.
    fn project(&self, x: &mut [f64]) -> Result<()>;

    /// Returns how many of the `n` coordinates are confined to the set. These coordinates come first; all other
    /// coordinates are free.
    fn n_confined(&self, n: usize) -> usize {
        n
    }

    /// Returns P v, where P is the initial model of the curvature, up to a factor. P does not
    /// couple confined and free coordinates: it is any positive definite matrix on the confined
    /// coordinates, and the identity on the free coordinates.
    fn metric(&self, v: &[f64]) -> Vec<f64> {
        v.to_vec()
    }

    /// Returns P⁻¹ v, with the P of [`Self::metric`].
    fn solve(&self, v: &[f64]) -> Vec<f64> {
        v.to_vec()
    }
}

/// Maximum number of remembered pairs of steps and gradient changes, and the number that is always
/// allowed.
const MAX_PAIRS: usize = 10;
const MIN_PAIRS: usize = 2;

/// Maximum total number of values in the remembered steps; two steps are always allowed. The gradient changes need the
/// same amount of memory in addition.
const MEMORY_SIZE: usize = 1 << 23;

/// The number of remembered pairs for points of `size` coordinates.
pub(crate) fn n_remembered(size: usize) -> usize {
    (MEMORY_SIZE / size.max(1)).clamp(MIN_PAIRS, MAX_PAIRS)
}

/// Maximum number of steps towards the minimiser of the quadratic model.
const MODEL_STEPS: usize = 30;

/// The search for the model's minimiser ends when a step gains less than this fraction of the total gain.
const MODEL_TOL: f64 = 1e-2;

/// The L-BFGS approximation of the Hessian in its compact form (Byrd, Nocedal and Schnabel 1994, Theorem 2.3),
///
/// B = σ P + Q N Qᵀ, Q = \[σ P S, Y\], N⁻¹ = −\[σ SᵀP S, L; Lᵀ, −D\],
///
/// where L is the part of SᵀY below its diagonal D. The set confines the first coordinates, C, and
/// leaves the other coordinates, F, free. The minimum of the model over F has a closed form, so all steps of a
/// search except the last one change only C
/// (docs/mathematics/polynomial-networks.md#free-coordinates).
pub(super) struct Hessian {
    sigma: f64,
    n_confined: usize,
    memory: Memory,
    /// The product P s at the confined coordinates, for the step s of each pair.
    metrics: VecDeque<Vec<f64>>,
    /// The matrices S_Cᵀ P S_C, S_Cᵀ Y_C, S_Fᵀ Y_F and Y_Fᵀ Y_F, with a row for each pair.
    products: [VecDeque<VecDeque<f64>>; 4],
}

impl Hessian {
    /// Creates the initial model σ P with σ = `sigma`, for points whose first `n_confined`
    /// coordinates are confined.
    pub fn new(sigma: f64, n_confined: usize) -> Self {
        let (memory, metrics, products) = Default::default();
        Self { sigma, n_confined, memory, metrics, products }
    }

    /// Whether any pairs are remembered.
    pub fn has_memory(&self) -> bool {
        !self.memory.pairs().is_empty()
    }

    /// Adds a step and the resulting change of the gradient. Ignores them if f is not convex along
    /// the step.
    pub fn push(&mut self, problem: &impl Constrained, s: Vec<f64>, y: Vec<f64>) {
        let capacity = n_remembered(s.len());
        if !self.memory.push(s, y, capacity) {
            return;
        }
        let Some(last) = self.memory.pairs().back() else { return };
        self.sigma = long_dot(&last.change, &problem.solve(&last.change)) / last.curvature;
        self.metrics.push_back(problem.metric(&last.step[..self.n_confined]));
        if self.metrics.len() > self.memory.pairs().len() {
            self.metrics.pop_front();
            for products in &mut self.products {
                products.pop_front();
                for row in products.iter_mut() {
                    row.pop_front();
                }
            }
        }
        self.add_products();
    }

    /// Adds the inner products of the last pair with every pair.
    fn add_products(&mut self) {
        let at = self.n_confined;
        let pairs = self.memory.pairs();
        let (Some(last), Some(metric)) = (pairs.back(), self.metrics.back()) else { return };
        let each = |product: &dyn Fn(&Pair) -> f64| pairs.iter().map(product).collect();
        let free = |a: &[f64], b: &[f64]| long_dot(&a[at..], &b[at..]);
        let confined = |a: &[f64], b: &[f64]| long_dot(&a[..at], &b[..at]);
        let rows: [VecDeque<f64>; 4] = [
            each(&|pair| dot(&pair.step[..at], metric)),
            each(&|pair| confined(&last.step, &pair.change)),
            each(&|pair| free(&last.step, &pair.change)),
            each(&|pair| free(&pair.change, &last.change)),
        ];
        let columns: [VecDeque<f64>; 4] = [
            rows[0].clone(),
            each(&|pair| confined(&pair.step, &last.change)),
            each(&|pair| free(&pair.step, &last.change)),
            rows[3].clone(),
        ];
        for ((products, row), column) in self.products.iter_mut().zip(rows).zip(columns) {
            // The last entry of the column is skipped, because the row already contains it.
            products.iter_mut().zip(column).for_each(|(row, entry)| row.push_back(entry));
            products.push_back(row);
        }
    }

    /// Adds a step of an earlier search and its change of the gradient. At the coordinates
    /// `unknown`, the change is not known and is estimated from the metric.
    pub fn recall(
        &mut self,
        problem: &impl Constrained,
        (s, mut y): (Vec<f64>, Vec<f64>),
        unknown: Range<usize>,
    ) {
        let bent = problem.metric(&s[..self.n_confined]);
        let share = long_dot(&s, &y) / dot(&s[..self.n_confined], &bent);
        for (y, bent) in y[unknown.clone()].iter_mut().zip(&bent[unknown]) {
            *y = share * bent;
        }
        self.push(problem, s, y);
    }

    /// The remembered steps with their changes of the gradient.
    pub fn into_pairs(self) -> impl Iterator<Item = (Vec<f64>, Vec<f64>)> {
        self.memory.into_pairs().into_iter().map(|pair| (pair.step, pair.change))
    }

    /// Removes all pairs, and resets the curvature of the initial model to `sigma`.
    pub fn forget(&mut self, sigma: f64) {
        *self = Self::new(sigma, self.n_confined);
    }

    /// Returns −B⁻¹ g, the step to the model's unconstrained minimiser.
    pub fn newton_step(&self, problem: &impl Constrained, gradient: &[f64]) -> Vec<f64> {
        let downhill = gradient.iter().map(|slope| -slope).collect();
        let divide = |product: f64, curvature: f64| product / curvature;
        self.memory.multiply_inverse(downhill, divide, |v| {
            let mut step = problem.solve(&v);
            step.iter_mut().for_each(|step| *step /= self.sigma);
            step
        })
    }

    /// The step d from x that minimises gᵀd + dᵀB d/2 over the set. None if rounding has made the
    /// model non-convex.
    pub fn model_step(
        &self,
        problem: &impl Constrained,
        x: &[f64],
        gradient: &[f64],
    ) -> Result<Option<Vec<f64>>> {
        let at = self.n_confined;
        let free = self.newton_step(problem, gradient);
        let ahead: Vec<f64> = x[..at].iter().zip(&free).map(|(x, d)| x + d).collect();
        let mut target = ahead.clone();
        problem.project(&mut target)?;
        if target == ahead {
            return Ok(Some(free));
        }
        let Some(middle) = self.middle() else { return Ok(None) };
        let known = self.stacked(|pair, _| {
            let along = |v: &[f64]| long_dot(&v[at..], &gradient[at..]);
            (along(&pair.step), along(&pair.change) / self.sigma)
        });
        let mut slope = gradient[..at].to_vec();
        self.add_terms(&mut slope, &-middle.solve(&known));
        let d = self.confined_step(problem, &x[..at], slope, (&middle, target))?;
        let weights = middle.solve(&(self.terms(&d) - known));
        Ok(Some(self.with_free(d, gradient, &weights)))
    }

    /// Minimises the model over C, with F optimal for each C, by projected gradients with
    /// Barzilai-Borwein step lengths and exact line searches. `slope` is the gradient at the start.
    fn confined_step(
        &self,
        problem: &impl Constrained,
        x: &[f64],
        mut slope: Vec<f64>,
        (middle, mut target): (&Middle, Vec<f64>),
    ) -> Result<Vec<f64>> {
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
            let mut bent = problem.metric(way);
            bent.iter_mut().for_each(|bent| *bent *= self.sigma);
            self.add_terms(&mut bent, &middle.solve(&self.terms(way)));
            let curvature = dot(way, &bent);
            if !(descent < 0.0 && curvature > 0.0) {
                break;
            }
            let step = (-descent / curvature).min(1.0);
            axpy(&mut d, step, way);
            axpy(&mut slope, step, &bent);
            let gain = -step * (descent + 0.5 * step * curvature);
            decrease += gain;
            if gain <= MODEL_TOL * decrease {
                break;
            }
            length = dot(way, way) / curvature;
        }
        Ok(d)
    }

    /// Returns (d_C, d_F), where d_F = −(g_F + Y_F w₂)/σ − S_F w₁ is optimal for the given d_C. `weights` holds w₁,
    /// then w₂.
    fn with_free(&self, mut d: Vec<f64>, gradient: &[f64], weights: &Array1<f64>) -> Vec<f64> {
        let (at, pairs) = (self.n_confined, self.memory.pairs());
        if at == gradient.len() {
            return d;
        }
        let mut free = gradient[at..].to_vec();
        for (pair, weight) in pairs.iter().zip(weights.iter().skip(pairs.len())) {
            long_axpy(&mut free, *weight, &pair.change[at..]);
        }
        free.iter_mut().for_each(|free| *free /= -self.sigma);
        for (pair, weight) in pairs.iter().zip(weights) {
            long_axpy(&mut free, -weight, &pair.step[at..]);
        }
        d.extend(free);
        d
    }

    /// Calls `numbers(pair, P s)` for every pair; each call returns two numbers. Returns the first numbers of all
    /// pairs, followed by the second numbers.
    fn stacked(&self, numbers: impl Fn(&Pair, &[f64]) -> (f64, f64)) -> Array1<f64> {
        let pairs = self.memory.pairs().iter().zip(&self.metrics);
        let (first, second): (Vec<f64>, Vec<f64>) =
            pairs.map(|(pair, metric)| numbers(pair, metric)).unzip();
        first.into_iter().chain(second).collect()
    }

    /// Returns Q_Cᵀ v.
    fn terms(&self, v: &[f64]) -> Array1<f64> {
        let at = self.n_confined;
        self.stacked(|pair, metric| {
            (self.sigma * long_dot(metric, v), long_dot(&pair.change[..at], v))
        })
    }

    /// Adds Q_C w to v.
    fn add_terms(&self, v: &mut [f64], w: &Array1<f64>) {
        let (at, pairs) = (self.n_confined, self.memory.pairs());
        for (j, (pair, metric)) in pairs.iter().zip(&self.metrics).enumerate() {
            long_axpy(v, self.sigma * w[j], metric);
            long_axpy(v, w[pairs.len() + j], &pair.change[..at]);
        }
    }

    /// Factorises M⁻¹ = N⁻¹ + Q_Fᵀ Q_F/σ. None if a block is not positive definite because of rounding.
    fn middle(&self) -> Option<Middle> {
        let n = self.memory.pairs().len();
        let of =
            |product: usize| Array2::from_shape_fn((n, n), |(i, j)| self.products[product][i][j]);
        let [own, confined, free, solved] = [of(0), of(1), of(2), of(3)];
        let below = |i: usize, j: usize| if i > j { confined[[i, j]] + free[[i, j]] } else { 0.0 };
        let coupling = Array2::from_shape_fn((n, n), |(i, j)| free[[i, j]] - below(i, j));
        let mut changes = solved / self.sigma;
        for (j, entry) in changes.diag_mut().iter_mut().enumerate() {
            *entry += confined[[j, j]] + free[[j, j]];
        }
        Middle::new(own * self.sigma, coupling, &changes)
    }
}

/// The matrix \[−A, E; Eᵀ, T\], factorised. Both A + E T⁻¹ Eᵀ and T are positive definite.
struct Middle {
    coupling: Array2<f64>,
    /// Inverse of A + E T⁻¹ Eᵀ.
    steps: Array2<f64>,
    /// Inverse of T.
    changes: Array2<f64>,
}

impl Middle {
    fn new(own: Array2<f64>, coupling: Array2<f64>, changes: &Array2<f64>) -> Option<Self> {
        let changes = invert(changes)?.matrix;
        let steps = invert(&(own + coupling.dot(&changes).dot(&coupling.t())))?.matrix;
        Some(Self { coupling, steps, changes })
    }

    fn solve(&self, right: &Array1<f64>) -> Array1<f64> {
        let n = self.coupling.nrows();
        let (first, second): (ArrayView1<'_, f64>, _) =
            (right.slice(s![..n]), right.slice(s![n..]));
        let steps = self.steps.dot(&(self.coupling.dot(&self.changes.dot(&second)) - first));
        let changes = self.changes.dot(&(&second - &self.coupling.t().dot(&steps)));
        steps.into_iter().chain(changes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large box around 0, with a metric that is not the identity in the first three coordinates.
    struct Space;

    const METRIC: [f64; 7] = [2.0, 0.5, 3.0, 1.0, 1.0, 1.0, 1.0];

    impl Constrained for Space {
        fn evaluate(&mut self, _: &[f64], _: &mut Vec<f64>) -> Result<f64> {
            Ok(0.0)
        }

        fn project(&self, x: &mut [f64]) -> Result<()> {
            x.iter_mut().for_each(|x| *x = x.clamp(-1e3, 1e3));
            Ok(())
        }

        fn metric(&self, v: &[f64]) -> Vec<f64> {
            v.iter().zip(METRIC).map(|(v, p)| v * p).collect()
        }

        fn solve(&self, v: &[f64]) -> Vec<f64> {
            v.iter().zip(METRIC).map(|(v, p)| v / p).collect()
        }
    }

    fn numbers(seed: usize) -> Vec<f64> {
        (0..7).map(|i| ((i * 5 + seed * 11 + i * i * seed) % 13) as f64 - 6.0).collect()
    }

    /// Returns an approximation from `n` pairs, and the dense matrix B that the recursion B + yyᵀ/yᵀs − Bs(Bs)ᵀ/sᵀBs
    /// gives for the same pairs.
    fn remembered(n: usize) -> (Hessian, Array2<f64>) {
        let mut hessian = Hessian::new(1.0, 3);
        let pairs: Vec<_> = (1..=n)
            .map(|seed| {
                let s = numbers(seed);
                let bend = |i: usize, s: f64| s * (1.0 + i as f64) + 0.1 * s.powi(3);
                (s.clone(), s.iter().enumerate().map(|(i, s)| bend(i, *s)).collect::<Vec<_>>())
            })
            .collect();
        for (s, y) in &pairs {
            hessian.push(&Space, s.clone(), y.clone());
        }
        let mut dense = Array2::from_diag(&Array1::from_iter(METRIC)) * hessian.sigma;
        for (s, y) in pairs.into_iter().skip(n.saturating_sub(MAX_PAIRS)) {
            let (s, y) = (Array1::from(s), Array1::from(y));
            let bs = dense.dot(&s);
            let outer = |v: &Array1<f64>| Array2::from_shape_fn((7, 7), |(i, j)| v[i] * v[j]);
            dense = &dense + &(outer(&y) / y.dot(&s)) - outer(&bs) / s.dot(&bs);
        }
        (hessian, dense)
    }

    #[test]
    fn pairs_of_earlier_searches_are_reused() {
        let mut hessian = Hessian::new(1.0, 3);
        let (s, y) =
            (vec![1.0, 0.0, 2.0, -1.0, 0.5, 0.0, 1.0], vec![3.0, 9.0, 5.0, -1.0, 1.0, 0.5, 2.0]);
        hessian.recall(&Space, (s.clone(), y.clone()), 1..2);
        // The step is 0 at the unknown coordinate, and the metric does not couple coordinates, so the estimate is 0.
        let known: Vec<f64> =
            y.iter().enumerate().map(|(i, y)| if i == 1 { 0.0 } else { *y }).collect();
        let step = hessian.newton_step(&Space, &known);
        assert!(step.iter().zip(&s).all(|(step, s)| (step + s).abs() < 1e-12), "{step:?}");
        hessian.forget(2.0);
        assert!(!hessian.has_memory() && hessian.into_pairs().next().is_none());
    }

    #[test]
    fn the_free_coordinates_minimise_the_model() {
        for n in [0, 1, 3, 6, 12] {
            let (hessian, dense) = remembered(n);
            let gradient = numbers(20);
            let inverse = invert(&dense).unwrap().matrix;
            let newton = hessian.newton_step(&Space, &gradient);
            let wanted = -inverse.dot(&Array1::from(gradient.clone()));
            let close = |a: &[f64], b: &[f64]| {
                a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-8 * (1.0 + b.abs()))
            };
            assert!(close(&newton, wanted.as_slice().unwrap()), "{n} {newton:?} {wanted}");
            // With the optimal F, the curvature of the model in C is the inverse of the block of B⁻¹ for C.
            let schur = invert(&inverse.slice(s![..3, ..3]).to_owned()).unwrap().matrix;
            let middle = hessian.middle().unwrap();
            let v = [1.0, -2.0, 0.5];
            let mut bent = Space.metric(&v);
            bent.iter_mut().for_each(|bent| *bent *= hessian.sigma);
            hessian.add_terms(&mut bent, &middle.solve(&hessian.terms(&v)));
            let wanted = schur.dot(&Array1::from_iter(v));
            assert!(close(&bent, wanted.as_slice().unwrap()), "{n} {bent:?} {wanted}");
            // Even if the direction of descent points out of the set, the step stays in the set, and its coordinates F
            // are optimal for its coordinates C.
            let edge = |g: &f64| -1e3 * g.signum();
            let x: Vec<f64> = gradient.iter().map(edge).collect();
            let step = hessian.model_step(&Space, &x, &gradient).unwrap().unwrap();
            let slope = dense.dot(&Array1::from(step.clone())) + Array1::from(gradient);
            let scale = slope.iter().map(|s| s.abs()).fold(1.0, f64::max);
            assert!(slope.iter().skip(3).all(|s| s.abs() < 1e-8 * scale), "{n} {slope}");
            assert!(x.iter().zip(&step).take(3).all(|(x, d)| (x + d).abs() <= 1e3 + 1e-6));
        }
    }
}
