//! The Hessian of the inner problem as a dense matrix, for systems small enough to factorise.

use rayon::prelude::*;

use super::active::Sample;
use super::design::Design;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;
use crate::linalg::outer::{PADDING, Strided, add_lower_products};

/// Values of the rows converted to double precision at a time.
const MAX_DENSE_VALUES: usize = 1 << 21;
/// Number of rows whose products are summed at a time; two copies of them stay in the second-level
/// cache.
const ROWS_PER_SUM: usize = 128;

/// The lower triangle of I + Σ_i c_i A_iᵀ J_i A_i over some blocks, ordered part after part, with
/// rows [`Factor::stride`] apart.
///
/// J_i has an entry for each pair of parts, so each pair (a, b) contributes a matrix Σ_i c_i J_i[a,
/// b] x_i x_iᵀ over the features. Pairs are summed in parallel; the rows of each pair are summed in
/// order.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub(super) fn hessian(
    design: &Design<'_>,
    n_parts: usize,
    sample: &Sample<'_>,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let d = design.n_features();
    let width = d.next_multiple_of(PADDING);
    let n_pairs = n_parts * (n_parts + 1) / 2;
    let mut sums = vec![0.0; n_pairs * d * width];
    let slots: Vec<u32> = (0..sample.active.blocks.len() as u32).step_by(sample.every).collect();
    let mut values = Vec::new();
    for slots in slots.chunks((MAX_DENSE_VALUES / width).max(ROWS_PER_SUM)) {
        interrupt.check()?;
        let rows: Vec<u32> =
            slots.iter().map(|slot| sample.active.blocks[*slot as usize]).collect();
        values.clear();
        design.append_rows(&rows, width, &mut values);
        let (starts, entries) = pairs(slots, n_parts, sample);
        let rows = Strided { values: &values, stride: width };
        sums.par_chunks_mut(d * width).enumerate().for_each(|(pair, sum)| {
            let entries = &entries[starts[pair]..starts[pair + 1]];
            if !entries.is_empty() && !interrupt.is_raised() {
                add_pair(entries, rows, d, sum);
            }
        });
    }
    interrupt.check()?;
    Ok(spread(&sums, d, width, n_parts))
}

/// Index of a pair of parts, where `first` ≤ `second`.
fn place(first: usize, second: usize) -> usize {
    second * (second + 1) / 2 + first
}

/// The rows of each pair with their factors c_i J_i[a, b], pair after pair, and the start of each
/// pair.
fn pairs(slots: &[u32], n_parts: usize, sample: &Sample<'_>) -> (Vec<usize>, Vec<(u32, f64)>) {
    let n_pairs = n_parts * (n_parts + 1) / 2;
    let (mut room, mut parts, mut matrix) = (vec![0; n_parts], Vec::new(), Vec::new());
    let mut found: Vec<(u32, u32, f64)> = Vec::new();
    for (row, slot) in (0..).zip(slots) {
        let slot = *slot as usize;
        let scale = sample.every as f64 * sample.active.scales[slot];
        sample.active.curvatures.dense(slot, &mut room, &mut parts, &mut matrix);
        for (second, values) in parts.iter().zip(matrix.chunks_exact(parts.len().max(1))) {
            for (first, value) in parts.iter().zip(values).take_while(|(first, _)| *first <= second)
            {
                if *value != 0.0 {
                    let pair = place(*first as usize, *second as usize);
                    found.push((pair as u32, row, scale * value));
                }
            }
        }
    }
    let mut starts = vec![0; n_pairs + 1];
    found.iter().for_each(|(pair, ..)| starts[*pair as usize + 1] += 1);
    (0..n_pairs).for_each(|pair| starts[pair + 1] += starts[pair]);
    let mut next = starts.clone();
    let mut entries = vec![(0, 0.0); found.len()];
    for (pair, row, value) in found {
        entries[next[pair as usize]] = (row, value);
        next[pair as usize] += 1;
    }
    (starts, entries)
}

/// Adds Σ value · x xᵀ over the rows of a pair to the lower triangle of its matrix.
fn add_pair(entries: &[(u32, f64)], rows: Strided<'_>, d: usize, sum: &mut [f64]) {
    let width = rows.stride;
    let (mut plain, mut scaled) = (Vec::new(), Vec::new());
    for entries in entries.chunks(ROWS_PER_SUM) {
        plain.clear();
        scaled.clear();
        for &(row, value) in entries {
            let row = &rows.values[row as usize * width..][..width];
            plain.extend_from_slice(row);
            scaled.extend(row.iter().map(|x| value * x));
        }
        let [a, b] = [&scaled, &plain].map(|values| Strided { values, stride: width });
        add_lower_products(sum, width, (d, 0), a, b);
    }
}

/// Assembles the Hessian from the matrices of all pairs, and adds 1 to the diagonal.
fn spread(sums: &[f64], d: usize, width: usize, n_parts: usize) -> Vec<f64> {
    let stride = Factor::stride(n_parts * d);
    let mut matrix = vec![0.0; n_parts * d * stride];
    matrix.par_chunks_mut(d * stride).enumerate().for_each(|(second, rows)| {
        for first in 0..=second {
            let sum = &sums[place(first, second) * d * width..][..d * width];
            for (r, row) in rows.chunks_exact_mut(stride).enumerate() {
                let row = &mut row[first * d..][..d];
                row[..=r].copy_from_slice(&sum[r * width..][..=r]);
                // Each pair's matrix is symmetric.
                for (c, value) in row.iter_mut().enumerate().skip(r + 1) {
                    *value = sum[c * width + r];
                }
            }
        }
        for (r, row) in rows.chunks_exact_mut(stride).enumerate() {
            row[second * d + r] += 1.0;
        }
    });
    matrix
}
