//! The simplex, the ℓ1 ball and the k-sparse polytope.

use rand_pcg::Pcg64Mcg;

use super::{LinearOracle, check_radius, check_size, sample, smallest, smallest_few};
use crate::error::{Error, Result};
use crate::frank_wolfe::vertex::Vertex;

/// The simplex {x >= 0, 1ᵀx = radius}.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simplex {
    n: usize,
    radius: f64,
}

impl Simplex {
    /// Creates the simplex with `n` vertices.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `n` is at least 1 and the radius is positive and finite.
    pub fn new(n: usize, radius: f64) -> Result<Self> {
        Ok(Self { n: check_size("n", n)?, radius: check_radius(radius)? })
    }

    fn corner(&self, values: impl Iterator<Item = (usize, f64)>) -> Vertex {
        let best = smallest(values).map_or(0, |(index, _)| index);
        Vertex::Sparse(vec![(best as u32, self.radius)])
    }
}

impl LinearOracle for Simplex {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        Ok(self.corner(gradient.iter().copied().enumerate()))
    }

    fn best_vertices(&self, gradient: &[f64], count: usize) -> Result<Vec<Vertex>> {
        let best = smallest_few(self.n, count, |index| gradient[index]);
        Ok(best.into_iter().map(|j| Vertex::Sparse(vec![(j as u32, self.radius)])).collect())
    }

    fn sampled_vertex(
        &self,
        gradient: &[f64],
        share: f64,
        random: &mut Pcg64Mcg,
    ) -> Option<Vertex> {
        let chosen = sample(self.n, share, random);
        Some(self.corner(chosen.into_iter().map(|index| (index, gradient[index]))))
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.n)
    }

    fn radius(&self) -> Option<f64> {
        Some(self.radius)
    }
}

/// The ball {‖x‖₁ <= radius}, with the vertices ± radius e_j.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct L1Ball {
    n: usize,
    radius: f64,
}

impl L1Ball {
    /// Creates the ball in `n` dimensions.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `n` is at least 1 and the radius is positive and finite.
    pub fn new(n: usize, radius: f64) -> Result<Self> {
        Ok(Self { n: check_size("n", n)?, radius: check_radius(radius)? })
    }

    /// Returns radius e_j or − radius e_j, whichever has the smaller slope.
    fn corner(&self, gradient: &[f64], j: usize) -> Vertex {
        let value = if gradient[j] > 0.0 { -self.radius } else { self.radius };
        Vertex::Sparse(vec![(j as u32, value)])
    }
}

impl LinearOracle for L1Ball {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        let sizes = gradient.iter().map(|g| -g.abs()).enumerate();
        Ok(self.corner(gradient, smallest(sizes).map_or(0, |(index, _)| index)))
    }

    fn best_vertices(&self, gradient: &[f64], count: usize) -> Result<Vec<Vertex>> {
        let best = smallest_few(self.n, count, |index| -gradient[index].abs());
        Ok(best.into_iter().map(|index| self.corner(gradient, index)).collect())
    }

    fn sampled_vertex(
        &self,
        gradient: &[f64],
        share: f64,
        random: &mut Pcg64Mcg,
    ) -> Option<Vertex> {
        // Atom 2j is radius e_j, and atom 2j + 1 is − radius e_j.
        let chosen = sample(2 * self.n, share, random);
        let sign = |atom: usize| if atom.is_multiple_of(2) { 1.0 } else { -1.0 };
        let slopes = chosen.into_iter().map(|atom| (atom, sign(atom) * gradient[atom / 2]));
        let (best, _) = smallest(slopes)?;
        Some(Vertex::Sparse(vec![((best / 2) as u32, sign(best) * self.radius)]))
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.n)
    }

    fn radius(&self) -> Option<f64> {
        Some(self.radius)
    }
}

/// The k-sparse polytope {‖x‖₁ <= k · radius, ‖x‖∞ <= radius}: the hull of the vectors with k
/// entries ± radius and zeros elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KSparse {
    n: usize,
    k: usize,
    radius: f64,
}

impl KSparse {
    /// Creates the polytope in `n` dimensions.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless 1 <= k <= n and the radius is positive and finite.
    pub fn new(n: usize, k: usize, radius: f64) -> Result<Self> {
        let n = check_size("n", n)?;
        if !(1..=n).contains(&k) {
            return Err(Error::argument("k", format!("must be from 1 to n={n}, got {k}")));
        }
        Ok(Self { n, k, radius: check_radius(radius)? })
    }
}

impl LinearOracle for KSparse {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        let mut order: Vec<u32> = (0..gradient.len() as u32).collect();
        let size = |index: u32| gradient[index as usize].abs();
        if self.k < order.len() {
            order.select_nth_unstable_by(self.k - 1, |a, b| {
                size(*b).total_cmp(&size(*a)).then(a.cmp(b))
            });
            order.truncate(self.k);
        }
        order.sort_unstable();
        let value = |index: u32| {
            if gradient[index as usize] > 0.0 { -self.radius } else { self.radius }
        };
        Ok(Vertex::Sparse(order.into_iter().map(|index| (index, value(index))).collect()))
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.n)
    }

    fn radius(&self) -> Option<f64> {
        Some(self.k as f64 * self.radius * (1.0 + f64::EPSILON))
    }
}
