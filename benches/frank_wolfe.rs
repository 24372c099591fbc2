//! Benchmarks of each line of batch Frank-Wolfe (Tajima et al. 2020, Table 3), on one thread with
//! dense rows.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use dualgap::Interrupt;
use dualgap::data::{Data, Dense};
use dualgap::internal::{
    FrankWolfe, Linear, MarginDual, MarginProblem, Order, Parameters, ScoreMap, Shares, SparseRows,
    StepRule, Workspace, parse,
};
use dualgap::run::Solver;
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const N: usize = 2000;
const D: usize = 1024;
const M: usize = 100;
/// Number of rows that are scored together.
const BLOCK: usize = 64;

/// Benchmarks whole iterations, with scheduled steps and with line search.
fn iterations(group: &mut BenchmarkGroup<'_, WallTime>, mut problem: MarginProblem<'_>) {
    for (rule, name) in [(StepRule::Scheduled, "scheduled"), (StepRule::FrankWolfe, "searched")] {
        let mut dual = MarginDual::new(&mut problem);
        let mut solver = FrankWolfe::new(&mut dual, rule, None);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| solver.advance(&Interrupt::default()).unwrap());
        });
    }
}

fn lines(criterion: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
    let mut rng = Pcg64::seed_from_u64(0);
    let x = Array2::from_shape_simple_fn((N, D), || rng.random_range(-1.0..1.0) / 32.0);
    let labels: Vec<u32> = (0..N as u32).map(|i| i % M as u32).collect();
    let weights: Vec<f64> = (0..5).map(|j| (5 - j) as f64 / 15.0).chain([0.0; M - 5]).collect();
    let losses = [
        ("max-hinge", Parameters::default()),
        ("weighted-usunier", Parameters { weights: Some(weights), ..Parameters::default() }),
    ];
    for (name, parameters) in losses {
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let mut map = Linear::new(data, M, 0.0, Order::Batches);
        let mut w: Vec<f64> = vec![0.0; map.n_weights()];
        w.iter_mut().for_each(|w| *w = rng.random_range(-1.0..1.0));
        map.load(&w);
        let mut scores = vec![0.0; N * M];
        let mut group = criterion.benchmark_group(format!("frank-wolfe-lines/{name}"));
        group.sample_size(20);
        group.bench_function(BenchmarkId::from_parameter("scores"), |bencher| {
            bencher.iter(|| {
                for (block, scores) in scores.chunks_mut(BLOCK * M).enumerate() {
                    let first = block * BLOCK;
                    map.scores(first..first + scores.len() / M, black_box(scores));
                }
            });
        });
        let shares = Shares::new(N, 1.0 / N as f64).unwrap();
        let polytope = parse(name, parameters).unwrap();
        let problem = MarginProblem::new(map, &labels, polytope, shares).unwrap();
        let mut work = Workspace::default();
        let mut vertices = SparseRows::default();
        let mut margins = vec![0.0; M];
        group.bench_function(BenchmarkId::from_parameter("vertices"), |bencher| {
            bencher.iter(|| {
                vertices.restart(0);
                for (example, row) in scores.chunks(M).enumerate() {
                    margins.copy_from_slice(row);
                    problem.margins(example, &mut margins);
                    problem.vertex(example, &margins, &mut work);
                    vertices.push(work.vertex.iter().copied());
                }
            });
        });
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let mut map = Linear::new(data, M, 0.0, Order::Batches);
        let mut image = vec![0.0; map.n_weights()];
        group.bench_function(BenchmarkId::from_parameter("images"), |bencher| {
            bencher.iter(|| map.add_images(&vertices, black_box(&mut image)));
        });
        iterations(&mut group, problem);
        group.finish();
    }
}

criterion_group!(benches, lines);
criterion_main!(benches);
