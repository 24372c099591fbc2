//! Gradient steps on small batches of rows, by Adam (Kingma and Ba 2015), on all layers
//! (docs/mathematics/polynomial-networks.md#steps-on-batches).

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::evaluation::{Evaluation, batch_gradient, evaluate};
use super::layers::LayerVariables;
use super::model::PolynomialModel;
use super::problem::PolynomialProblem;
use super::row_block::BLOCK_ROWS;
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;

/// Settings of passes over the rows in batches.
#[derive(Debug, Clone, Copy)]
pub struct Passes {
    /// Number of passes.
    pub count: usize,
    /// Length of the first step along each coordinate, in that coordinate's unit (`LayerVariables::step_lengths`). The
    /// length decreases linearly to 0.
    pub length: f64,
    /// Seed of the order of the rows.
    pub seed: u64,
}

/// Minimum number of rows for which batches are used. With fewer rows, quasi-Newton steps take
/// almost no time.
const MIN_ROWS: usize = 2048;

/// Weight of the previous batches in the running means of the gradients and of their squares. The weight of a new
/// batch is one minus this value.
const MEAN_KEPT: f64 = 0.9;
const SQUARE_KEPT: f64 = 0.99;

/// Whether there are enough rows, and a step on a batch costs at most as much as the batch's gradient. For wide sparse
/// rows, a step costs more: it updates all weights, but the gradient is nonzero for only a few weights.
pub(super) fn worthwhile<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &PolynomialModel,
) -> bool {
    let (n, width) = (problem.rows.n_rows(), model.n_bases + model.n_outputs);
    let per_row = problem.rows.n_stored() as f64 / n as f64 + 1.0;
    let n_weights = (model.basis_length() + 1) * width;
    n >= MIN_ROWS && n_weights as f64 <= BLOCK_ROWS as f64 * per_row * width as f64
}

/// Optimises the layers of `model` by `passes` over the rows. Returns whether the objective decreased; if not, leaves
/// the layers unchanged.
pub(super) fn descend<R: Rows + Copy>(
    mut variables: LayerVariables<'_, R>,
    passes: Passes,
    model: &mut PolynomialModel,
    interrupt: &Interrupt,
) -> Result<bool> {
    let problem = variables.problem;
    let before = evaluate(problem, model, false, interrupt)?.objective;
    let lengths = variables.step_lengths();
    let mut rng = Pcg64Mcg::seed_from_u64(passes.seed);
    let n = problem.rows.n_rows();
    let n_batches = n.div_ceil(BLOCK_ROWS);
    let total = (passes.count * n_batches) as f64;
    let mut adam = Adam::new(lengths.len());
    let mut x = variables.point();
    let mut gradient = Vec::new();
    for pass in 0..passes.count {
        // Each row of a batch comes from a different section of the data, and the next batch takes
        // the next row of each section. This scheme mixes the classes for any order of the rows,
        // and reads the rows of files sequentially within each section.
        let starts: Vec<usize> = (0..BLOCK_ROWS).map(|_| rng.random_range(0..n_batches)).collect();
        for batch in 0..n_batches {
            interrupt.check()?;
            let rows = starts.iter().enumerate().map(|(part, start)| {
                let (from, to) = (part * n / BLOCK_ROWS, (part + 1) * n / BLOCK_ROWS);
                from + (start + batch) % (to - from)
            });
            variables.set(&x);
            let Evaluation { basis, output, linear, .. } =
                batch_gradient(problem, &variables.model, variables.basis, rows);
            gradient.clear();
            gradient.extend(basis.into_iter().chain(output).chain(linear));
            let step = passes.length * (1.0 - (pass * n_batches + batch) as f64 / total);
            adam.step(&mut x, &gradient, &lengths, step);
            variables.to_set(&mut x)?;
        }
    }
    variables.set(&x);
    let after = evaluate(problem, &variables.model, false, interrupt)?.objective;
    let lower = after < before;
    if lower {
        *model = variables.model;
    }
    Ok(lower)
}

/// Running means of the gradient and of its square, for each coordinate.
struct Adam {
    mean: Vec<f64>,
    square: Vec<f64>,
    n_steps: i32,
}

impl Adam {
    fn new(size: usize) -> Self {
        Self { mean: vec![0.0; size], square: vec![0.0; size], n_steps: 0 }
    }

    /// Moves each coordinate of x by about `step` times the coordinate's length, or by less if the sign of its gradient
    /// changes from step to step.
    fn step(&mut self, x: &mut [f64], gradient: &[f64], lengths: &[f64], step: f64) {
        self.n_steps = self.n_steps.saturating_add(1);
        let step = step / (1.0 - MEAN_KEPT.powi(self.n_steps));
        let correction = 1.0 / (1.0 - SQUARE_KEPT.powi(self.n_steps));
        let means = self.mean.iter_mut().zip(&mut self.square);
        for (((x, g), length), (mean, square)) in x.iter_mut().zip(gradient).zip(lengths).zip(means)
        {
            *mean += (1.0 - MEAN_KEPT) * (g - *mean);
            *square += (1.0 - SQUARE_KEPT) * (g * g - *square);
            *x -= step * length * *mean / ((*square * correction).sqrt() + f64::MIN_POSITIVE);
        }
    }
}
