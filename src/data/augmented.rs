//! Rows with a constant last feature.

use super::Rows;

/// Rows, optionally extended with a last column of ones: the constant feature for an intercept
/// (docs/mathematics/polynomial-networks.md#linear-terms).
#[derive(Debug, Clone, Copy)]
pub struct Augmented<R> {
    /// The rows without the column of ones.
    pub rows: R,
    /// Whether the column of ones is added.
    pub ones: bool,
}

impl<R: Rows> Rows for Augmented<R> {
    fn n_rows(&self) -> usize {
        self.rows.n_rows()
    }

    fn n_cols(&self) -> usize {
        self.rows.n_cols() + usize::from(self.ones)
    }

    #[inline(always)]
    fn visit_row(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        self.rows.visit_row(row, &mut visit);
        if self.ones {
            visit(self.rows.n_cols(), 1.0);
        }
    }

    fn n_stored(&self) -> usize {
        self.rows.n_stored() + usize::from(self.ones) * self.n_rows()
    }
}
