//! The batch, away-step, pairwise and randomised away-step Frank-Wolfe methods (Lacoste-Julien and Jaggi 2015; Kerdreux
//! et al. 2018).

use rand_pcg::Pcg64Mcg;

use super::method::FrankWolfeMethod;
use super::problem::{Direction, Problem, Weighted};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::run::{Certificate, Progress, Solver, Stopping};
use crate::solver::{StepKind, largest};

/// Number of iterations after which the point is recomputed from its vertices, and value and gradient are recomputed
/// from the point.
const REFRESHED_EVERY: usize = 100;

/// A run stalls after this number of iterations without a new minimum of the value or the gap, or after a quarter of
/// all iterations if that is more.
const PATIENCE: usize = 50;
const PATIENT_PART: usize = 4;

/// Errors that a step and a certificate allow in the slope of the oracle's vertex, as fractions of the gap. On
/// MovieLens 1M, smaller errors in a step save few steps but need up to twice as many products.
const STEP_ERROR: f64 = 0.05;
const CERTIFICATE_ERROR: f64 = 0.005;

/// A certificate that did not end the run is repeated when the gap has fallen to this fraction.
const REPEATED_AT: f64 = 0.9;

/// The error of the lower bound (rounding and looseness) hides further progress when the gap is at most this fraction
/// of the error. The run is then exhausted.
const VISIBLE: f64 = 0.1;

/// One of the methods on a problem.
pub(super) struct Minimizer<P: Problem> {
    problem: P,
    method: FrankWolfeMethod,
    is_open_loop: bool,
    stopping: Stopping,
    /// The point as a convex combination of vertices; empty if the method does not need it.
    active: Vec<Weighted<P::Atom>>,
    tracks: bool,
    /// The oracle's vertex for the current gradient.
    next: Option<P::Atom>,
    /// The estimated gap at the current point (`gap`), and the gap of the last certificate that was expected to end the
    /// run (`certified_gap`).
    gap: f64,
    certified_gap: f64,
    best_bound: f64,
    iteration: usize,
    /// The lowest value and the smallest gap so far, and the number of iterations since one of them last fell (`idle`).
    lowest: f64,
    smallest_gap: f64,
    idle: usize,
    random: Pcg64Mcg,
}

impl<P: Problem> Minimizer<P> {
    /// Starts at the current point of the problem. If `start` is given, the point is this vertex, and the minimiser
    /// tracks the active vertices.
    pub fn new(
        problem: P,
        start: Option<P::Atom>,
        (method, is_open_loop): (FrankWolfeMethod, bool),
        stopping: Stopping,
        seed: u64,
    ) -> Self {
        let tracks = start.is_some();
        Self {
            problem,
            method,
            is_open_loop,
            stopping,
            active: start.into_iter().map(|atom| Weighted { atom, weight: 1.0 }).collect(),
            tracks,
            next: None,
            gap: f64::INFINITY,
            certified_gap: f64::INFINITY,
            best_bound: f64::NEG_INFINITY,
            iteration: 0,
            lowest: f64::INFINITY,
            smallest_gap: f64::INFINITY,
            idle: 0,
            random: Pcg64Mcg::new(u128::from(seed)),
        }
    }

    /// Returns the problem at its final point, the weighted vertices of this point, and the best lower bound.
    pub fn into_parts(self) -> (P, Vec<Weighted<P::Atom>>, f64) {
        (self.problem, self.active, self.best_bound)
    }

    /// Returns the fraction of the vertices that a step searches, or None if it searches all vertices.
    fn share(&self) -> Option<f64> {
        match self.method {
            FrankWolfeMethod::RandomizedAway { share } if share < 1.0 => Some(share),
            _ => None,
        }
    }

    /// Number of iterations after which a randomised method has searched, in total, about as many vertices as the set
    /// has; 1 for other methods.
    fn round(&self) -> usize {
        self.share().map_or(1, |share| (1.0 / share).ceil() as usize)
    }

    /// Whether the search of this iteration covers all vertices.
    fn is_full(&self) -> bool {
        self.iteration.is_multiple_of(self.round())
    }

    /// Finds the vertex for the current gradient, and estimates the gap.
    fn search(&mut self, interrupt: &Interrupt) -> Result<()> {
        let sampled = match self.share() {
            Some(share) if !self.is_full() => {
                let found = self.problem.sampled_vertex(share, &mut self.random);
                Some(found.ok_or_else(|| {
                    let message = "\"randomized-away\" requires a set with a list of its vertices: Simplex, \
                                   L1Ball, ConvexHull, or a product of these";
                    Error::argument("method", message)
                })?)
            }
            _ => None,
        };
        let vertex = match sampled {
            Some(vertex) => vertex,
            None => self.problem.vertex(STEP_ERROR * self.gap.abs(), interrupt)?,
        };
        self.gap = self.problem.slope_here() - self.problem.slope(&vertex);
        self.next = Some(vertex);
        Ok(())
    }

    /// Takes a step towards `to`, or in another direction that the method uses (away or pairwise). Returns whether the
    /// point has moved.
    fn walk(&mut self, to: P::Atom, interrupt: &Interrupt) -> Result<bool> {
        let fixed = self.is_open_loop.then(|| 2.0 / (self.iteration as f64 + 2.0));
        if !self.tracks {
            return Ok(self.problem.walk(&Direction::Towards(&to), 1.0, fixed, interrupt)? > 0.0);
        }
        let slopes: Vec<f64> = if self.method == FrankWolfeMethod::FrankWolfe {
            Vec::new()
        } else {
            self.active.iter().map(|each| self.problem.slope(&each.atom)).collect()
        };
        let known = |(_, each): &(usize, &Weighted<P::Atom>)| self.problem.is_same(&each.atom, &to);
        let found = self.active.iter().enumerate().find(known).map(|(index, _)| index);
        let mut slope_to = self.problem.slope(&to);
        let mut to_index = found.unwrap_or(self.active.len());
        if found.is_none() {
            self.active.push(Weighted { atom: to, weight: 0.0 });
        }
        // A vertex from a sampled search may be worse than an active vertex.
        if self.share().is_some()
            && let Some(best) = largest(slopes.iter().map(|slope| -slope).enumerate())
            && slopes[best] < slope_to
        {
            (to_index, slope_to) = (best, slopes[best]);
        }
        let kind = self.kind(to_index, slope_to, &slopes);
        let longest = kind.longest(|index| self.active[index].weight);
        let atom = |index: usize| &self.active[index].atom;
        let direction = match kind {
            StepKind::Towards(to) => Direction::Towards(atom(to)),
            StepKind::Away(from) => Direction::Away(atom(from)),
            StepKind::Pairwise(to, from) => Direction::Pairwise(atom(to), atom(from)),
        };
        let is_nowhere = matches!(kind, StepKind::Pairwise(to, from) if to == from);
        let step = if is_nowhere || longest == 0.0 {
            0.0
        } else {
            self.problem.walk(&direction, longest, fixed, interrupt)?
        };
        if step > 0.0 {
            for (index, each) in self.active.iter_mut().enumerate() {
                each.weight = kind.weight(index, each.weight, step, step >= longest);
            }
        }
        self.active.retain(|each| each.weight > 0.0);
        Ok(step > 0.0)
    }

    /// Chooses the kind of step. `to` is the index of the active vertex to step towards.
    fn kind(&self, to: usize, slope_to: f64, slopes: &[f64]) -> StepKind {
        let worst = largest(slopes.iter().copied().enumerate());
        match (self.method, worst) {
            (FrankWolfeMethod::FrankWolfe, _) | (_, None) => StepKind::Towards(to),
            (FrankWolfeMethod::Pairwise, Some(from)) => StepKind::Pairwise(to, from),
            (_, Some(from)) => {
                let here = self.problem.slope_here();
                let (towards, away) = (here - slope_to, slopes[from] - here);
                StepKind::better(to, towards, from, away, self.active[from].weight)
            }
        }
    }

    /// Divides the weights by their sum, and recomputes point, value and gradient.
    fn refresh(&mut self, interrupt: &Interrupt) -> Result<()> {
        let total: f64 = self.active.iter().map(|each| each.weight).sum();
        self.active.iter_mut().for_each(|each| each.weight /= total);
        self.problem.refresh(&self.active, interrupt)
    }

    /// Whether this iteration computes a certificate.
    fn is_due(&self) -> bool {
        let is_cheap = self.problem.bounds_are_cheap();
        if self.share().is_some() && !self.is_full() {
            return false;
        }
        let converges = self.is_small() && self.gap <= REPEATED_AT * self.certified_gap;
        let is_free = is_cheap && !self.problem.is_incremental();
        is_free
            || is_cheap && self.iteration == 1
            || converges
            || self.iteration.is_multiple_of(REFRESHED_EVERY)
            || self.is_idle()
    }

    /// Whether the estimated gap is small enough for a lower bound that ends the run.
    fn is_small(&self) -> bool {
        let expected = (1.0 + self.problem.bound_slack()) * self.gap;
        expected <= self.stopping.allowed(self.problem.value())
    }

    /// Searches again, accurately enough for a certificate.
    fn refine(&mut self, interrupt: &Interrupt) -> Result<()> {
        let error = if self.gap.is_finite() { CERTIFICATE_ERROR * self.gap.abs() } else { 0.0 };
        let vertex = self.problem.vertex(error, interrupt)?;
        self.gap = self.problem.slope_here() - self.problem.slope(&vertex);
        self.next = Some(vertex);
        Ok(())
    }

    /// Counts consecutive iterations without a new lowest value or smallest gap. For a quadratic function, a relative
    /// gap of ε corresponds to a value only about ε² above the minimum. The value therefore stops falling in floating
    /// point long before the gap does.
    fn count_idle(&mut self, moved: bool) {
        let (value, gap) = (self.problem.value(), self.gap);
        let is_smaller = self.is_full() && gap < self.smallest_gap;
        if is_smaller {
            self.smallest_gap = gap;
        }
        if value < self.lowest || is_smaller {
            (self.lowest, self.idle) = (value.min(self.lowest), 0);
        } else if !(self.is_open_loop && moved) {
            self.idle += 1;
        }
    }

    /// Whether no further progress is expected.
    fn is_idle(&self) -> bool {
        self.idle >= (PATIENCE * self.round()).max(self.iteration / PATIENT_PART)
    }

    /// Returns the certificate of the current point, and whether the run is exhausted. If steps accumulate rounding
    /// errors, recomputes the point first unless it `is_fresh`. Searches the vertex again unless it `is_refined`.
    /// Returns an error if an earlier lower bound exceeds the value, because f is then not convex.
    fn certificate(
        &mut self,
        is_fresh: bool,
        is_refined: bool,
        interrupt: &Interrupt,
    ) -> Result<(Certificate, bool)> {
        let is_new = self.problem.is_incremental() && !is_fresh || self.next.is_none();
        if is_new {
            self.refresh(interrupt)?;
        }
        if is_new || self.share().is_some() || !is_refined {
            self.refine(interrupt)?;
        }
        let value = self.problem.value();
        let bound = match &self.next {
            Some(vertex) => self.problem.lower_bound(vertex, self.gap, interrupt)?,
            None => f64::NEG_INFINITY,
        };
        if self.is_small() {
            self.certified_gap = self.gap;
        }
        if self.best_bound > value + 1e-9 * (value.abs() + self.best_bound.abs()) {
            return Err(Error::argument(
                "f",
                format!(
                    "the value {value:e} is below {:e}, a lower bound from an earlier gradient: f must be convex, \
                 and its gradient must match its value",
                    self.best_bound,
                ),
            ));
        }
        self.best_bound = self.best_bound.max(bound);
        let certificate = Certificate { primal: value, dual: self.best_bound.min(value) };
        let hidden = (value - bound) - self.gap;
        let is_exhausted = self.gap <= VISIBLE * hidden || self.is_idle();
        Ok((certificate, is_exhausted))
    }
}

impl<P: Problem> Solver for Minimizer<P> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if self.next.is_none() {
            self.problem.refresh(&self.active, interrupt)?;
            self.lowest = self.problem.value();
            self.search(interrupt)?;
        }
        let Some(to) = self.next.take() else { return Ok(Progress::Uncertified) };
        let moved = self.walk(to, interrupt)?;
        self.iteration += 1;
        let is_fresh = self.tracks && self.iteration.is_multiple_of(REFRESHED_EVERY);
        if is_fresh {
            self.refresh(interrupt)?;
        }
        self.search(interrupt)?;
        self.count_idle(moved);
        if !self.is_due() {
            return Ok(Progress::Uncertified);
        }
        let mut is_refined = self.problem.bounds_are_cheap();
        if !(is_refined || self.problem.is_incremental()) {
            // The accurate gap may be too large for a certificate.
            self.refine(interrupt)?;
            is_refined = true;
            if !self.is_due() {
                return Ok(Progress::Uncertified);
            }
        }
        let (certificate, is_exhausted) = self.certificate(is_fresh, is_refined, interrupt)?;
        let progress = if is_exhausted { Progress::Exhausted } else { Progress::Epoch };
        Ok(progress(certificate))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let is_refined = self.problem.bounds_are_cheap();
        Ok(self.certificate(false, is_refined, interrupt)?.0)
    }
}
