//! One side of the ratings: the blocks of all users, or of all items.

use std::ops::Range;

use ndarray::Array2;

use super::block::{BlockLayout, pairs};
use super::by_row::ByRow;
use super::effects::{Effects, Groups, SortedGroups};
use super::prior::{Features, Prior, PriorSettings};
use super::spread::{Spread, spread};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::memory::require;

/// Maximum number of tasks of half a sweep. This number is fixed, so sums do not depend on the number of threads. It is
/// large enough for many threads.
const PARTS: usize = 64;

/// Ratings from the perspective of one side.
#[derive(Clone, Copy)]
pub(super) struct SideRatings<'r> {
    pub rows: &'r [u32],
    pub partners: &'r [u32],
    pub values: &'r [f64],
    pub weights: &'r [f64],
    /// Groups of this side and of the other side.
    pub groups: [Groups<'r>; 2],
}

/// The blocks of one side.
#[derive(Debug)]
pub(super) struct Side<'a> {
    pub layout: BlockLayout,
    /// Number of rows (users or items).
    pub n: usize,
    /// Start of each row's ratings, followed by the end of the last row's ratings.
    pub offsets: Vec<usize>,
    /// The other side's row of each rating. Ratings are sorted by row, so that a sweep reads them
    /// from front to back.
    pub partners: Vec<u32>,
    /// The value of each rating, in the same order.
    pub values: Vec<f64>,
    /// The weight of each rating; empty if all have the same weight.
    pub weights: Vec<f64>,
    /// The blocks of all rows, one after the other.
    pub blocks: Vec<f64>,
    /// Sum of the covariances S_a over all rows, (k + m) × (k + m).
    pub covariance_sum: Array2<f64>,
    /// Sum of log det S_a over all rows.
    pub log_det_sum: f64,
    pub prior: Prior<'a>,
    /// Linear weights of the groups of ratings, if there are groups.
    pub effects: Option<Effects>,
    /// The group of each rating, and the groups of each row.
    pub groups: SortedGroups,
    /// The other side's group of each rating; empty if the other side has no groups.
    pub partner_groups: Vec<u32>,
    /// The rows that each task updates.
    pub parts: Vec<Range<usize>>,
}

/// The part of a side's state that a sweep changes.
#[derive(Debug)]
pub(super) struct SideState<'a> {
    blocks: Vec<f64>,
    covariance_sum: Array2<f64>,
    log_det_sum: f64,
    prior: Prior<'a>,
    effects: Option<Effects>,
}

impl<'a> Side<'a> {
    /// Sorts the ratings by this side's rows.
    pub fn new(
        ratings: SideRatings<'_>,
        n: usize,
        (k, m): (usize, usize),
        features: Option<Features<'a>>,
        (settings, interrupt): (PriorSettings, &Interrupt),
    ) -> Result<Self> {
        let SideRatings { rows, partners, values, weights, groups } = ratings;
        let layout = BlockLayout::new(k, m);
        let what = || format!("the posteriors of n = {n} users or items with d = {k} components");
        let bytes = 8 * n as u128 * layout.stride() as u128;
        require(bytes, what, "lower n_components")?;
        let by_row = ByRow::new(rows, n);
        let [own, other] = groups;
        Ok(Self {
            layout,
            n,
            parts: equal_parts(&by_row.offsets),
            partners: by_row.sorted(partners),
            values: by_row.sorted(values),
            weights: by_row.sorted(weights),
            effects: (own.n > 0).then(|| Effects::new(own.n, m)),
            groups: SortedGroups::new(by_row.sorted(own.of), own.n, &by_row.offsets)?,
            partner_groups: by_row.sorted(other.of),
            prior: Prior::new(&by_row.counts(), (k, m), features, settings, interrupt)?,
            offsets: by_row.offsets,
            blocks: vec![0.0; n * layout.stride()],
            covariance_sum: Array2::zeros((k + m, k + m)),
            log_det_sum: 0.0,
        })
    }

    /// Starts from random factors with a small variance, and linear weights of 0.
    pub fn start(&mut self, draw: &mut impl FnMut() -> f64) {
        let layout = self.layout;
        for block in self.blocks.chunks_exact_mut(layout.stride()) {
            for p in &mut block[layout.p()][..layout.k] {
                *p = draw();
            }
            let (p, e) = block[layout.p_and_e()].split_at_mut(layout.k_pad);
            for (slot, (r, s)) in pairs(layout.k).enumerate() {
                e[slot] = p[r] * p[s] + if r == s { START_VARIANCE } else { 0.0 };
            }
            block[layout.v()].fill(START_LINEAR_VARIANCE);
        }
        for slot in 0..layout.d() {
            let variance = if slot < layout.k { START_VARIANCE } else { START_LINEAR_VARIANCE };
            self.covariance_sum[(slot, slot)] = variance * self.n as f64;
            self.log_det_sum += self.n as f64 * variance.ln();
        }
    }

    /// A copy of the state, for [`restore`](Self::restore).
    pub fn state(&self) -> SideState<'a> {
        let Self { blocks, covariance_sum, log_det_sum, prior, effects, .. } = self;
        let (blocks, covariance_sum) = (blocks.clone(), covariance_sum.clone());
        let (prior, effects) = (prior.clone(), effects.clone());
        SideState { blocks, covariance_sum, log_det_sum: *log_det_sum, prior, effects }
    }

    /// Restores an earlier state.
    pub fn restore(&mut self, state: SideState<'a>) {
        let SideState { blocks, covariance_sum, log_det_sum, prior, effects } = state;
        (self.blocks, self.prior, self.effects) = (blocks, prior, effects);
        (self.covariance_sum, self.log_det_sum) = (covariance_sum, log_det_sum);
    }

    /// Starts all blocks at the mean and covariance of a known prior.
    pub fn start_from(&mut self, prior: Prior<'a>) {
        let layout = self.layout;
        let (k, k_pad) = (layout.k, layout.k_pad);
        let covariance = prior.covariance();
        for (block, mean) in self.blocks.chunks_exact_mut(layout.stride()).zip(prior.mean.rows()) {
            for c in 0..layout.m {
                block[layout.l().start + c] = mean[k + c];
                block[layout.v().start + c] = covariance[(k + c, k + c)];
                for r in 0..k {
                    block[layout.x().start + c * k_pad + r] = covariance[(k + c, r)];
                }
            }
            for r in 0..k {
                block[layout.p().start + r] = mean[r];
            }
            for (slot, (r, s)) in pairs(k).enumerate() {
                block[layout.e().start + slot] = mean[r] * mean[s] + covariance[(r, s)];
            }
        }
        self.prior = prior;
    }

    /// The mean covariance of the blocks for each range of rating counts.
    pub fn spread(&self) -> Spread {
        let counts: Vec<usize> = self.offsets.windows(2).map(|ends| ends[1] - ends[0]).collect();
        spread(self.layout, &self.blocks, &counts)
    }

    /// The sum of the weights of all ratings.
    pub fn total_weight(&self) -> f64 {
        if self.weights.is_empty() {
            return self.values.len() as f64;
        }
        self.weights.iter().sum()
    }

    pub fn has_features(&self) -> bool {
        self.prior.has_features()
    }

    /// Mean factors p and linear weights l of all rows, as rows \[p; l\].
    pub fn means(&self) -> Array2<f64> {
        let layout = self.layout;
        let mut means = Array2::zeros((self.n, layout.d()));
        for (mut mean, block) in
            means.rows_mut().into_iter().zip(self.blocks.chunks_exact(layout.stride()))
        {
            let values = block[layout.p()][..layout.k].iter().chain(&block[layout.l()]);
            mean.iter_mut().zip(values).for_each(|(mean, value)| *mean = *value);
        }
        means
    }

    /// Returns Σ_a KL(N(z_a, S_a) ‖ prior), plus the penalty on the weights of the prior.
    pub fn divergence(&self) -> Result<f64> {
        Ok(self.prior.cost(&self.means(), &self.covariance_sum)? - 0.5 * self.log_det_sum)
    }

    /// Learns the prior from the blocks.
    pub fn learn_prior(&mut self, interrupt: &Interrupt) -> Result<()> {
        let means = self.means();
        self.prior.learn(&means, &self.covariance_sum, interrupt)
    }

    /// The root mean square of every basis over this side's rows.
    pub fn scales(&self) -> Vec<f64> {
        let layout = self.layout;
        let (k, stride) = (layout.k, layout.stride());
        let mut scale = vec![0.0; k];
        for block in self.blocks.chunks_exact(stride) {
            let e = &block[layout.e()];
            for (r, scale) in scale.iter_mut().enumerate() {
                *scale += e[r * (r + 1) / 2 + r];
            }
        }
        for scale in &mut scale {
            *scale = (*scale / self.n as f64).sqrt().max(1e-150);
        }
        scale
    }

    /// Divides every basis by its scale; the caller must multiply U by the scales. The bases then have the mean
    /// square 1. With equal norms ‖h_r‖, the weights in U are comparable, and Ω(U) is meaningful.
    pub fn normalise_bases(&mut self, scale: &[f64]) {
        let layout = self.layout;
        let (k, stride) = (layout.k, layout.stride());
        let shrink: Vec<f64> = scale.iter().map(|scale| 1.0 / scale).collect();
        let shrink_pairs: Vec<f64> = pairs(k).map(|(r, s)| shrink[r] * shrink[s]).collect();
        for block in self.blocks.chunks_exact_mut(stride) {
            let multiply = |values: &mut [f64], factors: &[f64]| {
                values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
            };
            multiply(&mut block[layout.p()], &shrink);
            for x in block[layout.x()].chunks_exact_mut(layout.k_pad) {
                multiply(x, &shrink);
            }
            multiply(&mut block[layout.e()], &shrink_pairs);
        }
        let factor = |slot: usize| scale.get(slot).copied().unwrap_or(1.0);
        for ((i, j), value) in self.covariance_sum.indexed_iter_mut() {
            *value /= factor(i) * factor(j);
        }
        self.log_det_sum -= 2.0 * self.n as f64 * scale.iter().map(|s| s.ln()).sum::<f64>();
        self.prior.rescale(scale);
    }
}

/// Variance of the factors before the first update.
const START_VARIANCE: f64 = 0.1;

/// Variance of the linear weights before the first update.
const START_LINEAR_VARIANCE: f64 = 1e-3;

/// Ranges of rows with about equal numbers of ratings.
fn equal_parts(offsets: &[usize]) -> Vec<Range<usize>> {
    let (n, total) = (offsets.len() - 1, offsets[offsets.len() - 1]);
    let mut bounds: Vec<usize> = (0..=PARTS)
        .map(|part| offsets.partition_point(|&offset| offset < part * total / PARTS).min(n))
        .collect();
    bounds[0] = 0;
    bounds[PARTS] = n;
    bounds.windows(2).filter(|b| b[0] < b[1]).map(|b| b[0]..b[1]).collect()
}
