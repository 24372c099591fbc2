//! The matrices whose quadratic forms give the gradient with respect to the output layer.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use pulp::{Simd, WithSimd};

use super::kernel::PolynomialKernel;
use super::row_block::{OuterSum, row_blocks};
use super::sparse_columns::{ColumnBlock, SparseColumns};
use crate::data::Rows;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::linalg::products::{
    matrix_vector, multiply, multiply_squared_transposed, multiply_transposed,
};
use crate::linalg::vectors::{axpy, dot, dot_in_order, normalise};
use crate::parallel::{fill_blocks, sum_rows};

/// The matrices Γ_c of the gradient: ∂F/∂u = −(hᵀ Γ_c h)_c, where u is the row of U for the basis vector h
/// (Blondel et al. 2017, (7) and (8); docs/mathematics/polynomial-networks.md#gradient-matrices).
///
/// Γ_c is Xᵀ D_c X for the square kernel and ½[Xᵀ D_c X − diag] for the ANOVA kernel, with D_c = −diag(R_c).
#[derive(Debug, Clone)]
pub struct GradientMatrices<'a, R> {
    rows: &'a R,
    kernel: PolynomialKernel,
    /// Negative residuals −R, n × m.
    weights: &'a [f64],
    n_outputs: usize,
    /// The diagonals (X²)ᵀ D for the ANOVA kernel, n_cols × m.
    diagonals: Vec<f64>,
    /// The formed matrices, if there are few features. Otherwise, each product reads the rows.
    formed: Option<Formed>,
    /// X stored by columns, if its rows are wide.
    columns: Option<&'a SparseColumns>,
    interrupt: &'a Interrupt,
}

/// The matrices Γ_c.
#[derive(Debug, Clone)]
struct Formed {
    /// The matrices, one after another.
    each: Vec<f64>,
    /// All matrices interleaved: the m entries at (j, i), one per matrix, start at index (j d + i) m. Multiplying all
    /// matrices by a vector is then one product with a matrix of d rows.
    together: Vec<f64>,
}

/// Maximum number of features for which the matrices are formed. Forming them costs as much as a few products with the
/// rows. Selection then computes tens of products with these small matrices instead of the rows.
const MAX_FORMED: usize = 64;

impl<'a, R: Rows> GradientMatrices<'a, R> {
    /// Prepares products with Γ_1..Γ_m; `weights` holds −∂F/∂o.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there are `n_outputs` weights for each row.
    pub fn new(
        rows: &'a R,
        kernel: PolynomialKernel,
        weights: &'a [f64],
        n_outputs: usize,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        if rows.n_cols() == 0 {
            return Err(Error::argument("X", "must have at least one column"));
        }
        if rows.n_rows() == 0 || n_outputs == 0 || weights.len() != rows.n_rows() * n_outputs {
            return Err(Error::argument("weights", "must have a row for each row of X"));
        }
        let mut matrices = Self {
            rows,
            kernel,
            weights,
            n_outputs,
            diagonals: Vec::new(),
            formed: None,
            columns: None,
            interrupt,
        };
        if rows.n_cols() <= MAX_FORMED {
            matrices.formed = Some(matrices.form()?);
        } else if kernel == PolynomialKernel::Anova {
            matrices.diagonals = multiply_squared_transposed(rows, weights, n_outputs, interrupt)?;
        }
        Ok(matrices)
    }

    /// Uses X stored by columns, if it is given.
    pub(super) fn with_columns(self, columns: Option<&'a SparseColumns>) -> Self {
        Self { columns, ..self }
    }

    /// Forms Γ_1..Γ_m from products of pairs of features, row by row.
    fn form(&self) -> Result<Formed> {
        let (d, m) = (self.size(), self.n_outputs);
        let pairs = d * (d + 1) / 2;
        let sums = sum_rows(self.n_rows(), pairs * m, self.interrupt, |range, partial| {
            let mut sum = OuterSum::new(partial, m);
            let (mut x, mut products) = (vec![0.0; d], Vec::new());
            for range in row_blocks(range) {
                products.clear();
                for row in range.clone() {
                    x.fill(0.0);
                    self.rows.visit_row(row, |column, value| x[column] = value);
                    for (j, value) in x.iter().enumerate() {
                        products.extend(x[..=j].iter().map(|other| other * value));
                    }
                }
                sum.add_dense(&products, pairs, |row, out| {
                    out.copy_from_slice(&self.weights[(range.start + row) * m..][..m]);
                });
            }
        })?;
        let (mut each, mut together) = (vec![0.0; m * d * d], vec![0.0; m * d * d]);
        let places = (0..d).flat_map(|j| (0..=j).map(move |i| (i, j)));
        for ((i, j), sums) in places.zip(sums.chunks_exact(m)) {
            for (c, (matrix, sum)) in each.chunks_exact_mut(d * d).zip(sums).enumerate() {
                let entry = match self.kernel {
                    PolynomialKernel::Square => *sum,
                    PolynomialKernel::Anova if i == j => 0.0,
                    PolynomialKernel::Anova => 0.5 * sum,
                };
                matrix[i * d + j] = entry;
                matrix[j * d + i] = entry;
                together[(i * d + j) * m + c] = entry;
                together[(j * d + i) * m + c] = entry;
            }
        }
        Ok(Formed { each, together })
    }

    /// Whether the matrices are formed. Products then need no pass over the rows.
    pub fn is_formed(&self) -> bool {
        self.formed.is_some()
    }

    /// Number of columns of X: the size of each matrix.
    pub fn size(&self) -> usize {
        self.rows.n_cols()
    }

    /// Number of matrices.
    pub fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// Returns the matrix Γ_c, if it is stored explicitly.
    pub(super) fn formed_matrix(&self, c: usize) -> Option<&[f64]> {
        let size = self.size() * self.size();
        self.formed.as_ref().map(|formed| &formed.each[c * size..][..size])
    }

    /// The kernel.
    pub(super) fn kernel(&self) -> PolynomialKernel {
        self.kernel
    }

    /// Number of stored values of X.
    pub(super) fn n_stored(&self) -> usize {
        self.rows.n_stored()
    }

    /// Calls `visit(column, value)` for the entries of a row.
    #[inline(always)]
    pub(super) fn visit_row(&self, row: usize, visit: impl FnMut(usize, f64)) {
        self.rows.visit_row(row, visit);
    }

    /// Entry `row` of the diagonal of D_c.
    #[inline(always)]
    pub(super) fn weight(&self, row: usize, c: usize) -> f64 {
        self.weights[row * self.n_outputs + c]
    }

    /// Returns Σ_i |D_c,ii| ‖x_i‖² for every c, and the maximum number of entries of a row.
    pub(super) fn weighted_squares(&self) -> Result<(Vec<f64>, usize)> {
        let m = self.n_outputs;
        let longest = AtomicUsize::new(0);
        let sums = sum_rows(self.rows.n_rows(), m, self.interrupt, |range, sums| {
            let mut longest_here = 0_usize;
            for row in range {
                let (mut square, mut length) = (0.0, 0);
                self.rows.visit_row(row, |_, value| {
                    square += value * value;
                    length += 1;
                });
                longest_here = longest_here.max(length);
                for (sum, weight) in sums.iter_mut().zip(&self.weights[row * m..][..m]) {
                    // Rows with weight 0 are skipped, even if their squares overflow.
                    *sum += if *weight == 0.0 { 0.0 } else { weight.abs() * square };
                }
            }
            longest.fetch_max(longest_here, Ordering::Relaxed);
        })?;
        Ok((sums, longest.into_inner()))
    }

    /// The flag that interrupts a product.
    pub fn interrupt(&self) -> &Interrupt {
        self.interrupt
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.rows.n_rows()
    }

    /// A row scaled to unit length, or zero if the row is zero.
    pub fn unit_row(&self, row: usize) -> Vec<f64> {
        let mut unit = vec![0.0; self.rows.n_cols()];
        self.rows.visit_row(row, |column, value| unit[column] = value);
        normalise(&mut unit);
        unit
    }

    /// Computes the intermediate result that several products with h share. It is linear in h: X h or, if the matrices
    /// are formed, (Γ_c h)_j at index j m + c.
    pub fn scores(&self, h: &[f64]) -> Result<Vec<f64>> {
        if let Some(Formed { together, .. }) = &self.formed {
            let mut images = vec![0.0; h.len() * self.n_outputs];
            for (h, rows) in h.iter().zip(together.chunks_exact(images.len())) {
                axpy(&mut images, *h, rows);
            }
            return Ok(images);
        }
        multiply(self.rows, h, 1, self.interrupt)
    }

    /// Returns aᵀ Γ_c b for every c, from the [scores](Self::scores) of a and b.
    pub fn bilinear(&self, a: &[f64], b: &[f64], xa: &[f64], xb: &[f64]) -> Result<Vec<f64>> {
        let m = self.n_outputs;
        if self.formed.is_some() {
            let mut v = vec![0.0; m];
            a.iter().zip(xb.chunks_exact(m)).for_each(|(a, images)| axpy(&mut v, *a, images));
            return Ok(v);
        }
        let mut v = sum_rows(self.rows.n_rows(), m, self.interrupt, |range, partial| {
            for row in range {
                let product = xa[row] * xb[row];
                axpy(partial, product, &self.weights[row * m..(row + 1) * m]);
            }
        })?;
        if self.kernel == PolynomialKernel::Anova {
            for ((a, b), diagonal) in a.iter().zip(b).zip(self.diagonals.chunks_exact(m)) {
                axpy(&mut v, -(a * b), diagonal);
            }
            v.iter_mut().for_each(|v| *v *= 0.5);
        }
        Ok(v)
    }

    /// Returns (Σ_c w_c Γ_c) h, from the scores of h.
    pub fn weighted_product(&self, w: &[f64], h: &[f64], xh: &[f64]) -> Result<Vec<f64>> {
        let m = self.n_outputs;
        if self.formed.is_some() {
            return Ok(xh.chunks_exact(m).map(|images| dot(images, w)).collect());
        }
        let combine = |values: &[f64]| dot_in_order(values, w);
        let mut product =
            sum_rows(self.rows.n_rows(), h.len(), self.interrupt, |range, partial| {
                for row in range {
                    let scale = xh[row] * combine(&self.weights[row * m..(row + 1) * m]);
                    self.rows.visit_row(row, |column, value| partial[column] += scale * value);
                }
            })?;
        if self.kernel == PolynomialKernel::Anova {
            for ((out, h), diagonal) in
                product.iter_mut().zip(h).zip(self.diagonals.chunks_exact(m))
            {
                *out = 0.5 * (*out - combine(diagonal) * h);
            }
        }
        Ok(product)
    }

    /// Returns Γ_c v for several interleaved vectors v. `owners` has the index c of the matrix for
    /// each vector.
    pub(super) fn products(&self, owners: &[usize], v: &[f64]) -> Result<Vec<f64>> {
        let (m, width) = (self.n_outputs, owners.len());
        let mut scores = vec![0.0; self.n_rows() * width];
        fill_blocks(&mut scores, width, self.interrupt, |range, scores| {
            arch().dispatch(ScaledProducts { matrices: self, range, owners, v, scores });
        })?;
        let mut product = match self.columns {
            Some(columns) => {
                let part = ColumnBlock { values: &scores, stride: width, first: 0, width };
                columns.multiply(self.size(), part, false, self.interrupt)?
            }
            None => multiply_transposed(self.rows, &scores, width, self.interrupt)?,
        };
        if self.kernel == PolynomialKernel::Anova {
            let vectors = v.chunks_exact(width).zip(self.diagonals.chunks_exact(m));
            for (product, (v, diagonal)) in product.chunks_exact_mut(width).zip(vectors) {
                for ((out, v), c) in product.iter_mut().zip(v).zip(owners) {
                    *out = 0.5 * (*out - diagonal[*c] * v);
                }
            }
        }
        Ok(product)
    }

    /// Returns Γ_c h.
    pub fn product(&self, c: usize, h: &[f64]) -> Result<Vec<f64>> {
        if let Some(formed) = &self.formed {
            let size = h.len() * h.len();
            return Ok(matrix_vector(&formed.each[c * size..(c + 1) * size], h));
        }
        let m = self.n_outputs;
        let mut product =
            sum_rows(self.rows.n_rows(), h.len(), self.interrupt, |range, partial| {
                for row in range {
                    let mut score = 0.0;
                    self.rows.visit_row(row, |column, value| score += value * h[column]);
                    let scale = score * self.weights[row * m + c];
                    self.rows.visit_row(row, |column, value| partial[column] += scale * value);
                }
            })?;
        if self.kernel == PolynomialKernel::Anova {
            for ((out, h), diagonal) in
                product.iter_mut().zip(h).zip(self.diagonals.chunks_exact(m))
            {
                *out = 0.5 * (*out - diagonal[c] * h);
            }
        }
        Ok(product)
    }
}

/// The product D_c X v for some rows and several vectors. This is a type because only code inlined
/// into its method `with_simd` is compiled for the vector instructions of this processor.
struct ScaledProducts<'a, 'r, R> {
    matrices: &'a GradientMatrices<'r, R>,
    range: Range<usize>,
    owners: &'a [usize],
    v: &'a [f64],
    scores: &'a mut [f64],
}

impl<R: Rows> WithSimd for ScaledProducts<'_, '_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { matrices, range, owners, v, scores } = self;
        let (m, width) = (matrices.n_outputs, owners.len());
        for (row, scores) in range.zip(scores.chunks_exact_mut(width)) {
            matrices.rows.visit_row(row, |column, value| {
                axpy(scores, value, &v[column * width..][..width]);
            });
            let weights = &matrices.weights[row * m..][..m];
            scores.iter_mut().zip(owners).for_each(|(score, c)| *score *= weights[*c]);
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::Dense;

    #[test]
    fn formed_matrices_give_the_same_products_as_rows() {
        let (n, d, m) = (130, 5, 3);
        let x = Array2::from_shape_fn((n, d), |(i, j)| ((i * 7 + j * 3) % 11) as f64 - 5.0);
        let weights: Vec<f64> = (0..n * m).map(|i| ((i * 5) % 13) as f64 - 6.0).collect();
        let rows = Dense::new(x.view()).unwrap();
        let interrupt = Interrupt::default();
        let (a, b) = ([1.0, -2.0, 0.5, 3.0, 0.0], [0.25, 1.0, -1.0, 0.0, 2.0]);
        let w = [1.0, -0.5, 2.0];
        for kernel in [PolynomialKernel::Square, PolynomialKernel::Anova] {
            let formed = GradientMatrices::new(&rows, kernel, &weights, m, &interrupt).unwrap();
            let diagonals = multiply_squared_transposed(&rows, &weights, m, &interrupt).unwrap();
            let by_rows = GradientMatrices { formed: None, diagonals, ..formed };
            let formed = GradientMatrices::new(&rows, kernel, &weights, m, &interrupt).unwrap();
            let (xa, xb) = (by_rows.scores(&a).unwrap(), by_rows.scores(&b).unwrap());
            let close = |one: Vec<f64>, other: Vec<f64>| {
                assert_eq!(one.len(), other.len());
                assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-9));
            };
            close(formed.product(1, &a).unwrap(), by_rows.product(1, &a).unwrap());
            let both: Vec<f64> = a.iter().zip(&b).flat_map(|(a, b)| [*a, *b]).collect();
            let columns = SparseColumns::new(&rows, &interrupt).unwrap().unwrap();
            for columns in [None, Some(&columns)] {
                let by_rows = GradientMatrices { columns, ..by_rows.clone() };
                let found = by_rows.products(&[2, 0], &both).unwrap();
                let first = found.iter().step_by(2).copied().collect();
                close(first, formed.product(2, &a).unwrap());
                let second = found.iter().skip(1).step_by(2).copied().collect();
                close(second, formed.product(0, &b).unwrap());
            }
            close(
                formed.bilinear(&a, &b, &[], &formed.scores(&b).unwrap()).unwrap(),
                by_rows.bilinear(&a, &b, &xa, &xb).unwrap(),
            );
            close(
                formed.weighted_product(&w, &b, &formed.scores(&b).unwrap()).unwrap(),
                by_rows.weighted_product(&w, &b, &xb).unwrap(),
            );
        }
    }
}
