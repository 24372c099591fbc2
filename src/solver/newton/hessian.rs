//! The Hessian of the inner problem as a dense matrix, for systems small enough to factorise.

use super::active::Active;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;
use crate::linalg::outer::{PADDING, Strided, add_lower_products};
use crate::linalg::{Design, grouped};
use crate::parallel::for_items;

/// Maximum number of values of the rows that are converted to double precision at a time.
pub(super) const MAX_DENSE_VALUES: usize = 1 << 21;
/// Number of rows whose products are summed at a time; two copies of them stay in the second-level cache.
pub(super) const ROWS_PER_SUM: usize = 128;

/// The factorised Hessian I + K, where K = Σ_i c_i A_iᵀ J_i A_i over some blocks.
///
/// The points u_i sum to 0 over their parts, so J_i 1 = 0, and K v = 0 for every v whose parts are all the same. It is
/// therefore enough to solve for vectors that sum to 0 over the parts. The last part of such a vector is minus the sum
/// of all other parts, so the system omits it. For two parts, the smaller system takes a third of the products and an
/// eighth of the factorisation time of the full system.
pub(super) struct ReducedHessian {
    factor: Factor,
    n_parts: usize,
    /// Number of features.
    d: usize,
}

impl ReducedHessian {
    /// Computes and factorises the matrix.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn new(
        design: &Design<'_>,
        n_parts: usize,
        active: &Active,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let sums = pair_sums(design, n_parts, active, interrupt)?;
        Self::of_sums(&sums, n_parts, design.n_features(), interrupt)
    }

    /// Factorises the matrix with these [sums](pair_sums) over `d` features.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn of_sums(sums: &[f64], n_parts: usize, d: usize, interrupt: &Interrupt) -> Result<Self> {
        let factor = Factor::new(reduced(sums, d, n_parts), (n_parts - 1) * d, interrupt)?;
        Ok(Self { factor, n_parts, d })
    }

    /// Replaces b, ordered part by part, by the inverse times b.
    pub fn solve(&self, b: &mut [f64]) {
        // The mean over the parts does not change.
        let mut mean = vec![0.0; self.d];
        for part in b.chunks_exact(self.d) {
            mean.iter_mut().zip(part).for_each(|(mean, value)| *mean += value);
        }
        mean.iter_mut().for_each(|mean| *mean /= self.n_parts as f64);
        let (others, last) = b.split_at_mut((self.n_parts - 1) * self.d);
        for part in others.chunks_exact_mut(self.d) {
            part.iter_mut().zip(&*last).for_each(|(value, last)| *value -= last);
        }
        self.factor.solve(others);
        last.copy_from_slice(&mean);
        for part in others.chunks_exact_mut(self.d) {
            for ((value, last), mean) in part.iter_mut().zip(&mut *last).zip(&mean) {
                *last -= *value;
                *value += mean;
            }
        }
    }
}

/// Σ_i c_i J_i[a, b] x_i x_iᵀ for each pair of parts a < b. Each sum is stored as a lower triangle, with `d` rounded up
/// to a multiple of [`PADDING`] as the distance between rows. Pairs are summed in parallel; the rows of each pair are
/// summed in order.
pub(super) fn pair_sums(
    design: &Design<'_>,
    n_parts: usize,
    active: &Active,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let d = design.n_features();
    let width = d.next_multiple_of(PADDING);
    let mut sums = vec![0.0; n_sums(n_parts, d)];
    let slots: Vec<u32> = (0..active.blocks.len() as u32).collect();
    let mut values = Vec::new();
    for slots in slots.chunks((MAX_DENSE_VALUES / width).max(ROWS_PER_SUM)) {
        interrupt.check()?;
        let rows = slots.iter().map(|slot| active.blocks[*slot as usize] as usize);
        values.clear();
        design.append_rows(rows, width, &mut values);
        let (starts, entries) = pairs(slots, n_parts, active);
        let rows = Strided { values: &values, stride: width };
        for_items(sums.chunks_mut(d * width).enumerate(), 1, |(pair, sum)| {
            let entries = &entries[starts[pair]..starts[pair + 1]];
            if !entries.is_empty() && !interrupt.is_raised() {
                add_rows(entries, rows, d, sum, interrupt);
            }
        });
    }
    interrupt.check()?;
    Ok(sums)
}

/// Number of values of the [sums](pair_sums) over all pairs of parts.
pub fn n_sums(n_parts: usize, d: usize) -> usize {
    n_parts * (n_parts - 1) / 2 * d * d.next_multiple_of(PADDING)
}

/// Index of a pair of parts, where `first` < `second`.
fn place(first: usize, second: usize) -> usize {
    second * (second - 1) / 2 + first
}

/// Lists the rows of each pair of parts, with their factors c_i J_i[a, b], pair by pair. Returns the index of each
/// pair's first entry in the list, and the list.
fn pairs(slots: &[u32], n_parts: usize, active: &Active) -> (Vec<usize>, Vec<(u32, f64)>) {
    let n_pairs = n_parts * (n_parts - 1) / 2;
    let (mut room, mut parts, mut matrix) = (vec![0; n_parts], Vec::new(), Vec::new());
    let mut found: Vec<(u32, (u32, f64))> = Vec::new();
    for (row, slot) in (0..).zip(slots) {
        let slot = *slot as usize;
        let scale = active.scales[slot];
        active.curvatures.dense(slot, &mut room, &mut parts, &mut matrix);
        for (second, values) in parts.iter().zip(matrix.chunks_exact(parts.len().max(1))) {
            for (first, value) in parts.iter().zip(values).take_while(|(first, _)| *first < second)
            {
                if *value != 0.0 {
                    let pair = place(*first as usize, *second as usize);
                    found.push((pair as u32, (row, scale * value)));
                }
            }
        }
    }
    grouped(&found, n_pairs)
}

/// Adds Σ value · x xᵀ over some rows to the lower triangle of a matrix.
/// Stops early if the interrupt is raised.
pub(super) fn add_rows(
    entries: &[(u32, f64)],
    rows: Strided<'_>,
    d: usize,
    sum: &mut [f64],
    interrupt: &Interrupt,
) {
    let width = rows.stride;
    let (mut plain, mut scaled) = (Vec::new(), Vec::new());
    for entries in entries.chunks(ROWS_PER_SUM).take_while(|_| !interrupt.is_raised()) {
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

/// The lower triangle of the matrix over all parts but the last, m. Let B_ab = −K_ab for a ≠ b. The blocks off the
/// diagonal are I + B_am + B_bm − B_ab + Σ_c B_cm, and the blocks on the diagonal are 2 I + Σ_c B_ac + 2 B_am + Σ_c
/// B_cm. In each sum, c runs over all parts except the part of the fixed index.
fn reduced(sums: &[f64], d: usize, n_parts: usize) -> Vec<f64> {
    let width = d.next_multiple_of(PADDING);
    let last = n_parts - 1;
    let size = d * width;
    let of = |a: usize, b: usize| &sums[place(a.min(b), a.max(b)) * size..][..size];
    let total = |part: usize| {
        let mut total = vec![0.0; size];
        for other in (0..n_parts).filter(|other| *other != part) {
            total.iter_mut().zip(of(part, other)).for_each(|(total, value)| *total -= value);
        }
        total
    };
    let at_last = total(last);
    let stride = Factor::stride(last * d);
    let mut matrix = vec![0.0; last * d * stride];
    for_items(matrix.chunks_mut(d * stride).enumerate(), 1, |(second, rows)| {
        for first in 0..=second {
            let mut block = at_last.clone();
            let mut subtract = |from: &[f64], factor: f64| {
                block.iter_mut().zip(from).for_each(|(value, from)| *value -= factor * from);
            };
            subtract(of(first, last), 1.0);
            subtract(of(second, last), 1.0);
            if first == second {
                subtract(&total(second), -1.0);
            } else {
                subtract(of(first, second), -1.0);
            }
            for r in 0..d {
                let row = &mut rows[r * stride + first * d..][..d];
                row[..=r].copy_from_slice(&block[r * width..][..=r]);
                // Each block is symmetric.
                for (c, value) in row.iter_mut().enumerate().skip(r + 1) {
                    *value = block[c * width + r];
                }
                row[r] += if first == second { 2.0 } else { 1.0 };
            }
        }
    });
    matrix
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};

    #[test]
    fn solving_inverts_the_product() {
        let (n, d) = (9, 3);
        let value = |(row, column)| ((7 * row + 5 * column) % 11) as f64 - 4.3;
        let x = Array2::from_shape_fn((n, d), value);
        let design = Design { data: Data::Dense64(Dense::new(x.view()).unwrap()), bias: 0.7 };
        let interrupt = Interrupt::default();
        for m in 2..=5 {
            let mut active = Active::default();
            for block in 0..n as u32 {
                let parts =
                    (0..m as u32).filter(|part| m == 2 || !(part + block).is_multiple_of(3));
                active.curvatures.add_group(parts);
                if active.curvatures.end_block() {
                    active.blocks.push(block);
                    active.scales.push(0.3 + f64::from(block));
                } else {
                    active.curvatures.pop_block();
                }
            }
            // The parts of b do not sum to 0.
            let b: Vec<f64> = (0..m * (d + 1)).map(|at| (at % 5) as f64 - 1.4).collect();
            let mut solution = b.clone();
            let hessian = ReducedHessian::new(&design, m, &active, &interrupt).unwrap();
            hessian.solve(&mut solution);
            let product = active.product(&design, m, &solution, &interrupt).unwrap();
            for (product, b) in product.iter().zip(&b) {
                assert!((product - b).abs() < 1e-10, "{m} parts: {product} instead of {b}");
            }
        }
    }
}
