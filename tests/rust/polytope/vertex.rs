//! Support values and vertices against enumeration, the printed losses and independent numbers.

use crate::common::*;
use dualgap::polytope::{Polytope, Scratch};
use proptest::prelude::*;

fn vertex(set: &dyn Polytope, v: &[f64], label: usize) -> (f64, Vec<f64>) {
    let mut pairs = vec![(7, 7.0)];
    let value = set.vertex(v, label, &mut Scratch::default(), &mut pairs);
    let mut beta = vec![0.0; v.len()];
    for (class, weight) in pairs {
        let class = class as usize;
        assert!(class != label && weight != 0.0 && beta[class] == 0.0);
        beta[class] = weight;
    }
    (value, beta)
}

/// Margins on a coarse grid, so that ties and zeros are common.
fn margins(classes: std::ops::Range<usize>) -> impl Strategy<Value = (Vec<f64>, usize)> {
    prop::collection::vec((-6i8..7).prop_map(|x| f64::from(x) / 4.0), classes)
        .prop_flat_map(|v| {
            let m = v.len();
            (Just(v), 0..m)
        })
        .prop_map(|(mut v, label)| {
            v[label] = 0.0;
            (v, label)
        })
}

fn sorted_weights(m: usize, draws: &[u8]) -> Vec<f64> {
    let mut weights: Vec<f64> = draws[..m].iter().map(|x| f64::from(*x) / 3.0).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    weights[m - 1] = 0.0;
    weights[0] = weights[0].max(1.0 / 3.0);
    weights
}

proptest! {
    #[test]
    fn support_and_vertex_agree_with_enumeration(
        (v, label) in margins(2..6),
        k in 1usize..5,
        draws in prop::collection::vec(0u8..4, 5),
    ) {
        let m = v.len();
        let k = k.min(m - 1);
        let weights = sorted_weights(m, &draws);
        for kind in KINDS {
            let set = build(kind, k, &weights);
            let rho = rho(kind, m, k, &weights);
            set.check(m).unwrap();
            let vertices = all_vertices(kind, &rho);
            let best = vertices.iter().map(|b| dot(b, &v)).fold(f64::NEG_INFINITY, f64::max);
            let support = set.support(&v, label, &mut Scratch::default());
            prop_assert!((support - best).abs() < 1e-14, "{kind}: {support} against {best}");
            prop_assert!((support - printed_loss(kind, &v, &rho)).abs() < 1e-14);
            let (value, beta) = vertex(set.as_ref(), &v, label);
            prop_assert_eq!(value, support);
            prop_assert!((dot(&beta, &v) - best).abs() < 1e-14);
            // Weights in thirds round, so that a best value of zero may come out as 1e-17.
            prop_assert!(best < 1e-14 || beta.iter().any(|b| *b > 0.0));
            if value == 0.0 && kind != "ww" {
                prop_assert!(beta.iter().all(|b| *b == 0.0), "{kind}: a zero loss gives 0");
            }
            // It is a vertex of the set once the label's coordinate is left out.
            let found = vertices.iter().any(|b| {
                (0..m).all(|j| j == label || (b[j] - beta[j]).abs() < 1e-15)
            });
            prop_assert!(found, "{kind}: {beta:?} is no vertex");
            let ones: Vec<f64> = (0..m).map(|j| f64::from(j != label)).collect();
            prop_assert!((set.radius(m) - printed_loss(kind, &ones, &rho)).abs() < 1e-14);
        }
    }

    #[test]
    fn ties_go_to_the_smaller_class((v, label) in margins(2..40), k in 1usize..40) {
        let m = v.len();
        let k = k.min(m - 1);
        let weights: Vec<f64> = (0..m).map(|j| (m - 1 - j) as f64).collect();
        let mut order: Vec<usize> = (0..m).collect();
        order.sort_by(|&i, &j| v[j].total_cmp(&v[i]));
        for kind in KINDS {
            let rho = rho(kind, m, k, &weights);
            let (value, beta) = vertex(build(kind, k, &weights).as_ref(), &v, label);
            let cone = matches!(kind, "utk" | "wtk");
            for (class, rho) in order.iter().zip(&rho) {
                let counts = if cone { value > 0.0 } else { v[*class] > 0.0 };
                let expected = if counts && *class != label { *rho } else { 0.0 };
                prop_assert_eq!(beta[*class], expected, "{} at {:?}", kind, v);
            }
        }
    }
}

#[test]
fn losses_equal_the_reference_values() {
    let records = fixture("margin_losses");
    let records = records.as_array().unwrap();
    assert_eq!(records.len(), 36);
    for record in records {
        let kind = record["loss"].as_str().unwrap();
        let label = record["y"].as_u64().unwrap() as usize;
        let scores = numbers(&record["s"]);
        let m = scores.len();
        let costs = match record["cost"].is_null() {
            true => (0..m).map(|j| f64::from(j != label)).collect(),
            false => numbers(&record["cost"]),
        };
        let v: Vec<f64> = (0..m).map(|j| costs[j] + scores[j] - scores[label]).collect();
        let rho = numbers(&record["rho"]);
        let k = rho.iter().filter(|weight| **weight > 0.0).count();
        let set = build(kind, k, &rho);
        let expected = record["phi"].as_f64().unwrap();
        let (value, beta) = vertex(set.as_ref(), &v, label);
        assert!((value - expected).abs() < 1e-14, "{record}");
        // u_any_subgrad depends on how ties are broken: only its inner product with s is unique.
        let u: Vec<f64> =
            (0..m).map(|j| if j == label { beta.iter().sum() } else { -beta[j] }).collect();
        let costs_at_u = |u: &[f64]| -dot(u, &costs) - dot(u, &scores);
        assert!((costs_at_u(&u) - costs_at_u(&numbers(&record["u_any_subgrad"]))).abs() < 1e-14);
    }
}
