//! Dual block descent for sparse rows: exact steps on the distributions of single examples (Yu, Huang and Lin 2011).
//!
//! The weights always belong to the dual point: W = Σ c_i (e_y − α_i) x_iᵀ. The gap is Σ c_i KL(α_i
//! ‖ softmax(s_i)), and each visit computes its term anyway. The sum of these terms over a pass
//! estimates the gap during the pass. From this estimate, the run decides when to compute a
//! certificate, which takes a further pass over the rows.

mod binary_pass;
mod block_step;
mod exact_step;
mod intercept;
mod pass;
mod state;

use self::intercept::{Multiplier, at_zero};
use self::state::{DualState, State};
use super::{LogisticModel, LogisticProblem, certificate};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::run::{Certificate, Progress, Solver, epochs_left};

/// A certificate is computed as soon as the expected gap is at most this fraction of the tolerance.
const EXPECTED: f64 = 0.5;
/// The gap after a pass is estimated as a fraction of the mean gap during the pass. This is the largest such fraction.
const SLOWEST: f64 = 0.5;
/// The smallest such fraction.
const FASTEST: f64 = 0.1;
/// Number of passes within which the gap must fall by a tenth.
const PATIENCE: usize = 4;
/// Smallest gap that single precision resolves, relative to the objective.
const RESOLVED: f64 = 1e-6;
/// Largest values, weights and curvatures for which single precision is used.
const SINGLE: f64 = 1e12;
/// Smallest relative gap for which a change of method is considered.
const FINEST: f64 = 1e-10;
/// Largest curvature for which double precision is used.
const DOUBLE: f64 = 1e200;

/// Options of dual block descent. None of them changes the optimum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DualDescentOptions {
    /// Seed for the order of the examples.
    pub seed: u64,
    /// The relative gap that ends the run; 0 if there is none.
    pub tolerance: f64,
}

/// Dual block descent over sparse rows; an epoch is one pass.
pub struct DualDescent<'p, 'a> {
    problem: &'p LogisticProblem<'a>,
    options: DualDescentOptions,
    state: Box<dyn DualState + 'p>,
    is_single: bool,
    multiplier: Option<Multiplier>,
    /// The mean relative gap during each pass.
    gaps: Vec<f64>,
    /// The objective during the last pass, relative to that of W = 0.
    relative_objective: f64,
    /// Ratio of the last certified gap to its expected value, at least 1.
    surprise: f64,
}

impl<'p, 'a: 'p> DualDescent<'p, 'a> {
    /// Starts at W = 0.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for dense rows.
    pub fn new(problem: &'p LogisticProblem<'a>, options: DualDescentOptions) -> Result<Self> {
        let is_single =
            largest_number(problem) <= SINGLE && smallest_number(problem) >= 1.0 / SINGLE;
        let state = state(problem, options.seed, is_single)?;
        let mut descent = Self {
            problem,
            options,
            state,
            is_single,
            multiplier: None,
            gaps: Vec::new(),
            relative_objective: 1.0,
            surprise: 1.0,
        };
        if problem.intercept() {
            descent.state.set_intercepts(at_zero(problem));
            descent.multiplier = Some(Multiplier::new(descent.state.as_mut()));
        }
        Ok(descent)
    }

    /// Starts at the softmax of a model's scores.
    ///
    /// # Errors
    /// [`Interrupted`](Error::Interrupted).
    pub fn start_at(&mut self, model: &LogisticModel, interrupt: &Interrupt) -> Result<()> {
        self.state.start_at(model, interrupt)
    }

    /// Estimates the number of further passes until the gap reaches the tolerance, from the rate of the last `n_passes`
    /// passes. Returns 0 as long as there are too few passes.
    pub fn passes_left(&self, n_passes: usize) -> f64 {
        let mut gaps = self.gaps.iter().rev();
        match (gaps.next(), gaps.nth(n_passes - 1)) {
            (Some(now), Some(before)) => {
                epochs_left((*before, *now), n_passes, self.options.tolerance.max(FINEST))
            }
            _ => 0.0,
        }
    }

    /// Whether the objective during the last pass was larger than that of W = 0.
    pub fn is_worse_than_zero(&self) -> bool {
        self.relative_objective > 1.0
    }

    /// The model.
    pub fn model(&self) -> LogisticModel {
        let mut weights = Vec::new();
        self.state.copy_weights(&mut weights);
        LogisticModel { weights, intercepts: self.state.intercepts() }
    }

    fn certificate(&self, interrupt: &Interrupt) -> Result<Certificate> {
        let shares = |row: usize, shares: &mut Vec<f64>| self.state.append_shares(row, shares);
        certificate(self.problem, &self.model(), Some(&shares), interrupt)
    }

    /// Switches to double precision.
    fn widen(&mut self, interrupt: &Interrupt) -> Result<()> {
        let wide = state(self.problem, self.options.seed, false)?;
        let before = std::mem::replace(&mut self.state, wide);
        self.state.set_intercepts(before.intercepts());
        if let Some(multiplier) = &self.multiplier {
            multiplier.resume(self.state.as_mut());
        }
        self.is_single = false;
        self.gaps.clear();
        self.state.take_shares(before.as_ref(), interrupt)
    }

    /// Whether passes no longer lower the gap.
    fn is_stuck(&self) -> bool {
        let [.., before, _, _, _, now] = self.gaps[..] else { return false };
        const { assert!(PATIENCE == 4) };
        now > 0.9 * before
    }
}

impl Solver for DualDescent<'_, '_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let found = self.state.pass(interrupt)?;
        let mut violation = 0.0;
        if let Some(multiplier) = &mut self.multiplier {
            violation = multiplier.step(self.state.as_mut());
        }
        let objective = found.loss + self.state.penalty();
        let null_objective = self.problem.total() * (self.problem.n_classes() as f64).ln();
        self.relative_objective = objective / null_objective;
        let gap = (found.gap + violation) / objective;
        let rate =
            self.gaps.last().map_or(SLOWEST, |before| (gap / before).clamp(FASTEST, SLOWEST));
        self.gaps.push(gap);
        let expected = (found.gap * rate + violation) / objective;
        let (stuck, least) = (self.is_stuck(), if self.is_single { RESOLVED } else { 0.0 });
        if self.is_single
            && (gap < least || stuck && gap < 100.0 * least)
            && expected > self.options.tolerance
        {
            self.widen(interrupt)?;
        } else if !gap.is_finite() || stuck && gap < 1e-12 {
            return Ok(Progress::Exhausted(self.certificate(interrupt)?));
        }
        if expected * self.surprise > EXPECTED * self.options.tolerance {
            return Ok(Progress::Uncertified);
        }
        let certificate = self.certificate(interrupt)?;
        self.surprise = (certificate.relative_gap() / expected).max(1.0);
        Ok(Progress::Epoch(certificate))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.certificate(interrupt)
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        let LogisticModel { weights, intercepts } = self.model();
        Some(vec![weights, intercepts])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        self.state.copy_weights(weights);
        weights.extend(self.state.intercepts());
        true
    }
}

/// Whether the rows are sparse and all numbers are small enough for dual block descent.
pub fn suits_dual_descent(problem: &LogisticProblem<'_>) -> bool {
    let is_sparse = problem.rows().is_sparse();
    is_sparse && largest_number(problem) < DOUBLE
}

/// The largest of all values, weights of examples and bounds on curvatures.
fn largest_number(problem: &LogisticProblem<'_>) -> f64 {
    let size = problem.column_sizes().iter().copied().fold(0.0, f64::max);
    let weight = problem.largest_weight();
    size.max(weight).max(weight * size * size * problem.n_features() as f64)
}

/// The smaller of the largest value and the largest weight of an example.
fn smallest_number(problem: &LogisticProblem<'_>) -> f64 {
    let size = problem.column_sizes().iter().copied().fold(0.0, f64::max);
    let weight = problem.largest_weight();
    size.min(weight)
}

fn state<'p, 'a: 'p>(
    problem: &'p LogisticProblem<'a>,
    seed: u64,
    is_single: bool,
) -> Result<Box<dyn DualState + 'p>> {
    Ok(match (problem.rows(), is_single) {
        (Data::Csr32(rows), true) => Box::new(State::<_, f32>::new(problem, rows, seed)),
        (Data::Csr64(rows), true) => Box::new(State::<_, f32>::new(problem, rows, seed)),
        (Data::Csr32(rows), false) => Box::new(State::<_, f64>::new(problem, rows, seed)),
        (Data::Csr64(rows), false) => Box::new(State::<_, f64>::new(problem, rows, seed)),
        _ => return Err(Error::argument("X", "dual block descent needs sparse rows (CSR)")),
    })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::data::Csr;
    use crate::run::{Outcome, Stopping, Trace, run};

    /// Sparse rows with labels.
    struct Set {
        offsets: Vec<i64>,
        columns: Vec<i32>,
        values: Vec<f64>,
        labels: Vec<u32>,
        n_classes: usize,
        n_cols: usize,
    }

    impl Set {
        /// Random-looking sparse rows that are correlated with their labels.
        fn new(n: usize, n_cols: usize, n_classes: usize, scale: f64) -> Self {
            let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
            let mut labels = Vec::new();
            for row in 0..n {
                let label = (row * 7 + row / n_classes) % n_classes;
                labels.push(label as u32);
                // Some rows are empty, and some occur twice.
                let row = if row % 11 == 3 { row - 1 } else { row };
                for column in
                    (0..n_cols).filter(|column| row % 13 != 0 && (row * 31 + column * 17) % 3 == 0)
                {
                    let own = f64::from(u8::from(column % n_classes == label));
                    columns.push(column as i32);
                    values
                        .push(scale * (own + ((row * 29 + column * 53) % 17) as f64 / 17.0 - 0.4));
                }
                offsets.push(columns.len() as i64);
            }
            Self { offsets, columns, values, labels, n_classes, n_cols }
        }

        fn problem(&self, c: f64, intercept: bool) -> LogisticProblem<'_> {
            let rows = Csr::new(&self.offsets, &self.columns, &self.values, self.n_cols).unwrap();
            let weights = (0..self.labels.len()).map(|row| c * (0.5 + (row % 3) as f64)).collect();
            LogisticProblem::new(
                Data::Csr64(rows),
                &self.labels,
                self.n_classes,
                weights,
                intercept,
            )
            .unwrap()
        }
    }

    fn fit(
        problem: &LogisticProblem<'_>,
        tolerance: f64,
        max_epochs: usize,
    ) -> (Trace, LogisticModel) {
        fit_from(problem, tolerance, max_epochs, None)
    }

    fn fit_from(
        problem: &LogisticProblem<'_>,
        tolerance: f64,
        max_epochs: usize,
        start: Option<&LogisticModel>,
    ) -> (Trace, LogisticModel) {
        let interrupt = Interrupt::default();
        let mut descent =
            DualDescent::new(problem, DualDescentOptions { seed: 0, tolerance }).unwrap();
        if let Some(start) = start {
            descent.start_at(start, &interrupt).unwrap();
        }
        let stopping =
            Stopping { max_epochs, relative: tolerance, floor: 0.0, null_objective: None };
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let trace = run(&mut descent, stopping, &interrupt, go_on).unwrap();
        (trace, descent.model())
    }

    #[test]
    fn the_models_own_certificate_confirms_the_objective_of_a_fit() {
        for (n_classes, intercept) in [(2, false), (2, true), (3, false), (3, true), (40, true)] {
            let set = Set::new(300, 60, n_classes, 1.0);
            for c in [1e-3, 0.1, 1.0] {
                let problem = set.problem(c, intercept);
                for tolerance in [1e-3, 1e-5, 1e-8] {
                    let (trace, model) = fit(&problem, tolerance, 2000);
                    let what = format!("{n_classes} {intercept} {c} {tolerance}");
                    assert_eq!(
                        trace.outcome,
                        Outcome::Converged,
                        "{what}: {:?}",
                        trace.certificate
                    );
                    let own = certificate(&problem, &model, None, &Interrupt::default()).unwrap();
                    let found = trace.certificate.unwrap();
                    assert!(own.dual <= found.primal && found.dual <= own.primal, "{what}");
                    assert_eq!(own.primal, found.primal);
                    assert!(tolerance > 1e-6 || own.relative_gap() < 1e-4, "{what}: {own:?}");
                }
            }
        }
    }

    #[test]
    fn a_fit_leaves_single_precision_when_its_digits_are_exhausted() {
        let set = Set::new(200, 40, 4, 1.0);
        let problem = set.problem(0.1, false);
        let mut descent =
            DualDescent::new(&problem, DualDescentOptions { seed: 0, tolerance: 1e-11 }).unwrap();
        assert!(descent.is_single);
        let stopping =
            Stopping { max_epochs: 500, relative: 1e-11, floor: 0.0, null_objective: None };
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let trace = run(&mut descent, stopping, &Interrupt::default(), go_on).unwrap();
        assert_eq!(trace.outcome, Outcome::Converged, "{trace:?}");
        assert!(!descent.is_single);
    }

    #[test]
    fn inputs_of_any_size_give_finite_results() {
        for scale in [1e-150, 1e-20, 1.0, 1e20, 1e90] {
            for c in [1e-12, 1.0, 1e12] {
                for (n_classes, intercept) in [(2, true), (5, false), (5, true)] {
                    let set = Set::new(60, 20, n_classes, scale);
                    let problem = set.problem(c, intercept);
                    if !suits_dual_descent(&problem) {
                        assert!(scale > 1e80);
                        continue;
                    }
                    let (trace, model) = fit(&problem, 1e-4, 30);
                    let certificate = trace.certificate.unwrap();
                    let what = format!("{scale} {c} {n_classes} {intercept}: {certificate:?}");
                    assert!(certificate.check().is_ok(), "{what}");
                    assert!(model.weights.iter().all(|weight| weight.is_finite()), "{what}");
                    assert!(
                        scale * scale * c > 1e3 || trace.outcome == Outcome::Converged,
                        "{what}"
                    );
                }
            }
        }
    }

    #[test]
    fn single_and_separable_examples_are_fitted() {
        let labels = [1];
        let rows = Csr::new(&[0, 2], &[0, 2], &[0.5, -2.0], 3).unwrap();
        let data = Data::Csr64(rows);
        let problem = LogisticProblem::new(data, &labels, 2, vec![3.0], false).unwrap();
        assert_eq!(fit(&problem, 1e-6, 100).0.outcome, Outcome::Converged);
        // Each example has a separate column, so the blocks do not interact, and a single step solves a block of any
        // curvature.
        let offsets: Vec<i64> = (0..=6).collect();
        let (columns, values): (Vec<i32>, _) = ((0..6).collect(), vec![1.0; 6]);
        let rows = Csr::new(&offsets, &columns, &values, 6).unwrap();
        for (labels, n_classes) in [([0, 1, 0, 1, 0, 1], 2), ([0, 1, 2, 0, 1, 2], 3)] {
            for c in [1e-6, 1.0, 1e6, 1e11] {
                let data = Data::Csr64(rows);
                let problem =
                    LogisticProblem::new(data, &labels, n_classes, vec![c; 6], false).unwrap();
                let (trace, _) = fit(&problem, 1e-4, 20);
                assert_eq!(trace.outcome, Outcome::Converged, "{c} {n_classes} {trace:?}");
            }
        }
    }

    #[test]
    fn a_start_at_the_optimum_ends_after_a_pass() {
        for (n_classes, intercept) in [(2, false), (2, true), (6, false), (6, true)] {
            let set = Set::new(400, 60, n_classes, 1.0);
            let problem = set.problem(0.3, intercept);
            let (_, model) = fit(&problem, 1e-6, 1000);
            let (trace, _) = fit_from(&problem, 1e-4, 1000, Some(&model));
            assert_eq!((trace.outcome, trace.epochs.len()), (Outcome::Converged, 1));
        }
    }

    #[test]
    fn models_do_not_depend_on_the_threads() {
        let set = Set::new(300, 60, 5, 1.0);
        let problem = set.problem(1.0, true);
        let model = |n_threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| fit(&problem, 1e-5, 50))
        };
        let ((one, first), (two, second)) = (model(1), model(3));
        assert_eq!((first, one.certificate), (second, two.certificate));
    }

    #[test]
    fn dense_rows_are_an_error() {
        let values = ndarray::arr2(&[[1.0], [2.0]]);
        let data = Data::Dense64(crate::data::Dense::new(values.view()).unwrap());
        let problem = LogisticProblem::new(data, &[0, 1], 2, vec![1.0; 2], false).unwrap();
        assert!(!suits_dual_descent(&problem));
        assert!(DualDescent::new(&problem, DualDescentOptions::default()).is_err());
    }
}
