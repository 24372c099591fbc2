//! The certificate of block descent: primal and dual from one pass over all examples.

use num_traits::{Float, Zero};
use rayon::prelude::*;

use super::model::{Block, Model};
use super::{Dual, State};
use crate::data::Real;
use crate::error::Result;
use crate::problem::Workspace;
use crate::run::{Certificate, Interrupt};
use crate::solver::squared_norm;

/// Duals of a piece of the pass.
const PIECE: usize = 64;

/// What a run of examples adds to a certificate.
#[derive(Default)]
struct Terms {
    loss: f64,
    dual: f64,
    /// Duals that rest although they could still gain.
    roused: Vec<usize>,
}

impl<M: Model> State<'_, M> {
    /// P and D at the current weights (SPEC 10), resting examples included; those that could gain
    /// rest no longer.
    ///
    /// In single precision D is as exact as the weights' accumulated rounding allows.
    pub(super) fn certificate(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let (n, m) = (self.problem.n_examples(), self.problem.n_classes());
        let state: &Self = self;
        let buffers = || Buffers {
            block: Block::default(),
            scores: Vec::new(),
            margins: vec![0.0; m],
            work: Workspace::default(),
        };
        let terms: Vec<Terms> = (0..n.div_ceil(PIECE))
            .into_par_iter()
            .map_init(buffers, |buffers, piece| {
                if interrupt.is_raised() {
                    return Terms::default();
                }
                state.terms(piece * PIECE, n.min((piece + 1) * PIECE), buffers)
            })
            .collect();
        interrupt.check()?;
        let regularizer = 0.5 * self.problem.lambda * squared_norm(self.model.weights());
        for at in terms.iter().flat_map(|terms| &terms.roused) {
            let dual = &mut self.duals[*at];
            (dual.rest, dual.idle) = (0, 0);
        }
        let loss: f64 = terms.iter().map(|terms| terms.loss).sum();
        let dual: f64 = terms.iter().map(|terms| terms.dual).sum();
        Ok(Certificate { primal: loss + regularizer, dual: dual - regularizer })
    }

    /// The terms of duals `first..end`, at the current weights.
    fn terms(&self, first: usize, end: usize, buffers: &mut Buffers<M::Value>) -> Terms {
        let Buffers { block, scores, margins, work } = buffers;
        let m = self.problem.n_classes();
        let (padded, width) = (self.model.padded(), self.model.panel_width());
        let mut terms = Terms::default();
        for start in (first..end).step_by(M::LARGEST_BLOCK) {
            block.examples.clear();
            let duals = &self.duals[start..end.min(start + M::LARGEST_BLOCK)];
            block.examples.extend(duals.iter().map(|dual| dual.example));
            let n_rows = block.examples.len();
            self.model.gather(block);
            scores.resize(n_rows * padded, M::Value::zero());
            self.model.score(block, scores);
            for row in 0..n_rows {
                let (at, dual) = (start + row, &duals[row]);
                let example = dual.example as usize;
                let share = self.problem.importance(example);
                if share == 0.0 {
                    continue;
                }
                for (panel, margins) in margins.chunks_mut(width).enumerate() {
                    let columns = width.min(padded - panel * width);
                    let scores = &scores[panel * width * n_rows + row * columns..];
                    for (margin, score) in margins.iter_mut().zip(scores) {
                        *margin = score.widen();
                    }
                }
                self.problem.margins(example, margins);
                let loss = self.problem.loss(example, margins, work);
                let beta = &self.betas[at * m..][..m];
                terms.loss += share * loss;
                terms.dual += share * self.dual_term(dual, beta);
                if dual.rest > 0 && self.could_gain(margins, beta, dual.sum, loss) {
                    terms.roused.push(at);
                }
            }
        }
        terms
    }

    /// ⟨Δ, β⟩ − γ/2 (‖β‖² + (1ᵀβ)²).
    fn dual_term(&self, dual: &Dual, beta: &[M::Value]) -> f64 {
        let sum = dual.sum;
        let linear = match self.problem.cost_row(dual.example as usize) {
            None => sum,
            Some(costs) => beta.iter().zip(costs).map(|(beta, cost)| beta.widen() * cost).sum(),
        };
        if self.problem.smoothing == 0.0 {
            return linear;
        }
        let squares: f64 = beta.iter().map(|beta| beta.widen().powi(2)).sum();
        linear - 0.5 * self.problem.smoothing * (squares + sum * sum)
    }

    /// Whether the example's share of the gap, Φ − ⟨v, β⟩ + γ/2 (‖β‖² + (1ᵀβ)²), is more than rounding.
    fn could_gain(&self, margins: &[f64], beta: &[M::Value], sum: f64, loss: f64) -> bool {
        let (mut attained, mut size, mut squares) = (0.0, loss.abs(), 0.0);
        for (margin, beta) in margins.iter().zip(beta) {
            let beta = beta.widen();
            attained += margin * beta;
            size += (margin * beta).abs();
            squares += beta * beta;
        }
        let envelope = 0.5 * self.problem.smoothing * (squares + sum * sum);
        let rounding = 16.0 * M::Value::epsilon().widen();
        loss - attained + envelope > rounding * (size + envelope)
    }
}

/// What a thread needs to evaluate terms.
struct Buffers<T> {
    block: Block<T>,
    scores: Vec<T>,
    margins: Vec<f64>,
    work: Workspace,
}
