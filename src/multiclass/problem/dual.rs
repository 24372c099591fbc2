//! The dual of a [`MarginProblem`], block by block: a block is an example, and a part is a class.

use super::batch::{Batch, Wanted};
use super::{Linear, MarginProblem, ScoreMap, Workspace};
use crate::dual::rounding::norm_above;
use crate::dual::{
    BatchDual, BlockDual, BlockGaps, Bounded, Gradient, Image, Points, Scales, Shares, Sums,
};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::linalg::sparse::dot;
use crate::polytope::lifted;

/// The dual of a multi-category problem. The dual variable μ_i of an example is β_i, with a coordinate for each class
/// except the label (`docs/mathematics/duality.md`).
pub struct MarginDual<'p, 'a, M = Linear<'a>> {
    pub(in crate::multiclass) problem: &'p mut MarginProblem<'a, M>,
    /// State of the passes over all examples; None before the first pass.
    batch: Option<Batch>,
    margins: Vec<f64>,
    work: Workspace,
    alpha: Sparse,
    step: Sparse,
}

impl<'p, 'a, M: ScoreMap> MarginDual<'p, 'a, M> {
    /// Creates the dual of a problem.
    pub fn new(problem: &'p mut MarginProblem<'a, M>) -> Self {
        let margins = vec![0.0; problem.n_classes()];
        let (alpha, step) = (Sparse::new(), Sparse::new());
        Self { problem, batch: None, margins, work: Workspace::default(), alpha, step }
    }

    /// Σ p_i ⟨Δ_i, β_i⟩ and Σ p_i ‖α_i‖² of a dual point.
    pub fn terms<'b>(&self, points: impl Iterator<Item = &'b Sparse>) -> (f64, f64) {
        points.enumerate().fold((0.0, 0.0), |(linear, square), (example, beta)| {
            let share = self.problem.shares().of(example);
            let term = self.problem.linear_term(example, beta);
            (linear + share * term, square + share * lifted::squared_norm_of(beta))
        })
    }

    /// Moves the dual point of the passes over all examples to `beta` (examples × classes), or to 0 if `beta` is empty.
    pub fn start_at(&mut self, beta: &[f64]) {
        self.batch = Some(Batch::new(self.problem, beta));
    }

    /// The dual point of the passes over all examples (examples × classes) if it is kept; otherwise empty.
    pub fn into_point(self) -> Vec<f64> {
        self.batch.map_or(Vec::new(), Batch::into_point)
    }

    /// Computes the margins of an example at the weights `scale` · `weights`.
    fn load(&mut self, example: usize, weights: &[f64], scale: f64) {
        self.problem.map().example_scores(example, weights, &mut self.margins);
        if scale != 1.0 {
            self.margins.iter_mut().for_each(|score| *score *= scale);
        }
        self.problem.margins(example, &mut self.margins);
    }
}

/// The gradient with respect to β_i: v − γ(β + 1ᵀβ) off the label.
pub struct MarginGradient<'s, M> {
    problem: &'s MarginProblem<'s, M>,
    example: usize,
    margins: &'s [f64],
    work: &'s mut Workspace,
}

impl<M: ScoreMap> Gradient for MarginGradient<'_, M> {
    fn slope(&self, direction: &[(u32, f64)]) -> f64 {
        dot(self.margins, direction)
    }

    fn vertex(&mut self, vertex: &mut Sparse) -> Result<()> {
        self.problem.vertex(self.example, self.margins, self.work);
        vertex.clone_from(&self.work.vertex);
        sort(vertex);
        Ok(())
    }
}

/// A direction of β_i. Its image is (p_i/λ) A_iᵀ times the corresponding direction of α_i.
pub struct MarginImage<'s, M> {
    problem: &'s MarginProblem<'s, M>,
    example: usize,
    direction: &'s [(u32, f64)],
    /// The direction, including the label's coordinate.
    alpha: &'s [(u32, f64)],
    step: &'s mut Sparse,
}

impl<M: ScoreMap> Image for MarginImage<'_, M> {
    fn curvature(&self) -> f64 {
        let (problem, shares) = (self.problem, self.problem.shares());
        let scale = shares.of(self.example) / shares.lambda();
        scale * problem.map().image_norm(self.example, self.alpha) + self.bend()
    }

    fn bend(&self) -> f64 {
        self.problem.shares().smoothing() * lifted::squared_norm_of(self.direction)
    }

    fn add_to(&mut self, step: f64, weights: &mut [f64]) {
        let (problem, shares) = (self.problem, self.problem.shares());
        let scale = step * shares.of(self.example) / shares.lambda();
        lifted::scaled(self.direction, problem.label(self.example), scale, self.step);
        problem.map().add_image(self.example, self.step, weights);
    }

    fn linear(&mut self) -> f64 {
        self.problem.linear_term(self.example, self.direction)
    }
}

impl<M: ScoreMap> BlockDual for MarginDual<'_, '_, M> {
    type Gradient<'s>
        = MarginGradient<'s, M>
    where
        Self: 's;
    type Image<'s>
        = MarginImage<'s, M>
    where
        Self: 's;

    fn n_weights(&self) -> usize {
        self.problem.map().n_weights()
    }

    fn shares(&self) -> &Shares {
        self.problem.shares()
    }

    fn shares_mut(&mut self) -> &mut Shares {
        self.problem.shares_mut()
    }

    fn start(&self, _: usize) -> Sparse {
        Sparse::new()
    }

    fn gradient<'s>(
        &'s mut self,
        block: usize,
        weights: &'s [f64],
        point: &[(u32, f64)],
    ) -> MarginGradient<'s, M> {
        self.load(block, weights, 1.0);
        let problem = &*self.problem;
        let smoothing = problem.shares().smoothing();
        lifted::shift_by(&mut self.margins, point, problem.label(block), smoothing);
        MarginGradient { problem, example: block, margins: &self.margins, work: &mut self.work }
    }

    fn slopes_at<'s>(
        &'s mut self,
        block: usize,
        _: &[u32],
        weights: &'s [f64],
        point: &[(u32, f64)],
    ) -> MarginGradient<'s, M> {
        // The weights of a feature are contiguous over the classes, so computing a few scores costs as much as
        // computing all scores.
        self.gradient(block, weights, point)
    }

    fn image<'s>(&'s mut self, block: usize, direction: &'s [(u32, f64)]) -> MarginImage<'s, M> {
        let (problem, alpha, step) = (&*self.problem, &mut self.alpha, &mut self.step);
        lifted::scaled(direction, problem.label(block), 1.0, alpha);
        MarginImage { problem, example: block, direction, alpha, step }
    }

    fn subgradient(
        &mut self,
        block: usize,
        weights: &[f64],
        scale: f64,
        direction: &mut Sparse,
    ) -> Result<f64> {
        self.load(block, weights, scale);
        self.problem.subgradient(block, &self.margins, &mut self.work);
        direction.clone_from(&self.work.vertex);
        sort(direction);
        Ok(dot(&self.margins, direction))
    }

    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<Sparse>> {
        let mut wanted = vec![false; self.problem.n_examples()];
        blocks.iter().for_each(|block| wanted[*block as usize] = true);
        let ask = |example: usize, margins: &[f64], work: &mut Workspace, problem: &_| {
            if wanted[example] {
                MarginProblem::vertex(problem, example, margins, work);
                sort(&mut work.vertex);
                work.vertex.clone()
            } else {
                Sparse::new()
            }
        };
        let mut found = self.problem.for_margins(weights, interrupt, ask)?;
        Ok(blocks.iter().map(|block| std::mem::take(&mut found[*block as usize])).collect())
    }

    fn block_gaps(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<BlockGaps> {
        let norm = norm_above(weights);
        let gap_of = |example: usize,
                      margins: &[f64],
                      work: &mut Workspace,
                      problem: &MarginProblem<'_, M>| {
            let (share, beta) = (problem.shares().of(example), points(example));
            let loss = problem.bounded_loss(example, margins, norm, work);
            // The Fenchel-Young gap of the smoothed loss and its conjugate.
            let bend = 0.5 * problem.shares().smoothing() * lifted::squared_norm_of(beta);
            let gap = loss.value() - dot(margins, beta) + bend;
            (loss * Bounded::exact(share), share * gap)
        };
        Ok(BlockGaps::of(self.problem.for_margins(weights, interrupt, gap_of)?))
    }

    fn scales(&self, block: usize) -> Scales {
        self.problem.scales(block, self.problem.map().row_size(block))
    }

    fn defect(&self, block: usize, point: &[(u32, f64)], drift: &dyn Fn() -> f64) -> f64 {
        let (label, m) = (self.problem.label(block), self.problem.n_classes());
        let distance = self.problem.polytope().distance(point, label, m);
        if distance.is_finite() { distance } else { drift() }
    }

    fn null_objective(&mut self, _: &Interrupt) -> Result<Bounded> {
        Ok(self.problem.null_objective())
    }
}

impl<M: ScoreMap> BatchDual for MarginDual<'_, '_, M> {
    fn batch_vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        step: f64,
        want_loss: bool,
        interrupt: &Interrupt,
    ) -> Result<Sums> {
        let problem = &mut *self.problem;
        let batch = self.batch.get_or_insert_with(|| Batch::new(problem, &[]));
        batch.vertex(problem, weights, image, Wanted::Vertex { step, loss: want_loss }, interrupt)
    }

    fn batch_subgradient(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        interrupt: &Interrupt,
    ) -> Result<Sums> {
        let problem = &mut *self.problem;
        let batch = self.batch.get_or_insert_with(|| Batch::new(problem, &[]));
        batch.vertex(problem, weights, image, Wanted::Subgradient, interrupt)
    }
}

/// Sorts a vertex by class.
fn sort(vertex: &mut Sparse) {
    vertex.sort_unstable_by_key(|(class, _)| *class);
}
