//! One partition's part of Newton's method on rows that are spread over several machines.
//!
//! The partitions evaluate the same model. Their sums add up to the sums over all rows. The certificate follows from
//! these sums as for a single partition (`docs/mathematics/consensus.md`).

use super::certificate::{VIOLATED, tilt_of};
use super::certificate_pass::RowPass;
use super::terms::Terms;
use super::{LogisticModel, LogisticProblem, LogisticTotals};
use crate::dual::rounding::{Bounded, Sum};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::run::Certificate;

/// Sums over the examples of one or several partitions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PartialSums {
    /// Σ c_i log-loss of example i, rounded up.
    pub loss: f64,
    /// Σ c_i H(α_i), rounded down.
    pub entropy: f64,
    /// Σ c_i (1 − α_iy).
    pub distance: f64,
    /// Σ c_i (e_y − α_i) of each output.
    pub residual: Vec<f64>,
    /// Σ c_i (e_y − α_i) x_iᵀ, output after output.
    pub image: Vec<f64>,
    /// The matrix of the linear system for the tilt; empty for many classes, without an intercept, and for tilted
    /// distributions.
    pub moments: Vec<f64>,
    /// The maximum number of successive additions in the computation of an entry of these sums.
    pub depth: usize,
}

impl PartialSums {
    /// The sums of a partition at a model, with distributions that are tilted if `tilt` is given.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn of(
        problem: &LogisticProblem<'_>,
        model: &LogisticModel,
        tilt: Option<&[f64]>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (terms, moments) = RowPass::new(problem, model, None).run(tilt, interrupt)?;
        let Terms { loss, entropy, distance, residual, image, depth } = terms;
        let loss = loss.total().upper();
        Ok(Self { loss, entropy, distance, residual, image, moments, depth })
    }

    /// The certificate of a model, given the sums over all examples.
    pub fn certificate(&self, totals: &LogisticTotals, model: &LogisticModel) -> Certificate {
        let Self { entropy, distance, depth, .. } = *self;
        let loss = Sum::from_iter([Bounded::exact(self.loss)]);
        let (residual, image) = (self.residual.clone(), self.image.clone());
        Terms { loss, entropy, distance, residual, image, depth }.certificate(totals, model)
    }

    /// The tilt with which the distributions satisfy the constraint of the intercept; for many classes, an
    /// approximation. None if no tilt is needed, or if the tilted distributions would leave the simplex.
    pub fn tilt(&self, totals: &LogisticTotals) -> Option<Vec<f64>> {
        let violation = self.residual.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        if !totals.intercept || violation <= VIOLATED * totals.total {
            return None;
        }
        tilt_of(&totals.class_totals, &self.residual, self.moments.clone())
    }
}

/// The Hessian of a partition's losses at a model, times a direction.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub(crate) fn hessian_product(
    problem: &LogisticProblem<'_>,
    model: &LogisticModel,
    direction: &LogisticModel,
    interrupt: &Interrupt,
) -> Result<LogisticModel> {
    let along = RowPass::new(problem, direction, None);
    let terms = RowPass::new(problem, model, None).product(&along, interrupt)?;
    Ok(LogisticModel { weights: terms.image, intercepts: terms.residual })
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};

    use super::*;
    use crate::data::{Data, Dense};

    const N_COLS: usize = 3;

    fn model(n_outputs: usize, seed: usize) -> LogisticModel {
        let number = |at: usize| ((7 * at + 3 * seed + at * at) % 13) as f64 / 6.0 - 1.0;
        LogisticModel {
            weights: (0..n_outputs * N_COLS).map(number).collect(),
            intercepts: (0..n_outputs).map(|at| number(at + 50)).collect(),
        }
    }

    /// Calls `body` with the problem of some rows.
    fn with<T>(
        n_classes: usize,
        range: std::ops::Range<usize>,
        body: impl FnOnce(&LogisticProblem<'_>) -> T,
    ) -> T {
        let rows = Array2::from_shape_fn((40, N_COLS), |(i, j)| {
            ((5 * i + 7 * j + i * i) % 17) as f64 / 8.0 - 1.0
        });
        let labels: Vec<u32> =
            range.clone().map(|i| ((i * i + i / 3) % n_classes) as u32).collect();
        let weights = range.clone().map(|i| 0.5 + (i % 3) as f64).collect();
        let data = Data::Dense64(Dense::new(rows.slice(s![range, ..])).unwrap());
        body(&LogisticProblem::new(data, &labels, n_classes, weights, true).unwrap())
    }

    fn gradient(problem: &LogisticProblem<'_>, model: &LogisticModel) -> LogisticModel {
        let sums = PartialSums::of(problem, model, None, &Interrupt::default()).unwrap();
        LogisticModel { weights: sums.image, intercepts: sums.residual }
    }

    #[test]
    fn products_are_the_derivatives_of_gradients() {
        let interrupt = Interrupt::default();
        for (n_classes, n_outputs) in [(2, 1), (4, 4)] {
            let (at, along) = (model(n_outputs, 1), model(n_outputs, 2));
            let moved = |scale: f64| LogisticModel {
                weights: at
                    .weights
                    .iter()
                    .zip(&along.weights)
                    .map(|(a, b)| a + scale * b)
                    .collect(),
                intercepts: at
                    .intercepts
                    .iter()
                    .zip(&along.intercepts)
                    .map(|(a, b)| a + scale * b)
                    .collect(),
            };
            let (found, before, after) = with(n_classes, 0..40, |problem| {
                let found = hessian_product(problem, &at, &along, &interrupt).unwrap();
                (found, gradient(problem, &moved(-1e-5)), gradient(problem, &moved(1e-5)))
            });
            let values = found.weights.iter().chain(&found.intercepts);
            let before = before.weights.iter().chain(&before.intercepts);
            let after = after.weights.iter().chain(&after.intercepts);
            for ((value, before), after) in values.zip(before).zip(after) {
                // The image is minus the gradient.
                assert!((value - (before - after) / 2e-5).abs() < 1e-6, "{value}");
            }
        }
    }

    #[test]
    fn sums_over_partitions_give_the_certificate_of_all_rows() {
        let interrupt = Interrupt::default();
        for (n_classes, n_outputs) in [(2, 1), (4, 4)] {
            let at = model(n_outputs, 3);
            let sums = |range| {
                with(n_classes, range, |problem| {
                    PartialSums::of(problem, &at, None, &interrupt).unwrap()
                })
            };
            let (mut joined, other) = (sums(0..15), sums(15..40));
            let add = |a: &mut Vec<f64>, b: &[f64]| a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            joined.loss += other.loss;
            joined.entropy += other.entropy;
            joined.distance += other.distance;
            joined.depth += other.depth;
            add(&mut joined.residual, &other.residual);
            add(&mut joined.image, &other.image);
            add(&mut joined.moments, &other.moments);
            with(n_classes, 0..40, |problem| {
                let whole = sums(0..40);
                let expected = whole.certificate(problem.totals(), &at);
                let found = joined.certificate(problem.totals(), &at);
                assert!((found.primal - expected.primal).abs() < 1e-12 * expected.primal);
                assert!((found.dual - expected.dual).abs() < 1e-10 * expected.primal);
                let (tilt, own) = (joined.tilt(problem.totals()), whole.tilt(problem.totals()));
                let pairs = tilt.iter().flatten().zip(own.iter().flatten());
                assert!(pairs.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs())) < 1e-10);
            });
        }
    }
}
