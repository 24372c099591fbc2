//! The options, the start and the result of a minimisation.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::completion::MatrixCompletion;
use super::dense_point::DensePoint;
use super::function::SmoothFunction;
use super::low_rank::{LowRankPoint, RankOne};
use super::method::FrankWolfeMethod;
use super::minimizer::Minimizer;
use super::oracle::LinearOracle;
use super::problem::{Problem, Weighted};
use super::search::StepSize;
use super::vertex::Vertex;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::run::{Certificate, Epoch, Stopping, Trace, run};

/// Options of a minimisation. The default is pairwise steps with a line search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrankWolfeOptions {
    /// The method.
    pub method: FrankWolfeMethod,
    /// The rule for the step size.
    pub step_size: StepSize,
    /// The run ends as soon as the gap is at most `tol` · max(1, |f|).
    pub tol: f64,
    /// Maximum number of iterations.
    pub max_iter: usize,
    /// Seed for sampling vertices.
    pub seed: u64,
}

impl Default for FrankWolfeOptions {
    fn default() -> Self {
        Self {
            method: FrankWolfeMethod::default(),
            step_size: StepSize::default(),
            tol: 1e-6,
            max_iter: 10_000,
            seed: 0,
        }
    }
}

/// A vertex of the set, with its weight in the final point.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveVertex {
    /// The vertex.
    pub vertex: Vertex,
    /// The weight of the vertex.
    pub weight: f64,
}

/// The result of a minimisation.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimum {
    /// The final point.
    pub x: Vec<f64>,
    /// The function value at x, and a lower bound on the minimum over the set.
    pub certificate: Certificate,
    /// The record of the iterations.
    pub trace: Trace,
    /// The vertices and weights of x as a convex combination; empty for
    /// [`FrankWolfeMethod::FrankWolfe`].
    pub active: Vec<ActiveVertex>,
}

/// The result of a matrix completion: the matrix Σ_k left_k right_kᵀ.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRankMinimum {
    /// The left factors left_k, one after another, multiplied by the weights of the vertices.
    pub left: Vec<f64>,
    /// The right factors right_k, one after another. They are unit vectors.
    pub right: Vec<f64>,
    /// The function value at the matrix, and a lower bound on the minimum over the ball.
    pub certificate: Certificate,
    /// The record of the iterations.
    pub trace: Trace,
    /// The weights of the ball's vertices in the combination that forms the matrix.
    pub weights: Vec<f64>,
}

/// An observer of iterations, which can end the run.
type Observer<'a> = &'a mut dyn FnMut(&Epoch) -> ControlFlow<()>;

impl FrankWolfeOptions {
    /// Minimises f over the set of the oracle, starting at a vertex of the set.
    ///
    /// # Errors
    /// As for [`FrankWolfeOptions::minimize_from`].
    pub fn minimize(&self, f: &dyn SmoothFunction, oracle: &dyn LinearOracle) -> Result<Minimum> {
        let start = oracle.vertex(&vec![1.0; f.n_coordinates()])?.to_dense(f.n_coordinates());
        self.minimize_from(start, f, oracle, &Interrupt::default(), &mut |_| {
            ControlFlow::Continue(())
        })
    }

    /// Minimises f over the set of the oracle, starting at the point `start` of the set. Calls `observe` after each
    /// iteration; `observe` can end the run.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options that do not fit the problem, for sizes that differ, and for functions and
    /// oracles that contradict themselves; errors of f and of the oracle; [`Error::Numerical`] for values that are not
    /// finite; [`Error::Interrupted`].
    pub fn minimize_from(
        &self,
        start: Vec<f64>,
        f: &dyn SmoothFunction,
        oracle: &dyn LinearOracle,
        interrupt: &Interrupt,
        observe: Observer<'_>,
    ) -> Result<Minimum> {
        self.check()?;
        let n = f.n_coordinates();
        let sizes = [("x0", Some(start.len())), ("oracle", oracle.n_coordinates())];
        for (argument, found) in sizes {
            if let Some(found) = found.filter(|found| *found != n) {
                let message = format!("has {found} coordinates, but f has {n}");
                return Err(Error::argument(argument, message));
            }
        }
        if let Some(value) = start.iter().find(|value| !value.is_finite()) {
            return Err(Error::argument("x0", format!("must be finite, got {value}")));
        }
        let atom = match self.method {
            FrankWolfeMethod::FrankWolfe => None,
            _ => Some(sparse_if_shorter(&start)),
        };
        let point = DensePoint::new(f, oracle, self.step_size, start)?;
        let (point, active, certificate, trace) = self.run(point, atom, interrupt, observe)?;
        let active =
            active.into_iter().map(|each| ActiveVertex { vertex: each.atom, weight: each.weight });
        Ok(Minimum { x: point.into_point(), certificate, trace, active: active.collect() })
    }

    /// Minimises f over the ball of matrices with nuclear norm at most `radius`. The matrix is stored as factors.
    ///
    /// # Errors
    /// As for [`FrankWolfeOptions::minimize_from`].
    pub fn complete(
        &self,
        f: &MatrixCompletion,
        radius: f64,
        interrupt: &Interrupt,
        observe: Observer<'_>,
    ) -> Result<LowRankMinimum> {
        self.check()?;
        if matches!(self.step_size, StepSize::Secant | StepSize::Backtracking) {
            let message = "matrix completion has exact steps; use \"auto\" or \"open-loop\"";
            return Err(Error::argument("line_search", message));
        }
        if !(radius > 0.0 && radius.is_finite()) {
            let message = format!("must be positive and finite, got {radius}");
            return Err(Error::argument("radius", message));
        }
        let (point, start) = LowRankPoint::new(f, radius, interrupt)?;
        let (mut point, active, certificate, trace) =
            self.run(point, Some(start), interrupt, observe)?;
        // The value is computed from the factors, so rounding errors of the steps do not affect it.
        let primal = point.value_of(&active, interrupt)?;
        let certificate = Certificate { primal, dual: certificate.dual.min(primal) };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for Weighted { atom, weight } in &active {
            let RankOne { left: u, right: v } = Arc::as_ref(atom);
            left.extend(u.iter().map(|u| weight * u));
            right.extend_from_slice(v);
        }
        let weights = active.iter().map(|each| each.weight).collect();
        Ok(LowRankMinimum { left, right, certificate, trace, weights })
    }

    fn check(&self) -> Result<()> {
        if self.tol.is_nan() || self.tol < 0.0 {
            return Err(Error::argument("tol", format!("must be at least 0, got {}", self.tol)));
        }
        let is_batch = self.method == FrankWolfeMethod::FrankWolfe;
        if self.step_size == StepSize::OpenLoop && !is_batch {
            let message = "\"open-loop\" steps require method=\"frank-wolfe\"";
            return Err(Error::argument("line_search", message));
        }
        match self.method {
            FrankWolfeMethod::RandomizedAway { share } if !(share > 0.0 && share <= 1.0) => {
                let message = format!("must be more than 0 and at most 1, got {share}");
                Err(Error::argument("subsample", message))
            }
            _ => Ok(()),
        }
    }

    /// Runs the method on a problem. If `start` is given, the problem's current point is this
    /// vertex.
    #[expect(clippy::type_complexity, reason = "one private call")]
    fn run<P: Problem>(
        &self,
        problem: P,
        start: Option<P::Atom>,
        interrupt: &Interrupt,
        observe: Observer<'_>,
    ) -> Result<(P, Vec<Weighted<P::Atom>>, Certificate, Trace)> {
        let stopping = Stopping {
            max_epochs: self.max_iter,
            relative: self.tol,
            floor: self.tol,
            null_objective: None,
        };
        let method = (self.method, self.step_size == StepSize::OpenLoop);
        let mut minimizer = Minimizer::new(problem, start, method, stopping, self.seed);
        let trace = run(&mut minimizer, stopping, interrupt, observe)?;
        let (problem, active, bound) = minimizer.into_parts();
        let certificate =
            trace.certificate.unwrap_or(Certificate { primal: trace.objective, dual: bound });
        Ok((problem, active, certificate, trace))
    }
}

/// Converts a point to a vertex, in sparse form unless more than half of the coordinates are nonzero.
fn sparse_if_shorter(x: &[f64]) -> Vertex {
    let n_entries = x.iter().filter(|value| **value != 0.0).count();
    if 2 * n_entries > x.len() {
        return Vertex::Dense(x.to_vec());
    }
    let entries = (0..).zip(x.iter().copied());
    Vertex::Sparse(entries.filter(|(_, value)| *value != 0.0).collect())
}
