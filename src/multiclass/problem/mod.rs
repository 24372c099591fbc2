//! Regularised multi-category loss minimisation. A problem combines examples, a polytope, costs and λ.
//!
//! P(w) = λ/2 ‖w‖² + Σ_i p_i Φ(A_i w; y_i), and its dual D(α) = Σ_i p_i ⟨Δ_i, β_i⟩ − λ/2 ‖w(α)‖² −
//! γ/2 Σ_i p_i ‖α_i‖², where w(α) = (1/λ) Σ_i p_i A_iᵀ α_i and α_i = −β_i off the label, 1ᵀβ_i at the label
//! (`docs/mathematics/duality.md`).

mod batch;
mod bounds;
mod column_scales;
mod costs;
mod dual;
mod layout;
mod linear;
mod map;
mod row_stats;

pub(super) use bounds::Bounds;
pub(super) use column_scales::{ColumnScales, largest_of_columns};
pub use costs::Costs;
pub use dual::MarginDual;
pub use layout::{Layout, Order};
pub use linear::Linear;
pub use map::{RowSize, ScoreMap};

use crate::dual::rounding::{Sum, gamma, norm_above, underflow};
use crate::dual::{Bounded, Scales, Shares};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::parallel::{map_items_with, min_len};
use crate::polytope::moreau::envelope;
use crate::polytope::{Polytope, Scratch};

/// Number of examples whose scores are computed together.
const BLOCK_EXAMPLES: usize = 64;

/// A training problem, independent of the solver. The features are given by a [`ScoreMap`].
pub struct MarginProblem<'a, M = Linear<'a>> {
    map: M,
    shares: Shares,
    polytope: Box<dyn Polytope>,
    labels: &'a [u32],
    costs: Costs,
}

/// Sums over examples, weighted by their shares p_i. cost_i and feature_i are the [`Scales`] of an example. The sums
/// bound the rounding error of the sum of the losses.
#[derive(Debug, Clone, Copy, Default)]
struct LossSizes {
    /// The sum of the shares, Σ p_i.
    pub share: f64,
    /// Σ p_i cost_i.
    pub cost: f64,
    /// Σ p_i feature_i.
    pub feature: f64,
    /// Σ p_i feature_i n_i, where n_i bounds the number of times that a term of a score is rounded.
    pub rounded: f64,
    /// The largest number of products in a score.
    pub n_products: usize,
}

/// Buffers for one example at a time.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The polytope's buffers.
    pub scratch: Scratch,
    /// A vertex β as (class, weight) pairs.
    pub vertex: Sparse,
    beta: Vec<f64>,
}

impl<'a, M: ScoreMap> MarginProblem<'a, M> {
    /// Creates a problem with unit costs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a map without classes or weights, labels that do not match the rows or the
    /// classes, a polytope that does not exist for this number of classes, and shares for a different number of
    /// examples; errors of [`Shares::check_range`].
    pub fn new(
        map: M,
        labels: &'a [u32],
        polytope: Box<dyn Polytope>,
        shares: Shares,
    ) -> Result<Self> {
        if map.n_classes() == 0 {
            return Err(Error::argument("n_classes", "must be at least 1"));
        }
        if map.n_weights() == 0 {
            return Err(Error::argument("X", "must have at least one column, or an intercept"));
        }
        if labels.len() != map.n_examples() || labels.len() != shares.n_blocks() {
            return Err(Error::argument("y", "must have one label for each row of X"));
        }
        if labels.iter().any(|label| *label as usize >= map.n_classes()) {
            return Err(Error::argument("y", "labels must be below the number of classes"));
        }
        polytope.check(map.n_classes())?;
        // Rows with values that are not finite are ignored here; another check reports them.
        let norms = (0..labels.len()).map(|example| map.row_size(example).norm);
        let norms = norms.filter(|norm| norm.is_finite());
        let shares = shares.with_features(norms)?;
        Ok(Self { map, shares, polytope, labels, costs: Costs::Unit })
    }

    /// Sets the costs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is a finite non-negative cost for each row and class,
    /// with 0 at the label.
    pub fn with_costs(mut self, costs: Costs) -> Result<Self> {
        costs.check(self.labels, self.n_classes())?;
        self.costs = costs;
        Ok(self)
    }

    /// The map from weights to scores.
    pub fn map(&self) -> &M {
        &self.map
    }

    fn map_mut(&mut self) -> &mut M {
        &mut self.map
    }

    /// The regularisation λ, the smoothing γ and the shares p_i of the examples.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// λ, γ and the p_i, mutable so that λ can be changed.
    pub fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// Number of examples.
    pub fn n_examples(&self) -> usize {
        self.labels.len()
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        self.map.n_classes()
    }

    /// The label of an example.
    #[inline]
    pub fn label(&self, example: usize) -> usize {
        self.labels[example] as usize
    }

    /// The costs Δ_i of an example; None means a cost of 1 for every class except the label.
    #[inline]
    pub fn cost_row(&self, example: usize) -> Option<&[f64]> {
        self.costs.row(example, self.label(example), self.n_classes())
    }

    /// The set whose support function is the loss.
    pub fn polytope(&self) -> &dyn Polytope {
        &*self.polytope
    }

    /// The smallest sum of β that counts as the largest possible sum if β is stored with precision `epsilon`.
    pub(crate) fn tight_sum(&self, epsilon: f64) -> f64 {
        self.polytope.radius(self.n_classes()) * (1.0 - 64.0 * epsilon)
    }

    /// Converts scores s to margins v_j = Δ_j + s_j − s_y.
    pub fn margins(&self, example: usize, scores: &mut [f64]) {
        let label = self.label(example);
        let score = scores[label];
        match self.cost_row(example) {
            None => scores.iter_mut().for_each(|margin| *margin += 1.0 - score),
            Some(costs) => {
                scores.iter_mut().zip(costs).for_each(|(margin, cost)| *margin += cost - score);
            }
        }
        scores[label] = 0.0;
    }

    /// Computes a vertex of B that attains the support value at the margins, and stores it in the workspace. Returns
    /// the support value.
    pub fn vertex(&self, example: usize, margins: &[f64], work: &mut Workspace) -> f64 {
        work.vertex.clear();
        let (label, vertex) = (self.label(example), &mut work.vertex);
        self.polytope.vertex(margins, label, &mut work.scratch, vertex)
    }

    /// Φ at the margins or, with smoothing, its Moreau envelope.
    #[inline]
    pub fn loss(&self, example: usize, margins: &[f64], work: &mut Workspace) -> f64 {
        let label = self.label(example);
        if self.shares.smoothing() == 0.0 {
            return self.polytope.support(margins, label, &mut work.scratch);
        }
        // Every set contains 0 and only non-negative points, so 0 is optimal if no margin is positive.
        if margins.iter().all(|margin| *margin <= 0.0) {
            work.beta.clear();
            work.beta.resize(margins.len(), 0.0);
            return 0.0;
        }
        work.beta.resize(margins.len(), 0.0);
        let (scratch, beta) = (&mut work.scratch, &mut work.beta);
        envelope(&*self.polytope, margins, label, self.shares.smoothing(), scratch, beta)
    }

    /// Computes the β of a subgradient of the (smoothed) loss at the margins and stores it as the workspace's vertex.
    /// Returns the loss.
    pub fn subgradient(&self, example: usize, margins: &[f64], work: &mut Workspace) -> f64 {
        if self.shares.smoothing() == 0.0 {
            return self.vertex(example, margins, work);
        }
        let loss = self.loss(example, margins, work);
        work.vertex.clear();
        let positive = (0..).zip(work.beta.iter().copied()).filter(|(_, weight)| *weight > 0.0);
        work.vertex.extend(positive);
        loss
    }

    /// The sizes of an example's linear functions of β, given the size of its row. The feature size has a factor of √2
    /// because A_iᵀ acts on the entries of β and their sum.
    pub(in crate::multiclass) fn scales(&self, example: usize, size: RowSize) -> Scales {
        let feature = std::f64::consts::SQRT_2 * size.norm * (1.0 + gamma(2));
        Scales {
            cost: self.largest_cost(example),
            feature,
            n_features: size.n_products,
            adds_terms: self.map().adds_terms(),
        }
    }

    /// The largest cost of an example, max_j Δ_ij.
    fn largest_cost(&self, example: usize) -> f64 {
        let costs = self.cost_row(example);
        costs.map_or(1.0, |row| row.iter().copied().fold(0.0, f64::max))
    }

    /// A bound on the rounding error of [`MarginProblem::loss`] if the scores are computed with the rounding unit
    /// `epsilon`/2 from weights with a norm of at most `norm`. Φ changes by at most the largest 1ᵀβ of the polytope
    /// times the largest change of a margin.
    #[inline]
    fn loss_error(&self, example: usize, size: RowSize, norm: f64, epsilon: f64) -> f64 {
        let Scales { cost, feature, n_features: n_products, .. } = self.scales(example, size);
        let rounded = (size.n_values + 8) as f64 * feature;
        let sizes = LossSizes { share: 1.0, cost, feature, rounded, n_products };
        self.losses_error(&sizes, norm, epsilon)
    }

    /// A bound on the error of Σ_i p_i Φ_i over some examples. The bound is linear in the sizes of the examples.
    fn losses_error(&self, sizes: &LossSizes, norm: f64, epsilon: f64) -> f64 {
        let LossSizes { share, cost, feature, rounded, n_products } = *sizes;
        let (radius, m) = (self.polytope.radius(self.n_classes()), self.n_classes());
        let margin = cost + feature * norm + 4.0 * self.shares.smoothing() * radius * share;
        let rounded = rounded * norm * epsilon + gamma(2 * m + 16) * margin;
        radius
            * (rounded + underflow(4.0 * (n_products + m) as f64 * (share + feature)))
            * (1.0 + gamma(16))
    }

    /// ⟨Δ_i, β⟩, the contribution of a dual point to the linear term of the dual objective.
    #[inline]
    pub fn linear_term(&self, example: usize, beta: &[(u32, f64)]) -> f64 {
        let (row, label) = (self.cost_row(example), self.labels[example]);
        let cost = |class: u32| row.map_or(f64::from(class != label), |row| row[class as usize]);
        beta.iter().map(|&(class, weight)| weight * cost(class)).sum()
    }

    /// The mean loss Σ_i p_i Φ(A_i w; y_i), with a bound on its rounding error.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn mean_loss(&mut self, weights: &[f64], interrupt: &Interrupt) -> Result<Bounded> {
        let norm = norm_above(weights);
        let share = |example: usize, margins: &[f64], work: &mut Workspace, problem: &Self| {
            problem.bounded_loss(example, margins, norm, work)
                * Bounded::exact(problem.shares.of(example))
        };
        let shares = self.for_margins(weights, interrupt, share)?;
        Ok(shares.into_iter().collect::<Sum>().total())
    }

    /// Φ at margins from exact scores, with a bound on its rounding error; the weights have a norm of at most `norm`.
    #[inline]
    fn bounded_loss(
        &self,
        example: usize,
        margins: &[f64],
        norm: f64,
        work: &mut Workspace,
    ) -> Bounded {
        let size = self.map.row_size(example);
        let error = self.loss_error(example, size, norm, f64::EPSILON);
        Bounded::new(self.loss(example, margins, work), error)
    }

    /// Applies `map` to the margins of each example with a positive share. The margins are in double precision for rows
    /// of any precision, and are computed in parallel, a block of examples at a time. Other examples get the default
    /// value of R.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn for_margins<R: Default + Clone + Send>(
        &mut self,
        weights: &[f64],
        interrupt: &Interrupt,
        map: impl Fn(usize, &[f64], &mut Workspace, &Self) -> R + Sync,
    ) -> Result<Vec<R>> {
        self.map.load_exact(weights);
        let problem: &Self = self;
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let mut results = vec![R::default(); n];
        let n_numbers = BLOCK_EXAMPLES * problem.map.cost() / n.max(1);
        map_items_with(
            results.chunks_mut(BLOCK_EXAMPLES).enumerate(),
            min_len(n_numbers),
            || (vec![0.0; BLOCK_EXAMPLES * m], Vec::new(), Workspace::default()),
            |(scores, buffer, work), (block, results)| {
                if interrupt.is_raised() {
                    return;
                }
                let first = block * BLOCK_EXAMPLES;
                let scores = &mut scores[..results.len() * m];
                problem.map.exact_scores(first..first + results.len(), buffer, scores);
                for (offset, result) in results.iter_mut().enumerate() {
                    let (example, margins) = (first + offset, &mut scores[offset * m..][..m]);
                    if problem.shares.of(example) > 0.0 {
                        problem.margins(example, margins);
                        *result = map(example, margins, work, problem);
                    }
                }
            },
        );
        interrupt.check()?;
        Ok(results)
    }

    /// P(0), the objective at w = 0. A gap of the size of its rounding errors counts as 0.
    pub fn null_objective(&self) -> Bounded {
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
            if loss == 0.0 {
                return Bounded::default();
            }
            let error = self.loss_error(example, self.map.row_size(example), 0.0, f64::EPSILON);
            Bounded::new(loss, error) * Bounded::exact(self.shares.of(example))
        });
        shares.collect::<Sum>().total()
    }
}
