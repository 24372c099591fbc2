//! The Cartesian product of sets.

use rand_pcg::Pcg64Mcg;

use super::LinearOracle;
use crate::error::{Error, Result};
use crate::frank_wolfe::vertex::Vertex;
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;

/// The Cartesian product of sets. A point consists of one point of each factor, one after another.
pub struct ProductSet {
    factors: Vec<Box<dyn LinearOracle>>,
    /// The index of the first coordinate of each factor, and the total number of coordinates.
    starts: Vec<usize>,
}

impl ProductSet {
    /// Creates the product of `factors`, each of which knows its number of coordinates.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no factors, or if a factor does not know its number of coordinates.
    pub fn new(factors: Vec<Box<dyn LinearOracle>>) -> Result<Self> {
        if factors.is_empty() {
            return Err(Error::argument("factors", "must contain at least one oracle, got none"));
        }
        let mut starts = vec![0];
        for (index, factor) in factors.iter().enumerate() {
            let n = factor.n_coordinates().ok_or_else(|| {
                let message = format!("oracle {index} does not know its number of coordinates");
                Error::argument("factors", message)
            })?;
            starts.push(starts[index] + n);
        }
        super::check_size("factors", starts[factors.len()])?;
        Ok(Self { factors, starts })
    }

    /// Returns each factor with the coordinates of a vector that belong to it.
    fn parts<'a>(
        &'a self,
        values: &'a [f64],
    ) -> impl Iterator<Item = (&'a dyn LinearOracle, &'a [f64])> {
        let ranges = self.starts.windows(2).map(|ends| &values[ends[0]..ends[1]]);
        self.factors.iter().map(AsRef::as_ref).zip(ranges)
    }

    /// Joins one vertex of each factor to a vertex of the product.
    fn join(&self, vertices: Vec<Vertex>) -> Vertex {
        let mut entries = Sparse::new();
        for (vertex, start) in vertices.into_iter().zip(&self.starts) {
            let start = *start as u32;
            match vertex {
                Vertex::Sparse(sparse) => {
                    entries.extend(sparse.into_iter().map(|(i, v)| (start + i, v)));
                }
                Vertex::Dense(dense) => {
                    let values = (start..).zip(dense).filter(|(_, value)| *value != 0.0);
                    entries.extend(values);
                }
            }
        }
        Vertex::Sparse(entries)
    }

    /// Returns the coordinates of a vertex that belong to a factor.
    fn part(&self, vertex: &Vertex, factor: usize) -> Vertex {
        let (first, end) = (self.starts[factor], self.starts[factor + 1]);
        match vertex {
            Vertex::Dense(values) => Vertex::Dense(values[first..end].to_vec()),
            Vertex::Sparse(entries) => {
                let from = entries.partition_point(|(i, _)| (*i as usize) < first);
                let to = entries.partition_point(|(i, _)| (*i as usize) < end);
                let own = entries[from..to].iter().map(|(i, v)| (i - first as u32, *v));
                Vertex::Sparse(own.collect())
            }
        }
    }
}

impl LinearOracle for ProductSet {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        let vertices = self.parts(gradient).map(|(factor, part)| factor.vertex(part));
        Ok(self.join(vertices.collect::<Result<_>>()?))
    }

    fn lower_bound(&self, gradient: &[f64], vertex: &Vertex, interrupt: &Interrupt) -> Result<f64> {
        let mut sum = 0.0_f64;
        for (index, (factor, part)) in self.parts(gradient).enumerate() {
            let own = self.part(vertex, index);
            sum = (sum + factor.lower_bound(part, &own, interrupt)?).next_down();
        }
        Ok(sum)
    }

    fn bounds_are_cheap(&self) -> bool {
        self.factors.iter().all(|factor| factor.bounds_are_cheap())
    }

    fn sampled_vertex(
        &self,
        gradient: &[f64],
        share: f64,
        random: &mut Pcg64Mcg,
    ) -> Option<Vertex> {
        let vertices = self.parts(gradient).map(|(f, part)| f.sampled_vertex(part, share, random));
        Some(self.join(vertices.collect::<Option<_>>()?))
    }

    fn n_coordinates(&self) -> Option<usize> {
        self.starts.last().copied()
    }

    fn radius(&self) -> Option<f64> {
        let radii: Option<Vec<f64>> = self.factors.iter().map(|factor| factor.radius()).collect();
        let sum: f64 = radii?.iter().sum();
        Some(sum * (1.0 + f64::EPSILON * self.factors.len() as f64))
    }
}
