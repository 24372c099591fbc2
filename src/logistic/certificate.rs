//! The certificate of a model: its objective, and the dual value of distributions that belong to it.

use std::ops::Range;

use rayon::prelude::*;

use super::terms::{Distribution, Terms};
use super::{LogisticModel, LogisticProblem};
use crate::data::{Data, Rows};
use crate::dual::rounding::{Bounded, TINY, gamma};
use crate::error::Result;
use crate::for_data;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::solve_semidefinite;
use crate::linalg::transpose;
use crate::linalg::vectors::axpy;
use crate::parallel::parts;
use crate::run::Certificate;

/// Classes up to which the tilt solves a system; above that it takes its diagonal.
pub(super) const SOLVED: usize = 256;
/// A share of the total weight: a violation of the intercept's constraint below it is mixed away at once.
pub(super) const VIOLATED: f64 = 1e-12;
/// The interrupt is looked at after this many rows.
const PIECE: usize = 256;

/// Appends the distribution of an example to an empty vector, up to a factor: a share of each class.
pub type Given<'g> = dyn Fn(usize, &mut Vec<f64>) + Sync + 'g;

/// The objective of a model, rounded up, and the dual value of distributions, rounded down, both divided by Σ c_i.
///
/// The distributions are the softmax of the model's scores, or in proportion to those given. With an intercept they are first tilted to α_k (1 + δ_k − ⟨α, δ⟩), which meets the
/// constraint Σ c_i (e_y − α_i) = 0 up to the violation's square, and then mixed with one distribution for all examples,
/// which meets it exactly.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub fn certificate(
    problem: &LogisticProblem<'_>,
    model: &LogisticModel,
    given: Option<&Given<'_>>,
    interrupt: &Interrupt,
) -> Result<Certificate> {
    let pass = Pass::new(problem, model, given);
    let (terms, moments) = pass.run(None, interrupt)?;
    let certificate = terms.certificate(problem, model);
    let violation = terms.residual.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    if !problem.intercept() || violation <= VIOLATED * problem.total() {
        return Ok(certificate);
    }
    let Some(tilt) = tilt_of(problem, &terms.residual, moments) else { return Ok(certificate) };
    let (tilted, _) = pass.run(Some(&tilt), interrupt)?;
    let dual = tilted.certificate(problem, model).dual;
    Ok(Certificate { primal: certificate.primal, dual: certificate.dual.max(dual) })
}

/// δ with (diag(Σ c_i α_i) − Σ c_i α_i α_iᵀ) δ = Σ c_i (e_y − α_i), as long as no distribution becomes negative.
pub(super) fn tilt_of(
    problem: &LogisticProblem<'_>,
    residual: &[f64],
    mut moments: Vec<f64>,
) -> Option<Vec<f64>> {
    let mut tilt = residual.to_vec();
    if let [second] = residual {
        tilt = vec![0.0, second / moments[0]];
    } else if moments.is_empty() {
        let sums =
            problem.class_totals().iter().zip(residual).map(|(own, residual)| own - residual);
        tilt.iter_mut().zip(sums).for_each(|(tilt, sum)| *tilt /= sum);
    } else {
        solve_semidefinite(&mut moments, &mut tilt);
    }
    let most = tilt.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = tilt.iter().copied().fold(f64::INFINITY, f64::min);
    (most - least < 0.99).then_some(tilt)
}

/// A pass over all rows at a model.
struct Pass<'p, 'a> {
    problem: &'p LogisticProblem<'a>,
    given: Option<&'p Given<'p>>,
    /// The weights, feature after feature.
    weights: Vec<f64>,
    intercepts: &'p [f64],
    /// The largest absolute weight of each feature, and of the intercepts.
    largest: (Vec<f64>, f64),
    /// A bound on the sum of the absolute products of any dense row.
    size: f64,
}

impl<'p, 'a> Pass<'p, 'a> {
    fn new(
        problem: &'p LogisticProblem<'a>,
        model: &'p LogisticModel,
        given: Option<&'p Given<'p>>,
    ) -> Self {
        let (d, n_outputs) = (problem.n_features(), problem.n_outputs());
        let mut weights = vec![0.0; d * n_outputs];
        if d > 0 {
            transpose(&model.weights, d, &mut weights, n_outputs);
        }
        let most =
            |values: &[f64]| values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let largest: Vec<f64> = weights.chunks_exact(n_outputs).map(most).collect();
        let offset = most(&model.intercepts);
        let products = largest.iter().zip(problem.column_sizes()).map(|(w, x)| w * x);
        let size = offset + products.sum::<f64>();
        let largest = (largest, offset);
        Self { problem, given, weights, intercepts: &model.intercepts, largest, size }
    }

    /// The sums of the distributions, tilted or not, and the matrix of the tilt's system.
    fn run(&self, tilt: Option<&[f64]>, interrupt: &Interrupt) -> Result<(Terms, Vec<f64>)> {
        let add = |rows: Range<usize>| {
            let mut sums = Sums::new(self.problem, tilt.is_none());
            for (number, row) in rows.enumerate() {
                if number % PIECE == 0 && interrupt.is_raised() {
                    break;
                }
                if self.problem.weights()[row] > 0.0 {
                    self.add(row, tilt, &mut sums);
                }
            }
            sums
        };
        let found: Vec<Sums> = pieces(self.problem).into_par_iter().map(add).collect();
        interrupt.check()?;
        let mut found = found.into_iter();
        let mut sums = found.next().unwrap_or_else(|| Sums::new(self.problem, false));
        for other in found {
            sums.terms.join(&other.terms);
            sums.image.iter_mut().zip(&other.image).for_each(|(a, b)| *a += b);
            sums.moments.iter_mut().zip(&other.moments).for_each(|(a, b)| *a += b);
        }
        let Sums { mut terms, image, moments, .. } = sums;
        terms.image = vec![0.0; image.len()];
        if !image.is_empty() {
            transpose(
                &image,
                self.problem.n_outputs(),
                &mut terms.image,
                self.problem.n_features(),
            );
        }
        Ok((terms, moments))
    }

    /// Adds an example's part.
    fn add(&self, row: usize, tilt: Option<&[f64]>, sums: &mut Sums) {
        let (problem, n_outputs) = (self.problem, self.problem.n_outputs());
        let (label, weight) = (problem.labels()[row] as usize, problem.weights()[row]);
        let Sums { scores, own, terms, image, moments } = sums;
        scores.copy_from_slice(self.intercepts);
        let (mut size, mut n_values) = (self.largest.1, 2);
        for_data!(problem.rows(), rows => rows.visit_row(row, |column, value| {
            axpy(scores, value, &self.weights[column * n_outputs..][..n_outputs]);
            size += value.abs() * self.largest.0[column];
            n_values += 1;
        }));
        if !matches!(problem.rows(), Data::Csr32(_) | Data::Csr64(_)) {
            size = size.min(self.size);
        }
        let error = gamma(n_values) * size + n_values as f64 * TINY;
        let loss = own.softmax(scores, label, error);
        terms.loss.add(Bounded::exact(weight) * loss);
        if let Some(given) = self.given {
            own.given(|shares| given(row, shares));
        }
        let entropy = match tilt {
            Some(tilt) => own.tilt(tilt),
            None => own.entropy(),
        };
        terms.entropy += weight * entropy;
        let first = own.shares.len() - n_outputs;
        add_moments(weight, &own.shares[first..], moments);
        terms.distance += weight * own.residual(label);
        own.shares.iter_mut().for_each(|share| *share *= weight);
        let residual = &own.shares[first..];
        axpy(&mut terms.residual, 1.0, residual);
        terms.depth += 1;
        for_data!(problem.rows(), rows => rows.visit_row(row, |column, value| {
            axpy(&mut image[column * n_outputs..][..n_outputs], value, residual);
        }));
    }
}

/// Adds c (diag α − α αᵀ).
fn add_moments(weight: f64, shares: &[f64], moments: &mut [f64]) {
    if moments.is_empty() {
        return;
    }
    let n = shares.len();
    for (k, (row, share)) in moments.chunks_exact_mut(n).zip(shares).enumerate() {
        let scale = weight * share;
        axpy(row, -scale, shares);
        row[k] += scale;
    }
}

/// The rows of each partial sum: fewer of sparse rows, whose sums may be larger than they.
fn pieces(problem: &LogisticProblem<'_>) -> Vec<Range<usize>> {
    let n_rows = problem.n_examples();
    let all = parts(n_rows);
    let n_stored = for_data!(problem.rows(), rows => rows.n_stored());
    let most = (n_stored / (8 * problem.n_features().max(1))).max(1);
    if all.len() <= most {
        return all;
    }
    (0..most).map(|part| part * n_rows / most..(part + 1) * n_rows / most).collect()
}

/// Sums over the rows of a piece, and work space.
struct Sums {
    scores: Vec<f64>,
    own: Distribution,
    terms: Terms,
    /// Σ c_i (e_y − α_i) x_iᵀ, feature after feature.
    image: Vec<f64>,
    moments: Vec<f64>,
}

impl Sums {
    fn new(problem: &LogisticProblem<'_>, with_moments: bool) -> Self {
        let n_outputs = problem.n_outputs();
        let solved = with_moments && problem.intercept() && n_outputs <= SOLVED;
        Self {
            scores: vec![0.0; n_outputs],
            own: Distribution::default(),
            terms: Terms::zeros(n_outputs),
            image: vec![0.0; n_outputs * problem.n_features()],
            moments: vec![0.0; if solved { n_outputs * n_outputs } else { 0 }],
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayView2};

    use super::*;
    use crate::data::Dense;

    fn rows(n: usize) -> Array2<f64> {
        Array2::from_shape_fn((n, 2), |(i, j)| {
            ((7 * i + 3 * j + i * i * j) % 11) as f64 / 5.0 - 1.0
        })
    }

    fn with<T>(
        rows: ArrayView2<'_, f64>,
        n_classes: usize,
        intercept: bool,
        body: impl FnOnce(&LogisticProblem<'_>) -> T,
    ) -> T {
        let labels: Vec<u32> =
            (0..rows.nrows()).map(|i| ((i * i + i / 3) % n_classes) as u32).collect();
        let weights = (0..rows.nrows()).map(|i| 0.5 + (i % 3) as f64).collect();
        let data = Data::Dense64(Dense::new(rows).unwrap());
        body(&LogisticProblem::new(data, &labels, n_classes, weights, intercept).unwrap())
    }

    fn sums(problem: &LogisticProblem<'_>, model: &LogisticModel) -> Terms {
        Pass::new(problem, model, None).run(None, &Interrupt::default()).unwrap().0
    }

    /// The model after many steps of gradient descent.
    fn descend(problem: &LogisticProblem<'_>, n_steps: usize) -> LogisticModel {
        let mut model = problem.zero_model();
        let step = 1.0 / (1.0 + 4.0 * problem.total());
        for _ in 0..n_steps {
            let Terms { residual, image, .. } = sums(problem, &model);
            model.weights.iter_mut().zip(image).for_each(|(w, v)| *w += step * (v - *w));
            if problem.intercept() {
                model.intercepts.iter_mut().zip(residual).for_each(|(b, r)| *b += step * r);
            }
        }
        model
    }

    #[test]
    fn certificates_enclose_the_optimum_and_become_tight() {
        let rows = rows(30);
        for (n_classes, intercept) in [(2, false), (2, true), (3, false), (3, true), (5, true)] {
            with(rows.view(), n_classes, intercept, |problem| {
                let certify = |model: &LogisticModel| {
                    certificate(problem, model, None, &Interrupt::default()).unwrap()
                };
                let best = certify(&descend(problem, 40_000));
                assert!(best.relative_gap() < 1e-10, "{n_classes} {intercept} {best:?}");
                for n_steps in [0, 1, 10, 100, 1000] {
                    let found = certify(&descend(problem, n_steps));
                    assert!(found.dual <= best.primal && found.primal >= best.dual);
                    assert!(n_steps < 1000 || found.relative_gap() < 0.1, "{found:?}");
                }
            });
        }
    }

    #[test]
    fn the_intercepts_constraint_matters() {
        let rows = rows(30);
        with(rows.view(), 3, true, |problem| {
            let best = certificate(problem, &descend(problem, 40_000), None, &Interrupt::default());
            let mut model = descend(problem, 1000);
            model.intercepts[0] += 0.1;
            let found = certificate(problem, &model, None, &Interrupt::default()).unwrap();
            assert!(found.dual <= best.clone().unwrap().primal);
            // Without the constraint, the "dual value" of the same distributions is above the optimum.
            let terms = sums(problem, &model);
            let norm = 0.5 * terms.image.iter().map(|v| v * v).sum::<f64>();
            assert!((terms.entropy - norm) / problem.total() > best.unwrap().primal);
        });
    }

    #[test]
    fn given_distributions_are_as_good_as_those_of_the_scores() {
        let rows = rows(30);
        for (n_classes, intercept) in [(2, false), (2, true), (4, false), (4, true)] {
            with(rows.view(), n_classes, intercept, |problem| {
                let model = descend(problem, 40_000);
                let mut given = Vec::new();
                for row in rows.rows() {
                    let scores = model
                        .weights
                        .chunks(2)
                        .zip(&model.intercepts)
                        .map(|(w, b)| w[0] * row[0] + w[1] * row[1] + b);
                    let mut own = Distribution::default();
                    own.softmax(&scores.collect::<Vec<_>>(), 0, 0.0);
                    given.push(own.shares.iter().map(|share| 3.0 * share).collect::<Vec<_>>());
                }
                let append = |row: usize, to: &mut Vec<f64>| to.extend(&given[row]);
                let found = certificate(problem, &model, Some(&append), &Interrupt::default());
                let found = found.unwrap();
                assert!(found.relative_gap() < 1e-6, "{found:?}");
            });
        }
    }
}
