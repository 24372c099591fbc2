//! Numbers with bounds on their rounding errors, so that certificates hold in exact arithmetic.
//!
//! A certificate is computed in double precision. Each of its sums has a bound on its distance from
//! the exact sum. The certificate is then rounded so that it stays valid: the objective up, the
//! lower bound down (`docs/mathematics/duality.md#rounding`; Higham 2002, sections 3.1 and 4.3).

use std::ops::{Add, Mul, Sub};

use crate::data::Real;
use crate::linalg::vectors::{PIECE_VALUES, squared_norm};

/// The smallest positive number, which is twice the largest error of a product that underflows.
pub const TINY: f64 = f64::from_bits(1);

/// A bound on the relative error of n successive operations: twice Higham's γ_n, because the bound
/// itself is computed with rounding errors.
#[inline]
pub fn gamma(n: usize) -> f64 {
    n as f64 * f64::EPSILON
}

/// An upper bound on n · [`TINY`], the effect of n products that underflow. Counting up the bits avoids a subnormal
/// product, which takes some processors 150 cycles.
#[inline]
pub fn underflow(n: f64) -> f64 {
    let n_subnormal = f64::MIN_POSITIVE.to_bits() as f64;
    if n < n_subnormal {
        let whole = n as i64;
        f64::from_bits((whole + i64::from((whole as f64) < n)) as u64)
    } else {
        n * TINY
    }
}

/// A number with an error bound: the exact value is within `error` of `value`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bounded {
    value: f64,
    error: f64,
}

impl Bounded {
    /// A number with a bound on its error.
    pub fn new(value: f64, error: f64) -> Self {
        Self { value, error: up(error) }
    }

    /// An exact number.
    pub fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// The computed value.
    pub fn value(self) -> f64 {
        self.value
    }

    /// A lower bound on the exact value.
    pub fn lower(self) -> f64 {
        if self.error == 0.0 { self.value } else { (self.value - self.error).next_down() }
    }

    /// An upper bound on the exact value.
    pub fn upper(self) -> f64 {
        if self.error == 0.0 { self.value } else { (self.value + self.error).next_up() }
    }
}

/// Raises a bound by the rounding errors of the few operations that computed it.
#[inline]
fn up(bound: f64) -> f64 {
    // γ_8 covers the rounding of the product; TINY covers its underflow.
    if bound > 0.0 { bound * (1.0 + gamma(8)) + TINY } else { bound }
}

impl Add for Bounded {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let value = self.value + other.value;
        Self::new(value, self.error + other.error + gamma(1) * value.abs())
    }
}

impl Sub for Bounded {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + Self { value: -other.value, error: other.error }
    }
}

impl Mul for Bounded {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let value = self.value * other.value;
        let carried =
            self.value.abs() * other.error + self.error * (other.value.abs() + other.error);
        Self::new(value, carried + gamma(1) * value.abs() + TINY)
    }
}

/// A compensated sum of bounded numbers (Neumaier 1974). Its rounding error is as small as after a
/// few operations, for any number of terms.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    sum: f64,
    compensation: f64,
    size: f64,
    error: f64,
    n_terms: usize,
}

impl Sum {
    /// Adds a term.
    #[inline]
    pub fn add(&mut self, term: Bounded) {
        let Bounded { value, error } = term;
        let sum = self.sum + value;
        let lost = if self.sum.abs() >= value.abs() {
            (self.sum - sum) + value
        } else {
            (value - sum) + self.sum
        };
        (self.sum, self.compensation) = (sum, self.compensation + lost);
        self.size += value.abs();
        self.error += error;
        self.n_terms += 1;
    }

    /// Increases the error bound without changing the sum.
    pub fn widen(&mut self, error: f64) {
        self.error += error;
    }

    /// Adds the terms of another sum.
    pub fn join(&mut self, other: &Self) {
        let Self { compensation, size, error, n_terms, .. } = *other;
        self.add(Bounded::exact(other.sum));
        self.compensation += compensation;
        self.size += size;
        self.error += error;
        self.n_terms += n_terms;
    }

    /// The sum of all terms, with an error bound.
    pub fn total(&self) -> Bounded {
        let (value, grown) = (self.sum + self.compensation, gamma(self.n_terms + 2));
        // Sequential sums of n non-negative numbers have a relative error of at most γ_n.
        let (size, error) = (self.size * (1.0 + grown), self.error * (1.0 + grown));
        Bounded::new(value, gamma(2) * value.abs() + grown * grown * size + error)
    }
}

impl FromIterator<Bounded> for Sum {
    fn from_iter<I: IntoIterator<Item = Bounded>>(terms: I) -> Self {
        let mut sum = Self::default();
        terms.into_iter().for_each(|term| sum.add(term));
        sum
    }
}

/// ‖w‖², with a bound on its rounding error.
pub fn bounded_squared_norm<T: Real>(weights: &[T]) -> Bounded {
    let value = squared_norm(weights);
    let depth = weights.len().min(PIECE_VALUES) + weights.len() / PIECE_VALUES + 2;
    Bounded::new(value, gamma(depth) * value + weights.len() as f64 * TINY)
}

/// 2^512, by which numbers are divided if their squares overflow.
const OVERFLOWN: f64 = f64::from_bits((1023 + 512) << 52);

/// An upper bound on ‖w‖.
pub fn norm_above<T: Real>(weights: &[T]) -> f64 {
    let square = bounded_squared_norm(weights).upper();
    if square < f64::INFINITY {
        return root_above(square);
    }
    // The squares overflow. Scaling by a power of two is exact for large weights. For small
    // weights, it loses far less than one rounding of the square root.
    let scaled: Vec<f64> = weights.iter().map(|weight| weight.widen() / OVERFLOWN).collect();
    root_above(bounded_squared_norm(&scaled).upper()) * OVERFLOWN
}

/// An upper bound on the square root of a non-negative number.
pub fn root_above(square: f64) -> f64 {
    up(square.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underflow_is_a_multiple_of_the_smallest_number() {
        for n in [0.0, 1.0, 77.0, 1e15, 2_f64.powi(52) - 1.0, 2_f64.powi(52), 1e200] {
            assert_eq!(underflow(n), n * TINY);
        }
        assert_eq!(underflow(1.2), 2.0 * TINY);
        assert!(underflow(f64::NAN).is_nan());
    }

    #[test]
    fn norms_are_bounded_even_if_squares_overflow() {
        for scale in [1.0, 1e153, 1e160, 1e290, 1e307] {
            let norm = norm_above(&[3.0 * scale, 1e-300, -4.0 * scale]);
            assert!(norm >= 5.0 * scale && norm <= 5.0 * scale * (1.0 + 1e-14), "{norm:e}");
        }
        assert_eq!(norm_above(&[f64::INFINITY]), f64::INFINITY);
        assert!(norm_above(&[f64::NAN]).is_nan());
    }

    #[test]
    fn bounds_enclose_the_exact_results() {
        let (third, tenth) = (Bounded::exact(1.0 / 3.0), Bounded::exact(0.1));
        // The exact product of the stored values of 1/3 and 1/10 is within one unit in the last
        // place.
        let product = third * tenth;
        assert!(product.lower() < product.value() && product.value() < product.upper());
        assert!(product.upper() - product.lower() < 1e-16);
        let sum = Bounded::exact(1.0) + Bounded::exact(1e-30);
        assert!(sum.upper() > 1.0 && sum.lower() < 1.0);
        assert_eq!(Bounded::exact(2.0).lower(), 2.0);
        let difference = sum - Bounded::exact(1.0);
        assert!(difference.lower() < 1e-30 && difference.upper() > 1e-30);
    }

    #[test]
    fn a_compensated_sum_keeps_digits_that_a_plain_sum_loses() {
        let terms = [1.0, 1e16, 1.0, -1e16].map(Bounded::exact);
        let total = Sum::from_iter(terms).total();
        assert!(total.lower() <= 2.0 && 2.0 <= total.upper());
        assert!(total.upper() - total.lower() < 1.0, "{total:?}");
        let wide = Sum::from_iter([Bounded::new(1.0, 0.25), Bounded::new(2.0, 0.5)]).total();
        assert!(wide.lower() <= 2.25 && wide.upper() >= 3.75);
    }

    #[test]
    fn norms_are_bounds_even_if_squares_underflow() {
        assert!(norm_above(&[3.0, 4.0]) >= 5.0 && norm_above(&[3.0, 4.0]) < 5.0 + 1e-12);
        assert!(norm_above(&[1e-170]) >= 1e-170);
        assert_eq!(norm_above::<f64>(&[]), 0.0);
    }
}
