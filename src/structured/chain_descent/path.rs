//! Regularisation paths over λ for the structured hinge loss of sequences.

use std::ops::ControlFlow;

use super::average::Average;
use super::{ChainDescent, DescentOptions};
use crate::dual::Shares;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::run::{Certificate, Epoch, Solver, Stopping, run};
use crate::solver::{PathSettings, PathSolver, Piece, Target, objective_at, path};
use crate::structured::model::Chain;

/// Computes certified models for all λ, from the λ of `shares` down to `until`.
///
/// # Errors
/// Errors of [`path`], and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for sequences
/// without labels.
pub fn chain_path(
    (chain, shares): (&Chain, Shares),
    until: f64,
    options: DescentOptions,
    target: Target,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Vec<Piece>> {
    let from = shares.lambda();
    let mut solver = ChainDescent::new((chain, shares), options, None, interrupt)?;
    let stopping = target.stopping(solver.loss_sum(interrupt)?);
    path(&mut solver, PathSettings { from, until, stopping }, interrupt, observe)
}

impl PathSolver for ChainDescent<'_> {
    fn solve(
        &mut self,
        lambda: f64,
        target: Stopping,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
    ) -> Result<(Certificate, usize)> {
        self.shares.set_lambda(lambda)?;
        self.relative = target.relative;
        self.recompute_weights(interrupt)?;
        self.average = Average::new(self.iterate.len());
        let trace = run(self, target, interrupt, observe)?;
        // Computing a certificate also stores the dual value. The certificates at all λ of this
        // piece of the path are derived from it.
        let certificate = match trace.certificate {
            Some(certificate) => certificate,
            None => self.certify(interrupt)?,
        };
        Ok((certificate, trace.epochs.len()))
    }

    fn certificate_at(&mut self, factor: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let scaled: Vec<f64> = self.weights.iter().map(|weight| weight * factor).collect();
        let model = std::mem::replace(&mut self.weights, scaled);
        let loss = self.loss_sum(interrupt)?;
        let primal = objective_at(factor, self.shares.lambda(), &self.weights, loss);
        self.weights = model;
        let dual = self.value.map_or(f64::NEG_INFINITY, |value| value.bound_at(factor));
        Ok(Certificate { primal, dual })
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
