//! Fits the models of one fold, one after another.

use std::ops::ControlFlow;
use std::time::Instant;

use super::directional_bounds::{CertifiedDistances, DirectionalBounds};
use super::scoring::{Ball, Bracket, Measure, gap_above, radius, radius_of_any};
use super::search::{Candidate, Entry, Scoring, Search};
use crate::dual::Bounded;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::multiclass::MarginProblem;
use crate::multiclass::block_descent::{BlockDescent, Options};
use crate::run::{Certificate, Outcome, Solver, run};
use crate::solver::Target;

/// Relative gap below which directional bounds are computed: above it they are hardly tighter.
const MAX_BOUNDED_GAP: f64 = 1e-5;

/// A fold's solver and its current position on the path.
pub(super) struct FoldPath<'c, 'a> {
    search: &'c Search<'a>,
    problem: &'c MarginProblem<'c>,
    solver: BlockDescent<'c>,
    fold: usize,
    /// The index of the current C.
    c_index: usize,
    null_objective: Bounded,
}

impl<'c, 'a> FoldPath<'c, 'a> {
    /// Starts at the dual point 0, with the C of the problem, which is the first one.
    pub fn new(search: &'c Search<'a>, problem: &'c MarginProblem<'c>, fold: usize) -> Self {
        // `tolerance` is 0, so epochs end without an estimate of the gap.
        let options = Options { seed: search.seed, ..Options::default() };
        let solver = BlockDescent::new(problem, options);
        let null_objective = problem.null_objective();
        Self { search, problem, solver, fold, c_index: 0, null_objective }
    }

    /// Moves to the final point of an earlier fit for the problem's C.
    pub fn resume(&mut self, c_index: usize, point: &[Entry], interrupt: &Interrupt) -> Result<()> {
        let m = self.problem.n_classes();
        let mut betas = vec![0.0; self.problem.n_examples() * m];
        for &(example, class, value) in point {
            betas[example as usize * m + class as usize] = value;
        }
        self.c_index = c_index;
        self.solver.start_at(&betas, interrupt)?;
        // The certificate finds the examples that are not optimal.
        self.solver.certify(interrupt)?;
        Ok(())
    }

    /// Fits the model of the current or another C.
    pub fn fit(
        &mut self,
        c_index: usize,
        target: Target,
        interrupt: &Interrupt,
    ) -> Result<Candidate> {
        let start = Instant::now();
        let stopping = target.stopping(self.null_objective);
        let (certificate, outcome, n_epochs) = match self.move_to(c_index, interrupt)? {
            Some(certificate) if stopping.is_met(&certificate) => {
                (certificate, Outcome::Converged, 0)
            }
            _ => {
                let observe = &mut |_: &_| ControlFlow::Continue(());
                let trace = run(&mut self.solver, stopping, interrupt, observe)?;
                let certificate = match trace.certificate {
                    Some(certificate) => certificate,
                    None => self.solver.certify(interrupt)?,
                };
                (certificate, trace.outcome, trace.epochs.len())
            }
        };
        let is_zero = certificate.primal > self.null_objective.upper();
        let primal = certificate.primal.min(self.null_objective.upper());
        let certificate = Certificate { primal, dual: certificate.dual.max(0.0) };
        let bracket = self.score(&certificate, is_zero, interrupt)?;
        let point = if self.search.width.is_some() { self.point() } else { Vec::new() };
        let seconds = start.elapsed().as_secs_f64();
        Ok(Candidate { bracket, certificate, outcome, n_epochs, seconds, point })
    }

    /// Moves to another C, if it differs; returns the certificate to start from.
    fn move_to(&mut self, c_index: usize, interrupt: &Interrupt) -> Result<Option<Certificate>> {
        if c_index == self.c_index {
            return Ok(None);
        }
        self.c_index = c_index;
        self.solver.move_to(self.search.lambda(self.fold, c_index), interrupt).map(Some)
    }

    /// The score of the model, which is W = 0 if the weights of the solver are worse.
    fn score(
        &self,
        certificate: &Certificate,
        is_zero: bool,
        interrupt: &Interrupt,
    ) -> Result<Bracket> {
        let mut weights = self.solver.coefficients();
        if is_zero {
            weights.fill(0.0);
        }
        match &self.search.scoring {
            Scoring::Bounded(measure) => {
                let weights = self.problem.map().layout().arrange(&weights);
                self.bracket(*measure, certificate, (&weights, is_zero), interrupt)
            }
            Scoring::Own(score) => {
                let score = score(self.fold, self.c_index, weights)?;
                let (lower, upper) = (f64::NEG_INFINITY, f64::INFINITY);
                let n_undecided = self.search.folds[self.fold].held_out.len();
                Ok(Bracket { score, lower, upper, n_undecided })
            }
        }
    }

    fn bracket(
        &self,
        measure: Measure,
        certificate: &Certificate,
        (weights, is_zero): (&[f64], bool),
        interrupt: &Interrupt,
    ) -> Result<Bracket> {
        let lambda = self.search.lambda(self.fold, self.c_index);
        let distance = self.solver.distance();
        let radius = if is_zero {
            radius_of_any(certificate, lambda)
        } else {
            radius(certificate, lambda, distance)
        };
        let held_out = self.search.folds[self.fold].held_out;
        let ball = Ball::new(weights, radius);
        let bracket = measure.bracket(self.problem, &ball, held_out, interrupt)?;
        let wanted = self.search.width.is_some_and(|width| bracket.width() > width);
        if !wanted || is_zero || certificate.relative_gap() > MAX_BOUNDED_GAP {
            return Ok(bracket);
        }
        let known = CertifiedDistances { lambda, gap: gap_above(certificate), radius, distance };
        let betas = self.solver.betas();
        match DirectionalBounds::new(self.problem, &betas, weights, known, interrupt)? {
            Some(bounds) => {
                measure.bracket(self.problem, &ball.with_bounds(&bounds), held_out, interrupt)
            }
            None => Ok(bracket),
        }
    }

    fn point(&self) -> Vec<Entry> {
        let m = self.problem.n_classes();
        let betas = self.solver.betas();
        let entries = betas.iter().enumerate().filter(|(_, value)| **value != 0.0);
        entries.map(|(at, value)| ((at / m) as u32, (at % m) as u32, *value)).collect()
    }
}
