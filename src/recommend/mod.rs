//! Variational refit of a two-sided factorization machine: ratings of items by users.
//!
//! For rows x = \[one-hot user | one-hot item | features of either\] the machine of SPEC 1 reads
//!
//! ```text
//! o_c = b_c + l_uc + l_ic + Σ_r U_rc p_ur q_ir
//! ```
//!
//! where a side's block z = \[p; l\] collects what the basis and the linear weights say of one user or
//! item: its own part plus that of its features. (Pairs inside a side depend on that side alone and
//! stand in its linear weights.) Instead of a point, each block carries a Gaussian N(z, S); its prior,
//! a regression on the side's features and a full covariance, is learned. The logistic terms are bounded
//! by Jaakkola and Jordan's quadratic (*Bayesian parameter estimation via variational methods*, 2000),
//! so that every step has a closed form:
//!
//! 1. the blocks of one side, given the other (rows are independent);
//! 2. the priors;
//! 3. bases back to one length, their scale into U;
//! 4. U and b: a convex quadratic inside the ball Ω(U) ≤ τ.
//!
//! Predictions use the means alone, so the result is a plain multi-output factorization machine. The
//! objective (an upper bound on −log evidence) has no dual: no duality gap is known.

mod lanes;
mod output;
mod prior;
mod rows;
mod side;

pub use prior::Features;

use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use self::output::{fit_output, rescale};
use self::rows::{Sums, update_rows};
use self::side::Side;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::polynomial::penalty::Penalty;
use crate::run::{Certificate, Progress, Solver};

/// Observed ratings.
#[derive(Debug, Clone, Copy)]
pub struct Ratings<'a> {
    /// User of each rating, below `n_users`.
    pub users: &'a [u32],
    /// Item of each rating, below `n_items`.
    pub items: &'a [u32],
    /// Value of each rating: a level 0..m for ordinal ratings, any number for regression.
    pub values: &'a [f64],
    /// Number of users.
    pub n_users: usize,
    /// Number of items.
    pub n_items: usize,
}

/// How ratings follow from outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum Likelihood {
    /// Ordinal McRank (SPEC 8): output c is the log-odds of level ≤ c, one logistic term per threshold,
    /// each weighted by its entry (the terms of one rating are not independent evidence).
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

/// Settings of the fit.
#[derive(Debug, Clone)]
pub struct Settings<'a> {
    /// Number of bases k; superfluous ones shrink to zero.
    pub n_components: usize,
    /// The likelihood.
    pub likelihood: Likelihood,
    /// Penalty Ω on the output layer.
    pub penalty: &'a dyn Penalty,
    /// Radius τ of its ball; infinity for none.
    pub radius: f64,
    /// Ridge on U.
    pub output_ridge: f64,
    /// Sweeps before U (and with it the ball) and the priors are learned: earlier, bases are pruned
    /// before they have formed.
    pub hold: usize,
    /// Ridge of the features' weights, in units of the prior covariance.
    pub feature_ridge: f64,
    /// Over-relaxation of the prior means when there are features.
    pub relaxation: f64,
    /// Seed of the random start.
    pub seed: u64,
}

/// The means of a fit: a plain two-sided factorization machine.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Blocks \[p; l\] of the users, n_users × (k + m).
    pub users: Array2<f64>,
    /// Blocks of the items, n_items × (k + m).
    pub items: Array2<f64>,
    /// U, k × m.
    pub output: Array2<f64>,
    /// b, m.
    pub intercept: Vec<f64>,
}

/// Coordinate descent on the variational objective; one epoch is one sweep over both sides.
#[derive(Debug)]
pub struct VariationalRefit<'a> {
    settings: Settings<'a>,
    users: Side<'a>,
    items: Side<'a>,
    output: OutputLayer,
    sweep: usize,
}

/// U and b, with the precision of a Gaussian likelihood.
#[derive(Debug, Clone)]
pub(crate) struct OutputLayer {
    /// U by outputs, m × k.
    pub weights: Array2<f64>,
    /// b.
    pub intercept: Vec<f64>,
    /// 1/σ² of the Gaussian likelihood.
    pub precision: f64,
}

impl<'a> VariationalRefit<'a> {
    /// Checks the ratings and starts from random factors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming what cannot be used.
    pub fn new(
        ratings: Ratings<'_>,
        user_features: Option<Features<'a>>,
        item_features: Option<Features<'a>>,
        popularity: bool,
        settings: Settings<'a>,
    ) -> Result<Self> {
        check(&ratings, &settings)?;
        let (k, m) = (settings.n_components, settings.likelihood.n_outputs());
        let mut rng = Pcg64Mcg::seed_from_u64(settings.seed);
        // A sum of uniforms stands in for a normal draw: only the scale matters.
        let mut draw =
            || -> f64 { 0.3 * ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0) };
        let mut users = Side::new(
            (ratings.users, ratings.items, ratings.values),
            ratings.n_users,
            (k, m),
            user_features,
            popularity,
        )?;
        let mut items = Side::new(
            (ratings.items, ratings.users, ratings.values),
            ratings.n_items,
            (k, m),
            item_features,
            popularity,
        )?;
        users.start(&mut draw);
        items.start(&mut draw);
        let count = ratings.values.len() as f64;
        let intercept = match &settings.likelihood {
            Likelihood::Gaussian => vec![ratings.values.iter().sum::<f64>() / count],
            Likelihood::Ordinal(_) => (0..m)
                .map(|c| {
                    let below = ratings.values.iter().filter(|&&y| y <= c as f64).count() as f64;
                    // A level that nobody used would start at an infinite log-odds.
                    ((below + 0.5) / (count - below + 0.5)).ln()
                })
                .collect(),
        };
        let weights = Array2::from_elem((m, k), 0.5);
        let output = OutputLayer { weights, intercept, precision: 1.0 };
        Ok(Self { settings, users, items, output, sweep: 0 })
    }

    /// The means as they stand.
    pub fn blocks(&self) -> Blocks {
        Blocks {
            users: self.users.means(),
            items: self.items.means(),
            output: self.output.weights.t().to_owned(),
            intercept: self.output.intercept.clone(),
        }
    }

    fn update(&mut self, users: bool, interrupt: &Interrupt) -> Result<Sums> {
        let (own, other) =
            if users { (&mut self.users, &self.items) } else { (&mut self.items, &self.users) };
        update_rows(own, other, &self.output, &self.settings.likelihood, interrupt)
    }
}

impl Solver for VariationalRefit<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.update(true, interrupt)?;
        // The sums belong to the state that the second half of the sweep starts from.
        let (of_users, of_items) =
            rayon::join(|| self.users.divergence(), || self.items.divergence());
        let divergence = of_users? + of_items?;
        let mut sums = self.update(false, interrupt)?;
        let squares: f64 = self.output.weights.iter().map(|u| u * u).sum();
        let objective = sums.bound + divergence + 0.5 * self.settings.output_ridge * squares;
        if self.settings.likelihood == Likelihood::Gaussian {
            self.output.precision = self.users.n_ratings() as f64 / sums.squares.max(1e-12);
        }
        let learn = self.sweep >= self.settings.hold;
        let (sweep, settings) = (self.sweep, &self.settings);
        let learn_prior = |side: &mut Side<'_>| -> Result<Option<Vec<f64>>> {
            if !learn && (!side.has_features() || sweep == 0) {
                return Ok(None);
            }
            side.learn_prior(settings.feature_ridge, settings.relaxation, interrupt)?;
            Ok(Some(side.normalise_bases()))
        };
        let (of_users, of_items) =
            rayon::join(|| learn_prior(&mut self.users), || learn_prior(&mut self.items));
        for scale in [of_users?, of_items?].into_iter().flatten() {
            for mut row in self.output.weights.rows_mut() {
                row.iter_mut().zip(&scale).for_each(|(u, scale)| *u *= scale);
            }
            rescale(&mut sums, &scale);
        }
        if learn {
            fit_output(&mut self.output, &sums, &self.settings)?;
        }
        self.sweep += 1;
        Ok(Progress::Objective(objective))
    }

    fn certify(&mut self, _interrupt: &Interrupt) -> Result<Certificate> {
        // No bound on the evidence is known from the other side: only a sweep gives a value.
        Err(Error::argument("n_sweeps", "must be at least 1"))
    }
}

fn check(ratings: &Ratings<'_>, settings: &Settings<'_>) -> Result<()> {
    let fail = |message: &str| Err(Error::argument("ratings", message));
    let n = ratings.values.len();
    if n == 0 {
        return fail("there must be at least one rating");
    }
    if ratings.users.len() != n || ratings.items.len() != n {
        return fail("users, items and values must be equally many");
    }
    if ratings.users.iter().any(|&user| user as usize >= ratings.n_users)
        || ratings.items.iter().any(|&item| item as usize >= ratings.n_items)
    {
        return fail("an id is out of range");
    }
    if ratings.values.iter().any(|value| !value.is_finite()) {
        return fail("must not contain NaN or infinity");
    }
    if settings.n_components == 0 {
        return Err(Error::argument("n_components", "must be at least 1"));
    }
    if settings.radius.is_nan() || settings.radius <= 0.0 {
        return Err(Error::argument("radius", "must be positive (infinity for no bound)"));
    }
    if let Likelihood::Ordinal(weights) = &settings.likelihood {
        if weights.is_empty() || weights.iter().any(|w| !(w.is_finite() && *w > 0.0)) {
            return Err(Error::argument("tempering", "needs a positive weight per threshold"));
        }
        let top = weights.len() as f64;
        if ratings.values.iter().any(|&y| y < 0.0 || y > top || y.fract() != 0.0) {
            return fail("a level is out of range");
        }
    }
    Ok(())
}
