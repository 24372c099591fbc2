//! Stochastic subgradient on any block dual: the baseline for structured problems (SPEC 15).

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::dual::BlockDual;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::linalg::{Sparse, sparse};
use crate::run::{Certificate, Progress, Solver};

/// w ← (1 − 1/t) w + (1/t) w(u) over randomly permuted blocks, u the vertex that the block's oracle
/// finds (Pegasos). After whole epochs w = w(μ) for the mean μ of the vertices seen, which gives the dual.
/// With averaging the model is the average of the iterates, the t-th weighted by t (Lacoste-Julien, Schmidt
/// and Bach 2012); the dual remains that of w.
pub struct BlockSubgradient<D> {
    dual: D,
    random: Pcg64Mcg,
    order: Vec<u32>,
    weights: Vec<f64>,
    average: Option<Vec<f64>>,
    steps: f64,
    linear: f64,
    best_dual: f64,
    vertex: Sparse,
    direction: Sparse,
}

impl<D: BlockDual> BlockSubgradient<D> {
    /// Starts at 0.
    pub fn new(dual: D, averaging: bool, seed: u64) -> Self {
        Self {
            average: averaging.then(|| vec![0.0; dual.n_weights()]),
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

    /// The model: w, or the average.
    pub fn weights(&self) -> &[f64] {
        self.average.as_ref().unwrap_or(&self.weights)
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
        if let Some(average) = &mut self.average {
            // t over 1 + 2 + … + t.
            let share = 2.0 / (self.steps + 1.0);
            for (average, weight) in average.iter_mut().zip(&self.weights) {
                *average += share * (weight - *average);
            }
        }
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
        let half = 0.5 * self.dual.lambda();
        self.best_dual = self.best_dual.max(self.linear - half * squared_norm(&self.weights));
        let model = self.average.as_ref().unwrap_or(&self.weights);
        let loss = self.dual.survey(model, &|_| &[], interrupt)?.loss;
        Ok(Certificate { primal: half * squared_norm(model) + loss, dual: self.best_dual })
    }
}
