//! The certificate of block descent: primal and dual from one pass over all examples.

use num_traits::{Float, Zero};
use rayon::prelude::*;

use super::dual_block::add_images;
use super::scorer::{RowBlock, Scorer};
use super::state::State;
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::multiclass::Workspace;
use crate::polytope::lifted;
use crate::run::Certificate;

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

impl<M: Scorer> State<'_, M> {
    /// P and D at w(β), resting examples included; those that could gain rest no longer.
    ///
    /// Around an origin w₀ they are λ/2 ‖v‖² + loss of w₀ + v and Σ_i p_i ⟨Δ_i, β_i⟩ − λ ⟨w₀, v⟩ −
    /// λ/2 ‖v‖², with v = w(β), since λ v is the sum of the examples' images.
    ///
    /// Always in double precision: weights in single precision are replaced by what β gives, since
    /// they have gathered the rounding of all their changes.
    pub(super) fn certificate(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let d = self.model.n_features();
        if let Some(mut exact) = self.model.exact() {
            if !self.origin.is_empty() {
                exact.load(|feature, class| self.origin[class * d + feature]);
            }
            add_images(self.problem, &self.duals, &self.betas, &mut exact, interrupt)?;
            self.model.load(|feature, class| exact.weight(feature, class));
            self.exact = Some(exact);
        }
        let (terms, squared_norm) = match &self.exact {
            Some(exact) => (self.all_terms(exact, interrupt)?, squared_norm(exact.weights())),
            None => (self.all_terms(&self.model, interrupt)?, squared_norm(self.model.weights())),
        };
        for at in terms.iter().flat_map(|terms| &terms.roused) {
            let dual = &mut self.duals[*at];
            (dual.rest, dual.idle) = (0, 0);
        }
        let (mut squared_norm, mut inner) = (squared_norm, 0.0);
        if !self.origin.is_empty() {
            let weights = self.coefficients();
            squared_norm = 0.0;
            for (weight, origin) in weights.iter().zip(&self.origin) {
                let image = weight - origin;
                squared_norm += image * image;
                inner += image * origin;
            }
        }
        let regularizer = 0.5 * self.problem.shares().lambda() * squared_norm;
        let loss: f64 = terms.iter().map(|terms| terms.loss).sum();
        let dual: f64 = terms.iter().map(|terms| terms.dual).sum();
        Ok(Certificate {
            primal: loss + regularizer,
            dual: dual - regularizer - self.problem.shares().lambda() * inner,
        })
    }

    /// The terms of all duals at the weights of `model`, piece by piece.
    fn all_terms<N: Scorer>(&self, model: &N, interrupt: &Interrupt) -> Result<Vec<Terms>> {
        let (n, m) = (self.problem.n_examples(), self.problem.n_classes());
        let buffers = || Buffers {
            block: RowBlock::default(),
            scores: Vec::new(),
            margins: vec![0.0; m],
            work: Workspace::default(),
        };
        let terms = (0..n.div_ceil(PIECE))
            .into_par_iter()
            .map_init(buffers, |buffers, piece| {
                if interrupt.is_raised() {
                    return Terms::default();
                }
                self.terms(model, piece * PIECE, n.min((piece + 1) * PIECE), buffers)
            })
            .collect();
        interrupt.check()?;
        Ok(terms)
    }

    /// The terms of duals `first..end`.
    fn terms<N: Scorer>(
        &self,
        model: &N,
        first: usize,
        end: usize,
        buffers: &mut Buffers<N::Value>,
    ) -> Terms {
        let Buffers { block, scores, margins, work } = buffers;
        let m = self.problem.n_classes();
        let (padded, width) = (model.padded(), model.panel_width());
        let mut terms = Terms::default();
        for start in (first..end).step_by(N::LARGEST_BLOCK) {
            block.examples.clear();
            let duals = &self.duals[start..end.min(start + N::LARGEST_BLOCK)];
            block.examples.extend(duals.iter().map(|dual| dual.example));
            let n_rows = block.examples.len();
            model.gather(block);
            scores.resize(n_rows * padded, N::Value::zero());
            model.score(block, scores);
            for row in 0..n_rows {
                let (at, dual) = (start + row, &duals[row]);
                let example = dual.example as usize;
                let share = self.problem.shares().of(example);
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
                terms.dual += share * self.problem.dual_term(example, beta, dual.sum);
                if dual.rest > 0 && self.could_gain(margins, beta, dual.sum, loss) {
                    terms.roused.push(at);
                }
            }
        }
        terms
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
        let envelope = 0.5 * self.problem.shares().smoothing() * lifted::squared_norm(squares, sum);
        let rounding = 16.0 * M::Value::epsilon().widen();
        loss - attained + envelope > rounding * (size + envelope)
    }
}

/// What a thread needs to evaluate terms.
struct Buffers<T> {
    block: RowBlock<T>,
    scores: Vec<T>,
    margins: Vec<f64>,
    work: Workspace,
}
