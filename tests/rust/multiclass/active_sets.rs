//! Away and pairwise steps, gap sampling and the oracle cache on multi-category problems.

use std::ops::ControlFlow;

use super::super::common::margin::{Case, Method};
use super::super::common::{fixture, kinds};
use dualgap::dual::{BlockDual, Image};
use dualgap::interrupt::Interrupt;
use dualgap::multiclass::{MarginDual, Order};
use dualgap::run::{Solver, Stopping, Trace, run};
use dualgap::solver::{AwayFrankWolfe, Block, BlockFrankWolfe, BlockOptions, Sampling, Step};

fn run_to_gap(solver: &mut dyn Solver, max_epochs: usize, gap: f64) -> Trace {
    let stopping = Stopping { max_epochs, relative: 0.0, floor: gap, null_objective: None };
    run(solver, stopping, &Interrupt::default(), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn all_block_options() -> Vec<BlockOptions> {
    let mut all = Vec::new();
    for step in [Step::FrankWolfe, Step::Away, Step::Pairwise] {
        for sampling in [Sampling::Permutation, Sampling::Uniform, Sampling::Gap] {
            for cache in [false, true] {
                all.push(BlockOptions {
                    seed: 3,
                    step,
                    sampling,
                    cache,
                    ..BlockOptions::default()
                });
            }
        }
    }
    all
}

/// Checks that each block's point equals the convex combination of its stored vertices, and that w is
/// the image of the points.
fn check_active_sets(
    dual: &mut MarginDual<'_, '_>,
    (weights, blocks): (&[f64], &[Block]),
    name: &str,
) {
    let mut again = vec![0.0; weights.len()];
    for (index, block) in blocks.iter().enumerate() {
        dual.image(index, &block.point).add_to(1.0, &mut again);
        if block.atoms.is_empty() {
            continue;
        }
        let total: f64 = block.atoms.iter().map(|atom| atom.weight).sum();
        assert!((total - 1.0).abs() < 1e-12, "{name}: the weights sum to {total}");
        assert!(block.atoms.iter().all(|atom| atom.weight >= 0.0), "{name}");
        let mut point = [0.0; 8];
        for atom in &block.atoms {
            for &(part, value) in &atom.vertex {
                point[part as usize] += atom.weight * value;
            }
        }
        block.point.iter().for_each(|&(part, value)| point[part as usize] -= value);
        assert!(point.iter().all(|difference| difference.abs() < 1e-12), "{name}: {point:?}");
    }
    let worst = weights.iter().zip(&again).map(|(w, v)| (w - v).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-10, "{name}: w is {worst} off");
}

#[test]
fn every_combination_of_options_reaches_the_optimum_with_feasible_active_sets() {
    for value in fixture("margin_problems").as_array().unwrap() {
        let case = Case::fixture(value);
        let optimum = value["primal"].as_f64().unwrap();
        for options in all_block_options() {
            let name = format!("{} γ={} {options:?}", case.kind, case.smoothing);
            let mut problem = case.problem(case.data(), Order::Examples);
            let mut dual = MarginDual::new(&mut problem);
            let mut solver = BlockFrankWolfe::new(&mut dual, options, None);
            let end = run_to_gap(&mut solver, 3000, 1e-6).certificate.unwrap();
            // Plain Frank-Wolfe steps zigzag; the others converge linearly.
            let gap = if options.step == Step::FrankWolfe { 1e-3 } else { 1e-6 };
            assert!(end.gap() <= gap, "{name}: gap {}", end.gap());
            assert!(end.dual <= optimum + 1e-9 && end.primal >= optimum - 1e-9, "{name}");
            let (weights, blocks, _) = solver.into_parts();
            check_active_sets(&mut dual, (&weights, &blocks), &name);
        }
    }
}

#[test]
fn batch_away_steps_converge_on_problems_where_plain_steps_stall() {
    for kind in kinds() {
        let case = Case { lambda: 0.3, ..Case::random(11, kind, 12, 3, 4) };
        let reference = {
            let mut problem = case.problem(case.data(), Order::Examples);
            let options = BlockOptions { step: Step::Pairwise, ..BlockOptions::default() };
            let mut dual = MarginDual::new(&mut problem);
            let mut solver = BlockFrankWolfe::new(&mut dual, options, None);
            run_to_gap(&mut solver, 5000, 1e-9).certificate.unwrap()
        };
        if kind == "max-hinge" {
            let plain = case.fit(Method::LineSearch, 6000, 1e-5).trace.certificate.unwrap();
            assert!(plain.gap() > 3e-5, "plain steps reach {}", plain.gap());
        }
        for step in [Step::Away, Step::Pairwise] {
            for subsample in [1.0, 0.4] {
                let mut problem = case.problem(case.data(), Order::Examples);
                let mut dual = MarginDual::new(&mut problem);
                let mut solver = AwayFrankWolfe::new(&mut dual, step, subsample, 5);
                let end = run_to_gap(&mut solver, 6000, 1e-5).certificate.unwrap();
                let name = format!("{kind} {step:?} {subsample}");
                assert!(end.gap() <= 1e-5, "{name}: gap {}", end.gap());
                assert!((end.primal - reference.primal).abs() < 1e-5, "{name}");
                let (mut total, mut least) = (0.0, f64::INFINITY);
                solver
                    .active()
                    .for_each(|weight| (total, least) = (total + weight, weight.min(least)));
                assert!((total - 1.0_f64).abs() < 1e-12 && least > 0.0, "{name}: {total} {least}");
            }
        }
    }
}

#[test]
fn the_average_of_the_iterates_is_certified_with_the_dual_of_the_last() {
    for kind in kinds() {
        let case = Case::random(2, kind, 60, 4, 4);
        let mut problem = case.problem(case.data(), Order::Examples);
        let options = BlockOptions { averaging: true, ..BlockOptions::default() };
        let mut dual = MarginDual::new(&mut problem);
        let mut plain = BlockFrankWolfe::new(&mut dual, BlockOptions::default(), None);
        let last = run_to_gap(&mut plain, 20, 0.0).certificate.unwrap();
        let mut solver = BlockFrankWolfe::new(&mut dual, options, None);
        assert_eq!(run_to_gap(&mut solver, 20, 0.0).certificate.unwrap().dual, last.dual);
        let mut solver = BlockFrankWolfe::new(&mut dual, options, None);
        let end = run_to_gap(&mut solver, 300, 1e-3).certificate.unwrap();
        assert!(end.gap() >= 0.0 && end.gap() <= 1e-2, "{kind}: {end:?}");
        let weights = solver.weights().to_vec();
        let loss = problem.mean_loss(&weights, &Interrupt::default()).unwrap();
        let norm: f64 = weights.iter().map(|w| w * w).sum();
        let primal = 0.5 * case.lambda * norm + loss.value();
        assert!((primal - end.primal).abs() < 1e-12, "{kind}: {primal} against {}", end.primal);
    }
}

#[test]
fn uncertified_epochs_do_not_end_a_run() {
    let case = Case::random(4, "max-hinge", 50, 4, 3);
    let mut problem = case.problem(case.data(), Order::Examples);
    let options = BlockOptions { certify_below: 1e-4, ..BlockOptions::default() };
    let mut dual = MarginDual::new(&mut problem);
    let mut solver = BlockFrankWolfe::new(&mut dual, options, None);
    let trace = run_to_gap(&mut solver, 2000, 1e-4);
    let certified = |epochs: &[dualgap::run::Epoch]| {
        epochs.iter().filter(|epoch| epoch.certificate.is_some()).count()
    };
    assert!(trace.epochs.len() > 20 && certified(&trace.epochs) < trace.epochs.len() / 2);
    assert!(trace.gap().unwrap() <= 1e-4);
}
