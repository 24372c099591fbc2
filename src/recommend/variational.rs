//! The sweeps of the variational fit.

use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::effects::Effects;
use super::output::{OutputLayer, fit_output, rescale};
use super::prior::{Features, LearnedPrior, PriorSettings};
use super::problem::{Factors, Likelihood, Ratings, VariationalSettings, check};
use super::rows::{Others, update_rows};
use super::side::{Side, SideRatings, SideState};
use super::spread::Spread;
use super::sums::SweepSums;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::run::{Certificate, Progress, Solver};

/// Coordinate descent on the variational objective; one epoch is one sweep over both sides.
#[derive(Debug)]
pub struct VariationalRefit<'a> {
    settings: VariationalSettings<'a>,
    users: Side<'a>,
    items: Side<'a>,
    output: OutputLayer,
    sweep: usize,
    objective: f64,
    /// The state that has the value `objective`; kept only if the next sweep may have to be undone.
    kept: Option<State<'a>>,
}

/// The state that a sweep changes.
#[derive(Debug)]
struct State<'a> {
    users: SideState<'a>,
    items: SideState<'a>,
    output: OutputLayer,
}

impl<'a> VariationalRefit<'a> {
    /// Checks the ratings and starts from random factors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument.
    pub fn new(
        ratings: Ratings<'_>,
        user_features: Option<Features<'a>>,
        item_features: Option<Features<'a>>,
        settings: VariationalSettings<'a>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        check(&ratings, &settings)?;
        let (k, m) = (settings.n_components, settings.likelihood.n_outputs());
        let VariationalSettings { popularity, feature_ridge: ridge, relaxation, .. } = settings;
        let prior = (PriorSettings { popularity, ridge, relaxation }, interrupt);
        let mut rng = Pcg64Mcg::seed_from_u64(settings.seed);
        // A sum of uniform numbers can replace a normal draw, because only the scale matters.
        let mut draw =
            || -> f64 { 0.3 * ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0) };
        let Ratings { values, weights, groups, .. } = ratings;
        let mut users = Side::new(
            SideRatings { rows: ratings.users, partners: ratings.items, values, weights, groups },
            ratings.n_users,
            (k, m),
            user_features,
            prior,
        )?;
        let mut items = Side::new(
            SideRatings {
                rows: ratings.items,
                partners: ratings.users,
                values,
                weights,
                groups: [groups[1], groups[0]],
            },
            ratings.n_items,
            (k, m),
            item_features,
            prior,
        )?;
        users.start(&mut draw);
        items.start(&mut draw);
        let output = OutputLayer {
            weights: Array2::from_elem((m, k), 0.5),
            intercept: null_outputs(ratings.values, &settings.likelihood),
            precision: 1.0,
        };
        Ok(Self { settings, users, items, output, sweep: 0, objective: f64::INFINITY, kept: None })
    }

    /// The current means.
    pub fn factors(&self) -> Factors {
        Factors {
            users: self.users.means(),
            items: self.items.means(),
            output: self.output.weights.t().to_owned(),
            intercept: self.output.intercept.clone(),
        }
    }

    /// The linear weights of the users' groups and of the items' groups of ratings, with one row per group.
    pub fn effects(&self) -> [Option<Array2<f64>>; 2] {
        [&self.users, &self.items].map(|side| side.effects.as_ref().map(Effects::table))
    }

    /// Priors and covariances of users and of items, from which the blocks of new ids are computed.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn learned(&self, interrupt: &Interrupt) -> Result<[(LearnedPrior, Spread); 2]> {
        let of = |side: &Side<'_>| Ok((side.prior.learned(interrupt)?, side.spread()));
        Ok([of(&self.users)?, of(&self.items)?])
    }

    /// Precision 1/σ² of a Gaussian likelihood.
    pub fn precision(&self) -> f64 {
        self.output.precision
    }

    /// Scales the bases to mean square 1 on both sides and multiplies U by the scales. This changes the ridge penalty
    /// on U. Without a ball, scaling is optional; it is skipped if it would increase the penalty.
    fn normalise(&mut self, sums: &mut SweepSums) {
        let (of_users, of_items) = (self.users.scales(), self.items.scales());
        let scale: Vec<f64> = of_users.iter().zip(&of_items).map(|(u, i)| u * i).collect();
        let mut scaled = self.output.weights.clone();
        for mut row in scaled.rows_mut() {
            row.iter_mut().zip(&scale).for_each(|(u, scale)| *u *= scale);
        }
        let square = |weights: &Array2<f64>| weights.iter().map(|u| u * u).sum::<f64>();
        if self.settings.radius.is_infinite() && square(&scaled) > square(&self.output.weights) {
            return;
        }
        self.output.weights = scaled;
        self.users.normalise_bases(&of_users);
        self.items.normalise_bases(&of_items);
        rescale(sums, &scale);
    }

    /// Whether a sweep may increase the objective. Scaling the bases may move U out of its ball, and projecting it back
    /// may cost more than the sweep gained. Such a sweep is undone. The ball applies only after `hold` sweeps.
    fn may_rise(&self) -> bool {
        self.settings.radius.is_finite() && self.sweep > self.settings.hold
    }

    fn state(&self) -> State<'a> {
        let Self { users, items, output, .. } = self;
        State { users: users.state(), items: items.state(), output: output.clone() }
    }

    fn update(&mut self, users: bool, interrupt: &Interrupt) -> Result<SweepSums> {
        let (own, other) =
            if users { (&mut self.users, &self.items) } else { (&mut self.items, &self.users) };
        let others = Others { blocks: &other.blocks, effects: other.effects.as_ref() };
        let precision = own.prior.precision()?;
        let likelihood = &self.settings.likelihood;
        update_rows(own, others, &self.output, likelihood, (&precision, 1, interrupt))
    }
}

impl Solver for VariationalRefit<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.update(true, interrupt)?;
        // The second half of the sweep returns the bound for the state before its update, so the divergences are
        // computed for the same state.
        let (of_users, of_items) =
            rayon::join(|| self.users.divergence(), || self.items.divergence());
        let divergence = of_users? + of_items?;
        let now = self.may_rise().then(|| self.state());
        let mut sums = self.update(false, interrupt)?;
        let squares: f64 = self.output.weights.iter().map(|u| u * u).sum();
        let mut objective = sums.bound + divergence + 0.5 * self.settings.output_ridge * squares;
        for effects in [&self.users.effects, &self.items.effects].into_iter().flatten() {
            objective += effects.divergence()?;
        }
        if let Some(kept) = self.kept.take_if(|_| objective > self.objective) {
            self.users.restore(kept.users);
            self.items.restore(kept.items);
            self.output = kept.output;
            return Ok(Progress::Settled(self.objective));
        }
        self.kept = now;
        if self.settings.likelihood == Likelihood::Gaussian {
            let precision = self.users.total_weight() / sums.squares.max(1e-12);
            // Rescales the quadratic in U and b to the new precision.
            let ratio = precision / self.output.precision;
            sums.curvature *= ratio;
            sums.slope *= ratio;
            self.output.precision = precision;
        }
        for effects in [&mut self.users.effects, &mut self.items.effects].into_iter().flatten() {
            effects.learn_prior();
        }
        let learn = self.sweep >= self.settings.hold;
        let sweep = self.sweep;
        let learn_prior = |side: &mut Side<'_>| -> Result<bool> {
            let due = learn || side.has_features() && sweep > 0;
            if due {
                side.learn_prior(interrupt)?;
            }
            Ok(due)
        };
        let (of_users, of_items) =
            rayon::join(|| learn_prior(&mut self.users), || learn_prior(&mut self.items));
        if of_users? | of_items? {
            self.normalise(&mut sums);
        }
        if learn {
            fit_output(&mut self.output, &sums, &self.settings)?;
        }
        self.sweep += 1;
        // U, and the priors of sides without features, are learned only after `hold` sweeps. This learning can
        // improve the objective again, so the run does not end during the first `hold` sweeps.
        let converged = sweep > self.settings.hold + 1
            && self.objective - objective <= self.settings.tol * objective.abs();
        self.objective = objective;
        Ok(if converged { Progress::Settled(objective) } else { Progress::Objective(objective) })
    }

    fn certify(&mut self, _interrupt: &Interrupt) -> Result<Certificate> {
        // There is no certificate: the objective is an upper bound on −log evidence, and no lower bound is known. Only
        // a sweep computes the objective.
        Err(Error::argument("max_iter", "must be at least 1"))
    }
}

/// Returns the constant outputs that fit the ratings best.
fn null_outputs(values: &[f64], likelihood: &Likelihood) -> Vec<f64> {
    let count = values.len() as f64;
    match likelihood {
        Likelihood::Gaussian => vec![values.iter().sum::<f64>() / count],
        Likelihood::Ordinal(weights) => (0..weights.len())
            .map(|c| {
                let below = values.iter().filter(|&&y| y <= c as f64).count() as f64;
                // The ½ keeps the log-odds finite for a level that nobody used.
                ((below + 0.5) / (count - below + 0.5)).ln()
            })
            .collect(),
    }
}
