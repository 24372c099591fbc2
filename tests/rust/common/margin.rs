//! Multi-category problems, and their fits by each solver.

use dualgap::data::{Data, Dense};
use dualgap::dual::Shares;
use dualgap::interrupt::Interrupt;
use dualgap::multiclass::{Costs, Layout, Linear, MarginDual, MarginProblem, Order};
use dualgap::polytope::Scratch;
use dualgap::run::{Certificate, Solver, Stopping, Trace, run};
use dualgap::solver::{BlockFrankWolfe, BlockOptions, FrankWolfe, StepRule, Subgradient};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{PRINTED, build, numbers, printed_loss, printed_name, rho};

/// A problem in owned arrays.
#[derive(Clone)]
pub struct Case {
    pub x: Array2<f64>,
    pub labels: Vec<u32>,
    pub kind: &'static str,
    pub k: usize,
    pub rho: Vec<f64>,
    pub costs: Costs,
    pub weights: Option<Vec<f64>>,
    pub m: usize,
    pub lambda: f64,
    pub smoothing: f64,
    pub bias: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Method {
    LineSearch,
    Scheduled,
    Blocks,
    Subgradient,
}

impl Case {
    pub fn random(seed: u64, kind: &'static str, n: usize, d: usize, m: usize) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut uniform = || random.random_range(-1.0..1.0);
        let centres = Array2::from_shape_simple_fn((m, d), &mut uniform);
        let x = Array2::from_shape_fn((n, d), |(i, k)| centres[(i % m, k)] + uniform());
        let mut weights: Vec<f64> = (1..m).map(|j| 1.0 / j as f64).collect();
        weights.push(0.0);
        Self {
            x,
            labels: (0..n).map(|i| (i % m) as u32).collect(),
            kind,
            k: (m - 1).clamp(1, 3),
            rho: weights,
            costs: Costs::Unit,
            weights: None,
            m,
            lambda: 0.05,
            smoothing: 0.0,
            bias: 0.0,
        }
    }

    pub fn fixture(value: &serde_json::Value) -> Self {
        let rows: Vec<f64> = value["X"].as_array().unwrap().iter().flat_map(numbers).collect();
        let labels = numbers(&value["y"]).into_iter().map(|label| label as u32).collect::<Vec<_>>();
        let costs = value["costs"].as_array();
        Self {
            x: Array2::from_shape_vec((labels.len(), rows.len() / labels.len()), rows).unwrap(),
            labels,
            kind: printed_name(value["loss"].as_str().unwrap()),
            k: value["k"].as_u64().unwrap_or(0) as usize,
            rho: numbers(&value["rho"]),
            costs: costs
                .map_or(Costs::Unit, |c| Costs::PerExample(c.iter().flat_map(numbers).collect())),
            weights: None,
            m: 5,
            lambda: value["lam"].as_f64().unwrap(),
            smoothing: value["gamma_sm"].as_f64().unwrap(),
            bias: 0.0,
        }
    }

    pub fn data(&self) -> Data<'_> {
        Data::Dense64(Dense::new(self.x.view()).unwrap())
    }

    pub fn problem<'a>(&'a self, data: Data<'a>, order: Order) -> MarginProblem<'a> {
        let polytope = build(self.kind, self.k, &self.rho);
        let map = Linear::new(data, self.m, self.bias, order);
        let mut shares = Shares::new(self.labels.len(), self.lambda).unwrap();
        if let Some(weights) = &self.weights {
            shares = shares.with_sample_weights(weights).unwrap();
        }
        let shares = shares.with_smoothing(self.smoothing).unwrap();
        let problem = MarginProblem::new(map, &self.labels, polytope, shares).unwrap();
        problem.with_costs(self.costs.clone()).unwrap()
    }

    pub fn fit(&self, method: Method, max_epochs: usize, gap: f64) -> Fit {
        self.fit_on(self.data(), method, max_epochs, gap)
    }

    pub fn fit_on(&self, data: Data<'_>, method: Method, max_epochs: usize, gap: f64) -> Fit {
        let order = match method {
            Method::LineSearch | Method::Scheduled => Order::Batches,
            Method::Blocks | Method::Subgradient => Order::Examples,
        };
        let mut problem = self.problem(data, order);
        let layout = problem.map().layout();
        let stopping = Stopping { max_epochs, relative: 0.0, floor: gap, null_objective: None };
        let run_to_gap = |solver: &mut dyn Solver| {
            run(solver, stopping, &Interrupt::default(), &mut |_| {
                std::ops::ControlFlow::Continue(())
            })
            .unwrap()
        };
        let null_objective = problem.null_objective().upper();
        let mut dual = MarginDual::new(&mut problem);
        let batch = |dual, rule| {
            let mut solver = FrankWolfe::new(dual, rule, None);
            (run_to_gap(&mut solver), solver.into_current().weights)
        };
        let (trace, weights) = match method {
            Method::Blocks => {
                let options = BlockOptions { seed: 7, ..BlockOptions::default() };
                let mut solver = BlockFrankWolfe::new(&mut dual, options, None);
                (run_to_gap(&mut solver), solver.weights().to_vec())
            }
            Method::Subgradient => {
                let mut solver = Subgradient::new(&mut dual, null_objective, false, 7);
                (run_to_gap(&mut solver), solver.into_weights())
            }
            Method::LineSearch => batch(&mut dual, StepRule::FrankWolfe),
            Method::Scheduled => batch(&mut dual, StepRule::Scheduled),
        };
        Fit { trace, weights: classes_by_features(&weights, layout) }
    }

    /// Returns P(W), summed over single examples. Without smoothing, losses use their published formulas,
    /// if they have one. A smoothed loss is evaluated as the maximum that defines it.
    pub fn primal(&self, weights: &Array2<f64>) -> f64 {
        let polytope = build(self.kind, self.k, &self.rho);
        let total: f64 = self.weights.as_ref().map_or(self.labels.len() as f64, |w| w.iter().sum());
        let mut loss = 0.0;
        for (i, x) in self.x.rows().into_iter().enumerate() {
            let label = self.labels[i] as usize;
            let score = |j: usize| -> f64 {
                let w = weights.row(j);
                x.iter().zip(&w).map(|(x, w)| x * w).sum::<f64>()
                    + if self.bias == 0.0 { 0.0 } else { self.bias * w[x.len()] }
            };
            let cost = |j: usize| match &self.costs {
                Costs::Unit => f64::from(j != label),
                Costs::PerLabel(costs) => costs[label * self.m + j],
                Costs::PerExample(costs) => costs[i * self.m + j],
            };
            let v: Vec<f64> = (0..self.m).map(|j| cost(j) + score(j) - score(label)).collect();
            let mut scratch = Scratch::default();
            let phi = if self.smoothing == 0.0 && PRINTED.contains(&self.kind) {
                printed_loss(self.kind, &v, &rho(self.kind, self.m, self.k, &self.rho))
            } else if self.smoothing == 0.0 {
                polytope.support(&v, label, &mut scratch)
            } else {
                let mut beta = vec![0.0; self.m];
                let scaled: Vec<f64> = v.iter().map(|v| v / self.smoothing).collect();
                polytope.project(&scaled, label, 1.0, &mut scratch, &mut beta);
                let sum: f64 = beta.iter().sum();
                super::dot(&beta, &v)
                    - 0.5 * self.smoothing * (super::dot(&beta, &beta) + sum * sum)
            };
            loss += self.weights.as_ref().map_or(1.0, |w| w[i]) / total * phi;
        }
        0.5 * self.lambda * weights.iter().map(|w| w * w).sum::<f64>() + loss
    }
}

pub struct Fit {
    pub trace: Trace,
    pub weights: Array2<f64>,
}

impl Fit {
    pub fn certificates(&self) -> Vec<Certificate> {
        self.trace.epochs.iter().filter_map(|epoch| epoch.certificate).collect()
    }
}

pub fn classes_by_features(weights: &[f64], layout: Layout) -> Array2<f64> {
    Array2::from_shape_fn((layout.n_classes, layout.n_features), |(class, feature)| {
        weights[layout.index(feature, class)]
    })
}

pub const METHODS: [Method; 4] =
    [Method::LineSearch, Method::Scheduled, Method::Blocks, Method::Subgradient];
