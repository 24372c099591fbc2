//! Checks of structured models with explicit joint features φ, losses and lists of all labels.

use dualgap::linalg::{Sparse, TouchedVector};
use dualgap::structured::{Model, Work};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Random numbers on a coarse grid, so that sums are exact and ties are common.
pub struct Grid(Pcg64Mcg);

impl Grid {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    /// A multiple of 1/2 in [−1, 1].
    pub fn value(&mut self) -> f64 {
        self.below(5) as f64 / 2.0 - 1.0
    }

    /// Any number in [−1, 1).
    pub fn real(&mut self) -> f64 {
        self.0.random_range(-1.0..1.0)
    }

    /// Returns 0 with probability `share`, and a random value otherwise.
    pub fn sparse(&mut self, share: f64) -> f64 {
        let keep = self.0.random_range(0.0..1.0) >= share;
        if keep { self.value() } else { 0.0 }
    }

    pub fn values(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.value()).collect()
    }

    pub fn labels(&mut self, n: usize, n_classes: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(n_classes) as u32).collect()
    }
}

/// All vectors of `n` numbers below `base`.
pub fn all_tuples(n: usize, base: usize) -> Vec<Vec<u32>> {
    let digits = |mut index: usize| {
        let mut digit = || {
            let digit = index % base;
            index /= base;
            digit as u32
        };
        (0..n).map(|_| digit()).collect()
    };
    (0..base.pow(n as u32)).map(digits).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn sparse_dot(sparse: &Sparse, dense: &[f64]) -> f64 {
    sparse.iter().map(|(index, value)| value * dense[*index as usize]).sum()
}

pub fn parts(model: &dyn Model, example: usize, label: &[u32]) -> Sparse {
    let mut parts = vec![(7, 7.0)];
    model.parts(example, label, &mut parts);
    assert!(parts.windows(2).all(|pair| pair[0].0 < pair[1].0), "{parts:?}");
    assert!(parts.iter().all(|(_, value)| *value != 0.0), "{parts:?}");
    parts
}

/// Checks one example of a model whose numbers are on the grid. All sums are exact, except that the
/// scale of the loss is rounded.
pub fn check(
    model: &dyn Model,
    example: usize,
    grid: &mut Grid,
    labels: &[Vec<u32>],
    phi: impl Fn(&[u32]) -> Vec<f64>,
    loss: impl Fn(&[u32]) -> f64,
) {
    let weights = grid.values(model.n_weights());
    let n_parts = model.n_parts(example);
    let mut theta = vec![f64::NAN; n_parts];
    model.scores(example, &weights, &mut theta);
    let mut costs = vec![0.0; n_parts];
    let constant = model.add_costs(example, &mut costs);
    let mut augmented = theta.clone();
    model.add_costs(example, &mut augmented);
    for ((augmented, theta), cost) in augmented.iter().zip(&theta).zip(&costs) {
        assert_eq!(*augmented, theta + cost);
    }

    let mut best = f64::NEG_INFINITY;
    let mut image = TouchedVector::new(model.n_weights());
    for label in labels {
        let mu = parts(model, example, label);
        assert!(mu.iter().all(|(part, _)| (*part as usize) < n_parts));
        let phi = phi(label);
        assert_eq!(sparse_dot(&mu, &theta), dot(&weights, &phi), "{label:?}");
        image.clear();
        model.add_image(example, &mu, 1.0, &mut image);
        assert_eq!(image.values(), &phi, "{label:?}");
        let value = constant + sparse_dot(&mu, &costs);
        assert!((value - loss(label)).abs() < 1e-12, "{label:?} {value} {}", loss(label));
        best = best.max(sparse_dot(&mu, &augmented));
    }
    let truth = parts(model, example, model.truth(example));
    assert!((constant + sparse_dot(&truth, &costs)).abs() < 1e-12);
    let decoded = decode_again(model, example, labels, [&augmented, &theta, &costs, &augmented]);
    let value = sparse_dot(&parts(model, example, &decoded), &augmented);
    assert!((value - best).abs() < 1e-12, "{decoded:?}: {value} for {best}");
    check_some_parts(model, example, grid, &weights, &theta);
}

/// Decodes the last scores again, with scratch memory that earlier decodings have used.
fn decode_again(
    model: &dyn Model,
    example: usize,
    labels: &[Vec<u32>],
    scores: [&Vec<f64>; 4],
) -> Vec<u32> {
    let mut work = Work { values: vec![f64::NAN; 3], indices: vec![9; 2], ..Work::default() };
    let mut decoded = vec![5; 3];
    for scores in scores {
        model.decode(example, scores, &mut work, &mut decoded);
        assert!(labels.contains(&decoded), "{decoded:?}");
    }
    decoded
}

/// Checks the scores of some parts, and the image of a difference between labels in only these parts.
fn check_some_parts(
    model: &dyn Model,
    example: usize,
    grid: &mut Grid,
    weights: &[f64],
    theta: &[f64],
) {
    let n_parts = theta.len();
    let some: Vec<u32> = (0..n_parts as u32).filter(|_| grid.below(3) == 0).collect();
    let mut at = vec![f64::NAN; n_parts];
    model.scores_at(example, &some, weights, &mut at);
    for part in 0..n_parts {
        match some.contains(&(part as u32)) {
            true => assert_eq!(at[part], theta[part], "part {part}"),
            false => assert!(at[part].is_nan()),
        }
    }

    let delta: Sparse = some.iter().map(|part| (*part, grid.value())).collect();
    let mut image = TouchedVector::new(model.n_weights());
    model.add_image(example, &delta, 0.5, &mut image);
    model.add_image(example, &delta, 1.5, &mut image);
    assert_eq!(dot(image.values(), weights), 2.0 * sparse_dot(&delta, theta));
}
