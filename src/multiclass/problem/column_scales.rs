//! A scale for each column, and the sizes of the rows in units of these scales. Bounds on rounding errors that are
//! computed from these sizes do not depend on the units of the data.

use super::map::RowSize;
use super::{MarginProblem, ScoreMap};
use crate::data::{Data, Rows};
use crate::dual::rounding::norm_above;
use crate::for_data;

/// Scales are powers of two with exponents from −`RANGE` to `RANGE`, because quotients might overflow otherwise.
const RANGE: i32 = 300;

/// A power of two for each feature, larger than its absolute values, and the sizes of the rows after division by these
/// scales. If one of the powers would exceed 2^`RANGE`, all scales are 1.
///
/// The product of x_ij/s_j and s_j w_j is rounded exactly like the product of x_ij and w_j, so bounds on rounding
/// errors also hold in units of the columns. In these units the norms of rows are about √d, for any units of the data.
pub(in crate::multiclass) struct ColumnScales {
    columns: Vec<f64>,
    largest: f64,
    sizes: Vec<RowSize>,
}

impl ColumnScales {
    /// Computes the scale of each column of a problem. The constant feature, unless it is 0, comes last.
    pub fn of(problem: &MarginProblem<'_>) -> Self {
        let design = problem.map().design();
        let mut columns = largest_of_columns(design.data, 1);
        if design.bias != 0.0 {
            columns.push(design.bias.abs());
        }
        columns.iter_mut().for_each(|value| *value = power_above(*value));
        if columns.iter().any(|scale| *scale > 2.0_f64.powi(RANGE)) {
            columns.fill(1.0);
        }
        let sizes = (0..design.n_rows()).map(|row| {
            let (mut square, mut highest) = (0.0, 0.0_f64);
            design.visit_row(row, |feature, value| {
                let value = value / columns[feature];
                square += value * value;
                highest = highest.max(value.abs());
            });
            RowSize::of(square, highest, problem.map().row_size(row).n_values)
        });
        let sizes = sizes.collect();
        Self { largest: columns.iter().copied().fold(0.0, f64::max), columns, sizes }
    }

    /// The size of a row in units of the columns.
    pub fn size(&self, row: usize) -> RowSize {
        self.sizes[row]
    }

    /// An upper bound on the norm of the weights after each weight is multiplied by the scale of its column. The
    /// weights are given class by class.
    pub fn norm_above(&self, weights: &[f64]) -> f64 {
        let scaled = weights.chunks_exact(self.columns.len().max(1)).flat_map(|weights| {
            weights.iter().zip(&self.columns).map(|(weight, scale)| weight * scale)
        });
        norm_above(&scaled.collect::<Vec<f64>>())
    }

    /// The largest of the scales.
    pub fn largest(&self) -> f64 {
        self.largest
    }
}

/// The largest absolute value of each column, over every `step`-th row.
pub(in crate::multiclass) fn largest_of_columns(data: Data<'_>, step: usize) -> Vec<f64> {
    let mut largest = vec![0.0_f64; data.n_cols()];
    for row in (0..data.n_rows()).step_by(step) {
        for_data!(data, rows => rows.visit_row(row, |column, value| {
            largest[column] = largest[column].max(value.abs());
        }));
    }
    largest
}

/// The smallest power of two above a non-negative number, at least 2^−[`RANGE`].
fn power_above(value: f64) -> f64 {
    let least = 2.0_f64.powi(-RANGE);
    // The next power of two has the number's exponent plus one, and a zero mantissa.
    let power = f64::from_bits(value.max(least).to_bits() & !((1 << 52) - 1));
    2.0 * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_powers_of_two_above_the_values() {
        for value in [0.0, 1e-310, 0.3, 0.5, 1.0, 1.5, 1e5, 1e80] {
            let scale = power_above(value);
            assert!(scale > value && (scale <= 2.0 * value || value < 1e-80), "{value} {scale}");
            assert_eq!(scale.to_bits() & ((1 << 52) - 1), 0);
        }
    }
}
