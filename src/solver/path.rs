//! A certified regularisation path: for each interval of λ one dual point that is good on all of it
//! (in the spirit of Osokin et al. 2016, section 5).

use std::ops::ControlFlow;

use super::{Block, BlockFrankWolfe, BlockOptions};
use crate::dual::{BlockDual, DualValue, objective};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::run::{Certificate, Epoch, Stopping, run};

/// A dual point and the interval of λ that it serves: at λ' the model is (λ/λ') w.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The largest λ, for which `weights` are meant.
    pub lambda: f64,
    /// The smallest λ.
    pub until: f64,
    /// w at `lambda`.
    pub weights: Vec<f64>,
    /// The certificates at both ends.
    pub ends: [Certificate; 2],
    /// Epochs that it took.
    pub epochs: usize,
}

impl Piece {
    /// No model of the interval is farther from its optimum.
    pub fn gap(&self) -> f64 {
        self.ends[0].gap().max(self.ends[1].gap())
    }

    /// The same in units of the model's own objective.
    pub fn relative_gap(&self) -> f64 {
        self.ends[0].relative_gap().max(self.ends[1].relative_gap())
    }
}

/// What a path is to cover, and how well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathSettings {
    /// The largest λ.
    pub from: f64,
    /// The smallest λ.
    pub until: f64,
    /// The duality gap that holds everywhere, and the maximum number of epochs for each piece.
    pub stopping: Stopping,
    /// How the solver goes about it.
    pub options: BlockOptions,
}

/// Each piece is solved to this share of the gap; the rest is used up by moving λ.
const SOLVED: f64 = 0.5;
/// Longest interval: a factor of λ.
const LONGEST: f64 = 16.0;
/// Factor within which the end of an interval is close enough.
const CLOSE: f64 = 1.05;
/// Shortest interval that is looked for.
const SHORTEST: f64 = 1.0001;

/// Covers an interval of λ, from its large end to its small one.
///
/// At a fixed dual point μ the model at λ/t is t w, and its gap, Σ p_i Φ_i(t w) + t λ ‖w‖² − Σ p_i l_i, less
/// a share of at most 1 of its objective, is convex in t. What holds at both ends of an interval thus holds
/// on it. Where the epochs do not suffice for a piece, its own gap is larger than the one asked for. A path
/// whose observer stops it ends early.
///
/// # Errors
/// What [`run`] returns; [`Error::InvalidArgument`] for an interval that is empty or not positive.
pub fn path<D: BlockDual>(
    dual: &mut D,
    settings: PathSettings,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Vec<Piece>> {
    let ordered = settings.until > 0.0 && settings.until <= settings.from;
    if !ordered {
        return Err(Error::argument(
            "until",
            "must be positive and not above where the path starts",
        ));
    }
    dual.shares().cone().check(dual.n_weights())?;
    let (mut pieces, mut start) = (Vec::new(), None);
    let mut lambda = settings.from;
    let Stopping { max_epochs, relative, floor } = settings.stopping;
    let (certify_relative, certify_below) = (SOLVED * relative, SOLVED * floor);
    let target = Stopping { max_epochs, relative: certify_relative, floor: certify_below };
    let options =
        BlockOptions { certify_below, certify_relative, averaging: false, ..settings.options };
    loop {
        dual.shares_mut().set_lambda(lambda)?;
        let mut solver = BlockFrankWolfe::new(&mut *dual, options, start);
        let mut stopped = false;
        let trace = run(&mut solver, target, interrupt, &mut |epoch| {
            let flow = observe(epoch);
            stopped |= flow.is_break();
            flow
        })?;
        let value = solver.dual_value(interrupt)?;
        let (weights, blocks, _) = solver.into_parts();
        let known = match trace.certificate {
            Some(certificate) => certificate,
            None => Certificate { primal: trace.objective, dual: value.bound() },
        };
        let mut reach = Reach { dual: &mut *dual, weights: &weights, blocks: &blocks, value };
        let longest = (lambda / settings.until).min(LONGEST);
        let (factor, reached) = reach.stretch(known, settings.stopping, longest, interrupt)?;
        let until =
            if factor == lambda / settings.until { settings.until } else { lambda / factor };
        let scaled = weights.iter().map(|weight| weight * factor).collect();
        let epochs = trace.epochs.len();
        pieces.push(Piece { lambda, until, weights, ends: [known, reached], epochs });
        if until <= settings.until || stopped {
            return Ok(pieces);
        }
        (lambda, start) = (until, Some((scaled, blocks)));
    }
}

/// A dual point whose λ is moved.
struct Reach<'r, D> {
    dual: &'r mut D,
    weights: &'r [f64],
    blocks: &'r [Block],
    value: DualValue,
}

impl<D: BlockDual> Reach<'_, D> {
    /// The certificate at λ/`factor`.
    fn certificate(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let (blocks, lambda) = (self.blocks, self.dual.shares().lambda());
        let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
        let scaled: Vec<f64> = self.weights.iter().map(|weight| weight * factor).collect();
        let loss = self.dual.survey(&scaled, &points, interrupt)?.loss;
        let primal = objective(lambda / factor, &scaled, loss);
        // λ/t is rounded, too.
        Ok(Certificate {
            primal: primal * (1.0 + 4.0 * f64::EPSILON),
            dual: self.value.bound_at(factor),
        })
    }

    /// The largest factor up to `longest` at which the gap is known to be small enough, and the certificate
    /// there.
    fn stretch(
        &mut self,
        known: Certificate,
        stopping: Stopping,
        longest: f64,
        interrupt: &Interrupt,
    ) -> Result<(f64, Certificate)> {
        let (mut low, mut at_low, mut high) = (1.0, known, longest);
        let mut factor = longest;
        // A little way is always good where the gap is below what is allowed.
        let possible = stopping.is_met(&known);
        while possible && (high > CLOSE * low || low == 1.0 && high > SHORTEST) {
            let certificate = self.certificate(factor, interrupt)?;
            if stopping.is_met(&certificate) {
                (low, at_low) = (factor, certificate);
            } else {
                high = factor;
            }
            if low == longest {
                break;
            }
            // In between on a logarithmic scale, nearer to where the gap is still small.
            factor = low * (high / low).powf(0.4);
        }
        if low > 1.0 {
            return Ok((low, at_low));
        }
        // Not even a small step is known to be good: make one, and say how good it is.
        let factor = CLOSE.min(longest);
        Ok((factor, self.certificate(factor, interrupt)?))
    }
}
