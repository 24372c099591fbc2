//! Polynomial networks compared with independent solvers (tests/fixtures/polynomial.json).

use std::ops::ControlFlow;

use dualgap::data::{Dense, Rows};
use dualgap::interrupt::Interrupt;
use dualgap::penalty;
use dualgap::polynomial::basis_selection::{Bounding, SelectionMethod, select};
use dualgap::polynomial::conditional_gradient::{ConditionalGradient, ConditionalGradientSettings};
use dualgap::polynomial::evaluation::outputs;
use dualgap::polynomial::gradient_matrices::GradientMatrices;
use dualgap::polynomial::kernel::PolynomialKernel;
use dualgap::polynomial::loss::{self, OutputLoss};
use dualgap::polynomial::model::PolynomialModel;
use dualgap::polynomial::problem::{Objective, PolynomialProblem, Targets};
use dualgap::polynomial::refit::Refit;
use dualgap::run::{Stopping, Trace, run};
use ndarray::{Array2, ArrayViewMut2};
use serde_json::Value;

const TIGHT: Bounding<'_> = Bounding { accuracy: &|_| 1e-10, failure: 1e-9 };

fn fixture() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/polynomial.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

fn matrix(value: &Value) -> Array2<f64> {
    let rows = value.as_array().unwrap().len();
    let flat = numbers(value);
    Array2::from_shape_vec((rows, flat.len() / rows), flat).unwrap()
}

fn kernel(entry: &Value) -> PolynomialKernel {
    if entry["model"] == "PN" { PolynomialKernel::Square } else { PolynomialKernel::Anova }
}

fn loss_of(entry: &Value) -> Box<dyn OutputLoss> {
    let name = match entry["loss"].as_str().unwrap() {
        "mlog" => "logistic",
        "shinge" => "smoothed-hinge",
        "sqhinge" => "squared-hinge",
        "blog" => "binary-logistic",
        other => other,
    };
    loss::parse(name).unwrap()
}

fn penalty_name(name: &str) -> &'static str {
    match name {
        "l1" => "l1",
        "l12" => "l1/l2",
        _ => "l1/linf",
    }
}

/// The labels or target values of an entry of the fixture. The flag selects the labels.
struct Y(Vec<u32>, Vec<f64>, bool);

impl Y {
    fn of(entry: &Value, loss: &dyn OutputLoss) -> Self {
        let flat = numbers(&entry["Y"]);
        Self(flat.iter().map(|v| *v as u32).collect(), flat, loss.takes_classes())
    }
    fn targets(&self) -> Targets<'_> {
        if self.2 { Targets::Classes(&self.0) } else { Targets::Values(&self.1) }
    }
}

fn close(a: &[f64], b: &[f64], tol: f64) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tol, "{a} {b}");
    }
}

#[test]
fn projections_match_the_reference() {
    for entry in fixture()["ball_projections"].as_array().unwrap() {
        let mut v = matrix(&entry["V"]);
        let penalty = penalty::parse(penalty_name(entry["penalty"].as_str().unwrap())).unwrap();
        let view: ArrayViewMut2<'_, f64> = v.view_mut();
        penalty.project(view, entry["tau"].as_f64().unwrap());
        close(v.as_slice().unwrap(), &numbers(&entry["proj"]), 1e-9);
    }
}

#[test]
fn outputs_gradients_and_dual_norms_match_the_reference() {
    let fixture = fixture();
    let group = &fixture["pnfm_gradients"];
    let (x, h, u) = (matrix(&group["X"]), matrix(&group["H"]), matrix(&group["U"]));
    let rows = Dense::new(x.view()).unwrap();
    let interrupt = Interrupt::default();
    for entry in group["entries"].as_array().unwrap() {
        let (kernel, loss) = (kernel(entry), loss_of(entry));
        let mut model = PolynomialModel::new(kernel, false, x.ncols(), u.ncols(), false);
        for (h, u) in h.rows().into_iter().zip(u.rows()) {
            model.push(&h.to_vec(), &u.to_vec());
        }
        let outputs = outputs::<f64>(&model, &rows, &interrupt).unwrap();
        let expected = if kernel == PolynomialKernel::Square { "outputs_PN" } else { "outputs_FM" };
        close(&outputs, &numbers(&group[expected]), 1e-10);
        let y = Y::of(entry, &*loss);
        let m = u.ncols();
        let (mut value, mut weights) = (0.0, vec![0.0; outputs.len()]);
        for row in 0..x.nrows() {
            let range = row * m..(row + 1) * m;
            value += loss.value_and_gradient(
                y.targets().row(row, m),
                &outputs[range.clone()],
                &mut weights[range],
            );
        }
        assert!((value - entry["objective"].as_f64().unwrap()).abs() < 1e-10);
        close(&weights, &numbers(&entry["dloss_do"]), 1e-10);
        weights.iter_mut().for_each(|w| *w = -*w);
        let gamma = GradientMatrices::new(&rows, kernel, &weights, m, &interrupt).unwrap();
        let query = numbers(&group["h_query"]);
        let scores = gamma.scores(&query).unwrap();
        let g = gamma.bilinear(&query, &query, &scores, &scores).unwrap();
        close(&g, &numbers(&entry["minus_grad_row_at_h"]), 1e-10);
        for (c, expected) in entry["Gamma"].as_array().unwrap().iter().enumerate() {
            let columns: Vec<f64> = (0..x.ncols())
                .flat_map(|j| {
                    let unit: Vec<f64> =
                        (0..x.ncols()).map(|i| f64::from(u8::from(i == j))).collect();
                    gamma.product(c, &unit).unwrap()
                })
                .collect();
            close(&columns, &numbers(expected), 1e-10);
        }
        check_selections(&gamma, entry);
    }
}

/// Checks that selected vectors nearly attain the dual norm, and that the bounds hold.
fn check_selections(gamma: &GradientMatrices<'_, Dense<'_, f64>>, entry: &Value) {
    for name in ["l1", "l12", "l1inf"] {
        let penalty = penalty::parse(penalty_name(name)).unwrap();
        let selection =
            select(gamma, &*penalty, SelectionMethod::Refined, (1e-10, 0), TIGHT).unwrap();
        let best = entry[format!("dual_norm_{name}")].as_f64().unwrap();
        let reached = penalty.dual_row_norm(&selection.gradient);
        let start = entry[format!("value_at_init_{name}")].as_f64().unwrap();
        assert!(reached <= best * (1.0 + 1e-6) && best <= selection.bound * (1.0 + 1e-8));
        assert!(reached >= start * (1.0 - 1e-8), "refinement lost: {reached} {start}");
        if name == "l1" {
            assert!((reached - best).abs() < 1e-8 * best);
        }
        if name != "l12" {
            let exact =
                select(gamma, &*penalty, SelectionMethod::Exact, (1e-10, 0), TIGHT).unwrap();
            let reached = penalty.dual_row_norm(&exact.gradient);
            assert!((reached - best).abs() < 1e-7 * best && exact.bound >= reached);
            assert!((exact.bound - best).abs() < 1e-7 * best, "{} {best}", exact.bound);
        }
    }
}

fn fit<R: Rows + Copy>(
    problem: PolynomialProblem<'_, R>,
    refit: Refit,
    max_epochs: usize,
) -> (Trace, PolynomialModel) {
    let (interrupt, tol) = (Interrupt::default(), 1e-6);
    let settings = ConditionalGradientSettings {
        n_components: 60,
        refit,
        selection: SelectionMethod::Refined,
        selection_tol: 1e-10,
        tol,
        seed: 0,
    };
    let model = problem.null_model();
    let mut solver = ConditionalGradient::new(problem, settings, model, None, &interrupt).unwrap();
    let stopping =
        Stopping { max_epochs, relative: 0.0, floor: tol * solver.scale(), null_objective: None };
    let trace = run(&mut solver, stopping, &interrupt, &mut |_| ControlFlow::Continue(())).unwrap();
    (trace, solver.model().clone())
}

#[test]
fn the_global_optima_of_the_l1_penalty_are_reached_and_certified() {
    check_global_optima("l1");
}

#[test]
fn the_global_optima_of_the_l1_l2_penalty_are_reached_and_certified() {
    check_global_optima("l12");
}

#[test]
fn the_global_optima_of_the_l1_linf_penalty_are_reached_and_certified() {
    check_global_optima("l1inf");
}

fn check_global_optima(name: &str) {
    let fixture = fixture();
    let group = &fixture["pnfm_global_optima"];
    let raw = matrix(&group["X_raw"]);
    let rows = Dense::new(raw.view()).unwrap();
    let entries = group["entries"].as_array().unwrap();
    let entries: Vec<_> = entries.iter().filter(|entry| entry["penalty"] == name).collect();
    assert!(!entries.is_empty());
    for entry in entries {
        let loss = loss_of(entry);
        let penalty = penalty::parse(penalty_name(name)).unwrap();
        let y = Y::of(entry, &*loss);
        let optimum = entry.get("optimum").or(entry.get("optimum_upper")).unwrap();
        let optimum = optimum.as_f64().unwrap();
        let least = entry.get("optimum_lower").map_or(optimum, |lower| lower.as_f64().unwrap());
        let objective = Objective {
            n_outputs: 3,
            kernel: kernel(entry),
            augmented: entry.get("unaugmented").is_none(),
            ridge: None,
            loss: &*loss,
            penalty: &*penalty,
            radius: entry["tau"].as_f64().unwrap(),
            target_means: &[],
        };
        let problem = PolynomialProblem::new(rows, y.targets(), None, objective).unwrap();
        // Only exact selection (ℓ1) closes the gap, which ends the fit. For the other penalties, full refits need
        // fewer epochs.
        let [output, full] = if name == "l1" { [100, 100] } else { [50, 20] };
        for (refit, max_epochs) in [(Refit::Output, output), (Refit::Full, full)] {
            let (trace, _) = fit(problem.clone(), refit, max_epochs);
            let certificate = trace.certificate.unwrap();
            let describe = format!(
                "{} {} {name} {refit:?}: {certificate:?} {optimum}",
                entry["model"], entry["loss"]
            );
            assert!(certificate.primal >= least * (1.0 - 1e-7), "below the optimum: {describe}");
            assert!(certificate.dual <= optimum * (1.0 + 1e-7), "not a bound: {describe}");
            // With exact selection (l1), the basis converges to the optimal one, but slowly if only
            // the output layer is refitted. For the group penalties, selection is approximate.
            let slack = match (name, refit) {
                ("l1", Refit::Full) => 1e-6,
                ("l1", Refit::Output) => 1e-3,
                _ => 2e-2,
            };
            assert!(certificate.primal <= optimum * (1.0 + slack), "{describe}");
            if name == "l1" {
                assert!(certificate.gap() <= 2.0 * slack.max(1e-5) * optimum, "{describe}");
            }
            let mut last = f64::INFINITY;
            for epoch in &trace.epochs {
                let primal = epoch.certificate.unwrap().primal;
                assert!(primal <= last + 1e-9, "the objective rose: {describe}");
                last = primal;
            }
        }
    }
}

#[test]
fn linear_terms_and_full_refits_are_certified_too() {
    let fixture = fixture();
    let group = &fixture["pnfm_global_optima"];
    let raw = matrix(&group["X_raw"]);
    let rows = Dense::new(raw.view()).unwrap();
    let penalty = penalty::parse("l1").unwrap();
    for entry in group["entries"].as_array().unwrap() {
        let loss = loss_of(entry);
        let y = Y::of(entry, &*loss);
        let objective = Objective {
            n_outputs: 3,
            kernel: kernel(entry),
            augmented: false,
            ridge: Some(0.5),
            loss: &*loss,
            penalty: &*penalty,
            radius: 0.7,
            target_means: &[],
        };
        let problem = PolynomialProblem::new(rows, y.targets(), None, objective).unwrap();
        let (trace, model) = fit(problem.clone(), Refit::Output, 400);
        let gap = trace.gap().unwrap();
        assert!(gap <= 2e-3 * trace.certificate.unwrap().primal, "{gap}");
        assert!(
            penalty.value(Array2::from_shape_vec((model.n_bases, 3), model.output).unwrap().view())
                <= 0.7 + 1e-9
        );
        // With exact selection, output refits solve ℓ1 exactly, so the full refit can only reach
        // the same optimum.
        let (full, model) = fit(problem, Refit::Full, 400);
        let difference = full.certificate.unwrap().primal - trace.certificate.unwrap().primal;
        assert!(difference.abs() <= 1e-3 * trace.certificate.unwrap().primal, "{difference}");
        let gap = full.gap().unwrap();
        assert!(gap <= 1e-4 * full.certificate.unwrap().primal, "{gap}");
        for r in 0..model.n_bases {
            let length: f64 =
                model.basis.iter().skip(r).step_by(model.n_bases).map(|h| h * h).sum();
            assert!(length <= 1.0 + 1e-9);
        }
    }
}

#[test]
fn exact_selection_is_the_best_of_all_directions() {
    let interrupt = Interrupt::default();
    let penalty = penalty::parse("l1/linf").unwrap();
    for seed in 0..20u64 {
        // With two features, the test searches the whole unit circle.
        let value = |i: u64| ((i * 2_654_435_761 + seed * 40_503) % 1013) as f64 / 506.0 - 1.0;
        let x = Array2::from_shape_fn((9, 2), |(i, j)| value(2 * i as u64 + j as u64));
        let weights: Vec<f64> = (0..36).map(|i| value(100 + i)).collect();
        let rows = Dense::new(x.view()).unwrap();
        for kernel in [PolynomialKernel::Square, PolynomialKernel::Anova] {
            let gamma = GradientMatrices::new(&rows, kernel, &weights, 4, &interrupt).unwrap();
            let norm_at = |h: &[f64]| {
                let scores = gamma.scores(h).unwrap();
                penalty.dual_row_norm(&gamma.bilinear(h, h, &scores, &scores).unwrap())
            };
            let steps = 20_000;
            let best = (0..steps)
                .map(|i| std::f64::consts::PI * f64::from(i) / f64::from(steps))
                .map(|angle| norm_at(&[angle.cos(), angle.sin()]))
                .fold(0.0, f64::max);
            let reach = |method| {
                let selection = select(&gamma, &*penalty, method, (1e-8, seed), TIGHT).unwrap();
                let reached = penalty.dual_row_norm(&selection.gradient);
                assert!((norm_at(&selection.vector) - reached).abs() < 1e-9 * best);
                assert!(selection.bound >= best * (1.0 - 1e-7), "{method:?}");
                assert!(reached <= best * (1.0 + 1e-6), "{method:?}");
                reached
            };
            assert!((reach(SelectionMethod::Exact) - best).abs() < 1e-6 * best);
            assert!(
                reach(SelectionMethod::Refined) >= reach(SelectionMethod::Initial) * (1.0 - 1e-12)
            );
            assert!(
                reach(SelectionMethod::RandomRefined)
                    >= reach(SelectionMethod::Random) * (1.0 - 1e-12)
            );
            let rows = x.rows().into_iter().map(|row| row.to_vec());
            let best_row = rows
                .map(|row| norm_at(&row) / row.iter().map(|x| x * x).sum::<f64>())
                .fold(0.0, f64::max);
            assert!((reach(SelectionMethod::BestRow) - best_row).abs() < 1e-9 * best);
        }
    }
}
