//! Upper bounds on |hᵀ Γ_c h| over the unit sphere, which the lower bound on the objective needs
//! (docs/mathematics/polynomial-networks.md#bounds-on-eigenvalues).

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, s};

use super::gradient_matrices::GradientMatrices;
use super::kernel::PolynomialKernel;
use crate::data::Rows;
use crate::error::Result;
use crate::linalg::vectors::higham_gamma;
use crate::parallel::{for_items, map_items, run_tasks};
use crate::polynomial::spectral::chebyshev::{NormEstimate, STARTS, probable_norm_bounds};
use crate::polynomial::spectral::side_by_side::VECTORS_PER_PASS;
use crate::polynomial::spectral::spectrum::{
    Chance, bounds_at_a_time, norm_bound, probable_norm_bound,
};

/// Maximum number of features for which each matrix is factorised. The bound then always holds; for more features, it
/// holds with a probability of at least 1 − 1e-9.
pub const MAX_FACTORISED: usize = 1024;

/// Number of data rows that are multiplied at a time. Also the number of matrix rows that are formed together.
const PANEL_ROWS: usize = 128;

/// Rows are multiplied as dense if at least 1/`DENSE` of their values are stored.
const DENSE: usize = 10;

impl<R: Rows> GradientMatrices<'_, R> {
    /// Upper bounds on ‖Γ_c‖₂ for every c, given approximate values `guesses`. They always hold for
    /// up to [`MAX_FACTORISED`] features; for more, they all hold together with the probability
    /// given by `chance`.
    pub(super) fn norm_bounds(&self, guesses: &[f64], chance: Chance) -> Result<Vec<f64>> {
        let errors = self.rounding_errors()?;
        let bounds = if self.size() <= MAX_FACTORISED {
            let bounds = map_items(guesses.iter().enumerate(), 1, |(c, guess)| {
                norm_bound(&self.matrix(c)?, self.size(), *guess, self.interrupt())
            });
            bounds.into_iter().collect::<Result<Vec<_>>>()?
        } else {
            self.probable_bounds(guesses, &errors, chance)?
        };
        let rounded = |(bound, error): (f64, f64)| (bound + error) * (1.0 + 4.0 * f64::EPSILON);
        Ok(bounds.into_iter().zip(errors).map(rounded).collect())
    }

    /// Bounds that hold with the probability given by `chance`, computed for several c at a time.
    fn probable_bounds(&self, guesses: &[f64], errors: &[f64], chance: Chance) -> Result<Vec<f64>> {
        // The random vectors of the first method decide which of the two methods bounds a matrix,
        // so the two share the failure probability.
        let chance = Chance { failure: chance.failure / (2.0 * guesses.len() as f64), ..chance };
        let known: Vec<NormEstimate> = guesses
            .iter()
            .zip(errors)
            .map(|(guess, rounding)| NormEstimate { guess: *guess, rounding: *rounding })
            .collect();
        let mut bounds = Vec::new();
        for known in known.chunks(VECTORS_PER_PASS / STARTS) {
            let first = bounds.len();
            let seed = chance.seed.wrapping_add((first * STARTS) as u64);
            let mut product = |owners: &[usize], v: &[f64]| {
                let owners: Vec<usize> = owners.iter().map(|owner| first + owner).collect();
                self.products(&owners, v)
            };
            let chance = Chance { seed, ..chance };
            let (size, interrupt) = (self.size(), self.interrupt());
            bounds.extend(probable_norm_bounds(size, known, chance, &mut product, interrupt)?);
        }
        self.bounds_by_lanczos(bounds, chance)
    }

    /// Computes the missing bounds by Lanczos' method, with a different seed for each.
    fn bounds_by_lanczos(&self, bounds: Vec<Option<f64>>, chance: Chance) -> Result<Vec<f64>> {
        let m = bounds.len();
        let missing: Vec<usize> = (0..m).filter(|c| bounds[*c].is_none()).collect();
        let mut bounds: Vec<f64> = bounds.into_iter().map(|bound| bound.unwrap_or(0.0)).collect();
        for group in missing.chunks(bounds_at_a_time(self.size())) {
            let found = run_tasks(group.len(), |at| {
                let seed = chance.seed.wrapping_add((m * STARTS + group[at]) as u64);
                let product = |v: &[f64]| self.product(group[at], v);
                probable_norm_bound(self.size(), Chance { seed, ..chance }, product)
            })?;
            group.iter().zip(found).for_each(|(c, bound)| bounds[*c] = bound);
        }
        Ok(bounds)
    }

    /// A bound on the rounding error of ‖Γ_c‖₂ from forming Γ_c or multiplying by it: γ Σ_i |D_ii| ‖x_i‖², because
    /// ‖|X|ᵀ |D| |X|‖₂ is at most that sum.
    pub(super) fn rounding_errors(&self) -> Result<Vec<f64>> {
        let (sums, longest_row) = self.weighted_squares()?;
        let roundings = self.n_rows() + 2 * longest_row + 64;
        // The error of each underflow is below the smallest normal number.
        let lost = f64::MIN_POSITIVE * (self.n_rows() as f64 + 1.0) * self.size() as f64;
        Ok(sums.into_iter().map(|sum| 2.0 * higham_gamma(roundings) * sum + lost).collect())
    }

    /// Returns Γ_c row by row; rounding may make the two triangles differ.
    pub(super) fn matrix(&self, c: usize) -> Result<Vec<f64>> {
        let d = self.size();
        if let Some(formed) = self.formed_matrix(c) {
            return Ok(formed.to_vec());
        }
        let mut matrix = vec![0.0; d * d];
        let dense = self.n_stored() * DENSE >= self.n_rows() * d;
        for_items(matrix.chunks_mut(PANEL_ROWS * d).enumerate(), 1, |(piece, out)| {
            let first = piece * PANEL_ROWS;
            if dense {
                self.form_dense(c, first, out);
            } else {
                self.form_sparse(c, first, out);
            }
            if self.kernel() == PolynomialKernel::Anova {
                out.iter_mut().for_each(|entry| *entry *= 0.5);
                for (j, row) in out.chunks_exact_mut(d).enumerate() {
                    row[first + j] = 0.0;
                }
            }
        });
        self.interrupt().check()?;
        Ok(matrix)
    }

    /// Computes rows of Xᵀ D_c X, starting with row `first`, from products of dense pieces of X.
    fn form_dense(&self, c: usize, first: usize, out: &mut [f64]) {
        let d = self.size();
        let width = out.len() / d;
        let mut sum = Array2::zeros((width, d));
        for start in (0..self.n_rows()).step_by(PANEL_ROWS) {
            if self.interrupt().is_raised() {
                return;
            }
            let n = PANEL_ROWS.min(self.n_rows() - start);
            let mut x = Array2::zeros((n, d));
            for (row, mut x) in x.rows_mut().into_iter().enumerate() {
                self.visit_row(start + row, |column, value| x[column] = value);
            }
            let mut scaled = x.slice(s![.., first..first + width]).to_owned();
            for (row, mut scaled) in scaled.rows_mut().into_iter().enumerate() {
                scaled *= self.weight(start + row, c);
            }
            general_mat_mul(1.0, &scaled.t(), &x, 1.0, &mut sum);
        }
        out.iter_mut().zip(&sum).for_each(|(out, sum)| *out = *sum);
    }

    /// Computes the same rows as `form_dense`, from products of each data row's stored values.
    fn form_sparse(&self, c: usize, first: usize, out: &mut [f64]) {
        let d = self.size();
        let last = first + out.len() / d;
        let mut entries = Vec::new();
        for row in 0..self.n_rows() {
            if row.is_multiple_of(PANEL_ROWS) && self.interrupt().is_raised() {
                return;
            }
            entries.clear();
            self.visit_row(row, |column, value| entries.push((column, value)));
            let weight = self.weight(row, c);
            for (j, value) in entries.iter().filter(|(j, _)| (first..last).contains(j)) {
                let scale = weight * value;
                let out = &mut out[(j - first) * d..][..d];
                entries.iter().for_each(|(i, value)| out[*i] += scale * value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Csr, Dense};
    use crate::interrupt::Interrupt;
    use crate::polynomial::spectral::lanczos::extreme_eigenpair;

    #[test]
    fn missing_bounds_are_computed_from_each_matrix() {
        let (n, d, m) = (150, 200, 4);
        let x = Array2::from_shape_fn((n, d), |(i, j)| ((i * 7 + j * 3) % 11) as f64 - 5.0);
        let weights: Vec<f64> = (0..n * m).map(|i| (i % m) as f64 + 1.0).collect();
        let (rows, interrupt) = (Dense::new(x.view()).unwrap(), Interrupt::default());
        let gamma = GradientMatrices::new(&rows, PolynomialKernel::Square, &weights, m, &interrupt)
            .unwrap();
        let chance = Chance { accuracy: 1e-3, failure: 1e-9, seed: 5 };
        let known = vec![None, Some(7.0), None, Some(8.0)];
        let bounds = gamma.bounds_by_lanczos(known, chance).unwrap();
        assert_eq!((bounds[1], bounds[3]), (7.0, 8.0));
        for c in [0, 2] {
            let norm = extreme_eigenpair(d, 1e-9, 1, |v| gamma.product(c, v)).unwrap().value;
            assert!((norm * (1.0 - 1e-9)..norm * 1.01).contains(&bounds[c]), "{bounds:?} {norm}");
        }
    }

    #[test]
    fn matrices_of_many_features_match_products_with_rows() {
        let (n, d, m) = (150, 200, 2);
        let weights: Vec<f64> = (0..n * m).map(|i| ((i * 5) % 13) as f64 - 6.0).collect();
        let x = Array2::from_shape_fn((n, d), |(i, j)| ((i * 7 + j * 3) % 11) as f64 - 5.0);
        let (columns, values): (Vec<i32>, Vec<f64>) =
            (0..3 * n).map(|at| ((at % 3 * 60 + at / 3) as i32 % 190, at as f64 % 7.0)).unzip();
        let mut sorted = columns.clone();
        sorted.chunks_exact_mut(3).for_each(<[i32]>::sort_unstable);
        let offsets: Vec<i64> = (0..=n as i64).map(|row| 3 * row).collect();
        let interrupt = Interrupt::default();
        let v: Vec<f64> = (0..d).map(|j| (j % 9) as f64 - 4.0).collect();
        let check = |gamma: GradientMatrices<'_, _>| {
            let wanted = gamma.product(1, &v).unwrap();
            let matrix = gamma.matrix(1).unwrap();
            for (row, wanted) in matrix.chunks_exact(d).zip(&wanted) {
                let found: f64 = row.iter().zip(&v).map(|(a, b)| a * b).sum();
                assert!((found - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{found} {wanted}");
            }
        };
        for kernel in [PolynomialKernel::Square, PolynomialKernel::Anova] {
            let rows = Dense::new(x.view()).unwrap();
            check(GradientMatrices::new(&rows, kernel, &weights, m, &interrupt).unwrap());
        }
        let rows = Csr::new(&offsets, &sorted, &values, d).unwrap();
        for kernel in [PolynomialKernel::Square, PolynomialKernel::Anova] {
            let gamma = GradientMatrices::new(&rows, kernel, &weights, m, &interrupt).unwrap();
            let wanted = gamma.product(0, &v).unwrap();
            let matrix = gamma.matrix(0).unwrap();
            for (row, wanted) in matrix.chunks_exact(d).zip(&wanted) {
                let found: f64 = row.iter().zip(&v).map(|(a, b)| a * b).sum();
                assert!((found - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{found} {wanted}");
            }
        }
    }
}
