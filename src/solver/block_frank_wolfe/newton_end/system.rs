//! The Hessian of the restricted problem.

use super::problem::{PlaneBlock, Restricted};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;
use crate::linalg::outer::{PADDING, Strided, add_lower_gram};

/// Number of rows whose products are summed at a time.
const ROWS_PER_SUM: usize = 128;

/// The lower triangle of I + Σ_i p_i/(λ width) Z_iᵀ J_i Z_i, with rows [`Factor::stride`] apart. On
/// the planes of positive weight, J_i = I − 11ᵀ/k is the derivative of the projection onto the
/// simplex. The sum therefore consists of outer products of the images of these planes, each minus
/// their mean.
pub(super) fn hessian(
    problem: &Restricted,
    points: &[f64],
    width: f64,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let d = problem.n_weights;
    let (stride, row_stride) = (Factor::stride(d), d.next_multiple_of(PADDING));
    let mut matrix = vec![0.0; d * stride];
    let mut rows: Vec<f64> = Vec::new();
    let mut mean = vec![0.0; d];
    for (block, points) in problem.split(points) {
        if !block.is_free() {
            continue;
        }
        append_rows(block, points, width, (&mut mean, row_stride), &mut rows);
        if rows.len() >= ROWS_PER_SUM * row_stride {
            interrupt.check()?;
            add_products(&mut rows, row_stride, &mut matrix, stride);
        }
    }
    add_products(&mut rows, row_stride, &mut matrix, stride);
    (0..d).for_each(|i| matrix[i * stride + i] += 1.0);
    Ok(matrix)
}

/// Appends √(p_i/(λ width)) (z_ik − mean) for the planes of positive weight. `mean` must be all 0, and is 0 again on
/// return.
fn append_rows(
    block: &PlaneBlock,
    points: &[f64],
    width: f64,
    (mean, stride): (&mut [f64], usize),
    rows: &mut Vec<f64>,
) {
    let active = || block.planes.iter().zip(points).filter(|(_, a)| **a > 0.0).map(|(p, _)| p);
    let n_active = active().count();
    if n_active < 2 {
        return;
    }
    let scale = (block.scale / width).sqrt();
    for (index, value) in active().flat_map(|plane| &plane.image) {
        mean[*index as usize] += scale * value / n_active as f64;
    }
    for plane in active() {
        let start = rows.len();
        rows.resize(start + stride, 0.0);
        let row = &mut rows[start..];
        row.iter_mut().zip(&*mean).for_each(|(value, mean)| *value = -mean);
        plane.image.iter().for_each(|(index, value)| row[*index as usize] += scale * value);
    }
    mean.fill(0.0);
}

/// Adds the outer products of the rows to the lower triangle, and empties `rows`.
fn add_products(rows: &mut Vec<f64>, row_stride: usize, matrix: &mut [f64], stride: usize) {
    add_lower_gram(matrix, stride, Strided { values: rows, stride: row_stride });
    rows.clear();
}
