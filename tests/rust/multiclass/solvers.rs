//! The solvers for multi-category losses: certificates, optima, invariances.

use super::super::common::margin::{Case, Fit, METHODS, Method, classes_by_features};
use super::super::common::{build, fixture, kinds, numbers};
use dualgap::data::{Csr, Data, Dense};
use dualgap::dual::Shares;
use dualgap::interrupt::Interrupt;
use dualgap::multiclass::{Costs, Linear, MarginDual, MarginProblem, Order};
use dualgap::run::{Certificate, Progress, Solver};
use dualgap::solver::{
    AwayFrankWolfe, BlockFrankWolfe, BlockOptions, FrankWolfe, Start, Step, StepRule, Subgradient,
};
use ndarray::Array2;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

#[test]
fn optima_equal_those_of_an_independent_qp_solver() {
    for value in fixture("margin_problems").as_array().unwrap() {
        let case = Case::fixture(value);
        let optimum = value["primal"].as_f64().unwrap();
        for method in METHODS {
            let fit = case.fit(method, 5000, 1e-6);
            let Certificate { primal, dual } = fit.trace.certificate.unwrap();
            let name = format!("{} γ={} {method:?}", case.kind, case.smoothing);
            let slack = 1e-9;
            assert!(dual <= optimum + slack, "{name}: {dual} over {optimum}");
            assert!(primal >= optimum - slack, "{name}: {primal} under {optimum}");
            let gap = match method {
                Method::LineSearch | Method::Blocks => 1e-3,
                Method::Scheduled | Method::Subgradient => 1e-2,
            };
            assert!(primal - dual < gap, "{name}: gap {}", primal - dual);
            assert!((primal - case.primal(&fit.weights)).abs() < 1e-9, "{name}: primal");
        }
    }
}

#[test]
fn the_line_search_makes_the_reference_step() {
    let problems = fixture("margin_problems");
    for value in fixture("line_search").as_array().unwrap() {
        let smoothing = value["gamma_sm"].as_f64().unwrap();
        let problem = problems.as_array().unwrap().iter();
        let problem = problem
            .clone()
            .find(|p| p["loss"] == value["loss"] && p["gamma_sm"] == value["gamma_sm"])
            .unwrap();
        let case = Case::fixture(problem);
        // A holds the dual coordinates, m × n. Except at the label, β is −A.
        let alpha: Vec<Vec<f64>> = value["A"].as_array().unwrap().iter().map(numbers).collect();
        let n = case.labels.len() as f64;
        let mut prepared = case.problem(case.data(), Order::Batches);
        let layout = prepared.map().layout();
        let mut start = Start { weights: vec![0.0; layout.len()], ..Start::default() };
        let mut beta = vec![0.0; case.labels.len() * case.m];
        for (i, x) in case.x.rows().into_iter().enumerate() {
            for (j, alpha) in alpha.iter().enumerate() {
                for (k, x) in x.iter().enumerate() {
                    start.weights[layout.index(k, j)] += alpha[i] * x / (case.lambda * n);
                }
                start.square += alpha[i] * alpha[i] / n;
                if j != case.labels[i] as usize {
                    beta[i * case.m + j] = -alpha[i];
                    start.linear -= alpha[i] / n;
                }
            }
        }
        let mut dual = MarginDual::new(&mut prepared);
        dual.start_at(&beta);
        let mut solver = FrankWolfe::new(&mut dual, StepRule::FrankWolfe, Some(start));
        let before = solver.certify(&Interrupt::default()).unwrap();
        let expect = |name: &str| value[name].as_f64().unwrap();
        assert!((before.dual - expect("D_before")).abs() < 1e-12);
        // Without smoothing, the Frank-Wolfe gap is the duality gap; with smoothing, it is an upper
        // bound.
        if smoothing == 0.0 {
            assert!((before.gap() - expect("fw_gap")).abs() < 1e-12);
        } else {
            assert!(before.gap() <= expect("fw_gap"));
        }
        let Progress::Epoch(after) = solver.advance(&Interrupt::default()).unwrap() else {
            panic!("no step was made")
        };
        assert!((after.dual - expect("D_after")).abs() < 1e-9, "{}", after.dual);
    }
}

#[test]
fn the_line_search_never_lowers_the_dual_and_bounds_hold() {
    for kind in kinds() {
        for smoothing in [0.0, 0.1] {
            let case = Case { smoothing, bias: 0.5, ..Case::random(3, kind, 150, 6, 5) };
            let best = case.fit(Method::LineSearch, 3000, 1e-5).trace.certificate.unwrap();
            for method in METHODS {
                let certificates = case.fit(method, 40, 0.0).certificates();
                for pair in certificates.windows(2) {
                    let lower = pair[1].dual < pair[0].dual - 1e-12;
                    assert!(!lower || method == Method::Scheduled, "{kind} {method:?}");
                }
                for certificate in certificates {
                    assert!(certificate.gap() >= -1e-12, "{kind} {method:?}");
                    assert!(certificate.dual <= best.primal + 1e-12, "{kind} {method:?}");
                    assert!(certificate.primal >= best.dual - 1e-12, "{kind} {method:?}");
                }
            }
        }
    }
}

#[test]
fn every_method_reaches_the_same_optimum() {
    for kind in kinds() {
        let case = Case { smoothing: 0.2, ..Case::random(5, kind, 90, 4, 4) };
        let reference = case.fit(Method::Blocks, 1000, 1e-6);
        let other = case.fit(Method::LineSearch, 4000, 1e-5);
        // ½λ‖w − w*‖² is at most the gap, by strong convexity.
        let distance: f64 =
            (&other.weights - &reference.weights).iter().map(|w| w * w).sum::<f64>().sqrt();
        let bound = |fit: &Fit| (2.0 * fit.trace.gap().unwrap() / case.lambda).sqrt();
        assert!(distance <= bound(&other) + bound(&reference), "{kind}: {distance}");
        for fit in [&reference, &other] {
            assert!(fit.trace.gap().unwrap() < 1e-3, "{kind}");
        }
    }
}

#[test]
fn the_smoothed_loss_converges_to_the_plain_loss() {
    for kind in kinds() {
        let case = Case::random(8, kind, 60, 3, 5);
        let weights = Array2::from_shape_fn((5, 3), |(j, k)| ((j * 3 + k) as f64).sin());
        let plain = case.primal(&weights);
        let mut last = f64::INFINITY;
        for smoothing in [1e-1, 1e-3, 1e-5] {
            let smoothed = Case { smoothing, ..case.clone() };
            let difference = plain - smoothed.primal(&weights);
            // Smoothing lowers the loss Φ to Φ_m, with 0 ≤ Φ − Φ_m ≤ γ/2 max ‖α‖².
            let radius = build(kind, case.k, &case.rho).radius(5);
            assert!(
                difference >= -1e-12 && difference <= smoothing * radius * radius + 1e-12,
                "{kind} {smoothing} {difference} {radius}"
            );
            assert!(difference < last, "{kind}");
            last = difference;
        }
    }
}

#[test]
fn the_dual_point_is_the_gradient_of_the_smoothed_loss() {
    for kind in kinds() {
        let case = Case { smoothing: 0.3, weights: None, ..Case::random(9, kind, 20, 3, 4) };
        let problem = case.problem(case.data(), Order::Examples);
        let mut work = dualgap::multiclass::Workspace::default();
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for example in 0..20 {
            let scores: Vec<f64> = (0..4).map(|_| random.random_range(-1.0..1.0)).collect();
            let mut loss = |scores: &[f64]| {
                let mut margins = scores.to_vec();
                problem.margins(example, &mut margins);
                problem.loss(example, &margins, &mut work)
            };
            let numeric: Vec<f64> = (0..4)
                .map(|j| {
                    let moved = |by: f64| {
                        let mut scores = scores.clone();
                        scores[j] += by;
                        scores
                    };
                    (loss(&moved(1e-5)) - loss(&moved(-1e-5))) / 2e-5
                })
                .collect();
            let mut margins = scores.clone();
            problem.margins(example, &mut margins);
            problem.subgradient(example, &margins, &mut work);
            let mut gradient = vec![0.0; 4];
            // Computes −α, which is β at classes other than the label and −1ᵀβ at the label.
            for &(class, weight) in &work.vertex {
                gradient[class as usize] += weight;
                gradient[problem.label(example)] -= weight;
            }
            for (numeric, gradient) in numeric.iter().zip(&gradient) {
                assert!((numeric - gradient).abs() < 1e-6, "{kind}: {numeric} {gradient}");
            }
        }
    }
}

#[test]
fn losses_of_the_largest_margin_are_equal() {
    let with = |kind: &'static str, costs: Costs| {
        let mut case = Case { k: 1, costs, ..Case::random(4, kind, 80, 4, 6) };
        case.rho = vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        case.fit(Method::LineSearch, 30, 0.0)
    };
    let hinge = with("max-hinge", Costs::Unit);
    let zero_one = (0..36).map(|i| f64::from(i / 6 != i % 6)).collect();
    for (kind, costs) in [
        ("top-k", Costs::Unit),
        ("usunier", Costs::Unit),
        ("weighted-top-k", Costs::Unit),
        ("weighted-usunier", Costs::Unit),
        ("max-hinge", Costs::PerLabel(zero_one)),
    ] {
        let other = with(kind, costs);
        let distance =
            (&other.weights - &hinge.weights).iter().map(|w| w.abs()).fold(0.0, f64::max);
        assert!(distance < 1e-12, "{kind}: {distance}");
    }
}

#[test]
fn costs_per_label_equal_repeated_costs_per_example() {
    let table: Vec<f64> =
        (0..16).map(|i| if i / 4 == i % 4 { 0.0 } else { 0.3 + (i % 5) as f64 }).collect();
    let case =
        Case { costs: Costs::PerLabel(table.clone()), ..Case::random(2, "max-hinge", 50, 3, 4) };
    let rows = case.labels.iter().flat_map(|label| &table[*label as usize * 4..][..4]);
    let each = Case { costs: Costs::PerExample(rows.copied().collect()), ..case.clone() };
    for method in METHODS {
        let (a, b) = (case.fit(method, 10, 0.0), each.fit(method, 10, 0.0));
        assert_eq!(a.weights, b.weights);
        assert_eq!(a.trace.certificate.unwrap(), b.trace.certificate.unwrap());
        assert!((a.trace.certificate.unwrap().primal - case.primal(&a.weights)).abs() < 1e-9);
    }
}

#[test]
fn sample_weights_equal_repeated_rows() {
    let mut case = Case::random(6, "top-k", 60, 4, 5);
    let weights: Vec<f64> = (0..60).map(|i| (i % 3) as f64).collect();
    let repeated: Vec<usize> = (0..60).flat_map(|i| vec![i; i % 3]).collect();
    let again = Case {
        x: case.x.select(ndarray::Axis(0), &repeated),
        labels: repeated.iter().map(|i| case.labels[*i]).collect(),
        ..case.clone()
    };
    case.weights = Some(weights);
    for smoothing in [0.0, 0.1] {
        let fit = |case: &Case| Case { smoothing, ..case.clone() }.fit(Method::LineSearch, 50, 0.0);
        let (weighted, repeated) = (fit(&case), fit(&again));
        let difference = &weighted.weights - &repeated.weights;
        assert!(difference.iter().all(|w| w.abs() < 1e-9), "γ={smoothing}");
        let difference =
            weighted.trace.certificate.unwrap().primal - repeated.trace.certificate.unwrap().primal;
        assert!(difference.abs() < 1e-12);
    }
}

/// CSR arrays of a dense matrix, without zeros.
fn compressed<T: Copy>(x: &Array2<f64>, cast: fn(f64) -> T) -> (Vec<i64>, Vec<i32>, Vec<T>) {
    let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in x.rows() {
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as i32);
            values.push(cast(*value));
        }
        offsets.push(values.len() as i64);
    }
    (offsets, columns, values)
}

#[test]
fn sparse_rows_give_the_model_of_dense_rows() {
    for (kind, bias) in [("usunier", 0.0), ("weston-watkins", 1.5)] {
        let mut case = Case { bias, ..Case::random(11, kind, 200, 30, 7) };
        case.x.mapv_inplace(|value| if value.abs() < 0.7 { 0.0 } else { value });
        let (offsets, columns, values) = compressed(&case.x, |value| value);
        let sparse = Data::Csr64(Csr::new(&offsets, &columns, &values, 30).unwrap());
        for method in METHODS {
            let dense = case.fit(method, 15, 0.0);
            let other = case.fit_on(sparse, method, 15, 0.0);
            let difference = &dense.weights - &other.weights;
            assert!(difference.iter().all(|w| w.abs() < 1e-10), "{kind} {method:?}");
        }
        let single = case.x.mapv(|value| value as f32);
        let (offsets, columns, values) = compressed(&case.x, |value| value as f32);
        let sparse = Data::Csr32(Csr::new(&offsets, &columns, &values, 30).unwrap());
        let double = case.fit(Method::LineSearch, 15, 0.0);
        for data in [Data::Dense32(Dense::new(single.view()).unwrap()), sparse] {
            let fit = case.fit_on(data, Method::LineSearch, 15, 0.0);
            let difference = &double.weights - &fit.weights;
            assert!(difference.iter().all(|w| w.abs() < 1e-3), "{kind} in single precision");
        }
    }
}

#[test]
fn the_model_does_not_depend_on_the_threads() {
    let mut case = Case { bias: 1.0, ..Case::random(12, "weighted-usunier", 1500, 40, 9) };
    case.x.mapv_inplace(|value| if value.abs() < 0.3 { 0.0 } else { value });
    let single = case.x.mapv(|value| value as f32);
    let (offsets, columns, values) = compressed(&case.x, |value| value);
    let all = [
        case.data(),
        Data::Dense32(Dense::new(single.view()).unwrap()),
        Data::Csr64(Csr::new(&offsets, &columns, &values, 40).unwrap()),
    ];
    for data in all {
        for smoothing in [0.0, 0.05] {
            let fit = |n_threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                let case = Case { smoothing, ..case.clone() };
                pool.install(|| case.fit_on(data, Method::LineSearch, 8, 0.0))
            };
            let (one, two, five) = (fit(1), fit(2), fit(5));
            assert_eq!(one.weights, two.weights);
            assert_eq!(one.weights, five.weights);
            assert_eq!(one.certificates(), two.certificates());
        }
    }
}

#[test]
fn a_warm_start_continues_where_the_last_run_ended() {
    for smoothing in [0.0, 0.1] {
        let case = Case { smoothing, ..Case::random(13, "top-k", 80, 4, 5) };
        let interrupt = Interrupt::default();
        let mut problem = case.problem(case.data(), Order::Batches);
        let layout = problem.map().layout();
        let mut dual = MarginDual::new(&mut problem);
        let mut solver = FrankWolfe::new(&mut dual, StepRule::FrankWolfe, None);
        for _ in 0..10 {
            solver.advance(&interrupt).unwrap();
        }
        let start = solver.into_current();
        let point = dual.into_point();
        let mut dual = MarginDual::new(&mut problem);
        dual.start_at(&point);
        let mut solver = FrankWolfe::new(&mut dual, StepRule::FrankWolfe, Some(start));
        for _ in 0..10 {
            solver.advance(&interrupt).unwrap();
        }
        let whole = case.fit(Method::LineSearch, 20, 0.0);
        let again = classes_by_features(&solver.current().weights, layout);
        assert!((&whole.weights - &again).iter().all(|w| w.abs() < 1e-12), "γ={smoothing}");
    }
}

#[test]
fn errors_name_the_invalid_part_of_a_problem() {
    let case = Case::random(1, "max-hinge", 6, 2, 3);
    let message = |labels: &[u32], lambda| {
        let map = Linear::new(case.data(), 3, 0.0, Order::Batches);
        let problem = Shares::new(labels.len(), lambda)
            .and_then(|shares| MarginProblem::new(map, labels, build("max-hinge", 1, &[]), shares));
        problem.err().unwrap().to_string()
    };
    assert!(message(&[0; 5], 1.0).starts_with("y: "));
    assert!(message(&[3; 6], 1.0).starts_with("y: "));
    for lambda in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(message(&[0; 6], lambda).starts_with("lambda: "));
    }
    let problem = || case.problem(case.data(), Order::Batches);
    let costs = |costs| problem().with_costs(costs).err().unwrap().to_string();
    assert!(costs(Costs::PerLabel(vec![0.0; 8])).starts_with("costs: "));
    assert!(costs(Costs::PerLabel(vec![1.0; 9])).starts_with("costs: "));
    assert!(costs(Costs::PerExample(vec![-1.0; 18])).starts_with("costs: "));
}

#[test]
fn an_interrupt_stops_each_method() {
    let case = Case::random(1, "max-hinge", 100, 2, 3);
    let interrupt = Interrupt::default();
    interrupt.raise();
    let mut batch = case.problem(case.data(), Order::Batches);
    let mut dual = MarginDual::new(&mut batch);
    assert!(FrankWolfe::new(&mut dual, StepRule::FrankWolfe, None).advance(&interrupt).is_err());
    let mut single = case.problem(case.data(), Order::Examples);
    let mut dual = MarginDual::new(&mut single);
    let options = BlockOptions::default();
    assert!(BlockFrankWolfe::new(&mut dual, options, None).advance(&interrupt).is_err());
    assert!(Subgradient::new(&mut dual, 1.0, false, 0).advance(&interrupt).is_err());
    let mut away = AwayFrankWolfe::new(&mut dual, Step::Away, 1.0, 0);
    assert!(away.advance(&interrupt).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_primal_is_never_below_the_dual(
        seed in 0u64..1000, kind in prop::sample::select(kinds()), n in 1usize..40, d in 1usize..6, m in 2usize..6,
        log_lambda in -4.0..1.0f64, smoothing in prop::sample::select(vec![0.0, 0.02, 1.0]),
    ) {
        let mut case = Case::random(seed, kind, n, d, m);
        case.lambda = 10f64.powf(log_lambda);
        case.smoothing = smoothing;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        case.weights = Some((0..n).map(|_| 0.1 + random.random::<f64>()).collect());
        for method in METHODS {
            let fit = case.fit(method, 6, 0.0);
            for certificate in fit.certificates() {
                prop_assert!(certificate.gap() >= -1e-10 * certificate.primal.abs().max(1.0));
            }
            let primal = case.primal(&fit.weights);
            let last = fit.trace.certificate.unwrap().primal;
            prop_assert!((primal - last).abs() <= 1e-9 * primal.max(1.0), "{primal} {last}");
        }
    }
}
