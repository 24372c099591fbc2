//! The dual of a structured problem whose oracle is given by the user.

use std::time::{Duration, Instant};

use crate::dual::rounding::{TINY, gamma};
use crate::dual::{
    BatchDual, BlockDual, BlockGaps, Bounded, Gradient, Image, Points, Scales, Shares, Sizes, Sums,
};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::{Sparse, sparse};

/// Maximum number of examples per call of the oracle. A call that takes `MAX_CALL_TIME` or longer halves the next
/// batch. Interrupts are checked between calls.
const MAX_BATCH: usize = 64;
const MAX_CALL_TIME: Duration = Duration::from_millis(50);
/// Relative tolerance for rounding errors of the oracle. The margin of a returned label may be below the margin of the
/// dual point by up to this factor times (1 + the sum of the absolute values of the terms of both margins).
const ROUNDING: f64 = 1e-9;

/// A user-defined oracle for loss-augmented decoding.
pub trait Oracle: Sync {
    /// Calls `found` for each block, in order, with −ψ and L of the label y that loss-augmented
    /// decoding returns, where ψ = φ(x, y_true) − φ(x, y) has one number per weight.
    ///
    /// # Errors
    /// The oracle's errors.
    fn vertices(
        &self,
        blocks: &[u32],
        weights: &[f64],
        found: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()>;
}

/// The dual of a structured problem that is defined by an [`Oracle`].
///
/// There is one part per weight and one part for the loss: the vertex of a label y has the entries
/// −ψ and L. The gradient is therefore the weights followed by a 1.
pub struct CallbackDual<'o> {
    oracle: &'o dyn Oracle,
    n_weights: usize,
    shares: Shares,
    exact: bool,
}

impl<'o> CallbackDual<'o> {
    /// Creates the dual for the examples of an oracle.
    pub fn new(oracle: &'o dyn Oracle, n_weights: usize, shares: Shares) -> Self {
        Self { oracle, n_weights, shares, exact: true }
    }

    /// Accepts an oracle that does not always return maximisers. The loss is then the larger of two
    /// lower bounds: the oracle's value and the value of the dual point. The objective is therefore
    /// also only a lower bound.
    pub fn approximate(self) -> Self {
        Self { exact: false, ..self }
    }

    fn ask(&self, blocks: &[u32], weights: &[f64], found: &mut Vec<Sparse>) -> Result<()> {
        let (before, mut sound) = (found.len(), true);
        self.oracle.vertices(blocks, weights, &mut |features, loss| {
            sound &= features.len() == self.n_weights
                && features.iter().all(|value| value.is_finite())
                && loss.is_finite();
            let entries = (0..).zip(features.iter().chain([&loss]));
            let entries = entries.filter(|(_, value)| **value != 0.0);
            found.push(entries.map(|(index, value)| (index, *value)).collect());
        })?;
        if sound && found.len() - before == blocks.len() {
            return Ok(());
        }
        let message = format!(
            "the oracle must return {} finite numbers and a finite loss for each requested example",
            self.n_weights
        );
        Err(Error::argument("model", message))
    }

    /// Asks the oracle for the vertices of some blocks, one batch at a time.
    fn ask_all(
        &self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<Sparse>> {
        let mut found = Vec::with_capacity(blocks.len());
        let (mut rest, mut size) = (blocks, 1);
        while !rest.is_empty() {
            interrupt.check()?;
            let (batch, others) = rest.split_at(size.min(rest.len()));
            let start = Instant::now();
            self.ask(batch, weights, &mut found)?;
            size = if start.elapsed() < MAX_CALL_TIME {
                (2 * size).min(MAX_BATCH)
            } else {
                size.div_ceil(2)
            };
            rest = others;
        }
        Ok(found)
    }

    fn all(&self) -> Vec<u32> {
        (0..self.shares.n_blocks() as u32).collect()
    }

    fn slope(&self, weights: &[f64], direction: &[(u32, f64)]) -> f64 {
        let (features, loss) = split(direction, self.n_weights);
        let scores = features.iter().map(|(index, value)| value * weights[*index as usize]);
        scores.sum::<f64>() + loss
    }

    /// A bound on the rounding error of a margin.
    fn error(&self, weights: &[f64], point: &[(u32, f64)]) -> f64 {
        let n_terms = point.len() + 4;
        gamma(n_terms) * self.scale(weights, point) + n_terms as f64 * TINY
    }

    /// The sum of the absolute values of a margin's terms.
    fn scale(&self, weights: &[f64], point: &[(u32, f64)]) -> f64 {
        let (features, loss) = split(point, self.n_weights);
        let sizes = features.iter().map(|(index, value)| (value * weights[*index as usize]).abs());
        sizes.sum::<f64>() + loss.abs()
    }
}

/// Splits a point into the entries of −ψ and the loss.
fn split(point: &[(u32, f64)], n_weights: usize) -> (&[(u32, f64)], f64) {
    match point.split_last() {
        Some((&(index, loss), features)) if index as usize == n_weights => (features, loss),
        _ => (point, 0.0),
    }
}

/// The gradient of the dual: the weights, followed by a 1 for the loss.
pub struct CallbackGradient<'s> {
    dual: &'s CallbackDual<'s>,
    block: usize,
    weights: &'s [f64],
}

impl Gradient for CallbackGradient<'_> {
    fn slope(&self, direction: &[(u32, f64)]) -> f64 {
        self.dual.slope(self.weights, direction)
    }

    fn vertex(&mut self, vertex: &mut Sparse) -> Result<()> {
        let mut found = Vec::with_capacity(1);
        self.dual.ask(&[self.block as u32], self.weights, &mut found)?;
        *vertex = found.pop().unwrap_or_default();
        Ok(())
    }
}

/// The image of a direction in weight space, represented by the direction's −ψ and loss.
pub struct CallbackImage<'s> {
    features: &'s [(u32, f64)],
    loss: f64,
    share: f64,
    lambda: f64,
}

impl Image for CallbackImage<'_> {
    fn curvature(&self) -> f64 {
        self.share / self.lambda * sparse::squared_norm(self.features)
    }

    fn add_to(&mut self, step: f64, weights: &mut [f64]) {
        let scale = step * self.share / self.lambda;
        for (index, value) in self.features {
            weights[*index as usize] -= scale * value;
        }
    }

    fn linear(&mut self) -> f64 {
        self.loss
    }
}

impl BlockDual for CallbackDual<'_> {
    type Gradient<'s>
        = CallbackGradient<'s>
    where
        Self: 's;
    type Image<'s>
        = CallbackImage<'s>
    where
        Self: 's;

    fn n_weights(&self) -> usize {
        self.n_weights
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    fn start(&self, _: usize) -> Sparse {
        Sparse::new()
    }

    /// Returns 0, because the rounding errors depend on the size of the features, which is not known.
    fn rounding(&self) -> f64 {
        0.0
    }

    fn scales(&self, _: usize) -> Scales {
        Scales { cost: 1.0, feature: 1.0, n_features: 1, adds_terms: false }
    }

    fn gradient<'s>(
        &'s mut self,
        block: usize,
        weights: &'s [f64],
        _: &[(u32, f64)],
    ) -> CallbackGradient<'s> {
        CallbackGradient { dual: &*self, block, weights }
    }

    fn slopes_at<'s>(
        &'s mut self,
        block: usize,
        _: &[u32],
        weights: &'s [f64],
        _: &[(u32, f64)],
    ) -> CallbackGradient<'s> {
        CallbackGradient { dual: &*self, block, weights }
    }

    fn image<'s>(&'s mut self, block: usize, direction: &'s [(u32, f64)]) -> CallbackImage<'s> {
        let (features, loss) = split(direction, self.n_weights);
        let (share, lambda) = (self.shares.of(block), self.shares.lambda());
        CallbackImage { features, loss, share, lambda }
    }

    fn subgradient(
        &mut self,
        block: usize,
        weights: &[f64],
        scale: f64,
        direction: &mut Sparse,
    ) -> Result<f64> {
        let scaled: Vec<f64> = weights.iter().map(|weight| scale * weight).collect();
        self.gradient(block, &scaled, &[]).vertex(direction)?;
        Ok(self.slope(&scaled, direction))
    }

    fn vertices(
        &mut self,
        blocks: &[u32],
        weights: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<Sparse>> {
        self.ask_all(blocks, weights, interrupt)
    }

    fn block_gaps(
        &mut self,
        weights: &[f64],
        points: &Points<'_>,
        interrupt: &Interrupt,
    ) -> Result<BlockGaps> {
        let found = self.ask_all(&self.all(), weights, interrupt)?;
        let terms = found.iter().enumerate().map(|(block, vertex)| {
            let (share, point) = (self.shares.of(block), points(block));
            let (mut loss, mut error) = (self.slope(weights, vertex), self.error(weights, vertex));
            let known = self.slope(weights, point);
            if !self.exact && known > loss {
                // The loss is at least the value of any convex combination of labels.
                (loss, error) = (known, self.error(weights, point));
            }
            let gap = loss - known;
            let scale = self.scale(weights, vertex) + self.scale(weights, point);
            if gap < -ROUNDING * (1.0 + scale) {
                // The point is a convex combination of labels that the oracle returned earlier.
                let message = format!(
                    "loss_augmented_decode returned a label for example {block} that scores {:.3e} \
                     less than labels it returned before; it must return a maximiser",
                    -gap
                );
                return Err(Error::argument("model", message));
            }
            let loss = Bounded::new(loss, error);
            Ok((loss * Bounded::exact(share), share * gap))
        });
        Ok(BlockGaps::of(terms.collect::<Result<_>>()?))
    }
}

impl BatchDual for CallbackDual<'_> {
    fn batch_vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        _: f64,
        _: bool,
        interrupt: &Interrupt,
    ) -> Result<Sums> {
        let found = self.ask_all(&self.all(), weights, interrupt)?;
        image.fill(0.0);
        let mut sums = Sums { loss: Some(Bounded::default()), ..Sums::default() };
        for (block, vertex) in found.iter().enumerate() {
            let share = self.shares.of(block);
            let loss = Bounded::new(self.slope(weights, vertex), self.error(weights, vertex));
            let loss = Some(loss * Bounded::exact(share));
            let mut sizes = Sizes::default();
            sizes.add(share, self.scales(block), vertex);
            let mut moved = self.image(block, vertex);
            moved.add_to(1.0, image);
            let linear = share * moved.linear();
            sums.add(&Sums { loss, linear, sizes, ..Sums::default() });
        }
        Ok(sums)
    }
}
