//! One pass of visits, as a thread goes about it.

use pulp::Simd;

use super::candidates::Candidates;
use super::dual_block::{DualBlock, Rest};
use super::pair::Seat;
use super::scorer::Scorer;
use super::visit::{Bounds, Buffers};
use crate::interrupt::Interrupt;
use crate::linalg::{Kernel, Lane};
use crate::multiclass::MarginProblem;
use crate::polytope::Scratch;

/// What a visit costs beside the numbers that it reads, in such numbers.
const VISIT_OVERHEAD: usize = 256;
/// Where visits are all there is, an example rests for a pass after a visit that gained less than this share of
/// what visits of the pass before gained on average, and longer after several of them, but for so many passes at
/// most.
const SMALL: f64 = 0.6;
const LONGEST_REST: u8 = 2;
/// Visits between two looks at the interrupt.
const PATIENCE: usize = 4096;

/// What became of a visit.
enum Visit {
    /// The dual rose by this much (in units of λ).
    Moved(f64),
    /// The block was optimal among its candidates.
    Optimal,
    /// Nothing can move, whatever the weights: one candidate at most, and at its bound.
    Idle,
}

/// The weights that a thread keeps.
pub(super) enum Held<'a, T> {
    All(&'a mut [T]),
    /// Those of a range of the columns, the others being another thread's.
    Range(&'a mut [T], Seat<'a>),
}

/// What visits of a pass have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub bounds: Bounds,
    /// Whether examples rest.
    pub resting: bool,
    /// What a visit of the last pass gained on average (in units of λ).
    pub mean_gain: f64,
}

/// How far a pass is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Progress {
    /// Examples before this one are done.
    pub place: usize,
    /// Those from here on cannot move.
    pub n_active: usize,
    /// By how much the dual rose (in units of λ).
    pub gain: f64,
    /// The numbers read.
    pub work: usize,
    pub n_visits: u32,
}

/// What a thread needs for visits.
pub(super) struct Visitor<'a, 'p, M: Scorer> {
    pub problem: &'a MarginProblem<'p>,
    pub model: &'a M,
    pub rules: Rules,
    pub weights: Held<'a, M::Value>,
    pub duals: &'a mut [DualBlock],
    pub betas: &'a mut Candidates<M::Value>,
    pub few: &'a mut Buffers<M::Value>,
    pub row: &'a mut Vec<M::Value>,
    pub scratch: &'a mut Scratch,
}

impl<M: Scorer> Visitor<'_, '_, M> {
    /// Maximises over the candidates of one dual block. Returns the numbers read as well.
    #[inline(always)]
    fn visit<S: Simd>(&mut self, simd: S, at: usize) -> (Visit, usize)
    where
        M::Value: Lane<S>,
    {
        let Self { problem, model, few, scratch, .. } = self;
        let bounds = self.rules.bounds;
        let dual = &mut self.duals[at];
        let example = dual.example as usize;
        let row = model.row(example, self.row);
        let candidates = self.betas.row(at).0;
        let n = candidates.len();
        few.classes[..n].copy_from_slice(candidates);
        few.classes[n] = problem.label(example) as u32;
        let n_numbers = 2 * (n + 1) * row.len();
        let (classes, scores) = (&few.classes[..=n], &mut few.scores[..=n]);
        match &mut self.weights {
            Held::All(weights) => match model.ranges(row) {
                None => model.score_few(simd, weights, row, classes, scores),
                Some((cut, [low, high])) => {
                    let (first, second) = weights.split_at(cut);
                    let others = &mut few.change[..=n];
                    model.score_few(simd, first, low, classes, scores);
                    model.score_few(simd, second, high, classes, others);
                    for (score, other) in scores.iter_mut().zip(others) {
                        *score = *score + *other;
                    }
                }
            },
            Held::Range(weights, seat) => {
                let ranges = model.ranges(row).map_or([row; 2], |(_, ranges)| ranges);
                model.score_few(simd, weights, ranges[seat.side()], classes, scores);
                seat.exchange(scores);
            }
        }
        let Some(n) = few.shrink(problem, dual, self.betas, at, bounds) else {
            return (Visit::Idle, n_numbers);
        };
        let steepness = dual.curvature + problem.shares().smoothing();
        few.aim(steepness, dual.sum, self.betas.row(at).1);
        dual.multiplier = project(problem, bounds, dual.multiplier, few, (n, scratch));
        let Some(gain) = few.replace(steepness, dual, self.betas.row_mut(at).1) else {
            return (Visit::Optimal, n_numbers);
        };
        let (classes, change) = (&few.classes[..=n], &few.change[..=n]);
        match &mut self.weights {
            Held::All(weights) => model.add_few(simd, weights, row, classes, change),
            Held::Range(weights, seat) => {
                let ranges = model.ranges(row).map_or([row; 2], |(_, ranges)| ranges);
                model.add_few(simd, weights, ranges[seat.side()], classes, change);
            }
        }
        (Visit::Moved(gain), n_numbers)
    }
}

/// Projects the target of so many candidates, given the last multiplier; returns the new one.
#[inline(always)]
fn project<T>(
    problem: &MarginProblem<'_>,
    bounds: Bounds,
    multiplier: f64,
    few: &mut Buffers<T>,
    (n, scratch): (usize, &mut Scratch),
) -> f64 {
    match &bounds.simplex {
        // The label's coordinate, which is 0, would stay so.
        Some(simplex) => {
            simplex.project_few(&few.target[..n], multiplier, &mut few.projection[..n])
        }
        None => {
            scratch.guess = Some(multiplier);
            let (target, projection) = (&few.target[..=n], &mut few.projection[..=n]);
            problem.polytope().project(target, n, 1.0, scratch, projection);
            scratch.multiplier
        }
    }
}

/// A pass, or the rest of one, all of it compiled for the vectors of this machine. Those that cannot move are put
/// behind the others.
pub(super) struct Pass<'a, 'p, M: Scorer> {
    pub visitor: Visitor<'a, 'p, M>,
    pub due: &'a mut [u32],
    pub progress: &'a mut Progress,
    /// The second thread leaves when the first does.
    pub interrupt: Option<&'a Interrupt>,
}

impl<M: Scorer> Kernel<M::Value> for Pass<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        M::Value: Lane<S>,
    {
        let Self { mut visitor, due, progress, interrupt } = self;
        let small = SMALL * visitor.rules.mean_gain;
        let mut n_looks = 0usize;
        while progress.place < progress.n_active {
            n_looks += 1;
            if n_looks.is_multiple_of(PATIENCE) && interrupt.is_some_and(Interrupt::is_raised) {
                match &mut visitor.weights {
                    Held::All(_) => break,
                    Held::Range(_, seat) => seat.leave(),
                }
            }
            let at = due[progress.place] as usize;
            if visitor.rules.resting && visitor.duals[at].rest.is_taken() {
                progress.place += 1;
                continue;
            }
            let (visit, n_numbers) = visitor.visit(simd, at);
            progress.n_visits += 1;
            progress.work += VISIT_OVERHEAD + n_numbers;
            let rest = &mut visitor.duals[at].rest;
            match visit {
                Visit::Moved(more) => {
                    progress.gain += more;
                    rest.follow(more < small);
                    progress.place += 1;
                }
                Visit::Optimal => {
                    rest.follow(true);
                    progress.place += 1;
                }
                Visit::Idle => {
                    progress.n_active -= 1;
                    due.swap(progress.place, progress.n_active);
                }
            }
            if matches!(&visitor.weights, Held::Range(_, seat) if seat.is_over()) {
                break;
            }
        }
    }
}

impl Rest {
    /// Whether the example rests now.
    #[inline(always)]
    fn is_taken(&mut self) -> bool {
        let rests = self.left > 0;
        self.left -= u8::from(rests);
        rests
    }

    /// What follows a visit.
    #[inline(always)]
    fn follow(&mut self, small: bool) {
        self.length = if small { (self.length + 1).min(LONGEST_REST) } else { 0 };
        self.left = self.length;
    }
}
