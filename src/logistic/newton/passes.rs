//! The interface between Newton's method and the rows of a problem.

use super::preconditioner::{HessianPart, Preconditioner};
use super::store::BlockSample;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::logistic::certificate::intercept_curvature;
use crate::logistic::{LogisticModel, LogisticProblem};
use crate::run::Certificate;

/// Passes over rows in units of their columns, in which the largest value of a column is about 1. If there is an
/// intercept, columns may be centred: W x + b = W (x − μ) + (b + W μ).
///
/// Weights, gradients and directions have a line for each output, with the intercept last.
pub(super) trait RowPasses {
    /// Changes the weights of the losses, as [`LogisticProblem::with_factor`] does.
    fn set_factor(&mut self, factor: f64) -> Result<()>;

    /// The problem.
    fn problem(&self) -> &LogisticProblem<'_>;
    /// A power of two for each column, at least as large as the column's centred values; 1 for the constant
    /// column.
    fn units(&self) -> &[f64];
    /// W μ for one output of W and the centres μ of the columns.
    fn shift(&self, _weights: &[f64]) -> f64 {
        0.0
    }
    /// All rows.
    fn all(&self) -> BlockSample;
    /// A sample of about this fraction of the rows.
    fn sample(&self, share: f64) -> BlockSample;
    /// Number of rows of a sample.
    fn n_rows(&self, sample: BlockSample) -> usize;
    /// Whether exact passes cost about as much as passes in single precision, which need a copy of the rows.
    fn is_direct(&self) -> bool {
        false
    }
    /// Whether preconditioners may be factorisations.
    fn has_factors(&self) -> bool;
    /// Cost of a product with the Hessian over all rows, in units of a multiplication of dense rows.
    fn product_cost(&self) -> f64 {
        2.6 * self.problem().n_examples() as f64 * self.len() as f64
    }
    /// Cost of the sums over a sample for a part of the Hessian, in the same units.
    fn sums_cost(&self, kind: HessianPart, sample: BlockSample) -> f64 {
        let (rows, width) = (self.n_rows(sample) as f64, self.width() as f64);
        let n_outputs = self.problem().n_outputs() as f64;
        let per_block = if kind == HessianPart::Full { 0.2 * n_outputs } else { 1.0 };
        rows * width * width * n_outputs * per_block
    }

    /// Returns Σ c_i loss_i over a sample and writes its gradient, both in single precision.
    fn pass(
        &mut self,
        weights: &[f64],
        sample: BlockSample,
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<f64>;

    /// [`Self::pass`] in double precision over all rows, with the certificate of the model with
    /// these weights; no certificate if the losses are not finite. To meet the intercept's constraint, the certificate
    /// changes the probabilities of the rows of a sample.
    fn certified_pass(
        &mut self,
        weights: &[f64],
        model_and_sample: (&LogisticModel, BlockSample),
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<(f64, Option<Certificate>)>;

    /// The certificate of the model of the last certified pass, with the current weights of the losses; None if another
    /// pass would be necessary.
    fn certificate(&self, _model: &LogisticModel) -> Option<Certificate> {
        None
    }

    /// Multiplies a direction by the losses' Hessian at the weights of the last pass, over a sample of the rows of that
    /// pass.
    fn product(
        &mut self,
        direction: &[f64],
        sample: BlockSample,
        product: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<()>;

    /// A preconditioner at the weights of the last pass. `penalties` is the diagonal of the regulariser's Hessian,
    /// one value for each column.
    fn preconditioner(
        &mut self,
        kind: HessianPart,
        sample: BlockSample,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Preconditioner>;

    /// Σ c_i (diag p_i − p_i p_iᵀ) over the outputs, after a certified pass at this model; empty if there are too many
    /// outputs.
    fn intercept_curvature(
        &mut self,
        model: &LogisticModel,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        intercept_curvature(self.problem(), model, interrupt)
    }

    /// Number of columns, the constant one included.
    fn width(&self) -> usize {
        self.units().len()
    }

    /// Number of values of a gradient.
    fn len(&self) -> usize {
        self.problem().n_outputs() * self.width()
    }
}
