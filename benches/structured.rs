//! Cost per example in the structured models: scores, decoding and projections.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dualgap::data::{Data, Dense};
use dualgap::internal::{Chain, Graph, Hamming, Marginals, Matching, Model, Multilabel, Work};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Benchmarks `scores` and `decode`. Each call takes the next example.
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
    let model =
        Chain::new(data, &offsets, Some(&labels), 26, false, Hamming::Count).expect("valid");
    measure(criterion, "chain", &model, len as u64);
    let (mut work, mut marginals) = (Work::default(), vec![0.0; model.n_parts(0)]);
    let potentials: Vec<f64> = marginals.iter().map(|_| rng.random_range(-3.0..3.0)).collect();
    criterion.bench_function("chain/entropic", |bencher| {
        bencher.iter(|| model.entropic(0, black_box(&potentials), 0.0, &mut work, &mut marginals));
    });
}

/// The full graph over 6 labels, and rows of 294 features.
fn multilabel(criterion: &mut Criterion) {
    let mut rng = Pcg64::seed_from_u64(0);
    let x = Array2::from_shape_simple_fn((500, 294), || rng.random_range(-1.0..1.0));
    let labels: Vec<u8> = (0..500 * 6).map(|_| rng.random_range(0..2)).collect();
    let data = Data::Dense64(Dense::new(x.view()).expect("contiguous"));
    let model = Multilabel::new(data, Some(&labels), 6, Graph::full(6), Hamming::Count);
    measure(criterion, "multilabel", &model.expect("valid"), 1);
}

/// Sentences of 20 words against 20 words, 30 features of each pair.
fn matching(criterion: &mut Criterion) {
    let mut rng = Pcg64::seed_from_u64(0);
    let x = Array2::from_shape_simple_fn((50 * 400, 30), || rng.random_range(-1.0..1.0));
    let data = Data::Dense64(Dense::new(x.view()).expect("contiguous"));
    let model = Matching::new(data, &[[20, 20]; 50], None, 1.0, 1.0).expect("valid");
    measure(criterion, "matching", &model, 1);
    let (mut work, mut z) = (Work::default(), vec![0.0; 400]);
    let point: Vec<f64> = (0..400).map(|_| rng.random_range(-3.0..3.0)).collect();
    criterion.bench_function("matching/euclidean", |bencher| {
        bencher.iter(|| model.euclidean(0, black_box(&point), 1e-6, &mut work, &mut z));
    });
    criterion.bench_function("matching/entropic", |bencher| {
        bencher.iter(|| model.entropic(0, black_box(&point), 1e-6, &mut work, &mut z));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(30);
    targets = chain, multilabel, matching
}
criterion_main!(benches);
