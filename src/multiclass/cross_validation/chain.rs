//! Fits the models of one fold, one after another.

use std::ops::ControlFlow;
use std::time::Instant;

use super::directional_bounds::{CertifiedDistances, DirectionalBounds};
use super::scoring::{Ball, Bracket, Measure, gap_above, radius, radius_of_any};
use super::search::{Candidate, Entry, Scoring, Search};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::multiclass::MarginProblem;
use crate::multiclass::solvers::{
    BlockDescent, BlockDescentOptions, HandOver, LambdaPath, MarginBlocks, Stages, block_descent,
};
use crate::run::{Certificate, Outcome, Stopping, run};
use crate::solver::{Newton, Target};

/// Relative gap below which directional bounds are computed. At larger gaps they are hardly tighter
/// than the bounds from the ball.
const MAX_BOUNDED_GAP: f64 = 1e-5;

/// A fold's solver and its current position on the path.
pub(super) struct FoldPath<'c, 'a> {
    search: &'c Search<'a>,
    problem: &'c MarginProblem<'c>,
    solver: HandOver<'c>,
    stopping: Stopping,
    fold: usize,
    /// The index of the current C.
    c_index: usize,
}

/// The model of a fit.
struct Model {
    certificate: Certificate,
    /// The weights, class by class.
    weights: Vec<f64>,
    /// The distance of the weights from the weights of the certificate's dual point, and the β of this point; None if
    /// the solver no longer has them.
    dual: Option<(f64, Vec<f64>)>,
}

/// Block descent at the dual point 0. Its tolerance is 0, so that no estimate of the gap ends its epochs early.
fn descent<'c>(problem: &'c MarginProblem<'c>, seed: u64) -> Box<dyn BlockDescent + 'c> {
    block_descent(problem, BlockDescentOptions { seed, ..Default::default() })
}

impl<'c, 'a> FoldPath<'c, 'a> {
    /// Starts at the dual point 0 and the problem's C, which counts as the first C of the grid.
    pub fn new(
        search: &'c Search<'a>,
        fold: usize,
        blocks: &'c MarginBlocks<'c>,
        target: Target,
    ) -> Result<Self> {
        let problem = blocks.problem;
        let stopping = target.stopping(problem.null_objective());
        let solver = match search.stages()? {
            Stages { descent: Some(seed), newton } => {
                let path = LambdaPath::direct(descent(problem, seed));
                HandOver::new(blocks, path, stopping, newton)
            }
            Stages { descent: None, .. } => {
                let newton = Newton::new(blocks, stopping, problem.null_objective().upper());
                HandOver::begin_with_newton(blocks, newton, stopping)
            }
        };
        Ok(Self { search, problem, solver, stopping, fold, c_index: 0 })
    }

    /// Starts at the final point of an earlier fit with the problem's C.
    pub fn resume(
        search: &'c Search<'a>,
        (fold, c_index): (usize, usize),
        blocks: &'c MarginBlocks<'c>,
        target: Target,
        point: &[Entry],
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mut path = Self::new(search, fold, blocks, target)?;
        let m = path.problem.n_classes();
        let mut betas = vec![0.0; path.problem.n_examples() * m];
        for &(example, class, value) in point {
            betas[example as usize * m + class as usize] = value;
        }
        path.c_index = c_index;
        path.solver.start_at(betas, interrupt)?;
        Ok(path)
    }

    /// Fits the model for the current C or for another C.
    pub fn fit(
        &mut self,
        c_index: usize,
        blocks: &'c MarginBlocks<'c>,
        interrupt: &Interrupt,
    ) -> Result<Candidate> {
        let start = Instant::now();
        let (model, outcome, n_epochs) = match self.move_to(c_index, blocks, interrupt)? {
            Some(certificate) if self.stopping.is_met(&certificate) => {
                let weights = self.solver.weights();
                (self.model(certificate, weights), Outcome::Converged, 0)
            }
            _ => {
                let observe = &mut |_: &_| ControlFlow::Continue(());
                let mut trace = run(&mut self.solver, self.stopping, interrupt, observe)?;
                let certificate = trace
                    .certificate
                    .ok_or_else(|| Error::numerical("a fold has no certificate"))?;
                let weights = trace.take_other(self.problem.map().layout().len());
                let weights = weights.unwrap_or_else(|| self.solver.weights());
                (self.model(certificate, weights), trace.outcome, trace.epochs.len())
            }
        };
        let bracket = self.score(&model, interrupt)?;
        let point = if self.search.width.is_some() { self.point() } else { Vec::new() };
        let (certificate, seconds) = (model.certificate, start.elapsed().as_secs_f64());
        Ok(Candidate { bracket, certificate, outcome, n_epochs, seconds, point })
    }

    /// Moves to another C and returns the certificate from which the fit for this C starts; returns None if this is
    /// already the current C.
    fn move_to(
        &mut self,
        c_index: usize,
        blocks: &'c MarginBlocks<'c>,
        interrupt: &Interrupt,
    ) -> Result<Option<Certificate>> {
        if c_index == self.c_index {
            return Ok(None);
        }
        if self.solver.follows_exhaustion()
            && let Stages { descent: Some(seed), newton } = self.search.stages()?
        {
            // At another C, block descent may reach the target before it exhausts its precision.
            let path = LambdaPath::direct(self.descent_at_dual_point(seed, interrupt)?);
            self.solver = HandOver::new(blocks, path, self.stopping, newton);
        }
        self.c_index = c_index;
        self.solver.move_to(blocks, interrupt).map(Some)
    }

    /// The model with a certificate and, if known, the certificate's dual point, which directional bounds need. The
    /// dual point may be unknown, because the best primal and dual points of a run may come from different epochs.
    fn model(&self, certificate: Certificate, weights: Vec<f64>) -> Model {
        let own = self.solver.descent().filter(|(_, own)| *own == certificate);
        let dual = own.map(|(descent, _)| (descent.distance(), descent.betas()));
        Model { certificate, weights, dual }
    }

    /// Block descent at the current C and the solver's dual point.
    fn descent_at_dual_point(
        &self,
        seed: u64,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn BlockDescent + 'c>> {
        let mut descent = descent(self.problem, seed);
        descent.begin_at(self.search.lambda(self.fold, self.c_index))?;
        descent.start_at(&self.solver.betas(), interrupt)?;
        Ok(descent)
    }

    /// The model whose weights are those of the solver's dual point, which directional bounds need.
    fn model_of_dual(&self, interrupt: &Interrupt) -> Result<Model> {
        let model = |descent: &dyn BlockDescent, certificate| {
            let dual = Some((descent.distance(), descent.betas()));
            Model { certificate, weights: descent.coefficients(), dual }
        };
        if let Some((descent, certificate)) = self.solver.descent() {
            return Ok(model(descent, certificate));
        }
        let mut descent = self.descent_at_dual_point(0, interrupt)?;
        let certificate = descent.certify(interrupt)?;
        Ok(model(&*descent, certificate))
    }

    /// Whether a bracket is wider than wanted, and the gap is small enough for directional bounds.
    fn asks_for_bounds(&self, bracket: &Bracket, certificate: &Certificate) -> bool {
        let wanted = self.search.width.is_some_and(|width| bracket.width() > width);
        wanted && certificate.relative_gap() <= MAX_BOUNDED_GAP
    }

    /// Scores the model on the held-out rows, with bounds on the optimal model's score if possible.
    fn score(&self, model: &Model, interrupt: &Interrupt) -> Result<Bracket> {
        match &self.search.scoring {
            Scoring::Bounded(measure) => {
                let bracket = self.bracket(*measure, model, interrupt)?;
                if model.dual.is_some() || !self.asks_for_bounds(&bracket, &model.certificate) {
                    return Ok(bracket);
                }
                let other = self.bracket(*measure, &self.model_of_dual(interrupt)?, interrupt)?;
                Ok(if other.width() < bracket.width() { other } else { bracket })
            }
            Scoring::Own(score) => {
                let score = score(self.fold, self.c_index, model.weights.clone())?;
                let (lower, upper) = (f64::NEG_INFINITY, f64::INFINITY);
                let n_undecided = self.search.folds[self.fold].held_out.len();
                Ok(Bracket { score, lower, upper, n_undecided })
            }
        }
    }

    fn bracket(
        &self,
        measure: Measure,
        Model { certificate, weights, dual }: &Model,
        interrupt: &Interrupt,
    ) -> Result<Bracket> {
        let weights = self.problem.map().layout().arrange(weights);
        let lambda = self.search.lambda(self.fold, self.c_index);
        let radius = match dual {
            Some((distance, _)) => radius(certificate, lambda, *distance),
            None => radius_of_any(certificate, lambda),
        };
        let held_out = self.search.folds[self.fold].held_out;
        let ball = Ball::new(&weights, radius);
        let bracket = measure.bracket(self.problem, &ball, held_out, interrupt)?;
        let Some((distance, betas)) =
            dual.as_ref().filter(|_| self.asks_for_bounds(&bracket, certificate))
        else {
            return Ok(bracket);
        };
        let (gap, distance) = (gap_above(certificate), *distance);
        let known = CertifiedDistances { lambda, gap, radius, distance };
        match DirectionalBounds::new(self.problem, betas, &weights, known, interrupt)? {
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

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use rand::RngExt;
    use rand_pcg::Pcg64Mcg;

    use super::super::search::Fold;
    use super::*;
    use crate::data::{Data, Dense, Real};
    use crate::dual::Shares;
    use crate::multiclass::{Linear, MulticlassMethod, Order};
    use crate::polytope::MaxHinge;

    /// The class with the largest score of each row, among the first `m` columns.
    fn largest<T: Real>(scores: &Array2<T>, m: usize) -> Vec<u32> {
        let score = |row: usize, class: u32| scores[(row, class as usize)].widen();
        let best =
            |row: usize| (0..m as u32).max_by(|a, b| score(row, *a).total_cmp(&score(row, *b)));
        (0..scores.nrows()).filter_map(best).collect()
    }

    fn problem<'p>(
        data: Data<'p>,
        m: usize,
        labels: &'p [u32],
        lambda: f64,
    ) -> Result<MarginProblem<'p>> {
        let map = Linear::new(data, m, 0.0, Order::Examples);
        MarginProblem::new(map, labels, Box::new(MaxHinge), Shares::new(labels.len(), lambda)?)
    }

    #[test]
    fn a_fold_returns_to_block_descent_at_the_next_c_after_its_precision_is_exhausted() {
        let (n, d, m) = (60, 4, 3);
        let mut random = Pcg64Mcg::new(0);
        let x = Array2::from_shape_simple_fn((n, d), || random.random_range(-1.0_f32..1.0));
        let labels = largest(&x, m);
        let data = Data::Dense32(Dense::new(x.view()).unwrap());
        let (ones, held_out) = (vec![1.0; n], [0, 1, 2]);
        let problems = |_: &Fold<'_>, lambda: f64| problem(data, m, &labels, lambda);
        let search = Search {
            problems: &problems,
            folds: vec![Fold { weights: &ones, held_out: &held_out }],
            grid: vec![1.0, 3.0],
            scoring: Scoring::Own(&|_, _, _| Ok(0.0)),
            // Below the rounding errors of single precision.
            target: Target { tol: 1e-9, max_epochs: 1000 },
            width: None,
            method: MulticlassMethod::HandOver(0),
        };
        let interrupt = Interrupt::default();
        let problem = problems(&search.folds[0], search.lambda(0, 0)).unwrap();
        let first = MarginBlocks::new(&problem);
        let second = first.with_lambda(search.lambda(0, 1)).unwrap();
        let mut path = FoldPath::new(&search, 0, &first, search.target).unwrap();
        let found = path.fit(0, &first, &interrupt).unwrap();
        assert!(path.solver.follows_exhaustion(), "{found:?}");
        assert_eq!(found.outcome, Outcome::Converged);
        let start = path.move_to(1, &second, &interrupt).unwrap().unwrap();
        assert!(path.solver.descent().is_some());
        // The start is not W = 0.
        let zero = problem.null_objective().upper();
        assert!(start.dual > 0.0 && start.primal < zero, "{start:?} {zero}");
    }

    #[test]
    fn the_dual_point_of_newton_s_method_narrows_the_bounds() {
        let (n, d, m) = (300, 4, 3);
        let mut random = Pcg64Mcg::new(1);
        let x = Array2::from_shape_simple_fn((n, d), || random.random_range(-1.0..1.0));
        let labels = largest(&x.mapv(|value| value + random.random_range(-0.5..0.5)), m);
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let (ones, held_out): (_, Vec<u32>) = (vec![1.0; n], (0..n as u32).collect());
        let problems = |_: &Fold<'_>, lambda: f64| problem(data, m, &labels, lambda);
        let search = Search {
            problems: &problems,
            folds: vec![Fold { weights: &ones, held_out: &held_out }],
            grid: vec![10.0],
            scoring: Scoring::Bounded(Measure::Accuracy),
            target: Target { tol: 1e-6, max_epochs: 1000 },
            width: Some(0.0),
            method: MulticlassMethod::Newton,
        };
        let interrupt = Interrupt::default();
        let problem = problems(&search.folds[0], search.lambda(0, 0)).unwrap();
        let blocks = MarginBlocks::new(&problem);
        let path = |search, tol| {
            let target = Target { tol, max_epochs: 1000 };
            FoldPath::new(search, 0, &blocks, target).unwrap()
        };
        let mut coarse = path(&search, 1e-6);
        let found = coarse.fit(0, &blocks, &interrupt).unwrap();
        let (certificate, weights) = (found.certificate, coarse.solver.weights());
        let model = Model { certificate, weights, dual: None };
        let ball = coarse.bracket(Measure::Accuracy, &model, &interrupt).unwrap();
        let Bracket { score, lower, upper, .. } = found.bracket;
        assert!(lower <= score && score <= upper, "{lower} {score} {upper}");
        assert!(upper - lower < ball.width(), "{:?} {ball:?}", found.bracket);
        let optimum = path(&search, 1e-12).fit(0, &blocks, &interrupt).unwrap().bracket.score;
        assert!(lower <= optimum && optimum <= upper, "{lower} {optimum} {upper}");
    }
}
