//! A structured SVM: model × λ × sample weights, as the solvers' dual (SPEC 15).

use rayon::prelude::*;

use super::{Model, Work};
use crate::dual::{BlockDual, DualOracle, Points, Survey, Vertex};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::{Image, Sparse, sparse};

/// Groups of examples whose images are summed apart, for any number of threads, and then in order.
const GROUPS: usize = 16;

/// P(w) = λ/2 ‖w‖² + Σ_i p_i max over y of \[L_i(y) − ⟨w, ψ_i(y)⟩\], ψ_i(y) = φ(x_i, y_i) − φ(x_i, y), the
/// p_i being sample weights scaled to the sum 1; the right label is always among the y.
///
/// Its dual has μ_i in the hull of the μ(y), w(μ) = (1/λ) Σ p_i A_iᵀ (μ(y_i) − μ_i), and
/// D(μ) = Σ p_i L_i(μ_i) − λ/2 ‖w(μ)‖².
pub struct Problem<'a> {
    model: &'a dyn Model,
    lambda: f64,
    importance: Option<Vec<f64>>,
    local: Local,
    /// Aᵀ of the direction whose curvature was taken last.
    image: Image,
    groups: Vec<Group>,
}

/// Buffers for one example at a time.
#[derive(Default)]
struct Local {
    /// θ + c.
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
    image: Image,
    sums: Vertex,
}

impl<'a> Problem<'a> {
    /// A problem with equal weights.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no examples and for λ that is not positive.
    pub fn new(model: &'a dyn Model, lambda: f64) -> Result<Self> {
        if model.n_examples() == 0 {
            return Err(Error::argument("X", "must have at least one example"));
        }
        if !(lambda > 0.0 && lambda.is_finite()) {
            return Err(Error::argument("lambda", "must be positive and finite"));
        }
        let (local, image) = (Local::default(), Image::new(model.n_weights()));
        Ok(Self { model, lambda, importance: None, local, image, groups: Vec::new() })
    }

    /// Sets sample weights; only their ratios count.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless they are finite and non-negative, one for each example, and
    /// not all zero.
    pub fn with_sample_weights(mut self, weights: &[f64]) -> Result<Self> {
        self.importance = Some(crate::multiclass::shares(weights, self.model.n_examples())?);
        Ok(self)
    }

    /// P(0), the unit of relative tolerances.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn null_objective(&mut self, interrupt: &Interrupt) -> Result<f64> {
        let zero = vec![0.0; self.model.n_weights()];
        Ok(self.survey(&zero, &|_| &[], interrupt)?.loss)
    }

    fn importance(&self, example: usize) -> f64 {
        let equal = || 1.0 / self.model.n_examples() as f64;
        self.importance.as_ref().map_or_else(equal, |weights| weights[example])
    }
}

impl Local {
    /// The margins θ + c of an example; returns the constant of its loss.
    fn load(&mut self, model: &dyn Model, example: usize, weights: &[f64]) -> f64 {
        let constant = self.load_costs(model, example);
        self.margins.clear();
        self.margins.resize(self.costs.len(), 0.0);
        model.scores(example, weights, &mut self.margins);
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

    /// Finds the vertex of the largest margin, the right label among them; returns its loss Φ and the
    /// margin itself.
    fn find(&mut self, model: &dyn Model, example: usize) -> (f64, f64) {
        model.decode(example, &self.margins, &mut self.work, &mut self.label);
        model.parts(example, &self.label, &mut self.vertex);
        model.parts(example, model.truth(example), &mut self.truth);
        let best = dot(&self.margins, &self.vertex);
        let right = dot(&self.margins, &self.truth);
        if best <= right {
            // The truth of a matching problem need not be a matching.
            self.vertex.clone_from(&self.truth);
        }
        (best.max(right) - right, best.max(right))
    }
}

fn dot(dense: &[f64], sparse: &[(u32, f64)]) -> f64 {
    sparse.iter().map(|(index, value)| value * dense[*index as usize]).sum()
}

impl BlockDual for Problem<'_> {
    fn n_blocks(&self) -> usize {
        self.model.n_examples()
    }

    fn n_weights(&self) -> usize {
        self.model.n_weights()
    }

    fn lambda(&self) -> f64 {
        self.lambda
    }

    fn set_lambda(&mut self, lambda: f64) {
        self.lambda = lambda;
    }

    fn share(&self, block: usize) -> f64 {
        self.importance(block)
    }

    fn start(&self, block: usize) -> Sparse {
        let mut truth = Sparse::new();
        self.model.parts(block, self.model.truth(block), &mut truth);
        truth
    }

    fn load(&mut self, block: usize, weights: &[f64], _: &[(u32, f64)]) {
        self.local.load(self.model, block, weights);
    }

    fn load_at(&mut self, block: usize, parts: &[u32], weights: &[f64], _: &[(u32, f64)]) {
        let local = &mut self.local;
        local.load_costs(self.model, block);
        local.margins.clear();
        local.margins.resize(local.costs.len(), 0.0);
        self.model.scores_at(block, parts, weights, &mut local.margins);
        local.add_costs();
    }

    fn along(&self, _: &[f64], direction: &[(u32, f64)]) -> f64 {
        dot(&self.local.margins, direction)
    }

    fn vertex(&mut self, block: usize, _: &[f64], vertex: &mut Sparse) -> Result<()> {
        self.local.find(self.model, block);
        std::mem::swap(vertex, &mut self.local.vertex);
        Ok(())
    }

    fn curvature(&mut self, block: usize, direction: &[(u32, f64)]) -> f64 {
        self.image.clear();
        self.model.add_image(block, direction, 1.0, &mut self.image);
        self.importance(block) / self.lambda * self.image.squared_norm()
    }

    fn advance(&mut self, block: usize, _: &[(u32, f64)], step: f64, weights: &mut [f64]) {
        self.image.add_to(-step * self.importance(block) / self.lambda, weights);
    }

    fn linear(&mut self, block: usize, direction: &[(u32, f64)]) -> f64 {
        self.local.load_costs(self.model, block);
        dot(&self.local.costs, direction)
    }

    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<(Sparse, f64)>> {
        let problem: &Self = self;
        let ask = |local: &mut Local, block: &u32| {
            let example = *block as usize;
            if interrupt.is_raised() {
                return (Sparse::new(), 0.0);
            }
            local.load(problem.model, example, weights);
            let (loss, _) = local.find(problem.model, example);
            (local.vertex.clone(), problem.importance(example) * loss)
        };
        let blocks = blocks.par_iter().with_min_len(8);
        let found = blocks.map_init(Local::default, ask).collect();
        interrupt.check()?;
        Ok(found)
    }

    fn survey(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<Survey> {
        let problem: &Self = self;
        let look = |local: &mut Local, example: usize| {
            let share = problem.importance(example);
            if share == 0.0 || interrupt.is_raised() {
                return (0.0, 0.0, 0.0);
            }
            let point = points(example);
            let constant = local.load(problem.model, example, weights);
            let (loss, best) = local.find(problem.model, example);
            let linear = constant + dot(&local.costs, point);
            (share * loss, share * linear, share * (best - dot(&local.margins, point)))
        };
        let examples = (0..problem.model.n_examples()).into_par_iter().with_min_len(8);
        let terms = examples.map_init(Local::default, look).collect();
        interrupt.check()?;
        Ok(Survey::of(terms))
    }
}

impl DualOracle for Problem<'_> {
    fn n_weights(&self) -> usize {
        self.model.n_weights()
    }

    fn regularization(&self) -> (f64, f64) {
        (self.lambda, 0.0)
    }

    fn vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        _: bool,
        interrupt: &Interrupt,
    ) -> Result<Vertex> {
        let n_weights = self.model.n_weights();
        let new = || Group { image: Image::new(n_weights), ..Group::default() };
        let mut groups = std::mem::take(&mut self.groups);
        groups.resize_with(GROUPS, new);
        let problem: &Self = self;
        groups.par_iter_mut().enumerate().for_each(|(index, group)| {
            let bound = |index: usize| index * problem.model.n_examples() / GROUPS;
            group.visit(problem, bound(index)..bound(index + 1), weights, interrupt);
        });
        interrupt.check()?;
        image.fill(0.0);
        let mut sums = Vertex { loss: Some(0.0), ..Vertex::default() };
        for group in &groups {
            group.image.add_to(1.0, image);
            sums.add(&group.sums);
        }
        self.groups = groups;
        Ok(sums)
    }

    fn follow(&mut self, _: f64) {}
}

impl Group {
    /// Sums of the vertices of some examples.
    fn visit(
        &mut self,
        problem: &Problem<'_>,
        examples: std::ops::Range<usize>,
        weights: &[f64],
        interrupt: &Interrupt,
    ) {
        let (model, local) = (problem.model, &mut self.local);
        let (mut total, mut linear) = (0.0, 0.0);
        self.image.clear();
        for example in examples {
            let share = problem.importance(example);
            if share == 0.0 || interrupt.is_raised() {
                continue;
            }
            let constant = local.load(model, example, weights);
            let (loss, _) = local.find(model, example);
            total += share * loss;
            linear += share * (constant + dot(&local.costs, &local.vertex));
            sparse::subtract(&local.truth, &local.vertex, &mut local.direction);
            let scale = share / problem.lambda;
            model.add_image(example, &local.direction, scale, &mut self.image);
        }
        self.sums = Vertex { loss: Some(total), linear, ..Vertex::default() };
    }
}
