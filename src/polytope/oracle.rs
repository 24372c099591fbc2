//! Projections and distances for sets that are known only by an oracle for their vertices.
//!
//! Wolfe's algorithm for the nearest point of a polytope (Wolfe 1976), in the norm of a projection with a rank-one
//! term. It keeps affinely independent vertices and repeatedly moves to the nearest point of their affine hull, until
//! this point is in their convex hull and no other vertex leads to a nearer point.

use crate::dual::rounding::gamma;
use crate::linalg::Sparse;
use crate::linalg::cholesky::solve_semidefinite;

/// Maximum number of vertices per class that a search adds. A search usually adds a few times the
/// number of vertices of the face that contains the nearest point.
const STEPS_PER_CLASS: usize = 8;

/// A convex combination of vertices.
struct Combination {
    bias: f64,
    vertices: Vec<Vec<f64>>,
    weights: Vec<f64>,
    /// Inner products of the vertices, in the norm of the projection.
    products: Vec<Vec<f64>>,
    /// Inner products of the vertices with the point to be projected.
    linear: Vec<f64>,
}

impl Combination {
    /// The combination of the single point 0, which is in every set.
    fn of_zero(n_classes: usize, bias: f64) -> Self {
        Self {
            bias,
            vertices: vec![vec![0.0; n_classes]],
            weights: vec![1.0],
            products: vec![vec![0.0]],
            linear: vec![0.0],
        }
    }

    /// The point that the weights combine.
    fn point(&self) -> Vec<f64> {
        let mut point = vec![0.0; self.vertices[0].len()];
        for (vertex, weight) in self.vertices.iter().zip(&self.weights) {
            point.iter_mut().zip(vertex).for_each(|(sum, entry)| *sum += weight * entry);
        }
        point
    }

    /// Adds a vertex with weight 0.
    fn push(&mut self, vertex: Vec<f64>, v: &[f64]) {
        self.linear.push(dot(&vertex, v));
        self.vertices.push(vertex);
        self.weights.push(0.0);
        let (new, sum) = (&self.vertices[self.vertices.len() - 1], self.bias);
        let total: f64 = new.iter().sum();
        let row: Vec<f64> = self
            .vertices
            .iter()
            .map(|other| dot(new, other) + sum * total * other.iter().sum::<f64>())
            .collect();
        self.products.iter_mut().zip(&row).for_each(|(old, product)| old.push(*product));
        self.products.push(row);
    }

    fn remove(&mut self, index: usize) {
        self.vertices.remove(index);
        self.weights.remove(index);
        self.linear.remove(index);
        self.products.remove(index);
        self.products.iter_mut().for_each(|row| {
            row.remove(index);
        });
    }

    /// The objective ½‖b‖² + bias/2 (1ᵀb)² − vᵀb of the combined point b.
    fn objective(&self) -> f64 {
        let rows = self.products.iter().zip(&self.weights).zip(&self.linear);
        rows.map(|((row, weight), linear)| weight * (0.5 * dot(row, &self.weights) - linear)).sum()
    }

    /// The weights of the best point of the affine hull; they may be negative.
    fn affine_minimiser(&self) -> Vec<f64> {
        let n = self.weights.len();
        // The sum of the weights is fixed, so a multiple of its square may be added to the objective. This makes the
        // matrix definite, because the vertices are affinely independent.
        let shift = (0..n).map(|i| self.products[i][i]).fold(1.0, f64::max);
        let matrix: Vec<f64> = self.products.iter().flatten().map(|p| p + shift).collect();
        let (mut best, mut ones) = (self.linear.clone(), vec![1.0; n]);
        solve_semidefinite(&mut matrix.clone(), &mut best);
        solve_semidefinite(&mut matrix.clone(), &mut ones);
        let scale = (1.0 - best.iter().sum::<f64>()) / ones.iter().sum::<f64>();
        best.iter_mut().zip(&ones).for_each(|(weight, one)| *weight += scale * one);
        best
    }

    /// Drops vertices until the best point of the affine hull of the remaining vertices has positive weights, and
    /// moves to that point.
    fn minimise(&mut self) {
        loop {
            let target = self.affine_minimiser();
            if !target.iter().all(|weight| weight.is_finite()) {
                return;
            }
            let pairs = self.weights.iter().zip(&target).enumerate();
            let blocking = pairs
                .filter(|(_, (_, target))| **target <= 0.0)
                .map(|(index, (weight, target))| (index, weight / (weight - target)))
                .min_by(|(_, a), (_, b)| a.total_cmp(b));
            let Some((index, step)) = blocking else {
                self.weights = target;
                return;
            };
            let step = if step.is_finite() { step } else { 0.0 };
            let moved = self.weights.iter().zip(&target).map(|(w, t)| w + step * (t - w));
            self.weights = moved.map(|weight| weight.max(0.0)).collect();
            self.remove(index);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The oracle of a set: writes a vertex that attains the support value at the argument, and returns this value.
pub(super) type VertexSearch<'a> = dyn FnMut(&[f64], &mut Sparse) -> f64 + 'a;

/// Writes to `beta` the projection of `v`, with a rank-one term, onto the set with the given oracle. The points of the
/// set have sums of at most `radius`. Returns the number of vertices that the result combines.
pub(super) fn nearest(
    vertex_at: &mut VertexSearch<'_>,
    radius: f64,
    v: &[f64],
    label: usize,
    bias: f64,
    beta: &mut [f64],
) -> usize {
    let largest = v.iter().fold(0.0_f64, |largest, v| largest.max(v.abs()));
    let enough = gamma(2) * radius * (largest + radius * (1.0 + bias));
    let mut combination = Combination::of_zero(v.len(), bias);
    beta.fill(0.0);
    let (mut vertex, mut objective) = (Sparse::new(), 0.0);
    for _ in 0..STEPS_PER_CLASS * v.len() + 16 {
        let sum: f64 = beta.iter().sum();
        let mut gradient: Vec<f64> =
            v.iter().zip(&*beta).map(|(v, b)| v - b - bias * sum).collect();
        gradient[label] = 0.0;
        let value = vertex_at(&gradient, &mut vertex);
        if value - dot(&gradient, beta) <= enough {
            break;
        }
        let mut dense = vec![0.0; v.len()];
        vertex.iter().for_each(|(class, entry)| dense[*class as usize] = *entry);
        if combination.vertices.contains(&dense) {
            break;
        }
        combination.push(dense, v);
        combination.minimise();
        let next = combination.objective();
        // Only rounding errors are left.
        if next >= objective {
            break;
        }
        objective = next;
        beta.copy_from_slice(&combination.point());
    }
    combination.vertices.len()
}

/// An upper bound on the distance in ‖·‖₁ of a point from the set: the distance to its projection, including rounding
/// errors.
pub(super) fn distance(
    vertex_at: &mut VertexSearch<'_>,
    radius: f64,
    beta: &[(u32, f64)],
    label: usize,
    n_classes: usize,
) -> f64 {
    if beta.is_empty() {
        return 0.0;
    }
    let (mut v, mut found) = (vec![0.0; n_classes], vec![0.0; n_classes]);
    beta.iter().for_each(|(class, value)| v[*class as usize] = *value);
    let n_terms = nearest(vertex_at, radius, &v, label, 0.0, &mut found);
    let apart: f64 = v.iter().zip(&found).map(|(v, found)| (v - found).abs()).sum();
    // The computed combination of n vertices differs from a point of the set by its rounding errors, and because its
    // weights add up to 1 only approximately.
    apart * (1.0 + gamma(n_classes)) + gamma(4 * n_terms + 4) * radius
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::models::{Loss, MulticlassSvc};
    use crate::polytope::{
        Cube, MaxHinge, Polytope, Scratch, TopK, Usunier, WeightedTopK, WeightedUsunier, Weights,
    };

    /// A set that is known only by its vertices.
    #[derive(Debug, Clone)]
    struct Oracle<P>(P);

    impl<P: Polytope> Polytope for Oracle<P> {
        fn vertex(
            &self,
            v: &[f64],
            label: usize,
            scratch: &mut Scratch,
            vertex: &mut Sparse,
        ) -> f64 {
            self.0.vertex(v, label, scratch, vertex)
        }

        fn radius(&self, n_classes: usize) -> f64 {
            self.0.radius(n_classes)
        }
    }

    fn agrees<P: Polytope>(set: P) {
        let (oracle, mut scratch) = (Oracle(set), Scratch::default());
        let mut random = Pcg64Mcg::seed_from_u64(0);
        for trial in 0..300 {
            let (n_classes, label) = (6, trial % 6);
            let scale = [0.3, 1.0, 30.0][trial % 3];
            let mut v: Vec<f64> =
                (0..n_classes).map(|_| random.random_range(-scale..scale)).collect();
            v[label] = 0.0;
            let bias = f64::from(u8::from(trial % 2 == 0));
            let (mut own, mut found) = (vec![0.0; n_classes], vec![0.0; n_classes]);
            oracle.0.project(&v, label, bias, &mut scratch, &mut own);
            oracle.project(&v, label, bias, &mut scratch, &mut found);
            for (own, found) in own.iter().zip(&found) {
                assert!(
                    (own - found).abs() <= 1e-12 * (1.0 + scale),
                    "{:?} {v:?}: {own} {found}",
                    oracle.0
                );
            }
            let apart =
                oracle.support(&v, label, &mut scratch) - oracle.0.support(&v, label, &mut scratch);
            assert!(apart.abs() <= 1e-14 * (1.0 + scale), "{:?} {v:?}: {apart}", oracle.0);
            let point: Sparse = (0..).zip(own.iter().copied()).filter(|(_, b)| *b != 0.0).collect();
            let within = oracle.distance(&point, label, n_classes);
            assert!((0.0..1e-12).contains(&within), "{:?} {point:?}: {within}", oracle.0);
            // A point that is outside the set by a known amount in one coordinate.
            let far = vec![((label as u32 + 1) % 6, 3.0)];
            assert!(oracle.distance(&far, label, n_classes) >= 3.0 - oracle.0.radius(n_classes));
            assert!(oracle.0.distance(&far, label, n_classes) > 1.0);
        }
    }

    #[test]
    fn vertices_suffice_for_the_projections_and_distances_of_every_set() {
        let weights = || Weights::new(vec![0.5, 0.3, 0.2, 0.1, 0.0, 0.0]).unwrap();
        agrees(MaxHinge);
        agrees(Cube);
        agrees(TopK::new(3).unwrap());
        agrees(Usunier::new(3).unwrap());
        agrees(WeightedTopK::new(weights()));
        agrees(WeightedUsunier::new(weights()));
    }

    #[test]
    fn a_fit_with_only_vertices_reaches_the_same_optimum() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let values: Vec<f64> = (0..240).map(|_| random.random_range(-1.0..1.0)).collect();
        let rows = crate::data::Dense::from_slice(&values, 4).unwrap();
        let labels: Vec<u8> = (0..60).map(|row| row % 5).collect();
        let fit =
            |loss: Loss| MulticlassSvc::new().loss(loss).tol(1e-6).fit(rows, &labels).unwrap();
        let (own, built_in) = (fit(Loss::own(Oracle(Cube))), fit("weston-watkins".into()));
        assert!(own.converged(), "gap {}", own.relative_gap());
        let apart = (own.objective() - built_in.objective()).abs();
        assert!(apart <= 2e-6 * own.objective(), "{apart}");
    }
}
