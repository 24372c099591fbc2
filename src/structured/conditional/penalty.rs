//! The penalty of a fit, and the restrictions on steps that an L1 term requires.

use std::borrow::Cow;

use crate::data::Real;
use crate::dual::objective;
use crate::dual::rounding::{Bounded, gamma};
use crate::error::{Error, Result};
use crate::linalg::vectors::long_update;

/// Number of values in each partial sum. Adding up partial sums keeps rounding errors small.
const PIECE: usize = 1024;

/// The penalty λ (ρ ‖w‖₁ + (1 − ρ)/2 ‖w‖²). ρ is 0 for an L2 penalty and 1 for an L1 penalty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElasticNet {
    l1_ratio: f64,
}

impl ElasticNet {
    /// Creates the penalty for a given ρ.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `l1_ratio` unless it is from 0 to 1.
    pub fn new(l1_ratio: f64) -> Result<Self> {
        if (0.0..=1.0).contains(&l1_ratio) {
            return Ok(Self { l1_ratio });
        }
        Err(Error::argument("l1_ratio", format!("must be from 0 to 1, got {l1_ratio}")))
    }

    /// Whether the penalty has an L1 term, that is, ρ > 0.
    pub fn has_l1(self) -> bool {
        self.l1_ratio > 0.0
    }

    /// Returns λ (1 − ρ), the strength of the L2 term.
    pub fn ridge(self, lambda: f64) -> f64 {
        lambda * (1.0 - self.l1_ratio)
    }

    /// Returns the penalty plus the loss, rounded up.
    pub fn objective<T: Real>(self, lambda: f64, weights: &[T], loss: Bounded) -> f64 {
        if !self.has_l1() {
            return objective(lambda, weights, loss);
        }
        let pieces = weights.chunks(PIECE);
        let depth = PIECE.min(weights.len()) + pieces.len();
        let sum: f64 = pieces.map(|piece| piece.iter().map(|w| w.widen().abs()).sum::<f64>()).sum();
        let norm = Bounded::new(sum, gamma(depth) * sum);
        let exact = Bounded::exact;
        let share = exact(lambda) * exact(self.l1_ratio) * norm;
        // The factor covers the rounding of 1 − ρ and of its product with λ.
        objective(self.ridge(lambda) * (1.0 + gamma(4)), weights, loss + share)
    }

    /// Returns the pseudo-gradient of the objective (Andrew and Gao 2007), given the gradient of its smooth part. For a
    /// weight of 0, it is the one-sided derivative in the direction in which the objective decreases, or 0 if there is
    /// no such direction.
    pub fn slopes<'a, T: Real>(
        self,
        lambda: f64,
        weights: &[T],
        gradient: &'a [T],
    ) -> Cow<'a, [T]> {
        if !self.has_l1() {
            return Cow::Borrowed(gradient);
        }
        let l1 = lambda * self.l1_ratio;
        let slope = |(weight, slope): (&T, &T)| {
            let (weight, slope) = (weight.widen(), slope.widen());
            T::narrow(if weight != 0.0 {
                slope + l1.copysign(weight)
            } else if slope.abs() > l1 {
                slope - l1.copysign(slope)
            } else {
                0.0
            })
        };
        weights.iter().zip(gradient).map(slope).collect()
    }

    /// Sets to 0 the entries of a direction along which the objective does not decrease.
    pub fn align<T: Real>(self, direction: &mut [T], slopes: &[T]) {
        if self.has_l1() {
            let descends = |entry: f64, slope: f64| entry * f64::from(entry * slope < 0.0);
            long_update(direction, slopes, descends);
        }
    }

    /// Sets to 0 all weights whose sign the step has changed, and all weights that were 0 and have moved against their
    /// descent direction.
    pub fn stay_in_orthant<T: Real>(self, weights: &mut [T], before: &[T], slopes: &[T]) {
        if self.has_l1() {
            for ((weight, before), slope) in weights.iter_mut().zip(before).zip(slopes) {
                let side = if *before == T::zero() { -*slope } else { *before };
                if weight.widen() * side.widen() <= 0.0 {
                    *weight = T::zero();
                }
            }
        }
    }

    /// Returns ρ, the weight of the L1 term.
    pub fn l1_ratio(self) -> f64 {
        self.l1_ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_at_zero_use_the_descending_side() {
        assert!(ElasticNet::new(1.1).is_err() && ElasticNet::new(f64::NAN).is_err());
        let net = ElasticNet::new(0.5).unwrap();
        let gradient = [0.5, 0.5, 0.5, 3.0, -3.0];
        let slopes = net.slopes(2.0, &[1.0, -1.0, 0.0, 0.0, 0.0], &gradient);
        assert_eq!(*slopes, [1.5, -0.5, 0.0, 2.0, -2.0]);
        let mut direction = [-1.0, 1.0, 5.0, 1.0, 1.0];
        net.align(&mut direction, &slopes);
        assert_eq!(direction, [-1.0, 1.0, 0.0, 0.0, 1.0]);
        let mut weights = [-0.5, 0.5, 0.0, -1.0, 1.0];
        net.stay_in_orthant(&mut weights, &[1.0, -1.0, 0.0, 0.0, 0.0], &slopes);
        assert_eq!(weights, [0.0, 0.0, 0.0, -1.0, 1.0]);
    }
}
