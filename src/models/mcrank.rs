//! Predicts ordinal ratings by a factorization machine with one output per threshold (McRank; Li et al. 2007, Blondel
//! et al. 2017, section 6).

use std::ops::ControlFlow;

use crate::data::{Chunked, IntoRows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::penalty;
use crate::polynomial::basis_selection::SelectionMethod;
use crate::polynomial::conditional_gradient::{ConditionalGradient, ConditionalGradientSettings};
use crate::polynomial::evaluation::predict;
use crate::polynomial::kernel::PolynomialKernel;
use crate::polynomial::loss;
use crate::polynomial::model::PolynomialModel;
use crate::polynomial::problem::{Objective, PolynomialProblem, Targets};
use crate::polynomial::refit::Refit;
use crate::run::{Returned, Trace, run};
use crate::solver::Target;

/// Maximum number of different ratings.
const MAX_LEVELS: usize = 100;
/// Relative tolerance of the eigenvalue solver that selects basis vectors.
const SELECTION_TOL: f64 = 1e-2;

/// Options of a model of ordinal ratings: a factorization machine with a shared basis and a logistic
/// output for each threshold between two ratings, P(rating <= threshold).
///
/// ```
/// use dualgap::models::McRank;
/// use dualgap::prelude::*;
///
/// // One row per rating: a one-hot user and a one-hot item.
/// let indices = [0, 3, 0, 4, 1, 3, 1, 4, 2, 3, 2, 5];
/// let rows = Csr::new(&[0, 2, 4, 6, 8, 10, 12], &indices, &[1.0; 12], 6)?;
/// let ratings = [5.0, 1.0, 4.0, 2.0, 5.0, 3.0];
/// let model = McRank { n_components: 3, radius: 20.0, ..McRank::default() }.fit(rows, &ratings)?;
/// let predicted = model.predict(rows)?;
/// assert!(predicted[0] > predicted[1] && predicted.iter().all(|r| (1.0..=5.0).contains(r)));
/// # Ok::<(), dualgap::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct McRank {
    /// Maximum number of basis vectors.
    pub n_components: usize,
    /// Bound on the ℓ1/ℓ2 norm of the output layer, for basis vectors of unit length.
    pub radius: f64,
    /// Ridge on the linear weights.
    pub alpha: f64,
    /// Duality gap, relative to the objective, at which a fit has converged. The gap compares the
    /// model with models of any number of basis vectors.
    pub tol: f64,
    /// Maximum number of epochs; an epoch adds a basis vector.
    pub max_iter: usize,
    /// Seed for the selection of basis vectors.
    pub seed: u64,
    /// A flag with which another thread can stop the fit.
    pub interrupt: Interrupt,
}

impl Default for McRank {
    fn default() -> Self {
        Self {
            n_components: 30,
            radius: 600.0,
            alpha: 3.0,
            tol: 1e-4,
            max_iter: 300,
            seed: 0,
            interrupt: Interrupt::default(),
        }
    }
}

/// A fitted model of ordinal ratings.
#[derive(Debug, Clone)]
pub struct McRankModel {
    /// The ratings that occurred, in increasing order.
    pub levels: Vec<f64>,
    /// The record of the fit. Its certificate bounds the distance from the best model with any
    /// number of basis vectors.
    pub trace: Trace,
    model: PolynomialModel,
}

impl McRank {
    /// Fits a model to rows of features and their ratings. Rows are usually one-hot users and items,
    /// possibly with further features.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options, rows or ratings that cannot be used, and
    /// [`Error::Interrupted`].
    pub fn fit<'a>(&self, rows: impl IntoRows<'a>, ratings: &[f64]) -> Result<McRankModel> {
        let data = rows.into_rows()?;
        let levels = levels_of(ratings, data.n_rows())?;
        if !(self.tol >= 0.0 && self.tol.is_finite()) {
            return Err(Error::argument(
                "tol",
                format!("is {}; must be finite and at least 0", self.tol),
            ));
        }
        if self.max_iter == 0 {
            return Err(Error::argument("max_iter", "is 0; must be at least 1"));
        }
        let thresholds = &levels[..levels.len() - 1];
        let side = |rating: &f64, level: &f64| if rating <= level { 1.0 } else { -1.0 };
        let targets: Vec<f64> = ratings
            .iter()
            .flat_map(|rating| thresholds.iter().map(move |level| side(rating, level)))
            .collect();
        let (loss, penalty) = (loss::parse("binary-logistic")?, penalty::parse("l1/l2")?);
        let objective = Objective {
            n_outputs: thresholds.len(),
            kernel: PolynomialKernel::Anova,
            augmented: false,
            ridge: Some(self.alpha),
            loss: &*loss,
            penalty: &*penalty,
            radius: self.radius,
            target_means: &[],
        };
        let settings = ConditionalGradientSettings {
            n_components: self.n_components,
            refit: Refit::Full,
            selection: SelectionMethod::parse("refined")?,
            selection_tol: SELECTION_TOL,
            tol: self.tol,
            seed: self.seed,
        };
        let chunks = [data];
        let rows = Chunked::new(&chunks)?;
        let problem = PolynomialProblem::new(rows, Targets::Values(&targets), None, objective)?;
        let (interrupt, null) = (&self.interrupt, problem.null_model());
        let mut solver = ConditionalGradient::new(problem, settings, null, None, interrupt)?;
        let target = Target { tol: self.tol, max_epochs: self.max_iter };
        let mut stopping = target.stopping(solver.null_objective(interrupt)?);
        if self.tol > 0.0 {
            stopping.floor = stopping.floor.max(solver.smallest_gap());
        }
        let trace = run(&mut solver, stopping, interrupt, &mut |_| ControlFlow::Continue(()))?;
        let model = match trace.returned {
            Returned::Zero => solver.null_model(),
            _ => solver.into_result().0,
        };
        Ok(McRankModel { levels, trace, model })
    }
}

/// The different ratings in increasing order.
fn levels_of(ratings: &[f64], n_rows: usize) -> Result<Vec<f64>> {
    let n = ratings.len();
    if n != n_rows {
        return Err(Error::argument("ratings", format!("has {n} numbers for {n_rows} rows")));
    }
    if let Some(rating) = ratings.iter().find(|rating| !rating.is_finite()) {
        return Err(Error::argument("ratings", format!("must be finite, got {rating}")));
    }
    let mut levels = ratings.to_vec();
    levels.sort_unstable_by(f64::total_cmp);
    levels.dedup();
    if !(2..=MAX_LEVELS).contains(&levels.len()) {
        let message = format!(
            "has {} different values; must have 2 to {MAX_LEVELS}: round them to a few levels",
            levels.len()
        );
        return Err(Error::argument("ratings", message));
    }
    Ok(levels)
}

impl McRankModel {
    /// The expected rating of each row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rows do not have the model's number of columns, and [`Error::Numerical`] if an
    /// output is not finite.
    pub fn predict<'a>(&self, rows: impl IntoRows<'a>) -> Result<Vec<f64>> {
        let below = self.probabilities(rows)?;
        let n_thresholds = self.levels.len() - 1;
        let steps: Vec<f64> = self.levels.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let expected = |below: &[f64]| {
            let lost: f64 = below.iter().zip(&steps).map(|(below, step)| below * step).sum();
            self.levels[n_thresholds] - lost
        };
        Ok(below.chunks_exact(n_thresholds).map(expected).collect())
    }

    /// The probabilities P(rating <= level) for every level except the last, row by row.
    ///
    /// # Errors
    /// As for [`predict`](McRankModel::predict).
    pub fn probabilities<'a>(&self, rows: impl IntoRows<'a>) -> Result<Vec<f64>> {
        let data = rows.into_rows()?;
        if data.n_cols() != self.model.n_features {
            let (given, own) = (data.n_cols(), self.model.n_features);
            let message = format!("has {given} columns, but the model was fitted to {own}");
            return Err(Error::argument("X", message));
        }
        let mut outputs = predict(&self.model, data, &Interrupt::default())?;
        outputs.iter_mut().for_each(|output| *output = 1.0 / (1.0 + (-*output).exp()));
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Csr;

    const STARTS: [i64; 13] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24];

    /// Four users and three items, one-hot; the rating is 1 + (2 user + 3 item) mod 5.
    fn ratings() -> (Vec<i32>, Vec<f64>) {
        let pairs = (0..4).flat_map(|user| (0..3).map(move |item| (user, 4 + item)));
        let indices: Vec<i32> = pairs.flat_map(|(user, item)| [user, item]).collect();
        let rating = |pair: &[i32]| f64::from(1 + (2 * pair[0] + 3 * (pair[1] - 4)) % 5);
        let ratings = indices.chunks_exact(2).map(rating).collect();
        (indices, ratings)
    }

    #[test]
    fn a_fit_orders_the_ratings_and_bounds_its_distance_from_the_optimum() {
        let (indices, ratings) = ratings();
        let rows = Csr::new(&STARTS, &indices, &[1.0; 24], 7).unwrap();
        let options = McRank {
            n_components: 12,
            radius: 100.0,
            alpha: 0.1,
            max_iter: 40,
            ..McRank::default()
        };
        let model = options.fit(rows, &ratings).unwrap();
        let predicted = model.predict(rows).unwrap();
        let error: f64 =
            predicted.iter().zip(&ratings).map(|(p, r)| (p - r).abs()).sum::<f64>() / 12.0;
        assert!(error < 0.5, "{error} {predicted:?}");
        assert_eq!(model.levels, [1.0, 2.0, 3.0, 4.0, 5.0]);
        // Computes the objective from its definition: the logistic losses of the thresholds, plus the ridge penalty.
        let certificate = model.trace.certificate.unwrap();
        assert!(certificate.dual >= 0.0 && certificate.dual <= certificate.primal);
        let below = model.probabilities(rows).unwrap();
        let mut losses = 0.0;
        for (below, rating) in below.chunks_exact(4).zip(&ratings) {
            for (below, level) in below.iter().zip(&model.levels) {
                losses -= if rating <= level { below.ln() } else { (1.0 - below).ln() };
            }
        }
        assert!(losses <= certificate.primal * (1.0 + 1e-9), "{losses} {certificate:?}");
        assert!(losses >= 0.2 * certificate.primal, "{losses} {certificate:?}");
    }

    #[test]
    fn unusable_ratings_options_and_rows_are_errors() {
        let (indices, ratings) = ratings();
        let rows = Csr::new(&STARTS, &indices, &[1.0; 24], 7).unwrap();
        let message =
            |options: McRank, ratings: &[f64]| options.fit(rows, ratings).unwrap_err().to_string();
        assert!(message(McRank::default(), &[1.0; 12]).starts_with("ratings: has 1 different"));
        assert!(message(McRank::default(), &[1.0; 3]).starts_with("ratings: has 3 numbers for 12"));
        let tol = McRank { tol: f64::NAN, ..McRank::default() };
        assert!(message(tol, &ratings).starts_with("tol: is NaN"));
        let radius = McRank { radius: 0.0, ..McRank::default() };
        assert!(message(radius, &ratings).starts_with("radius"));
        let interrupt = Interrupt::default();
        interrupt.raise();
        assert_eq!(
            message(McRank { interrupt, ..McRank::default() }, &ratings),
            "the run was interrupted"
        );
    }
}
