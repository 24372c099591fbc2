//! Passes over blocks of rows that also store zeros. Preconditioners may factorise the Hessian.

use super::passes::RowPasses;
use super::preconditioner::{HessianPart, Preconditioner};
use super::store::{BlockSample, Store};
use super::tilt::{self, CertifiedSums};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::logistic::{LogisticModel, LogisticProblem};
use crate::run::Certificate;

/// Rows in blocks, and the sums from which the last certificate was computed.
pub(super) struct BlockStore<'a> {
    store: Store<'a>,
    certified: Option<CertifiedSums>,
}

impl<'a> BlockStore<'a> {
    /// Stores the rows of a problem.
    pub fn new(problem: &LogisticProblem<'a>) -> Self {
        Self { store: Store::new(problem), certified: None }
    }
}

impl RowPasses for BlockStore<'_> {
    fn set_factor(&mut self, factor: f64) -> Result<()> {
        let ratio = self.store.set_factor(factor)?;
        if let Some(sums) = &mut self.certified {
            sums.rescale(ratio);
        }
        Ok(())
    }

    fn problem(&self) -> &LogisticProblem<'_> {
        &self.store.layout.problem
    }

    fn units(&self) -> &[f64] {
        &self.store.layout.units
    }

    fn shift(&self, weights: &[f64]) -> f64 {
        weights.iter().zip(&self.store.layout.centres).map(|(w, centre)| w * centre).sum()
    }

    fn all(&self) -> BlockSample {
        self.store.all()
    }

    fn sample(&self, share: f64) -> BlockSample {
        self.store.sample(share)
    }

    fn n_rows(&self, sample: BlockSample) -> usize {
        self.store.n_rows(sample)
    }

    fn is_direct(&self) -> bool {
        self.store.layout.is_direct()
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
        Ok(self.store.pass(weights, sample, gradient, interrupt)?.loss)
    }

    fn certified_pass(
        &mut self,
        weights: &[f64],
        (model, tilted): (&LogisticModel, BlockSample),
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<(f64, Option<Certificate>)> {
        let totals = self.store.exact_pass(weights, gradient, interrupt)?;
        if !totals.loss.is_finite() {
            return Ok((totals.loss, None));
        }
        let rows = (&mut self.store, tilted);
        let sums = CertifiedSums::new(rows, weights, (totals, gradient), interrupt)?;
        let found = sums.certificate(&self.store, model);
        self.certified = Some(sums);
        Ok((totals.loss, Some(found)))
    }

    fn certificate(&self, model: &LogisticModel) -> Option<Certificate> {
        self.certified.as_ref().map(|sums| sums.certificate(&self.store, model))
    }

    fn product(
        &mut self,
        direction: &[f64],
        sample: BlockSample,
        product: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.store.product(direction, sample, product, interrupt)
    }

    fn intercept_curvature(
        &mut self,
        _: &LogisticModel,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let intercept = self.problem().intercept();
        let all = self.store.all();
        if intercept { tilt::moments(&mut self.store, all, interrupt) } else { Ok(Vec::new()) }
    }

    fn preconditioner(
        &mut self,
        kind: HessianPart,
        sample: BlockSample,
        penalties: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Preconditioner> {
        Preconditioner::new(&mut self.store, kind, sample, penalties, interrupt)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::super::scaled;
    use super::*;
    use crate::data::{Data, Dense};

    #[test]
    fn a_changed_factor_gives_the_certificate_of_a_new_pass() {
        let (n, d, interrupt) = (700, 5, Interrupt::default());
        let rows = Array2::from_shape_fn((n, d), |(i, j)| {
            ((7 * i + 3 * j + i * i * (j + 1)) % 11) as f64 / 5.0 - 1.0
        });
        let data = Data::Dense64(Dense::new(rows.view()).unwrap());
        for (n_classes, intercept) in [(2, false), (2, true), (3, false), (3, true)] {
            let labels: Vec<u32> = (0..n).map(|i| (i % n_classes) as u32).collect();
            let weights = (0..n).map(|i| 0.5 + (i % 5) as f64).collect();
            let problem =
                LogisticProblem::new(data, &labels, n_classes, weights, intercept).unwrap();
            let mut model = problem.zero_model();
            model.weights.iter_mut().zip(1..).for_each(|(w, at)| *w = 0.02 * f64::from(at).sin());
            model.intercepts[0] = if intercept { 0.01 } else { 0.0 };
            let pass = |store: &mut BlockStore<'_>| {
                let weights = scaled(store, &model);
                let model = (&model, store.all());
                let found = store.certified_pass(&weights, model, &mut Vec::new(), &interrupt);
                found.unwrap().1.unwrap()
            };
            let mut store = BlockStore::new(&problem);
            pass(&mut store);
            assert_eq!(store.certified.as_ref().unwrap().has_tilt(), intercept);
            for factor in [0.01, 0.003, 0.03] {
                store.set_factor(factor).unwrap();
                let found = store.certificate(&model).unwrap();
                let expected = pass(&mut BlockStore::new(&problem.with_factor(factor).unwrap()));
                assert!((found.primal - expected.primal).abs() <= 1e-12 * expected.primal);
                assert!((found.dual - expected.dual).abs() <= 1e-9 * expected.primal);
                assert!(found.dual > 0.1 * expected.primal, "{found:?}");
            }
        }
    }
}
