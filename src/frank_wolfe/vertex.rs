//! Vertices of sets.

use crate::dual::rounding::{Bounded, TINY, gamma};
use crate::linalg::vectors::{axpy, dot};
use crate::linalg::{Sparse, sparse};

/// A vertex of a set, or a difference of two points.
#[derive(Debug, Clone, PartialEq)]
pub enum Vertex {
    /// All coordinates.
    Dense(Vec<f64>),
    /// The coordinates that are not 0, as pairs (index, value) with increasing indices.
    Sparse(Sparse),
}

impl Vertex {
    /// Returns ⟨dense, vertex⟩.
    pub fn dot(&self, dense: &[f64]) -> f64 {
        match self {
            Self::Dense(values) => dot(values, dense),
            Self::Sparse(entries) => sparse::dot(dense, entries),
        }
    }

    /// Returns ⟨dense, vertex⟩ with a bound on its rounding error.
    pub(super) fn bounded_dot(&self, dense: &[f64]) -> Bounded {
        match self {
            Self::Dense(values) => bounded_dot(values, dense),
            Self::Sparse(entries) => {
                let size: f64 = entries.iter().map(|(i, v)| (v * dense[*i as usize]).abs()).sum();
                let n = entries.len();
                Bounded::new(sparse::dot(dense, entries), gamma(n) * size + n as f64 * TINY)
            }
        }
    }

    /// Adds scale · vertex to `target`.
    pub(super) fn add_to(&self, scale: f64, target: &mut [f64]) {
        match self {
            Self::Dense(values) => axpy(target, scale, values),
            Self::Sparse(entries) => {
                entries.iter().for_each(|(i, v)| target[*i as usize] += scale * v);
            }
        }
    }

    /// Returns all `n` coordinates of a vertex.
    pub fn to_dense(&self, n: usize) -> Vec<f64> {
        match self {
            Self::Dense(values) => values.clone(),
            Self::Sparse(_) => {
                let mut dense = vec![0.0; n];
                self.add_to(1.0, &mut dense);
                dense
            }
        }
    }

    /// Number of stored coordinates.
    pub(super) fn n_stored(&self) -> usize {
        match self {
            Self::Dense(values) => values.len(),
            Self::Sparse(entries) => entries.len(),
        }
    }

    /// The squared norm.
    pub(super) fn squared_norm(&self) -> f64 {
        match self {
            Self::Dense(values) => dot(values, values),
            Self::Sparse(entries) => sparse::squared_norm(entries),
        }
    }

    /// Returns this vertex minus `other`, both with `n` coordinates.
    pub(super) fn minus(&self, other: &Self, n: usize) -> Self {
        match (self, other) {
            (Self::Sparse(a), Self::Sparse(b)) => {
                let mut difference = Sparse::new();
                sparse::subtract(a, b, &mut difference);
                Self::Sparse(difference)
            }
            _ => {
                let mut difference = self.to_dense(n);
                other.add_to(-1.0, &mut difference);
                Self::Dense(difference)
            }
        }
    }
}

/// Number of coordinates in each partial sum of a long inner product.
pub(super) const PIECE: usize = 512;

/// Returns ⟨a, b⟩ with a bound on its rounding error.
pub(super) fn bounded_dot(a: &[f64], b: &[f64]) -> Bounded {
    let (mut sum, mut size) = (0.0, 0.0);
    for (a, b) in a.chunks(PIECE).zip(b.chunks(PIECE)) {
        sum += dot(a, b);
        size += a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum::<f64>();
    }
    // `dot` has eight partial sums.
    let depth = PIECE.min(a.len()) / 8 + a.len() / PIECE + 18;
    Bounded::new(sum, gamma(depth) * size + a.len() as f64 * TINY)
}

/// Returns an upper bound on Σ |v_i|.
pub(super) fn sum_of_sizes(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().map(|v| v.abs()).sum();
    sum * (1.0 + gamma(values.len()))
}
