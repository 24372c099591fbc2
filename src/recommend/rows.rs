//! The update of one side's blocks, given the other's.

use rayon::prelude::*;

use super::output::OutputLayer;
use super::posterior::{Posterior, RowPrior};
use super::problem::Likelihood;
use super::row_sums::{PackedOutput, RatedRow, RowSums};
use super::side::Side;
use super::sums::SweepSums;
use crate::error::Result;
use crate::interrupt::Interrupt;

/// Updates every block of `own` given the blocks of the other side (step 1 of the sweep).
pub(super) fn update_rows(
    own: &mut Side<'_>,
    others: &[f64],
    output: &OutputLayer,
    likelihood: &Likelihood,
    interrupt: &Interrupt,
) -> Result<SweepSums> {
    let layout = own.layout;
    let precision = own.prior.precision()?;
    let pulled = own.prior.mean.dot(&precision.matrix).into_raw_vec_and_offset().0;
    let output = PackedOutput::new(layout, output, likelihood);
    let gaussian = *likelihood == Likelihood::Gaussian;
    let mut rest = own.blocks.as_mut_slice();
    let mut tasks = Vec::with_capacity(own.parts.len());
    for rows in &own.parts {
        let (blocks, tail) = rest.split_at_mut(rows.len() * layout.stride());
        rest = tail;
        tasks.push((rows.clone(), blocks));
    }
    let (offsets, partners) = (&own.offsets, &own.partners);
    let (values, weights) = (&own.values, &own.weights);
    let sums: Vec<Result<SweepSums>> = tasks
        .into_par_iter()
        .map(|(rows, blocks)| {
            let mut sums = SweepSums::new(layout);
            let (mut row_sums, mut posterior) = (RowSums::new(layout), Posterior::new(layout));
            for (row, block) in rows.zip(blocks.chunks_exact_mut(layout.stride())) {
                if interrupt.is_raised() {
                    break;
                }
                let range = offsets[row]..offsets[row + 1];
                let (partners, values) = (&partners[range.clone()], &values[range]);
                let weights = weights.get(offsets[row]..offsets[row + 1]).unwrap_or_default();
                let rated = RatedRow { block, partners, values, weights, others };
                row_sums.gather(&output, rated, &mut sums);
                let pulled = &pulled[row * layout.d()..][..layout.d()];
                let prior = RowPrior { precision: &precision.matrix, pulled };
                if gaussian {
                    sums.squares -= row_sums.quadratic(&output, block) / output.precision;
                }
                posterior.solve(&row_sums, &output, prior, block, &mut sums)?;
                if gaussian {
                    sums.squares += row_sums.quadratic(&output, block) / output.precision;
                }
            }
            Ok(sums)
        })
        .collect();
    interrupt.check()?;
    let mut total = SweepSums::new(layout);
    for sums in sums {
        total.add(&sums?);
    }
    own.covariance_sum = total.covariance.clone();
    own.log_det_sum = total.log_det;
    Ok(total)
}
