//! Starts from a dual point, and from the optimum at another λ.
//!
//! The set of dual points does not depend on λ, so any start is feasible. If β_i is at a bound at
//! the old optimum, it mostly stays there, and its contribution to w grows like 1/λ. Otherwise, as
//! for all examples of separable data if λ is small enough, its contribution to w stays about the
//! same. Entries of β at a bound are therefore kept, and the others are scaled by one common factor
//! between 0 and 1, the one that maximises the dual.

use num_traits::Zero;

use super::candidates::Candidates;
use super::rows::WeightStore;
use super::schedule::are_steady;
use super::{BlockDescent, State};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::multiclass::ScoreMap;
use crate::run::Certificate;

/// Curvature below which a block counts as linear, because the slope divided by the curvature would overflow.
const VANISHING: f64 = 1e-250;

impl<M: WeightStore> State<'_, M> {
    /// Computes the weights and curvatures of the blocks for the λ of `shares`.
    pub(super) fn size_blocks(&mut self) {
        let (lambda, mut sum) = (self.shares.lambda(), 0.0);
        for block in &mut self.dual.blocks {
            let example = block.example as usize;
            block.weight = self.shares.of(example) / lambda;
            block.curvature = block.weight * self.problem.map().row_size(example).norm.powi(2);
            sum += block.weight * self.set.steepness(block);
        }
        // If the slopes of a block are off by δ, its gap is of order C δ, and a visit gains C δ²/2h.
        self.schedule.guess_ratio((2.0 * sum / self.dual.blocks.len() as f64).sqrt());
    }

    /// Sets each block without curvature (the row is 0 or nearly so) to its optimal vertex.
    pub(super) fn settle_linear_blocks(&mut self) {
        let (mut margins, mut vertex) = (vec![0.0; self.problem.n_classes()], Vec::new());
        for (at, block) in self.dual.blocks.iter_mut().enumerate() {
            if self.set.steepness(block) > VANISHING {
                continue;
            }
            block.settled = true;
            let (example, label) =
                (block.example as usize, self.problem.label(block.example as usize));
            margins.fill(0.0);
            self.problem.margins(example, &mut margins);
            vertex.clear();
            let scratch = &mut self.work.scratch;
            self.problem.polytope().vertex(&margins, label, scratch, &mut vertex);
            block.sum = vertex.iter().map(|(_, weight)| weight).sum();
            let entries = vertex.iter().map(|(class, weight)| (*class, Real::narrow(*weight)));
            self.dual.betas.replace(at, vertex.len(), entries);
        }
    }

    /// Scales the entries of β that are not at their bounds. `growth` is the factor by which w grows if nothing is
    /// scaled.
    fn scale_free(&mut self, growth: f64, interrupt: &Interrupt) {
        let mut free = Candidates::new(self.dual.blocks.len());
        let (mut linear, mut entries) = (0.0, Sparse::new());
        for at in 0..self.dual.blocks.len() {
            self.collect_free(at, &mut entries);
            let narrowed = entries.iter().map(|(class, beta)| (*class, Real::narrow(*beta)));
            free.replace(at, entries.len(), narrowed);
            let block = &mut self.dual.blocks[at];
            // The certificate recomputes the sum over all of β.
            block.sum = entries.iter().map(|(_, value)| value).sum();
            let example = block.example as usize;
            linear += self.shares.of(example) * self.problem.linear_term(example, &entries);
        }
        let all: Vec<f64> = self.store.weights().iter().map(|w| growth * w.widen()).collect();
        self.store.load(&[]);
        self.dual.add_images(self.problem, &free, &mut self.store, interrupt);
        if interrupt.is_raised() {
            return;
        }
        let (mut square, mut inner) = (0.0, 0.0);
        for (free, all) in self.store.weights().iter().zip(&all) {
            square += free.widen() * free.widen();
            inner += free.widen() * all;
        }
        // The dual at `scale` is linear·scale − λ/2 ‖(all − free) + scale·free‖² plus a constant.
        let scale = 1.0 + (linear / self.shares.lambda() - inner) / square;
        if square > 0.0 && scale < 1.0 {
            self.scale_by(scale.max(0.0), &free);
        }
    }

    /// Collects the entries of β_i that are not at their bounds.
    fn collect_free(&self, at: usize, entries: &mut Sparse) {
        entries.clear();
        let block = &self.dual.blocks[at];
        if block.settled || self.set.is_tight(block.sum) {
            return;
        }
        let upper = self.problem.polytope().whole_box().map_or(f64::INFINITY, |set| set.upper);
        let (classes, values) = self.dual.betas.row(at);
        let all = classes.iter().zip(values).map(|(class, value)| (*class, value.widen()));
        entries.extend(all.filter(|(_, beta)| *beta != 0.0 && *beta < upper));
    }

    /// Scales the entries of β that are in `free`, whose entries are in the same order. The points remain feasible,
    /// because the set contains 0 and is convex.
    fn scale_by(&mut self, scale: f64, free: &Candidates<M::Value>) {
        for at in 0..self.dual.blocks.len() {
            let mut scaled = free.row(at).0.iter().peekable();
            let (classes, values) = self.dual.betas.row_mut(at);
            for (class, value) in classes.iter().zip(values) {
                if scaled.next_if_eq(&class).is_some() {
                    *value = Real::narrow(scale * value.widen());
                }
            }
        }
    }
}

impl<M: WeightStore> BlockDescent for State<'_, M> {
    fn start_around(
        &mut self,
        origin: Vec<f64>,
        betas: &[f64],
        interrupt: &Interrupt,
    ) -> Result<()> {
        let m = self.problem.n_classes();
        let mut started = Candidates::new(self.dual.blocks.len());
        for (at, block) in self.dual.blocks.iter_mut().enumerate() {
            if block.settled {
                started.copy(at, &self.dual.betas);
                continue;
            }
            let start = &betas[block.example as usize * m..][..m];
            let entries = (0..).zip(start).map(|(class, beta)| (class, M::Value::narrow(*beta)));
            let entries = entries.filter(|(_, beta)| *beta != M::Value::zero());
            started.replace(at, m, entries);
            block.sum = started.row(at).1.iter().map(|beta| beta.widen()).sum();
        }
        self.dual.betas = started;
        (self.exact, self.dual.due) = (None, None);
        self.origin = origin;
        self.store.load(&self.origin);
        self.dual.add_images(self.problem, &self.dual.betas, &mut self.store, interrupt);
        interrupt.check()
    }

    fn begin_at(&mut self, lambda: f64) -> Result<()> {
        self.shares.set_lambda(lambda)?;
        self.size_blocks();
        Ok(())
    }

    fn begin(&mut self, interrupt: &Interrupt) -> Result<f64> {
        if !self.shrink || !self.is_at_zero() {
            return Ok(0.0);
        }
        let gains = self.first_epochs(interrupt)?;
        if !are_steady(&gains) {
            return Ok(0.0);
        }
        let gap = self.certificate(interrupt)?.gap() / self.shares.lambda();
        Ok(gap / gains[gains.len() - 1])
    }

    fn move_to(&mut self, lambda: f64, interrupt: &Interrupt) -> Result<Certificate> {
        let before = self.shares.lambda();
        self.begin_at(lambda)?;
        if lambda < before && self.shares.smoothing() == 0.0 {
            self.scale_free(before / lambda, interrupt);
        }
        self.schedule.restart(lambda > before);
        self.certificate(interrupt)
    }

    fn work(&self) -> f64 {
        self.schedule.work()
    }

    fn limit_work(&mut self, most: f64) {
        self.schedule.limit_work(most);
    }

    fn distance(&self) -> f64 {
        self.distance
    }

    fn betas(&self) -> Vec<f64> {
        let m = self.problem.n_classes();
        let mut betas = vec![0.0; self.problem.n_examples() * m];
        for (at, block) in self.dual.blocks.iter().enumerate() {
            let row = &mut betas[block.example as usize * m..][..m];
            let (classes, values) = self.dual.betas.row(at);
            for (class, value) in classes.iter().zip(values) {
                row[*class as usize] = value.widen();
            }
        }
        betas
    }
}
