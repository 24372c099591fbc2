//! Linear classifiers with a margin loss.

use super::classifier::{LinearClassifier, Record};
use super::labels::{Label, encode};
use super::options::{FitOptions, option_methods};
use super::saving::svc_parameters;
use super::{Loss, classifier};
use crate::data::IntoRows;
use crate::dual::Shares;
use crate::error::{Error, Result};
use crate::multiclass::{Linear, MarginProblem, Size, fit};
use crate::solver::Choices;

/// Options of a linear classifier with a margin loss. The default loss is the loss of Crammer and Singer;
/// [`loss`](MulticlassSvc::loss) changes it.
///
/// [`fit`](MulticlassSvc::fit) minimises λ/2 ‖W‖² + mean loss with λ = 1/(C × number of rows). The
/// constant feature for the intercept is regularised like the other features.
///
/// ```
/// use dualgap::prelude::*;
///
/// let rows = [0.0, 1.0, 0.2, 0.9, 3.0, 1.0, 3.1, 0.8, 0.1, 4.0, 0.0, 4.2];
/// let rows = Dense::from_slice(&rows, 2)?;
/// let labels = ["left", "left", "right", "right", "top", "top"];
/// let model = MulticlassSvc::new().loss("weston-watkins").c(10.0).tol(1e-6).fit(rows, &labels)?;
/// assert!(model.converged() && model.relative_gap() <= 1e-6);
/// assert_eq!(model.predict(rows)?, labels);
/// # Ok::<(), dualgap::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MulticlassSvc {
    pub(super) loss: Loss,
    pub(super) smoothing: f64,
    pub(super) intercept_scaling: f64,
    pub(super) options: FitOptions,
}

impl Default for MulticlassSvc {
    fn default() -> Self {
        let (loss, options) = ("max-hinge".into(), FitOptions::default());
        Self { loss, smoothing: 0.0, intercept_scaling: 1.0, options }
    }
}

impl MulticlassSvc {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    option_methods!();

    /// The loss: a name such as "weston-watkins", or a [`Loss`].
    #[must_use]
    pub fn loss(mut self, loss: impl Into<Loss>) -> Self {
        self.loss = loss.into();
        self
    }

    /// Parameter γ of the Moreau envelope that smooths the loss; 0 by default, which means no
    /// smoothing.
    #[must_use]
    pub fn smoothing(mut self, smoothing: f64) -> Self {
        self.smoothing = smoothing;
        self
    }

    /// Value of the constant feature; 1 by default. A larger value means less regularisation of the
    /// intercepts.
    #[must_use]
    pub fn intercept_scaling(mut self, scaling: f64) -> Self {
        self.intercept_scaling = scaling;
        self
    }

    /// Fits a classifier to rows and their labels.
    ///
    /// The loops over rows run on rayon's current thread pool. The model does not depend on the
    /// number of threads.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for unusable options, rows or labels, [`Error::Memory`] if the
    /// fit needs more memory than is available, and [`Error::Interrupted`].
    pub fn fit<'a, L: Label>(
        &self,
        rows: impl IntoRows<'a>,
        labels: &[L],
    ) -> Result<LinearClassifier<L>> {
        let data = rows.into_rows()?;
        let (classes, codes) = encode(labels, data.n_rows())?;
        let FitOptions { solver, seed, .. } = &self.options;
        let (target, bias) = (self.options.target()?, self.bias()?);
        let mut shares = Shares::new(data.n_rows(), self.options.lambda(data.n_rows()))?;
        if let Some(weights) = &self.options.sample_weight {
            shares = shares.with_sample_weights(weights)?;
        }
        let shares = shares.with_smoothing(self.smoothing)?;
        let lambda = shares.lambda();
        let mut size = Size::of(data, classes.len(), self.smoothing > 0.0, false);
        if self.loss.name().is_some() {
            size = size.with_newton(data, bias, lambda);
        }
        let method = size.method(&Choices { seed: *seed, ..Choices::of(solver) })?;
        size.require(method, 1)?;
        let map = Linear::new(data, classes.len(), bias, method.order());
        map.require_finite()?;
        let mut problem = MarginProblem::new(map, &codes, self.loss.polytope()?, shares)?;
        let (interrupt, observe) = (self.options.interrupt(), &mut |e: &_| self.options.observe(e));
        let fitted = fit(&mut problem, method, target, false, None, &interrupt, observe)?;
        let weights = fitted.weights.unwrap_or(fitted.end.at.weights);
        let (coef, intercept) = classifier::split(&weights, data.n_cols(), bias);
        let record = Record {
            trace: fitted.trace,
            null_objective: fitted.null_objective,
            lambda,
            first_solver: if method.name() == "auto" { "block-descent" } else { method.name() }
                .into(),
            file: svc_parameters(
                &self.loss,
                [self.smoothing, self.intercept_scaling],
                &self.options,
            ),
        };
        Ok(LinearClassifier::new(classes, data.n_cols(), coef, intercept, record))
    }

    /// Returns the value of the constant feature, or 0 if there is no intercept.
    pub(super) fn bias(&self) -> Result<f64> {
        let scaling = self.intercept_scaling;
        if !(scaling > 0.0 && scaling <= 1e100) {
            let message = format!("is {scaling}; must be positive and at most 1e100");
            return Err(Error::argument("intercept_scaling", message));
        }
        Ok(if self.options.fit_intercept { scaling } else { 0.0 })
    }
}
