//! Consensus training: solutions of subproblems, convergence of the rounds, and feasibility of the dual
//! point.

use super::super::common::{build, fixture, kinds, numbers};
use dualgap::Error;
use dualgap::data::{Data, Dense};
use dualgap::dual::Shares;
use dualgap::interrupt::Interrupt;
use dualgap::multiclass::consensus::{Solution, Subproblem, SubproblemSolver, solve};
use dualgap::multiclass::{
    BlockDescentOptions, Costs, Linear, MarginProblem, Order, block_descent,
};
use dualgap::run::{Stopping, run};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::ops::ControlFlow;

const BIAS: f64 = 1.0;

/// Rows and labels of one partition.
#[derive(Clone)]
struct Part {
    x: Array2<f64>,
    y: Vec<u32>,
}

/// Parameters of the problem, which are the same for all partitions.
struct Shared {
    kind: &'static str,
    m: usize,
    lambda: f64,
    smoothing: f64,
    bias: f64,
    costs: Costs,
}

impl Part {
    fn read(record: &Value) -> Self {
        let rows = record["X"].as_array().unwrap();
        let flat: Vec<f64> = rows.iter().flat_map(numbers).collect();
        let x = Array2::from_shape_vec((rows.len(), flat.len() / rows.len()), flat).unwrap();
        Self { x, y: numbers(&record["y"]).into_iter().map(|y| y as u32).collect() }
    }

    fn random(seed: u64, n: usize, d: usize, m: usize) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let x = Array2::from_shape_fn((n, d), |(i, k)| {
            f64::from(u32::from(i % m == k)) + random.random_range(-1.0..1.0)
        });
        Self { x, y: (0..n).map(|i| (i % m) as u32).collect() }
    }

    fn rows(&self, range: std::ops::Range<usize>) -> Self {
        let x = self.x.slice(ndarray::s![range.clone(), ..]).to_owned();
        Self { x, y: self.y[range].to_vec() }
    }

    fn problem<'a>(&'a self, shared: &Shared) -> MarginProblem<'a> {
        let data = Data::Dense64(Dense::new(self.x.view()).unwrap());
        let map = Linear::new(data, shared.m, shared.bias, Order::Batches);
        let weights: Vec<f64> = (0..shared.m)
            .map(|j| if j + 1 < shared.m { 1.0 / (j + 1) as f64 } else { 0.0 })
            .collect();
        let set = build(shared.kind, 2, &weights);
        let shares = Shares::new(self.y.len(), shared.lambda).unwrap();
        let shares = shares.with_smoothing(shared.smoothing).unwrap();
        let problem = MarginProblem::new(map, &self.y, set, shares).unwrap();
        problem.with_costs(shared.costs.clone()).unwrap()
    }

    fn solve(&self, shared: &Shared, subproblem: &Subproblem<'_>) -> Result<Solution, Error> {
        let problem = self.problem(shared);
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        solve(problem, subproblem, &Interrupt::default(), go_on)
    }
}

const EXACT: Stopping =
    Stopping { max_epochs: 5000, relative: 0.0, floor: 1e-12, null_objective: None };
/// Stops a subproblem early: its dual value is valid at any accuracy.
const ROUGH: Stopping =
    Stopping { max_epochs: 100, relative: 0.0, floor: 1e-7, null_objective: None };

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |max, (a, b)| max.max((a - b).abs()))
}

fn norm(w: &[f64]) -> f64 {
    w.iter().map(|w| w * w).sum()
}

fn matrix(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().flat_map(numbers).collect()
}

#[test]
fn the_subproblem_has_the_reference_solution() {
    let record = &fixture("consensus")["subproblem"];
    let part = Part::read(record);
    // The reference sums the hinge losses; this crate averages them.
    let n = part.y.len() as f64;
    let number = |name: &str| record[name].as_f64().unwrap() / n;
    let shared = shared_parameters("max-hinge", 3, number("lam"));
    let multiplier: Vec<f64> = matrix(&record["alpha"]).iter().map(|a| a / n).collect();
    let consensus = matrix(&record["wbar"]);
    let (rho, seed) = (number("rho"), 1);
    let subproblem = Subproblem {
        consensus: &consensus,
        multiplier: &multiplier,
        rho,
        betas: &[],
        check_betas: false,
        solver: SubproblemSolver::BlockDescent,
        seed,
        stopping: EXACT,
        relative_gap: 0.0,
    };
    for (_, solver) in SubproblemSolver::NAMES {
        let found = part.solve(&shared, &Subproblem { solver: *solver, ..subproblem }).unwrap();
        assert!(distance(&found.weights, &matrix(&record["W"])) < 1e-8, "{solver:?}");
        assert!(found.gap < 1e-10 && found.gap > -1e-12, "{solver:?}: {}", found.gap);
    }
}

fn shared_parameters(kind: &'static str, m: usize, lambda: f64) -> Shared {
    Shared { kind, m, lambda, smoothing: 0.0, bias: 0.0, costs: Costs::Unit }
}

#[test]
fn a_subproblem_without_a_penalty_has_the_optimum_of_the_plain_problem() {
    for kind in kinds() {
        for smoothing in [0.0, 0.3] {
            let part = Part::random(3, 40, 6, 5);
            let shared = Shared { smoothing, bias: BIAS, ..shared_parameters(kind, 5, 0.02) };
            let zeros = vec![0.0; 5 * 7];
            let stopping =
                Stopping { max_epochs: 30, relative: 0.0, floor: 1e-9, null_objective: None };
            let subproblem = Subproblem {
                consensus: &zeros,
                multiplier: &zeros,
                rho: 0.0,
                betas: &[],
                check_betas: false,
                solver: SubproblemSolver::BlockDescent,
                seed: 7,
                stopping,
                relative_gap: 0.0,
            };
            let found = part.solve(&shared, &subproblem).unwrap();
            let problem = part.problem(&shared);
            let options = BlockDescentOptions { seed: 7, ..BlockDescentOptions::default() };
            let mut plain = block_descent(&problem, options);
            run(&mut *plain, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(()))
                .unwrap();
            assert_eq!(found.weights, plain.coefficients(), "{kind}");
            assert_eq!(found.betas, plain.betas(), "{kind}");
        }
    }
}

/// Runs consensus rounds over partitions. Returns the consensus weights and the best primal and
/// dual values of the whole problem.
fn train(
    parts: &[Part],
    shared: &Shared,
    rho: f64,
    n_rounds: usize,
    stopping: Stopping,
) -> (Vec<f64>, Vec<(f64, f64)>) {
    let total: usize = parts.iter().map(|part| part.y.len()).sum();
    let share = |part: &Part| part.y.len() as f64 / total as f64;
    let n_weights = shared.m * (parts[0].x.ncols() + usize::from(shared.bias != 0.0));
    let lambda = shared.lambda;
    let mut consensus = vec![0.0; n_weights];
    let mut multipliers = vec![vec![0.0; n_weights]; parts.len()];
    let mut betas = vec![Vec::new(); parts.len()];
    let mut values = Vec::new();
    for _ in 0..n_rounds {
        let solutions: Vec<Solution> = parts
            .iter()
            .zip(multipliers.iter().zip(&betas))
            .map(|(part, (multiplier, betas))| {
                let consensus = &consensus;
                let subproblem = Subproblem {
                    consensus,
                    multiplier,
                    rho,
                    betas,
                    check_betas: true,
                    solver: SubproblemSolver::BlockDescent,
                    seed: 0,
                    stopping,
                    relative_gap: 0.0,
                };
                part.solve(shared, &subproblem).unwrap()
            })
            .collect();
        let sum = |value: &dyn Fn(&Solution) -> f64| -> f64 {
            parts.iter().zip(&solutions).map(|(part, solution)| share(part) * value(solution)).sum()
        };
        let mean: Vec<f64> =
            (0..n_weights).map(|at| sum(&|solution| solution.weights[at])).collect();
        let image =
            mean.iter().zip(&consensus).map(|(m, w)| ((lambda + rho) * m - rho * w) / lambda);
        let image: Vec<f64> = image.collect();
        let primal = 0.5 * lambda * norm(&consensus) + sum(&|solution| solution.loss);
        let dual = sum(&|solution| solution.dual_term) - 0.5 * lambda * norm(&image);
        values.push((primal, dual));
        for (multiplier, solution) in multipliers.iter_mut().zip(&solutions) {
            for ((a, w), mean) in multiplier.iter_mut().zip(&solution.weights).zip(&mean) {
                *a += rho * (w - mean);
            }
        }
        betas = solutions.into_iter().map(|solution| solution.betas).collect();
        consensus = mean;
    }
    (consensus, values)
}

#[test]
fn consensus_reaches_the_optimum_of_all_rows() {
    let record = &fixture("consensus")["whole"];
    let parts: Vec<Part> = record["workers"].as_array().unwrap().iter().map(Part::read).collect();
    let n: usize = parts.iter().map(|part| part.y.len()).sum();
    // In the reference, each worker has λ/2 ‖w‖² and a sum of hinges.
    let lambda = 2.0 * record["lam"].as_f64().unwrap() / n as f64;
    let (weights, values) =
        train(&parts, &shared_parameters("max-hinge", 3, lambda), lambda, 400, EXACT);
    let optimum = record["global_optimum"].as_f64().unwrap() / n as f64;
    let (primal, dual) = *values.last().unwrap();
    assert!((primal - optimum).abs() < 1e-9 && (dual - optimum).abs() < 1e-7, "{primal} {dual}");
    assert!(distance(&weights, &matrix(&record["W"])) < 1e-6);
}

#[test]
fn the_dual_point_is_feasible_for_every_loss() {
    for kind in kinds() {
        for smoothing in [0.0, 0.2] {
            let whole = Part::random(9, 60, 6, 5);
            let costs =
                (0..25).map(|at| f64::from(u32::from(at / 5 != at % 5)) * (1.0 + at as f64 / 9.0));
            let costs = Costs::PerLabel(costs.collect());
            let shared =
                Shared { smoothing, bias: BIAS, costs, ..shared_parameters(kind, 5, 0.05) };
            let problem = whole.problem(&shared);
            let mut plain = block_descent(&problem, BlockDescentOptions::default());
            let close =
                Stopping { max_epochs: 400, relative: 0.0, floor: 5e-7, null_objective: None };
            let go_on = &mut |_: &_| ControlFlow::Continue(());
            let trace = run(&mut *plain, close, &Interrupt::default(), go_on).unwrap();
            let optimum = trace.certificate.unwrap();
            assert!(optimum.gap() < 1e-6, "{kind} {}", optimum.gap());
            let parts = [whole.rows(0..1), whole.rows(1..20), whole.rows(20..60)];
            let (_, values) = train(&parts, &shared, 0.1, 150, ROUGH);
            for (primal, dual) in &values {
                assert!(*dual <= optimum.primal + 1e-9 && *primal >= optimum.dual - 1e-9);
            }
            let (primal, dual) = *values.last().unwrap();
            assert!(primal - dual < 1e-3 * values[0].0, "{kind} {primal} {dual}");
        }
    }
}

#[test]
fn subproblems_with_arrays_of_the_wrong_size_are_rejected() {
    let part = Part::random(1, 10, 4, 3);
    let shared = shared_parameters("max-hinge", 3, 0.1);
    let (good, short, bad) = (vec![0.0; 12], vec![0.0; 11], vec![f64::NAN; 12]);
    let negative = vec![-1.0; 30];
    let subproblem = Subproblem {
        consensus: &good,
        multiplier: &good,
        rho: 1.0,
        betas: &[],
        check_betas: false,
        solver: SubproblemSolver::BlockDescent,
        seed: 0,
        stopping: EXACT,
        relative_gap: 0.0,
    };
    for (wrong, name) in [
        (Subproblem { consensus: &short, ..subproblem }, "consensus"),
        (Subproblem { multiplier: &bad, ..subproblem }, "multiplier"),
        (Subproblem { rho: -1.0, ..subproblem }, "rho"),
        (Subproblem { betas: &negative, ..subproblem }, "betas"),
        (Subproblem { betas: &good, ..subproblem }, "betas"),
    ] {
        let error = part.solve(&shared, &wrong).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
