//! The dual extragradient method for structured problems (Nesterov 2007; Taskar, Lacoste-Julien, Jordan 2006).

use std::ops::Range;

use super::{Marginals, Projection, Work};
use crate::dual::rounding::{gamma, norm_above};
use crate::dual::{Bounded, Shares};
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, ModelArrays};
use crate::linalg::{Sparse, TouchedVector, sparse, squared_norm};
use crate::parallel::for_items;
use crate::run::{Certificate, Progress, Solver};

/// Accuracy of projections without a closed form.
const ACCURACY: f64 = 1e-8;
/// Number of groups of examples that are summed separately. It does not depend on the number of
/// threads.
const GROUPS: usize = 16;
/// Number of iterations of the power method for ‖F‖² = ‖Σ p_i A_iᵀ A_i‖. Its estimate is a lower bound, so it is
/// multiplied by `MARGIN`.
const POWER: usize = 30;
const MARGIN: f64 = 1.1;
/// Number of iterations between certificates; each certificate decodes all examples once more.
const CERTIFIED_EVERY: usize = 10;

/// Solves min over ‖w‖ ≤ R of Σ_i p_i max over z in the hull of the μ(y) of ⟨A_i w + c_i, z⟩ − ⟨A_i w, μ(y_i)⟩, as a
/// saddle point problem in (w, z).
///
/// Uses the memory-efficient form: the sum of the operator's values so far is (t + 1) times its value at the average,
/// and the part of this value for z_i depends only on the averaged w. So the z_i and their averages need not be stored;
/// it suffices to store the averages of w, of Σ p_i A_iᵀ z_i and of Σ p_i ⟨c_i, z_i⟩. The method starts at w = 0 and at
/// the projection of 0 for z.
pub struct Extragradient<'a> {
    model: &'a dyn Marginals,
    shares: Shares,
    projection: Projection,
    radius: f64,
    /// Step sizes for w and z; their product is 1/‖F‖².
    steps: Option<(f64, f64)>,
    /// Image Σ p_i A_iᵀ μ(y_i) of the true labels.
    truth: Vec<f64>,
    /// Averages of w, of Σ p_i A_iᵀ z_i, and of Σ p_i (⟨c_i, z_i⟩ + constant).
    weights: Vec<f64>,
    image: Vec<f64>,
    linear: f64,
    iterations: usize,
    groups: Vec<Group>,
}

#[derive(Default)]
struct Group {
    image: TouchedVector,
    linear: f64,
    local: Local,
    failure: Option<Error>,
}

/// Buffers for one example at a time.
#[derive(Default)]
struct Local {
    scores: Vec<f64>,
    costs: Vec<f64>,
    point: Vec<f64>,
    marginals: Vec<f64>,
    sparse: Sparse,
    label: Vec<u32>,
    work: Work,
}

impl<'a> Extragradient<'a> {
    /// Creates the method on the ball ‖w‖ ≤ `radius`, a constraint that takes the place of the
    /// penalty λ/2 ‖w‖².
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a radius that is not positive, and for true labels outside the hull.
    pub fn new(
        model: &'a dyn Marginals,
        shares: Shares,
        projection: Projection,
        radius: f64,
    ) -> Result<Self> {
        if !(radius > 0.0 && radius.is_finite()) {
            return Err(Error::argument("radius", "must be positive and finite"));
        }
        if let Some(example) = (0..model.n_examples()).find(|i| !model.holds_truth(*i)) {
            let message = format!(
                "\"extragradient\" needs true labels that can be decoded; the label of example {example} \
                 is not a matching (a row or column occurs twice)"
            );
            return Err(Error::argument("y", message));
        }
        let n_weights = model.n_weights();
        let group = || Group { image: TouchedVector::new(n_weights), ..Group::default() };
        Ok(Self {
            model,
            shares,
            projection,
            radius,
            steps: None,
            truth: vec![0.0; n_weights],
            weights: vec![0.0; n_weights],
            image: vec![0.0; n_weights],
            linear: 0.0,
            iterations: 0,
            groups: std::iter::repeat_with(group).take(GROUPS).collect(),
        })
    }

    /// The averaged w.
    #[cfg(test)]
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Returns the averaged w.
    pub fn into_weights(self) -> Vec<f64> {
        self.weights
    }

    /// The step sizes for w and for z, if known.
    #[cfg(test)]
    pub fn steps(&self) -> Option<(f64, f64)> {
        self.steps
    }

    /// Calls `visit` for every example, in parallel over groups; writes the sum of the images to `image`, and returns
    /// the sum of the linear terms.
    fn pass(
        &mut self,
        image: &mut [f64],
        interrupt: &Interrupt,
        visit: impl Fn(&Self, usize, &mut Group) -> Result<()> + Sync,
    ) -> Result<f64> {
        let mut groups = std::mem::take(&mut self.groups);
        let method: &Self = self;
        let n = method.shares.n_blocks();
        for_items(groups.iter_mut().enumerate(), 1, |(index, group)| {
            group.image.clear();
            group.linear = 0.0;
            group.local.work.interrupt.clone_from(interrupt);
            let examples: Range<usize> = index * n / GROUPS..(index + 1) * n / GROUPS;
            for example in examples.filter(|example| method.shares.of(*example) > 0.0) {
                if group.failure.is_none() && !interrupt.is_raised() {
                    group.failure = visit(method, example, group).err();
                }
            }
        });
        image.fill(0.0);
        let mut linear = 0.0;
        let mut failure = None;
        for group in &mut groups {
            group.image.add_to(1.0, image);
            linear += group.linear;
            failure = failure.or(group.failure.take());
        }
        self.groups = groups;
        interrupt.check()?;
        failure.map_or(Ok(linear), Err)
    }

    /// Computes the image of the truth, then ‖F‖² (by the power method) and the step sizes.
    fn prepare(&mut self, interrupt: &Interrupt) -> Result<(f64, f64)> {
        let mut truth = std::mem::take(&mut self.truth);
        let size = self.pass(&mut truth, interrupt, |method, example, group| {
            let local = &mut group.local;
            method.model.parts(example, method.model.truth(example), &mut local.sparse);
            let share = method.shares.of(example);
            method.model.add_image(example, &local.sparse, share, &mut group.image);
            let square = sparse::squared_norm(&local.sparse);
            group.linear += share * square;
            Ok(())
        })?;
        self.truth = truth;
        let n_weights = self.weights.len();
        // Any start that is not orthogonal to the leading eigenvector works.
        let mut x: Vec<f64> = (0..n_weights).map(|j| 1.0 + (j % 7) as f64 / 7.0).collect();
        let mut y = vec![0.0; n_weights];
        let mut largest = 0.0;
        for _ in 0..POWER {
            let norm = squared_norm(&x).sqrt();
            if norm == 0.0 {
                break;
            }
            x.iter_mut().for_each(|x| *x /= norm);
            let weights = &x;
            self.pass(&mut y, interrupt, |method, example, group| {
                let local = &mut group.local;
                local.load_scores(method.model, example, weights);
                std::mem::swap(&mut local.scores, &mut local.marginals);
                group.add_image(method.model, example, method.shares.of(example));
                Ok(())
            })?;
            largest = squared_norm(&y).sqrt();
            std::mem::swap(&mut x, &mut y);
        }
        let step = if largest > 0.0 { 1.0 / (MARGIN * largest).sqrt() } else { 1.0 };
        // The ratio of the step sizes is the ratio of the squared distances that w and z may have to move.
        let ratio = self.radius / size.max(f64::MIN_POSITIVE).sqrt();
        Ok((step * ratio, step / ratio))
    }

    /// Computes the middle point v_i of one example or, given the w of the middle point, the end point u_i
    /// (`docs/mathematics/structured.md`). Adds the image and the linear term of this point.
    fn move_marginals(
        &self,
        example: usize,
        step: f64,
        middle: Option<&[f64]>,
        group: &mut Group,
    ) -> Result<()> {
        let (model, local) = (self.model, &mut group.local);
        let constant = local.load_costs(model, example);
        local.load_scores(model, example, &self.weights);
        let pull = step * self.iterations as f64;
        local.point.clear();
        local.point.extend(local.scores.iter().zip(&local.costs).map(|(s, c)| pull * (s + c)));
        if let Some(middle) = middle {
            if self.projection == Projection::Euclidean {
                self.project(example, local)?;
                std::mem::swap(&mut local.point, &mut local.marginals);
            }
            // A Bregman step from v adds a term to the potentials of v.
            local.load_scores(model, example, middle);
            for (point, (score, cost)) in
                local.point.iter_mut().zip(local.scores.iter().zip(&local.costs))
            {
                *point += step * (score + cost);
            }
        }
        self.project(example, local)?;
        let share = self.shares.of(example);
        let costs = local.marginals.iter().zip(&local.costs).map(|(z, c)| z * c);
        group.linear += share * (constant + costs.sum::<f64>());
        group.add_image(model, example, share);
        Ok(())
    }

    fn project(&self, example: usize, local: &mut Local) -> Result<()> {
        let Local { point, marginals, work, .. } = local;
        marginals.clear();
        marginals.resize(point.len(), 0.0);
        match self.projection {
            Projection::Euclidean => {
                self.model.euclidean(example, point, ACCURACY, work, marginals)?
            }
            Projection::Entropic => {
                self.model.entropic(example, point, ACCURACY, work, marginals)?
            }
        };
        Ok(())
    }

    /// Replaces w by w − step (image − truth), projected onto the ball.
    fn descend(&self, weights: &mut [f64], image: &[f64], step: f64) {
        for (weight, (image, truth)) in weights.iter_mut().zip(image.iter().zip(&self.truth)) {
            *weight -= step * (image - truth);
        }
        let norm = squared_norm(weights).sqrt();
        if norm > self.radius {
            weights.iter_mut().for_each(|weight| *weight *= self.radius / norm);
        }
    }
}

impl Local {
    fn load_scores(&mut self, model: &dyn Marginals, example: usize, weights: &[f64]) {
        self.scores.clear();
        self.scores.resize(model.n_parts(example), 0.0);
        model.scores(example, weights, &mut self.scores);
    }

    fn load_costs(&mut self, model: &dyn Marginals, example: usize) -> f64 {
        self.costs.clear();
        self.costs.resize(model.n_parts(example), 0.0);
        model.add_costs(example, &mut self.costs)
    }
}

impl Group {
    /// Adds share · Aᵀ z to the image, where z are the marginals.
    fn add_image(&mut self, model: &dyn Marginals, example: usize, share: f64) {
        let local = &mut self.local;
        local.sparse.clear();
        let entries = local.marginals.iter().zip(0..).filter(|(value, _)| **value != 0.0);
        local.sparse.extend(entries.map(|(value, part)| (part, *value)));
        model.add_image(example, &local.sparse, share, &mut self.image);
    }
}

impl Solver for Extragradient<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let (for_w, for_z) = match self.steps {
            Some(steps) => steps,
            None => {
                let steps = self.prepare(interrupt)?;
                *self.steps.insert(steps)
            }
        };
        let t = self.iterations as f64;
        let mut image = vec![0.0; self.weights.len()];
        self.pass(&mut image, interrupt, |method, example, group| {
            method.move_marginals(example, for_z, None, group)
        })?;
        let mut middle = vec![0.0; self.weights.len()];
        self.descend(&mut middle, &self.image, for_w * t);
        let mut end = middle.clone();
        self.descend(&mut end, &image, for_w);
        let linear = self.pass(&mut image, interrupt, |method, example, group| {
            method.move_marginals(example, for_z, Some(&middle), group)
        })?;
        let average = |average: &mut f64, new: f64| *average = (t * *average + new) / (t + 1.0);
        self.weights.iter_mut().zip(end).for_each(|(weight, new)| average(weight, new));
        self.image.iter_mut().zip(image).for_each(|(value, new)| average(value, new));
        average(&mut self.linear, linear);
        self.iterations += 1;
        if self.iterations.is_multiple_of(CERTIFIED_EVERY) || self.iterations == 1 {
            Ok(Progress::Epoch(self.certify(interrupt)?))
        } else {
            Ok(Progress::Uncertified)
        }
    }

    /// Returns the bounds whose difference is the restricted gap: the mean loss at the averaged w, and the minimum over
    /// the ball at the averaged z.
    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let mut unused = vec![0.0; self.weights.len()];
        let primal = self.pass(&mut unused, interrupt, |method, example, group| {
            let (model, local) = (method.model, &mut group.local);
            local.load_scores(model, example, &method.weights);
            model.parts(example, model.truth(example), &mut local.sparse);
            let right = sparse::dot(&local.scores, &local.sparse);
            let constant = model.add_costs(example, &mut local.scores);
            model.decode(example, &local.scores, &mut local.work, &mut local.label);
            model.parts(example, &local.label, &mut local.sparse);
            let best = sparse::dot(&local.scores, &local.sparse);
            group.linear += method.shares.of(example) * (constant + best - right);
            Ok(())
        })?;
        let errors = self.errors();
        let summed = gamma(self.shares.n_blocks() + GROUPS) * primal.abs();
        let primal = Bounded::new(primal, errors.primal + summed).upper();
        if self.iterations == 0 {
            return Ok(Certificate { primal, dual: f64::NEG_INFINITY });
        }
        let differences = self.image.iter().zip(&self.truth).map(|(image, truth)| image - truth);
        let slope = self.radius * norm_above(&differences.collect::<Vec<f64>>());
        let dual = Bounded::exact(self.linear) - Bounded::new(slope, errors.dual);
        Ok(Certificate { primal, dual: dual.lower() })
    }

    fn model_arrays(&self) -> Option<ModelArrays> {
        Some(vec![self.weights.clone()])
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.weights);
        true
    }
}

/// Bounds on the effect of rounding and of inexact projections on a certificate.
#[derive(Default)]
struct Errors {
    primal: f64,
    dual: f64,
}

impl Extragradient<'_> {
    fn errors(&self) -> Errors {
        let (norm, n) = (norm_above(&self.weights), self.shares.n_blocks());
        let (mut errors, mut costs) = (Errors::default(), Vec::new());
        for example in 0..n {
            costs.clear();
            costs.resize(self.model.n_parts(example), 0.0);
            self.model.add_costs(example, &mut costs);
            let cost = costs.iter().fold(0.0, |largest: f64, cost| largest.max(cost.abs()));
            let (share, size) = (self.shares.of(example), self.model.size(example));
            errors.primal += share * size.loss_error(cost, norm);
            // The error of a marginal comes from the accuracy of the projections and from rounding in the averages.
            let defect = ACCURACY + gamma(4 * n + 8 * self.iterations + 64);
            let scale = cost + self.radius * size.norm;
            errors.dual += share * 2.0 * size.n_parts as f64 * defect * scale;
        }
        errors
    }
}
