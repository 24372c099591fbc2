//! What one example costs in the structured models: scores and decoding.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dualgap::data::{Data, Dense};
use dualgap::structured::{Chain, Hamming, Model, Work};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Runs `scores` and `decode` over all examples in turn, one example a call.
fn measure(criterion: &mut Criterion, name: &str, model: &dyn Model, per_example: u64) {
    let mut rng = Pcg64::seed_from_u64(1);
    let weights: Vec<f64> = (0..model.n_weights()).map(|_| rng.random_range(-1.0..1.0)).collect();
    let n_examples = model.n_examples();
    let all: Vec<Vec<f64>> = (0..n_examples)
        .map(|example| {
            let mut scores = vec![0.0; model.n_parts(example)];
            model.scores(example, &weights, &mut scores);
            model.add_costs(example, &mut scores);
            scores
        })
        .collect();
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(per_example));
    let mut example = 0;
    let mut scores = Vec::new();
    group.bench_function("scores", |bencher| {
        bencher.iter(|| {
            example = (example + 1) % n_examples;
            scores.resize(model.n_parts(example), 0.0);
            model.scores(example, black_box(&weights), &mut scores);
            model.add_costs(example, &mut scores)
        });
    });
    let (mut work, mut label) = (Work::default(), Vec::new());
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            example = (example + 1) % n_examples;
            model.decode(example, black_box(&all[example]), &mut work, &mut label);
        });
    });
    group.finish();
}

/// Words of 8 letters of 128 pixels, 22 % of them black, 26 labels.
fn chain(criterion: &mut Criterion) {
    let mut rng = Pcg64::seed_from_u64(0);
    let (n_words, len) = (1000, 8);
    let pixels = Array2::from_shape_simple_fn((n_words * len, 128), || {
        f64::from(u8::from(rng.random_range(0.0..1.0) < 0.22))
    });
    let labels: Vec<u32> = (0..n_words * len).map(|_| rng.random_range(0..26)).collect();
    let offsets: Vec<usize> = (0..=n_words).map(|word| word * len).collect();
    let data = Data::Dense64(Dense::new(pixels.view()).expect("contiguous"));
    let model = Chain::new(data, &offsets, Some(&labels), 26, false, Hamming::Count);
    measure(criterion, "chain", &model.expect("valid"), len as u64);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(30);
    targets = chain
}
criterion_main!(benches);
