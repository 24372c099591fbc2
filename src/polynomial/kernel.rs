//! The degree-2 kernels and the products with X and Xᵀ that everything here is made of.
//!
//! Nothing is densified: each product costs one visit of the stored entries.

use super::eigen::normalise;
use crate::data::Rows;
use crate::error::Result;
use crate::parallel::{fill_rows, sum_rows};
use crate::run::Interrupt;

/// Degree-2 kernel K(h, x) between a basis vector and a row (SPEC 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// (h·x)²: polynomial networks.
    Square,
    /// Σ_{j<j'} h_j x_j h_j' x_j' = ½[(h·x)² − Σ_j h_j² x_j²]: factorization machines.
    Anova,
}

/// Rows with a last column that is always 1, or without (SPEC 1.1: the dummy feature).
#[derive(Debug, Clone, Copy)]
pub struct Augmented<R> {
    /// The rows as given.
    pub rows: R,
    /// Whether the column of ones is there.
    pub ones: bool,
}

impl<R: Rows> Rows for Augmented<R> {
    fn n_rows(&self) -> usize {
        self.rows.n_rows()
    }

    fn n_cols(&self) -> usize {
        self.rows.n_cols() + usize::from(self.ones)
    }

    #[inline(always)]
    fn visit_row(&self, row: usize, mut visit: impl FnMut(usize, f64)) {
        self.rows.visit_row(row, &mut visit);
        if self.ones {
            visit(self.rows.n_cols(), 1.0);
        }
    }

    fn n_stored(&self) -> usize {
        self.rows.n_stored() + usize::from(self.ones) * self.n_rows()
    }
}

/// X B for a feature-major B (n_cols × `width`).
pub fn multiply(
    rows: &impl Rows,
    b: &[f64],
    width: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let mut product = vec![0.0; rows.n_rows() * width];
    fill_rows(&mut product, width, interrupt, |row, out| add_product(rows, row, b, out))?;
    Ok(product)
}

/// Adds x_row · B to `out`.
#[inline(always)]
pub(super) fn add_product(rows: &impl Rows, row: usize, b: &[f64], out: &mut [f64]) {
    let width = out.len();
    rows.visit_row(row, |column, value| {
        for (out, b) in out.iter_mut().zip(&b[column * width..(column + 1) * width]) {
            *out += value * b;
        }
    });
}

/// Xᵀ S for S with `width` values per row; X² in place of X when `squared`.
pub fn multiply_transposed(
    rows: &impl Rows,
    s: &[f64],
    width: usize,
    squared: bool,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    sum_rows(rows.n_rows(), rows.n_cols() * width, interrupt, |range, partial| {
        for row in range {
            let s = &s[row * width..(row + 1) * width];
            rows.visit_row(row, |column, value| {
                let value = if squared { value * value } else { value };
                for (out, s) in partial[column * width..(column + 1) * width].iter_mut().zip(s) {
                    *out += value * s;
                }
            });
        }
    })
}

impl Kernel {
    /// K(h_r, x) of `row` for every basis vector (`basis` is n_cols × k), added up over features.
    ///
    /// `work` is scratch of length k.
    #[inline(always)]
    pub fn activations(
        self,
        rows: &impl Rows,
        row: usize,
        basis: &[f64],
        work: &mut [f64],
        activations: &mut [f64],
    ) {
        let k = activations.len();
        activations.fill(0.0);
        match self {
            Self::Square => {
                add_product(rows, row, basis, activations);
                for z in activations.iter_mut() {
                    *z *= *z;
                }
            }
            Self::Anova => {
                work.fill(0.0);
                rows.visit_row(row, |column, value| {
                    let h = &basis[column * k..(column + 1) * k];
                    for ((p, q), h) in activations.iter_mut().zip(work.iter_mut()).zip(h) {
                        let part = value * h;
                        *p += part;
                        *q += part * part;
                    }
                });
                for (z, q) in activations.iter_mut().zip(work.iter()) {
                    *z = 0.5 * (*z * *z - q);
                }
            }
        }
    }

    /// Z = K(X, H), n × k.
    pub fn all_activations(
        self,
        rows: &impl Rows,
        basis: &[f64],
        k: usize,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let mut z = vec![0.0; rows.n_rows() * k];
        fill_rows(&mut z, k, interrupt, |row, out| {
            // Small and reused by the allocator; a per-thread buffer measured no faster.
            let mut work = vec![0.0; k];
            self.activations(rows, row, basis, &mut work, out);
        })?;
        Ok(z)
    }
}

/// The matrices Γ_c of the gradient: ∂F/∂(row of h) = −(hᵀ Γ_c h)_c (SPEC 3, (7)-(8)).
///
/// Γ_c = Xᵀ D_c X for the square kernel, ½[Xᵀ D_c X − diag] for the ANOVA kernel, D_c = −diag(R_c).
#[derive(Debug)]
pub struct GradientMatrices<'a, R> {
    rows: &'a R,
    kernel: Kernel,
    /// −R, n × m.
    weights: &'a [f64],
    n_outputs: usize,
    /// (X²)ᵀ D, n_cols × m: the diagonals, for the ANOVA kernel.
    diagonals: Vec<f64>,
    interrupt: &'a Interrupt,
}

impl<'a, R: Rows> GradientMatrices<'a, R> {
    /// Prepares products with Γ_1..Γ_m; `weights` holds −∂F/∂o.
    pub fn new(
        rows: &'a R,
        kernel: Kernel,
        weights: &'a [f64],
        n_outputs: usize,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let diagonals = match kernel {
            Kernel::Square => Vec::new(),
            Kernel::Anova => multiply_transposed(rows, weights, n_outputs, true, interrupt)?,
        };
        Ok(Self { rows, kernel, weights, n_outputs, diagonals, interrupt })
    }

    /// Number of columns of X: the size of each matrix.
    pub fn size(&self) -> usize {
        self.rows.n_cols()
    }

    /// Number of matrices.
    pub fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// What ends a product early.
    pub fn interrupt(&self) -> &Interrupt {
        self.interrupt
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.rows.n_rows()
    }

    /// A row at unit length; zero if it is.
    pub fn unit_row(&self, row: usize) -> Vec<f64> {
        let mut unit = vec![0.0; self.rows.n_cols()];
        self.rows.visit_row(row, |column, value| unit[column] = value);
        normalise(&mut unit);
        unit
    }

    /// X h.
    pub fn scores(&self, h: &[f64]) -> Result<Vec<f64>> {
        multiply(self.rows, h, 1, self.interrupt)
    }

    /// aᵀ Γ_c b for every c, from X a and X b.
    pub fn bilinear(&self, a: &[f64], b: &[f64], xa: &[f64], xb: &[f64]) -> Result<Vec<f64>> {
        let m = self.n_outputs;
        let mut v = sum_rows(self.rows.n_rows(), m, self.interrupt, |range, partial| {
            for row in range {
                let product = xa[row] * xb[row];
                for (v, weight) in partial.iter_mut().zip(&self.weights[row * m..(row + 1) * m]) {
                    *v += product * weight;
                }
            }
        })?;
        if self.kernel == Kernel::Anova {
            for ((a, b), diagonal) in a.iter().zip(b).zip(self.diagonals.chunks_exact(m)) {
                for (v, q) in v.iter_mut().zip(diagonal) {
                    *v -= a * b * q;
                }
            }
            v.iter_mut().for_each(|v| *v *= 0.5);
        }
        Ok(v)
    }

    /// (Σ_c w_c Γ_c) h, from X h.
    pub fn weighted_product(&self, w: &[f64], h: &[f64], xh: &[f64]) -> Result<Vec<f64>> {
        let m = self.n_outputs;
        let combine = |values: &[f64]| values.iter().zip(w).map(|(d, w)| d * w).sum::<f64>();
        let mut product =
            sum_rows(self.rows.n_rows(), h.len(), self.interrupt, |range, partial| {
                for row in range {
                    let scale = xh[row] * combine(&self.weights[row * m..(row + 1) * m]);
                    self.rows.visit_row(row, |column, value| partial[column] += scale * value);
                }
            })?;
        if self.kernel == Kernel::Anova {
            for ((out, h), diagonal) in
                product.iter_mut().zip(h).zip(self.diagonals.chunks_exact(m))
            {
                *out = 0.5 * (*out - combine(diagonal) * h);
            }
        }
        Ok(product)
    }

    /// Γ_c h.
    pub fn product(&self, c: usize, h: &[f64]) -> Result<Vec<f64>> {
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
        if self.kernel == Kernel::Anova {
            for ((out, h), diagonal) in
                product.iter_mut().zip(h).zip(self.diagonals.chunks_exact(m))
            {
                *out = 0.5 * (*out - diagonal[c] * h);
            }
        }
        Ok(product)
    }
}
