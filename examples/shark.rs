//! Fits Weston-Watkins SVMs by textbook block descent, one example at a time. Compares two inner
//! solvers of the Walrus paper (Figure 1): Shark's greedy solver and Walrus's sorted sweep.
//!
//! cargo run --release --example shark -- X.f64 y.u32 features classes C shark|walrus \
//!     [seconds [test rows]]
//!
//! Prints a line per epoch: the epoch, the seconds of training so far, the duality gap, and the
//! share of correctly classified test rows. Ends when the gap is a thousandth of the gap after the
//! first epoch, or after the given seconds of training (60 by default). The last rows of the files
//! are the test rows; by default, there are none.
//!
//! Rows and labels are raw little-endian numbers, which `benches/support/textbook.py` writes. Sparse
//! rows come in three files, `X.f64,columns.u32,bounds.u32`. They contain the entries, the column of
//! each entry, and the start offset of each row, followed by the end of the last row.

#[path = "../benches/support/shark.rs"]
mod support;

use std::time::Instant;

use dualgap::internal as walrus;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use support::shark;

fn read<const N: usize, T>(path: &str, convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    let bytes = std::fs::read(path).expect("a readable file");
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A row of X: all of its values, or the columns and values of its entries.
#[derive(Clone, Copy)]
enum Row<'a> {
    Dense(&'a [f64]),
    Sparse(&'a [u32], &'a [f64]),
}

impl Row<'_> {
    fn squared_norm(self) -> f64 {
        let (Self::Dense(values) | Self::Sparse(_, values)) = self;
        dot(values, values)
    }

    fn dot(self, weights: &[f64]) -> f64 {
        match self {
            Self::Dense(values) => dot(values, weights),
            Self::Sparse(columns, values) => {
                columns.iter().zip(values).map(|(j, x)| weights[*j as usize] * x).sum()
            }
        }
    }

    fn add_to(self, weights: &mut [f64], scale: f64) {
        match self {
            Self::Dense(values) => {
                weights.iter_mut().zip(values).for_each(|(w, x)| *w += scale * x);
            }
            Self::Sparse(columns, values) => {
                for (j, x) in columns.iter().zip(values) {
                    weights[*j as usize] += scale * x;
                }
            }
        }
    }
}

/// Rows of X. For dense rows, only `values` is used. For sparse rows, `sparse` has the column of
/// each value and the bounds of each row.
struct Rows {
    values: Vec<f64>,
    sparse: Option<(Vec<u32>, Vec<u32>)>,
}

impl Rows {
    fn read(paths: &str) -> Self {
        let paths: Vec<&str> = paths.split(',').collect();
        let sparse = match paths[..] {
            [_] => None,
            [_, columns, bounds] => {
                Some((read(columns, u32::from_le_bytes), read(bounds, u32::from_le_bytes)))
            }
            _ => panic!("rows are one file or three"),
        };
        Self { values: read(paths[0], f64::from_le_bytes), sparse }
    }
}

/// Returns the class of the j-th dual variable of an example. The label has no dual variable.
fn class(j: usize, label: usize) -> usize {
    j + usize::from(j >= label)
}

struct Problem {
    rows: Rows,
    labels: Vec<u32>,
    /// Number of rows to train on; the other rows are test rows.
    n_training: usize,
    n_features: usize,
    n_classes: usize,
    c: f64,
}

impl Problem {
    fn row(&self, example: usize) -> (Row<'_>, usize) {
        let Rows { values, sparse } = &self.rows;
        let row = match sparse {
            None => Row::Dense(&values[example * self.n_features..][..self.n_features]),
            Some((columns, bounds)) => {
                let range = bounds[example] as usize..bounds[example + 1] as usize;
                Row::Sparse(&columns[range.clone()], &values[range])
            }
        };
        (row, self.labels[example] as usize)
    }
}

/// Weights, the dual variables of each example, and buffers for a step.
struct Descent {
    weights: Vec<f64>,
    betas: Vec<f64>,
    u: Vec<f64>,
    old: Vec<f64>,
    sorted: Vec<f64>,
    greedy: bool,
}

impl Descent {
    fn new(problem: &Problem, greedy: bool) -> Self {
        let others = problem.n_classes - 1;
        Self {
            weights: vec![0.0; problem.n_classes * problem.n_features],
            betas: vec![0.0; problem.n_training * others],
            u: vec![0.0; others],
            old: vec![0.0; others],
            sorted: Vec::new(),
            greedy,
        }
    }

    /// Writes 1 + s_j − s_y to `u` for each class j except the label y, where s are the scores.
    fn margins(&mut self, row: Row<'_>, label: usize, d: usize) {
        let right = row.dot(&self.weights[label * d..][..d]);
        for (j, u) in self.u.iter_mut().enumerate() {
            *u = 1.0 + row.dot(&self.weights[class(j, label) * d..][..d]) - right;
        }
    }

    /// Solves the subproblem of one example and updates the weights.
    fn visit(&mut self, problem: &Problem, example: usize) {
        let (row, label) = problem.row(example);
        let (norm, d) = (row.squared_norm(), problem.n_features);
        if norm == 0.0 {
            return;
        }
        self.margins(row, label, d);
        self.u.iter_mut().for_each(|u| *u /= norm);
        let others = self.u.len();
        let beta = &mut self.betas[example * others..][..others];
        self.old.copy_from_slice(beta);
        if self.greedy {
            // Shark's solver takes the gradient at β, which is `u`.
            shark(beta, &mut self.u, problem.c, 1e-3 / norm);
        } else {
            let sum: f64 = beta.iter().sum();
            self.u.iter_mut().zip(&*beta).for_each(|(u, b)| *u += b + sum);
            walrus_step(&self.u, beta, problem.c, &mut self.sorted);
        }
        let mut total = 0.0;
        for (j, (new, old)) in beta.iter().zip(&self.old).enumerate() {
            let change = new - old;
            if change != 0.0 {
                total += change;
                row.add_to(&mut self.weights[class(j, label) * d..][..d], -change);
            }
        }
        row.add_to(&mut self.weights[label * d..][..d], total);
    }

    /// Returns the duality gap ‖W‖² + C Σ_i loss_i − Σ β.
    fn gap(&mut self, problem: &Problem) -> f64 {
        let mut loss = 0.0;
        for example in 0..problem.n_training {
            let (row, label) = problem.row(example);
            self.margins(row, label, problem.n_features);
            loss += self.u.iter().map(|u| u.max(0.0)).sum::<f64>();
        }
        dot(&self.weights, &self.weights) + problem.c * loss - self.betas.iter().sum::<f64>()
    }

    /// Returns the share of test rows whose label has the largest score.
    fn accuracy(&mut self, problem: &Problem) -> f64 {
        let test_rows = problem.n_training..problem.labels.len();
        let n_test = test_rows.len() as f64;
        let is_correct = |example: &usize| {
            let (row, label) = problem.row(*example);
            self.margins(row, label, problem.n_features);
            self.u.iter().all(|margin| *margin < 1.0)
        };
        test_rows.filter(is_correct).count() as f64 / n_test
    }
}

/// Sets b = clip(u − τ), where the multiplier τ from Walrus equals the sum of b.
fn walrus_step(u: &[f64], b: &mut [f64], c: f64, sorted: &mut Vec<f64>) {
    let multiplier = walrus::multiplier_by_sorting(u, c, 1.0, sorted);
    for (b, u) in b.iter_mut().zip(u) {
        *b = (u - multiplier).clamp(0.0, c);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([x, y, d, m, c, inner, rest @ ..], true) = (&arguments[..], arguments.len() <= 8) else {
        panic!("usage: shark X.f64 y.u32 features classes C shark|walrus [seconds [test rows]]")
    };
    let limit: f64 = rest.first().map_or(60.0, |given| given.parse().expect("a number"));
    let n_test: usize = rest.get(1).map_or(0, |given| given.parse().expect("a number"));
    let labels: Vec<u32> = read(y, u32::from_le_bytes);
    let problem = Problem {
        rows: Rows::read(x),
        n_training: labels.len().checked_sub(n_test).expect("at most as many test rows as rows"),
        labels,
        n_features: d.parse().expect("a number"),
        n_classes: m.parse().expect("a number"),
        c: c.parse().expect("a number"),
    };
    let mut descent = Descent::new(&problem, inner == "shark");
    let mut order: Vec<usize> = (0..problem.n_training).collect();
    let mut random = Pcg64::seed_from_u64(0);
    let (mut seconds, mut first_gap) = (0.0, f64::INFINITY);
    for epoch in 1..=20_000 {
        let start = Instant::now();
        order.shuffle(&mut random);
        order.iter().for_each(|&example| descent.visit(&problem, example));
        seconds += start.elapsed().as_secs_f64();
        let gap = descent.gap(&problem);
        println!("{epoch} {seconds:.7} {gap:e} {}", descent.accuracy(&problem));
        first_gap = if epoch == 1 { gap } else { first_gap };
        if gap <= 1e-3 * first_gap || seconds > limit {
            return;
        }
    }
}
