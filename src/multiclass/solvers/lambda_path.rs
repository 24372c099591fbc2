//! Block descent along a path of decreasing λ: the optimum at one λ is a good start for the next
//! (`docs/mathematics/block-descent.md`).

use super::block_descent::BlockDescent;
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::multiclass::{MarginProblem, ScoreMap};
use crate::run::{Certificate, Progress, Solver, Stopping};

/// Curvature per weight, summed over the examples, above which the path inserts a larger λ before
/// the current λ.
const CURVED: f64 = 125.0;

/// Ratio of one λ to the next: √10.
const FACTOR: f64 = 3.162_277_660_168_379_5;

/// If the first passes at a λ gain steadily, and more than this number of further passes would be needed at their pace,
/// the path inserts larger λ before this λ. This happens if the β of an example add up to much more than 1, as for
/// Weston-Watkins with many overlapping classes.
const PASSES: f64 = 10.0;

/// Maximum number of larger λ before the problem's λ.
const LONGEST: usize = 12;

/// Relative gap at which the path moves to the next λ, unless the tolerance is larger.
const NEAR: f64 = 0.003;

/// Smallest relative tolerance at which a path saves no time.
const LOOSE: f64 = 0.03;

/// Minimum number of examples per feature for which a path saves time. With fewer examples the data are mostly
/// separable, and then the optima at two λ have little in common.
const EXAMPLES: usize = 32;

/// Block descent along a path of decreasing λ that ends at the problem's λ. Epochs at larger λ count as uncertified,
/// because their certificates belong to other problems.
pub(in crate::multiclass) struct LambdaPath<'p> {
    solver: Box<dyn BlockDescent + 'p>,
    /// The first λ of the path. None after the first epoch, or if no larger λ may be inserted
    /// before it.
    first: Option<f64>,
    /// The λ that are still to come, in reverse order: the problem's λ is first.
    ahead: Vec<f64>,
    /// Number of λ that are done.
    n_done: usize,
    /// Relative gap at which the path moves to the next λ.
    near: f64,
    /// Number of epochs left for larger λ, initially half of the maximum number of epochs. A path needs at least one
    /// epoch per λ.
    left: usize,
}

impl<'p> LambdaPath<'p> {
    /// Creates a path with only the problem's λ, from a solver at any dual point.
    pub fn direct(solver: Box<dyn BlockDescent + 'p>) -> Self {
        Self { solver, first: None, ahead: Vec::new(), n_done: 0, near: 0.0, left: 0 }
    }

    /// Creates the path of a solver at the dual point 0.
    pub fn new(
        mut solver: Box<dyn BlockDescent + 'p>,
        problem: &MarginProblem<'p>,
        stopping: Stopping,
    ) -> Result<Self> {
        let (mut ahead, mut lambda) = (Vec::new(), problem.shares().lambda());
        let left = stopping.max_epochs / 2;
        if stopping.relative < LOOSE && pays(problem) {
            let mut curvature = curvature(problem);
            let more = |lambda: f64| (lambda * FACTOR).is_finite();
            while curvature > CURVED && ahead.len() < LONGEST && more(lambda) {
                ahead.push(lambda);
                (lambda, curvature) = (lambda * FACTOR, curvature / FACTOR);
            }
        }
        if ahead.len() > left {
            ahead.clear();
            lambda = problem.shares().lambda();
        } else if !ahead.is_empty() {
            solver.begin_at(lambda)?;
        }
        let first = (stopping.relative < LOOSE && pays(problem) && sums_are_large(problem))
            .then_some(lambda);
        Ok(Self { solver, first, ahead, n_done: 0, near: NEAR.max(stopping.relative), left })
    }

    /// Runs the first passes, and inserts larger λ before the first λ if passes would gain too slowly.
    fn begin(&mut self, mut lambda: f64, interrupt: &Interrupt) -> Result<()> {
        let (mut n_passes, n_ahead) = (self.solver.begin(interrupt)?, self.ahead.len());
        let most = LONGEST.min(self.left);
        while n_passes > PASSES && self.ahead.len() < most && (lambda * FACTOR).is_finite() {
            self.ahead.push(lambda);
            (lambda, n_passes) = (lambda * FACTOR, n_passes / FACTOR);
        }
        if self.ahead.len() > n_ahead {
            self.solver.move_to(lambda, interrupt)?;
        }
        Ok(())
    }

    /// The solver, mutable so that it can be moved to another λ or started at given β.
    pub fn solver_mut(&mut self) -> &mut (dyn BlockDescent + 'p) {
        &mut *self.solver
    }

    /// The solver. After a certificate it is at the problem's λ.
    pub fn solver(&self) -> &(dyn BlockDescent + 'p) {
        &*self.solver
    }

    /// Number of λ that are still to come, relative to those that are done; 0 if none is done.
    pub fn share_left(&self) -> f64 {
        if self.n_done == 0 { 0.0 } else { self.ahead.len() as f64 / self.n_done as f64 }
    }

    /// Returns the solver, as [`LambdaPath::solver`] does.
    pub fn into_solver(self) -> Box<dyn BlockDescent + 'p> {
        self.solver
    }
}

/// Whether a path saves time. A path saves time if there are many dense rows and the set is a box with a bound on the
/// sum, because most β then stay at their bounds from one λ to the next.
fn pays(problem: &MarginProblem<'_>) -> bool {
    let design = problem.map().design();
    let is_box = problem.polytope().whole_box().is_some();
    !design.data.is_sparse() && is_box && design.n_rows() / EXAMPLES >= design.n_features()
}

/// Whether the β of an example may add up to more than 1. If so, the curvature alone does not show whether a path is
/// needed.
fn sums_are_large(problem: &MarginProblem<'_>) -> bool {
    problem.polytope().whole_box().is_some_and(|set| set.cap > 1.0)
}

/// Σ_i p_i ‖x_i‖²/λ per weight: the curvature of the examples relative to the curvature of the regulariser.
fn curvature(problem: &MarginProblem<'_>) -> f64 {
    let size = |example: usize| {
        let norm = problem.map().row_size(example).norm;
        problem.shares().of(example) * norm * norm
    };
    let sum: f64 = (0..problem.n_examples()).map(size).sum();
    sum / problem.shares().lambda() / problem.map().n_weights() as f64
}

impl Solver for LambdaPath<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        if let Some(first) = self.first.take() {
            self.begin(first, interrupt)?;
        }
        let progress = self.solver.advance(interrupt)?;
        if self.ahead.is_empty() {
            return Ok(progress);
        }
        self.left -= 1;
        if self.left == 0 {
            self.ahead.truncate(1);
        } else if let Progress::Epoch(certificate) = progress
            && certificate.relative_gap() > self.near
        {
            return Ok(Progress::Uncertified);
        }
        let lambda = self.ahead.pop();
        self.n_done += 1;
        let certificate =
            lambda.map(|lambda| self.solver.move_to(lambda, interrupt)).transpose()?;
        let arrived = certificate.filter(|_| self.ahead.is_empty());
        Ok(arrived.map_or(Progress::Uncertified, Progress::Epoch))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        match self.ahead.drain(..).next() {
            Some(lambda) => self.solver.move_to(lambda, interrupt),
            None => self.solver.certify(interrupt),
        }
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        // Before the end of the path, the weights belong to another λ.
        if self.ahead.is_empty() { self.solver.model_arrays() } else { None }
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        self.ahead.is_empty() && self.solver.copy_weights(weights)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use ndarray::Array2;
    use rand::RngExt;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::data::{Data, Dense};
    use crate::dual::Shares;
    use crate::multiclass::solvers::block_descent::{Options, block_descent};
    use crate::multiclass::{Linear, Order};
    use crate::polytope::{Cube, MaxHinge};
    use crate::run::{Outcome, run};

    /// A dense problem with the max hinge.
    fn with_problem<R>(
        (x, labels): (&Array2<f64>, &[u32]),
        m: usize,
        lambda: f64,
        go: impl FnOnce(&MarginProblem<'_>) -> R,
    ) -> R {
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let map = Linear::new(data, m, 0.0, Order::Examples);
        let shares = Shares::new(labels.len(), lambda).unwrap();
        go(&MarginProblem::new(map, labels, Box::new(MaxHinge), shares).unwrap())
    }

    const STOPPING: Stopping =
        Stopping { max_epochs: 1000, relative: 1e-4, floor: 0.0, null_objective: None };

    /// The work of a run.
    fn work(mut path: LambdaPath<'_>) -> f64 {
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let trace = run(&mut path, STOPPING, &Interrupt::default(), go_on).unwrap();
        assert_eq!(trace.outcome, Outcome::Converged);
        path.solver.work()
    }

    /// The number of λ before the problem's λ, for 400 rows of norm 1 and 5 features.
    fn length_of_the_path(m: usize, curvature_for_each_weight: f64) -> usize {
        let (n, d) = (400, 5);
        let x =
            Array2::from_shape_fn((n, d), |(row, column)| f64::from(u8::from(row % d == column)));
        let labels: Vec<u32> = (0..n).map(|row| (row % m) as u32).collect();
        let lambda = 1.0 / (curvature_for_each_weight * (d * m) as f64);
        with_problem((&x, &labels), m, lambda, |problem| {
            let solver = block_descent(problem, Options::default());
            LambdaPath::new(solver, problem, STOPPING).unwrap().ahead.len()
        })
    }

    #[test]
    fn the_path_lengthens_with_the_curvature() {
        for n_classes in [4, 40] {
            let lengths = [120.0, 130.0, 390.0, 400.0, 1240.0]
                .map(|each| length_of_the_path(n_classes, each));
            assert_eq!(lengths, [0, 1, 1, 2, 2]);
        }
    }

    #[test]
    fn the_share_of_the_path_that_is_left_falls() {
        let x = Array2::from_shape_fn((200, 4), |(row, column)| {
            ((row * 7 + column * 5) % 11) as f64 - 5.0
        });
        let labels: Vec<u32> = (0..200).map(|row| row % 3).collect();
        with_problem((&x, &labels), 3, 1e-5, |problem| {
            let mut path =
                LambdaPath::new(block_descent(problem, Options::default()), problem, STOPPING)
                    .unwrap();
            let n_ahead = path.ahead.len();
            assert!(n_ahead > 1);
            assert_eq!(path.share_left(), 0.0);
            while path.n_done == 0 {
                path.advance(&Interrupt::default()).unwrap();
            }
            assert_eq!(path.share_left(), (n_ahead - 1) as f64);
            while !path.ahead.is_empty() {
                path.advance(&Interrupt::default()).unwrap();
            }
            assert_eq!(path.share_left(), 0.0);
        });
    }

    #[test]
    fn a_path_takes_less_work_if_many_examples_share_few_weights() {
        let (n, d, m) = (1000, 5, 6);
        let mut random = Pcg64Mcg::new(0);
        let x = Array2::from_shape_simple_fn((n, d), || random.random_range(-1.0..1.0));
        let labels: Vec<u32> = (0..n).map(|_| random.random_range(0..m as u32)).collect();
        with_problem((&x, &labels), m, 1e-3 / n as f64, |problem| {
            let solver = || block_descent(problem, Options::default());
            let along = work(LambdaPath::new(solver(), problem, STOPPING).unwrap());
            let direct = work(LambdaPath::direct(solver()));
            assert!(2.0 * along < direct, "{along} {direct}");
        });
    }

    #[test]
    fn steady_gains_insert_a_larger_lambda() {
        let (n, d, m) = (600, 10, 30);
        let mut random = Pcg64Mcg::new(0);
        let x = Array2::from_shape_simple_fn((n, d), || random.random_range(-1.0..1.0));
        let labels: Vec<u32> = (0..n).map(|_| random.random_range(0..m as u32)).collect();
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let map = Linear::new(data, m, 0.0, Order::Examples);
        let shares = Shares::new(n, 0.1 / n as f64).unwrap();
        let problem = MarginProblem::new(map, &labels, Box::new(Cube), shares).unwrap();
        let solver = || block_descent(&problem, Options::default());
        let path = LambdaPath::new(solver(), &problem, STOPPING).unwrap();
        // The curvature is too small to require a path.
        assert!(path.ahead.is_empty());
        let (along, direct) = (work(path), work(LambdaPath::direct(solver())));
        assert!(2.0 * along < direct, "{along} {direct}");
    }
}
