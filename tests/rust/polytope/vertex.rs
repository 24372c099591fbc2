//! Support values and vertices: properties of every loss, and comparisons with enumerations,
//! published formulas and independent results.

use super::super::common::*;
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

proptest! {
    #[test]
    fn the_loss_is_a_support_function_of_points_without_negative_weights(
        (u, label) in margins(2..40),
        draws in prop::collection::vec((-6i8..7).prop_map(|x| f64::from(x) / 4.0), 40),
        k in 1usize..40,
        scale in 0.0..9.0f64,
    ) {
        let m = u.len();
        let mut v = draws[..m].to_vec();
        v[label] = 0.0;
        let with = |combine: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
            u.iter().zip(&v).map(|(u, v)| combine(*u, *v)).collect()
        };
        for kind in kinds() {
            let set = build(kind, k.min(m - 1), &falling_weights(m, &[4, 3, 1]));
            set.check(m).unwrap();
            let support = |v: &[f64]| set.support(v, label, &mut Scratch::default());
            let rounding = 1e-13 * m as f64 * set.radius(m);
            let (at_u, at_v) = (support(&u), support(&v));
            prop_assert_eq!(support(&vec![0.0; m]), 0.0, "{} at 0", kind);
            prop_assert!(at_u >= 0.0, "{kind}: {at_u}");
            prop_assert!(support(&with(&|u, v| u + v)) <= at_u + at_v + rounding, "{kind}: convex");
            let scaled = support(&with(&|u, _| scale * u));
            prop_assert!((scaled - scale * at_u).abs() <= 9.0 * rounding, "{kind}: homogeneous");
            prop_assert!(support(&with(&f64::max)) >= at_u.max(at_v) - rounding, "{kind}: monotone");
            let ones: Vec<f64> = (0..m).map(|j| f64::from(j != label)).collect();
            prop_assert!((support(&ones) - set.radius(m)).abs() <= rounding, "{kind}: radius");
        }
    }

    #[test]
    fn a_vertex_attains_the_loss_and_lies_in_the_set(
        (v, label) in margins(2..40),
        k in 1usize..40,
        draws in prop::collection::vec(-2.0..2.0f64, 40),
    ) {
        let m = v.len();
        for kind in kinds() {
            let set = build(kind, k.min(m - 1), &falling_weights(m, &[4, 3, 1]));
            let (value, beta) = vertex(set.as_ref(), &v, label);
            let rounding = 1e-13 * m as f64 * set.radius(m);
            prop_assert_eq!(value, set.support(&v, label, &mut Scratch::default()));
            prop_assert!((dot(&beta, &v) - value).abs() <= rounding, "{kind}: {beta:?} at {v:?}");
            prop_assert!(value > 0.0 || beta.iter().all(|b| *b == 0.0), "{kind}: no loss, no weight");
            let outside = excess(set.as_ref(), &beta, label, &draws);
            prop_assert!(outside <= rounding, "{kind}: {beta:?} is outside by {outside:e}");
        }
    }

    #[test]
    fn support_and_vertex_agree_with_enumeration(
        (v, label) in margins(2..6),
        k in 1usize..5,
        draws in prop::collection::vec(0u8..4, 5),
    ) {
        let m = v.len();
        let k = k.min(m - 1);
        let weights = falling_weights(m, &draws);
        for kind in PRINTED {
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
            // Weights in thirds are rounded, so a best value of zero may be computed as 1e-17.
            prop_assert!(best < 1e-14 || beta.iter().any(|b| *b > 0.0));
            if value == 0.0 && kind != "weston-watkins" {
                prop_assert!(beta.iter().all(|b| *b == 0.0), "{kind}: a zero loss gives 0");
            }
            // Without the label's coordinate, the point is a vertex of the set.
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
        for kind in PRINTED {
            let rho = rho(kind, m, k, &weights);
            let (value, beta) = vertex(build(kind, k, &weights).as_ref(), &v, label);
            let cone = kind.ends_with("top-k");
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
        let kind = printed_name(record["loss"].as_str().unwrap());
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
        // `u_any_subgrad` depends on how ties are broken. Only its inner product with s is unique.
        let u: Vec<f64> =
            (0..m).map(|j| if j == label { beta.iter().sum() } else { -beta[j] }).collect();
        let costs_at_u = |u: &[f64]| -dot(u, &costs) - dot(u, &scores);
        assert!((costs_at_u(&u) - costs_at_u(&numbers(&record["u_any_subgrad"]))).abs() < 1e-14);
    }
}
