//! Fitted linear classifiers: predictions and certificates.

use std::fmt;
use std::ops::Deref;

use super::labels::Label;
use super::options::ModelFile;
use crate::data::{IntoRows, Rows};
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::linalg::softmax;
use crate::parallel::fill_rows;
use crate::run::{Outcome, Trace};

/// The results of a fit, except for the weights.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub trace: Trace,
    pub null_objective: f64,
    pub lambda: f64,
    pub first_solver: String,
    pub file: ModelFile,
}

impl Record {
    /// The name of the solver that made an epoch; epochs are counted from 1.
    pub fn solver(&self, epoch: usize) -> &str {
        if epoch > self.trace.n_first { "newton" } else { &self.first_solver }
    }

    /// The name of the solver that made the last epoch.
    pub fn last_solver(&self) -> &str {
        self.solver(self.trace.epochs.len())
    }
}

/// A fitted linear classifier. It predicts the class with the largest score, W x + b. Its
/// [`Debug`](fmt::Debug) output leaves out the weights.
#[derive(Clone)]
pub struct LinearClassifier<L> {
    classes: Vec<L>,
    n_features: usize,
    /// W, output by output.
    pub(super) coef: Vec<f64>,
    pub(super) intercept: Vec<f64>,
    pub(super) record: Record,
}

impl<L: fmt::Debug> fmt::Debug for LinearClassifier<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinearClassifier")
            .field("classes", &self.classes)
            .field("n_features", &self.n_features)
            .field("solver", &self.record.last_solver())
            .field("trace", &self.record.trace)
            .finish_non_exhaustive()
    }
}

/// Splits weights into W and intercepts. If `bias` is not 0, the last weight of each output belongs to the constant
/// feature, whose value is `bias`.
pub(super) fn split(weights: &[f64], n_features: usize, bias: f64) -> (Vec<f64>, Vec<f64>) {
    let width = n_features + usize::from(bias != 0.0);
    let classes = weights.chunks_exact(width);
    let intercept = classes.clone().map(|class| class.get(n_features).map_or(0.0, |w| w * bias));
    (classes.clone().flat_map(|class| &class[..n_features]).copied().collect(), intercept.collect())
}

impl<L: Label> LinearClassifier<L> {
    pub(super) fn new(
        classes: Vec<L>,
        n_features: usize,
        coef: Vec<f64>,
        intercept: Vec<f64>,
        record: Record,
    ) -> Self {
        Self { classes, n_features, coef, intercept, record }
    }

    /// The classes, in increasing order.
    pub fn classes(&self) -> &[L] {
        &self.classes
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// Weights, class by class. Logistic regression with two classes has only the weights of the
    /// second class.
    pub fn coef(&self) -> &[f64] {
        &self.coef
    }

    /// Intercepts, one per weight vector.
    pub fn intercept(&self) -> &[f64] {
        &self.intercept
    }

    /// Scores of all classes for each row, row by row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rows do not have the model's number of columns, or if a score is not finite.
    pub fn scores<'a>(&self, rows: impl IntoRows<'a>) -> Result<Vec<f64>> {
        let data = rows.into_rows()?;
        if data.n_cols() != self.n_features {
            let (given, own) = (data.n_cols(), self.n_features);
            let message = format!("has {given} columns, but the model was fitted to {own}");
            return Err(Error::argument("X", message));
        }
        let (n_classes, n_outputs) = (self.classes.len(), self.intercept.len());
        // Stored feature by feature, so that the weights that belong to an entry are adjacent.
        let mut by_feature = vec![0.0; self.coef.len()];
        for (output, weights) in self.coef.chunks_exact(self.n_features.max(1)).enumerate() {
            let places = by_feature.iter_mut().skip(output).step_by(n_outputs);
            places.zip(weights).for_each(|(place, weight)| *place = *weight);
        }
        let mut scores = vec![0.0; data.n_rows() * n_classes];
        // If two classes share one output, the score of the first class is 0.
        let (first, intercept) = (n_classes - n_outputs, &self.intercept);
        fill_rows(&mut scores, n_classes, &Interrupt::default(), |row, scores| {
            let scores = &mut scores[first..];
            scores.copy_from_slice(intercept);
            for_data!(data, rows => rows.visit_row(row, |column, value| {
                let weights = &by_feature[column * n_outputs..][..n_outputs];
                scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w);
            }));
        })?;
        match scores.iter().position(|score| !score.is_finite()) {
            None => Ok(scores),
            Some(at) => {
                let message = format!("the scores of row {} are not finite", at / n_classes);
                Err(Error::argument("X", message))
            }
        }
    }

    /// The class with the largest score for each row; if several are equal, the first.
    ///
    /// # Errors
    /// As for [`scores`](LinearClassifier::scores).
    pub fn predict<'a>(&self, rows: impl IntoRows<'a>) -> Result<Vec<L>> {
        let scores = self.scores(rows)?;
        let best = |scores: &[f64]| {
            let better = |best, class| if scores[class] > scores[best] { class } else { best };
            self.classes[(0..scores.len()).fold(0, better)].clone()
        };
        Ok(scores.chunks_exact(self.classes.len()).map(best).collect())
    }

    /// The objective of the model, rounded up.
    pub fn objective(&self) -> f64 {
        self.record.trace.objective
    }

    /// An upper bound on the distance of the objective from the objective of the best model. It
    /// includes rounding errors.
    pub fn gap(&self) -> f64 {
        self.record.trace.gap().unwrap_or(f64::INFINITY)
    }

    /// The gap divided by the objective, which a fit compares with `tol`.
    pub fn relative_gap(&self) -> f64 {
        self.record.trace.certificate.map_or(f64::INFINITY, |found| found.relative_gap())
    }

    /// Whether the gap reached `tol`.
    pub fn converged(&self) -> bool {
        self.record.trace.outcome == Outcome::Converged
    }

    /// The name of the solver that made the last epoch, even if "auto" chose it.
    pub fn solver(&self) -> &str {
        self.record.last_solver()
    }

    /// The record of every epoch.
    pub fn trace(&self) -> &Trace {
        &self.record.trace
    }
}

/// A fitted logistic regression: a [`LinearClassifier`] with class probabilities.
#[derive(Debug, Clone)]
pub struct LogisticClassifier<L>(pub(super) LinearClassifier<L>);

impl<L> Deref for LogisticClassifier<L> {
    type Target = LinearClassifier<L>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<L: Label> LogisticClassifier<L> {
    /// Class probabilities, row by row: the softmax of the scores.
    ///
    /// # Errors
    /// As for [`scores`](LinearClassifier::scores).
    pub fn probabilities<'a>(&self, rows: impl IntoRows<'a>) -> Result<Vec<f64>> {
        let mut scores = self.0.scores(rows)?;
        scores.chunks_exact_mut(self.0.classes.len()).for_each(|row| {
            softmax(row);
        });
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use crate::prelude::{Dense, MulticlassSvc};

    #[test]
    fn debug_output_of_a_model_is_short() {
        let rows = Dense::from_slice(&[0.0, 1.0, 1.0, 0.0, 0.5, 0.9, 0.8, 0.1], 2).unwrap();
        let model = MulticlassSvc::new().fit(rows, &["a", "b", "a", "b"]).unwrap();
        let shown = format!("{model:?}");
        assert!(shown.starts_with("LinearClassifier { classes: [\"a\", \"b\"], n_features: 2"));
        assert!(shown.len() < 400, "{shown}");
    }
}
