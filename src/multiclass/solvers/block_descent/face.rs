//! Conjugate gradients on a face of the dual domain, for problems on which single-block steps converge slowly.
//!
//! As a function of the free β (0 < β < upper), the dual is quadratic. The only constraints on them are fixed sums, for
//! the examples whose bound on the sum is active. Visits find the right face quickly and then stall if the quadratic is
//! badly conditioned. A few conjugate gradient steps on the face, brought back into the domain, replace hundreds of
//! visits (the gradient projection method of Moré and Toraldo 1991, with block descent in place of projected
//! gradients).

use std::ops::Range;

use num_traits::Zero;
use pulp::Simd;
use rayon::prelude::*;

use super::State;
use super::rows::WeightStore;
use super::schedule::VISIT_OVERHEAD;
use crate::data::Real;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{axpy, dot};
use crate::linalg::{Aligned, Element, Kernel, Lane};
use crate::multiclass::ScoreMap;
use crate::polytope::CappedBox;

/// A step is the last one if it gains less than this share of the total gain so far.
const LAST_SHARE: f64 = 0.02;
/// Maximum number of step lengths that are tried.
const TRIALS: usize = 4;
/// Factor from one step length to the next.
const SHORTER: f64 = 0.3;

/// An example with free candidates.
struct Member {
    /// The index of its dual block.
    at: usize,
    example: usize,
    /// C_i = p_i/λ.
    weight: f64,
    /// C_i h_i, the scale of the block's curvature.
    scale: f64,
    /// The sum of all entries of β_i, including those at a bound.
    sum: f64,
    /// Whether this sum is fixed.
    tight: bool,
    /// The range of its free candidates in the lists of the face.
    own: Range<usize>,
}

/// The free candidates of all members.
#[derive(Default)]
struct Face {
    members: Vec<Member>,
    betas: Vec<f64>,
    costs: Vec<f64>,
    /// The classes of each member's free candidates, followed by the member's label.
    classes: Vec<u32>,
    /// Number of values that a pass over the face reads.
    n_numbers: usize,
}

impl<M: WeightStore> State<'_, M> {
    /// Whether an epoch over the given examples uses conjugate gradients; only capped boxes have a face.
    pub(super) fn uses_conjugate_gradients(&self, due: &[u32], n_weights: usize) -> bool {
        self.problem.polytope().capped_box().is_some_and(|set| {
            self.schedule.wants_conjugate_gradients(n_weights, || self.face(due, set).n_numbers)
        })
    }

    /// Tries conjugate gradients on the face of the given examples. Returns the increase of the dual (in units of λ).
    pub(super) fn accelerate(
        &mut self,
        due: &[u32],
        weights: &mut Aligned<M::Value>,
        interrupt: &Interrupt,
    ) -> f64 {
        let Some(set) = self.problem.polytope().capped_box() else { return 0.0 };
        let face = self.face(due, set);
        let total = self.conjugate_gradients(&face, weights, interrupt);
        let mut share = 1.0;
        for trial in 0..TRIALS {
            if interrupt.is_raised() {
                return 0.0;
            }
            let candidate = face.candidate::<M::Value>(&total, share, set);
            self.schedule.note_read(face.cost());
            if let Some((gain, new_weights)) = self.improved(&face, &candidate, weights) {
                self.accept(&face, &candidate, set);
                *weights = new_weights;
                self.schedule.note_attempt(Some(trial));
                return gain;
            }
            share *= SHORTER;
        }
        self.schedule.note_attempt(None);
        0.0
    }

    /// Collects the free candidates of these examples.
    fn face(&self, due: &[u32], set: CappedBox) -> Face {
        let mut face = Face::default();
        for at in due.iter().map(|at| *at as usize) {
            let (dual, first) = (&self.dual.blocks[at], face.betas.len());
            let (sum, tight) = (dual.sum, self.set.is_tight(dual.sum));
            let (example, weight) = (dual.example as usize, dual.weight);
            let costs = self.problem.cost_row(example);
            let (classes, values) = self.dual.betas.row(at);
            let free = classes.iter().zip(values).filter(|(_, value)| is_free(**value, set));
            let n_free = free.clone().count();
            if set.floor > 0.0 && sum <= set.floor || n_free < 1 + usize::from(tight) {
                continue; // None of its β can move on the face.
            }
            for (class, value) in free {
                face.classes.push(*class);
                face.betas.push(value.widen());
                face.costs.push(costs.map_or(1.0, |costs| costs[*class as usize]));
            }
            face.classes.push(self.problem.label(example) as u32);
            face.n_numbers += (n_free + 1) * self.problem.map().row_size(example).n_values;
            let (scale, own) = (weight * self.set.steepness(dual), first..first + n_free);
            face.members.push(Member { at, example, weight, scale, sum, tight, own });
        }
        face
    }

    /// Maximises the dual over the face approximately, preconditioned by the curvature of each block. Returns the total
    /// step.
    fn conjugate_gradients(
        &mut self,
        face: &Face,
        weights: &[M::Value],
        interrupt: &Interrupt,
    ) -> Vec<f64> {
        let n = face.betas.len();
        let smoothing = self.problem.shares().smoothing();
        let (mut residual, mut slopes, mut scaled) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        self.scores(face, weights, &mut residual);
        face.turn_into_slopes(&mut residual, None, smoothing);
        face.precondition(&residual, &mut scaled);
        let (mut direction, mut total) = (scaled.clone(), vec![0.0; n]);
        let (mut product, mut gained) = (dot(&residual, &scaled), 0.0);
        let mut image = Aligned::zeros(weights.len());
        for step in 0..self.schedule.n_steps() {
            if interrupt.is_raised() {
                break;
            }
            image.fill(M::Value::zero());
            self.add_image(face, &direction, &mut image);
            self.scores(face, &image, &mut slopes);
            self.schedule.note_read(2 * face.cost());
            face.turn_into_slopes(&mut slopes, Some(&direction), smoothing);
            // The curvature along a direction p is −pᵀ (changes of the slopes).
            let curvature = -dot(&slopes, &direction);
            if curvature <= 0.0 || product <= 0.0 {
                break;
            }
            let length = product / curvature;
            axpy(&mut total, length, &direction);
            let gain = 0.5 * product * length;
            gained += gain;
            if step > 1 && gain < LAST_SHARE * gained {
                break;
            }
            axpy(&mut residual, length, &slopes);
            face.precondition(&residual, &mut scaled);
            let next = dot(&residual, &scaled);
            let ratio = next / product;
            product = next;
            for (direction, scaled) in direction.iter_mut().zip(&scaled) {
                *direction = scaled + ratio * *direction;
            }
        }
        total
    }

    /// Returns the increase of the dual if β is replaced by `candidate`, and the new weights; None if the dual does not
    /// increase.
    fn improved(
        &self,
        face: &Face,
        candidate: &[f64],
        weights: &Aligned<M::Value>,
    ) -> Option<(f64, Aligned<M::Value>)> {
        let change: Vec<f64> =
            candidate.iter().zip(&face.betas).map(|(new, old)| new - old).collect();
        let mut moved = Aligned::zeros(weights.len());
        moved.copy_from_slice(weights);
        self.add_image(face, &change, &mut moved);
        // ‖w‖² − ‖w'‖², summed from differences to keep rounding errors small. With an origin w₀, these norms of w₀ +
        // w(β) include the dual's term −⟨w₀, w(β)⟩.
        let fall: f64 = weights
            .iter()
            .zip(&*moved)
            .map(|(old, new)| (old.widen() - new.widen()) * (old.widen() + new.widen()))
            .sum();
        let gain = face.linear_gain(&change, self.problem.shares().smoothing()) + 0.5 * fall;
        (gain > 0.0).then_some((gain, moved))
    }

    /// Replaces the free β by `candidate`.
    fn accept(&mut self, face: &Face, candidate: &[f64], set: CappedBox) {
        for member in &face.members {
            let values = self.dual.betas.row_mut(member.at).1;
            let free = values.iter_mut().filter(|value| is_free(**value, set));
            for (value, new) in free.zip(&candidate[member.own.clone()]) {
                *value = M::Value::narrow(*new);
            }
            self.dual.blocks[member.at].sum = values.iter().map(|value| value.widen()).sum();
        }
    }
}

/// Number of members that a thread scores at a time.
const PIECE: usize = 256;
/// Minimum number of values per pass for which several threads are used: about 30 μs of work.
const WORTHWHILE: usize = 1 << 17;
/// Minimum number of values per weight that a part of a pass reads, as each part has its own weight vector.
const PART: usize = 16;
/// Maximum number of parts of a pass.
const MAX_PARTS: usize = 4;

impl<M: WeightStore> State<'_, M> {
    /// s_j − s_y for the free candidates.
    fn scores(&self, face: &Face, weights: &[M::Value], out: &mut [f64]) {
        let n = face.members.len();
        let score = |members, out: &mut [f64]| {
            M::Value::dispatch(FaceScores { state: self, face, members, weights, out });
        };
        if face.n_numbers < WORTHWHILE {
            return score(0..n, out);
        }
        let (mut all, mut rest) = (Vec::with_capacity(n.div_ceil(PIECE)), out);
        for (index, members) in face.members.chunks(PIECE).enumerate() {
            let n_places = members[members.len() - 1].own.end - members[0].own.start;
            let (own, later) = std::mem::take(&mut rest).split_at_mut(n_places);
            all.push((index * PIECE..n.min((index + 1) * PIECE), own));
            rest = later;
        }
        all.into_par_iter().for_each(|(members, out)| score(members, out));
    }

    /// Adds the weights of a direction to `image`. The split of the members into parts depends only on the data, and
    /// the images of the parts are added in order, so the result does not depend on the number of threads.
    fn add_image(&self, face: &Face, direction: &[f64], image: &mut [M::Value]) {
        let n_parts = match face.n_numbers >= WORTHWHILE {
            true => (face.n_numbers / (PART * image.len())).clamp(1, MAX_PARTS),
            false => 1,
        };
        let add = |members, image: &mut [M::Value]| {
            M::Value::dispatch(FaceImage { state: self, face, direction, members, image });
        };
        let n = face.members.len();
        if n_parts == 1 {
            return add(0..n, image);
        }
        let length = n.div_ceil(n_parts);
        let own_image = |part: usize| {
            let mut own = Aligned::zeros(image.len());
            add(part * length..n.min((part + 1) * length), &mut own);
            own
        };
        let parts: Vec<_> = (0..n.div_ceil(length)).into_par_iter().map(own_image).collect();
        for part in parts {
            image.iter_mut().zip(&*part).for_each(|(sum, value)| *sum = *sum + *value);
        }
    }
}

/// [`State::scores`] for some members, compiled as a whole for this machine's vector instructions.
struct FaceScores<'a, 'p, M: WeightStore> {
    state: &'a State<'p, M>,
    face: &'a Face,
    members: Range<usize>,
    weights: &'a [M::Value],
    out: &'a mut [f64],
}

impl<M: WeightStore> Kernel<M::Value> for FaceScores<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        M::Value: Lane<S>,
    {
        let Self { state, face, members, weights, out } = self;
        let (mut row, mut done) = (Vec::new(), 0);
        let mut scores = vec![M::Value::zero(); state.problem.n_classes() + 1];
        for (member, classes) in members.map(|index| face.member(index)) {
            let row = state.store.row(member.example, &mut row);
            let scores = &mut scores[..classes.len()];
            state.store.score_few(simd, weights, row, classes, scores);
            let own = scores[classes.len() - 1].widen();
            for (out, score) in out[done..].iter_mut().zip(&scores[..classes.len() - 1]) {
                *out = score.widen() - own;
            }
            done += classes.len() - 1;
        }
    }
}

/// [`State::add_image`] for some members; compiled for each instruction set.
struct FaceImage<'a, 'p, M: WeightStore> {
    state: &'a State<'p, M>,
    face: &'a Face,
    direction: &'a [f64],
    members: Range<usize>,
    image: &'a mut [M::Value],
}

impl<M: WeightStore> Kernel<M::Value> for FaceImage<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        M::Value: Lane<S>,
    {
        let Self { state, face, direction, members, image } = self;
        let mut change = vec![M::Value::zero(); state.problem.n_classes() + 1];
        let mut row = Vec::new();
        for (member, classes) in members.map(|index| face.member(index)) {
            let direction = &direction[member.own.clone()];
            let mut sum = 0.0;
            for (change, value) in change.iter_mut().zip(direction) {
                *change = M::Value::narrow(-member.weight * value);
                sum += value;
            }
            change[direction.len()] = M::Value::narrow(member.weight * sum);
            let row = state.store.row(member.example, &mut row);
            state.store.add_few(simd, image, row, classes, &change[..classes.len()]);
        }
    }
}

impl Face {
    /// The time of a pass over the face, in values read.
    fn cost(&self) -> usize {
        self.n_numbers + VISIT_OVERHEAD / 2 * self.members.len()
    }

    /// Returns a member, and the classes of its free candidates followed by its label.
    #[inline(always)]
    fn member(&self, index: usize) -> (&Member, &[u32]) {
        let member = &self.members[index];
        // Each earlier member has added one label to the list.
        (member, &self.classes[member.own.start + index..=member.own.end + index])
    }

    /// Returns the β after `share` times the total step, brought back into the domain and rounded to the precision T.
    fn candidate<T: Real>(&self, total: &[f64], share: f64, set: CappedBox) -> Vec<f64> {
        let moved = self.betas.iter().zip(total);
        let mut moved: Vec<f64> =
            moved.map(|(beta, total)| (beta + share * total).max(0.0).min(set.upper)).collect();
        for member in &self.members {
            let (betas, own) = (&self.betas[member.own.clone()], &mut moved[member.own.clone()]);
            let fixed = member.sum - betas.iter().sum::<f64>();
            let (free_sum, room) = (own.iter().sum::<f64>(), set.cap - fixed);
            let scale = if free_sum > room { (room / free_sum).max(0.0) } else { 1.0 };
            if fixed + scale * free_sum < set.floor {
                own.copy_from_slice(betas);
            } else {
                own.iter_mut().for_each(|beta| *beta = T::narrow(scale * *beta).widen());
            }
        }
        moved
    }

    /// The change of the dual without the regulariser, in units of λ.
    fn linear_gain(&self, change: &[f64], smoothing: f64) -> f64 {
        let mut gain = 0.0;
        for member in &self.members {
            let own = member.own.clone();
            let (change, betas) = (&change[own.clone()], &self.betas[own.clone()]);
            let sum: f64 = change.iter().sum();
            let bend =
                dot(betas, change) + member.sum * sum + 0.5 * (dot(change, change) + sum * sum);
            gain += member.weight * (dot(&self.costs[own], change) - smoothing * bend);
        }
        gain
    }

    /// Converts scores s_j − s_y to C_i (Δ_j + s_j − s_y − γ(b_j + 1ᵀb)), the slopes of the dual at the point b,
    /// projected onto the face. If `direction` is given, the scores belong to it, and the results are the changes of
    /// the slopes, without Δ_j.
    fn turn_into_slopes(&self, scores: &mut [f64], direction: Option<&[f64]>, smoothing: f64) {
        for member in &self.members {
            let own = member.own.clone();
            let (scores, costs) = (&mut scores[own.clone()], &self.costs[own.clone()]);
            match direction {
                None => {
                    for ((score, cost), beta) in scores.iter_mut().zip(costs).zip(&self.betas[own])
                    {
                        *score = member.weight * (cost + *score - smoothing * (beta + member.sum));
                    }
                }
                Some(direction) => {
                    let direction = &direction[own];
                    let sum: f64 = direction.iter().sum();
                    for (score, change) in scores.iter_mut().zip(direction) {
                        *score = member.weight * (*score - smoothing * (change + sum));
                    }
                }
            }
            if member.tight {
                // The projection keeps the sum.
                let mean = scores.iter().sum::<f64>() / scores.len() as f64;
                scores.iter_mut().for_each(|score| *score -= mean);
            }
        }
    }

    /// Multiplies by the inverse of each block's curvature: C_i h_i (I + 11ᵀ), or C_i h_i I if the sum is fixed.
    fn precondition(&self, residual: &[f64], scaled: &mut [f64]) {
        for member in &self.members {
            let (residual, scaled) =
                (&residual[member.own.clone()], &mut scaled[member.own.clone()]);
            let mean = match member.tight {
                true => 0.0,
                false => residual.iter().sum::<f64>() / (residual.len() + 1) as f64,
            };
            for (scaled, residual) in scaled.iter_mut().zip(residual) {
                *scaled = (residual - mean) / member.scale;
            }
        }
    }
}

/// Whether β is strictly between its bounds.
fn is_free<T: Real>(beta: T, set: CappedBox) -> bool {
    let beta = beta.widen();
    beta > 0.0 && beta < set.upper
}
