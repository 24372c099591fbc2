//! The certificate of block descent: primal and dual from one pass over all examples.

use num_traits::{Float, Zero};
use pulp::Simd;
use rayon::prelude::*;

use super::block_step::compute_margins;
use super::candidates::{Candidates, select};
use super::rows::{Shape, WeightStore};
use super::{DualPoint, State};
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Element, Kernel, Lane, Sparse};
use crate::multiclass::problem::Bounds;
use crate::multiclass::{MarginProblem, Workspace};
use crate::parallel::min_len;
use crate::polytope::lifted;
use crate::run::{Certificate, Solver};

/// Number of examples in a piece of the pass. The pass visits the examples in the order in which their rows are stored.
const PIECE: usize = 64;

/// The contribution of consecutive examples to a certificate, and their candidates for the next epoch.
struct Terms<T> {
    bounds: Bounds,
    /// The indices of the dual blocks that could still gain.
    due: Vec<u32>,
    counts: Vec<u32>,
    classes: Vec<u32>,
    values: Vec<T>,
}

impl<M: WeightStore> State<'_, M> {
    /// Computes P and D at w(β) over all classes of all examples, including those that the last epoch left out. The
    /// examples that are not optimal and the classes that could gain are stored for the next epoch.
    ///
    /// Let v = w(β). Around an origin w₀, P is λ/2 ‖v‖² plus the loss at w₀ + v, and D is Σ_i p_i ⟨Δ_i, β_i⟩ − λ ⟨w₀,
    /// v⟩ − λ/2 ‖v‖², because λ v is the sum of the examples' images.
    ///
    /// Always computed in double precision. The weights are first recomputed from β, because they have accumulated the
    /// rounding errors of all changes. P is rounded up and D is rounded down.
    pub(super) fn certificate(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.renew();
        self.dual.betas.check_memory(self.problem.n_classes())?;
        let terms = match &self.exact {
            Some(exact) => self.all_terms(exact, interrupt)?,
            None if M::IS_DOUBLE => self.all_terms(&self.store, interrupt)?,
            // This avoids compiling the terms in single precision.
            None => unreachable!("weights in single precision are renewed in double"),
        };
        let mut bounds = Bounds::default();
        terms.iter().for_each(|terms| bounds.join(&terms.bounds));
        let mut betas = Candidates::new(self.dual.blocks.len());
        for (places, terms) in self.dual.by_example.chunks(PIECE).zip(&terms) {
            betas.append(places, &terms.counts, &terms.classes, &terms.values);
        }
        betas.check_memory(self.problem.n_classes())?;
        self.dual.betas = betas;
        let mut due = vec![false; self.dual.blocks.len()];
        terms.iter().flat_map(|terms| &terms.due).for_each(|at| due[*at as usize] = true);
        self.dual.due = Some((0..).zip(due).filter(|(_, due)| *due).map(|(at, _)| at).collect());
        self.distance = bounds.distance();
        let (problem, lambda) = (self.problem, self.shares.lambda());
        let certificate = match &self.exact {
            _ if !self.origin.is_empty() => {
                let mut weights = Vec::new();
                self.copy_weights(&mut weights);
                bounds.certificate_around(problem, lambda, &weights, &self.origin)
            }
            Some(exact) => bounds.certificate(problem, lambda, exact.weights()),
            None => bounds.certificate(problem, lambda, self.store.weights()),
        };
        self.schedule.note_read(2 * self.mean_cost() * self.dual.blocks.len());
        let sizes = (certificate.gap() / lambda, certificate.primal.abs() / lambda);
        self.schedule.learn(certificate.relative_gap(), sizes);
        Ok(certificate)
    }

    /// Recomputes the weights and the sums of the blocks from β.
    fn renew(&mut self) {
        for (at, block) in self.dual.blocks.iter_mut().enumerate() {
            block.sum = self.dual.betas.row(at).1.iter().map(|beta| beta.widen()).sum();
        }
        let (problem, betas) = (self.problem, &self.dual.betas);
        match self.store.exact() {
            Some(mut exact) => {
                exact.load(&self.origin);
                self.dual.add_images(problem, betas, &mut exact, &Interrupt::default());
                self.store.narrow(&exact);
                self.exact = Some(exact);
            }
            None => {
                self.store.load(&self.origin);
                self.dual.add_images(problem, betas, &mut self.store, &Interrupt::default());
            }
        }
    }

    /// The terms of all dual blocks at the weights of `model`, one item per piece.
    fn all_terms<N: WeightStore>(
        &self,
        model: &N,
        interrupt: &Interrupt,
    ) -> Result<Vec<Terms<M::Value>>> {
        let m = self.problem.n_classes();
        let buffers = || Buffers {
            examples: Vec::new(),
            rows: [Vec::new(), Vec::new()],
            scores: Vec::new(),
            margins: vec![0.0; m],
            beta: vec![M::Value::zero(); m],
            point: Sparse::new(),
            found: vec![0; m],
            work: Workspace::default(),
        };
        let Shape { padded, largest_block, .. } = model.shape();
        // Average number of values read to score a piece.
        let n_numbers = PIECE * self.mean_cost();
        let terms = self
            .dual
            .by_example
            .par_chunks(PIECE)
            .with_min_len(min_len(n_numbers))
            .map_init(buffers, |buffers, places| {
                let mut terms = Terms::with_room(places.len());
                for places in places.chunks(largest_block).take_while(|_| !interrupt.is_raised()) {
                    let Buffers { examples, rows, scores, .. } = &mut *buffers;
                    examples.clear();
                    examples.extend(places.iter().map(|at| self.dual.blocks[*at as usize].example));
                    scores.resize(examples.len() * padded, N::Value::zero());
                    model.score(examples, rows, scores);
                    let terms = &mut terms;
                    N::Value::dispatch(Evaluate { state: self, places, buffers, terms });
                }
                terms
            })
            .collect();
        interrupt.check()?;
        Ok(terms)
    }

    /// Stores the candidates of a dual block for the next epoch. If the set is not a box, the classes of the best
    /// vertex are added.
    #[inline(always)]
    fn choose<V>(
        &self,
        terms: &mut Terms<M::Value>,
        at: usize,
        Buffers { margins, beta, found, work, .. }: &mut Buffers<M::Value, V>,
    ) {
        let (block, zero) = (&self.dual.blocks[at], M::Value::zero());
        let (label, row) = (self.problem.label(block.example as usize), self.dual.betas.row(at));
        let threshold = self.set.turn_into_slopes(block, label, row, margins, beta);
        let n = select(beta, margins, threshold, found);
        let start = terms.classes.len();
        terms.classes.extend_from_slice(&found[..n]);
        terms.values.extend(found[..n].iter().map(|class| beta[*class as usize]));
        if !self.set.is_box() {
            let Workspace { vertex, scratch, .. } = work;
            self.problem.polytope().vertex(margins, label, scratch, vertex);
            let known = |class: usize| beta[class] != zero || margins[class] > threshold;
            for (class, _) in vertex.iter().filter(|(class, _)| !known(*class as usize)) {
                terms.classes.push(*class);
                terms.values.push(zero);
            }
        }
        terms.counts.push((terms.classes.len() - start) as u32);
        row.0.iter().for_each(|class| beta[*class as usize] = zero);
    }

    /// Whether the gap of the example, Φ − ⟨v, β⟩ + γ/2 (‖β‖² + (1ᵀβ)²), exceeds the rounding error of β. The rounding
    /// error of single-precision scores is not subtracted: margins are in double precision here, and leaving out blocks
    /// that visits hardly move would also stop the others from moving along with them.
    #[inline(always)]
    fn could_gain(&self, margins: &[f64], point: &Sparse, sum: f64, loss: f64) -> bool {
        let (mut attained, mut size, mut squares) = (0.0, loss.abs(), 0.0);
        for (class, beta) in point {
            let margin = margins[*class as usize];
            attained += margin * beta;
            size += (margin * beta).abs();
            squares += beta * beta;
        }
        let envelope = 0.5 * self.problem.shares().smoothing() * lifted::squared_norm(squares, sum);
        let rounding = 4.0 * M::Value::epsilon().widen();
        loss - attained + envelope > rounding * (size + envelope)
    }
}

/// Evaluates the dual blocks of a piece, compiled as a whole for this machine's vector instructions.
struct Evaluate<'a, 'p, M: WeightStore, T> {
    state: &'a State<'p, M>,
    /// The indices of the dual blocks.
    places: &'a [u32],
    buffers: &'a mut Buffers<M::Value, T>,
    terms: &'a mut Terms<M::Value>,
}

impl<M: WeightStore, T: Element> Kernel<T> for Evaluate<'_, '_, M, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, _: S)
    where
        T: Lane<S>,
    {
        let Self { state, places, buffers, terms } = self;
        let padded = buffers.scores.len() / places.len();
        for (row, at) in places.iter().map(|at| *at as usize).enumerate() {
            let Buffers { scores, margins, point, work, .. } = &mut *buffers;
            let scores = &scores[row * padded..][..padded];
            let (problem, dual) = (state.problem, &state.dual.blocks[at]);
            let example = dual.example as usize;
            let (costs, label) = (problem.cost_row(example), problem.label(example));
            let largest = compute_margins(scores, costs, label, margins);
            let is_max = state.set.is_max;
            let loss = if is_max { largest } else { problem.loss(example, margins, work) };
            terms.bounds.add_loss(problem, example, loss);
            let (classes, values) = state.dual.betas.row(at);
            if classes.is_empty() && loss == 0.0 {
                // In most problems, this is the most frequent case.
                terms.bounds.add_start();
                terms.counts.push(0);
                continue;
            }
            point.clear();
            let entries = classes.iter().zip(values.iter().map(|value| value.widen()));
            let entries = entries.filter(|(_, value)| *value != 0.0);
            point.extend(entries.map(|(class, value)| (*class, value)));
            terms.bounds.add_dual(problem, &state.shares, example, point);
            if !dual.settled && state.could_gain(margins, point, dual.sum, loss) {
                terms.due.push(at as u32);
                state.choose(terms, at, buffers);
            } else {
                terms.keep((classes, values));
            }
        }
    }
}

/// Buffers of a thread that evaluates examples.
struct Buffers<T, V> {
    examples: Vec<u32>,
    /// Buffers of [`WeightStore::score`].
    rows: [Vec<V>; 2],
    /// The scores of the examples, row by row.
    scores: Vec<V>,
    /// The margins of all classes, and then their slopes.
    margins: Vec<f64>,
    /// β of all classes.
    beta: Vec<T>,
    /// β as (class, value) pairs.
    point: Sparse,
    /// The indices of selected classes, with room for all classes.
    found: Vec<u32>,
    work: Workspace,
}

impl<T: Real> Terms<T> {
    /// Creates empty terms with room for `n_duals` dual blocks.
    fn with_room(n_duals: usize) -> Self {
        let (due, counts) = (Vec::with_capacity(n_duals), Vec::with_capacity(n_duals));
        let (classes, values) = (Vec::with_capacity(n_duals), Vec::with_capacity(n_duals));
        Self { bounds: Bounds::default(), due, counts, classes, values }
    }

    /// Keeps the β of an optimal example, and drops its candidates with β = 0.
    fn keep(&mut self, (classes, values): (&[u32], &[T])) {
        let start = self.classes.len();
        for (class, value) in classes.iter().zip(values).filter(|(_, value)| **value != T::zero()) {
            self.classes.push(*class);
            self.values.push(*value);
        }
        self.counts.push((self.classes.len() - start) as u32);
    }
}

impl<B: Element> DualPoint<B> {
    /// Adds w(β), the weights of the dual blocks with these β, to the weights of a store, in the order of the examples.
    /// Stops early if the interrupt is raised.
    pub(super) fn add_images<N: WeightStore>(
        &self,
        problem: &MarginProblem<'_>,
        betas: &Candidates<B>,
        store: &mut N,
        interrupt: &Interrupt,
    ) {
        // In most problems most examples have β = 0; their rows are not read.
        let is_used = |at: &u32| self.blocks[*at as usize].sum != 0.0;
        let places: Vec<u32> = self.by_example.iter().copied().filter(is_used).collect();
        let examples: Vec<u32> =
            places.iter().map(|at| self.blocks[*at as usize].example).collect();
        let change = |index: usize, to: &mut Vec<u32>, change: &mut Vec<N::Value>| {
            let at = places[index] as usize;
            let block = &self.blocks[at];
            let (classes, values) = betas.row(at);
            to.extend_from_slice(classes);
            let factors = values.iter().map(|beta| N::Value::narrow(-block.weight * beta.widen()));
            change.extend(factors);
            to.push(problem.label(block.example as usize) as u32);
            change.push(Real::narrow(block.weight * block.sum));
        };
        store.add_rows(&examples, change, interrupt);
    }
}
