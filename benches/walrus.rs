//! Benchmarks of the Weston-Watkins subproblem alone, on random v: the default search, the paper's
//! sorted sweep, a sort by itself, and Shark's greedy inner solver.

#[path = "support/shark.rs"]
mod support;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use dualgap::internal as walrus;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use support::shark;

fn subproblem(criterion: &mut Criterion) {
    for k in [3, 10, 30, 100, 300, 1000, 3000] {
        let mut group = criterion.benchmark_group(format!("walrus/{k}"));
        let mut rng = Pcg64::seed_from_u64(k);
        let mut margins =
            move || -> Vec<f64> { (0..k - 1).map(|_| rng.random_range(-1.0..2.0)).collect() };
        // Margins differ in each call, because the branch predictor would learn a single vector.
        let vectors: Vec<Vec<f64>> = (0..64).map(|_| margins()).collect();
        let c = 1.0;
        let mut next = 0;
        let mut pick = || {
            next = (next + 1) % vectors.len();
            &vectors[next]
        };
        group.bench_function(BenchmarkId::from_parameter("search"), |bencher| {
            bencher.iter(|| walrus::multiplier(black_box(pick()), c, 1.0, 0.0));
        });
        let guesses: Vec<f64> =
            vectors.iter().map(|v| 1.01 * walrus::multiplier(v, c, 1.0, 0.0)).collect();
        let mut at = 0;
        group.bench_function(BenchmarkId::from_parameter("warm-search"), |bencher| {
            bencher.iter(|| {
                at = (at + 1) % vectors.len();
                walrus::multiplier(black_box(&vectors[at]), c, 1.0, guesses[at])
            });
        });
        let mut sorted = Vec::new();
        group.bench_function(BenchmarkId::from_parameter("sorted-sweep"), |bencher| {
            bencher.iter(|| walrus::multiplier_by_sorting(black_box(pick()), c, 1.0, &mut sorted));
        });
        group.bench_function(BenchmarkId::from_parameter("sort"), |bencher| {
            bencher.iter_batched_ref(
                || pick().clone(),
                |v| v.sort_unstable_by(f64::total_cmp),
                BatchSize::SmallInput,
            );
        });
        let (mut b, mut gradient) = (vec![0.0; vectors[0].len()], vec![0.0; vectors[0].len()]);
        group.bench_function(BenchmarkId::from_parameter("shark"), |bencher| {
            bencher.iter(|| {
                b.fill(0.0);
                gradient.copy_from_slice(black_box(pick()));
                shark(&mut b, &mut gradient, c, 1e-3)
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(30);
    targets = subproblem
}
criterion_main!(benches);
