//! Where to start at another λ, from the optimum at one.
//!
//! The set of the dual points does not depend on λ, so any start is feasible. Where the optimum's β_i is at its
//! bound it mostly stays there, and its part of w grows like 1/λ. Where it is not, as for all examples of
//! separable data with λ small enough, it is the part of w that stays. Hence β at its bound is kept and the rest
//! is scaled, all by the one factor at which the dual is largest.

use num_traits::Zero;

use super::candidates::Candidates;
use super::dual_block::add_images;
use super::scorer::Scorer;
use super::state::{FIRST_STEPS, SHORTEST_WAIT, State};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::multiclass::ScoreMap;
use crate::run::Certificate;

impl<M: Scorer> State<'_, M> {
    /// Changes λ, and certifies the dual point to go on from. There must be no origin.
    pub fn move_to(&mut self, lambda: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let before = self.shares.lambda();
        self.set_lambda(lambda)?;
        if lambda < before && self.shares.smoothing() == 0.0 {
            self.scale_free(before / lambda, interrupt)?;
        }
        (self.gradient_steps, self.wait) = (FIRST_STEPS, SHORTEST_WAIT);
        self.gap_before = f64::INFINITY;
        self.certificate(interrupt)
    }

    /// Changes λ, but not the weights.
    pub fn set_lambda(&mut self, lambda: f64) -> Result<()> {
        self.shares.set_lambda(lambda)?;
        for dual in &mut self.duals {
            let example = dual.example as usize;
            dual.weight = self.shares.of(example) / lambda;
            dual.curvature = dual.weight * self.problem.map().row_size(example).norm.powi(2);
        }
        self.measure_blocks();
        Ok(())
    }

    /// Scales what of β is not at its bound, given what w is multiplied by if nothing is scaled.
    fn scale_free(&mut self, growth: f64, interrupt: &Interrupt) -> Result<()> {
        let mut free = Candidates::new(self.duals.len());
        let (mut linear, mut entries) = (0.0, Sparse::new());
        for at in 0..self.duals.len() {
            self.betas.scatter(at, &mut self.work.beta);
            self.clear_bounded(at);
            free.gather_above(at, &self.work.beta, &self.work.target, f64::INFINITY);
            self.work.beta.fill(M::Value::zero());
            let (classes, values) = free.row(at);
            entries.clear();
            entries.extend(classes.iter().copied().zip(values.iter().map(|value| value.widen())));
            let dual = &mut self.duals[at];
            // The certificate sums up all of β again.
            dual.sum = entries.iter().map(|(_, value)| value).sum();
            let example = dual.example as usize;
            linear += self.shares.of(example) * self.problem.linear_term(example, &entries);
        }
        let all: Vec<f64> = self.model.weights().iter().map(|w| growth * w.widen()).collect();
        self.model.clear();
        let duals = (&self.duals[..], &self.by_example[..]);
        add_images(self.problem, duals, &free, &mut self.model, interrupt)?;
        let (mut square, mut inner) = (0.0, 0.0);
        for (free, all) in self.model.weights().iter().zip(&all) {
            square += free.widen() * free.widen();
            inner += free.widen() * all;
        }
        // The dual at `scale` is linear·scale − λ/2 ‖(all − free) + scale·free‖² and a constant.
        let lambda = self.shares.lambda();
        let scale = 1.0 + (linear / lambda - inner) / square;
        if square > 0.0 && scale < 1.0 {
            self.scale_by(scale.max(0.0), &free);
        }
        Ok(())
    }

    /// Sets to 0 what of the dense row of β in the work space is at its bound.
    fn clear_bounded(&mut self, at: usize) {
        let dual = &self.duals[at];
        let whole = dual.settled || self.is_tight(dual.sum);
        let beta = &mut self.work.beta;
        if whole {
            beta.fill(M::Value::zero());
        } else if let Some(set) = self.problem.polytope().whole_box() {
            let bounded = |value: &&mut M::Value| value.widen() >= set.upper;
            beta.iter_mut().filter(bounded).for_each(|value| *value = M::Value::zero());
        }
    }

    /// Scales the entries of β that are in `free`: points of a set stay in it, since it holds 0.
    fn scale_by(&mut self, scale: f64, free: &Candidates<M::Value>) {
        for at in 0..self.duals.len() {
            free.scatter(at, &mut self.work.beta);
            let (classes, values) = self.betas.row_mut(at);
            for (class, value) in classes.iter().zip(values) {
                let part = &mut self.work.beta[*class as usize];
                if *part != M::Value::zero() {
                    (*value, *part) = (Real::narrow(scale * value.widen()), M::Value::zero());
                }
            }
        }
    }
}
