//! Stochastic subgradient on any block dual: the baseline for structured problems (SPEC 15).

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::dual::BlockDual;
use super::squared_norm;
use crate::error::Result;
use crate::run::{Certificate, Interrupt, Progress, Solver};
use crate::structured::{Sparse, sparse};

/// w ← (1 − 1/t) w + (1/t) w(u) over randomly permuted blocks, u the vertex that the block's oracle
/// finds (Pegasos). After whole epochs w = w(μ) for the mean μ of the vertices seen, which gives the dual.
pub struct BlockSubgradient<D> {
    dual: D,
    random: Pcg64Mcg,
    order: Vec<u32>,
    weights: Vec<f64>,
    steps: f64,
    linear: f64,
    best_dual: f64,
    vertex: Sparse,
    direction: Sparse,
}

impl<D: BlockDual> BlockSubgradient<D> {
    /// Starts at 0.
    pub fn new(dual: D, seed: u64) -> Self {
        Self {
            random: Pcg64Mcg::new(u128::from(seed)),
            order: (0..dual.n_blocks() as u32).collect(),
            weights: vec![0.0; dual.n_weights()],
            steps: 0.0,
            linear: 0.0,
            best_dual: 0.0,
            vertex: Sparse::new(),
            direction: Sparse::new(),
            dual,
        }
    }

    /// w.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    fn step(&mut self, block: usize) -> Result<()> {
        self.steps += 1.0;
        let rate = 1.0 / self.steps;
        let start = self.dual.start(block);
        self.dual.load(block, &self.weights, &start);
        self.dual.vertex(block, &self.weights, &mut self.vertex)?;
        sparse::subtract(&self.vertex, &start, &mut self.direction);
        self.weights.iter_mut().for_each(|weight| *weight *= 1.0 - rate);
        self.linear *= 1.0 - rate;
        let push = rate * self.order.len() as f64;
        self.dual.curvature(block, &self.direction);
        self.dual.advance(block, &self.direction, push, &mut self.weights);
        self.linear += push * self.dual.share(block) * self.dual.linear(block, &self.direction);
        Ok(())
    }
}

impl<D: BlockDual> Solver for BlockSubgradient<D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let mut order = std::mem::take(&mut self.order);
        order.shuffle(&mut self.random);
        self.order = order;
        for visit in 0..self.order.len() {
            interrupt.check()?;
            self.step(self.order[visit] as usize)?;
        }
        Ok(Progress::Epoch(self.certify(interrupt)?))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let regularizer = 0.5 * self.dual.lambda() * squared_norm(&self.weights);
        let loss = self.dual.survey(&self.weights, &|_| &[], interrupt)?.loss;
        self.best_dual = self.best_dual.max(self.linear - regularizer);
        Ok(Certificate { primal: regularizer + loss, dual: self.best_dual })
    }
}
