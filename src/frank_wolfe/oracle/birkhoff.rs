//! The Birkhoff polytope of doubly stochastic matrices.

use super::{LinearOracle, check_size};
use crate::dual::rounding::gamma;
use crate::error::{Error, Result};
use crate::frank_wolfe::vertex::Vertex;
use crate::interrupt::Interrupt;
use crate::structured::assignment_prices;

/// The set of doubly stochastic n × n matrices, stored row after row. Its vertices are the
/// permutation matrices (Birkhoff 1946), and minimising a linear function over it is an assignment
/// problem.
#[derive(Debug, Clone)]
pub struct Birkhoff {
    n: usize,
    interrupt: Interrupt,
}

impl Birkhoff {
    /// Creates the polytope of doubly stochastic n × n matrices.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `n` is at least 1 and n² is at most 2³² − 1.
    pub fn new(n: usize) -> Result<Self> {
        check_size("n", n.saturating_mul(n))?;
        Ok(Self { n, interrupt: Interrupt::default() })
    }

    /// Makes searches end early when `interrupt` is raised.
    #[must_use]
    pub fn stopped_by(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: interrupt.clone(), ..self }
    }

    /// Solves the assignment problem. Returns the column assigned to each row, and a lower bound on the cost of every
    /// assignment.
    fn assign(&self, costs: &[f64]) -> Result<(Vec<u32>, f64)> {
        let n = self.n;
        // All weights are positive, so the matching of largest weight covers all rows.
        let most = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let top = most + (most - least) + most.abs().max(f64::MIN_POSITIVE);
        let weights: Vec<f64> = costs.iter().map(|cost| top - cost).collect();
        let (matched, prices) = assignment_prices(&weights, n, &self.interrupt);
        self.interrupt.check()?;
        // Any prices of the columns give a bound, because each row costs at least its smallest reduced cost.
        let (mut bound, mut size) = (0.0, 0.0);
        for row in costs.chunks_exact(n) {
            let reduced = row.iter().zip(&prices).map(|(cost, price)| cost + price);
            let smallest = reduced.fold(f64::INFINITY, f64::min);
            bound += smallest;
            size += smallest.abs();
        }
        let paid: f64 = prices.iter().sum();
        let error = gamma(n + 4) * (size + paid + n as f64 * most.abs().max(least.abs()));
        Ok((matched, bound - paid - 2.0 * error))
    }
}

impl LinearOracle for Birkhoff {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        let (matched, _) = self.assign(gradient)?;
        if matched.iter().any(|column| *column as usize >= self.n) {
            return Err(Error::numerical("the gradient is too large for an assignment"));
        }
        let place = |(row, column): (usize, &u32)| ((row * self.n) as u32 + column, 1.0);
        Ok(Vertex::Sparse(matched.iter().enumerate().map(place).collect()))
    }

    fn lower_bound(&self, gradient: &[f64], _: &Vertex, _: &Interrupt) -> Result<f64> {
        Ok(self.assign(gradient)?.1)
    }

    fn bounds_are_cheap(&self) -> bool {
        false
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.n * self.n)
    }

    fn radius(&self) -> Option<f64> {
        Some(self.n as f64)
    }
}
