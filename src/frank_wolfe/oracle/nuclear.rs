//! The nuclear norm ball.

use ndarray::ArrayView2;

use super::{LinearOracle, check_radius, check_size};
use crate::error::Result;
use crate::frank_wolfe::rank_one::{MatrixOperator, leading_pair, norm_above, smaller_side};
use crate::frank_wolfe::vertex::{Vertex, sum_of_sizes};
use crate::interrupt::Interrupt;
use crate::linalg::products::matrix_vector;
use crate::linalg::vectors::{axpy, dot, random_unit};

/// The set of matrices, stored row after row, whose singular values sum to at most `radius`. Its vertices are the
/// matrices radius · u vᵀ with unit vectors u and v.
#[derive(Debug, Clone)]
pub struct NuclearNormBall {
    shape: (usize, usize),
    radius: f64,
    interrupt: Interrupt,
}

/// Residual of a singular pair, relative to the square of the singular value.
const ACCURACY: f64 = 1e-6;

impl NuclearNormBall {
    /// Creates the ball of matrices with this number of rows and columns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::error::Error::InvalidArgument) unless the numbers of rows and columns are
    /// positive, a matrix has at most 2³² − 1 entries, and the radius is positive and finite.
    pub fn new(shape: (usize, usize), radius: f64) -> Result<Self> {
        check_size("shape", shape.0)?;
        check_size("shape", shape.1)?;
        check_size("shape", shape.0.saturating_mul(shape.1))?;
        Ok(Self { shape, radius: check_radius(radius)?, interrupt: Interrupt::default() })
    }

    /// Makes searches end early when `interrupt` is raised.
    #[must_use]
    pub fn stopped_by(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: interrupt.clone(), ..self }
    }
}

/// A dense matrix, row after row.
struct DenseMatrix<'a>(&'a [f64], (usize, usize));

impl DenseMatrix<'_> {
    fn transposed_times(&self, u: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; self.1.1];
        for (row, u) in self.0.chunks_exact(self.1.1).zip(u) {
            axpy(&mut product, *u, row);
        }
        product
    }
}

impl MatrixOperator for DenseMatrix<'_> {
    fn shape(&self) -> (usize, usize) {
        self.1
    }

    fn to_larger_side(&self, v: &[f64]) -> Vec<f64> {
        if self.1.1 <= self.1.0 { matrix_vector(self.0, v) } else { self.transposed_times(v) }
    }

    fn gram_times(&self, v: &[f64], interrupt: &Interrupt) -> Result<Vec<f64>> {
        interrupt.check()?;
        let lifted = self.to_larger_side(v);
        Ok(if self.1.1 <= self.1.0 {
            self.transposed_times(&lifted)
        } else {
            matrix_vector(self.0, &lifted)
        })
    }

    fn squared_frobenius(&self) -> f64 {
        dot(self.0, self.0)
    }

    fn gram(&self) -> Vec<f64> {
        let Ok(matrix) = ArrayView2::from_shape(self.1, self.0) else { return Vec::new() };
        let gram =
            if self.1.1 <= self.1.0 { matrix.t().dot(&matrix) } else { matrix.dot(&matrix.t()) };
        gram.iter().copied().collect()
    }
}

impl LinearOracle for NuclearNormBall {
    fn vertex(&self, gradient: &[f64]) -> Result<Vertex> {
        let matrix = DenseMatrix(gradient, self.shape);
        // The start depends on the gradient, because gradients can stay orthogonal to a start that
        // is used again.
        let seed = gradient.iter().fold(0_u64, |seed, g| seed.rotate_left(5) ^ g.to_bits());
        let start = random_unit(smaller_side(&matrix), seed);
        let pair = leading_pair(&matrix, start, ACCURACY, &self.interrupt)?;
        let rows = pair.left.iter().map(|u| -self.radius * u);
        Ok(Vertex::Dense(rows.flat_map(|u| pair.right.iter().map(move |v| u * v)).collect()))
    }

    fn lower_bound(&self, gradient: &[f64], vertex: &Vertex, interrupt: &Interrupt) -> Result<f64> {
        let matrix = DenseMatrix(gradient, self.shape);
        let guess = (vertex.dot(gradient) / self.radius).abs();
        let norm = norm_above(&matrix, guess, ACCURACY, interrupt)?;
        Ok((-self.radius * norm).next_down())
    }

    fn bounds_are_cheap(&self) -> bool {
        false
    }

    fn n_coordinates(&self) -> Option<usize> {
        Some(self.shape.0 * self.shape.1)
    }

    fn radius(&self) -> Option<f64> {
        // The absolute values of the entries of a unit rank-one matrix sum to at most √(rows · columns).
        let (left, right) = (self.shape.0 as f64, self.shape.1 as f64);
        Some(sum_of_sizes(&[self.radius * (left * right).sqrt()]) * (1.0 + 4.0 * f64::EPSILON))
    }
}
