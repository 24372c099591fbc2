//! The certificate of a model: its objective and a dual value. The dual value is computed from one distribution over
//! the classes per example.

use super::certificate_pass::{Given, RowPass, SOLVED, given_moments};
use super::terms::Terms;
use super::{LogisticModel, LogisticProblem};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::solve_semidefinite;
use crate::run::Certificate;

/// Largest violation of the intercept's constraint, as a fraction of the total weight, for which the distributions are
/// only mixed and not tilted.
pub(super) const VIOLATED: f64 = 1e-12;

/// Returns the objective of a model, rounded up, and the dual value of distributions, rounded down, both divided by Σ
/// c_i.
///
/// The distributions are the softmax of the model's scores, or are proportional to `given`. With an intercept, they are
/// first tilted to α_k (1 + δ_k − ⟨α, δ⟩), which meets the constraint Σ c_i (e_y − α_i) = 0 up to rounding errors (for
/// more than [`SOLVED`] classes, δ is an approximation). Each is then mixed with one distribution that all examples
/// share. The mixtures meet the constraint exactly.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub fn certificate(
    problem: &LogisticProblem<'_>,
    model: &LogisticModel,
    given: Option<&Given<'_>>,
    interrupt: &Interrupt,
) -> Result<Certificate> {
    Ok(certificate_and_terms(problem, model, given, interrupt)?.0)
}

/// Returns the result of [`certificate`], and the sums over the distributions: before the tilt, or after it if
/// distributions are given.
pub(super) fn certificate_and_terms(
    problem: &LogisticProblem<'_>,
    model: &LogisticModel,
    given: Option<&Given<'_>>,
    interrupt: &Interrupt,
) -> Result<(Certificate, Terms)> {
    let pass = RowPass::new(problem, model, given);
    if let (true, Some(given)) = (problem.intercept(), given) {
        // The tilt of given distributions does not depend on the scores, so one pass over the rows suffices.
        let (residual, moments) = given_moments(problem, given);
        let tilt = tilt_of(problem.class_totals(), &residual, moments);
        let terms = pass.run(tilt.as_deref(), interrupt)?.0;
        return Ok((terms.certificate(problem.totals(), model), terms));
    }
    let (terms, moments) = pass.run(None, interrupt)?;
    let certificate = terms.certificate(problem.totals(), model);
    let violation = terms.residual.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    if !problem.intercept() || violation <= VIOLATED * problem.total() {
        return Ok((certificate, terms));
    }
    let Some(tilt) = tilt_of(problem.class_totals(), &terms.residual, moments) else {
        return Ok((certificate, terms));
    };
    let (tilted, _) = pass.run(Some(&tilt), interrupt)?;
    let dual = tilted.certificate(problem.totals(), model).dual;
    let best = Certificate { primal: certificate.primal, dual: certificate.dual.max(dual) };
    Ok((best, terms))
}

/// Returns Σ c_i (diag p_i − p_i p_iᵀ) over the outputs; empty without an intercept and for many outputs.
///
/// # Errors
/// [`Interrupted`](crate::error::Error::Interrupted).
pub(super) fn intercept_curvature(
    problem: &LogisticProblem<'_>,
    model: &LogisticModel,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    if !problem.intercept() || problem.n_outputs() > SOLVED {
        return Ok(Vec::new());
    }
    RowPass::new(problem, model, None).curvature(interrupt)
}

/// Solves (diag(Σ c_i α_i) − Σ c_i α_i α_iᵀ) δ = Σ c_i (e_y − α_i) for δ; None if a distribution could become negative.
pub(super) fn tilt_of(
    class_totals: &[f64],
    residual: &[f64],
    mut moments: Vec<f64>,
) -> Option<Vec<f64>> {
    let mut tilt = residual.to_vec();
    if let [second] = residual {
        tilt = vec![0.0, second / moments.first()?];
    } else if moments.is_empty() {
        let sums = class_totals.iter().zip(residual).map(|(own, residual)| own - residual);
        tilt.iter_mut().zip(sums).for_each(|(tilt, sum)| *tilt /= sum);
    } else {
        solve_semidefinite(&mut moments, &mut tilt);
    }
    let most = tilt.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = tilt.iter().copied().fold(f64::INFINITY, f64::min);
    (most - least < 0.99).then_some(tilt)
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayView2};

    use super::super::terms::{Distribution, Terms};
    use super::*;
    use crate::data::{Data, Dense};

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
        RowPass::new(problem, model, None).run(None, &Interrupt::default()).unwrap().0
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
            // Distributions that violate the constraint have a "dual value" above the optimum.
            let terms = sums(problem, &model);
            let norm = 0.5 * terms.image.iter().map(|v| v * v).sum::<f64>();
            assert!((terms.entropy - norm) / problem.total() > best.unwrap().primal);
        });
    }

    #[test]
    fn given_distributions_are_as_good_as_the_softmax_of_scores() {
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
