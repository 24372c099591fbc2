//! Clicks, and the settings for fitting factors to them.

use crate::error::{Error, Result};

/// Observed pairs of users and items.
#[derive(Debug, Clone, Copy)]
pub struct Interactions<'a> {
    /// User of each pair, below `n_users`.
    pub users: &'a [u32],
    /// Item of each pair, below `n_items`.
    pub items: &'a [u32],
    /// Target t of each pair; empty if all are 1.
    pub targets: &'a [f64],
    /// Weight w of each pair; empty if all are 1.
    pub weights: &'a [f64],
    /// Number of users.
    pub n_users: usize,
    /// Number of items.
    pub n_items: usize,
}

/// Settings of the fit.
#[derive(Debug, Clone, Copy)]
pub struct InteractionSettings {
    /// Number of factors.
    pub n_components: usize,
    /// Weight α of the target 0 that every pair has, observed or not.
    pub unobserved: f64,
    /// The ridge penalty λ.
    pub ridge: f64,
    /// The fit ends when a sweep reduces the objective by at most this fraction.
    pub tol: f64,
    /// Seed of the random start.
    pub seed: u64,
}

impl InteractionSettings {
    /// The ridge λ (w + α n_other)^½ of a row whose pairs have the total weight w.
    pub(super) fn ridge_of(&self, weight: f64, n_other: usize) -> f64 {
        self.ridge * (weight + self.unobserved * n_other as f64).sqrt()
    }

    /// Checks `n_components`, `unobserved` and `ridge`.
    pub(super) fn check(&self) -> Result<()> {
        if self.n_components == 0 {
            return Err(Error::argument("n_components", "must be at least 1"));
        }
        for (name, value) in [("unobserved", self.unobserved), ("ridge", self.ridge)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::argument(name, "must be a positive number"));
            }
        }
        Ok(())
    }
}

impl Interactions<'_> {
    /// Checks lengths, ids and values.
    pub(super) fn check(&self) -> Result<()> {
        let fail = |message: &str| Err(Error::argument("ratings", message));
        let n = self.users.len();
        let fits = |values: &[f64]| values.is_empty() || values.len() == n;
        if self.items.len() != n || !fits(self.targets) || !fits(self.weights) {
            return fail("users, items, targets and weights must have the same length");
        }
        if self.users.iter().any(|&user| user as usize >= self.n_users)
            || self.items.iter().any(|&item| item as usize >= self.n_items)
        {
            return fail("an id is out of range");
        }
        let good = |w: &f64| w.is_finite() && *w > 0.0;
        if !self.targets.iter().all(|t| t.is_finite()) || !self.weights.iter().all(good) {
            return fail("targets must be finite, and weights must be positive");
        }
        Ok(())
    }
}
