//! The update of one side's blocks, given the other side's blocks.

use std::ops::Range;

use super::effects::{EffectSums, Effects, OwnEffects, Shifts};
use super::output::OutputLayer;
use super::posterior::{Posterior, RowPrior};
use super::problem::Likelihood;
use super::row_sums::{PackedOutput, RatedRow, RatingBounds, RowSums};
use super::side::Side;
use super::sums::SweepSums;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Inverse;
use crate::parallel::map_items;

/// The data of the other side that an update reads.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    pub blocks: &'a [f64],
    pub effects: Option<&'a Effects>,
}

/// Updates every block of `own` `n_updates` times, given the blocks of the other side (step 1 of the sweep) and the
/// precision of the prior of `own`. The returned sums include all updates.
pub(super) fn update_rows(
    own: &mut Side<'_>,
    others: Others<'_>,
    output: &OutputLayer,
    likelihood: &Likelihood,
    (precision, n_updates, interrupt): (&Inverse, usize, &Interrupt),
) -> Result<SweepSums> {
    let layout = own.layout;
    let pulled = own.prior.mean.dot(&precision.matrix).into_raw_vec_and_offset().0;
    let effect_precision = own.effects.as_ref().map(Effects::precision).transpose()?;
    let mut blocks = std::mem::take(&mut own.blocks);
    let mut effects = own.effects.take();
    let update = Update {
        side: own,
        others,
        output: PackedOutput::new(layout, output, likelihood),
        gaussian: *likelihood == Likelihood::Gaussian,
        precision,
        n_updates,
        pulled,
        effect_precision: effect_precision.unwrap_or_default(),
    };
    let tasks = update.tasks(&mut blocks, effects.as_mut());
    let sums = map_items(tasks, 1, |task| update.run(task, interrupt));
    (own.blocks, own.effects) = (blocks, effects);
    interrupt.check()?;
    let (mut total, mut of_effects) = (SweepSums::new(layout), EffectSums::new(layout.m));
    for sums in sums {
        let (sums, effects) = sums?;
        total.add(&sums);
        of_effects.add(&effects);
    }
    own.covariance_sum = total.covariance.clone();
    own.log_det_sum = total.log_det;
    if let Some(effects) = &mut own.effects {
        effects.store_sums(of_effects);
    }
    Ok(total)
}

/// Data that all tasks of an update share.
struct Update<'a, 'b> {
    side: &'a Side<'b>,
    others: Others<'a>,
    output: PackedOutput<'a>,
    gaussian: bool,
    precision: &'a Inverse,
    n_updates: usize,
    /// The prior's precision times each row's prior mean.
    pulled: Vec<f64>,
    /// The precision of the groups' prior.
    effect_precision: Vec<f64>,
}

/// The rows that one task updates, with their blocks and groups.
struct Task<'a> {
    rows: Range<usize>,
    blocks: &'a mut [f64],
    effects: Option<OwnEffects<'a>>,
}

impl Update<'_, '_> {
    fn tasks<'t>(
        &self,
        mut blocks: &'t mut [f64],
        effects: Option<&'t mut Effects>,
    ) -> Vec<Task<'t>> {
        let (stride, m) = (self.side.layout.stride(), self.side.layout.m);
        let mut effects =
            effects.map(|effects| (effects.means.as_mut_slice(), effects.variances.as_mut_slice()));
        let offsets = &self.side.groups.offsets;
        let mut tasks = Vec::with_capacity(self.side.parts.len());
        for rows in self.side.parts.iter().cloned() {
            let own = blocks.split_off_mut(..rows.len() * stride).unwrap_or_default();
            let effects = effects.as_mut().map(|(means, variances)| {
                let (first, end) = (offsets[rows.start], offsets[rows.end]);
                let count = (end - first) * m;
                OwnEffects {
                    means: means.split_off_mut(..count).unwrap_or_default(),
                    variances: variances.split_off_mut(..count).unwrap_or_default(),
                    first,
                }
            });
            tasks.push(Task { rows, blocks: own, effects });
        }
        tasks
    }

    fn run(&self, task: Task<'_>, interrupt: &Interrupt) -> Result<(SweepSums, EffectSums)> {
        let Task { rows, blocks, mut effects } = task;
        let layout = self.side.layout;
        let (mut sums, mut of_effects) = (SweepSums::new(layout), EffectSums::new(layout.m));
        let (mut row_sums, mut posterior) = (RowSums::new(layout), Posterior::new(layout));
        let mut shifts = Shifts::default();
        let timed = effects.is_some() || self.others.effects.is_some();
        for row in rows.clone().flat_map(|row| std::iter::repeat_n(row, self.n_updates)) {
            if interrupt.is_raised() {
                break;
            }
            let block = &mut blocks[(row - rows.start) * layout.stride()..][..layout.stride()];
            if let Some(own) = &mut effects {
                self.shift(row, Some(own), &mut shifts);
                let Shifts { means, variances, outputs, kappa, omega, .. } = &mut shifts;
                let rated = self.rated(row, block, (means, variances));
                row_sums.record(
                    &self.output,
                    rated,
                    RatingBounds { outputs, kappa, omega },
                    &mut sums,
                );
                let groups = (&self.side.groups.of[self.ratings(row)], self.groups(row));
                shifts.update(own, groups, &self.effect_precision, &mut of_effects)?;
            }
            if timed {
                self.shift(row, effects.as_ref(), &mut shifts);
            }
            let rated = self.rated(row, block, (&shifts.means, &shifts.variances));
            row_sums.gather(&self.output, rated, &mut sums);
            let pulled = &self.pulled[row * layout.d()..][..layout.d()];
            let prior = RowPrior { precision: &self.precision.matrix, pulled };
            if self.gaussian {
                sums.squares -= row_sums.quadratic(&self.output, block) / self.output.precision;
            }
            posterior.solve(&row_sums, &self.output, prior, block, &mut sums)?;
            if self.gaussian {
                sums.squares += row_sums.quadratic(&self.output, block) / self.output.precision;
            }
        }
        Ok((sums, of_effects))
    }

    fn ratings(&self, row: usize) -> Range<usize> {
        self.side.offsets[row]..self.side.offsets[row + 1]
    }

    fn groups(&self, row: usize) -> Range<usize> {
        self.side.groups.offsets[row]..self.side.groups.offsets[row + 1]
    }

    fn rated<'r>(
        &'r self,
        row: usize,
        block: &'r [f64],
        shifts: (&'r [f64], &'r [f64]),
    ) -> RatedRow<'r> {
        let range = self.ratings(row);
        RatedRow {
            block,
            partners: &self.side.partners[range.clone()],
            values: &self.side.values[range.clone()],
            weights: self.side.weights.get(range).unwrap_or_default(),
            others: self.others.blocks,
            shifts,
        }
    }

    /// Computes the terms that the groups of both sides add to the model's outputs for a row's ratings.
    fn shift(&self, row: usize, own: Option<&OwnEffects<'_>>, shifts: &mut Shifts) {
        let range = self.ratings(row);
        shifts.clear(range.len(), self.side.layout.m);
        if let Some(own) = own {
            shifts.add(&self.side.groups.of[range.clone()], own.first, (own.means, own.variances));
        }
        if let Some(other) = self.others.effects {
            let groups = &self.side.partner_groups[range];
            shifts.add(groups, 0, (&other.means, &other.variances));
        }
    }
}
