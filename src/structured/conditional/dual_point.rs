//! The best dual point so far.

use super::penalty::ElasticNet;
use crate::data::Real;
use crate::dual::DualValue;
use crate::dual::rounding::{Bounded, TINY, gamma, norm_above, root_above};
use crate::linalg::vectors::PIECE_VALUES;
use crate::parallel::{for_items, map_items, min_len};

/// Maximum number of Newton steps to find the best scale of a dual point.
const MAX_STEPS: usize = 8;

/// Step sizes towards another point that are tried if the penalty has an L1 term.
const STEPS: [f64; 4] = [1.0, 0.5, 0.25, 0.125];

/// A mixture of distributions α, given by its entropy and its weights, which determine its dual value.
#[derive(Debug, Clone)]
pub struct DualMixture<T> {
    /// The weighted entropy Σ p_i H(α_i), rounded down.
    pub linear: f64,
    /// An upper bound on the distance of the stored weights from w(α).
    pub error: f64,
    /// Weights w(α) of the dual point.
    pub weights: Vec<T>,
}

/// The dual point of a pass. Its weights w(α) = (`ridge` · w − `gradient`)/λ are computed when they are needed.
#[derive(Debug, Clone, Copy)]
pub struct ModelDual<'a, T> {
    linear: f64,
    error: f64,
    lambda: f64,
    ridge: f64,
    weights: &'a [T],
    gradient: &'a [T],
}

impl<'a, T: Real> ModelDual<'a, T> {
    /// Creates the dual point of a pass at `weights`. `gradient` is the gradient of the smooth part of the objective
    /// at `weights`; `linear` and `error` come from the pass.
    pub fn new(
        (linear, error): (f64, f64),
        (lambda, penalty): (f64, ElasticNet),
        (weights, gradient): (&'a [T], &'a [T]),
    ) -> Self {
        let ridge = penalty.ridge(lambda);
        // Bounds the error of rounding the gradient to T, and the rounding errors of ridge · w and of its difference
        // from the gradient.
        let size = norm_above(gradient);
        let tiny = weights.len() as f64 * T::min_positive_value().widen();
        let rounding = (T::epsilon().widen() + gamma(8)) * size
            + gamma(8) * ridge * norm_above(weights)
            + tiny;
        let error = (error + rounding / lambda) * (1.0 + gamma(8));
        Self { linear, error, lambda, ridge, weights, gradient }
    }

    /// One entry of w(α).
    #[inline(always)]
    fn entry(&self, weight: T, slope: T) -> f64 {
        (self.ridge * weight.widen() - slope.widen()) / self.lambda
    }

    /// Entries of w(α).
    #[inline(always)]
    fn entries(&self, start: usize, len: usize) -> impl Iterator<Item = f64> {
        let entries = self.weights[start..start + len].iter().zip(&self.gradient[start..]);
        entries.map(|(weight, slope)| self.entry(*weight, *slope))
    }

    /// Stores the weights of this point.
    pub fn stored(&self) -> DualMixture<T> {
        let weights: Vec<T> = self.entries(0, self.weights.len()).map(T::narrow).collect();
        let error = self.error + storage_error::<T>(norm_above(&weights), weights.len());
        DualMixture { linear: self.linear, error: error * (1.0 + gamma(8)), weights }
    }
}

/// A bound on the effect of storing `len` weights of this norm in precision T.
fn storage_error<T: Real>(norm: f64, len: usize) -> f64 {
    T::epsilon().widen() * norm + len as f64 * T::min_positive_value().widen()
}

/// Computes `value`(start, len) for all pieces of a vector of `len` values, on all threads.
fn pieces<R: Send>(len: usize, value: impl Fn(usize, usize) -> R + Sync) -> Vec<R> {
    map_items(0..len.div_ceil(PIECE_VALUES), min_len(PIECE_VALUES), |piece| {
        let start = piece * PIECE_VALUES;
        value(start, PIECE_VALUES.min(len - start))
    })
}

/// An upper bound on the norm of a vector, given its squared norm as the sum of [`pieces`].
fn norm_of(square: f64, len: usize) -> f64 {
    let depth = PIECE_VALUES.min(len) + len / PIECE_VALUES + 2;
    root_above(Bounded::new(square, gamma(depth) * square + len as f64 * TINY).upper())
}

/// A dual point whose weights are computed when they are needed: `entries`(start, len) iterates over a range of them.
struct View<F> {
    linear: f64,
    error: f64,
    len: usize,
    entries: F,
}

impl<I: Iterator<Item = f64>, F: Fn(usize, usize) -> I + Sync> View<F> {
    /// An upper bound on the norm of the vector with the entries f(w), one for each weight w.
    fn norm(&self, f: impl Fn(f64) -> f64 + Sync) -> f64 {
        let squares = |start, len| (self.entries)(start, len).map(|w| f(w).powi(2)).sum::<f64>();
        let square = pieces(self.len, squares).iter().sum();
        if square < f64::INFINITY {
            return norm_of(square, self.len);
        }
        norm_above(&(self.entries)(0, self.len).map(f).collect::<Vec<f64>>())
    }

    /// The dual value of s α + (1 − s) (true labels) at λ/`factor`, rounded down. The share s is the best one at λ, so
    /// that the value is linear in `factor`, as paths over λ require.
    fn value_at(&self, lambda: f64, factor: f64) -> f64 {
        let norm = (self.norm(|weight| weight) + self.error) * (1.0 + gamma(4));
        if norm == f64::INFINITY {
            // Only the true labels have a finite value.
            return 0.0;
        }
        let linear = Bounded::exact(self.linear);
        let scale = DualValue::of(lambda, linear, norm, 0.0).bound_along().1;
        let norm = scale * norm * (1.0 + gamma(2)) + TINY;
        DualValue::of(lambda, Bounded::exact(scale) * linear, norm, 0.0).bound_at(factor)
    }

    /// A lower bound on the optimum; see [`DualMixture::bound`].
    fn bound(&self, lambda: f64, penalty: ElasticNet) -> f64 {
        if !penalty.has_l1() {
            let value = self.value_at(lambda, 1.0);
            return if value < 0.0 { 0.0 } else { value };
        }
        let l1_ratio = penalty.l1_ratio();
        let scale = self.scale(lambda, l1_ratio);
        let entropy = Bounded::exact(scale) * Bounded::exact(self.linear);
        let value = if l1_ratio == 1.0 {
            entropy.lower()
        } else {
            let excess = self.norm(|weight| (scale * weight.abs() - l1_ratio).max(0.0));
            let rounding = gamma(4) * scale * self.norm(|weight| weight);
            let norm = excess + rounding + scale * self.error;
            let lambda = lambda / (1.0 - l1_ratio) * (1.0 + gamma(8));
            DualValue::of(lambda, entropy, norm * (1.0 + gamma(8)), 0.0).bound()
        };
        // At s = 0 the value is 0.
        if value < 0.0 { 0.0 } else { value }
    }

    /// Returns the best scale s. With only an L1 penalty, this is the largest s for which |λ s w(α)| ≤ λ in all
    /// entries.
    fn scale(&self, lambda: f64, l1_ratio: f64) -> f64 {
        let larger = |most: f64, w: f64| if w.abs() <= most { most } else { w.abs() };
        if l1_ratio == 1.0 {
            let largest = |start, len| (self.entries)(start, len).fold(0.0, larger);
            let largest = pieces(self.len, largest).into_iter().fold(0.0, larger) + self.error;
            return (1.0 - gamma(8)) / largest.max(1.0);
        }
        // The derivative of the value is decreasing and concave, so Newton's method from 1 does not overshoot.
        let mut scale = 1.0;
        for _ in 0..MAX_STEPS {
            let sums = pieces(self.len, |start, len| {
                (self.entries)(start, len).fold((0.0, 0.0), |(slope, bend), weight| {
                    let excess = (scale * weight.abs() - l1_ratio).max(0.0);
                    let square = if excess > 0.0 { weight * weight } else { 0.0 };
                    (slope + weight.abs() * excess, bend + square)
                })
            });
            let add = |sum: (f64, f64), piece: &(f64, f64)| (sum.0 + piece.0, sum.1 + piece.1);
            let (slope, bend) = sums.iter().fold((0.0, 0.0), add);
            let factor = lambda / (1.0 - l1_ratio);
            let slope = self.linear - factor * slope;
            if slope >= 0.0 || bend == 0.0 {
                break;
            }
            scale = (scale + slope / (factor * bend)).max(0.0);
        }
        scale
    }
}

/// Products of the weights v of a mixture and u of a point.
struct Products {
    /// ‖v‖².
    own: f64,
    /// ⟨v, u⟩.
    cross: f64,
    /// ‖u‖².
    other: f64,
}

impl<T: Real> DualMixture<T> {
    /// Returns the lower bound on the optimum at λ/`factor` without an L1 term; see [`DualMixture::bound`].
    pub fn value_at(&self, lambda: f64, factor: f64) -> f64 {
        let entries = |start, len| wide(&self.weights, start, len);
        self.view(entries).value_at(lambda, factor)
    }

    /// Returns a lower bound on the optimum: the dual value of the mixture s α + (1 − s) (true labels) for the best s
    /// in [0, 1]. The entropy of this mixture is at least s H(α), and its weights are s w(α).
    pub fn bound(&self, lambda: f64, penalty: ElasticNet) -> f64 {
        let entries = |start, len| wide(&self.weights, start, len);
        self.view(entries).bound(lambda, penalty)
    }

    /// Moves the point to λ/`factor`, which multiplies w(α) by `factor`.
    pub fn stretch(&mut self, factor: f64) {
        let norm = norm_above(&self.weights);
        let rounding = gamma(4) * norm + storage_error::<T>(norm, self.weights.len());
        self.weights.iter_mut().for_each(|weight| *weight = T::narrow(weight.widen() * factor));
        self.error = (self.error + rounding) * factor * (1.0 + gamma(8));
    }

    /// Moves towards another point if that raises the bound. Entropy is concave, so the entropy of a mixture of
    /// distributions is at least the mixture of their entropies.
    pub fn improve(&mut self, other: &ModelDual<'_, T>, lambda: f64, penalty: ElasticNet) {
        let products = self.products(other);
        let exact = [products.best_step([self.linear, other.linear].map(|sum| sum / lambda))];
        let steps: &[f64] = if penalty.has_l1() { &STEPS } else { &exact };
        let (mut value, mut best) = (self.bound(lambda, penalty), None);
        for step in steps {
            let (linear, error) = self.mixed(other, *step, &products);
            let entries = |start, len| {
                let own = wide(&self.weights, start, len);
                own.zip(other.entries(start, len)).map(|(a, b)| mix(*step, a, b))
            };
            let mixed = View { linear, error, ..self.view(entries) };
            let next = mixed.bound(lambda, penalty);
            if next > value {
                (value, best) = (next, Some((*step, linear, error)));
            }
        }
        if let Some((step, linear, error)) = best {
            (self.linear, self.error) = (linear, error);
            for_items(self.weights.chunks_mut(PIECE_VALUES).enumerate(), 1, |(piece, own)| {
                let others = other.entries(piece * PIECE_VALUES, own.len());
                let pairs = own.iter_mut().zip(others);
                pairs.for_each(|(a, b)| *a = T::narrow(mix(step, a.widen(), b)));
            });
        }
    }

    fn view<F>(&self, entries: F) -> View<F> {
        View { linear: self.linear, error: self.error, len: self.weights.len(), entries }
    }

    fn products(&self, other: &ModelDual<'_, T>) -> Products {
        let sums = pieces(self.weights.len(), |start, len| {
            let pairs = wide(&self.weights, start, len).zip(other.entries(start, len));
            pairs.fold([0.0; 3], |[own, cross, other], (a, b)| {
                [own + a * a, cross + a * b, other + b * b]
            })
        });
        let sum = |at: usize| sums.iter().map(|piece| piece[at]).sum();
        Products { own: sum(0), cross: sum(1), other: sum(2) }
    }

    /// The entropy, rounded down, and the error of the mixture after a step towards another point.
    fn mixed(&self, other: &ModelDual<'_, T>, step: f64, products: &Products) -> (f64, f64) {
        let size = self.linear.abs() + other.linear.abs();
        let linear = mix(step, self.linear, other.linear) - gamma(4) * size;
        let len = self.weights.len();
        let (own, others) = (norm_of(products.own, len), norm_of(products.other, len));
        let storage = storage_error::<T>(mix(step, own, others), len);
        let rounding = gamma(4) * (own + others) + storage;
        (linear, (mix(step, self.error, other.error) + rounding) * (1.0 + gamma(8)))
    }
}

impl Products {
    /// The step from one point, with entropy `own`, towards another one, with entropy `other`, that maximises the bound
    /// with an L2 penalty. The entropies are in units of λ.
    ///
    /// The bound of a mixture with shares a and b of the two points is the maximum of a h + b h' − ½ ‖a v + b u‖² over
    /// a, b ≥ 0 with a + b ≤ 1, so the step is b / (a + b).
    fn best_step(&self, [own, other]: [f64; 2]) -> f64 {
        let share = own * self.other - other * self.cross;
        let share_of_other = other * self.own - own * self.cross;
        let total = share + share_of_other;
        let determinant = self.own * self.other - self.cross * self.cross;
        if share >= 0.0 && share_of_other >= 0.0 && total > 0.0 && total <= determinant {
            return share_of_other / total;
        }
        // Either the true labels have no share, or only one of the points has one.
        let value = |step: f64| {
            let (sum, square) = (
                mix(step, own, other),
                mix(step, mix(step, self.own, self.cross), mix(step, self.cross, self.other)),
            );
            let scale = if sum < square { (sum / square).max(0.0) } else { 1.0 };
            scale * (sum - 0.5 * scale * square)
        };
        let length = self.own - 2.0 * self.cross + self.other;
        let slope = other - own + self.own - self.cross;
        // If rounding makes the difference of the points vanish, chooses the better point.
        let step = if length > 0.0 { slope / length } else { f64::from(slope > 0.0) };
        let step = if step.is_nan() { 0.0 } else { step.clamp(0.0, 1.0) };
        [step, 1.0]
            .into_iter()
            .fold(0.0, |best, step| if value(step) > value(best) { step } else { best })
    }
}

/// (1 − step) a + step b.
#[inline(always)]
fn mix(step: f64, a: f64, b: f64) -> f64 {
    (1.0 - step) * a + step * b
}

/// A range of weights in double precision.
#[inline(always)]
fn wide<T: Real>(weights: &[T], start: usize, len: usize) -> impl Iterator<Item = f64> {
    weights[start..start + len].iter().map(|weight| weight.widen())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(linear: f64, weights: &[f64]) -> DualMixture<f64> {
        DualMixture { linear, error: 0.0, weights: weights.to_vec() }
    }

    #[test]
    fn bound_uses_the_best_scale() {
        // With only an L1 penalty, no scaled entry may be larger than 1.
        let l1 = ElasticNet::new(1.0).unwrap();
        assert!((point(3.0, &[0.5, -4.0]).bound(0.1, l1) - 0.75).abs() < 1e-12);
        assert!((point(3.0, &[0.5, -0.9]).bound(0.1, l1) - 3.0).abs() < 1e-12);
        for l1_ratio in [0.1, 0.5, 0.9] {
            let net = ElasticNet::new(l1_ratio).unwrap();
            for (linear, lambda) in [(3.0, 0.1), (0.3, 2.0), (-1.0, 1.0)] {
                let value = |s: f64| {
                    let excess = |w: f64| (s * w - l1_ratio).max(0.0);
                    let square = excess(0.5).powi(2) + excess(4.0).powi(2) + excess(1.0).powi(2);
                    s * linear - lambda / (1.0 - l1_ratio) / 2.0 * square
                };
                let best = (0..=100_000).map(|i| value(f64::from(i) / 1e5)).fold(0.0, f64::max);
                let bound = point(linear, &[0.5, -4.0, 1.0]).bound(lambda, net);
                assert!((bound - best).abs() < 1e-6, "{bound} {best}");
            }
        }
    }

    #[test]
    fn the_best_step_allows_for_a_share_of_the_labels() {
        let vectors: [[f64; 2]; 5] = [[1.0, 0.0], [0.8, 0.7], [-0.5, 2.0], [1.0, 0.01], [0.0, 0.0]];
        for (v, u) in vectors.iter().flat_map(|v| vectors.map(|u| (*v, u))) {
            for (own, other) in [(0.1, 0.2), (3.0, 0.4), (0.0, 6.0), (2.0, 2.0), (-1.0, 0.3)] {
                let bound = |step: f64| {
                    let weights = [0, 1].map(|at| mix(step, v[at], u[at]));
                    let scales = (0..=1000).map(|scale| f64::from(scale) / 1e3);
                    let norm = weights[0].powi(2) + weights[1].powi(2);
                    let value = |s: f64| s * mix(step, own, other) - 0.5 * s * s * norm;
                    scales.map(value).fold(0.0, f64::max)
                };
                let dot = |v: [f64; 2], u: [f64; 2]| v[0] * u[0] + v[1] * u[1];
                let products = Products { own: dot(v, v), cross: dot(v, u), other: dot(u, u) };
                let step = products.best_step([own, other]);
                let best = (0..=1000).map(|step| bound(f64::from(step) / 1e3)).fold(0.0, f64::max);
                assert!((0.0..=1.0).contains(&step));
                assert!(bound(step) >= best - 1e-5, "{v:?} {u:?} {own} {other}: {step}");
            }
        }
    }

    #[test]
    fn the_bound_is_positive_and_linear_in_the_factor() {
        let mixture = point(0.3, &[0.5, -4.0, 1.0]);
        let bound = mixture.bound(2.0, ElasticNet::new(0.0).unwrap());
        assert!((bound - 0.09 / (4.0 * 17.25)).abs() < 1e-12, "{bound}");
        let [first, second, third] = [1.0, 2.0, 3.0].map(|factor| mixture.value_at(2.0, factor));
        assert_eq!(first, bound);
        assert!((first - 2.0 * second + third).abs() < 1e-12 && second < first);
        assert_eq!(point(-0.3, &[1.0]).bound(2.0, ElasticNet::new(0.0).unwrap()), 0.0);
    }

    #[test]
    fn mixtures_in_single_precision_do_not_raise_the_bound() {
        let entry = |at: usize, factor: f64| (at as f64 * factor).sin();
        let weights: Vec<f32> = (0..40_000).map(|at| entry(at, 0.37) as f32).collect();
        for l1_ratio in [0.0, 0.5] {
            let (lambda, net) = (0.01, ElasticNet::new(l1_ratio).unwrap());
            // Both points have the same entropy, 250, so the best step is inside (0, 1).
            let gradients = [0.71, 1.3].map(|factor| -> Vec<f32> {
                (0..40_000).map(|at| 0.004 * entry(at, factor) as f32).collect()
            });
            let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
            let (weights_64, gradients_64) =
                (wide(&weights), gradients.each_ref().map(|g| wide(g)));
            let points = gradients.each_ref().map(|gradient| {
                ModelDual::new((250.0, 0.0), (lambda, net), (&weights[..], &gradient[..]))
            });
            let exact = gradients_64.each_ref().map(|gradient| {
                ModelDual::new((250.0, 0.0), (lambda, net), (&weights_64[..], &gradient[..]))
            });
            let (mut single, mut double) = (points[0].stored(), exact[0].stored());
            let before = (single.bound(lambda, net), double.bound(lambda, net));
            single.improve(&points[1], lambda, net);
            double.improve(&exact[1], lambda, net);
            let after = (single.bound(lambda, net), double.bound(lambda, net));
            for (single, double) in [before, after] {
                assert!(single < double && single > double - 1e-3, "{single} {double}");
            }
            assert!(after.0 > before.0 + 1.0, "{before:?} {after:?}");
        }
    }
}
