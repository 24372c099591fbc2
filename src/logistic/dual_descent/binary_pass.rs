//! Passes over the blocks of a problem with two classes: one weight for each feature, one share for each example.

use super::exact_step::{binary_step, sigmoid};
use super::pass::{DualParts, Found};
use crate::data::Real;
use crate::linalg::prefetch;

/// Divergences below this are computed by a formula that does not subtract entropies.
const NEAR: f64 = 1e-4;

impl<T: Real> DualParts<'_, T> {
    /// Visits the blocks in the given order.
    pub fn binary_pass(self, order: &[u32]) -> Found {
        let Self { rows, blocks, weights, shares, intercepts, constant, ignored } = self;

        let mut found = Found::default();
        for (at, &example) in order.iter().enumerate() {
            if let Some(&next) = order.get(at + 1) {
                for column in rows.row(next as usize).0 {
                    prefetch(weights, *column as usize);
                }
            }
            let example = example as usize;
            let row = rows.row(example);
            let sign = if blocks[example].label == 1 { -T::one() } else { T::one() };
            // The step uses the score and the share of the class that is not the label, because a
            // share near 0 keeps all its digits.
            let score = (sign * (intercepts[0] + product(row, weights))).widen();
            let (block, present) = (&mut blocks[example], shares[example].widen());
            let (share, log_sum) = sigmoid(score);
            let (cost, q) = (block.cost.widen(), block.curvature(constant).widen());
            let mut divergence = log_sum - present * score - block.entropy.widen();
            if divergence < NEAR {
                let by = share - present;
                let sum = share + present;
                let rest = 2.0 - sum;
                divergence =
                    by * by * (1.0 / sum.max(f64::MIN_POSITIVE) + 1.0 / rest.max(f64::EPSILON));
            }
            found.gap += cost * divergence;
            found.loss += cost * log_sum;
            if cost * divergence <= ignored {
                continue;
            }
            let (share, entropy) = binary_step(score, q, present);
            (shares[example], block.entropy) = (T::narrow(share), T::narrow(entropy));
            let change = sign * block.cost * (T::narrow(present) - shares[example]);
            intercepts[0] = intercepts[0] + constant * change;
            for (column, x) in row.0.iter().zip(row.1) {
                let weight = &mut weights[*column as usize];
                *weight = *weight + change * *x;
            }
        }
        found
    }
}

/// ⟨x, w⟩ in four independent sums, which hides the latency of additions.
fn product<T: Real>((columns, values): (&[i32], &[T]), weights: &[T]) -> T {
    let ((columns, last), (values, rest)) = (columns.as_chunks::<4>(), values.as_chunks::<4>());
    let mut sums = [T::zero(); 4];
    for (columns, values) in columns.iter().zip(values) {
        for ((sum, column), value) in sums.iter_mut().zip(columns).zip(values) {
            *sum = *sum + weights[*column as usize] * *value;
        }
    }
    let mut sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (column, value) in last.iter().zip(rest) {
        sum = sum + weights[*column as usize] * *value;
    }
    sum
}
