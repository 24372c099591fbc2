//! The projected stochastic subgradient method (Pegasos; Shalev-Shwartz et al. 2011) on any block dual; a baseline for
//! comparisons.

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::dual::rounding::{gamma, norm_above};
use crate::dual::{BlockDual, Bounded, DualValue, Image, objective};
use crate::error::Result;
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::{Sparse, squared_norm};
use crate::run::{Certificate, Progress, Solver};

/// Iterates w ← (1 − 1/t) w + (1/t) w(u) over randomly permuted blocks, where u is a subgradient of
/// the block's loss. Then projects onto the ball ‖w‖² ≤ P(0)/λ, which contains the optimum.
///
/// With steps of 1/(λt), all subgradients so far have equal weights, and the projections only
/// shrink them towards the start vertices, where w = 0. So after whole epochs w = w(μ) for a
/// feasible μ, and the dual objective costs nothing extra. With averaging, the model is the average
/// of the iterates, with weight t for the t-th iterate (Lacoste-Julien, Schmidt and Bach 2012). The
/// dual value still belongs to w, not to the average.
pub struct Subgradient<'d, D> {
    dual: &'d mut D,
    random: Pcg64Mcg,
    order: Vec<u32>,
    model: ScaledWeights,
    average: Option<Vec<f64>>,
    null_objective: f64,
    steps: f64,
    /// Σ p_i l_i of the dual point.
    linear: f64,
    /// An upper bound on γ Σ p_i ‖μ_i‖² by Jensen's inequality, because μ is not stored.
    bend: f64,
    /// Bounds on the rounding errors of w and of the linear term.
    drift: [f64; 2],
    /// Bounds on the sizes of w and of the linear term.
    sizes: [f64; 2],
    best_dual: f64,
    direction: Sparse,
}

/// Smallest scale of the weights. The weights that one step adds have norms up to 1e290 (see [`Shares::check_range`]).
///
/// [`Shares::check_range`]: crate::dual::Shares::check_range
const MIN_SCALE: f64 = 1e-15;

/// w = scale · weights, so that shrinking costs one multiplication.
struct ScaledWeights {
    weights: Vec<f64>,
    scale: f64,
    /// λ‖w‖², because ‖w‖² itself may overflow.
    squared_norm: f64,
}

impl ScaledWeights {
    /// Multiplies w by `factor`.
    fn shrink(&mut self, factor: f64) {
        self.scale *= factor;
        self.squared_norm *= factor * factor;
        // Without flattening, the weights would overflow as the scale goes to 0.
        if self.scale < MIN_SCALE {
            self.flatten();
        }
    }

    /// Multiplies the weights by the scale, and sets the scale to 1.
    fn flatten(&mut self) {
        let scale = std::mem::replace(&mut self.scale, 1.0);
        self.weights.iter_mut().for_each(|weight| *weight *= scale);
    }
}

impl<'d, D: BlockDual> Subgradient<'d, D> {
    /// Starts at w = 0, where the objective P(0) is `null_objective`.
    pub fn new(dual: &'d mut D, null_objective: f64, averaging: bool, seed: u64) -> Self {
        let zero = vec![0.0; dual.n_weights()];
        Self {
            random: Pcg64Mcg::new(u128::from(seed)),
            order: (0..dual.shares().n_blocks() as u32).collect(),
            average: averaging.then(|| zero.clone()),
            model: ScaledWeights { weights: zero, scale: 1.0, squared_norm: 0.0 },
            null_objective,
            steps: 0.0,
            linear: 0.0,
            bend: 0.0,
            drift: [0.0; 2],
            sizes: [0.0; 2],
            best_dual: 0.0,
            direction: Sparse::new(),
            dual,
        }
    }

    /// The model: w at the last certificate, or the average.
    pub fn weights(&self) -> &[f64] {
        self.average.as_ref().unwrap_or(&self.model.weights)
    }

    /// Returns the model.
    pub fn into_weights(self) -> Vec<f64> {
        self.average.unwrap_or(self.model.weights)
    }

    fn step(&mut self, block: usize) -> Result<()> {
        let Self { dual, model, direction, .. } = self;
        self.steps += 1.0;
        let rate = 1.0 / self.steps;
        let share = dual.shares().of(block);
        direction.clear();
        let slope = if share > 0.0 {
            dual.subgradient(block, &model.weights, model.scale, direction)?
        } else {
            0.0
        };
        let push = rate * self.order.len() as f64;
        let mut image = dual.image(block, direction);
        let (linear, bend) = (image.linear(), image.bend());
        model.shrink(1.0 - rate);
        // `inner` is λ⟨w, w(u)⟩ before the step, because the slope is l − λ/p ⟨w, w(u)⟩; `square`
        // is λ‖w(u)‖².
        let inner = share * (linear - slope);
        let square = share * (image.curvature() - bend);
        model.squared_norm += 2.0 * push * (1.0 - rate) * inner + push * push * square;
        image.add_to(push / model.scale, &mut model.weights);
        drop(image);
        self.follow(block, rate, push * share);
        self.linear = (1.0 - rate) * self.linear + push * share * linear;
        self.bend = (1.0 - rate) * self.bend + push * share * bend;
        let model = &mut self.model;
        if model.squared_norm > self.null_objective {
            let factor = (self.null_objective / model.squared_norm).sqrt();
            model.shrink(factor);
            self.linear *= factor;
            self.bend *= factor * factor;
        }
        if let Some(average) = &mut self.average {
            // The weight of the t-th iterate in the average: t / (1 + 2 + … + t).
            let share = 2.0 / (self.steps + 1.0);
            for (average, weight) in average.iter_mut().zip(&model.weights) {
                *average += share * (model.scale * weight - *average);
            }
        }
        Ok(())
    }
}

impl<D: BlockDual> Subgradient<'_, D> {
    /// Adds the rounding errors that a step towards the last subgradient causes in w and in the linear term. Only a
    /// share `pushed` of the subgradient enters the sums.
    fn follow(&mut self, block: usize, rate: f64, pushed: f64) {
        let direction = &self.direction;
        let (scales, lambda) = (self.dual.scales(block), self.dual.shares().lambda());
        let length: f64 = direction.iter().map(|(_, value)| value.abs()).sum();
        // The distance of the subgradient from the block's set counts as rounding error.
        let outside = self.dual.defect(block, direction, &|| gamma(4) * 2.0 * length);
        let depth = gamma(direction.len() + 16);
        let units = [pushed / lambda * scales.feature, pushed * scales.cost];
        for ((drift, size), unit) in self.drift.iter_mut().zip(&mut self.sizes).zip(units) {
            *size = (1.0 - rate) * *size + unit * length;
            *drift = (1.0 - rate) * *drift + gamma(8) * *size + unit * (depth * length + outside);
        }
    }
}

impl<D: BlockDual> Solver for Subgradient<'_, D> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        // Start from the identity, so that the order does not depend on the last epoch's order.
        self.order.iter_mut().zip(0..).for_each(|(slot, block)| *slot = block);
        self.order.shuffle(&mut self.random);
        for visit in 0..self.order.len() {
            interrupt.check()?;
            self.step(self.order[visit] as usize)?;
        }
        Ok(Progress::Epoch(self.certify(interrupt)?))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.model.flatten();
        let lambda = self.dual.shares().lambda();
        self.model.squared_norm = lambda * squared_norm(&self.model.weights);
        let grown = 1.0 + gamma(16 * self.steps as usize + 16);
        let [weights, linear] = self.drift;
        let norm = (norm_above(&self.model.weights) + weights) * grown;
        let linear = Bounded::new(self.linear, linear * grown);
        let dual = DualValue::of(lambda, linear, norm, self.bend * grown).bound();
        self.best_dual = self.best_dual.max(dual);
        let model = self.average.as_ref().unwrap_or(&self.model.weights);
        let loss = self.dual.block_gaps(model, &|_| &[], interrupt)?.loss;
        Ok(Certificate { primal: objective(lambda, model, loss), dual: self.best_dual })
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        let scaled = || self.model.weights.iter().map(|weight| self.model.scale * weight).collect();
        Some(vec![self.average.clone().unwrap_or_else(scaled)])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        // A certificate flattens the weights first, so their scale is 1.
        weights.clear();
        weights.extend_from_slice(self.weights());
        true
    }
}
