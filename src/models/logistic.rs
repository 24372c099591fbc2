//! Linear classifiers with class probabilities.

use super::classifier::{LinearClassifier, LogisticClassifier, Record};
use super::labels::{Label, encode};
use super::options::{FitOptions, option_methods};
use super::saving::logistic_parameters;
use crate::data::IntoRows;
use crate::error::Result;
use crate::logistic::{LogisticMethod, LogisticModel, LogisticProblem, fit_logistic};

/// Options of multinomial logistic regression. Intercepts are not regularised, and two classes share one weight vector.
///
/// ```
/// use dualgap::prelude::*;
///
/// let rows = Dense::from_slice(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 1)?;
/// let labels = [false, false, true, false, true, true];
/// let model = LogisticRegression::new().c(10.0).tol(1e-8).fit(rows, &labels)?;
/// let probabilities = model.probabilities(rows)?; // row by row
/// assert!((probabilities[0] + probabilities[1] - 1.0).abs() < 1e-15);
/// assert!(model.gap() <= 1e-8 * model.objective());
/// # Ok::<(), dualgap::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct LogisticRegression {
    options: FitOptions,
}

impl LogisticRegression {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    option_methods!();

    /// Fits a classifier to rows and their labels.
    ///
    /// The loops over rows run on rayon's current thread pool. The model does not depend on the
    /// number of threads.
    ///
    /// # Errors
    /// As for [`MulticlassSvc::fit`](super::MulticlassSvc::fit).
    pub fn fit<'a, L: Label>(
        &self,
        rows: impl IntoRows<'a>,
        labels: &[L],
    ) -> Result<LogisticClassifier<L>> {
        let data = rows.into_rows()?;
        let (classes, codes) = encode(labels, data.n_rows())?;
        let FitOptions { c, solver, seed, fit_intercept, sample_weight, .. } = &self.options;
        let (target, method) = (self.options.target()?, LogisticMethod::parse(solver, *seed)?);
        let weights = match sample_weight {
            Some(weights) => weights.iter().map(|weight| c * weight).collect(),
            None => vec![*c; data.n_rows()],
        };
        let problem = LogisticProblem::new(data, &codes, classes.len(), weights, *fit_intercept)?;
        let (interrupt, observe) = (self.options.interrupt(), &mut |e: &_| self.options.observe(e));
        let fitted = fit_logistic(&problem, method, target, None, &interrupt, observe)?;
        let LogisticModel { weights: coef, intercepts: intercept } = fitted.model;
        let record = Record {
            trace: fitted.trace,
            null_objective: fitted.null_objective,
            lambda: self.options.lambda(data.n_rows()),
            first_solver: fitted.method.name().into(),
            file: logistic_parameters(&self.options),
        };
        let linear = LinearClassifier::new(classes, data.n_cols(), coef, intercept, record);
        Ok(LogisticClassifier(linear))
    }
}
