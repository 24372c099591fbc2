//! The interface of sets with a linear oracle, and the built-in sets.

mod birkhoff;
mod hull;
mod norm_balls;
mod nuclear;
mod product;

pub use birkhoff::Birkhoff;
pub use hull::ConvexHull;
pub use norm_balls::{KSparse, L1Ball, Simplex};
pub use nuclear::NuclearNormBall;
pub use product::ProductSet;

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::vertex::Vertex;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// A compact convex set, represented by an oracle that minimises linear functions over it.
///
/// An implementation needs one method, [`LinearOracle::vertex`]. The other methods have defaults.
pub trait LinearOracle: Send + Sync {
    /// Returns a vertex v of the set that minimises ⟨gradient, v⟩.
    ///
    /// # Errors
    /// Any error that the implementation returns; it ends the run.
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex>;

    /// Returns the result of [`LinearOracle::vertex`] and up to `count` − 1 vertices that are nearly as good, which
    /// later steps may need. By default, returns no further vertices.
    ///
    /// # Errors
    /// As for [`LinearOracle::vertex`].
    fn best_vertices(&self, gradient: &[f64], _count: usize) -> Result<Vec<Vertex>> {
        Ok(vec![self.vertex(gradient)?])
    }

    /// Returns a lower bound on the minimum of ⟨gradient, v⟩ over the set, where `vertex` is the result of
    /// [`LinearOracle::vertex`]. Certificates use this bound. The default is valid if `vertex` is an exact minimiser,
    /// and accounts for the rounding of the sum.
    ///
    /// # Errors
    /// As for [`LinearOracle::vertex`].
    fn lower_bound(
        &self,
        gradient: &[f64],
        vertex: &Vertex,
        _interrupt: &Interrupt,
    ) -> Result<f64> {
        Ok(vertex.bounded_dot(gradient).lower())
    }

    /// Whether [`LinearOracle::lower_bound`] is as cheap as [`LinearOracle::vertex`]. If so, every iteration can have a
    /// certificate.
    fn bounds_are_cheap(&self) -> bool {
        true
    }

    /// Returns the vertex that minimises ⟨gradient, v⟩ over a random fraction `share` of all vertices, or None if the
    /// set cannot list its vertices.
    fn sampled_vertex(
        &self,
        _gradient: &[f64],
        _share: f64,
        _random: &mut Pcg64Mcg,
    ) -> Option<Vertex> {
        None
    }

    /// Number of coordinates, if the set fixes it.
    fn n_coordinates(&self) -> Option<usize> {
        None
    }

    /// Returns the maximum of ‖x‖₁ over the set, or None if it is unknown. Without it, certificates treat the gradient
    /// as exact.
    fn radius(&self) -> Option<f64> {
        None
    }
}

/// Checks that a radius is positive and finite.
fn check_radius(radius: f64) -> Result<f64> {
    if radius > 0.0 && radius.is_finite() {
        return Ok(radius);
    }
    Err(Error::argument("radius", format!("must be positive and finite, got {radius}")))
}

/// Checks that a number of coordinates is from 1 to 2³² − 1.
fn check_size(argument: &'static str, n: usize) -> Result<usize> {
    if (1..=u32::MAX as usize).contains(&n) {
        return Ok(n);
    }
    Err(Error::argument(argument, format!("must be from 1 to {}, got {n}", u32::MAX)))
}

/// Returns a random fraction `share` of the indices below `n`, at least one index.
fn sample(n: usize, share: f64, random: &mut Pcg64Mcg) -> Vec<usize> {
    let size = ((share * n as f64).ceil() as usize).clamp(1, n);
    let mut indices: Vec<usize> = (0..n).collect();
    indices.partial_shuffle(random, size).0.to_vec()
}

/// Returns the index and the value of the smallest value; ties go to the first value.
fn smallest(values: impl Iterator<Item = (usize, f64)>) -> Option<(usize, f64)> {
    values.reduce(|best, next| if next.1 < best.1 { next } else { best })
}

/// Returns the indices of the `count` smallest keys, in increasing order of the keys.
fn smallest_few(n: usize, count: usize, key: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..n).collect();
    let order = |a: &usize, b: &usize| key(*a).total_cmp(&key(*b)).then(a.cmp(b));
    if (1..n).contains(&count) {
        indices.select_nth_unstable_by(count - 1, order);
    }
    indices.truncate(count);
    indices.sort_unstable_by(order);
    indices
}
