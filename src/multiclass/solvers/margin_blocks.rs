//! Multi-category problems in the form that Newton's method needs. The dual variable is u = −α,
//! which is β off the label and −1ᵀβ at the label.

use std::sync::{Arc, OnceLock};

use crate::dual::{Curvatures, Shares};
use crate::error::Result;
use crate::linalg::{Design, Sparse};
use crate::multiclass::problem::{Bounds, ColumnScales};
use crate::multiclass::{MarginProblem, Workspace};
use crate::polytope::lifted;
use crate::run::Certificate;
use crate::solver::{Blocks, Proximal, Summed};

/// A multi-category problem in the form that Newton's method needs.
pub(in crate::multiclass) struct MarginBlocks<'p> {
    /// The problem.
    pub problem: &'p MarginProblem<'p>,
    /// The shares of the problem, possibly with another λ.
    shares: Shares,
    columns: Arc<OnceLock<ColumnScales>>,
}

impl<'p> MarginBlocks<'p> {
    /// Wraps a problem, and uses the problem's λ.
    pub fn new(problem: &'p MarginProblem<'p>) -> Self {
        Self { problem, shares: problem.shares().clone(), columns: Arc::default() }
    }

    /// The problem with another λ.
    ///
    /// # Errors
    /// As for [`Shares::set_lambda`].
    pub fn with_lambda(&self, lambda: f64) -> Result<Self> {
        let mut shares = self.shares.clone();
        shares.set_lambda(lambda)?;
        Ok(Self { problem: self.problem, shares, columns: Arc::clone(&self.columns) })
    }

    /// The scales of the columns, used in certificates. They are computed on first use, in two
    /// passes over the rows.
    fn columns(&self) -> &ColumnScales {
        self.columns.get_or_init(|| ColumnScales::of(self.problem))
    }
}

impl Blocks for MarginBlocks<'_> {
    type Work = BlockWork;
    type Terms = Bounds;

    fn design(&self) -> Design<'_> {
        self.problem.map().design()
    }

    fn n_parts(&self) -> usize {
        self.problem.n_classes()
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The sum of the linear terms of the vertices that attain the losses at w = 0, divided by the
    /// sum of the squared norms of these vertices. Both sums are weighted by the shares.
    fn unit_width(&self) -> f64 {
        let (mut margins, mut work) = (vec![0.0; self.problem.n_classes()], Workspace::default());
        let (mut linear, mut square) = (0.0, 0.0);
        for example in 0..self.problem.n_examples() {
            margins.fill(0.0);
            self.problem.margins(example, &mut margins);
            linear += self.problem.shares().of(example)
                * self.problem.vertex(example, &margins, &mut work);
            square += self.problem.shares().of(example) * lifted::squared_norm_of(&work.vertex);
        }
        // Without costs w = 0 is optimal, and any width works.
        if linear > 0.0 && square > 0.0 { linear / square } else { 1.0 }
    }

    fn maximise(
        &self,
        block: usize,
        scores: &[f64],
        proximal: Proximal<'_>,
        point: &mut [f64],
        work: &mut BlockWork,
    ) {
        // The maximiser of ⟨β, v⟩ − width/2 ‖α − centre‖² − γ/2 ‖α‖² is the projection of (v +
        // width (β + 1ᵀβ of the centre)) / (width + γ).
        let (label, Proximal { centre, width }) = (self.problem.label(block), proximal);
        let BlockWork { margins, work, .. } = work;
        margins.clear();
        margins.extend_from_slice(scores);
        self.problem.margins(block, margins);
        let (sum, inverse) = (-centre[label], 1.0 / (width + self.problem.shares().smoothing()));
        for (margin, beta) in margins.iter_mut().zip(centre) {
            *margin = (*margin + width * (beta + sum)) * inverse;
        }
        margins[label] = 0.0;
        self.problem.polytope().project(margins, label, 1.0, &mut work.scratch, point);
        point[label] = 0.0;
        point[label] = -point.iter().sum::<f64>();
    }

    fn add_terms(
        &self,
        block: usize,
        scores: &[f64],
        point: &[f64],
        terms: &mut Bounds,
        work: &mut BlockWork,
    ) {
        if self.problem.shares().of(block) == 0.0 {
            return;
        }
        let BlockWork { margins, beta, work } = work;
        margins.clear();
        margins.extend_from_slice(scores);
        self.problem.margins(block, margins);
        let own = (block, self.columns().size(block));
        terms.add_loss_of(self.problem, own, self.problem.loss(block, margins, work));
        beta.clear();
        let label = self.problem.label(block) as u32;
        let entries = (0..).zip(point).filter(|&(class, value)| class != label && *value != 0.0);
        beta.extend(entries.map(|(class, value)| (class, *value)));
        terms.add_dual_of(self.problem, &self.shares, own, beta);
    }

    fn certificate(
        &self,
        terms: &[Bounds],
        weights: &[f64],
        image: Summed<'_>,
    ) -> (Certificate, f64) {
        let mut bounds = Bounds::default();
        terms.iter().for_each(|terms| bounds.join(terms));
        let Summed { image, n_sums } = image;
        let lambda = self.shares.lambda();
        bounds.certificate_apart(self.problem, lambda, weights, (image, n_sums), self.columns())
    }

    fn curvature(
        &self,
        block: usize,
        point: &[f64],
        curvatures: &mut Curvatures,
        work: &mut BlockWork,
    ) {
        let (label, BlockWork { margins, work, .. }) = (self.problem.label(block), work);
        margins.clear();
        margins.extend_from_slice(point);
        margins[label] = 0.0;
        self.problem.polytope().curvature(margins, label, &mut work.scratch, curvatures);
    }
}

/// Buffers of a thread.
#[derive(Default)]
pub struct BlockWork {
    /// Margins, or the entries of β.
    margins: Vec<f64>,
    /// β as (class, value) pairs.
    beta: Sparse,
    work: Workspace,
}

/// Converts β (examples × classes, 0 at each example's label) to u.
pub(in crate::multiclass) fn points_of(
    problem: &MarginProblem<'_>,
    mut betas: Vec<f64>,
) -> Vec<f64> {
    for (example, beta) in betas.chunks_exact_mut(problem.n_classes()).enumerate() {
        beta[problem.label(example)] = -beta.iter().sum::<f64>();
    }
    betas
}

/// Converts u to β.
pub(in crate::multiclass) fn betas_of(
    problem: &MarginProblem<'_>,
    mut points: Vec<f64>,
) -> Vec<f64> {
    for (example, point) in points.chunks_exact_mut(problem.n_classes()).enumerate() {
        point[problem.label(example)] = 0.0;
    }
    points
}
