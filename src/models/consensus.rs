//! Fits one classifier to rows in several partitions, by consensus (docs/mathematics/consensus.md).

use super::classifier::{self, LinearClassifier, Record};
use super::labels::{Label, encode};
use super::options::FitOptions;
use super::saving::svc_parameters;
use super::svc::MulticlassSvc;
use crate::data::Data;
use crate::dual::rounding::norm_above;
use crate::dual::{Bounded, Shares};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{axpy, dot};
use crate::multiclass::consensus::{Solution, Subproblem, SubproblemSolver, solve};
use crate::multiclass::{Linear, MarginProblem, MulticlassMethod, Order, Size};
use crate::parallel::map_items;
use crate::run::{Certificate, Progress, Solver, Stopping, run};

/// The initial penalty, in units of λ, and the over-relaxation factor (Boyd et al. 2011, section
/// 3.4.3).
const PENALTY: f64 = 10.0;
const RELAXATION: f64 = 1.6;
/// The penalty is fixed after this many rounds, because the method may diverge if the penalty keeps changing.
const BALANCE_ROUNDS: usize = 100;
/// The penalty does not change while the ratio of the primal relative residual to the dual relative
/// residual is in the range [`BALANCED`]. The penalty stays within a factor of [`SPAN`] of its
/// initial value.
const BALANCED: std::ops::RangeInclusive<f64> = 0.05..=0.5;
const SPAN: f64 = 8192.0;
/// Gap to which subproblems are solved, relative to the gap of the whole problem.
const INNER: f64 = 0.1;
/// The run ends as exhausted if the gap has not fallen by the fraction [`GAIN`] in this many rounds.
const STALLED: usize = 100;
const GAIN: f64 = 0.01;

/// A partition with its multiplier and the dual variables of its last solution.
struct Partition<'a> {
    data: Data<'a>,
    codes: Vec<u32>,
    /// Weights of the rows; None if all are equal.
    sample_weight: Option<&'a [f64]>,
    share: f64,
    multiplier: Vec<f64>,
    betas: Vec<f64>,
}

/// The options that all rounds share.
struct Plan<'a> {
    svc: &'a MulticlassSvc,
    solver: SubproblemSolver,
    n_classes: usize,
    bias: f64,
    lambda: f64,
    stopping: Stopping,
    null_objective: f64,
}

impl<'a> Partition<'a> {
    fn problem(&'a self, plan: &Plan<'_>) -> Result<MarginProblem<'a>> {
        let mut shares = Shares::new(self.data.n_rows(), plan.lambda)?;
        if let Some(weights) = self.sample_weight {
            shares = shares.with_sample_weights(weights)?;
        }
        let shares = shares.with_smoothing(plan.svc.smoothing)?;
        let map = Linear::new(self.data, plan.n_classes, plan.bias, Order::Batches);
        map.require_finite()?;
        MarginProblem::new(map, &self.codes, plan.svc.loss.polytope()?, shares)
    }
}

/// The state of the alternating direction method. Each round solves the subproblems of all partitions.
struct Rounds<'a> {
    plan: &'a Plan<'a>,
    partitions: Vec<Partition<'a>>,
    consensus: Vec<f64>,
    /// The consensus before the last round, to which the last certificate belongs.
    evaluated: Vec<f64>,
    rho: f64,
    first_rho: f64,
    round: usize,
    primal: f64,
    dual: f64,
    /// The round in which the gap last fell by the fraction [`GAIN`], and the gap after that round.
    mark: (usize, f64),
}

impl<'a> Rounds<'a> {
    fn new(plan: &'a Plan<'a>, mut partitions: Vec<Partition<'a>>, n_columns: usize) -> Self {
        let n_weights = plan.n_classes * (n_columns + usize::from(plan.bias != 0.0));
        partitions.iter_mut().for_each(|each| each.multiplier = vec![0.0; n_weights]);
        let rho = if partitions.len() > 1 { PENALTY * plan.lambda } else { 0.0 };
        Self {
            plan,
            partitions,
            consensus: vec![0.0; n_weights],
            evaluated: vec![0.0; n_weights],
            rho,
            first_rho: rho,
            round: 0,
            primal: plan.null_objective,
            dual: 0.0,
            mark: (0, f64::INFINITY),
        }
    }

    fn gap(&self) -> f64 {
        self.primal - self.dual
    }

    /// Returns the stopping rule of the subproblems, and the additional gap that they tolerate, relative to the loss.
    fn accuracy(&self) -> (Stopping, f64) {
        let Plan { stopping, null_objective, .. } = *self.plan;
        let rule = |relative, floor| Stopping {
            max_epochs: stopping.max_epochs,
            relative,
            floor,
            null_objective: None,
        };
        match (self.partitions.len(), self.round) {
            (1, 1) => (rule(stopping.relative, stopping.floor), 0.0),
            (1, _) => (rule(0.0, stopping.allowed(self.primal)), 0.0),
            (_, 1) => (rule(0.0, 0.0), INNER),
            _ => {
                let allowed = stopping.allowed(self.primal).min(null_objective);
                let known = self.gap().min(null_objective);
                (rule(0.0, INNER * known.max(allowed)), 0.0)
            }
        }
    }

    fn solve_all(&self, interrupt: &Interrupt) -> Result<Vec<Solution>> {
        let (stopping, relative_gap) = self.accuracy();
        let solved = map_items(&self.partitions, 1, |partition| {
            let subproblem = Subproblem {
                consensus: &self.consensus,
                multiplier: &partition.multiplier,
                rho: self.rho,
                betas: &partition.betas,
                check_betas: false,
                solver: self.plan.solver,
                seed: self.plan.svc.options.seed.wrapping_add(self.round as u64),
                stopping,
                relative_gap,
            };
            let problem = partition.problem(self.plan)?;
            solve(problem, &subproblem, interrupt, &mut |_| std::ops::ControlFlow::Continue(()))
        });
        solved.into_iter().collect()
    }

    /// Returns the certificate: the objective at the consensus, rounded up, and the dual value of all partitions
    /// together, rounded down.
    fn certificate(&self, solutions: &[Solution]) -> Certificate {
        let (lambda, n_weights) = (self.plan.lambda, self.consensus.len());
        let rounding = |n: usize| f64::EPSILON * (n + self.partitions.len() + 16) as f64;
        let mut image = vec![0.0; n_weights];
        let (mut loss, mut term, mut size, mut error, mut norms) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (solution, Partition { share, .. }) in solutions.iter().zip(&self.partitions) {
            axpy(&mut image, *share, &solution.image);
            loss += share * solution.loss;
            term += share * solution.dual_term;
            size += (share * solution.dual_term).abs();
            error += share * solution.image_error;
            norms += share * norm_above(&solution.image);
        }
        let square = 0.5 * lambda * dot(&self.consensus, &self.consensus);
        let primal = (square + loss) * (1.0 + rounding(n_weights));
        let norm = (norm_above(&image) + error + rounding(0) * norms) * (1.0 + rounding(0));
        let force = 0.5 * norm * norm / lambda;
        let dual = term - force - rounding(0) * (size + force);
        Certificate { primal, dual: dual.next_down() }
    }

    /// Computes the next consensus and multipliers, and adjusts the penalty to balance the two residuals.
    fn update(&mut self, solutions: Vec<Solution>) {
        let (rho, n) = (self.rho, self.consensus.len());
        let relaxation = if rho > 0.0 { RELAXATION } else { 1.0 };
        let old = std::mem::replace(&mut self.consensus, vec![0.0; n]);
        axpy(&mut self.consensus, 1.0 - relaxation, &old);
        let (mut weight_square, mut multiplier_square) = (0.0, 0.0);
        for (solution, partition) in solutions.iter().zip(&self.partitions) {
            let share = partition.share;
            axpy(&mut self.consensus, share * relaxation, &solution.weights);
            if rho > 0.0 {
                axpy(&mut self.consensus, share / rho, &partition.multiplier);
            }
            weight_square += share * dot(&solution.weights, &solution.weights);
            multiplier_square += share * dot(&partition.multiplier, &partition.multiplier);
        }
        let new = &self.consensus;
        let mut spread = 0.0;
        for (solution, partition) in solutions.into_iter().zip(&mut self.partitions) {
            for (index, weight) in solution.weights.iter().enumerate() {
                spread += partition.share * (weight - new[index]).powi(2);
                let relaxed = relaxation * weight + (1.0 - relaxation) * old[index];
                partition.multiplier[index] += rho * (relaxed - new[index]);
            }
            partition.betas = solution.betas;
        }
        let change: f64 = new.iter().zip(&old).map(|(new, old)| (new - old).powi(2)).sum();
        let size = weight_square.max(dot(new, new)).sqrt();
        self.evaluated = old;
        let force = multiplier_square.sqrt();
        if rho > 0.0 && self.round <= BALANCE_ROUNDS && size > 0.0 && force > 0.0 {
            let ratio = (spread.sqrt() / size) / (rho * change.sqrt() / force);
            let (low, high) = (*BALANCED.start(), *BALANCED.end());
            let factor = if ratio > high {
                2.0
            } else if ratio < low {
                0.5
            } else {
                1.0
            };
            self.rho = (rho * factor).clamp(self.first_rho / SPAN, self.first_rho * SPAN);
        }
    }
}

impl Solver for Rounds<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.round += 1;
        let solutions = self.solve_all(interrupt)?;
        let certificate = self.certificate(&solutions);
        self.primal = self.primal.min(certificate.primal);
        self.dual = self.dual.max(certificate.dual);
        self.update(solutions);
        if self.gap() < (1.0 - GAIN) * self.mark.1 {
            self.mark = (self.round, self.gap());
        }
        let is_stalled = self.round - self.mark.0 >= STALLED;
        Ok(if is_stalled { Progress::Exhausted(certificate) } else { Progress::Epoch(certificate) })
    }

    fn certify(&mut self, _: &Interrupt) -> Result<Certificate> {
        Ok(Certificate { primal: self.plan.null_objective, dual: 0.0 })
    }

    fn copy_weights(&self, weights: &mut Vec<f64>) -> bool {
        weights.clone_from(&self.evaluated);
        true
    }
}

/// Creates the partitions with their class indices, and with the share of each partition in the total weight. Leaves
/// out partitions of weight 0.
fn partitions_of<'a, L: Label>(
    given: &[(Data<'a>, &[L])],
    codes: &[u32],
    sample_weight: Option<&'a [f64]>,
) -> Result<Vec<Partition<'a>>> {
    let total = sample_weight.map_or(codes.len() as f64, |weights| weights.iter().sum());
    let (mut start, mut partitions) = (0, Vec::new());
    for (data, _) in given {
        let range = start..start + data.n_rows();
        start = range.end;
        let weights = match sample_weight {
            Some(weights) => Some(weights.get(range.clone()).ok_or_else(|| {
                Error::argument("sample_weight", "must have one weight for each row")
            })?),
            None => None,
        };
        let weight: f64 = weights.map_or(range.len() as f64, |weights| weights.iter().sum());
        if weight != 0.0 {
            partitions.push(Partition {
                data: *data,
                codes: codes[range].to_vec(),
                sample_weight: weights,
                share: weight / total,
                multiplier: Vec::new(),
                betas: Vec::new(),
            });
        }
    }
    Ok(partitions)
}

/// Returns the labels of all partitions, and the number of columns, which must be the same in all partitions.
fn labels_of<L: Label>(partitions: &[(Data<'_>, &[L])]) -> Result<(Vec<L>, usize)> {
    let n_columns = partitions.first().map_or(0, |(data, _)| data.n_cols());
    let mut labels: Vec<L> = Vec::new();
    for (index, (data, own)) in partitions.iter().enumerate() {
        if data.n_cols() != n_columns || data.n_rows() != own.len() {
            let (n_rows, n_own, n_labels) = (data.n_rows(), data.n_cols(), own.len());
            let message = format!(
                "partition {index} has {n_rows} rows of {n_own} columns and {n_labels} labels; \
                 expected {n_columns} columns and one label for each row"
            );
            return Err(Error::argument("partitions", message));
        }
        labels.extend_from_slice(own);
    }
    Ok((labels, n_columns))
}

/// Checks that memory suffices to fit each partition on its own. Returns the objective of W = 0, rounded up.
fn null_objective(
    plan: &Plan<'_>,
    partitions: &[Partition<'_>],
    interrupt: &Interrupt,
) -> Result<f64> {
    let mut sum = 0.0;
    for partition in partitions {
        let size = Size::of(partition.data, plan.n_classes, plan.svc.smoothing > 0.0, true);
        size.require(MulticlassMethod::BlockDescent(plan.svc.options.seed), 1)?;
        let mut problem = partition.problem(plan)?;
        let zeros = vec![0.0; problem.map().layout().len()];
        sum += partition.share * problem.mean_loss(&zeros, interrupt)?.upper();
    }
    Ok(sum * (1.0 + f64::EPSILON * (partitions.len() + 16) as f64))
}

impl MulticlassSvc {
    /// Fits one classifier to rows in several partitions, for example from several files. Its objective is the
    /// objective of a fit to all rows together. Each round solves the partitions separately, in parallel. Over the
    /// rounds, the alternating direction method makes their weights agree (Han and Berg 2012; Boyd et al. 2011). An
    /// epoch of the trace is a round.
    ///
    /// [`solver`](MulticlassSvc::solver) is the solver of the partitions: "block-descent" ("auto") or
    /// "sequential-dual". The sample weights of all partitions are passed as one list, partition by partition. Scale
    /// columns of very different sizes before the fit, because the same penalty applies to all columns.
    ///
    /// ```
    /// use dualgap::prelude::*;
    ///
    /// let north = Dense::from_slice(&[0.0, 1.0, 0.2, 0.9, 3.0, 1.0], 2)?;
    /// let south = Dense::from_slice(&[3.1, 0.8, 0.1, 1.1, 2.9, 1.2], 2)?;
    /// let partitions = [(north.into(), &[1, 1, 2][..]), (south.into(), &[2, 1, 2][..])];
    /// let model = MulticlassSvc::new().tol(1e-3).fit_partitions(&partitions)?;
    /// assert!(model.converged());
    /// assert_eq!(model.predict(south)?, [2, 1, 2]);
    /// # Ok::<(), dualgap::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`fit`](MulticlassSvc::fit); also if the partitions have different numbers of columns.
    pub fn fit_partitions<L: Label>(
        &self,
        partitions: &[(Data<'_>, &[L])],
    ) -> Result<LinearClassifier<L>> {
        let (labels, n_columns) = labels_of(partitions)?;
        let (classes, codes) = encode(&labels, labels.len())?;
        let FitOptions { solver, sample_weight, .. } = &self.options;
        if sample_weight.as_ref().is_some_and(|weights| weights.len() != labels.len()) {
            return Err(Error::argument("sample_weight", "must have one weight for each row"));
        }
        let name = if solver == "auto" { "block-descent" } else { solver };
        let (bias, target) = (self.bias()?, self.options.target()?);
        let parts = partitions_of(partitions, &codes, sample_weight.as_deref())?;
        let mut plan = Plan {
            svc: self,
            solver: SubproblemSolver::parse(name)?,
            n_classes: classes.len(),
            bias,
            lambda: self.options.lambda(labels.len()),
            stopping: target.stopping(Bounded::exact(0.0)),
            null_objective: 0.0,
        };
        let interrupt = self.options.interrupt();
        plan.null_objective = null_objective(&plan, &parts, &interrupt)?;
        plan.stopping = target.stopping(Bounded::exact(plan.null_objective));
        let mut rounds = Rounds::new(&plan, parts, n_columns);
        let observe = &mut |epoch: &_| self.options.observe(epoch);
        let mut trace = run(&mut rounds, plan.stopping, &interrupt, observe)?;
        let weights = trace.take_other(rounds.evaluated.len()).unwrap_or(rounds.evaluated);
        let (coef, intercept) = classifier::split(&weights, n_columns, bias);
        let saved = FitOptions { solver: "auto".into(), ..self.options.clone() };
        let record = Record {
            trace,
            null_objective: plan.null_objective,
            lambda: plan.lambda,
            first_solver: "consensus".into(),
            file: svc_parameters(&self.loss, [self.smoothing, self.intercept_scaling], &saved),
        };
        Ok(LinearClassifier::new(classes, n_columns, coef, intercept, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;

    /// Returns 120 rows of 3 classes, scattered around one centre per class.
    fn rows() -> (Vec<f64>, Vec<u32>) {
        let noise = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5;
        let labels: Vec<u32> = (0..120).map(|row| row % 3).collect();
        let value = |i: usize| f64::from(labels[i / 4] as usize == i % 4) + 2.0 * noise(i);
        ((0..480).map(value).collect(), labels)
    }

    fn in_partitions(svc: &MulticlassSvc, ends: &[usize]) -> Result<LinearClassifier<u32>> {
        let (values, labels) = rows();
        let mut start = 0;
        let parts: Vec<(Data<'_>, &[u32])> = ends
            .iter()
            .map(|end| {
                let part = Dense::from_slice(&values[4 * start..4 * end], 4).unwrap();
                let own = &labels[start..*end];
                start = *end;
                (part.into(), own)
            })
            .collect();
        svc.fit_partitions(&parts)
    }

    #[test]
    fn the_objective_agrees_with_a_fit_to_all_rows() {
        let (values, labels) = rows();
        let data = Dense::from_slice(&values, 4).unwrap();
        let weights: Vec<f64> = (0..120).map(|row| f64::from(row % 4)).collect();
        for svc in [
            MulticlassSvc::new().tol(1e-4),
            MulticlassSvc::new().tol(1e-3).loss("weston-watkins").solver("sequential-dual"),
            MulticlassSvc::new().tol(1e-3).smoothing(0.5).sample_weight(weights),
        ] {
            let exact = svc.clone().solver("auto").tol(1e-8).fit(data, &labels).unwrap();
            for ends in [&[120][..], &[50, 120], &[10, 10, 80, 120]] {
                let model = in_partitions(&svc, ends).unwrap();
                assert!(model.converged(), "{ends:?}: {:?}", model.trace().epochs.last());
                let (low, high) = (model.objective() - model.gap(), model.objective());
                assert!(low <= exact.objective(), "{low} {}", exact.objective());
                assert!(high >= exact.objective() - exact.gap(), "{high}");
            }
        }
    }

    #[test]
    fn models_do_not_depend_on_threads_and_their_scores_match_the_objective() {
        let svc = MulticlassSvc::new().tol(1e-3);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let single = one.install(|| in_partitions(&svc, &[30, 70, 120])).unwrap();
        let model = in_partitions(&svc, &[30, 70, 120]).unwrap();
        assert_eq!(model.coef(), single.coef());
        let (values, labels) = rows();
        let scores = model.scores(Dense::from_slice(&values, 4).unwrap()).unwrap();
        let losses = scores.chunks_exact(3).zip(&labels).map(|(scores, label)| {
            let own = scores[*label as usize];
            let margin = |j: usize| scores[j] - own + f64::from(j != *label as usize);
            (0..3).map(margin).fold(0.0, f64::max)
        });
        let square = dot(model.coef(), model.coef()) + dot(model.intercept(), model.intercept());
        let objective = 0.5 * square / 120.0 + losses.sum::<f64>() / 120.0;
        assert!((objective - model.objective()).abs() <= 1e-9 * objective, "{objective}");
    }

    #[test]
    fn partitions_with_different_columns_are_an_error() {
        let (a, b) = (
            Dense::from_slice(&[0.0, 1.0], 1).unwrap(),
            Dense::from_slice(&[0.0, 1.0], 2).unwrap(),
        );
        let svc = MulticlassSvc::new();
        let message =
            |parts: &[(Data<'_>, &[i64])]| svc.fit_partitions(parts).unwrap_err().to_string();
        let other = message(&[(a.into(), &[1, 2]), (b.into(), &[1])]);
        assert!(other.starts_with("partitions: partition 1 has 1 rows of 2 columns"), "{other}");
        assert!(message(&[(a.into(), &[1])]).starts_with("partitions: partition 0"));
        assert!(message(&[]).starts_with("y: has 0 classes"));
        let unknown = svc.clone().solver("newton").fit_partitions(&[(a.into(), &[1_i64, 2])]);
        assert!(unknown.unwrap_err().to_string().contains("sequential-dual"));
        let interrupt = Interrupt::default();
        interrupt.raise();
        let stopped = svc.interrupt(interrupt).fit_partitions(&[(a.into(), &[1_i64, 2])]);
        assert_eq!(stopped.unwrap_err(), Error::Interrupted);
    }
}
