//! Ratings, their likelihood given the machine's outputs, and the settings of a fit.

use ndarray::Array2;

use super::effects::Groups;
use crate::error::{Error, Result};
use crate::penalty::Penalty;

/// Observed ratings.
#[derive(Debug, Clone, Copy)]
pub struct Ratings<'a> {
    /// User of each rating, below `n_users`.
    pub users: &'a [u32],
    /// Item of each rating, below `n_items`.
    pub items: &'a [u32],
    /// Value of each rating: a level from 0 to m for ordinal ratings, any number for regression.
    pub values: &'a [f64],
    /// Weight of each rating; empty if all have the same weight.
    pub weights: &'a [f64],
    /// Number of users.
    pub n_users: usize,
    /// Number of items.
    pub n_items: usize,
    /// Groups of ratings that share linear weights. The first entry divides the ratings of each user into groups, and
    /// the second entry divides the ratings of each item.
    pub groups: [Groups<'a>; 2],
}

/// The distribution of ratings, given the outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum Likelihood {
    /// Ordinal McRank (docs/mathematics/recommender.md#ordinal-reduction): output c is the log-odds
    /// of level ≤ c. There is one logistic term per threshold, each weighted by its entry here,
    /// because the terms of one rating are not independent evidence.
    Ordinal(Vec<f64>),
    /// One output, Gaussian with a learned precision.
    Gaussian,
}

impl Likelihood {
    /// Number of outputs m.
    pub fn n_outputs(&self) -> usize {
        match self {
            Self::Ordinal(weights) => weights.len(),
            Self::Gaussian => 1,
        }
    }
}

/// Settings of the variational fit.
#[derive(Debug, Clone)]
pub struct VariationalSettings<'a> {
    /// Number of bases k. Superfluous bases shrink to zero.
    pub n_components: usize,
    /// The likelihood.
    pub likelihood: Likelihood,
    /// Penalty Ω on the output layer.
    pub penalty: &'a dyn Penalty,
    /// Radius τ of the ball Ω(U) ≤ τ; infinity for no constraint.
    pub radius: f64,
    /// Ridge on the output weights U.
    pub output_ridge: f64,
    /// Number of sweeps before U (with the constraint Ω(U) ≤ τ) and the priors of sides without features are learned.
    /// If they are learned earlier, bases are pruned before they have formed.
    pub hold: usize,
    /// Ridge on the features' weights, relative to the prior precision.
    pub feature_ridge: f64,
    /// Over-relaxation factor for steps of the prior means; used only with features.
    pub relaxation: f64,
    /// Whether the prior means depend on the logarithm of the number of ratings.
    pub popularity: bool,
    /// The fit ends when a sweep reduces the objective by at most this fraction.
    pub tol: f64,
    /// Seed of the random start.
    pub seed: u64,
}

/// The means of a fit, which form an ordinary two-sided factorization machine.
#[derive(Debug, Clone)]
pub struct Factors {
    /// Mean factors p and linear weights l of the users, as rows \[p; l\], n_users × (k + m).
    pub users: Array2<f64>,
    /// Mean factors and linear weights of the items, n_items × (k + m).
    pub items: Array2<f64>,
    /// Output weights U, factors × outputs.
    pub output: Array2<f64>,
    /// Intercept b of each output.
    pub intercept: Vec<f64>,
}

/// Checks the settings and the ratings.
///
/// # Errors
/// [`Error::InvalidArgument`] naming the argument.
pub(super) fn check(ratings: &Ratings<'_>, settings: &VariationalSettings<'_>) -> Result<()> {
    if ratings.values.is_empty() {
        return Err(Error::argument("ratings", "there must be at least one rating"));
    }
    if settings.n_components == 0 {
        return Err(Error::argument("n_components", "must be at least 1"));
    }
    if settings.radius.is_nan() || settings.radius <= 0.0 {
        return Err(Error::argument("radius", "must be positive (infinity for no bound)"));
    }
    if let Likelihood::Ordinal(weights) = &settings.likelihood
        && (weights.is_empty() || weights.iter().any(|w| !(w.is_finite() && *w > 0.0)))
    {
        return Err(Error::argument(
            "tempering",
            "must have one positive weight for each threshold",
        ));
    }
    check_ratings(ratings, &settings.likelihood)
}

/// Checks the ratings.
pub(super) fn check_ratings(ratings: &Ratings<'_>, likelihood: &Likelihood) -> Result<()> {
    let fail = |message: &str| Err(Error::argument("ratings", message));
    let n = ratings.values.len();
    let weights = ratings.weights;
    if ratings.users.len() != n || ratings.items.len() != n {
        return fail("users, items and values must have the same length");
    }
    if !weights.is_empty() && weights.len() != n
        || weights.iter().any(|w| !(w.is_finite() && *w > 0.0))
    {
        return fail("each rating must have a positive weight");
    }
    if ratings.users.iter().any(|&user| user as usize >= ratings.n_users)
        || ratings.items.iter().any(|&item| item as usize >= ratings.n_items)
    {
        return fail("an id is out of range");
    }
    for Groups { of, n: n_groups } in ratings.groups {
        let length = if n_groups > 0 { n } else { 0 };
        if of.len() != length || of.iter().any(|&group| group as usize >= n_groups) {
            return fail("each rating must have a group below the number of groups");
        }
    }
    if ratings.values.iter().any(|value| !value.is_finite()) {
        return fail("must not contain NaN or infinity");
    }
    if let Likelihood::Ordinal(weights) = likelihood {
        let top = weights.len() as f64;
        if ratings.values.iter().any(|&y| y < 0.0 || y > top || y.fract() != 0.0) {
            return fail("a level is out of range");
        }
    }
    Ok(())
}
