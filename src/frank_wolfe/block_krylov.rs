//! The leading eigenvector of a positive semi-definite matrix, by a block Krylov method
//! (Golub and Underwood 1977; docs/mathematics/frank-wolfe.md#any-function-and-any-set).
//!
//! A pass over a sparse matrix takes only about 1.6 times as long for four vectors as for one, because most of its time
//! is spent on the indices. If the matrix changes little from one search to the next, and the search starts from the
//! leading vectors of the last search, two or three passes suffice.

use crate::error::Result;
use crate::linalg::vectors::{dot, normalise, random_unit};
use crate::polynomial::spectral::lanczos::symmetric_eigen;

/// Number of vectors in a block.
pub(super) const WIDTH: usize = 4;

/// Vectors of equal length: entry i of vector j is at `[i][j]`.
pub(super) type VectorBlock = Vec<[f64; WIDTH]>;

/// The inner products of the vectors of two blocks.
type Square = [[f64; WIDTH]; WIDTH];

/// Maximum number of blocks in the Krylov space. The method then restarts from the leading vectors.
const MAX_BLOCKS: usize = 8;

/// Maximum number of restarts.
const MAX_RESTARTS: usize = 8;

/// A vector is 0 up to rounding if its norm is at most this fraction of the norm it had before its components in the
/// space were subtracted.
const NEGLIGIBLE: f64 = 1e-14;

/// Returns a block of random unit vectors, which `seed` determines.
pub(super) fn random_block(size: usize, seed: u64) -> VectorBlock {
    let mut block = vec![[0.0; WIDTH]; size];
    for column in 0..WIDTH {
        set_column(&mut block, column, &random_unit(size, seed + column as u64));
    }
    block
}

/// Replaces a vector of a block.
pub(super) fn set_column(block: &mut VectorBlock, column: usize, vector: &[f64]) {
    block.iter_mut().zip(vector).for_each(|(row, value)| row[column] = *value);
}

/// Returns orthogonal approximations of the leading eigenvectors of the matrix behind `product`, in order. Stops when
/// the estimated error of the largest eigenvalue is at most `tol` times this eigenvalue, or after [`MAX_RESTARTS`]
/// restarts.
pub(super) fn leading_block(
    mut start: VectorBlock,
    tol: f64,
    mut product: impl FnMut(&[[f64; WIDTH]]) -> Result<VectorBlock>,
) -> Result<VectorBlock> {
    for _ in 0..=MAX_RESTARTS {
        let (block, is_accurate) = extend(start, tol, &mut product)?;
        start = block;
        if is_accurate {
            break;
        }
    }
    Ok(start)
}

/// Returns the first vector of a block, as a unit vector.
pub(super) fn first_vector(block: &[[f64; WIDTH]]) -> Vec<f64> {
    let mut vector: Vec<f64> = block.iter().map(|row| row[0]).collect();
    if normalise(&mut vector) == 0.0 {
        vector[0] = 1.0;
    }
    vector
}

/// Extends a Krylov space from `start` until the largest Ritz value is accurate enough. Returns the leading Ritz
/// vectors, and whether the largest value is accurate enough.
fn extend(
    mut start: VectorBlock,
    tol: f64,
    product: &mut impl FnMut(&[[f64; WIDTH]]) -> Result<VectorBlock>,
) -> Result<(VectorBlock, bool)> {
    orthonormalise(&mut start, [0.0; WIDTH]);
    let mut space = vec![start];
    // The matrix in the basis of the space.
    let mut projected: Vec<Vec<f64>> = Vec::new();
    loop {
        let last = space.len() - 1;
        let mut next = product(&space[last])?;
        let before = norms(&next);
        let overlaps: Vec<Square> = space.iter().map(|basis| inner(basis, &next)).collect();
        append(&mut projected, &overlaps);
        for (basis, overlap) in space.iter().zip(&overlaps) {
            subtract(&mut next, basis, overlap);
        }
        // After two passes, the block is orthogonal to the space up to rounding.
        for basis in &space {
            let overlap = inner(basis, &next);
            subtract(&mut next, basis, &overlap);
        }
        let couplings = orthonormalise(&mut next, before);
        let (values, vectors) = symmetric_eigen(projected.clone());
        let top = values.len() - 1;
        let part = &vectors[top][last * WIDTH..];
        let residual = couplings.iter().map(|row| dot(row, part).powi(2)).sum::<f64>().sqrt();
        // An eigenvalue is within the residual r of θ₁, and within r²/(θ₁ − θ₂) if the next eigenvalue is at most θ₂.
        let distance = values[top] - values[top.saturating_sub(1)];
        let error = residual.min(residual * residual / distance.max(f64::MIN_POSITIVE));
        let is_accurate = error <= tol * values[top];
        if is_accurate || space.len() == MAX_BLOCKS {
            let leading: Vec<&[f64]> =
                vectors.iter().rev().take(WIDTH).map(Vec::as_slice).collect();
            return Ok((combine(&space, &leading), is_accurate));
        }
        space.push(next);
    }
}

/// Appends rows and columns to a symmetric matrix: the products of the last block with the vectors of all blocks.
fn append(projected: &mut Vec<Vec<f64>>, overlaps: &[Square]) {
    let size = overlaps.len() * WIDTH;
    projected.iter_mut().for_each(|row| row.resize(size, 0.0));
    projected.resize(size, vec![0.0; size]);
    let first = size - WIDTH;
    for (block, overlap) in overlaps.iter().enumerate() {
        for (i, row) in overlap.iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                let (row, column) = (block * WIDTH + i, first + j);
                projected[row][column] = *value;
                projected[column][row] = *value;
            }
        }
    }
}

/// Returns ⟨a_i, b_j⟩ for all i and j.
fn inner(a: &[[f64; WIDTH]], b: &[[f64; WIDTH]]) -> Square {
    let mut products = [[0.0; WIDTH]; WIDTH];
    for (a, b) in a.iter().zip(b) {
        for (products, a) in products.iter_mut().zip(a) {
            for (product, b) in products.iter_mut().zip(b) {
                *product += a * b;
            }
        }
    }
    products
}

/// Subtracts Σ_i weights_ij basis_i from vector j of the block.
fn subtract(block: &mut [[f64; WIDTH]], basis: &[[f64; WIDTH]], weights: &Square) {
    for (row, basis) in block.iter_mut().zip(basis) {
        for (basis, weights) in basis.iter().zip(weights) {
            for (value, weight) in row.iter_mut().zip(weights) {
                *value -= basis * weight;
            }
        }
    }
}

/// The norms of the vectors of a block.
fn norms(block: &[[f64; WIDTH]]) -> [f64; WIDTH] {
    let mut squares = [0.0; WIDTH];
    for row in block {
        squares.iter_mut().zip(row).for_each(|(square, value)| *square += value * value);
    }
    squares.map(f64::sqrt)
}

/// Orthonormalises the vectors of a block, and returns the upper triangular R for which the former block is the new
/// block times R. Vectors that are 0 up to rounding, compared with their norms `before`, become 0.
fn orthonormalise(block: &mut [[f64; WIDTH]], before: [f64; WIDTH]) -> Square {
    let mut factor = [[0.0; WIDTH]; WIDTH];
    let given = norms(block);
    for column in 0..WIDTH {
        let least = NEGLIGIBLE * before[column].max(given[column]);
        for _ in 0..2 {
            let mut overlaps = [0.0; WIDTH];
            for row in block.iter() {
                for (overlap, value) in overlaps.iter_mut().zip(&row[..column]) {
                    *overlap += value * row[column];
                }
            }
            for row in block.iter_mut() {
                let own: f64 = row[..column].iter().zip(&overlaps).map(|(v, o)| v * o).sum();
                row[column] -= own;
            }
            for (row, overlap) in factor.iter_mut().zip(&overlaps[..column]) {
                row[column] += overlap;
            }
        }
        let length = norms(block)[column];
        let scale = if length > least { 1.0 / length } else { 0.0 };
        factor[column][column] = if length > least { length } else { 0.0 };
        block.iter_mut().for_each(|row| row[column] *= scale);
    }
    factor
}

/// Returns the combinations of the basis vectors with the given weights.
fn combine(space: &[VectorBlock], weights: &[&[f64]]) -> VectorBlock {
    let mut combined = vec![[0.0; WIDTH]; space[0].len()];
    for (index, basis) in space.iter().enumerate() {
        let mut negative = [[0.0; WIDTH]; WIDTH];
        for (i, row) in negative.iter_mut().enumerate() {
            for (value, weights) in row.iter_mut().zip(weights) {
                *value = -weights[index * WIDTH + i];
            }
        }
        subtract(&mut combined, basis, &negative);
    }
    combined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the leading vectors of a diagonal matrix, and the number of products.
    fn leading(diagonal: &[f64], start: VectorBlock, tol: f64) -> (VectorBlock, usize) {
        let mut n_products = 0;
        let found = leading_block(start, tol, |block| {
            n_products += 1;
            Ok(block.iter().zip(diagonal).map(|(row, d)| row.map(|v| v * d)).collect())
        });
        (found.unwrap(), n_products)
    }

    fn rayleigh(diagonal: &[f64], vector: &[f64]) -> f64 {
        diagonal.iter().zip(vector).map(|(d, v)| d * v * v).sum()
    }

    #[test]
    fn the_largest_eigenvalue_is_found_among_close_ones() {
        let even: Vec<f64> = (0..500).map(|i| i as f64 / 500.0).collect();
        let mut clustered = even.clone();
        clustered[7..17].fill(1.1);
        clustered[17] = 1.1 + 1e-6;
        for diagonal in [even, clustered, vec![3.0; 50], vec![2.0], vec![0.0, 5.0, 1.0]] {
            let largest = diagonal.iter().copied().fold(0.0, f64::max);
            let (block, _) = leading(&diagonal, random_block(diagonal.len(), 3), 1e-7);
            let vector = first_vector(&block);
            assert!((dot(&vector, &vector) - 1.0).abs() <= 1e-12);
            let found = rayleigh(&diagonal, &vector);
            assert!((found - largest).abs() <= 2e-6 * largest, "{found} {largest}");
        }
    }

    #[test]
    fn a_search_from_the_vectors_of_a_similar_matrix_is_short() {
        let diagonal: Vec<f64> = (0..1000).map(|i| (1.0 + i as f64).powf(-0.5)).collect();
        let (block, n_cold) = leading(&diagonal, random_block(1000, 0), 1e-3);
        let nudged: Vec<f64> =
            diagonal.iter().enumerate().map(|(i, d)| d * (1.0 + 1e-3 * (i % 7) as f64)).collect();
        let (_, n_warm) = leading(&nudged, block, 1e-3);
        assert!(n_warm <= 2 && n_cold > n_warm, "{n_cold} {n_warm}");
    }

    #[test]
    fn the_zero_matrix_has_a_leading_unit_vector() {
        let (block, n_products) = leading(&[0.0; 5], random_block(5, 0), 1e-6);
        let vector = first_vector(&block);
        assert!((dot(&vector, &vector) - 1.0).abs() < 1e-12);
        assert_eq!(n_products, 1);
    }

    #[test]
    fn vectors_stay_orthonormal_or_become_zero() {
        let mut block = random_block(30, 1);
        block.iter_mut().for_each(|row| row[2] = row[0] - 2.0 * row[1]);
        let given = block.clone();
        let factor = orthonormalise(&mut block, [0.0; WIDTH]);
        let products = inner(&block, &block);
        for (i, row) in products.iter().enumerate() {
            for (j, product) in row.iter().enumerate() {
                let expected = f64::from(u8::from(i == j && i != 2));
                assert!((product - expected).abs() <= 1e-12, "{i} {j} {product}");
            }
        }
        for (given, row) in given.iter().zip(&block) {
            for column in 0..WIDTH {
                let value: f64 = (0..WIDTH).map(|i| row[i] * factor[i][column]).sum();
                assert!((value - given[column]).abs() <= 1e-12);
            }
        }
    }
}
