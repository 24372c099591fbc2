//! The first weights of a fit: stochastic gradient steps with a rate for each weight (AdaGrad; Duchi, Hazan and Singer
//! 2011).

use pulp::{Simd, WithSimd};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{Field, FieldBuffers, visit_transitions};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::parallel::for_items;
use crate::structured::model::{CompactRows, Model, Work};

/// Minimum number of passes over the sequences.
const PASSES: usize = 6;

/// Minimum number of visits of sequences. With fewer than `VISITS` / `PASSES` sequences, there are more passes.
const VISITS: usize = 3000;

/// Length of the first step of a weight, in units of 1 / (root mean square of its feature).
const RATE: f64 = 0.25;

/// Initial sum of a weight's squared slopes, which bounds its first steps.
const FIRST_SQUARE: f64 = 1.0;

/// Number of sequences whose gradients are computed at the same weights.
const BATCH: usize = 8;

/// Minimum number of sequences. With fewer, passes of L-BFGS are just as cheap.
const MIN_SEQUENCES: usize = 200;

/// A row is skipped if the absolute values of all its slopes are below this value.
const NEGLIGIBLE: f64 = 1e-3;

/// Parameters of the steps of one feature's weights.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// 1 / (root mean square of the feature's values).
    scale: f64,
    /// The strengths of the L2 and the L1 term, multiplied by the number of sequences and divided by the number of
    /// steps in a pass.
    ridge: f64,
    l1: f64,
}

impl Pace {
    /// Moves a weight against a slope of the loss, then against the penalty.
    #[inline(always)]
    fn step(self, rate: f64, slope: f64, weight: &mut f64, square: &mut f64) {
        let slope = self.scale * (slope + self.ridge * *weight);
        *square += slope * slope;
        let step = rate * self.scale / square.sqrt();
        let moved = *weight - step * slope;
        *weight = (moved.abs() - step * self.scale * self.l1).max(0.0).copysign(moved);
    }
}

/// Returns the weights after a few passes of stochastic steps from 0, or None if there are few sequences.
pub fn first_weights(field: &Field<'_>, interrupt: &Interrupt) -> Result<Option<Vec<f64>>> {
    let shares = &field.shares;
    let mut order: Vec<usize> =
        (0..shares.n_blocks()).filter(|example| shares.of(*example) > 0.0).collect();
    if order.len() < MIN_SEQUENCES {
        return Ok(None);
    }
    let n_passes = VISITS.div_ceil(order.len()).max(PASSES);
    let mut descent = Descent::new(field);
    let buffers = || FieldBuffers { work: Work::of(interrupt), ..FieldBuffers::default() };
    let mut slots: Vec<FieldBuffers> = (0..BATCH).map(|_| buffers()).collect();
    // Every fit uses the same order, so it does not need a random state.
    let mut random = Pcg64Mcg::new(0);
    let (mut n_visits, n_all) = (0, (n_passes * order.len()) as f64);
    for _ in 0..n_passes {
        order.shuffle(&mut random);
        for batch in order.chunks(BATCH) {
            let looks = slots.iter_mut().zip(batch);
            for_items(looks, 1, |(slot, example)| descent.score_gradient(*example, slot));
            interrupt.check()?;
            // A rate that falls to 0 has the same effect as averaging the iterates, without a second vector.
            let rate = RATE * (1.0 - f64::from(n_visits) / n_all);
            for (slot, example) in slots.iter().zip(batch) {
                descent.step(*example, rate, &slot.marginals);
            }
            n_visits += batch.len() as u32;
        }
    }
    Ok(Some(field.packed(descent.weights)))
}

struct Descent<'a> {
    field: &'a Field<'a>,
    /// The weights in the order of a pass.
    weights: Vec<f64>,
    /// The sums of squared slopes; infinite for weights that stay 0.
    squares: Vec<f64>,
    nodes: Vec<Pace>,
    links: Pace,
    edges: Vec<Pace>,
}

impl<'a> Descent<'a> {
    fn new(field: &'a Field<'a>) -> Self {
        let (chain, shares) = (field.chain, &field.shares);
        let n_weights = chain.n_weights();
        let squares = field.laid(&vec![FIRST_SQUARE; n_weights]).into_owned();
        let squares = squares.into_iter().map(|one| if one == 0.0 { f64::INFINITY } else { one });
        let n_rows = chain.emissions().rows().len();
        let n_steps = if chain.stride() > 0 { n_rows } else { shares.n_blocks() };
        let mut descent = Self {
            field,
            weights: vec![0.0; field.n_laid()],
            squares: squares.collect(),
            nodes: Vec::new(),
            links: field.pace(1.0, n_steps as f64),
            edges: Vec::new(),
        };
        descent.nodes = field.paces(chain.emissions().rows());
        descent.edges = chain.edge_rows().map_or_else(Vec::new, |rows| field.paces(rows));
        descent
    }

    /// Computes the gradient of a sequence's loss with respect to the scores of its parts, and stores it in place of
    /// the marginals.
    fn score_gradient(&self, example: usize, buffers: &mut FieldBuffers) {
        buffers.scores.resize(self.field.chain.n_parts(example), 0.0);
        let (weights, transitions) = self.weights.split_at(self.field.n_emissions());
        self.field.scores(example, weights, transitions, &mut buffers.scores);
        buffers.evaluate(self.field.chain, example, 0.0);
        buffers.subtract_truth();
    }

    fn step(&mut self, example: usize, rate: f64, delta: &[f64]) {
        let Self { field, weights, squares, nodes, links, edges } = self;
        let (chain, share) =
            (field.chain, field.shares.of(example) * field.shares.n_blocks() as f64);
        let (weights, other_weights) = weights.split_at_mut(field.n_emissions());
        let (squares, other_squares) = squares.split_at_mut(field.n_emissions());
        let n_edges = chain.n_states() * chain.n_states();
        let slopes = &delta[..chain.sequence_len(example) * chain.n_states()];
        let sequence = (example, slopes, share);
        arch().dispatch(NodeSteps { field, sequence, rate, paces: nodes, weights, squares });
        let n_links = chain.links().n_weights();
        visit_transitions(chain, example, delta, |index, x, value| {
            let pace = if index < n_links { *links } else { edges[(index - n_links) / n_edges] };
            let (weight, square) = (&mut other_weights[index], &mut other_squares[index]);
            pace.step(rate, share * x * value, weight, square);
        });
    }
}

/// The steps of the weights of features and labels for one sequence.
struct NodeSteps<'a> {
    field: &'a Field<'a>,
    /// Index of the sequence, the gradient of its loss with respect to the scores of its nodes, and a factor for the
    /// gradient.
    sequence: (usize, &'a [f64], f64),
    rate: f64,
    paces: &'a [Pace],
    weights: &'a mut [f64],
    squares: &'a mut [f64],
}

impl WithSimd for NodeSteps<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { field, sequence: (example, slopes, share), rate, paces, weights, squares } =
            self;
        let (chain, layout) = (field.chain, field.layout.as_deref());
        let (rows, n_states) = (chain.emissions().rows(), chain.n_states());
        for (row, slopes) in chain.rows_of(example).zip(slopes.chunks_exact(n_states)) {
            if slopes.iter().all(|slope| slope.abs() < NEGLIGIBLE) {
                continue;
            }
            rows.visit(
                row,
                #[inline(always)]
                |feature, x| {
                    let (pace, x) = (paces[feature], share * x);
                    let (start, labels) =
                        layout.map_or((feature * n_states, None), |layout| layout.find(feature));
                    let own = weights[start..].iter_mut().zip(&mut squares[start..]);
                    if let Some(labels) = labels {
                        for ((weight, square), label) in own.zip(labels) {
                            pace.step(rate, x * slopes[usize::from(*label)], weight, square);
                        }
                    } else {
                        for ((weight, square), slope) in own.zip(slopes) {
                            pace.step(rate, x * slope, weight, square);
                        }
                    }
                },
            );
        }
    }
}

impl Field<'_> {
    /// Returns the step parameters of each feature of these rows.
    fn paces(&self, rows: &CompactRows) -> Vec<Pace> {
        let mut sums = vec![(0.0, 0.0); rows.n_features()];
        for row in 0..rows.len() {
            rows.visit(row, |feature, x| {
                let (count, squares) = &mut sums[feature];
                (*count, *squares) = (*count + f64::from(x != 0.0), *squares + x * x);
            });
        }
        let pace = |(count, squares): (f64, f64)| self.pace((count / squares).sqrt(), count);
        sums.into_iter().map(pace).collect()
    }

    /// Returns the step parameters of weights that take `n_steps` steps in a pass. Weights without a finite scale do
    /// not move.
    fn pace(&self, scale: f64, n_steps: f64) -> Pace {
        let share = self.shares.lambda() * self.shares.n_blocks() as f64 / n_steps;
        let l1_ratio = self.penalty.l1_ratio();
        let scale = if scale.is_finite() { scale } else { 0.0 };
        Pace { scale, ridge: share * (1.0 - l1_ratio), l1: share * l1_ratio }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_does_not_depend_on_the_unit_of_the_feature() {
        // Without a penalty, the product w x does not depend on the size of x.
        let moved = |x: f64| {
            let (mut weight, mut square) = (0.0, FIRST_SQUARE);
            let pace = Pace { scale: 1.0 / x, ridge: 0.0, l1: 0.0 };
            for slope in [0.5, -0.25, 1.0] {
                pace.step(1.0, x * slope, &mut weight, &mut square);
            }
            weight * x
        };
        assert!(
            (moved(1.0) - moved(1e5)).abs() < 1e-12 && (moved(1.0) - moved(1e-7)).abs() < 1e-12
        );
        assert!(moved(1.0) < -0.5);
    }

    #[test]
    fn penalties_shrink_weights_to_0_but_not_beyond() {
        let pace = Pace { scale: 1.0, ridge: 0.0, l1: 10.0 };
        for start in [-0.1, 0.1] {
            let (mut weight, mut square) = (start, 1.0);
            pace.step(1.0, 0.01, &mut weight, &mut square);
            assert_eq!(weight, 0.0);
        }
        let (mut weight, mut square) = (2.0, 1.0);
        Pace { scale: 1.0, ridge: 0.5, l1: 0.0 }.step(0.1, 0.0, &mut weight, &mut square);
        assert!(weight > 1.9 && weight < 2.0);
        // A weight whose squares are infinite stays 0.
        let (mut weight, mut square) = (0.0, f64::INFINITY);
        pace.step(1.0, 3.0, &mut weight, &mut square);
        assert_eq!(weight, 0.0);
    }
}
