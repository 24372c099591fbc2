//! The curvature of projections, compared with finite differences.

use super::super::common::*;
use dualgap::dual::Curvatures;
use dualgap::polytope::{Polytope, Scratch};
use proptest::prelude::*;

/// Returns u = −α, where α is the projection of the scores' margins with costs of 0 and a bias of 1.
fn maximiser(set: &dyn Polytope, scores: &[f64], label: usize) -> Vec<f64> {
    let margins: Vec<f64> = scores.iter().map(|score| score - scores[label]).collect();
    let mut point = vec![0.0; scores.len()];
    set.project(&margins, label, 1.0, &mut Scratch::default(), &mut point);
    point[label] = -point.iter().sum::<f64>();
    point
}

/// Returns the product of the curvature at the maximiser and a vector.
fn curvature_times(set: &dyn Polytope, scores: &[f64], label: usize, vector: &[f64]) -> Vec<f64> {
    let mut beta = maximiser(set, scores, label);
    beta[label] = 0.0;
    let mut curvatures = Curvatures::default();
    set.curvature(&beta, label, &mut Scratch::default(), &mut curvatures);
    curvatures.end_block();
    let mut vector = vector.to_vec();
    curvatures.apply(0, &mut vector, &mut vec![0.0; scores.len()]);
    vector
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

proptest! {
    #[test]
    fn curvature_is_the_derivative_of_the_projection(
        scores in prop::collection::vec(-1.0..1.0f64, 6),
        direction in prop::collection::vec(-1.0..1.0f64, 6),
        label in 0..6usize,
        size in prop_oneof![Just(0.3), Just(1.0), Just(3.0)],
        k in 2..5usize,
    ) {
        let scores: Vec<f64> = scores.iter().map(|score| score * size).collect();
        for kind in kinds() {
            let set = build(kind, k, &[0.5, 0.25, 0.15, 0.1, 0.0, 0.0]);
            let moved = |step: f64| {
                let scores = scores.iter().zip(&direction).map(|(s, d)| s + step * d);
                maximiser(&*set, &scores.collect::<Vec<_>>(), label)
            };
            let (before, after) = (moved(-1e-6), moved(1e-6));
            let at = moved(0.0);
            let slopes = |from: &[f64], to: &[f64]| -> Vec<f64> {
                from.iter().zip(to).map(|(from, to)| (to - from) / 1e-6).collect()
            };
            let (left, right) = (slopes(&before, &at), slopes(&at, &after));
            // On the border between two pieces, there are two derivatives.
            if left.iter().zip(&right).any(|(left, right)| (left - right).abs() > 1e-6) {
                continue;
            }
            let product = curvature_times(&*set, &scores, label, &direction);
            if PRINTED.contains(&kind) {
                for (product, right) in product.iter().zip(&right) {
                    prop_assert!((product - right).abs() < 1e-6, "{kind} {k}: {product:?} {right:?}");
                }
            } else {
                // The default curvature is at least as large.
                let (ours, least) = (dot(&product, &direction), dot(&right, &direction));
                prop_assert!(ours >= least - 1e-6, "{kind}: {ours} {least}");
            }
        }
    }
}
