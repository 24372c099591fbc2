//! The certificate of block descent: primal and dual from one pass over all examples.

use num_traits::{Float, Zero};
use pulp::Simd;
use rayon::prelude::*;

use super::candidates::{Candidates, Select};
use super::dual_block::{DualBlock, add_images};
use super::kernels::{Margins, RowScores};
use super::scorer::{GatheredRows, Scorer};
use super::state::State;
use crate::data::Real;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Element, Kernel, Lane, Sparse};
use crate::multiclass::Workspace;
use crate::multiclass::bounds::Bounds;
use crate::parallel::min_len;
use crate::polytope::{CappedBox, lifted};
use crate::run::Certificate;

/// Examples of a piece of the pass, which goes through them in their order, in which the rows lie.
const PIECE: usize = 64;

/// What a run of examples adds to a certificate, and their candidates for the next epoch.
struct Terms<T> {
    bounds: Bounds,
    /// Duals that could still gain.
    due: Vec<u32>,
    counts: Vec<u32>,
    classes: Vec<u32>,
    values: Vec<T>,
}

impl<T> Default for Terms<T> {
    fn default() -> Self {
        let (due, counts, classes, values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { bounds: Bounds::default(), due, counts, classes, values }
    }
}

impl<M: Scorer> State<'_, M> {
    /// P and D at w(β), all classes of all examples included, whatever the last epoch left out; the
    /// examples that are not optimal and the classes that could gain are the next epoch's.
    ///
    /// Around an origin w₀ they are λ/2 ‖v‖² + loss of w₀ + v and Σ_i p_i ⟨Δ_i, β_i⟩ − λ ⟨w₀, v⟩ −
    /// λ/2 ‖v‖², with v = w(β), since λ v is the sum of the examples' images.
    ///
    /// Always in double precision, and with weights replaced by what β gives, since they have gathered the
    /// rounding of all their changes. Both values are rounded against us.
    pub(super) fn certificate(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.renew(interrupt)?;
        self.betas.check_memory(self.problem.n_classes())?;
        let terms = match &self.exact {
            Some(exact) => self.all_terms(exact, interrupt)?,
            None if M::IS_DOUBLE => self.all_terms(&self.model, interrupt)?,
            // No code is made for terms in single precision.
            None => unreachable!("weights in single precision are renewed in double"),
        };
        let mut bounds = Bounds::default();
        terms.iter().for_each(|terms| bounds.join(&terms.bounds));
        let mut betas = Candidates::new(self.duals.len());
        for (places, terms) in self.by_example.chunks(PIECE).zip(&terms) {
            betas.append(places, &terms.counts, &terms.classes, &terms.values);
        }
        betas.check_memory(self.problem.n_classes())?;
        self.betas = betas;
        let mut due = vec![false; self.duals.len()];
        terms.iter().flat_map(|terms| &terms.due).for_each(|at| due[*at as usize] = true);
        self.due = Some((0..).zip(due).filter(|(_, due)| *due).map(|(at, _)| at).collect());
        self.distance = bounds.distance();
        let (problem, lambda) = (self.problem, self.shares.lambda());
        let certificate = match &self.exact {
            _ if !self.origin.is_empty() => {
                bounds.certificate_around(problem, lambda, &self.coefficients(), &self.origin)
            }
            Some(exact) => bounds.certificate(problem, lambda, exact.weights()),
            None => bounds.certificate(problem, lambda, self.model.weights()),
        };
        self.size = certificate.primal.abs() / lambda;
        self.estimate.learn(certificate.gap() / lambda);
        self.gap = certificate.relative_gap();
        Ok(certificate)
    }

    /// Sums up the weights and the sums of the blocks anew from β.
    fn renew(&mut self, interrupt: &Interrupt) -> Result<()> {
        let renewed = self.sum_up(interrupt);
        if renewed.is_err() {
            // Weights and duals belong together, also when interrupted: it takes a fraction of a pass.
            self.sum_up(&Interrupt::default())?;
        }
        renewed
    }

    fn sum_up(&mut self, interrupt: &Interrupt) -> Result<()> {
        for (at, dual) in self.duals.iter_mut().enumerate() {
            dual.sum = self.betas.row(at).1.iter().map(|beta| beta.widen()).sum();
        }
        let duals = (&self.duals[..], &self.by_example[..]);
        let (problem, betas, origin) = (self.problem, &self.betas, &self.origin[..]);
        match self.model.exact() {
            Some(mut exact) => {
                exact.begin_at(origin);
                add_images(problem, duals, betas, &mut exact, interrupt)?;
                self.model.narrow(&exact);
                self.exact = Some(exact);
            }
            None => {
                self.model.begin_at(origin);
                add_images(problem, duals, betas, &mut self.model, interrupt)?;
            }
        }
        Ok(())
    }

    /// The terms of all duals at the weights of `model`, piece by piece.
    fn all_terms<N: Scorer>(
        &self,
        model: &N,
        interrupt: &Interrupt,
    ) -> Result<Vec<Terms<M::Value>>> {
        let m = self.problem.n_classes();
        let unit = |set: CappedBox| set.cap <= set.upper && set.cap == 1.0;
        let is_max = self.problem.shares().smoothing() == 0.0
            && self.problem.polytope().whole_box().is_some_and(unit);
        let buffers = || Buffers {
            block: GatheredRows::default(),
            scores: Vec::new(),
            margins: vec![0.0; m],
            beta: vec![M::Value::zero(); m],
            point: Sparse::new(),
            found: vec![0; m],
            is_max,
            work: Workspace::default(),
        };
        // Numbers that the scores of a piece read, on average.
        let n_stored: usize =
            self.duals.iter().map(|dual| model.n_stored(dual.example as usize)).sum();
        let n_numbers = PIECE * model.padded() * n_stored / self.duals.len().max(1);
        let terms = self
            .by_example
            .par_chunks(PIECE)
            .with_min_len(min_len(n_numbers))
            .map_init(buffers, |buffers, places| {
                if interrupt.is_raised() {
                    return Terms::default();
                }
                self.terms(model, places, buffers)
            })
            .collect();
        interrupt.check()?;
        Ok(terms)
    }

    /// The terms of the duals at `places`.
    fn terms<N: Scorer>(
        &self,
        model: &N,
        places: &[u32],
        buffers: &mut Buffers<N::Value, M::Value>,
    ) -> Terms<M::Value> {
        let Buffers { block, scores, margins, beta, point, found, is_max, work } = buffers;
        let (padded, width) = (model.padded(), model.panel_width());
        let mut terms = Terms::with_room(places.len());
        for places in places.chunks(N::LARGEST_BLOCK) {
            block.examples.clear();
            block.examples.extend(places.iter().map(|at| self.duals[*at as usize].example));
            let n_rows = block.examples.len();
            scores.resize(n_rows * padded, N::Value::zero());
            model.score(block, scores);
            let place = RowScores { scores, row: 0, n_rows, padded, width };
            let (state, work) = (self, &mut *work);
            let (is_max, terms) = (*is_max, &mut terms);
            N::Value::dispatch(Look {
                state,
                places,
                place,
                is_max,
                margins,
                beta,
                point,
                found,
                work,
                terms,
            });
        }
        terms
    }

    /// Notes as candidates the classes whose β is not 0, and those whose slope says that raising β gains:
    /// those above some class with β > 0, and above 0 where the sum of β may rise. Where the set is no box,
    /// the best vertex's as well. Margins become slopes.
    #[inline(always)]
    fn choose(
        &self,
        terms: &mut Terms<M::Value>,
        (margins, beta, point): (&mut [f64], &[M::Value], &Sparse),
        dual: &DualBlock,
        (work, found): (&mut Workspace, &mut [u32]),
    ) {
        let (smoothing, label) =
            (self.problem.shares().smoothing(), self.problem.label(dual.example as usize));
        let zero = M::Value::zero();
        let mut low = self.bounds().lowest_slope(dual.sum);
        if smoothing > 0.0 {
            for (margin, beta) in margins.iter_mut().zip(beta) {
                *margin -= smoothing * (beta.widen() + dual.sum);
            }
            margins[label] = 0.0;
        }
        for (class, beta) in point {
            if *beta > 0.0 {
                low = low.min(margins[*class as usize]);
            }
        }
        // The label's slope, which is 0, is not above it.
        let (slopes, low) = (&*margins, low.max(0.0));
        let start = terms.classes.len();
        let n = M::Value::dispatch(Select { values: beta, targets: slopes, threshold: low, found });
        terms.classes.extend_from_slice(&found[..n]);
        terms.values.extend(found[..n].iter().map(|class| beta[*class as usize]));
        if !self.is_box() {
            let Workspace { vertex, scratch, .. } = work;
            self.problem.polytope().vertex(slopes, label, scratch, vertex);
            let known = |class: usize| beta[class] != zero || slopes[class] > low;
            for (class, _) in vertex.iter().filter(|(class, _)| !known(*class as usize)) {
                terms.classes.push(*class);
                terms.values.push(zero);
            }
        }
        terms.counts.push((terms.classes.len() - start) as u32);
    }

    /// Whether the example's share of the gap, Φ − ⟨v, β⟩ + γ/2 (‖β‖² + (1ᵀβ)²), is more than rounding.
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
        let rounding = 16.0 * M::Value::epsilon().widen();
        loss - attained + envelope > rounding * (size + envelope)
    }
}

/// Looks at the duals of a block, compiled as a whole for the vectors of this machine.
struct Look<'a, 'p, M: Scorer, T> {
    state: &'a State<'p, M>,
    /// Where they are.
    places: &'a [u32],
    /// Their scores, of the first row.
    place: RowScores<'a, T>,
    /// Whether the loss is the largest margin.
    is_max: bool,
    margins: &'a mut [f64],
    beta: &'a mut [M::Value],
    point: &'a mut Sparse,
    found: &'a mut [u32],
    work: &'a mut Workspace,
    terms: &'a mut Terms<M::Value>,
}

impl<M: Scorer, T: Element> Kernel<T> for Look<'_, '_, M, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { state, places, place, is_max, margins, beta, point, found, work, terms } = self;
        for (row, at) in places.iter().map(|at| *at as usize).enumerate() {
            let (problem, dual) = (state.problem, &state.duals[at]);
            let example = dual.example as usize;
            let (costs, label) = (problem.cost_row(example), problem.label(example));
            let largest =
                Margins { place: RowScores { row, ..place }, costs, label, margins }.compute(simd);
            let loss = if is_max { largest } else { problem.loss(example, margins, work) };
            terms.bounds.add_loss(problem, example, loss);
            let (classes, values) = state.betas.row(at);
            if classes.is_empty() && loss == 0.0 {
                // Most examples of most problems.
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
                state.betas.scatter(at, beta);
                state.choose(terms, (margins, beta, point), dual, (work, found));
                classes.iter().for_each(|class| beta[*class as usize] = M::Value::zero());
            } else {
                terms.keep((classes, values));
            }
        }
    }
}

/// What a thread needs to evaluate terms in the precision T of β's in another.
struct Buffers<T, B> {
    block: GatheredRows<T>,
    scores: Vec<T>,
    margins: Vec<f64>,
    beta: Vec<B>,
    /// β, sparse.
    point: Sparse,
    /// Room for classes.
    found: Vec<u32>,
    is_max: bool,
    work: Workspace,
}

impl<T: Real> Terms<T> {
    /// For so many duals.
    fn with_room(n_duals: usize) -> Self {
        let (due, counts) = (Vec::with_capacity(n_duals), Vec::with_capacity(n_duals));
        let (classes, values) = (Vec::with_capacity(n_duals), Vec::with_capacity(n_duals));
        Self { bounds: Bounds::default(), due, counts, classes, values }
    }

    /// Notes the β of an example that is optimal.
    fn keep(&mut self, (classes, values): (&[u32], &[T])) {
        let start = self.classes.len();
        for (class, value) in classes.iter().zip(values).filter(|(_, value)| **value != T::zero()) {
            self.classes.push(*class);
            self.values.push(*value);
        }
        self.counts.push((self.classes.len() - start) as u32);
    }
}
