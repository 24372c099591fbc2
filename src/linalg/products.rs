//! Products of sparse or dense rows with dense matrices. Every stored entry is visited once, and no
//! sparse row is converted to a dense row.
//!
//! Matrices are slices stored row by row. B has one row of `width` values per column of X, and S has one per row of X.

use super::vectors::{axpy, dot};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::parallel::{fill_rows, sum_rows};

/// X B, where B has `width` values per column of X.
pub fn multiply(
    rows: &impl Rows,
    b: &[f64],
    width: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let mut product = vec![0.0; rows.n_rows() * width];
    fill_rows(&mut product, width, interrupt, |row, out| {
        rows.visit_row(row, |column, value| {
            axpy(out, value, &b[column * width..(column + 1) * width]);
        });
    })?;
    Ok(product)
}

/// Xᵀ S, where S has `width` values per row of X.
pub fn multiply_transposed(
    rows: &impl Rows,
    s: &[f64],
    width: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    transposed(rows, s, width, |value| value, interrupt)
}

/// (X∘X)ᵀ S: like [`multiply_transposed`] with every entry of X squared.
pub fn multiply_squared_transposed(
    rows: &impl Rows,
    s: &[f64],
    width: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    transposed(rows, s, width, |value| value * value, interrupt)
}

fn transposed(
    rows: &impl Rows,
    s: &[f64],
    width: usize,
    entry: impl Fn(f64) -> f64 + Sync,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    sum_rows(rows.n_rows(), rows.n_cols() * width, interrupt, |range, partial| {
        for row in range {
            let s = &s[row * width..(row + 1) * width];
            rows.visit_row(row, |column, value| {
                axpy(&mut partial[column * width..(column + 1) * width], entry(value), s);
            });
        }
    })
}

/// X Xᵀ B, where B has `width` values per row of X.
pub fn gram_product(
    rows: &impl Rows,
    b: &[f64],
    width: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let transposed = multiply_transposed(rows, b, width, interrupt)?;
    multiply(rows, &transposed, width, interrupt)
}

/// M v for a dense M, whose rows are as long as v.
pub(crate) fn matrix_vector(matrix: &[f64], v: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(v.len()).map(|row| dot(row, v)).collect()
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, arr2};

    use super::*;
    use crate::data::{Csr, Dense};

    #[test]
    fn sparse_and_dense_products_agree() {
        let x = arr2(&[[0.0, 2.0, -1.0], [3.0, 0.0, 0.5]]);
        let (offsets, columns, values) = ([0i64, 2, 4], [1, 2, 0, 2], [2.0, -1.0, 3.0, 0.5]);
        let sparse = Csr::<f64>::new(&offsets, &columns, &values, 3).unwrap();
        let dense = Dense::new(x.view()).unwrap();
        let b = arr2(&[[1.0, 4.0], [-2.0, 0.5], [0.25, 8.0]]);
        let s = arr2(&[[1.0, -1.0], [2.0, 0.5]]);
        let interrupt = Interrupt::default();
        let flat = |matrix: Array2<f64>| matrix.iter().copied().collect::<Vec<_>>();
        let check = |rows: &dyn Fn(&str) -> Vec<f64>| {
            assert_eq!(rows("X B"), flat(x.dot(&b)));
            assert_eq!(rows("Xᵀ S"), flat(x.t().dot(&s)));
            assert_eq!(rows("squared"), flat(x.mapv(|x| x * x).t().dot(&s)));
            assert_eq!(rows("gram"), flat(x.dot(&x.t()).dot(&s)));
        };
        fn product(
            rows: &impl Rows,
            which: &str,
            (b, s): (&[f64], &[f64]),
            interrupt: &Interrupt,
        ) -> Vec<f64> {
            match which {
                "X B" => multiply(rows, b, 2, interrupt),
                "Xᵀ S" => multiply_transposed(rows, s, 2, interrupt),
                "squared" => multiply_squared_transposed(rows, s, 2, interrupt),
                _ => gram_product(rows, s, 2, interrupt),
            }
            .unwrap()
        }
        let given = (b.as_slice().unwrap(), s.as_slice().unwrap());
        check(&|which| product(&dense, which, given, &interrupt));
        check(&|which| product(&sparse, which, given, &interrupt));
        assert_eq!(matrix_vector(&[1.0, 2.0, 3.0, 4.0], &[10.0, 1.0]), [12.0, 34.0]);
    }
}
