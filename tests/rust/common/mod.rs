//! Slow references that the tests of several files share.
#![allow(dead_code)]

pub mod margin;
pub mod structured;

use dualgap::polytope::{self, Parameters, Polytope};
use serde_json::Value;

/// The kinds of sets, by the short names of the fixtures.
pub const KINDS: [&str; 6] = ["mh", "utk", "uu", "wtk", "wu", "ww"];

/// A set of each kind for `m` classes; `k` and `weights` serve those that need them.
pub fn build(kind: &str, k: usize, weights: &[f64]) -> Box<dyn Polytope> {
    let (k, weights) = (Some(k), Some(weights.to_vec()));
    let nothing = Parameters::default();
    let (name, parameters) = match kind {
        "mh" | "sh" => ("max-hinge", nothing),
        "utk" => ("top-k", Parameters { k, ..nothing }),
        "uu" => ("usunier", Parameters { k, ..nothing }),
        "wtk" => ("weighted-top-k", Parameters { weights, ..nothing }),
        "wu" => ("weighted-usunier", Parameters { weights, ..nothing }),
        "ww" => ("weston-watkins", nothing),
        _ => panic!("no set {kind}"),
    };
    polytope::parse(name, parameters).unwrap()
}

/// ρ of the kind (SPEC 10.1).
pub fn rho(kind: &str, m: usize, k: usize, weights: &[f64]) -> Vec<f64> {
    match kind {
        "mh" | "sh" => (0..m).map(|j| f64::from(j == 0)).collect(),
        "utk" | "uu" => (0..m).map(|j| if j < k { 1.0 / k as f64 } else { 0.0 }).collect(),
        "wtk" | "wu" => weights.to_vec(),
        _ => vec![1.0; m],
    }
}

/// The loss as the paper prints it, from all sorted margins.
pub fn printed_loss(kind: &str, v: &[f64], rho: &[f64]) -> f64 {
    let mut sorted = v.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let dot =
        |map: fn(f64) -> f64| -> f64 { sorted.iter().zip(rho).map(|(v, r)| map(*v) * r).sum() };
    match kind {
        "utk" | "wtk" => dot(|v| v).max(0.0),
        _ => dot(|v| v.max(0.0)),
    }
}

/// Every vertex of the set, found by enumeration: permutations of ρ with (Usunier's sets, the cube) or
/// without (top-k) entries put to 0, and 0.
pub fn all_vertices(kind: &str, rho: &[f64]) -> Vec<Vec<f64>> {
    let m = rho.len();
    let mut found = vec![vec![0.0; m]];
    for permutation in permutations(rho) {
        if matches!(kind, "utk" | "wtk") {
            found.push(permutation);
        } else {
            for kept in 0..1usize << m {
                let keep =
                    |(j, weight): (usize, &f64)| if kept >> j & 1 == 1 { *weight } else { 0.0 };
                found.push(permutation.iter().enumerate().map(keep).collect());
            }
        }
    }
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    found.dedup();
    if matches!(kind, "uu" | "wu" | "mh" | "sh") {
        // A largest entry put to 0 while a smaller one stays is inside the set, not a vertex.
        found.retain(|vertex| {
            let mut sorted = vertex.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let kept = sorted.iter().filter(|weight| **weight > 0.0).count();
            sorted[..kept] == rho[..kept]
        });
    }
    found
}

fn permutations(values: &[f64]) -> Vec<Vec<f64>> {
    if values.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..values.len() {
        let mut rest = values.to_vec();
        let head = rest.remove(first);
        all.extend(permutations(&rest).into_iter().map(|mut tail| {
            tail.insert(0, head);
            tail
        }));
    }
    all
}

/// ⟨a, b⟩.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A fixture of this folder.
pub fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A JSON list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}
