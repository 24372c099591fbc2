//! Structured solvers: a common optimum, certificates, the path, the extragradient method.

use std::ops::ControlFlow;

use super::super::common::{fixture, numbers};
use dualgap::data::{Data, Dense};
use dualgap::dual::{BlockDual, Gradient, Image, Shares, dual_value};
use dualgap::interrupt::Interrupt;
use dualgap::linalg::TouchedVector;
use dualgap::multiclass::{Linear, MarginDual, MarginProblem, Order};
use dualgap::polytope::MaxHinge;
use dualgap::run::{Certificate, Solver, Stopping, Trace, run};
use dualgap::solver::{
    BlockFrankWolfe, BlockOptions, BlockPath, Method, PathSettings, Sampling, Step, StepRule,
    Target, minimize, path,
};
use dualgap::structured::{
    Chain, Extragradient, Graph, Hamming, Marginals, Matching, Model, Multiclass, Multilabel,
    Pairs, Projection, StructuredDual, Work,
};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn run_to_gap(solver: &mut dyn Solver, max_epochs: usize, gap: f64) -> Trace {
    let stopping = Stopping { max_epochs, relative: 0.0, floor: gap, null_objective: None };
    run(solver, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn uniform(seed: u64, n: usize, d: usize) -> Array2<f64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || random.random_range(-1.0..1.0))
}

fn dense(x: &Array2<f64>) -> Data<'_> {
    Data::Dense64(Dense::new(x.view()).unwrap())
}

fn chain() -> Chain {
    let x = uniform(1, 30, 4);
    let labels: Vec<u32> =
        (0..30).map(|t| (x[(t, 0)] + x[(t, 1)] > 0.0) as u32 + (t as u32 % 2)).collect();
    let offsets = [0, 4, 4, 5, 12, 20, 21, 30];
    Chain::new(dense(&x), &offsets, Some(&labels), 3, true, Hamming::Count).unwrap()
}

fn multilabel() -> Multilabel {
    let x = uniform(2, 25, 3);
    let labels: Vec<u8> = x
        .rows()
        .into_iter()
        .flat_map(|x| [x[0] > 0.0, x[0] + x[1] > 0.2, x[2] > 0.0])
        .map(u8::from)
        .collect();
    Multilabel::new(dense(&x), Some(&labels), 3, Graph::full(3), Hamming::Mean).unwrap()
}

fn multiclass() -> Multiclass {
    let (x, labels) = classes();
    Multiclass::new(dense(&x), Some(&labels), 4, None).unwrap()
}

fn classes() -> (Array2<f64>, Vec<u32>) {
    let labels = (0..40).map(|i| i as u32 % 4).collect();
    let mut x = uniform(3, 40, 5);
    (0..40).for_each(|i| x[(i, i % 4)] += 0.8);
    (x, labels)
}

fn matching() -> (Matching, serde_json::Value) {
    let value = fixture("structured_matching");
    let sizes: Vec<[u32; 2]> = value["shapes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shape| [0, 1].map(|side| shape[side].as_u64().unwrap() as u32))
        .collect();
    let rows: Vec<f64> = (value["F"].as_array().unwrap().iter())
        .flat_map(|example| example.as_array().unwrap())
        .flat_map(|row| row.as_array().unwrap().iter().flat_map(numbers))
        .collect();
    let x = Array2::from_shape_vec((rows.len() / 3, 3), rows).unwrap();
    let (mut pairs, mut offsets) = (Vec::new(), vec![0]);
    for truth in value["gt"].as_array().unwrap() {
        for (a, row) in truth.as_array().unwrap().iter().enumerate() {
            let right = numbers(row).into_iter().enumerate().filter(|(_, z)| *z > 0.0);
            pairs.extend(right.map(|(b, _)| [a as u32, b as u32]));
        }
        offsets.push(pairs.len());
    }
    let truth = Pairs { pairs: &pairs, offsets: &offsets };
    (Matching::new(dense(&x), &sizes, Some(truth), 1.0, 1.0).unwrap(), value)
}

fn models() -> Vec<(&'static str, Box<dyn Model>)> {
    vec![
        ("chain", Box::new(chain())),
        ("multilabel", Box::new(multilabel())),
        ("multiclass", Box::new(multiclass())),
        ("matching", Box::new(matching().0)),
    ]
}

fn methods() -> Vec<Method> {
    let block = |step, sampling, cache| {
        let options = BlockOptions { seed: 1, step, sampling, cache, ..BlockOptions::default() };
        Method::BlockFrankWolfe(options)
    };
    vec![
        block(Step::Pairwise, Sampling::Gap, false),
        block(Step::FrankWolfe, Sampling::Uniform, false),
        block(Step::FrankWolfe, Sampling::Gap, true),
        block(Step::Pairwise, Sampling::Gap, true),
        block(Step::Away, Sampling::Permutation, false),
        Method::FrankWolfe(StepRule::FrankWolfe),
        Method::FrankWolfe(StepRule::Scheduled),
        Method::AwayFrankWolfe { step: Step::Away, subsample: 1.0, seed: 1 },
        Method::AwayFrankWolfe { step: Step::Pairwise, subsample: 0.5, seed: 1 },
        Method::Subgradient { averaging: false, seed: 1 },
        Method::Subgradient { averaging: true, seed: 1 },
    ]
}

fn dual_of(model: &dyn Model, lambda: f64) -> StructuredDual<'_> {
    StructuredDual::new(model, Shares::new(model.n_examples(), lambda).unwrap()).unwrap()
}

/// Fits to a gap relative to P(0), the objective at zero weights.
fn fit(model: &dyn Model, method: Method, max_epochs: usize, tol: f64) -> (Trace, Vec<f64>) {
    let (target, interrupt) = (Target { tol, max_epochs }, Interrupt::default());
    let observe = &mut |_: &_| ControlFlow::Continue(());
    let fit =
        minimize(&mut dual_of(model, 0.1), method, target, None, &interrupt, observe).unwrap();
    let weights = fit.weights().to_vec();
    (fit.trace, weights)
}

#[test]
fn all_solvers_agree_on_the_optimum_and_their_bounds_hold() {
    for (name, model) in models() {
        let best = fit(&*model, methods()[0], 5000, 1e-9).0.certificate.unwrap();
        assert!(best.gap() <= 1e-8, "{name}: {}", best.gap());
        for method in methods() {
            let (trace, weights) = fit(&*model, method, 1000, 1e-3);
            let Certificate { primal, dual } = trace.certificate.unwrap();
            assert!(primal - dual < 3e-2, "{name} {method:?}: {}", primal - dual);
            for certificate in trace.epochs.iter().filter_map(|epoch| epoch.certificate) {
                assert!(
                    certificate.dual <= best.primal + 1e-12,
                    "{name} {method:?}: {certificate:?} {best:?}"
                );
                assert!(
                    certificate.primal >= best.dual - 1e-12,
                    "{name} {method:?}: {certificate:?} {best:?}"
                );
            }
            let mut problem = dual_of(&*model, 0.1);
            let loss = problem.block_gaps(&weights, &|_| &[], &Interrupt::default()).unwrap().loss;
            let again = 0.05 * weights.iter().map(|w| w * w).sum::<f64>() + loss.value();
            assert!((primal - again).abs() < 1e-11, "{name} {method:?}: {primal} is {again}");
        }
    }
}

#[test]
fn the_matching_problem_has_the_optimum_of_an_independent_qp_solver() {
    let (model, value) = matching();
    let mut problem = dual_of(&model, value["lam"].as_f64().unwrap());
    let options = BlockOptions { step: Step::Pairwise, ..BlockOptions::default() };
    let mut solver = BlockFrankWolfe::new(&mut problem, options, None);
    let end = run_to_gap(&mut solver, 2000, 1e-10).certificate.unwrap();
    assert!((end.primal - value["optimum_primal"].as_f64().unwrap()).abs() < 1e-8, "{end:?}");
    assert!((end.dual - value["optimum_dual"].as_f64().unwrap()).abs() < 1e-8, "{end:?}");
    for (weight, expected) in solver.weights().iter().zip(numbers(&value["w"])) {
        assert!((weight - expected).abs() < 1e-5, "{weight} for {expected}");
    }
}

#[test]
fn a_structured_multi_class_problem_has_the_optimum_of_the_max_hinge() {
    let (x, labels) = classes();
    let map = Linear::new(dense(&x), 4, 0.0, Order::Examples);
    let shares = Shares::new(labels.len(), 0.1).unwrap();
    let mut problem = MarginProblem::new(map, &labels, Box::new(MaxHinge), shares).unwrap();
    let options = BlockOptions { step: Step::Pairwise, ..BlockOptions::default() };
    let mut margins = MarginDual::new(&mut problem);
    let mut solver = BlockFrankWolfe::new(&mut margins, options, None);
    let plain = run_to_gap(&mut solver, 2000, 1e-10).certificate.unwrap();
    let structured = fit(&multiclass(), methods()[0], 2000, 1e-10).0.certificate.unwrap();
    assert!((plain.primal - structured.primal).abs() < 1e-9);
}

#[test]
fn slope_and_curvature_are_those_of_the_dual() {
    let interrupt = Interrupt::default();
    for (name, model) in models() {
        let mut problem = dual_of(&*model, 0.1);
        let n = model.n_examples();
        let mut points: Vec<_> = (0..n).map(|block| problem.start(block)).collect();
        let mut weights = vec![0.0; model.n_weights()];
        let value = |problem: &mut StructuredDual<'_>, points: &[Vec<(u32, f64)>]| {
            let value = dual_value(problem, &|i| &points[i], &|_| 0.0, &interrupt).unwrap();
            value.bound()
        };
        for block in (0..n).chain(0..n) {
            let mut gradient = problem.gradient(block, &weights, &points[block]);
            let mut vertex = Vec::new();
            gradient.vertex(&mut vertex).unwrap();
            let mut direction: Vec<(u32, f64)> = vertex.clone();
            direction.extend(points[block].iter().map(|(part, value)| (*part, -value)));
            direction.sort_by_key(|(part, _)| *part);
            direction.dedup_by(|b, a| {
                a.0 == b.0 && {
                    a.1 += b.1;
                    true
                }
            });
            let slope = gradient.slope(&direction);
            let curvature = problem.image(block, &direction).curvature();
            let share = problem.shares().of(block);
            let before = value(&mut problem, &points);
            for step in [0.25, 0.5] {
                let mut moved = weights.clone();
                problem.image(block, &direction).add_to(step, &mut moved);
                let mut ahead = points.clone();
                ahead[block] = (0..model.n_parts(block) as u32)
                    .map(|part| {
                        let at = |point: &[(u32, f64)]| {
                            point.iter().filter(|(p, _)| *p == part).map(|(_, v)| v).sum::<f64>()
                        };
                        (part, at(&points[block]) + step * at(&direction))
                    })
                    .filter(|(_, value)| *value != 0.0)
                    .collect();
                let expected = before + share * (step * slope - 0.5 * step * step * curvature);
                let found = value(&mut problem, &ahead);
                assert!((found - expected).abs() < 1e-12, "{name}: {found} for {expected}");
                if step == 0.5 {
                    (weights, points) = (moved, ahead);
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (name, model) in models() {
        for method in methods() {
            let on = |n_threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                pool.install(|| fit(&*model, method, 30, 0.0).1)
            };
            assert_eq!(on(1), on(3), "{name} {method:?}");
        }
    }
}

#[test]
fn every_model_of_a_path_is_within_the_gap_of_its_piece() {
    let model = chain();
    let tolerance = 0.02;
    let settings = PathSettings {
        from: 10.0,
        until: 0.1,
        stopping: Stopping {
            max_epochs: 2000,
            relative: tolerance,
            floor: 0.0,
            null_objective: None,
        },
    };
    let mut problem = dual_of(&model, settings.from);
    let options = BlockOptions { step: Step::Pairwise, ..BlockOptions::default() };
    let mut solver = BlockPath::new(&mut problem, options).unwrap();
    let observe = &mut |_: &_| ControlFlow::Continue(());
    let pieces = path(&mut solver, settings, &Interrupt::default(), observe).unwrap();
    assert_eq!((pieces[0].lambda, pieces[pieces.len() - 1].until), (10.0, 0.1));
    assert!(pieces.len() > 2, "{} pieces", pieces.len());
    for pair in pieces.windows(2) {
        assert_eq!(pair[0].until, pair[1].lambda);
    }
    for piece in &pieces {
        assert!(piece.relative_gap() <= tolerance, "{:?}", piece.ends);
        for share in [0.0, 0.5, 1.0] {
            let lambda = piece.lambda.powf(1.0 - share) * piece.until.powf(share);
            let scaled: Vec<f64> =
                piece.weights.iter().map(|weight| weight * piece.lambda / lambda).collect();
            let mut problem = dual_of(&model, lambda);
            let loss = problem.block_gaps(&scaled, &|_| &[], &Interrupt::default()).unwrap().loss;
            let primal = 0.5 * lambda * scaled.iter().map(|w| w * w).sum::<f64>() + loss.value();
            let options = BlockOptions { step: Step::Pairwise, ..BlockOptions::default() };
            let mut solver = BlockFrankWolfe::new(&mut problem, options, None);
            let optimum = run_to_gap(&mut solver, 500, 1e-4).certificate.unwrap().dual;
            assert!(
                primal - optimum <= (tolerance * primal).min(piece.gap()) + 1e-9,
                "{primal} over {optimum} at {lambda}"
            );
        }
    }
}

/// Returns Σ_i A_iᵀ z_i / n.
fn dense_image(model: &dyn Marginals, marginals: &[Vec<f64>]) -> Vec<f64> {
    let mut image = TouchedVector::new(model.n_weights());
    for (example, marginals) in marginals.iter().enumerate() {
        let parts: Vec<_> = marginals.iter().zip(0..).map(|(value, part)| (part, *value)).collect();
        model.add_image(example, &parts, 1.0 / model.n_examples() as f64, &mut image);
    }
    image.values().to_vec()
}

/// Returns the parts of an example's true label as a dense vector.
fn dense_truth(model: &dyn Marginals, example: usize) -> Vec<f64> {
    let (mut parts, mut point) = (Vec::new(), vec![0.0; model.n_parts(example)]);
    model.parts(example, model.truth(example), &mut parts);
    parts.iter().for_each(|&(part, count)| point[part as usize] = count);
    point
}

/// The textbook version of the extragradient method, which stores the sum s of all operators and each z_i.
fn textbook(
    model: &dyn Marginals,
    (for_w, for_z): (f64, f64),
    radius: f64,
    iterations: usize,
) -> Vec<f64> {
    let (n, d) = (model.n_examples(), model.n_weights());
    let truth: Vec<Vec<f64>> = (0..n).map(|example| dense_truth(model, example)).collect();
    let truth = dense_image(model, &truth);
    let slopes = |weights: &[f64], example: usize| {
        let mut scores = vec![0.0; model.n_parts(example)];
        model.scores(example, weights, &mut scores);
        model.add_costs(example, &mut scores);
        scores
    };
    let ball = |mut w: Vec<f64>| {
        let norm = w.iter().map(|w| w * w).sum::<f64>().sqrt();
        w.iter_mut().for_each(|w| *w *= (radius / norm).min(1.0));
        w
    };
    let project = |example: usize, point: Vec<f64>| {
        let mut projection = vec![0.0; point.len()];
        model.euclidean(example, &point, 1e-12, &mut Work::default(), &mut projection).unwrap();
        projection
    };
    let (mut s_w, mut average) = (vec![0.0; d], vec![0.0; d]);
    let mut s_z: Vec<Vec<f64>> = (0..n).map(|example| vec![0.0; model.n_parts(example)]).collect();
    for _ in 0..iterations {
        let v_w = ball(s_w.iter().map(|s| for_w * s).collect());
        let v_z: Vec<Vec<f64>> =
            (0..n).map(|i| project(i, s_z[i].iter().map(|s| for_z * s).collect())).collect();
        let image = dense_image(model, &v_z);
        let u_w = ball((0..d).map(|j| v_w[j] - for_w * (image[j] - truth[j])).collect());
        let u_z: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let moved = v_z[i].iter().zip(slopes(&v_w, i)).map(|(v, s)| v + for_z * s);
                project(i, moved.collect())
            })
            .collect();
        let image = dense_image(model, &u_z);
        (0..d).for_each(|j| s_w[j] -= image[j] - truth[j]);
        for (i, s) in s_z.iter_mut().enumerate() {
            s.iter_mut().zip(slopes(&u_w, i)).for_each(|(s, slope)| *s += slope);
        }
        average.iter_mut().zip(&u_w).for_each(|(sum, w)| *sum += w);
    }
    average.iter().map(|sum| sum / iterations as f64).collect()
}

#[test]
fn the_averaged_extragradient_method_agrees_with_the_textbook_version() {
    let (matching, _) = matching();
    let multiclass = multiclass();
    let models: [&dyn Marginals; 2] = [&matching, &multiclass];
    for model in models {
        let shares = Shares::new(model.n_examples(), 1.0).unwrap();
        let mut solver = Extragradient::new(model, shares, Projection::Euclidean, 1.5).unwrap();
        run_to_gap(&mut solver, 25, 0.0);
        let expected = textbook(model, solver.steps().unwrap(), 1.5, 25);
        for (found, expected) in solver.weights().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
    }
}

#[test]
fn the_extragradient_finds_the_saddle_point() {
    let (model, value) = matching();
    let saddle = &value["saddle_unregularised"];
    let radius = saddle["w_ball_radius"].as_f64().unwrap();
    let expected = saddle["value_plus_loss_constant"].as_f64().unwrap() / 3.0;
    for (projection, gap) in [(Projection::Euclidean, 4e-3), (Projection::Entropic, 2e-2)] {
        let mut solver =
            Extragradient::new(&model, Shares::new(3, 1.0).unwrap(), projection, radius).unwrap();
        let Certificate { primal, dual } = run_to_gap(&mut solver, 5000, gap).certificate.unwrap();
        assert!(primal - dual <= gap, "{projection:?}: {}", primal - dual);
        assert!(dual <= expected + 1e-9 && primal >= expected - 1e-9, "{projection:?}");
    }
    let chain = chain();
    let shares = Shares::new(chain.n_examples(), 1.0).unwrap();
    let mut solver = Extragradient::new(&chain, shares.clone(), Projection::Entropic, 2.0).unwrap();
    let gap = run_to_gap(&mut solver, 1000, 2e-2).certificate.unwrap().gap();
    assert!((0.0..=5e-2).contains(&gap), "{gap}");
    let mut unsolvable = Extragradient::new(&chain, shares, Projection::Euclidean, 2.0).unwrap();
    let error = unsolvable.advance(&Interrupt::default()).unwrap_err().to_string();
    assert!(error.contains("projection"), "{error}");
}

/// A block may change one weight once for each of its tokens, so the bound on rounding errors must count the tokens.
#[test]
fn the_dual_value_of_a_long_sequence_is_a_lower_bound() {
    let (n_tokens, interrupt) = (1 << 16, Interrupt::default());
    for x in [0.1, 0.3, 0.7, 0.9] {
        let (rows, labels) = (Array2::from_elem((n_tokens, 1), x), vec![0; n_tokens]);
        let offsets = [0, n_tokens];
        let mode = Hamming::Count;
        let chain = Chain::new(dense(&rows), &offsets, Some(&labels), 2, false, mode).unwrap();
        let mut wrong = Vec::new();
        chain.parts(0, &vec![1; n_tokens], &mut wrong);
        let value = dual_value(&mut dual_of(&chain, 1.0), &|_| &wrong, &|_| 0.0, &interrupt);
        // The weights are ±n x for the feature, and ±(n − 1) for the transitions. As n is a power of 2, n x is exact.
        let n = n_tokens as f64;
        let exact = n - (n * x).powi(2) - (n - 1.0).powi(2);
        let (bound, rounding) = (value.unwrap().bound(), 2.0 * f64::EPSILON * exact.abs());
        assert!(bound <= exact + rounding, "x = {x}: {bound} > {exact}");
        assert!(bound >= exact * (1.0 + 1e-8), "x = {x}: {bound} < {exact}");
    }
}
