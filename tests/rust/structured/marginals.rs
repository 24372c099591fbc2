//! Projections onto convex hulls of labels are feasible, optimal, and as accurate as certified.

use super::super::common::structured::*;
use dualgap::data::{Data, Dense};
use dualgap::structured::{
    Chain, Graph, Hamming, Marginals, Matching, Model, Multiclass, Multilabel, Work,
};
use ndarray::Array2;
use proptest::prelude::*;

fn no_features(n_rows: usize) -> Array2<f64> {
    Array2::zeros((n_rows, 0))
}

fn dense(x: &Array2<f64>) -> Data<'_> {
    Data::Dense64(Dense::new(x.view()).unwrap())
}

/// Scratch memory with values from an earlier use.
fn used_scratch() -> Work {
    Work { values: vec![f64::NAN; 1000], indices: vec![3; 2], ..Work::default() }
}

fn entropic(model: &dyn Marginals, potentials: &[f64], tolerance: f64) -> (Vec<f64>, f64) {
    let mut marginals = vec![f64::NAN; potentials.len()];
    let gap =
        model.entropic(0, potentials, tolerance, &mut used_scratch(), &mut marginals).unwrap();
    (marginals, gap)
}

fn euclidean(model: &dyn Marginals, point: &[f64], tolerance: f64) -> (Vec<f64>, f64) {
    let mut projection = vec![f64::NAN; point.len()];
    let gap = model.euclidean(0, point, tolerance, &mut used_scratch(), &mut projection).unwrap();
    (projection, gap)
}

/// Potentials of a given scale, with ties, and some far from the others.
fn potentials(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    let entry = prop_oneof![(-4i8..5).prop_map(|x| f64::from(x) / 4.0), -1.0..1.0];
    let scale = prop_oneof![4 => Just(1.0), 2 => Just(10.0), 1 => Just(300.0), 1 => Just(1e4)];
    (prop::collection::vec(entry, n), scale)
        .prop_map(|(x, scale)| x.into_iter().map(|x| scale * x).collect())
}

fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()))
}

fn multiclass(n_classes: usize) -> Multiclass {
    Multiclass::new(dense(&no_features(1)), None, n_classes, None).unwrap()
}

fn matching(n_rows: usize, n_columns: usize) -> Matching {
    let x = no_features(n_rows * n_columns);
    let size = [n_rows as u32, n_columns as u32];
    Matching::new(dense(&x), &[size], None, 1.0, 1.0).unwrap()
}

fn row_sums(z: &[f64], n_columns: usize) -> Vec<f64> {
    z.chunks_exact(n_columns).map(|row| row.iter().sum()).collect()
}

fn column_sums(z: &[f64], n_columns: usize) -> Vec<f64> {
    (0..n_columns).map(|column| z[column..].iter().step_by(n_columns).sum()).collect()
}

fn assert_subpermutation(z: &[f64], n_columns: usize) {
    assert!(z.iter().all(|z| *z >= 0.0), "{z:?}");
    for sum in row_sums(z, n_columns).into_iter().chain(column_sums(z, n_columns)) {
        assert!(sum <= 1.0 + 1e-12, "{sum}: {z:?}");
    }
}

/// Returns x − x ln x, the entropy term of one entry.
fn entropy(x: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { x - x * x.ln() }
}

/// Returns ⟨potentials, z⟩ plus the entropy of z.
fn smooth_value(potentials: &[f64], z: &[f64]) -> f64 {
    dot(potentials, z) + z.iter().map(|z| entropy(*z)).sum::<f64>()
}

/// Returns a point inside the hull: random values, scaled down until they fit.
fn inner_point(grid: &mut Grid, n: usize, n_columns: usize) -> Vec<f64> {
    let z: Vec<f64> = (0..n).map(|_| grid.real().max(0.0).powi(3)).collect();
    let sums = row_sums(&z, n_columns).into_iter().chain(column_sums(&z, n_columns));
    let largest = sums.fold(1.0, f64::max);
    z.into_iter().map(|z| z / largest).collect()
}

/// Returns the mean of μ(y) under p(y) ∝ exp ⟨potentials, μ(y)⟩, by enumeration.
fn expectation(model: &dyn Marginals, labels: &[Vec<u32>], potentials: &[f64]) -> Vec<f64> {
    let value = |label: &Vec<u32>| sparse_dot(&parts(model, 0, label), potentials);
    let values: Vec<f64> = labels.iter().map(value).collect();
    let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = values.iter().map(|value| (value - best).exp()).sum();
    let mut expected = vec![0.0; potentials.len()];
    for (label, value) in labels.iter().zip(&values) {
        let probability = (value - best).exp() / total;
        for (part, count) in parts(model, 0, label) {
            expected[part as usize] += probability * count;
        }
    }
    expected
}

/// If potentials differ by hundreds, a projection stalls before it reaches the requested accuracy.
#[test]
fn a_stalled_projection_returns_the_gap_of_its_result() {
    let mut potentials = [0.0; 15];
    potentials[7] = 92.63755540878374;
    potentials[9] = 75.0;
    potentials[12..].copy_from_slice(&[-225.0, 121.34555296876441, -75.0]);
    let model = matching(5, 3);
    let (z, gap) = entropic(&model, &potentials, 1e-12);
    let (rough, _) = entropic(&model, &potentials, 0.05);
    let excess = smooth_value(&potentials, &rough) - smooth_value(&potentials, &z);
    assert!(excess <= gap + 1e-9, "{excess:e} {gap:e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn simplex_projections_are_optimal(point in potentials(1..40)) {
        let (z, gap) = euclidean(&multiclass(point.len()), &point, 1e-12);
        prop_assert!(z.iter().all(|z| *z >= 0.0));
        prop_assert!((z.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        // Frank-Wolfe's gap bounds the distance.
        let pull: Vec<f64> = point.iter().zip(&z).map(|(p, z)| p - z).collect();
        let best = pull.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        prop_assert!(best - dot(&pull, &z) <= 1e-12 * (1.0 + largest(&point)));
        prop_assert!(gap <= 1e-12);
    }

    #[test]
    fn the_softmax_is_proportional_to_exponentials(potentials in potentials(1..40)) {
        let (z, gap) = entropic(&multiclass(potentials.len()), &potentials, 1e-12);
        prop_assert!((z.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        prop_assert_eq!(gap, 0.0);
        for (z, p) in z.iter().zip(&potentials) {
            let expected: f64 = potentials.iter().map(|other| (other - p).exp()).sum();
            prop_assert!((z - 1.0 / expected).abs() < 1e-12);
        }
    }

    #[test]
    fn chain_marginals_are_expectations(
        n_states in 1usize..5,
        len in 0usize..5,
        draws in potentials(40..41),
    ) {
        let offsets = [0, len];
        let x = no_features(len);
        let model = Chain::new(dense(&x), &offsets, None, n_states, false, Hamming::Count).unwrap();
        let potentials = &draws[..(len + n_states) * n_states];
        let (marginals, gap) = entropic(&model, potentials, 0.0);
        prop_assert_eq!(gap, 0.0);
        let expected = expectation(&model, &all_tuples(len, n_states), potentials);
        for (marginal, expected) in marginals.iter().zip(&expected) {
            prop_assert!((marginal - expected).abs() < 1e-13 * (10.0 + largest(potentials)));
        }
    }

    #[test]
    fn marginals_of_label_sets_are_expectations(
        n_labels in 1usize..6,
        edges in prop::collection::vec((0u32..6, 0u32..6), 0..8),
        draws in potentials(40..41),
    ) {
        let mut pairs: Vec<[u32; 2]> = Vec::new();
        for (a, b) in edges {
            let known = pairs.iter().any(|pair| *pair == [a, b] || *pair == [b, a]);
            if a != b && a.max(b) < n_labels as u32 && !known {
                pairs.push([a, b]);
            }
        }
        let (x, graph) = (no_features(1), Graph::new(n_labels, &pairs).unwrap());
        let model = Multilabel::new(dense(&x), None, n_labels, graph, Hamming::Count).unwrap();
        let potentials = &draws[..n_labels + 4 * pairs.len()];
        let (marginals, gap) = entropic(&model, potentials, 0.0);
        prop_assert_eq!(gap, 0.0);
        let expected = expectation(&model, &all_tuples(n_labels, 2), potentials);
        for (marginal, expected) in marginals.iter().zip(&expected) {
            prop_assert!(*marginal >= 0.0);
            prop_assert!((marginal - expected).abs() < 1e-13 * (10.0 + largest(potentials)));
        }
    }

    #[test]
    fn projections_onto_matchings_are_optimal(
        n_rows in 1usize..6,
        n_columns in 1usize..6,
        draws in potentials(25..26),
        seed in any::<u64>(),
    ) {
        let point = &draws[..n_rows * n_columns];
        let model = matching(n_rows, n_columns);
        let (z, gap) = euclidean(&model, point, 1e-13);
        assert_subpermutation(&z, n_columns);
        let scale = 1.0 + largest(point);
        // A price is accurate to rounding, and its rounding error counts, too.
        prop_assert!(gap <= 1e-13 + 1e-15 * scale * scale, "gap {gap:e} for {point:?}");
        // Computes Frank-Wolfe's gap with the decoder.
        let pull: Vec<f64> = point.iter().zip(&z).map(|(p, z)| p - z).collect();
        let mut label = Vec::new();
        model.decode(0, &pull, &mut Work::default(), &mut label);
        let best = sparse_dot(&parts(&model, 0, &label), &pull);
        prop_assert!(best - dot(&pull, &z) <= 3e-6 * scale, "{}", best - dot(&pull, &z));
        // The certificate also holds at low accuracy.
        let (rough, gap) = euclidean(&model, point, 0.05);
        assert_subpermutation(&rough, n_columns);
        prop_assert!(gap <= 0.05);
        prop_assert!(0.5 * squared_distance(&rough, &z) <= gap + 1e-12 * scale);
        let inner = inner_point(&mut Grid::new(seed), point.len(), n_columns);
        let own = 0.5 * squared_distance(&rough, point);
        prop_assert!(own <= 0.5 * squared_distance(&inner, point) + gap + 1e-9 * scale);
    }

    #[test]
    fn entropic_projections_onto_matchings_are_optimal(
        n_rows in 1usize..6,
        n_columns in 1usize..6,
        draws in potentials(25..26),
        seed in any::<u64>(),
    ) {
        let potentials = &draws[..n_rows * n_columns];
        let scale = 1.0 + largest(potentials);
        let model = matching(n_rows, n_columns);
        let (z, gap) = entropic(&model, potentials, 1e-12);
        let (rough, rough_gap) = entropic(&model, potentials, 0.05);
        assert_subpermutation(&z, n_columns);
        assert_subpermutation(&rough, n_columns);
        prop_assert!(rough_gap <= 0.05 || scale > 100.0, "{rough_gap}");
        prop_assert!(gap <= 1e-10 || scale > 12.0, "{gap:e}");
        // No feasible point is better by more than the gaps.
        let rounding = 1e-12 * scale;
        let inner = inner_point(&mut Grid::new(seed), z.len(), n_columns);
        let mut label = Vec::new();
        model.decode(0, potentials, &mut Work::default(), &mut label);
        let mut vertex = vec![0.0; z.len()];
        parts(&model, 0, &label).iter().for_each(|(part, _)| vertex[*part as usize] = 1.0);
        let value = |z: &[f64]| smooth_value(potentials, z);
        for other in [&z, &rough, &inner, &vertex] {
            prop_assert!(value(other) <= value(&z) + gap + rounding, "{gap:e}");
            prop_assert!(value(other) <= value(&rough) + rough_gap + rounding, "{rough_gap:e}");
        }
        if scale < 12.0 {
            // Complementary slackness: every row and column has the sum 1 or a price of 0.
            let prices: Vec<f64> = z.iter().zip(potentials).map(|(z, p)| p - z.ln()).collect();
            let open = |sums: Vec<f64>| -> Vec<bool> { sums.iter().map(|sum| *sum < 0.99).collect() };
            let (rows, columns) = (open(row_sums(&z, n_columns)), open(column_sums(&z, n_columns)));
            let at = |row: usize, column: usize| prices[row * n_columns + column];
            for (row, column) in (0..n_rows).flat_map(|a| (0..n_columns).map(move |b| (a, b))) {
                prop_assert!(at(row, column) >= -1e-4);
                prop_assert!(!(rows[row] && columns[column]) || at(row, column) < 1e-4);
                // Each price is the sum of the prices of its row and its column.
                let other = at(0, 0) + at(row, column) - at(row, 0) - at(0, column);
                prop_assert!(other.abs() < 1e-9);
            }
        }
    }
}

#[test]
fn models_without_euclidean_projections_are_rejected() {
    let x = no_features(2);
    let chain = Chain::new(dense(&x), &[0, 2], None, 2, false, Hamming::Count).unwrap();
    let graph = Graph::full(3);
    let multilabel = Multilabel::new(dense(&x), None, 3, graph, Hamming::Count).unwrap();
    let mut work = Work::default();
    let mut out = vec![0.0; 8];
    let point = [0.0; 8];
    for error in [
        chain.euclidean(0, &point, 1e-6, &mut work, &mut out).unwrap_err(),
        multilabel.euclidean(0, &point, 1e-6, &mut work, &mut out).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("projection: "), "{error}");
    }
}

#[test]
fn empty_matchings_have_empty_projections() {
    for (n_rows, n_columns) in [(0, 3), (3, 0), (0, 0)] {
        let model = matching(n_rows, n_columns);
        assert_eq!(euclidean(&model, &[], 0.0), (vec![], 0.0));
        assert_eq!(entropic(&model, &[], 0.0), (vec![], 0.0));
    }
}
