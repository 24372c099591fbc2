//! Dual block descent that hands over to Newton's method when its passes stall.

use super::newton::{LogisticNewton, keeps_zeros_out};
use super::{DualDescent, DualDescentOptions, LogisticModel, LogisticProblem};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::memory::fits;
use crate::run::{Certificate, Progress, Solver, Stopping};

/// The time of a fit by Newton's method, in units of a pass of dual block descent, and the number of recent passes
/// whose rate predicts the number of further passes. These values apply if Newton's method also stores zeros.
const DENSE: (f64, usize) = (10.0, 5);
/// The same if it stores no zeros and there are many rows per column. Measured times are 4 to 12 passes on indicator
/// features and on words.
const TALL: (f64, usize) = (5.0, 1);
/// The same if it stores no zeros and there are few rows per column. Measured times are 7 to 800 passes on words.
/// Conjugate gradients need more steps for larger C.
const WIDE: (f64, usize) = (100.0, 5);
/// The least number of rows per column that counts as many.
const ROWS: usize = 4;

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandOverOptions {
    /// Seed for the order of the examples.
    pub seed: u64,
    /// The stopping rule.
    pub stopping: Stopping,
    /// Memory that Newton's method needs, in bytes. If it does not fit, descent continues.
    pub n_bytes: u128,
}

/// Dual block descent, followed by Newton's method, which starts from the model of the descent or from W = 0, whichever
/// is better.
pub(super) struct LogisticHandOver<'p, 'a> {
    problem: &'p LogisticProblem<'a>,
    options: HandOverOptions,
    /// Newton's method takes over as soon as descent has made more passes than this, or is expected
    /// to need more. The passes made so far count too, because the expectation varies from pass to
    /// pass.
    most_passes: f64,
    /// Number of passes from which the rate is estimated.
    n_rated: usize,
    /// Number of passes of descent so far.
    n_passes: usize,
    is_due: bool,
    stage: Stage<'p, 'a>,
}

enum Stage<'p, 'a> {
    Descent(Box<DualDescent<'p, 'a>>),
    Newton(Box<LogisticNewton<'p>>),
}

impl<'p, 'a: 'p> LogisticHandOver<'p, 'a> {
    /// Starts with dual block descent, at `start` or at W = 0.
    ///
    /// # Errors
    /// Errors of [`DualDescent::new`] and [`DualDescent::start_at`].
    pub fn new(
        problem: &'p LogisticProblem<'a>,
        options: HandOverOptions,
        start: Option<&LogisticModel>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let HandOverOptions { seed, stopping, .. } = options;
        let own = DualDescentOptions { seed, tolerance: stopping.relative };
        let mut descent = Box::new(DualDescent::new(problem, own)?);
        if let Some(start) = start {
            descent.start_at(start, interrupt)?;
        }
        let (most_passes, n_rated) = match keeps_zeros_out(problem) {
            false => DENSE,
            true if problem.n_examples() >= ROWS * problem.n_features() => TALL,
            true => WIDE,
        };
        let stage = Stage::Descent(descent);
        Ok(Self { problem, options, most_passes, n_rated, n_passes: 0, is_due: false, stage })
    }

    /// Returns the final model.
    pub fn into_model(self) -> LogisticModel {
        match self.stage {
            Stage::Descent(descent) => descent.model(),
            Stage::Newton(newton) => newton.into_model(),
        }
    }
}

/// The model from which Newton's method starts. With a large C, early models of descent are worse than W = 0.
fn newton_start(problem: &LogisticProblem<'_>, descent: &DualDescent<'_, '_>) -> LogisticModel {
    if descent.is_worse_than_zero() { problem.zero_model() } else { descent.model() }
}

impl Solver for LogisticHandOver<'_, '_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if let (true, Stage::Descent(descent)) = (self.is_due, &self.stage) {
            let start = newton_start(self.problem, descent);
            let newton = LogisticNewton::new(self.problem, &start, self.options.stopping);
            self.stage = Stage::Newton(Box::new(newton));
        }
        let descent = match &mut self.stage {
            Stage::Newton(newton) => return newton.advance(interrupt),
            Stage::Descent(descent) => descent,
        };
        let progress = descent.advance(interrupt)?;
        let exhausted = matches!(progress, Progress::Exhausted(_));
        self.n_passes += 1;
        let most = descent.passes_left(self.n_rated).max(self.n_passes as f64);
        let stalls = exhausted || most > self.most_passes;
        self.is_due = stalls && fits(self.options.n_bytes);
        Ok(match progress {
            Progress::Exhausted(certificate) if self.is_due => Progress::Epoch(certificate),
            other => other,
        })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        match &mut self.stage {
            Stage::Descent(descent) => descent.certify(interrupt),
            Stage::Newton(newton) => newton.certify(interrupt),
        }
    }

    fn n_first(&self) -> Option<usize> {
        matches!(self.stage, Stage::Newton(_)).then_some(self.n_passes)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        match &self.stage {
            Stage::Descent(descent) => descent.model_arrays(),
            Stage::Newton(newton) => newton.model_arrays(),
        }
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        match &self.stage {
            Stage::Descent(descent) => descent.copy_weights(weights),
            Stage::Newton(newton) => newton.copy_weights(weights),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::data::{Csr, Data};
    use crate::run::{Outcome, run};

    #[test]
    fn newtons_method_starts_from_a_model_that_is_not_worse_than_zero() {
        let (n, d) = (200, 10);
        let offsets: Vec<i64> = (0..=n).map(|row| 2 * row).collect();
        let columns: Vec<i32> =
            (0..n).flat_map(|row| [row % 5, 5 + row % 3]).map(|k| k as i32).collect();
        let values = vec![1.0; columns.len()];
        let labels: Vec<u32> = (0..n).map(|row| (row * row % 7 % 3) as u32).collect();
        let rows = Csr::new(&offsets, &columns, &values, d).unwrap();
        let interrupt = Interrupt::default();
        for (c, is_worse) in [(0.01, false), (1e4, true)] {
            let weights = vec![c; n as usize];
            let problem =
                LogisticProblem::new(Data::Csr64(rows), &labels, 3, weights, false).unwrap();
            let options = DualDescentOptions { seed: 0, tolerance: 1e-4 };
            let mut descent = DualDescent::new(&problem, options).unwrap();
            for _ in 0..3 {
                descent.advance(&interrupt).unwrap();
            }
            let own = descent.certify(&interrupt).unwrap();
            assert_eq!(own.primal > 3.0_f64.ln(), is_worse, "{own:?}");
            let start = newton_start(&problem, &descent);
            assert_eq!(start == problem.zero_model(), is_worse);
            assert_eq!(start == descent.model(), !is_worse);
        }
    }

    #[test]
    fn columns_of_any_scale_converge_even_if_passes_stall() {
        let (n, d) = (600, 60);
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        let mut labels = Vec::new();
        for row in 0..n {
            let label = (row * 7 + row / 4) % 4;
            labels.push(label as u32);
            for column in (0..d).filter(|column| (row * 31 + column * 17 + row / 7) % 9 == 0) {
                let own = if column % 4 == label { 1.0 } else { 0.3 };
                let scale = 10.0_f64.powi((column % 5) as i32 - 2);
                columns.push(column as i32);
                values.push(scale * (own + ((row * 29 + column * 53) % 17) as f64 / 17.0));
            }
            offsets.push(columns.len() as i64);
        }
        let rows = Csr::new(&offsets, &columns, &values, d).unwrap();
        for intercept in [false, true] {
            let problem =
                LogisticProblem::new(Data::Csr64(rows), &labels, 4, vec![1.0; n], intercept)
                    .unwrap();
            let (interrupt, null_objective) = (Interrupt::default(), Some(4.0_f64.ln()));
            let stopping = Stopping { max_epochs: 400, relative: 1e-4, floor: 0.0, null_objective };
            let go_on = &mut |_: &_| ControlFlow::Continue(());
            let mut alone = DualDescent::new(
                &problem,
                DualDescentOptions { seed: 0, tolerance: stopping.relative },
            )
            .unwrap();
            let trace = run(&mut alone, stopping, &interrupt, go_on).unwrap();
            assert_eq!(trace.outcome, Outcome::EpochLimit);
            let options = HandOverOptions { seed: 0, stopping, n_bytes: 0 };
            let mut both = LogisticHandOver::new(&problem, options, None, &interrupt).unwrap();
            let trace = run(&mut both, stopping, &interrupt, go_on).unwrap();
            assert_eq!(trace.outcome, Outcome::Converged, "{trace:?}");
            assert!(matches!(both.stage, Stage::Newton(_)));
        }
    }
}
