//! Regularised multi-category loss minimisation: examples × polytope × costs × λ (SPEC 10).
//!
//! P(w) = λ/2 ‖w‖² + Σ_i p_i Φ(A_i w; y_i), the p_i being sample weights scaled to the sum 1 (1/n when
//! there are none), and its dual D(α) = Σ_i p_i ⟨Δ_i, β_i⟩ − λ/2 ‖w(α)‖² − γ/2 Σ_i p_i ‖α_i‖², where
//! w(α) = (1/λ) Σ_i p_i A_iᵀ α_i and α_i = −β_i off the label, 1ᵀβ_i at the label.

use rayon::prelude::*;

use crate::data::Real;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::multiclass::FeatureMap;
use crate::polytope::moreau::envelope;
use crate::polytope::{Polytope, Scratch};

/// Examples whose scores are computed together.
pub(crate) const BLOCK: usize = 64;

/// What predicting class j costs where the label is y (Δ of SPEC 10); 0 at the label.
#[derive(Debug, Clone, PartialEq)]
pub enum Costs {
    /// 1 off the label.
    Unit,
    /// A row of costs for each label (classes × classes).
    PerLabel(Vec<f64>),
    /// A row of costs for each example (examples × classes).
    PerExample(Vec<f64>),
}

/// A training problem: what is to be minimised, and nothing of how.
pub struct Problem<'a> {
    /// From weights to scores.
    pub features: Box<dyn FeatureMap + 'a>,
    /// λ of SPEC 10.
    pub lambda: f64,
    /// γ of the Moreau envelope (SPEC 10.3); 0 leaves the loss as it is.
    pub smoothing: f64,
    polytope: Box<dyn Polytope>,
    labels: &'a [u32],
    costs: Costs,
    importance: Option<Vec<f64>>,
}

/// Buffers for one example at a time.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The polytope's own.
    pub scratch: Scratch,
    /// A vertex β as (class, weight) pairs.
    pub vertex: Sparse,
    beta: Vec<f64>,
}

impl<'a> Problem<'a> {
    /// A problem with unit costs, equal weights and no smoothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for labels that do not fit the examples or the classes, a polytope
    /// that does not exist for so many classes, and λ that is not positive.
    pub fn new(
        features: Box<dyn FeatureMap + 'a>,
        labels: &'a [u32],
        polytope: Box<dyn Polytope>,
        lambda: f64,
    ) -> Result<Self> {
        if labels.len() != features.n_examples() {
            return Err(Error::argument("y", "must have one label for each row of X"));
        }
        if labels.is_empty() {
            return Err(Error::argument("X", "must have at least one row"));
        }
        if labels.iter().any(|label| *label as usize >= features.n_parts()) {
            return Err(Error::argument("y", "a label is not below the number of classes"));
        }
        if !(lambda > 0.0 && lambda.is_finite()) {
            return Err(Error::argument("lambda", "must be positive and finite"));
        }
        polytope.check(features.n_parts())?;
        let (costs, importance) = (Costs::Unit, None);
        Ok(Self { features, lambda, smoothing: 0.0, polytope, labels, costs, importance })
    }

    /// Sets the costs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is a finite non-negative cost for each row and class,
    /// with 0 at the label.
    pub fn with_costs(mut self, costs: Costs) -> Result<Self> {
        let n_classes = self.features.n_parts();
        let (values, n_rows) = match &costs {
            Costs::Unit => return Ok(self),
            Costs::PerLabel(values) => (values, n_classes),
            Costs::PerExample(values) => (values, self.labels.len()),
        };
        let fail = |message: String| Err(Error::argument("costs", message));
        if values.len() != n_rows * n_classes {
            return fail(format!("must have {n_rows} rows and {n_classes} columns"));
        }
        if !values.iter().all(|cost| *cost >= 0.0 && cost.is_finite()) {
            return fail("must be finite and not negative".into());
        }
        self.costs = costs;
        if (0..self.labels.len()).any(|example| self.cost(example, self.label(example)) != 0.0) {
            return fail("the cost of the right class must be 0".into());
        }
        Ok(self)
    }

    /// Sets sample weights; only their ratios count.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless they are finite and non-negative, one for each example, and
    /// not all zero.
    pub fn with_sample_weights(mut self, weights: &[f64]) -> Result<Self> {
        self.importance = Some(shares(weights, self.labels.len())?);
        Ok(self)
    }

    /// Replaces the loss by its Moreau envelope with parameter γ (SPEC 10.4).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless γ is finite and not negative.
    pub fn with_smoothing(mut self, smoothing: f64) -> Result<Self> {
        if !(smoothing >= 0.0 && smoothing.is_finite()) {
            return Err(Error::argument("smoothing", "must be finite and not negative"));
        }
        self.smoothing = smoothing;
        Ok(self)
    }

    /// Number of examples.
    pub fn n_examples(&self) -> usize {
        self.labels.len()
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        self.features.n_parts()
    }

    /// The label of an example.
    pub fn label(&self, example: usize) -> usize {
        self.labels[example] as usize
    }

    /// p_i, the example's share of the loss.
    pub fn importance(&self, example: usize) -> f64 {
        self.importance.as_ref().map_or(1.0 / self.labels.len() as f64, |weights| weights[example])
    }

    /// Δ_ij.
    pub fn cost(&self, example: usize, class: usize) -> f64 {
        let (label, n_classes) = (self.label(example), self.features.n_parts());
        match &self.costs {
            Costs::Unit => f64::from(class != label),
            Costs::PerLabel(costs) => costs[label * n_classes + class],
            Costs::PerExample(costs) => costs[example * n_classes + class],
        }
    }

    /// Δ_i, or none for 1 off the label.
    pub fn cost_row(&self, example: usize) -> Option<&[f64]> {
        let m = self.features.n_parts();
        let (costs, row) = match &self.costs {
            Costs::Unit => return None,
            Costs::PerLabel(costs) => (costs, self.label(example)),
            Costs::PerExample(costs) => (costs, example),
        };
        Some(&costs[row * m..][..m])
    }

    /// The set whose support function is the loss.
    pub fn polytope(&self) -> &dyn Polytope {
        &*self.polytope
    }

    /// Whether the sum of a β whose values have that precision cannot rise further.
    pub(crate) fn is_tight(&self, sum: f64, epsilon: f64) -> bool {
        sum >= self.polytope.radius(self.n_classes()) * (1.0 - 64.0 * epsilon)
    }

    /// Turns scores s into margins v_j = Δ_j + s_j − s_y (SPEC 10).
    pub fn margins(&self, example: usize, scores: &mut [f64]) {
        let (label, n_classes) = (self.label(example), scores.len());
        let score = scores[label];
        let mut add = |costs: &[f64]| {
            scores.iter_mut().zip(costs).for_each(|(margin, cost)| *margin += cost - score);
        };
        match &self.costs {
            Costs::Unit => scores.iter_mut().for_each(|margin| *margin += 1.0 - score),
            Costs::PerLabel(costs) => add(&costs[label * n_classes..]),
            Costs::PerExample(costs) => add(&costs[example * n_classes..]),
        }
        scores[label] = 0.0;
    }

    /// A vertex of B that attains the support value at the margins; it is left in the workspace.
    pub fn vertex(&self, example: usize, margins: &[f64], work: &mut Workspace) -> f64 {
        work.vertex.clear();
        let (label, vertex) = (self.label(example), &mut work.vertex);
        self.polytope.vertex(margins, label, &mut work.scratch, vertex)
    }

    /// Φ at the margins, or with smoothing its Moreau envelope (SPEC 10.4).
    pub fn loss(&self, example: usize, margins: &[f64], work: &mut Workspace) -> f64 {
        let label = self.label(example);
        if self.smoothing == 0.0 {
            return self.polytope.support(margins, label, &mut work.scratch);
        }
        // Every set holds 0 and is non-negative, so 0 is best where no margin is positive.
        if margins.iter().all(|margin| *margin <= 0.0) {
            work.beta.clear();
            work.beta.resize(margins.len(), 0.0);
            return 0.0;
        }
        work.beta.resize(margins.len(), 0.0);
        let (scratch, beta) = (&mut work.scratch, &mut work.beta);
        envelope(&*self.polytope, margins, label, self.smoothing, scratch, beta)
    }

    /// The β of a subgradient of the (smoothed) loss at the margins; it is left in the workspace's vertex.
    pub fn subgradient(&self, example: usize, margins: &[f64], work: &mut Workspace) {
        if self.smoothing == 0.0 {
            self.vertex(example, margins, work);
            return;
        }
        self.loss(example, margins, work);
        work.vertex.clear();
        let positive = (0..).zip(work.beta.iter().copied()).filter(|(_, weight)| *weight > 0.0);
        work.vertex.extend(positive);
    }

    /// ⟨Δ_i, β⟩, what a dual point adds to the dual objective's linear term; β as (class, weight) pairs.
    pub fn linear_term(&self, example: usize, beta: &[(u32, f64)]) -> f64 {
        beta.iter().map(|&(class, weight)| weight * self.cost(example, class as usize)).sum()
    }

    /// ⟨Δ_i, β⟩ − γ/2 (‖β‖² + (1ᵀβ)²), what a dual point adds to the dual objective beside the
    /// regulariser; β one number per class, `sum` being 1ᵀβ.
    pub(crate) fn dual_term<T: Real>(&self, example: usize, beta: &[T], sum: f64) -> f64 {
        let linear = match self.cost_row(example) {
            None => sum,
            Some(costs) => beta.iter().zip(costs).map(|(beta, cost)| beta.widen() * cost).sum(),
        };
        if self.smoothing == 0.0 {
            return linear;
        }
        let squares: f64 = beta.iter().map(|beta| beta.widen().powi(2)).sum();
        linear - 0.5 * self.smoothing * (squares + sum * sum)
    }

    /// scale · α as (class, value) pairs for a β given so.
    pub fn dual<'b>(
        &self,
        example: usize,
        beta: &'b [(u32, f64)],
        scale: f64,
    ) -> impl Iterator<Item = (u32, f64)> + use<'b> {
        let sum: f64 = beta.iter().map(|(_, weight)| weight).sum();
        let at_label = (self.label(example) as u32, scale * sum);
        let label = (!beta.is_empty()).then_some(at_label);
        beta.iter().map(move |&(class, weight)| (class, -scale * weight)).chain(label)
    }

    /// Σ_i p_i Φ(A_i w; y_i).
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn mean_loss(&mut self, weights: &[f64], interrupt: &Interrupt) -> Result<f64> {
        let share = |example: usize, margins: &[f64], work: &mut Workspace, problem: &Self| {
            problem.importance(example) * problem.loss(example, margins, work)
        };
        let shares = self.for_margins(weights, interrupt, share)?;
        // Blocks are summed first: the sum is the same however the caller splits the examples.
        Ok(shares.chunks(BLOCK).map(|block| block.iter().sum::<f64>()).sum())
    }

    /// What `look` makes of the margins of each example that has a share; in parallel, the scores of a
    /// block of examples at a time. The others get the default.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn for_margins<R: Default + Clone + Send>(
        &mut self,
        weights: &[f64],
        interrupt: &Interrupt,
        look: impl Fn(usize, &[f64], &mut Workspace, &Self) -> R + Sync,
    ) -> Result<Vec<R>> {
        self.features.load(weights);
        let problem: &Self = self;
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let mut results = vec![R::default(); n];
        results.par_chunks_mut(BLOCK).enumerate().for_each_init(
            || (vec![0.0; BLOCK * m], Workspace::default()),
            |(scores, work), (block, results)| {
                if interrupt.is_raised() {
                    return;
                }
                let first = block * BLOCK;
                let scores = &mut scores[..results.len() * m];
                problem.features.scores(first..first + results.len(), scores);
                for (offset, result) in results.iter_mut().enumerate() {
                    let (example, margins) = (first + offset, &mut scores[offset * m..][..m]);
                    if problem.importance(example) > 0.0 {
                        problem.margins(example, margins);
                        *result = look(example, margins, work, problem);
                    }
                }
            },
        );
        interrupt.check()?;
        Ok(results)
    }

    /// P(0), the objective of the model that knows nothing: the unit of relative tolerances.
    pub fn null_objective(&self) -> f64 {
        let mut work = Workspace::default();
        let mut scores = vec![0.0; self.n_classes()];
        let mut known = vec![None; self.n_classes()];
        let per_label = !matches!(self.costs, Costs::PerExample(_));
        let mut loss = |example: usize| {
            scores.fill(0.0);
            self.margins(example, &mut scores);
            self.loss(example, &scores, &mut work)
        };
        let shares = (0..self.n_examples()).map(|example| {
            let slot = &mut known[self.label(example)];
            let loss = match *slot {
                Some(loss) if per_label => loss,
                _ => *slot.insert(loss(example)),
            };
            self.importance(example) * loss
        });
        shares.sum()
    }
}

/// Sample weights scaled to the sum 1.
///
/// # Errors
/// [`Error::InvalidArgument`] unless they are finite and non-negative, one for each example, and not all
/// zero.
pub(crate) fn shares(weights: &[f64], n_examples: usize) -> Result<Vec<f64>> {
    let fail = |message: &str| Err(Error::argument("sample_weight", message));
    let total: f64 = weights.iter().sum();
    if weights.len() != n_examples {
        return fail("must have one weight for each row of X");
    }
    if !weights.iter().all(|weight| *weight >= 0.0 && weight.is_finite()) || total.is_infinite() {
        return fail("must be finite and not negative");
    }
    if total <= 0.0 {
        return fail("at least one weight must be positive");
    }
    Ok(weights.iter().map(|weight| weight / total).collect())
}
