//! Projections and envelopes: optimality, equality between sets, and independent reference results.

use super::super::common::*;
use dualgap::polytope::{Polytope, Scratch, moreau, walrus};
use proptest::prelude::*;

fn project(set: &dyn Polytope, v: &[f64], label: usize, bias: f64) -> Vec<f64> {
    let mut beta = vec![f64::NAN; v.len()];
    set.project(v, label, bias, &mut Scratch::default(), &mut beta);
    beta
}

/// Returns the negative gradient of ½‖b‖² + bias/2 (1ᵀb)² − vᵀb, with 0 at the label.
fn descent(v: &[f64], label: usize, bias: f64, beta: &[f64]) -> Vec<f64> {
    let sum: f64 = beta.iter().sum();
    (0..v.len()).map(|j| if j == label { 0.0 } else { v[j] - beta[j] - bias * sum }).collect()
}

/// Returns the largest violation of the constraints of a published loss's set: 0 for β in the set. For a
/// top-k set, the label's coordinate may have any value.
fn violation(kind: &str, beta: &[f64], label: usize, rho: &[f64]) -> f64 {
    let mut others: Vec<f64> = beta.to_vec();
    others.remove(label);
    let below = others.iter().fold(0.0, |worst: f64, b| worst.max(-b));
    let total: f64 = rho.iter().sum();
    let above = |own: f64| {
        let mut sorted = others.clone();
        sorted.push(own);
        sorted.sort_by(|a, b| b.total_cmp(a));
        let sum: f64 = sorted.iter().sum();
        let size = if kind.ends_with("top-k") { sum / total } else { 1.0 };
        let (mut left, mut right, mut worst) = (0.0, 0.0, sum - total);
        for (b, rho) in sorted.iter().zip(rho) {
            left += b;
            right += rho;
            worst = worst.max(left - size * right);
        }
        worst
    };
    match kind {
        "weston-watkins" => others.iter().fold(below, |worst, b| worst.max(b - 1.0)),
        // The violation is convex in the label's coordinate.
        "top-k" | "weighted-top-k" => {
            let (mut low, mut high) = (0.0, total);
            for _ in 0..120 {
                let third = (high - low) / 3.0;
                if above(low + third) <= above(high - third) { high -= third } else { low += third }
            }
            below.max(above(low))
        }
        _ => below.max(above(0.0)),
    }
}

/// Margins of any scale: on a grid, with ties and zeros, or without ties.
fn margins(classes: std::ops::Range<usize>) -> impl Strategy<Value = (Vec<f64>, usize)> {
    let grid = (-6i8..9).prop_map(|x| f64::from(x) / 4.0);
    let entry = prop_oneof![grid, -1.5..2.0];
    let scale = prop_oneof![4 => Just(0), 1 => -8i32..8].prop_map(|x| 10f64.powi(x));
    (prop::collection::vec(entry, classes), scale, any::<prop::sample::Index>(), any::<bool>())
        .prop_map(|(mut v, scale, label, equal)| {
            let label = label.index(v.len());
            let first = v[0];
            for v in &mut v {
                *v = scale * if equal { first } else { *v };
            }
            v[label] = 0.0;
            (v, label)
        })
}

fn bias() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), Just(0.3), Just(40.0)]
}

fn largest(v: &[f64]) -> f64 {
    v.iter().fold(0.0, |max: f64, v| max.max(v.abs()))
}

/// Checks that the projection is in the set up to rounding, and that no point of the set is better.
fn assert_optimal(
    set: &dyn Polytope,
    v: &[f64],
    label: usize,
    bias: f64,
    outside: impl Fn(&[f64]) -> f64,
    best: impl Fn(&[f64]) -> f64,
) {
    let beta = project(set, v, label, bias);
    let what = format!("{set:?} v {v:?} label {label} bias {bias} beta {beta:?}");
    // A coordinate is v − τ, accurate to the rounding of v.
    let scale = 1.0 + largest(v) + bias;
    let rounding = v.len() as f64 * f64::EPSILON * scale * (1.0 + set.radius(v.len()));
    assert_eq!(beta[label], 0.0, "{what}");
    let outside = outside(&beta);
    assert!(outside <= rounding, "outside by {outside:e}: {what}");
    // The linear gap bounds half the squared distance from the optimum.
    let descent = descent(v, label, bias, &beta);
    let gap = best(&descent) - dot(&descent, &beta);
    assert!(gap <= 4.0 * rounding * scale, "gap {gap:e}: {what}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn small_projections_are_optimal_over_all_vertices(
        (v, label) in margins(2..6),
        bias in bias(),
        k in 1usize..5,
        draws in prop::collection::vec(0u8..4, 5),
    ) {
        let m = v.len();
        let k = k.min(m - 1);
        let weights = falling_weights(m, &draws);
        for kind in PRINTED {
            let rho = rho(kind, m, k, &weights);
            let vertices = all_vertices(kind, &rho);
            let outside = |beta: &[f64]| violation(kind, beta, label, &rho);
            assert_optimal(build(kind, k, &weights).as_ref(), &v, label, bias, outside, |w| {
                vertices.iter().map(|b| dot(b, w)).fold(f64::NEG_INFINITY, f64::max)
            });
        }
    }

    #[test]
    fn large_projections_are_optimal_by_the_support_value(
        (v, label) in margins(20..90),
        bias in bias(),
        share in 0.0..1.0,
        draws in prop::collection::vec(0u8..9, 7),
        directions in prop::collection::vec(-2.0..2.0f64, 90),
    ) {
        let m = v.len();
        let k = 1 + (share * (m - 2) as f64) as usize;
        let weights = falling_weights(m, &draws);
        for kind in kinds() {
            let set = build(kind, k, &weights);
            let outside = |beta: &[f64]| match PRINTED.contains(&kind) {
                true => violation(kind, beta, label, &rho(kind, m, k, &weights)),
                false => excess(set.as_ref(), beta, label, &directions) / m as f64,
            };
            assert_optimal(set.as_ref(), &v, label, bias, outside, |w| {
                set.support(w, label, &mut Scratch::default())
            });
        }
    }

    #[test]
    fn equal_sets_have_equal_projections(
        (v, label) in margins(3..60),
        bias in bias(),
        share in 0.0..1.0,
    ) {
        let m = v.len();
        let k = 1 + (share * (m - 2) as f64) as usize;
        let uniform = rho("top-k", m, k, &[]);
        let first = rho("max-hinge", m, 1, &[]);
        let with = |kind: &str, k, weights: &[f64]| {
            project(build(kind, k, weights).as_ref(), &v, label, bias)
        };
        // Equal margins get equal values, because the problem is strictly convex and has only one
        // solution.
        let tolerance = 1e-12 * (1.0 + largest(&v));
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance);
        let hinge = with("max-hinge", 1, &[]);
        for kind in ["top-k", "usunier", "weighted-top-k", "weighted-usunier"] {
            prop_assert!(close(&hinge, &with(kind, 1, &first)), "{kind} at k = 1");
        }
        prop_assert!(close(&with("top-k", k, &[]), &with("weighted-top-k", 0, &uniform)), "top-{k}");
        let (plain, weighted) = (with("usunier", k, &[]), with("weighted-usunier", 0, &uniform));
        prop_assert!(close(&plain, &weighted), "usunier {k}");
    }

    #[test]
    fn guesses_and_earlier_projections_do_not_change_a_projection(
        (v, label) in margins(3..60),
        bias in bias(),
        guess in -5.0..5.0,
    ) {
        let m = v.len();
        let weights: Vec<f64> = (0..m).map(|j| (m - 1 - j) as f64 / m as f64).collect();
        for kind in kinds() {
            let set = build(kind, 1 + m / 3, &weights);
            let cold = project(set.as_ref(), &v, label, bias);
            let (mut scratch, mut warm) = (Scratch::default(), cold.clone());
            for guess in [Some(guess), None] {
                scratch.guess = guess.or(Some(scratch.multiplier));
                set.project(&v, label, bias, &mut scratch, &mut warm);
                for (a, b) in cold.iter().zip(&warm) {
                    prop_assert!((a - b).abs() <= 1e-12 * (1.0 + largest(&v)), "{kind}: {a} {b}");
                }
            }
            set.project(&v, label, bias, &mut scratch, &mut warm);
            prop_assert_eq!(&warm, &cold, "{}", kind);
        }
    }

    #[test]
    fn the_walrus_search_agrees_with_sorting(
        (v, _) in margins(1..200),
        c in prop_oneof![Just(1.0), Just(0.25), 1e-9..1.0, 1.0..1e9],
    ) {
        let by_sorting = walrus::multiplier_by_sorting(&v, c, 1.0, &mut Vec::new());
        let searched = walrus::multiplier(&v, c, 1.0, 0.0);
        prop_assert!((by_sorting - searched).abs() <= 1e-12 * by_sorting.abs(), "{by_sorting} {searched}");
        // KKT: the multiplier γ equals the sum of the entries of clamp(v − γ, 0, c), up to the
        // rounding error of v − γ.
        let sum: f64 = v.iter().map(|v| (v - searched).clamp(0.0, c)).sum();
        let rounding = v.len() as f64 * f64::EPSILON * (largest(&v) + searched);
        prop_assert!((sum - searched).abs() <= 1e-13 * sum + 2.0 * rounding, "{sum} {searched}");
    }

    #[test]
    fn the_envelope_is_attained_and_bounded(
        (v, label) in margins(2..40),
        gamma in prop_oneof![Just(0.01), Just(0.5), Just(5.0)],
        share in 0.0..1.0,
        draws in prop::collection::vec(0u8..9, 7),
    ) {
        let m = v.len();
        let k = 1 + (share * (m - 2) as f64) as usize;
        let weights = falling_weights(m, &draws);
        for kind in kinds() {
            let set = build(kind, k, &weights);
            let mut scratch = Scratch::default();
            let mut beta = vec![0.0; m];
            let value = moreau::envelope(set.as_ref(), &v, label, gamma, &mut scratch, &mut beta);
            // The primal side: the loss at s' = s − γ a plus ‖s − s'‖²/(2γ), with a = −α
            // (docs/mathematics/duality.md#smoothing).
            let sum: f64 = beta.iter().sum();
            let squares = dot(&beta, &beta) + sum * sum;
            let moved: Vec<f64> = (0..m)
                .map(|j| if j == label { 0.0 } else { v[j] - gamma * (beta[j] + sum) })
                .collect();
            let upper = set.support(&moved, label, &mut scratch) + 0.5 * gamma * squares;
            let scale = (1.0 + largest(&v)) * (1.0 + set.radius(m));
            let scaled = 1.0 + largest(&v) / gamma;
            let rounding = 2.0 * m as f64 * f64::EPSILON * scale * scaled;
            prop_assert!((upper - value).abs() <= rounding, "{kind}: {upper} {value}");
            let loss = set.support(&v, label, &mut scratch);
            prop_assert!(value <= loss + rounding);
            prop_assert!(value >= loss - gamma * set.radius(m).powi(2) - rounding);
        }
    }
}

#[test]
fn envelopes_equal_the_reference_values() {
    for record in fixture("margin_losses").as_array().unwrap() {
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
        let set = build(printed_name(record["loss"].as_str().unwrap()), k, &rho);
        let gamma = record["gamma_sm"].as_f64().unwrap();
        let mut beta = vec![0.0; m];
        let value =
            moreau::envelope(set.as_ref(), &v, label, gamma, &mut Scratch::default(), &mut beta);
        assert!((value - record["phi_moreau"].as_f64().unwrap()).abs() < 1e-13, "{record}");
        beta[label] = -beta.iter().sum::<f64>();
        for (b, u) in beta.iter().zip(numbers(&record["minus_grad_phi_moreau"])) {
            assert!((b + u).abs() < 1e-13, "{record}: {beta:?}");
        }
    }
}

#[test]
fn the_walrus_multiplier_equals_the_reference_values() {
    for record in fixture("walrus_subproblem").as_array().unwrap() {
        let (v, c) = (numbers(&record["v"]), record["C"].as_f64().unwrap());
        let gamma = record["gamma"].as_f64().unwrap();
        assert!((walrus::multiplier(&v, c, 1.0, 0.0) - gamma).abs() < 1e-14, "{record}");
        let by_sorting = walrus::multiplier_by_sorting(&v, c, 1.0, &mut Vec::new());
        assert!((by_sorting - gamma).abs() < 1e-14, "{record}");
        // The cube scaled by C, with the label in the middle.
        let label = v.len() / 2;
        let mut scaled: Vec<f64> = v.iter().map(|v| v / c).collect();
        scaled.insert(label, 0.0);
        let mut beta = project(build("weston-watkins", 0, &[]).as_ref(), &scaled, label, 1.0);
        beta.remove(label);
        for (b, expected) in beta.iter().zip(numbers(&record["b"])) {
            assert!((c * b - expected).abs() < 1e-14, "{record}");
        }
    }
}

#[test]
fn the_crammer_singer_step_equals_the_reference_values() {
    // The recorded problem is min A/2 ‖b‖² + Bᵀb over b <= C e_y, 1ᵀb = 0, where b is 1ᵀβ at the
    // label and −β elsewhere (docs/mathematics/block-descent.md#crammer-singer-step).
    for record in fixture("crammer_singer_block").as_array().unwrap() {
        let (a, linear) = (record["A"].as_f64().unwrap(), numbers(&record["B"]));
        let upper = numbers(&record["upper"]);
        let label = upper.iter().position(|c| *c > 0.0).unwrap();
        let c = upper[label];
        let v: Vec<f64> = linear.iter().map(|b| (b - linear[label]) / (a * c)).collect();
        let beta = project(build("max-hinge", 0, &[]).as_ref(), &v, label, 1.0);
        let sum: f64 = beta.iter().sum();
        for (j, expected) in numbers(&record["beta"]).iter().enumerate() {
            let b = if j == label { c * sum } else { -c * beta[j] };
            assert!((b - expected).abs() < 1e-14, "{record}");
        }
    }
}
