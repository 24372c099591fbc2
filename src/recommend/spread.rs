//! The covariances of a fit's blocks, averaged over ids with similar numbers of ratings.
//!
//! Computing the blocks of new ids needs the second moments of the other side's blocks. Storing them would take (k +
//! m)² numbers per id. Ids with similar numbers of ratings have nearly the same covariance, so one mean is stored for
//! all ids with 2^s to 2^(s+1) − 1 ratings.

use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

use super::block::{BlockLayout, pairs};

/// Mean covariances. Row s is the mean over the ids with 2^s to 2^(s+1) − 1 ratings (ids without ratings count as
/// having one rating), stored as v (m) | x (m × k) | Cov p, lower triangle by rows.
pub type Spread = Array2<f64>;

/// The row of a [`Spread`] for an id with `count` ratings.
fn class(count: usize, n_classes: usize) -> usize {
    (count.max(1).ilog2() as usize).min(n_classes - 1)
}

/// Length of a row of a [`Spread`].
fn width(layout: BlockLayout) -> usize {
    let BlockLayout { k, m, .. } = layout;
    m + m * k + k * (k + 1) / 2
}

/// Whether a spread has at least one row, and rows of the right length.
pub(super) fn fits(spread: ArrayView2<'_, f64>, layout: BlockLayout) -> bool {
    spread.nrows() > 0 && spread.ncols() == width(layout)
}

/// Averages the covariances of a side's blocks.
pub(super) fn spread(layout: BlockLayout, blocks: &[f64], counts: &[usize]) -> Spread {
    let largest = counts.iter().copied().max().unwrap_or(1);
    let n_classes = largest.max(1).ilog2() as usize + 1;
    let mut sums = Array2::<f64>::zeros((n_classes, width(layout)));
    let mut members = vec![0usize; n_classes];
    for (block, &count) in blocks.chunks_exact(layout.stride()).zip(counts) {
        let at = class(count, n_classes);
        members[at] += 1;
        for (sum, value) in sums.row_mut(at).iter_mut().zip(covariances(layout, block)) {
            *sum += value;
        }
    }
    for (at, &members) in members.iter().enumerate().filter(|(_, members)| **members > 0) {
        sums.row_mut(at).mapv_inplace(|sum| sum / members as f64);
    }
    // A class without ids copies the next larger class that has ids. If no larger class has ids, it copies the
    // largest class that has ids.
    let filled: Vec<usize> = (0..n_classes).filter(|&at| members[at] > 0).collect();
    for at in (0..n_classes).filter(|&at| members[at] == 0) {
        if let Some(&near) = filled.iter().find(|&&near| near > at).or(filled.last()) {
            let row = sums.row(near).to_owned();
            sums.row_mut(at).assign(&row);
        }
    }
    sums
}

fn covariances(layout: BlockLayout, block: &[f64]) -> impl Iterator<Item = f64> + '_ {
    let BlockLayout { k, m, k_pad, .. } = layout;
    let (p, e, x) = (&block[layout.p()], &block[layout.e()], &block[layout.x()]);
    let v = block[layout.v()].iter().copied();
    let x = (0..m).flat_map(move |c| x[c * k_pad..c * k_pad + k].iter().copied());
    let cov = pairs(k).zip(e).map(move |((r, s), e)| e - p[r] * p[s]);
    v.chain(x).chain(cov)
}

/// Builds the block of an id from its mean \[p; l\] and its number of ratings.
pub(super) fn block_of(
    layout: BlockLayout,
    mean: ArrayView1<'_, f64>,
    spread: &ArrayView2<'_, f64>,
    count: usize,
    block: &mut [f64],
) {
    let BlockLayout { k, m, k_pad, .. } = layout;
    let mut spread = spread.row(class(count, spread.nrows())).into_iter();
    // Each `zip` advances the slice first, so that no value of `spread` is lost at the end of a slice.
    let mut fill =
        |to: &mut [f64]| to.iter_mut().zip(&mut spread).for_each(|(to, value)| *to = *value);
    fill(&mut block[layout.v()]);
    for c in 0..m {
        fill(&mut block[layout.x()][c * k_pad..c * k_pad + k]);
    }
    let (factors, offsets) = mean.split_at(Axis(0), k);
    block[layout.l()].iter_mut().zip(offsets).for_each(|(to, value)| *to = *value);
    let (p, e) = block[layout.p_and_e()].split_at_mut(k_pad);
    p.iter_mut().zip(factors).for_each(|(to, value)| *to = *value);
    let mut e = e.iter_mut();
    for r in 0..k {
        for ((s, e), covariance) in p[..=r].iter().zip(&mut e).zip(&mut spread) {
            *e = p[r] * s + covariance;
        }
    }
}
