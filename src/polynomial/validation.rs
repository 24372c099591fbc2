//! Scores of every model of a fit on held-out rows: one fit gives the whole curve over the number
//! of basis vectors (Blondel et al. 2017, section 6.1).

use super::evaluation::outputs;
use super::loss::OutputLoss;
use super::model::PolynomialModel;
use super::problem::Targets;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;

/// Held-out rows and targets.
#[derive(Debug, Clone, Copy)]
pub struct Validation<'a> {
    data: Data<'a>,
    targets: Targets<'a>,
    loss: &'a dyn OutputLoss,
}

/// The loss and the score of a model on held-out rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Mean loss.
    pub loss: f64,
    /// Accuracy: the fraction of rows for which the output of the correct class is the largest. For targets without
    /// classes, minus the mean loss.
    pub score: f64,
}

impl<'a> Validation<'a> {
    /// Checks the number of features, and that the targets match the rows and the loss.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument.
    pub fn new(
        data: Data<'a>,
        targets: Targets<'a>,
        loss: &'a dyn OutputLoss,
        n_features: usize,
        n_outputs: usize,
    ) -> Result<Self> {
        if data.n_rows() == 0 || data.n_cols() != n_features {
            let message = format!("needs at least one row of {n_features} features");
            return Err(Error::argument("validation_data", message));
        }
        targets.check(loss, data.n_rows(), n_outputs).map_err(|error| match error {
            Error::InvalidArgument { message, .. } => Error::argument("validation_data", message),
            other => other,
        })?;
        Ok(Self { data, targets, loss })
    }

    /// Scores `model`.
    pub fn score(&self, model: &PolynomialModel, interrupt: &Interrupt) -> Result<Score> {
        let m = model.n_outputs;
        let outputs = for_data!(self.data, rows => outputs::<f64>(model, &rows, interrupt))?;
        let (mut loss, mut hits) = (0.0, 0usize);
        for (row, outputs) in outputs.chunks_exact(m).enumerate() {
            loss += self.loss.value(self.targets.row(row, m), outputs);
            if let Targets::Classes(classes) = self.targets {
                let first_largest =
                    (1..m).fold(0, |best, c| if outputs[c] > outputs[best] { c } else { best });
                hits += usize::from(first_largest == classes[row] as usize);
            }
        }
        let n = self.data.n_rows() as f64;
        let loss = loss / n;
        let score = if self.loss.takes_classes() { hits as f64 / n } else { -loss };
        Ok(Score { loss, score })
    }
}
