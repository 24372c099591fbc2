//! The dual of a multi-category [`Problem`], block by block: blocks are examples, parts are classes.

use crate::dual::{BlockDual, Points, Survey};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::multiclass::{Problem, Workspace};

/// The dual of a multi-category problem whose weights are in the order for examples; μ_i is the β_i of
/// SPEC 10.1.
pub struct MarginDual<'p, 'a> {
    problem: &'p mut Problem<'a>,
    margins: Vec<f64>,
    work: Workspace,
}

impl<'p, 'a> MarginDual<'p, 'a> {
    /// The dual of a problem.
    pub fn new(problem: &'p mut Problem<'a>) -> Self {
        let margins = vec![0.0; problem.n_classes()];
        Self { problem, margins, work: Workspace::default() }
    }

    /// Σ p_i ⟨Δ_i, β_i⟩ and Σ p_i ‖α_i‖² of a dual point.
    pub fn terms<'b>(&self, points: impl Iterator<Item = &'b Sparse>) -> (f64, f64) {
        points.enumerate().fold((0.0, 0.0), |(linear, square), (example, beta)| {
            let share = self.problem.importance(example);
            let (term, norm) = (self.problem.linear_term(example, beta), lifted_norm(beta));
            (linear + share * term, square + share * norm)
        })
    }
}

impl BlockDual for MarginDual<'_, '_> {
    fn n_blocks(&self) -> usize {
        self.problem.n_examples()
    }

    fn n_weights(&self) -> usize {
        self.problem.features.layout().len()
    }

    fn lambda(&self) -> f64 {
        self.problem.lambda
    }

    fn set_lambda(&mut self, lambda: f64) {
        self.problem.lambda = lambda;
    }

    fn share(&self, block: usize) -> f64 {
        self.problem.importance(block)
    }

    fn start(&self, _: usize) -> Sparse {
        Sparse::new()
    }

    fn load(&mut self, block: usize, weights: &[f64], point: &[(u32, f64)]) {
        self.problem.features.example_scores(block, weights, &mut self.margins);
        self.problem.margins(block, &mut self.margins);
        shift(&mut self.margins, point, self.problem.label(block), self.problem.smoothing);
    }

    fn load_at(&mut self, block: usize, _: &[u32], weights: &[f64], point: &[(u32, f64)]) {
        self.load(block, weights, point);
    }

    fn along(&self, _: &[f64], direction: &[(u32, f64)]) -> f64 {
        direction.iter().map(|(class, value)| value * self.margins[*class as usize]).sum()
    }

    fn vertex(&mut self, block: usize, _: &[f64], vertex: &mut Sparse) -> Result<()> {
        self.problem.vertex(block, &self.margins, &mut self.work);
        vertex.clone_from(&self.work.vertex);
        sort(vertex);
        Ok(())
    }

    fn curvature(&mut self, block: usize, direction: &[(u32, f64)]) -> f64 {
        let problem: &Problem<'_> = self.problem;
        let scale = problem.importance(block) / problem.lambda;
        (scale * problem.features.squared_norm(block) + problem.smoothing) * lifted_norm(direction)
    }

    fn advance(&mut self, block: usize, direction: &[(u32, f64)], step: f64, weights: &mut [f64]) {
        let problem: &Problem<'_> = self.problem;
        let scale = step * problem.importance(block) / problem.lambda;
        let image: Vec<_> = problem.dual(block, direction, scale).collect();
        problem.features.add_image(block, &image, weights);
    }

    fn linear(&mut self, block: usize, direction: &[(u32, f64)]) -> f64 {
        self.problem.linear_term(block, direction)
    }

    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<(Sparse, f64)>> {
        let mut wanted = vec![false; self.problem.n_examples()];
        blocks.iter().for_each(|block| wanted[*block as usize] = true);
        let ask = |example: usize, margins: &[f64], work: &mut Workspace, problem: &Problem<'_>| {
            if !wanted[example] {
                return (Sparse::new(), 0.0);
            }
            let loss = problem.vertex(example, margins, work);
            sort(&mut work.vertex);
            (work.vertex.clone(), problem.importance(example) * loss)
        };
        let found = self.problem.for_margins(weights, interrupt, ask)?;
        Ok(blocks.iter().map(|block| found[*block as usize].clone()).collect())
    }

    fn survey(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<Survey> {
        let look =
            |example: usize, margins: &[f64], work: &mut Workspace, problem: &Problem<'_>| {
                let (share, beta) = (problem.importance(example), points(example));
                let loss = problem.loss(example, margins, work);
                let along: f64 =
                    beta.iter().map(|(class, weight)| weight * margins[*class as usize]).sum();
                // Fenchel and Young: the two terms of the gap that the smoothed loss and its conjugate make.
                let bend = 0.5 * problem.smoothing * lifted_norm(beta);
                let linear = problem.linear_term(example, beta) - bend;
                (share * loss, share * linear, share * (loss - along + bend))
            };
        Ok(Survey::of(self.problem.for_margins(weights, interrupt, look)?))
    }
}

/// Brings a vertex into the order of the classes.
fn sort(vertex: &mut Sparse) {
    vertex.sort_unstable_by_key(|(class, _)| *class);
}

/// v − γ(β + 1ᵀβ) off the label (SPEC 10.3), for a sparse β.
fn shift(margins: &mut [f64], beta: &[(u32, f64)], label: usize, smoothing: f64) {
    if smoothing == 0.0 || beta.is_empty() {
        return;
    }
    let sum: f64 = beta.iter().map(|(_, weight)| weight).sum();
    margins.iter_mut().for_each(|margin| *margin -= smoothing * sum);
    for &(class, weight) in beta {
        margins[class as usize] -= smoothing * weight;
    }
    margins[label] = 0.0;
}

/// ‖α‖² = ‖β‖² + (1ᵀβ)².
fn lifted_norm(beta: &[(u32, f64)]) -> f64 {
    let (square, sum) = beta
        .iter()
        .fold((0.0, 0.0), |(square, sum), (_, weight)| (square + weight * weight, sum + weight));
    square + sum * sum
}
