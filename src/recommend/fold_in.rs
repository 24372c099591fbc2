//! Computes the blocks of new users or items for a fitted model. Uses the block update of the fit, with the other side
//! fixed.

use std::collections::BTreeMap;

use ndarray::{Array2, ArrayView1, ArrayView2};

use super::block::BlockLayout;
use super::output::OutputLayer;
use super::prior::{Prior, PriorSettings};
use super::problem::{Likelihood, Ratings, check_ratings};
use super::rows::{Others, update_rows};
use super::side::{Side, SideRatings};
use super::spread::{block_of, fits};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// The fitted side that the new ids' ratings refer to.
#[derive(Debug, Clone, Copy)]
pub struct FittedSide<'a> {
    /// Mean factors p and linear weights l, as rows \[p; l\], n × (k + m).
    pub means: ArrayView2<'a, f64>,
    /// Number of ratings of each id.
    pub counts: ArrayView1<'a, u32>,
    /// Mean covariances, with one row for each range of rating counts.
    pub spread: ArrayView2<'a, f64>,
}

/// The output layer of a fit.
#[derive(Debug, Clone)]
pub struct FittedOutput {
    /// Output weights U, factors × outputs.
    pub weights: Array2<f64>,
    /// Intercept b of each output.
    pub intercept: Vec<f64>,
    /// Precision 1/σ² of a Gaussian likelihood.
    pub precision: f64,
    /// The likelihood.
    pub likelihood: Likelihood,
}

/// The prior of new ids.
#[derive(Debug, Clone)]
pub struct NewPrior {
    /// A mean for each id, n_new × (k + m).
    pub mean: Array2<f64>,
    /// Covariance Σ of a block.
    pub covariance: Array2<f64>,
}

/// Number of updates of each new block. The bounds of its ratings converge within a few updates.
const UPDATES: usize = 8;

/// Returns the means \[p; l\] of the blocks of new ids, n_new × (k + m). `ratings.users` holds the new ids, and
/// `ratings.items` holds the ids of `other`.
///
/// Each update is step 1 of the fit (docs/mathematics/recommender.md#block-update). The other
/// side's blocks do not change.
///
/// # Errors
/// [`Error::InvalidArgument`] if shapes do not match or ratings are invalid;
/// [`Error::Interrupted`].
pub fn fold_in(
    ratings: Ratings<'_>,
    other: FittedSide<'_>,
    output: &FittedOutput,
    prior: NewPrior,
    interrupt: &Interrupt,
) -> Result<Array2<f64>> {
    let (k, m) = output.weights.dim();
    let layout = BlockLayout::new(k, m);
    let d = layout.d();
    let good = prior.mean.dim() == (ratings.n_users, d)
        && prior.covariance.dim() == (d, d)
        && other.means.dim() == (ratings.n_items, d)
        && other.counts.len() == ratings.n_items
        && fits(other.spread, layout)
        && output.intercept.len() == m
        && output.likelihood.n_outputs() == m;
    if !good {
        return Err(Error::argument("model", "the shapes of its arrays do not match"));
    }
    check_ratings(&ratings, &output.likelihood)?;
    // Only the rated items have blocks here. They are renumbered in the same order.
    let mut rated: BTreeMap<u32, u32> = ratings.items.iter().map(|&item| (item, 0)).collect();
    let mut others = vec![0.0; rated.len() * layout.stride()];
    for (number, ((item, at), block)) in
        rated.iter_mut().zip(others.chunks_exact_mut(layout.stride())).enumerate()
    {
        *at = number as u32;
        let (mean, count) = (other.means.row(*item as usize), other.counts[*item as usize]);
        block_of(layout, mean, &other.spread, count as usize, block);
    }
    let partners: Vec<u32> = ratings.items.iter().map(|item| rated[item]).collect();
    let Ratings { users: rows, values, weights, .. } = ratings;
    let groups = Default::default();
    let sorted = SideRatings { rows, partners: &partners, values, weights, groups };
    let known = PriorSettings { popularity: false, ridge: 1.0, relaxation: 1.0 };
    let mut side = Side::new(sorted, ratings.n_users, (k, m), None, (known, interrupt))?;
    side.start_from(Prior::known(prior.mean, prior.covariance));
    let layer = OutputLayer {
        weights: output.weights.t().as_standard_layout().into_owned(),
        intercept: output.intercept.clone(),
        precision: output.precision,
    };
    let (precision, others) = (side.prior.precision()?, Others { blocks: &others, effects: None });
    update_rows(&mut side, others, &layer, &output.likelihood, (&precision, UPDATES, interrupt))?;
    Ok(side.means())
}
