//! The costs of predicted classes.

use crate::error::{Error, Result};

/// Δ_ij, the cost of predicting class j for example i; 0 at the label.
#[derive(Debug, Clone, PartialEq)]
pub enum Costs {
    /// Cost 1 for every class except the label.
    Unit,
    /// A row of costs for each label (classes × classes).
    PerLabel(Vec<f64>),
    /// A row of costs for each example (examples × classes).
    PerExample(Vec<f64>),
}

impl Costs {
    /// Checks that each row and class has a finite, non-negative cost, which is 0 at the
    /// label.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `costs`.
    pub(super) fn check(&self, labels: &[u32], n_classes: usize) -> Result<()> {
        let (values, n_rows) = match self {
            Self::Unit => return Ok(()),
            Self::PerLabel(values) => (values, n_classes),
            Self::PerExample(values) => (values, labels.len()),
        };
        let fail = |message: String| Err(Error::argument("costs", message));
        if values.len() != n_rows * n_classes {
            return fail(format!("must have {n_rows} rows and {n_classes} columns"));
        }
        if !values.iter().all(|cost| *cost >= 0.0 && cost.is_finite()) {
            return fail("must be finite and not negative".into());
        }
        let at_label = |(example, label): (usize, &u32)| {
            self.row(example, *label as usize, n_classes).map_or(0.0, |row| row[*label as usize])
        };
        if labels.iter().enumerate().map(at_label).any(|cost| cost != 0.0) {
            return fail("the cost of the true class must be 0".into());
        }
        Ok(())
    }

    /// The costs Δ_i of an example; None means a cost of 1 for every class except the label.
    #[inline]
    pub(super) fn row(&self, example: usize, label: usize, n_classes: usize) -> Option<&[f64]> {
        let (costs, row) = match self {
            Self::Unit => return None,
            Self::PerLabel(costs) => (costs, label),
            Self::PerExample(costs) => (costs, example),
        };
        Some(&costs[row * n_classes..][..n_classes])
    }
}
