//! Structured models against brute force over all labels and explicit joint features.

#[path = "common/structured.rs"]
mod common;

use common::*;
use dualgap::data::{Data, Dense};
use dualgap::structured::{Chain, Hamming, Model};
use ndarray::Array2;
use proptest::prelude::*;

fn hamming(loss: Hamming, truth: &[u32], label: &[u32]) -> f64 {
    let wrong = truth.iter().zip(label).filter(|(a, b)| a != b).count() as f64;
    match loss {
        Hamming::Count => wrong,
        Hamming::Mean if truth.is_empty() => 0.0,
        Hamming::Mean => wrong / truth.len() as f64,
    }
}

fn hammings() -> impl Strategy<Value = Hamming> {
    prop_oneof![Just(Hamming::Count), Just(Hamming::Mean)]
}

fn dense(x: &Array2<f64>) -> Data<'_> {
    Data::Dense64(Dense::new(x.view()).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn chains_are_what_they_say(
        seed in any::<u64>(),
        n_states in prop_oneof![1usize..5, Just(9), Just(26), Just(35)],
        n_features in 0usize..5,
        share in prop_oneof![Just(0.0), Just(0.7)],
        boundaries in any::<bool>(),
        loss in hammings(),
    ) {
        let mut grid = Grid::new(seed);
        let longest = if n_states > 4 { 2 } else { 4 };
        let lens: Vec<usize> = (0..4).map(|_| grid.below(longest + 1)).collect();
        let mut offsets = vec![0];
        lens.iter().for_each(|len| offsets.push(offsets[offsets.len() - 1] + len));
        let n_rows = offsets[4];
        let x = Array2::from_shape_simple_fn((n_rows, n_features), || grid.sparse(share));
        let labels = grid.labels(n_rows, n_states);
        let model =
            Chain::new(dense(&x), &offsets, Some(&labels), n_states, boundaries, loss).unwrap();
        let n_pairs = n_states * n_states;
        for (example, &len) in lens.iter().enumerate() {
            prop_assert_eq!(model.n_parts(example), len * n_states + n_pairs);
            let first = offsets[example];
            let phi = |label: &[u32]| {
                let mut phi = vec![0.0; model.n_weights()];
                let (nodes, others) = phi.split_at_mut(n_features * n_states);
                for (t, &state) in label.iter().enumerate() {
                    for feature in 0..n_features {
                        nodes[feature * n_states + state as usize] += x[(first + t, feature)];
                    }
                }
                for pair in label.windows(2) {
                    others[pair[0] as usize * n_states + pair[1] as usize] += 1.0;
                }
                if let (true, [start, ..], [.., end]) = (boundaries, label, label) {
                    others[n_pairs + *start as usize] += 1.0;
                    others[n_pairs + n_states + *end as usize] += 1.0;
                }
                phi
            };
            let truth = &labels[first..first + len];
            prop_assert_eq!(model.truth(example), truth);
            let all = all_tuples(len, n_states);
            check(&model, example, &mut grid, &all, phi, |label| hamming(loss, truth, label));
        }
    }
}
