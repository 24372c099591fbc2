//! A certified regularisation path: one dual point for each interval of λ, accurate on all of it
//! (after Osokin et al. 2016, section 5).

use std::ops::ControlFlow;

use super::{Block, BlockFrankWolfe, BlockOptions};
use crate::dual::{BlockDual, Bounded, DualValue, Shares, objective};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory::check_growth;
use crate::run::{Certificate, Epoch, Stopping, run};

/// A dual point and the interval of λ that it covers: at λ' the model is (λ/λ') w.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The largest λ, to which `weights` belong.
    pub lambda: f64,
    /// The smallest λ.
    pub until: f64,
    /// w at `lambda`.
    pub weights: Vec<f64>,
    /// The certificates at both ends.
    pub ends: [Certificate; 2],
    /// Number of epochs to compute it.
    pub epochs: usize,
}

impl Piece {
    /// An upper bound on the gap of every model of the interval.
    pub fn gap(&self) -> f64 {
        self.ends[0].gap().max(self.ends[1].gap())
    }

    /// An upper bound on the gap relative to each model's objective.
    pub fn relative_gap(&self) -> f64 {
        self.ends[0].relative_gap().max(self.ends[1].relative_gap())
    }
}

/// The interval and the accuracy of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathSettings {
    /// The largest λ.
    pub from: f64,
    /// The smallest λ.
    pub until: f64,
    /// The duality gap required everywhere, and the maximum number of epochs for each piece.
    pub stopping: Stopping,
}

/// A solver whose dual point can be certified for other λ.
pub trait PathSolver {
    /// Solves for a λ, starting from the last solution; returns the certificate and the number of
    /// epochs.
    ///
    /// # Errors
    /// Errors of [`run`].
    fn solve(
        &mut self,
        lambda: f64,
        target: Stopping,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
    ) -> Result<(Certificate, usize)>;

    /// The certificate of `factor` w at λ/`factor`, with the same dual point.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and errors of evaluations.
    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate>;

    /// λ and the weights of the examples.
    fn shares(&self) -> &Shares;

    /// w at the λ of the last solution.
    fn weights(&self) -> &[f64];
}

/// Share of the allowed gap to which each piece is solved; the rest is left for moving λ.
const SOLVED_SHARE: f64 = 0.5;
/// Longest interval, as a factor of λ.
const MAX_INTERVAL: f64 = 16.0;
/// Factor within which the end of an interval is accurate enough.
const END_ACCURACY: f64 = 1.05;
/// Shortest interval of the search.
const MIN_INTERVAL: f64 = 1.0001;

/// Covers an interval of λ, from its large end to its small one.
///
/// At a fixed dual point μ the model at λ/t is t w. Its gap, Σ p_i Φ_i(t w) + t λ/2 ‖w‖² −
/// D_{λ/t}(μ), less a share of at most 1 of its objective, is convex in t, because D_{λ/t}(μ) is
/// linear. So a bound at both ends of an interval holds on all of it, also if W = 0 replaces a w
/// with a higher objective. If the epochs do not suffice for a piece, its gap is larger than
/// requested. If the observer stops the path, it ends early.
///
/// # Errors
pub fn path(
    solver: &mut dyn PathSolver,
    settings: PathSettings,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Vec<Piece>> {
    let PathSettings { from, until: last, stopping } = settings;
    if !(last > 0.0 && last <= from) {
        return Err(Error::argument("until", "must be positive and at most the start of the path"));
    }
    solver.shares().check_range(last)?;
    let (mut pieces, mut lambda) = (Vec::new(), from);
    let target = Stopping {
        relative: SOLVED_SHARE * stopping.relative,
        floor: SOLVED_SHARE * stopping.floor,
        // The certificates of other λ need the last model: the dual point belongs to it.
        null_objective: None,
        ..stopping
    };
    loop {
        let mut stopped = false;
        let (known, epochs) = solver.solve(lambda, target, interrupt, &mut |epoch| {
            let flow = observe(epoch);
            stopped |= flow.is_break();
            flow
        })?;
        let longest = (lambda / last).min(MAX_INTERVAL);
        let zero = stopping.null_objective.filter(|objective| known.primal > *objective);
        let known = at_zero(known, zero);
        let (factor, reached) = stretch(solver, (known, zero), stopping, longest, interrupt)?;
        let until = if factor == lambda / last { last } else { lambda / factor };
        let what = || format!("the weights of {} models on the path", pieces.len() + 1);
        let remedy = "use a shorter path or a larger tol";
        check_growth(size_of_val(solver.weights()), what, remedy)?;
        let mut weights = solver.weights().to_vec();
        if zero.is_some() {
            weights.fill(0.0);
        }
        pieces.push(Piece { lambda, until, weights, ends: [known, reached], epochs });
        if until <= last || stopped {
            return Ok(pieces);
        }
        lambda = until;
    }
}

/// The certificate of W = 0, whose objective is the same for all λ, given that of other weights.
/// Without an objective of W = 0, returns the latter.
fn at_zero(certificate: Certificate, objective: Option<f64>) -> Certificate {
    match objective {
        Some(primal) => Certificate { primal, dual: certificate.dual.max(0.0) },
        None => certificate,
    }
}

/// The largest factor up to `longest` at which the gap is known to be small enough, and the
/// certificate there. If an objective of W = 0 is given, the certificates are those of W = 0.
fn stretch(
    solver: &mut dyn PathSolver,
    (known, zero): (Certificate, Option<f64>),
    stopping: Stopping,
    longest: f64,
    interrupt: &Interrupt,
) -> Result<(f64, Certificate)> {
    let (mut low, mut at_low, mut high) = (1.0, known, longest);
    let mut factor = longest;
    // If the gap is below the tolerance, a short interval is always possible.
    let possible = stopping.is_met(&known);
    while possible && (high > END_ACCURACY * low || low == 1.0 && high > MIN_INTERVAL) {
        let certificate = at_zero(solver.certificate_at(factor, interrupt)?, zero);
        if stopping.is_met(&certificate) {
            (low, at_low) = (factor, certificate);
        } else {
            high = factor;
        }
        if low == longest {
            break;
        }
        // Between both on a logarithmic scale, closer to the end with a small gap.
        factor = low * (high / low).powf(0.4);
    }
    if low > 1.0 {
        return Ok((low, at_low));
    }
    // No interval is known to be accurate enough: take a short one, and report its gap.
    let factor = END_ACCURACY.min(longest);
    Ok((factor, at_zero(solver.certificate_at(factor, interrupt)?, zero)))
}

/// P at λ/`factor`, rounded up.
pub fn objective_at(factor: f64, lambda: f64, weights: &[f64], loss: Bounded) -> f64 {
    objective(lambda / factor, weights, loss) * (1.0 + 4.0 * f64::EPSILON)
}

/// Paths by [`BlockFrankWolfe`].
pub struct BlockPath<'d, D> {
    dual: &'d mut D,
    options: BlockOptions,
    /// The weights and blocks of the last solution.
    weights: Vec<f64>,
    blocks: Vec<Block>,
    value: Option<DualValue>,
}

impl<'d, D: BlockDual> BlockPath<'d, D> {
    /// A path with these options, except averaging.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for signs of another number of weights.
    pub fn new(dual: &'d mut D, options: BlockOptions) -> Result<Self> {
        dual.shares().cone().check(dual.n_weights())?;
        let options = BlockOptions { averaging: false, ..options };
        Ok(Self { dual, options, weights: Vec::new(), blocks: Vec::new(), value: None })
    }
}

impl<D: BlockDual> PathSolver for BlockPath<'_, D> {
    fn solve(
        &mut self,
        lambda: f64,
        target: Stopping,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
    ) -> Result<(Certificate, usize)> {
        let longer = self.dual.shares().lambda() / lambda;
        let start = self.value.take().map(|_| {
            let (mut weights, blocks) =
                (std::mem::take(&mut self.weights), std::mem::take(&mut self.blocks));
            weights.iter_mut().for_each(|weight| *weight *= longer);
            (weights, blocks)
        });
        self.dual.shares_mut().set_lambda(lambda)?;
        let options = BlockOptions {
            certify_below: target.floor,
            certify_relative: target.relative,
            ..self.options
        };
        let mut solver = BlockFrankWolfe::new(&mut *self.dual, options, start);
        let trace = run(&mut solver, target, interrupt, observe)?;
        let value = solver.dual_value(interrupt)?;
        (self.weights, self.blocks, _) = solver.into_parts();
        self.value = Some(value);
        let uncertified = Certificate { primal: trace.objective, dual: value.bound() };
        Ok((trace.certificate.unwrap_or(uncertified), trace.epochs.len()))
    }

    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let (blocks, lambda) = (&self.blocks, self.dual.shares().lambda());
        let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
        let scaled: Vec<f64> = self.weights.iter().map(|weight| weight * factor).collect();
        let loss = self.dual.block_gaps(&scaled, &points, interrupt)?.loss;
        let primal = objective_at(factor, lambda, &scaled, loss);
        let dual = self.value.map_or(f64::NEG_INFINITY, |value| value.bound_at(factor));
        Ok(Certificate { primal, dual })
    }

    fn shares(&self) -> &Shares {
        self.dual.shares()
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
