//! A certified regularisation path: each dual point covers an interval of λ. Its weights, rescaled to any λ' of the
//! interval, give an accurate model (after Osokin et al. 2016, section 5).

use std::ops::ControlFlow;

use super::{Block, BlockFrankWolfe, BlockOptions};
use crate::dual::{BlockDual, Bounded, DualValue, Shares, objective};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory::check_growth;
use crate::run::{Certificate, Epoch, Stopping, run};

/// A dual point and the interval of λ that it covers. The model at λ' is (λ/λ') w.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The largest λ of the interval, to which `weights` belong.
    pub lambda: f64,
    /// The smallest λ of the interval.
    pub until: f64,
    /// The weights w at `lambda`.
    pub weights: Vec<f64>,
    /// The certificates at both ends.
    pub ends: [Certificate; 2],
    /// Number of epochs that computed the dual point.
    pub epochs: usize,
}

impl Piece {
    /// An upper bound on the gap of every model in the interval.
    pub fn gap(&self) -> f64 {
        self.ends[0].gap().max(self.ends[1].gap())
    }

    /// An upper bound on the relative gap of every model in the interval.
    pub fn relative_gap(&self) -> f64 {
        self.ends[0].relative_gap().max(self.ends[1].relative_gap())
    }
}

/// The interval of λ and the accuracy of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathSettings {
    /// The largest λ, at which the path starts.
    pub from: f64,
    /// The smallest λ, at which the path ends.
    pub until: f64,
    /// The duality gap required on the whole path, and the maximum number of epochs per piece.
    pub stopping: Stopping,
}

/// A solver whose dual point can also be certified for other values of λ.
pub trait PathSolver {
    /// Solves the problem for a given λ, starting from the last solution. Returns the certificate
    /// and the number of epochs.
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

    /// The certificate of the model `factor` · w at λ/`factor`, with the same dual point.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and errors of evaluations.
    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate>;

    /// The shares of the problem, with its λ.
    fn shares(&self) -> &Shares;

    /// The weights of the last solution, for its λ.
    fn weights(&self) -> &[f64];
}

/// Share of the allowed gap to which each piece is solved. As λ moves through the interval, the gap may grow by the
/// remaining share.
const SOLVED_SHARE: f64 = 0.5;
/// Largest ratio of the two ends of an interval.
const MAX_INTERVAL: f64 = 16.0;
/// The search for the end of an interval stops within this factor of the best end.
const END_ACCURACY: f64 = 1.05;
/// Smallest ratio of the two ends of an interval that the search tries.
const MIN_INTERVAL: f64 = 1.0001;

/// Computes models for an interval of λ, from its largest value to its smallest.
///
/// At a fixed dual point μ, the model at λ/t is t w, and its gap is Σ p_i Φ_i(t w) + t λ/2 ‖w‖² −
/// D_{λ/t}(μ). The gap minus a fixed share (at most 1) of the model's objective is convex in t,
/// because D_{λ/t}(μ) is linear in t. A bound at both ends of an interval therefore holds on the
/// whole interval, even if W = 0 replaces a w with a higher objective. If a piece uses up its
/// epochs, its gap is larger than requested. If the observer stops the path, the path ends early.
///
/// # Errors
/// [`Error::InvalidArgument`] if the interval is empty or not positive, or if its smallest λ could make numbers
/// overflow; errors of the solver.
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
        // The run must return its last model, because the certificates for other λ need the weights
        // that match the dual point.
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

/// The certificate of W = 0, given the certificate of other weights. `objective` is the objective
/// of W = 0, which is the same for all λ. Without it, returns `certificate` unchanged.
fn at_zero(certificate: Certificate, objective: Option<f64>) -> Certificate {
    match objective {
        Some(primal) => Certificate { primal, dual: certificate.dual.max(0.0) },
        None => certificate,
    }
}

/// Searches for the largest factor up to `longest` at which the gap is certified to be small enough. Returns the factor
/// and the certificate there. If the objective of W = 0 is given, the certificates belong to W = 0.
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
        // Try a point between the two ends on a logarithmic scale, closer to the end with the small
        // gap.
        factor = low * (high / low).powf(0.4);
    }
    if low > 1.0 {
        return Ok((low, at_low));
    }
    // No interval is certified to be accurate enough: take a short interval, and report its gap.
    let factor = END_ACCURACY.min(longest);
    Ok((factor, at_zero(solver.certificate_at(factor, interrupt)?, zero)))
}

/// The objective P at λ/`factor`, rounded up.
pub fn objective_at(factor: f64, lambda: f64, weights: &[f64], loss: Bounded) -> f64 {
    objective(lambda / factor, weights, loss) * (1.0 + 4.0 * f64::EPSILON)
}

/// Regularisation paths by [`BlockFrankWolfe`].
pub struct BlockPath<'d, D> {
    dual: &'d mut D,
    options: BlockOptions,
    /// The weights of the last solution.
    weights: Vec<f64>,
    /// The blocks of the last solution.
    blocks: Vec<Block>,
    /// The dual value of the last solution.
    value: Option<DualValue>,
}

impl<'d, D: BlockDual> BlockPath<'d, D> {
    /// Prepares a path with these options, except that averaging is turned off.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the number of sign constraints differs from the number of
    /// weights.
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
