//! A certified regularisation path: for each interval of λ one dual point that is good on all of it
//! (in the spirit of Osokin et al. 2016, section 5).

use std::ops::ControlFlow;

use super::{Block, BlockFrankWolfe, BlockOptions};
use crate::dual::BlockDual;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::run::{Epoch, Stopping, run};

/// A dual point and the interval of λ that it serves: at λ' the model is (λ/λ') w.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The largest λ, for which `weights` are meant.
    pub lambda: f64,
    /// The smallest λ.
    pub until: f64,
    /// w at `lambda`.
    pub weights: Vec<f64>,
    /// No model of the interval is farther than this from its optimum.
    pub gap: f64,
    /// Epochs that it took.
    pub epochs: usize,
}

/// What a path is to cover, and how well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathSettings {
    /// The largest λ.
    pub from: f64,
    /// The smallest λ.
    pub until: f64,
    /// Duality gap that holds everywhere, in units of the objective.
    pub gap: f64,
    /// Maximum number of epochs for each piece.
    pub max_epochs: usize,
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
/// At a fixed dual point μ the model at λ/t is t w, and its gap, Σ p_i Φ_i(t w) + t λ ‖w‖² − Σ p_i l_i, is
/// convex in t. What holds at both ends of an interval thus holds on it. Where `max_epochs` do not
/// suffice for a piece, its own `gap` is larger than the one asked for. A path whose observer stops it ends
/// early.
///
/// # Errors
/// What [`run`] returns; [`Error::InvalidArgument`] for an interval that is none.
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
    let (mut pieces, mut start) = (Vec::new(), None);
    let mut lambda = settings.from;
    let target = SOLVED * settings.gap;
    loop {
        dual.shares_mut().set_lambda(lambda)?;
        let options = BlockOptions { certify_below: target, averaging: false, ..settings.options };
        let mut solver = BlockFrankWolfe::new(&mut *dual, options, start);
        let stopping = Stopping { max_epochs: settings.max_epochs, gap: target };
        let mut stopped = false;
        let trace = run(&mut solver, stopping, interrupt, &mut |epoch| {
            let flow = observe(epoch);
            stopped |= flow.is_break();
            flow
        })?;
        let (weights, blocks, _) = solver.into_parts();
        let gap = trace.gap();
        let longest = (lambda / settings.until).min(LONGEST);
        let (factor, reached) =
            stretch(dual, &weights, &blocks, gap, settings.gap, longest, interrupt)?;
        let until =
            if factor == lambda / settings.until { settings.until } else { lambda / factor };
        let scaled = weights.iter().map(|weight| weight * factor).collect();
        let epochs = trace.epochs.len();
        pieces.push(Piece { lambda, until, weights, gap: gap.max(reached), epochs });
        if until <= settings.until || stopped {
            return Ok(pieces);
        }
        (lambda, start) = (until, Some((scaled, blocks)));
    }
}

/// The largest factor up to `longest` at which the gap is known to be below `allowed`, and the gap there.
fn stretch<D: BlockDual>(
    dual: &mut D,
    weights: &[f64],
    blocks: &[Block],
    gap: f64,
    allowed: f64,
    longest: f64,
    interrupt: &Interrupt,
) -> Result<(f64, f64)> {
    let points = |index: usize| -> &[(u32, f64)] { &blocks[index].point };
    let norm = dual.shares().lambda() * squared_norm(weights);
    let mut gap_at = |factor: f64| -> Result<f64> {
        let scaled: Vec<f64> = weights.iter().map(|weight| weight * factor).collect();
        let survey = dual.survey(&scaled, &points, interrupt)?;
        Ok(survey.loss + factor * norm - survey.linear)
    };
    let (mut low, mut low_gap, mut high) = (1.0, gap, longest);
    let mut factor = longest;
    // A little way is always good where the gap is below what is allowed.
    while gap < allowed && (high > CLOSE * low || low == 1.0 && high > SHORTEST) {
        let gap = gap_at(factor)?;
        if gap <= allowed {
            (low, low_gap) = (factor, gap);
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
        return Ok((low, low_gap));
    }
    // Not even a small step is known to be good: make one, and say how good it is.
    let factor = CLOSE.min(longest);
    Ok((factor, gap_at(factor)?))
}
