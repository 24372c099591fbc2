//! Parameters of a dual apart from its polytopes: λ, γ, the weights p_i of the examples, and sign
//! constraints.

use std::sync::Arc;

use super::SignCone;
use crate::error::{Error, Result};

/// Maximum accepted value of 1/λ times the squared norm of an example's features. After a step, λ‖w‖² can be this
/// large, and sums over the examples must not overflow.
const MAX_SQUARE: f64 = 1e280;
/// A problem is also accepted if 1/λ times the norm (not squared) is at most this, because that product bounds the
/// weights. For example, rows of norm 1e150 are accepted with C = 1e12, and their certificates are valid.
const MAX_WEIGHT: f64 = 1e170;

/// The regularisation λ, the smoothing γ and each block's share p_i of the loss, with Σ p_i = 1. They define P(w) = λ/2
/// ‖w‖² + Σ p_i Φ_i(w) over the w in a cone, and are checked once (`docs/mathematics/duality.md`).
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    lambda: f64,
    smoothing: f64,
    n_blocks: usize,
    /// The p_i; None if all are equal.
    weights: Option<Arc<[f64]>>,
    cone: SignCone,
    /// Largest norm of an example's features; 0 while unknown.
    feature: f64,
}

impl Shares {
    /// Equal shares 1/n and no smoothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no examples, or if λ is not positive and finite.
    pub fn new(n_blocks: usize, lambda: f64) -> Result<Self> {
        if n_blocks == 0 {
            return Err(Error::argument("X", "must have at least one example"));
        }
        check_lambda(lambda)?;
        let cone = SignCone::default();
        Ok(Self { lambda, smoothing: 0.0, n_blocks, weights: None, cone, feature: 0.0 })
    }

    /// Sets shares in proportion to sample weights.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is one weight per example, all are finite and non-negative, and at least
    /// one is positive.
    pub fn with_sample_weights(mut self, weights: &[f64]) -> Result<Self> {
        let fail = |message: &str| Err(Error::argument("sample_weight", message));
        let total: f64 = weights.iter().sum();
        if weights.len() != self.n_blocks {
            return fail("must have one weight for each example");
        }
        if !weights.iter().all(|weight| *weight >= 0.0) || !total.is_finite() {
            return fail("must be finite and not negative");
        }
        if total <= 0.0 {
            return fail("at least one weight must be positive");
        }
        self.weights = Some(weights.iter().map(|weight| weight / total).collect());
        Ok(self)
    }

    /// Replaces each loss by its Moreau envelope with parameter γ; 0 leaves it unchanged.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless γ is finite and not negative.
    pub fn with_smoothing(mut self, smoothing: f64) -> Result<Self> {
        if !(smoothing >= 0.0 && smoothing.is_finite()) {
            return Err(Error::argument("smoothing", "must be finite and not negative"));
        }
        self.smoothing = smoothing;
        Ok(self)
    }

    /// Sets the largest norm of an example's features, given the norms of all examples; ignores NaN.
    ///
    /// # Errors
    /// As for [`Shares::check_range`] at the current λ.
    pub fn with_features(mut self, norms: impl Iterator<Item = f64>) -> Result<Self> {
        self.feature = norms.fold(0.0, f64::max);
        self.check_range(self.lambda)?;
        Ok(self)
    }

    /// Checks that λ is large enough, compared with the features, for no number to overflow during a fit.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming C, because callers derive λ as 1 / (C × the total weight).
    pub fn check_range(&self, lambda: f64) -> Result<()> {
        let square = self.feature * self.feature;
        if square / lambda <= MAX_SQUARE || self.feature / lambda <= MAX_WEIGHT {
            return Ok(());
        }
        let message = format!(
            "times the total weight is {:.3e}, and the largest squared norm of an example's features is {square:.3e}; \
             their product must be at most {MAX_SQUARE:e}; lower C or scale the data",
            1.0 / lambda
        );
        Err(Error::argument("C", message))
    }

    /// Restricts w to a cone.
    pub fn with_cone(mut self, cone: SignCone) -> Self {
        self.cone = cone;
        self
    }

    /// Changes λ.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless λ is positive and finite.
    pub fn set_lambda(&mut self, lambda: f64) -> Result<()> {
        check_lambda(lambda)?;
        self.lambda = lambda;
        Ok(())
    }

    /// The regularisation parameter λ.
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// The smoothing parameter γ.
    pub fn smoothing(&self) -> f64 {
        self.smoothing
    }

    /// The cone to which w is restricted.
    pub fn cone(&self) -> &SignCone {
        &self.cone
    }

    /// Number of blocks, n.
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// The block's share p_i of the loss.
    #[inline]
    pub fn of(&self, block: usize) -> f64 {
        match &self.weights {
            Some(weights) => weights[block],
            None => 1.0 / self.n_blocks as f64,
        }
    }
}

fn check_lambda(lambda: f64) -> Result<()> {
    if lambda > 0.0 && lambda.is_finite() {
        return Ok(());
    }
    Err(Error::argument("lambda", "must be positive and finite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_and_errors_name_invalid_shares() {
        let shares = Shares::new(4, 0.5).unwrap();
        assert_eq!((shares.of(3), shares.lambda(), shares.smoothing()), (0.25, 0.5, 0.0));
        let weighted = shares.clone().with_sample_weights(&[0.0, 1.0, 2.0, 1.0]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|i| weighted.of(i)), [0.0, 0.25, 0.5, 0.25]);
        for lambda in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Shares::new(4, lambda).unwrap_err().to_string().starts_with("lambda: "));
            assert!(shares.clone().set_lambda(lambda).is_err());
        }
        assert!(Shares::new(0, 1.0).unwrap_err().to_string().starts_with("X: "));
        let bad: [&[f64]; 5] = [
            &[1.0; 3],
            &[0.0; 4],
            &[-1.0, 2.0, 1.0, 1.0],
            &[f64::NAN; 4],
            &[f64::MAX, f64::MAX, 0.0, 0.0],
        ];
        for weights in bad {
            let error = shares.clone().with_sample_weights(weights).unwrap_err().to_string();
            assert!(error.starts_with("sample_weight: "), "{error}");
        }
        assert!(
            shares.clone().with_smoothing(-1.0).unwrap_err().to_string().starts_with("smoothing: ")
        );
    }

    #[test]
    fn a_lambda_that_may_overflow_the_weights_is_rejected() {
        let shares = Shares::new(4, 1e-200).unwrap();
        let norms = |largest: f64| [0.0, largest, f64::NAN].into_iter();
        let known = shares.clone().with_features(norms(1e39)).unwrap();
        assert!(known.check_range(1e-201).is_ok());
        let infinite = shares.clone().with_features(norms(f64::INFINITY)).err();
        for error in
            [infinite, shares.with_features(norms(1e41)).err(), known.check_range(1e-203).err()]
        {
            let message = error.unwrap().to_string();
            assert!(message.starts_with("C: ") && message.contains("1e280"), "{message}");
        }
    }
}
