//! Passes over blocks of rows that also store zeros. Preconditioners may factorise the Hessian.

use super::passes::RowPasses;
use super::preconditioner::{HessianPart, Preconditioner};
use super::store::{BlockSample, Store};
use super::tilt;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::logistic::{LogisticModel, LogisticProblem};
use crate::run::Certificate;

impl RowPasses for Store<'_> {
    fn set_factor(&mut self, factor: f64) -> Result<()> {
        Store::set_factor(self, factor)
    }

    fn problem(&self) -> &LogisticProblem<'_> {
        &self.layout.problem
    }

    fn units(&self) -> &[f64] {
        &self.layout.units
    }

    fn all(&self) -> BlockSample {
        Store::all(self)
    }

    fn sample(&self, share: f64) -> BlockSample {
        Store::sample(self, share)
    }

    fn n_rows(&self, sample: BlockSample) -> usize {
        Store::n_rows(self, sample)
    }

    fn has_factors(&self) -> bool {
        true
    }

    fn pass(
        &mut self,
        weights: &[f64],
        sample: BlockSample,
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<f64> {
        Ok(Store::pass(self, weights, sample, gradient, interrupt)?.loss)
    }

    fn certified_pass(
        &mut self,
        weights: &[f64],
        model: &LogisticModel,
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<(f64, Option<Certificate>)> {
        let totals = self.exact_pass(weights, gradient, interrupt)?;
        if !totals.loss.is_finite() {
            return Ok((totals.loss, None));
        }
        let found = tilt::certify(self, (weights, model), (totals, gradient), interrupt)?;
        Ok((totals.loss, Some(found)))
    }

    fn product(
        &mut self,
        direction: &[f64],
        sample: BlockSample,
        product: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        Store::product(self, direction, sample, product, interrupt)
    }

    fn intercept_curvature(
        &mut self,
        _: &LogisticModel,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let intercept = self.problem().intercept();
        if intercept { tilt::moments(self, interrupt) } else { Ok(Vec::new()) }
    }

    fn preconditioner(
        &mut self,
        kind: HessianPart,
        sample: BlockSample,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Preconditioner> {
        Preconditioner::new(self, kind, sample, penalties, interrupt)
    }
}
