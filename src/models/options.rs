//! Options that all fits share.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::run::Epoch;
use crate::solver::Target;

type Observer = Arc<dyn Fn(&Epoch) -> ControlFlow<()> + Send + Sync>;

/// Stopping rule, solver, row weights, interrupt and observer of a fit.
#[derive(Clone)]
pub(super) struct FitOptions {
    pub c: f64,
    pub tol: f64,
    pub max_iter: usize,
    pub solver: String,
    pub seed: u64,
    pub fit_intercept: bool,
    pub sample_weight: Option<Vec<f64>>,
    pub interrupt: Option<Interrupt>,
    pub observer: Option<Observer>,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self {
            c: 1.0,
            tol: 1e-3,
            max_iter: 1000,
            solver: "auto".into(),
            seed: 0,
            fit_intercept: true,
            sample_weight: None,
            interrupt: None,
            observer: None,
        }
    }
}

impl fmt::Debug for FitOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { c, tol, max_iter, solver, seed, fit_intercept, .. } = self;
        write!(f, "C {c}, tol {tol}, max_iter {max_iter}, solver {solver:?}, seed {seed}, ")?;
        write!(f, "fit_intercept {fit_intercept}")
    }
}

impl FitOptions {
    /// The stopping rule.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for numbers outside their range.
    pub fn target(&self) -> Result<Target> {
        let Self { c, tol, max_iter, .. } = *self;
        if !(c > 0.0 && c.is_finite()) {
            return Err(Error::argument("C", format!("is {c}; must be positive and finite")));
        }
        if !(tol >= 0.0 && tol.is_finite()) {
            return Err(Error::argument("tol", format!("is {tol}; must be finite and at least 0")));
        }
        if max_iter == 0 {
            return Err(Error::argument("max_iter", "is 0; must be at least 1"));
        }
        Ok(Target { tol, max_epochs: max_iter })
    }

    /// Returns λ = 1/(C × the total weight of the rows).
    pub fn lambda(&self, n_rows: usize) -> f64 {
        let total = self.sample_weight.as_ref().map_or(n_rows as f64, |w| w.iter().sum());
        1.0 / (self.c * total)
    }

    /// The flag that stops a run.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone().unwrap_or_default()
    }

    /// Calls the observer, if there is one.
    pub fn observe(&self, epoch: &Epoch) -> ControlFlow<()> {
        self.observer.as_ref().map_or(ControlFlow::Continue(()), |observe| observe(epoch))
    }
}

/// The source of a model file's content.
#[derive(Debug, Clone)]
pub(super) enum ModelFile {
    /// The Python class, and its parameters as JSON.
    Described { class: &'static str, parameters: String },
    /// No file can be written, because Python does not know the loss.
    CustomLoss,
    /// The model was read from a file; this is the content of that file.
    Loaded(Vec<u8>),
}

/// The builder methods of [`FitOptions`].
macro_rules! option_methods {
    () => {
        /// Weight of the losses relative to the regulariser; 1 by default.
        #[must_use]
        pub fn c(mut self, c: f64) -> Self {
            self.options.c = c;
            self
        }

        /// Duality gap, relative to the objective, at which a fit has converged; 1e-3 by default.
        #[must_use]
        pub fn tol(mut self, tol: f64) -> Self {
            self.options.tol = tol;
            self
        }

        /// Maximum number of epochs, 1000 by default.
        #[must_use]
        pub fn max_iter(mut self, max_iter: usize) -> Self {
            self.options.max_iter = max_iter;
            self
        }

        /// Name of the solver; "auto" by default. For an unknown name, the fit returns an error
        /// that lists the known names.
        #[must_use]
        pub fn solver(mut self, name: &str) -> Self {
            self.options.solver = name.to_owned();
            self
        }

        /// Seed for the order of the rows; 0 by default.
        #[must_use]
        pub fn seed(mut self, seed: u64) -> Self {
            self.options.seed = seed;
            self
        }

        /// Whether scores include an intercept; true by default.
        #[must_use]
        pub fn fit_intercept(mut self, fit_intercept: bool) -> Self {
            self.options.fit_intercept = fit_intercept;
            self
        }

        /// Weight of each row's loss; 1 by default.
        #[must_use]
        pub fn sample_weight(mut self, weights: Vec<f64>) -> Self {
            self.options.sample_weight = Some(weights);
            self
        }

        /// A flag with which another thread can stop the fit. The fit then returns
        /// [`Error::Interrupted`](crate::Error::Interrupted).
        #[must_use]
        pub fn interrupt(mut self, interrupt: crate::interrupt::Interrupt) -> Self {
            self.options.interrupt = Some(interrupt);
            self
        }

        /// A function that is called after each epoch. If it returns `Break`, the fit ends.
        #[must_use]
        pub fn on_epoch(
            mut self,
            observe: impl Fn(&crate::run::Epoch) -> std::ops::ControlFlow<()> + Send + Sync + 'static,
        ) -> Self {
            self.options.observer = Some(std::sync::Arc::new(observe));
            self
        }
    };
}

pub(super) use option_methods;
