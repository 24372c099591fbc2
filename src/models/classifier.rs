//! Fitted linear classifiers: predictions and certificate.

use std::ops::Deref;

use super::labels::Label;
use super::options::SavedParameters;
use crate::data::{IntoRows, Rows};
use crate::error::{Error, Result};
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::linalg::softmax;
use crate::parallel::fill_rows;
use crate::run::{Outcome, Trace};

/// The record of a fit.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub trace: Trace,
    pub null_objective: f64,
    pub lambda: f64,
    pub solver: &'static str,
    pub file: SavedParameters,
}

/// A fitted linear classifier: it predicts the class of the largest score, W x + b.
#[derive(Debug, Clone)]
pub struct LinearClassifier<L> {
    classes: Vec<L>,
    n_features: usize,
    /// W, output after output.
    pub(super) coef: Vec<f64>,
    pub(super) intercept: Vec<f64>,
    pub(super) record: Record,
}

/// Weights and intercepts from weights with those of the constant feature `bias` last, unless it
/// is 0.
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

    /// Weights, class after class; of logistic regression with two classes, those of the second.
    pub fn coef(&self) -> &[f64] {
        &self.coef
    }

    /// Intercepts, one for each vector of weights.
    pub fn intercept(&self) -> &[f64] {
        &self.intercept
    }

    /// Scores of the classes, row after row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for rows with another number of columns, and rows whose scores are
    /// not finite.
    pub fn scores<'a>(&self, rows: impl IntoRows<'a>) -> Result<Vec<f64>> {
        let data = rows.into_rows()?;
        if data.n_cols() != self.n_features {
            let (given, own) = (data.n_cols(), self.n_features);
            let message = format!("has {given} columns, but the model was fitted to {own}");
            return Err(Error::argument("X", message));
        }
        let (n_classes, n_outputs) = (self.classes.len(), self.intercept.len());
        // Feature after feature, so that the weights of an entry are next to each other.
        let mut by_feature = vec![0.0; self.coef.len()];
        for (output, weights) in self.coef.chunks_exact(self.n_features.max(1)).enumerate() {
            let places = by_feature.iter_mut().skip(output).step_by(n_outputs);
            places.zip(weights).for_each(|(place, weight)| *place = *weight);
        }
        let mut scores = vec![0.0; data.n_rows() * n_classes];
        // The first of two classes with one output has the score 0.
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

    /// The class of the largest score of each row; of equal scores, the first.
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

    /// An upper bound on the distance of the objective from that of the best model, rounding
    /// included.
    pub fn gap(&self) -> f64 {
        self.record.trace.gap().unwrap_or(f64::INFINITY)
    }

    /// The gap relative to the objective, which a fit compares with its `tol`.
    pub fn relative_gap(&self) -> f64 {
        self.record.trace.certificate.map_or(f64::INFINITY, |found| found.relative_gap())
    }

    /// Whether the gap reached `tol`.
    pub fn converged(&self) -> bool {
        self.record.trace.outcome == Outcome::Converged
    }

    /// The name of the solver that "auto" chose.
    pub fn solver(&self) -> &'static str {
        self.record.solver
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
    /// Probabilities of the classes, row after row: the softmax of the scores.
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
