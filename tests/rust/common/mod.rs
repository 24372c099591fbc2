//! Slow reference implementations that several test files share.

pub mod margin;
pub mod structured;

use dualgap::polytope::{LossConstructor, Parameters, Polytope, REGISTRY, Scratch};
use serde_json::Value;

use super::contributing;

/// All losses of the registry and the example of CONTRIBUTING.md, with their names. A polytope with
/// several names is listed only once.
pub fn losses() -> Vec<(&'static str, LossConstructor)> {
    let (mut found, mut sets) = (Vec::new(), Vec::new());
    for &(name, build) in REGISTRY.iter().chain(contributing::REGISTRY) {
        let set = format!("{:?}", polytope(name, build, 1, &[1.0, 0.0]));
        if !sets.contains(&set) {
            sets.push(set);
            found.push((name, build));
        }
    }
    found
}

/// The names of [`losses`].
pub fn kinds() -> Vec<&'static str> {
    losses().into_iter().map(|(name, _)| name).collect()
}

/// Returns the polytope of a loss, with values for its parameters `k` or `weights`.
pub fn build(kind: &str, k: usize, weights: &[f64]) -> Box<dyn Polytope> {
    let found = losses().into_iter().find(|(name, _)| *name == kind);
    polytope(kind, found.unwrap_or_else(|| panic!("no loss {kind}")).1, k, weights)
}

fn polytope(name: &str, build: LossConstructor, k: usize, weights: &[f64]) -> Box<dyn Polytope> {
    let takes = |parameter| build.parameters().contains(&parameter);
    let parameters = Parameters {
        k: takes("k").then_some(k),
        weights: takes("weights").then(|| weights.to_vec()),
    };
    build.polytope(name, parameters).unwrap()
}

/// Losses that have a published formula in the sorted margins. Tests compare the losses with it.
pub const PRINTED: [&str; 6] =
    ["max-hinge", "weston-watkins", "top-k", "usunier", "weighted-top-k", "weighted-usunier"];

/// Returns the name of the loss that the fixtures call `short`. "sh" also has costs.
pub fn printed_name(short: &str) -> &'static str {
    let shorts = ["mh", "ww", "utk", "uu", "wtk", "wu"];
    let known = shorts.iter().position(|known| *known == short.replace("sh", "mh"));
    PRINTED[known.unwrap_or_else(|| panic!("no loss {short}"))]
}

/// Returns the weights ρ of a published loss.
pub fn rho(kind: &str, m: usize, k: usize, weights: &[f64]) -> Vec<f64> {
    match kind {
        "max-hinge" => (0..m).map(|j| f64::from(j == 0)).collect(),
        "top-k" | "usunier" => (0..m).map(|j| if j < k { 1.0 / k as f64 } else { 0.0 }).collect(),
        "weston-watkins" => vec![1.0; m],
        _ => weights.to_vec(),
    }
}

/// Returns the loss by its published formula, from the sorted margins.
pub fn printed_loss(kind: &str, v: &[f64], rho: &[f64]) -> f64 {
    let mut sorted = v.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let dot =
        |map: fn(f64) -> f64| -> f64 { sorted.iter().zip(rho).map(|(v, r)| map(*v) * r).sum() };
    match kind {
        "top-k" | "weighted-top-k" => dot(|v| v).max(0.0),
        _ => dot(|v| v.max(0.0)),
    }
}

/// Enumerates the vertices of a published loss's polytope: 0 and the permutations of ρ. Except for top-k
/// losses, permutations of ρ with some entries set to 0 are vertices, too.
pub fn all_vertices(kind: &str, rho: &[f64]) -> Vec<Vec<f64>> {
    let m = rho.len();
    let mut found = vec![vec![0.0; m]];
    for permutation in permutations(rho) {
        if kind.ends_with("top-k") {
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
    if kind.ends_with("usunier") || kind == "max-hinge" {
        // A point in which a large entry is 0, but a smaller entry is not 0, lies inside the set, so
        // it is not a vertex.
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

/// Weights of the sorted margins for m classes: decreasing, with a positive first and a zero last
/// weight.
pub fn falling_weights(m: usize, draws: &[u8]) -> Vec<f64> {
    let mut weights: Vec<f64> = (0..m).map(|j| f64::from(draws[j % draws.len()]) / 3.0).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    weights[m - 1] = 0.0;
    weights[0] = weights[0].max(1.0 / 3.0);
    weights
}

/// Returns the maximum of ⟨β, w⟩ minus the support value over some directions w. It is at most 0 for β in
/// the set. The directions are each class and its opposite, the classes of the largest β_j, and sums
/// of these directions and random values.
pub fn excess(set: &dyn Polytope, beta: &[f64], label: usize, draws: &[f64]) -> f64 {
    let m = beta.len();
    let mut order: Vec<usize> = (0..m).filter(|class| *class != label).collect();
    order.sort_by(|&i, &j| beta[j].total_cmp(&beta[i]));
    let (mut directions, mut largest) = (Vec::new(), vec![0.0; m]);
    for (at, &class) in order.iter().enumerate() {
        largest[class] = 1.0;
        let mut opposite = vec![0.0; m];
        opposite[class] = -1.0;
        let random: Vec<f64> = (0..m)
            .map(|j| if j == label { 0.0 } else { largest[j] + draws[(j + at) % draws.len()] })
            .collect();
        directions.extend([largest.clone(), opposite, random]);
    }
    let mut scratch = Scratch::default();
    let excess = directions.iter().map(|w| dot(beta, w) - set.support(w, label, &mut scratch));
    excess.fold(f64::NEG_INFINITY, f64::max)
}

/// Returns ⟨a, b⟩.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Reads a fixture file.
pub fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Reads a JSON list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}
