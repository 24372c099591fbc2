//! Least squares.

use super::{FunctionRounding, SmoothFunction};
use crate::data::Data;
use crate::dual::rounding::{TINY, gamma, norm_above, root_above};
use crate::error::{Error, Result};
use crate::frank_wolfe::columns::Columns;
use crate::frank_wolfe::vertex::Vertex;
use crate::linalg::vectors::dot;

/// The function f(x) = ½‖A x − b‖².
#[derive(Debug, Clone)]
pub struct LeastSquares {
    columns: Columns,
    targets: Vec<f64>,
    target_norm: f64,
}

impl LeastSquares {
    /// Creates the function, with a copy of A stored by columns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `b` has one finite number for each row of A, and A has a
    /// column and finite entries.
    pub fn new(a: &Data<'_>, b: &[f64]) -> Result<Self> {
        let columns = checked_columns(a)?;
        check_targets("b", &columns, b)?;
        Ok(Self { columns, targets: b.to_vec(), target_norm: norm_above(b) })
    }

    fn residuals(&self, x: &[f64]) -> Vec<f64> {
        let mut product: Vec<f64> = vec![0.0; self.columns.n_rows()];
        self.columns.add_product(x.iter().copied().enumerate(), &mut product);
        product.iter_mut().zip(&self.targets).for_each(|(r, b)| *r -= b);
        product
    }
}

/// Checks that a matrix has a column and only finite entries, and returns a copy stored by columns.
pub(super) fn checked_columns(a: &Data<'_>) -> Result<Columns> {
    if a.n_cols() == 0 {
        return Err(Error::argument("A", "must have at least one column"));
    }
    let columns = Columns::new(a);
    if !columns.largest_norm().is_finite() || columns.has_nan() {
        return Err(Error::argument("A", "must be finite, with columns of norm at most 1e308"));
    }
    Ok(columns)
}

/// Checks that each row has a target, and that all targets are finite.
pub(super) fn check_targets(
    argument: &'static str,
    columns: &Columns,
    targets: &[f64],
) -> Result<()> {
    let (n, found) = (columns.n_rows(), targets.len());
    if found != n {
        let message = format!("must have one number for each of the {n} rows of A, got {found}");
        return Err(Error::argument(argument, message));
    }
    match targets.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(Error::argument(argument, format!("must be finite, got {value}"))),
        None => Ok(()),
    }
}

impl SmoothFunction for LeastSquares {
    fn n_coordinates(&self) -> usize {
        self.columns.n_cols()
    }

    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let residuals = self.residuals(x);
        self.columns.transposed_times(&residuals, gradient);
        Ok(0.5 * dot(&residuals, &residuals))
    }

    fn is_quadratic(&self) -> bool {
        true
    }

    fn hessian_products(&self, vectors: &[Vertex]) -> Result<Vec<Vec<f64>>> {
        let image = |vector: &Vertex| {
            let mut image = vec![0.0; self.columns.n_rows()];
            match vector {
                Vertex::Dense(x) => {
                    self.columns.add_product(x.iter().copied().enumerate(), &mut image);
                }
                Vertex::Sparse(entries) => {
                    let entries = entries.iter().map(|(j, x)| (*j as usize, *x));
                    self.columns.add_product(entries, &mut image);
                }
            }
            image
        };
        let images: Vec<Vec<f64>> = vectors.iter().map(image).collect();
        Ok(self.columns.transposed_times_all(&images))
    }

    fn n_products_at_a_time(&self) -> usize {
        self.columns.n_at_a_time()
    }

    fn rounding(&self, x: &[f64], value: f64) -> FunctionRounding {
        // Any vector r gives the lower bound f(y) >= ⟨r, A y − b⟩ − ½‖r‖², so the error of r enters only through
        // ⟨r, A x − b⟩. The only error of the gradient is that of the product Aᵀr.
        let (size, n_terms) = self.columns.product_size(x);
        let error = gamma(n_terms + 3) * size + gamma(1) * self.target_norm;
        let sums = gamma(self.columns.n_rows() / 8 + 24);
        let norm = root_above(2.0 * value * (1.0 + sums) + self.columns.n_rows() as f64 * TINY);
        FunctionRounding {
            value: (norm * error + error * error + sums * value) * (1.0 + gamma(8)),
            gradient: self.columns.largest_norm()
                * self.columns.rounding()
                * norm
                * (1.0 + gamma(8)),
        }
    }
}
