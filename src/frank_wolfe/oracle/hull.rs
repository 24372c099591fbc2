//! The convex hull of given points.

use rand_pcg::Pcg64Mcg;

use super::{LinearOracle, check_size, sample, smallest};
use crate::error::{Error, Result};
use crate::frank_wolfe::vertex::{Vertex, sum_of_sizes};
use crate::linalg::vectors::dot;

/// The convex hull of a list of points.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvexHull {
    points: Vec<f64>,
    n: usize,
}

impl ConvexHull {
    /// Creates the hull of points with `n` coordinates each, stored point after point.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is a point, and all coordinates are finite.
    pub fn new(points: Vec<f64>, n: usize) -> Result<Self> {
        let n = check_size("points", n)?;
        if points.is_empty() || !points.len().is_multiple_of(n) {
            return Err(Error::argument(
                "points",
                "must have at least one row, and rows of equal length",
            ));
        }
        if !points.iter().all(|value| value.is_finite()) {
            return Err(Error::argument("points", "must be finite numbers"));
        }
        Ok(Self { points, n })
    }

    fn n_points(&self) -> usize {
        self.points.len() / self.n
    }

    fn point(&self, index: usize) -> &[f64] {
        &self.points[index * self.n..][..self.n]
    }

    fn best(&self, points: impl Iterator<Item = usize>, gradient: &[f64]) -> Vertex {
        let slopes = points.map(|index| (index, dot(self.point(index), gradient)));
        let best = smallest(slopes).map_or(0, |(index, _)| index);
        Vertex::Dense(self.point(best).to_vec())
    }
}

impl LinearOracle for ConvexHull {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        Ok(self.best(0..self.n_points(), gradient))
    }

    fn lower_bound(
        &self,
        gradient: &[f64],
        _: &Vertex,
        _: &crate::interrupt::Interrupt,
    ) -> Result<f64> {
        // Because of rounding, the chosen point is not always the best point, so the bound covers all
        // points.
        let slopes = self.points.chunks_exact(self.n);
        let slopes = slopes.map(|point| crate::frank_wolfe::vertex::bounded_dot(point, gradient));
        Ok(slopes.map(|slope| slope.lower()).fold(f64::INFINITY, f64::min))
    }

    fn sampled_vertex(
        &self,
        gradient: &[f64],
        share: f64,
        random: &mut Pcg64Mcg,
    ) -> Option<Vertex> {
        let chosen = sample(self.n_points(), share, random);
        Some(self.best(chosen.into_iter(), gradient))
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.n)
    }

    fn radius(&self) -> Option<f64> {
        Some(self.points.chunks_exact(self.n).map(sum_of_sizes).fold(0.0, f64::max))
    }
}
