//! Factors of click models: least squares over all pairs of users and items, observed or not.
//!
//! An observed pair has a target t (1 for a like, less for another rating). In addition, every pair, observed or not,
//! has the target 0 with a small weight α (Hu, Koren and Volinsky 2008; in the form of Rendle, Krichene, Zhang and
//! Koren 2022, "Revisiting the performance of iALS on item recommendation benchmarks"):
//!
//! ```text
//! min Σ_observed w (t − ⟨a_u, b_i⟩)² + α Σ_all ⟨a_u, b_i⟩² + λ Σ_u (w_u + α n_items)^½ ‖a_u‖²
//!     + λ Σ_i (w_i + α n_users)^½ ‖b_i‖²
//! ```
//!
//! where w_u and w_i are the total weights of a user's and an item's observed pairs. (Rendle et al. tune the exponent;
//! with ½, the same λ works for data of different sizes.) With features x of users or items, the ridge penalises the
//! distance of the factors from x B (`click_features`). Each half sweep takes a few conjugate gradient steps in every
//! row of one side, which decreases the objective. New rows are solved exactly.

use ndarray::{Array2, ArrayView2};
use pulp::{Simd, WithSimd};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::click_features::ClickFeatures;
use super::click_problem::{InteractionSettings, Interactions};
use super::click_rows::{ClickRows, gram};
use super::click_steps::half_sweep;
use super::prior::Features;
use crate::data::Rows;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::linalg::cholesky::solve_semidefinite;
use crate::linalg::vectors::{padded, padded_axpy};
use crate::memory::require;
use crate::parallel::map_items_with;
use crate::run::{Certificate, Progress, Solver};

/// Alternating least squares; one epoch is one sweep over both sides.
#[derive(Debug)]
pub struct InteractionFit {
    settings: InteractionSettings,
    users: ClickRows,
    items: ClickRows,
    /// Sum over the observed pairs of weight times squared target.
    squares: f64,
    objective: f64,
}

impl InteractionFit {
    /// Checks the pairs and starts from random factors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument.
    pub fn new(pairs: Interactions<'_>, settings: InteractionSettings) -> Result<Self> {
        settings.check()?;
        pairs.check()?;
        let d = padded(settings.n_components);
        let bytes = 16 * d as u128 * (pairs.n_users + pairs.n_items) as u128;
        let what = || format!("the interaction factors of {d} components");
        require(bytes, what, "lower n_components")?;
        let (mut users, mut items) = ClickRows::both(&pairs, d);
        let mut rng = Pcg64Mcg::seed_from_u64(settings.seed);
        let scale = 0.1 / (settings.n_components as f64).sqrt();
        for rows in [&mut users, &mut items] {
            for z in rows.factors.chunks_exact_mut(d) {
                for value in &mut z[..settings.n_components] {
                    *value = scale * ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0);
                }
            }
        }
        let one = |values: &[f64], at: usize| values.get(at).copied().unwrap_or(1.0);
        let square = |at| one(pairs.weights, at) * one(pairs.targets, at).powi(2);
        let squares = (0..pairs.users.len()).map(square).sum();
        Ok(Self { settings, users, items, squares, objective: f64::INFINITY })
    }

    /// Pulls the factors of users and items towards regressions on features. The ridge on the regression weights is η
    /// times the mean of the rows' ridges.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument; [`Error::Interrupted`].
    pub fn with_features(
        mut self,
        features: [Option<Features<'_>>; 2],
        eta: f64,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let n_others = [self.items.n_ids, self.users.n_ids];
        for ((rows, features), n_other) in
            [&mut self.users, &mut self.items].into_iter().zip(features).zip(n_others)
        {
            let Some(features) = features else { continue };
            let what = || format!("the factors of {} features", features.n_cols());
            let bytes = 40 * rows.d as u128 * (features.n_cols() + rows.used.len()) as u128;
            require(bytes, what, "lower n_components")?;
            let ridge = |row| self.settings.ridge_of(rows.weight(row), n_other);
            let ridges: Vec<f64> = (0..rows.used.len()).map(ridge).collect();
            let ids = (&rows.used[..], rows.n_ids);
            let features = ClickFeatures::new(features, ids, (&ridges, eta), rows.d, interrupt)?;
            rows.features = Some(features);
        }
        Ok(self)
    }

    /// Starts from the given factors of all users and items instead of random factors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if their shapes do not match; [`Error::Interrupted`].
    pub fn start_from(
        mut self,
        users: ArrayView2<'_, f64>,
        items: ArrayView2<'_, f64>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        for (rows, table) in [(&mut self.users, users), (&mut self.items, items)] {
            if table.dim() != (rows.n_ids, self.settings.n_components) {
                return Err(Error::argument(
                    "start",
                    "the shapes of the factors do not match the pairs",
                ));
            }
            rows.set(table);
            rows.learn(interrupt)?;
        }
        Ok(self)
    }

    /// The weights of the user features and of the item features, with one row per feature.
    pub fn feature_weights(&self) -> [Option<Array2<f64>>; 2] {
        let width = self.settings.n_components;
        [self.users.feature_weights(width), self.items.feature_weights(width)]
    }

    /// The factors of users and items, with one row per id; 0 for ids without pairs.
    pub fn factors(&self) -> (Array2<f64>, Array2<f64>) {
        let width = self.settings.n_components;
        (self.users.table(width), self.items.table(width))
    }
}

impl Solver for InteractionFit {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let Self { settings, users, items, .. } = self;
        half_sweep(users, items, settings, interrupt)?;
        let user_ridge = users.penalty(|weight| settings.ridge_of(weight, items.n_ids));
        // The terms of the objective that depend on the items sum to Σ w t² − `explained`.
        let explained = half_sweep(items, users, settings, interrupt)?;
        let feature_ridge = users.feature_penalty() + items.feature_penalty();
        let objective = self.squares - explained + user_ridge + feature_ridge;
        users.learn(interrupt)?;
        items.learn(interrupt)?;
        let converged = self.objective - objective <= settings.tol * objective.abs();
        self.objective = objective;
        Ok(if converged { Progress::Settled(objective) } else { Progress::Objective(objective) })
    }

    fn certify(&mut self, _interrupt: &Interrupt) -> Result<Certificate> {
        Err(Error::argument("max_iter", "must be at least 1"))
    }
}

/// Returns the factors of new users, n_new × d: the exact solutions of the same least-squares problem, with the factors
/// of the items fixed.
///
/// `pairs.n_items` must be the number of rows of `items`, and `gram` the [`factor_gram`] of `items`. `means` holds
/// the prior mean of each new user; None means 0. The factors of a user without pairs are the user's prior mean.
///
/// # Errors
/// [`Error::InvalidArgument`] naming the invalid argument; [`Error::Interrupted`].
pub fn fold_in_interactions(
    pairs: Interactions<'_>,
    (items, gram): (ArrayView2<'_, f64>, ArrayView2<'_, f64>),
    means: Option<ArrayView2<'_, f64>>,
    settings: &InteractionSettings,
    interrupt: &Interrupt,
) -> Result<Array2<f64>> {
    settings.check()?;
    pairs.check()?;
    let width = settings.n_components;
    let fits = means.is_none_or(|means| means.dim() == (pairs.n_users, width));
    if items.dim() != (pairs.n_items, width) || gram.dim() != (width, width) || !fits {
        return Err(Error::argument("model", "the shapes of its arrays do not match"));
    }
    let d = padded(width);
    let (mut users, mut others) = ClickRows::both(&pairs, d);
    others.set(items);
    means.into_iter().for_each(|means| users.set(means));
    let mut matrix_of_all = vec![0.0; d * d];
    for (to, from) in matrix_of_all.chunks_exact_mut(d).zip(gram.rows()) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = settings.unobserved * from);
    }
    let mut factors = std::mem::take(&mut users.factors);
    let solve = |matrix: &mut Vec<f64>, (row, z): (usize, &mut [f64])| {
        if !interrupt.is_raised() {
            matrix.clone_from(&matrix_of_all);
            let ridge = settings.ridge_of(users.weight(row), pairs.n_items);
            arch().dispatch(Solve { rows: &users, row, table: &others.factors, ridge, matrix, z });
        }
    };
    map_items_with(factors.chunks_mut(d).enumerate(), 1, Vec::new, solve);
    users.factors = factors;
    interrupt.check()?;
    let mut result = means.map_or_else(|| Array2::zeros((pairs.n_users, width)), |m| m.to_owned());
    users.write(&mut result);
    Ok(result)
}

/// Returns Σ b bᵀ over the rows b of a table.
pub fn factor_gram(factors: ArrayView2<'_, f64>) -> Array2<f64> {
    let (width, d) = (factors.ncols(), padded(factors.ncols()));
    let mut values = vec![0.0; factors.nrows() * d];
    for (to, from) in values.chunks_exact_mut(d).zip(factors.rows()) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
    let gram = gram(&values, d);
    Array2::from_shape_fn((width, width), |(row, column)| gram[row * d + column])
}

/// Solves for the exact factors of one row. On entry `z` holds the prior mean and the matrix holds α Σ b bᵀ. On return
/// `z` holds the factors; the matrix is overwritten.
struct Solve<'a> {
    rows: &'a ClickRows,
    row: usize,
    table: &'a [f64],
    ridge: f64,
    matrix: &'a mut [f64],
    z: &'a mut [f64],
}

impl WithSimd for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { rows, row, table, ridge, matrix, z } = self;
        let d = z.len();
        z.iter_mut().for_each(|value| *value *= ridge);
        let pairs = rows.pairs(row);
        for (at, &partner) in pairs.partners.iter().enumerate() {
            let b = &table[partner as usize * d..][..d];
            let (t, w) = pairs.pair(at);
            for (line, value) in matrix.chunks_exact_mut(d).zip(b) {
                padded_axpy(line, w * value, b);
            }
            padded_axpy(z, w * t, b);
        }
        for at in 0..d {
            // The padding of the factors is 0 everywhere, and the ridge keeps it 0.
            matrix[at * d + at] += ridge;
        }
        solve_semidefinite(matrix, z);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_pairs_take_no_memory() {
        let n = 100_000;
        let settings =
            InteractionSettings { n_components: 3, unobserved: 0.1, ridge: 0.1, tol: 0.0, seed: 1 };
        let (users, items) = (&[0, 2, 2][..], &[7, 99_999, 7][..]);
        let (targets, weights) = (&[1.0, 0.5, 1.0][..], &[1.0; 3][..]);
        let pairs = Interactions { users, items, targets, weights, n_users: 3, n_items: n };
        let mut fit = InteractionFit::new(pairs, settings).unwrap();
        assert_eq!((&fit.users.used[..], &fit.items.used[..]), (&[0, 2][..], &[7, 99_999][..]));
        assert_eq!(fit.items.factors.len(), 2 * padded(3));
        for _ in 0..3 {
            let before = fit.objective;
            fit.advance(&Interrupt::default()).unwrap();
            assert!(fit.objective < before);
        }
        let (_, items) = fit.factors();
        let used = items.rows().into_iter().enumerate();
        let used = used.filter(|(_, z)| z.iter().any(|value| *value != 0.0)).map(|(row, _)| row);
        assert_eq!(used.collect::<Vec<_>>(), [7, 99_999]);
    }
}
