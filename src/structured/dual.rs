//! The dual problem of a structured SVM, given by a model and shares, for the solvers.

use std::ops::Range;

use super::{Model, Work};
use crate::dual::rounding::{Sum, norm_above};
use crate::dual::{
    BatchDual, BlockDual, BlockGaps, Bounded, Gradient, Image, Points, Scales, Shares, Sizes, Sums,
};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::sparse::{self, dot};
use crate::linalg::{Sparse, TouchedVector};
use crate::parallel::{for_items, map_items_with};

/// Number of groups of examples. The images of each group are summed separately, and the groups are then added in
/// order, so the result does not depend on the number of threads.
const GROUPS: usize = 16;

/// The dual of minimising P(w) = λ/2 ‖w‖² + Σ_i p_i max over y of \[L_i(y) − ⟨w, ψ_i(y)⟩\], where ψ_i(y) = φ(x_i, y_i)
/// − φ(x_i, y). The maximum always includes the true label.
///
/// The dual has a variable μ_i in the convex hull of the μ(y) for each example. With the weights
/// w(μ) = (1/λ) Σ p_i A_iᵀ (μ(y_i) − μ_i), its value is D(μ) = Σ p_i L_i(μ_i) − λ/2 ‖w(μ)‖²
/// (`docs/mathematics/structured.md`).
pub struct StructuredDual<'a> {
    model: &'a dyn Model,
    shares: Shares,
    local: Local,
    /// Aᵀ times the direction of the last image.
    image: TouchedVector,
    groups: Vec<Group>,
}

/// Buffers for one example at a time.
#[derive(Default)]
struct Local {
    /// The margins θ + c: scores plus costs of the parts.
    margins: Vec<f64>,
    costs: Vec<f64>,
    work: Work,
    label: Vec<u32>,
    vertex: Sparse,
    truth: Sparse,
    direction: Sparse,
}

#[derive(Default)]
struct Group {
    local: Local,
    image: TouchedVector,
    sums: Sums,
}

impl<'a> StructuredDual<'a> {
    /// Creates the dual for the examples of a model.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a wrong number of shares and for examples without labels; errors of
    /// [`Shares::check_range`].
    pub fn new(model: &'a dyn Model, shares: Shares) -> Result<Self> {
        if shares.n_blocks() != model.n_examples() {
            return Err(Error::argument("X", "must have an example for each share"));
        }
        check_labelled(model)?;
        if shares.smoothing() > 0.0 {
            return Err(Error::argument("smoothing", "structured losses do not support it"));
        }
        let shares = shares.with_features(model.norms())?;
        let (local, image) = (Local::default(), TouchedVector::new(model.n_weights()));
        Ok(Self { model, shares, local, image, groups: Vec::new() })
    }

    /// Makes the oracle stop when the flag is raised, even within an example.
    #[must_use]
    pub fn stopped_by(mut self, interrupt: &Interrupt) -> Self {
        self.local = Local::of(interrupt);
        self
    }
}

/// Returns an error if the examples have no labels.
pub(super) fn check_labelled(model: &dyn Model) -> Result<()> {
    if model.is_labelled() {
        return Ok(());
    }
    Err(Error::argument("y", "the examples have no labels"))
}

impl Local {
    fn of(interrupt: &Interrupt) -> Self {
        Self { work: Work::of(interrupt), ..Self::default() }
    }

    /// Computes the margins θ + c of an example at the weights `scale` · `weights`; returns the constant of its loss.
    fn load(&mut self, model: &dyn Model, example: usize, weights: &[f64], scale: f64) -> f64 {
        let constant = self.load_costs(model, example);
        self.margins.clear();
        self.margins.resize(self.costs.len(), 0.0);
        model.scores(example, weights, &mut self.margins);
        if scale != 1.0 {
            self.margins.iter_mut().for_each(|score| *score *= scale);
        }
        self.add_costs();
        constant
    }

    fn load_costs(&mut self, model: &dyn Model, example: usize) -> f64 {
        self.costs.clear();
        self.costs.resize(model.n_parts(example), 0.0);
        model.add_costs(example, &mut self.costs)
    }

    fn add_costs(&mut self) {
        self.margins.iter_mut().zip(&self.costs).for_each(|(margin, cost)| *margin += cost);
    }

    /// Finds the vertex with the largest margin, which may be the true label. Returns the loss Φ and the margin.
    fn find(&mut self, model: &dyn Model, example: usize) -> (f64, f64) {
        model.decode(example, &self.margins, &mut self.work, &mut self.label);
        model.parts(example, &self.label, &mut self.vertex);
        model.parts(example, model.truth(example), &mut self.truth);
        let best = dot(&self.margins, &self.vertex);
        let right = dot(&self.margins, &self.truth);
        if best <= right {
            // In a matching problem, the true label need not be a matching, and decoding then cannot return it.
            self.vertex.clone_from(&self.truth);
        }
        (best.max(right) - right, best.max(right))
    }

    /// Returns the sizes of an example's features and costs, for bounds on rounding errors. The costs of the example
    /// must be loaded.
    fn scales(&self, model: &dyn Model, example: usize) -> Scales {
        let cost = self.costs.iter().fold(0.0, |largest: f64, cost| largest.max(cost.abs()));
        model.size(example).scales(cost)
    }

    /// Returns a bound on the rounding error of an example's loss at weights of norm at most `norm`. The costs of the
    /// example must be loaded.
    fn error(&self, model: &dyn Model, example: usize, norm: f64) -> f64 {
        model.size(example).loss_error(self.scales(model, example).cost, norm)
    }
}

/// The gradient θ + c. Its slopes equal the slopes of the dual up to a constant.
pub struct StructuredGradient<'s> {
    model: &'s dyn Model,
    example: usize,
    local: &'s mut Local,
}

impl Gradient for StructuredGradient<'_> {
    fn slope(&self, direction: &[(u32, f64)]) -> f64 {
        dot(&self.local.margins, direction)
    }

    fn vertex(&mut self, vertex: &mut Sparse) -> Result<()> {
        self.local.find(self.model, self.example);
        std::mem::swap(vertex, &mut self.local.vertex);
        Ok(())
    }
}

/// A direction of μ_i; its image in weight space is −(p_i/λ) A_iᵀ times the direction.
pub struct StructuredImage<'s> {
    model: &'s dyn Model,
    example: usize,
    direction: &'s [(u32, f64)],
    share: f64,
    lambda: f64,
    /// Aᵀ times the direction.
    image: &'s TouchedVector,
    local: &'s mut Local,
}

impl Image for StructuredImage<'_> {
    fn curvature(&self) -> f64 {
        self.share / self.lambda * self.image.squared_norm()
    }

    fn add_to(&mut self, step: f64, weights: &mut [f64]) {
        self.image.add_to(-step * self.share / self.lambda, weights);
    }

    fn linear(&mut self) -> f64 {
        self.local.load_costs(self.model, self.example);
        dot(&self.local.costs, self.direction)
    }
}

impl BlockDual for StructuredDual<'_> {
    type Gradient<'s>
        = StructuredGradient<'s>
    where
        Self: 's;
    type Image<'s>
        = StructuredImage<'s>
    where
        Self: 's;

    fn n_weights(&self) -> usize {
        self.model.n_weights()
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    fn start(&self, block: usize) -> Sparse {
        let mut truth = Sparse::new();
        self.model.parts(block, self.model.truth(block), &mut truth);
        truth
    }

    fn scales(&self, block: usize) -> Scales {
        let mut costs = vec![0.0; self.model.n_parts(block)];
        self.model.add_costs(block, &mut costs);
        Local { costs, ..Local::default() }.scales(self.model, block)
    }

    fn gradient<'s>(
        &'s mut self,
        block: usize,
        weights: &'s [f64],
        _: &[(u32, f64)],
    ) -> StructuredGradient<'s> {
        self.local.load(self.model, block, weights, 1.0);
        StructuredGradient { model: self.model, example: block, local: &mut self.local }
    }

    fn slopes_at<'s>(
        &'s mut self,
        block: usize,
        parts: &[u32],
        weights: &'s [f64],
        _: &[(u32, f64)],
    ) -> StructuredGradient<'s> {
        let local = &mut self.local;
        local.load_costs(self.model, block);
        local.margins.clear();
        local.margins.resize(local.costs.len(), 0.0);
        self.model.scores_at(block, parts, weights, &mut local.margins);
        local.add_costs();
        StructuredGradient { model: self.model, example: block, local }
    }

    fn image<'s>(&'s mut self, block: usize, direction: &'s [(u32, f64)]) -> StructuredImage<'s> {
        self.image.clear();
        self.model.add_image(block, direction, 1.0, &mut self.image);
        StructuredImage {
            model: self.model,
            example: block,
            direction,
            share: self.shares.of(block),
            lambda: self.shares.lambda(),
            image: &self.image,
            local: &mut self.local,
        }
    }

    fn subgradient(
        &mut self,
        block: usize,
        weights: &[f64],
        scale: f64,
        direction: &mut Sparse,
    ) -> Result<f64> {
        let local = &mut self.local;
        local.load(self.model, block, weights, scale);
        local.find(self.model, block);
        sparse::subtract(&local.vertex, &local.truth, direction);
        Ok(dot(&local.margins, direction))
    }

    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<Sparse>> {
        let problem: &Self = self;
        let ask = |local: &mut Local, block: &u32| {
            let example = *block as usize;
            if interrupt.is_raised() {
                return Sparse::new();
            }
            local.load(problem.model, example, weights, 1.0);
            local.find(problem.model, example);
            local.vertex.clone()
        };
        let found = map_items_with(blocks, 8, || Local::of(interrupt), ask);
        interrupt.check()?;
        Ok(found)
    }

    fn block_gaps(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<BlockGaps> {
        let problem: &Self = self;
        let norm = norm_above(weights);
        let visit = |local: &mut Local, example: usize| {
            let share = problem.shares.of(example);
            if share == 0.0 || interrupt.is_raised() {
                return (Bounded::default(), 0.0);
            }
            local.load(problem.model, example, weights, 1.0);
            let (loss, best) = local.find(problem.model, example);
            let loss = Bounded::new(loss, local.error(problem.model, example, norm));
            let gap = best - dot(&local.margins, points(example));
            (loss * Bounded::exact(share), share * gap)
        };
        let examples = 0..problem.model.n_examples();
        let terms = map_items_with(examples, 8, || Local::of(interrupt), visit);
        interrupt.check()?;
        Ok(BlockGaps::of(terms))
    }
}

impl BatchDual for StructuredDual<'_> {
    fn batch_vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        _: f64,
        _: bool,
        interrupt: &Interrupt,
    ) -> Result<Sums> {
        let n_weights = self.model.n_weights();
        let new = || Group { image: TouchedVector::new(n_weights), ..Group::default() };
        let mut groups = std::mem::take(&mut self.groups);
        groups.resize_with(GROUPS, new);
        let problem: &Self = self;
        for_items(groups.iter_mut().enumerate(), 1, |(index, group)| {
            let bound = |index: usize| index * problem.model.n_examples() / GROUPS;
            group.visit(problem, bound(index)..bound(index + 1), weights, interrupt);
        });
        interrupt.check()?;
        image.fill(0.0);
        let mut sums = Sums { loss: Some(Bounded::default()), ..Sums::default() };
        for group in &groups {
            group.image.add_to(1.0, image);
            sums.add(&group.sums);
        }
        self.groups = groups;
        Ok(sums)
    }
}

impl Group {
    /// Computes sums over the vertices of the given examples.
    fn visit(
        &mut self,
        problem: &StructuredDual<'_>,
        examples: Range<usize>,
        weights: &[f64],
        interrupt: &Interrupt,
    ) {
        let (model, local) = (problem.model, &mut self.local);
        local.work.interrupt.clone_from(interrupt);
        let (mut total, mut linear, norm) = (Sum::default(), 0.0, norm_above(weights));
        let mut sizes = Sizes::default();
        self.image.clear();
        for example in examples {
            let share = problem.shares.of(example);
            if share == 0.0 || interrupt.is_raised() {
                continue;
            }
            let constant = local.load(model, example, weights, 1.0);
            let (loss, _) = local.find(model, example);
            let loss = Bounded::new(loss, local.error(model, example, norm));
            total.add(loss * Bounded::exact(share));
            for point in [&local.vertex, &local.truth] {
                sizes.add(share, local.scales(model, example), point);
            }
            linear += share * (constant + dot(&local.costs, &local.vertex));
            sparse::subtract(&local.truth, &local.vertex, &mut local.direction);
            let scale = share / problem.shares.lambda();
            model.add_image(example, &local.direction, scale, &mut self.image);
        }
        self.sums = Sums { loss: Some(total.total()), linear, sizes, ..Sums::default() };
    }
}
