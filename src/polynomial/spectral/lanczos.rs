//! Extreme eigenpairs of a symmetric matrix that is given by its products with vectors
//! (docs/mathematics/polynomial-networks.md#extreme-eigenvectors).

use crate::error::Result;
use crate::linalg::vectors::{axpy, dot, normalise, random_unit};

/// An approximation of the eigenpair of largest |eigenvalue|, with its accuracy.
#[derive(Debug, Clone)]
pub struct Extreme {
    /// The Ritz value θ.
    pub value: f64,
    /// The Ritz vector v, of unit length.
    pub vector: Vec<f64>,
    /// The residual ‖M v − θ v‖: some eigenvalue is this close to θ.
    pub residual: f64,
}

/// Dimension of the Krylov space at which the iteration restarts.
const MAX_SPACE: usize = 32;

/// Maximum number of restarts, after which the best pair found is returned.
const MAX_RESTARTS: usize = 8;

/// The eigenpair of largest |eigenvalue| of the `size` × `size` matrix behind `product`.
///
/// Lanczos with full reorthogonalisation approaches both ends of the spectrum at once. A power
/// iteration cannot: the spectrum of a bipartite factorization machine is symmetric about 0, and
/// the iterate would mix the two ends
/// (docs/mathematics/errata.md#power-method-on-indefinite-matrices). Stops when the residual is
/// below `tol` · |value|. `seed` fixes the random start.
pub fn extreme_eigenpair(
    size: usize,
    tol: f64,
    seed: u64,
    product: impl FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<Extreme> {
    extreme_eigenpair_from(random_unit(size, seed), tol, product)
}

/// Like [`extreme_eigenpair`], but starts from a given unit vector.
pub fn extreme_eigenpair_from(
    mut start: Vec<f64>,
    tol: f64,
    mut product: impl FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<Extreme> {
    let size = start.len();
    let mut best: Option<Extreme> = None;
    for _ in 0..=MAX_RESTARTS {
        let extreme = lanczos(start, tol, &mut product)?;
        let done = extreme.residual <= tol * extreme.value.abs();
        // Restarts from the Ritz vector of the dominant pair.
        start = extreme.vector.clone();
        let better = best.as_ref().is_none_or(|best| extreme.value.abs() >= best.value.abs());
        if better {
            best = Some(extreme);
        }
        if done {
            break;
        }
    }
    // The loop runs at least once, so `best` is not None.
    Ok(best.unwrap_or(Extreme { value: 0.0, vector: vec![0.0; size], residual: 0.0 }))
}

/// Extends a Krylov space from `start` until its Ritz pair of largest |value| is accurate enough.
fn lanczos(
    start: Vec<f64>,
    tol: f64,
    product: &mut impl FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<Extreme> {
    let limit = MAX_SPACE.min(start.len());
    let mut space = vec![start];
    let (mut diagonal, mut off_diagonal) = (Vec::new(), Vec::new());
    loop {
        let last = &space[space.len() - 1];
        let mut next = product(last)?;
        diagonal.push(dot(&next, last));
        orthogonalise(&mut next, &space);
        let coupling = normalise(&mut next);
        let scale = diagonal.iter().map(|a: &f64| a.abs()).fold(coupling, f64::max);
        let closed = coupling <= 1e-14 * scale || space.len() == limit;
        if closed || space.len() % 4 == 0 {
            let (values, vectors) = tridiagonal_eigen(&diagonal, &off_diagonal);
            let last_row = space.len() - 1;
            let residual = |pair: usize| (coupling * vectors[pair][last_row]).abs();
            let (low, high) = (0, values.len() - 1);
            let dominant = if values[low].abs() > values[high].abs() { low } else { high };
            let other = low + high - dominant;
            // The other end of the spectrum may still turn out larger, so its |value| plus residual may exceed the
            // dominant |value| by at most the tolerance.
            let converged = residual(dominant) <= tol * values[dominant].abs()
                && values[other].abs() + residual(other) <= (1.0 + tol) * values[dominant].abs();
            if closed || converged {
                let mut vector = vec![0.0; space[0].len()];
                for (basis, weight) in space.iter().zip(&vectors[dominant]) {
                    axpy(&mut vector, *weight, basis);
                }
                normalise(&mut vector);
                return Ok(Extreme {
                    value: values[dominant],
                    vector,
                    residual: residual(dominant),
                });
            }
        }
        off_diagonal.push(coupling);
        space.push(next);
    }
}

/// Subtracts from a vector its components in the space with the orthonormal basis `space`.
pub(super) fn orthogonalise(vector: &mut [f64], space: &[Vec<f64>]) {
    // After two passes the vector is orthogonal up to rounding.
    for _ in 0..2 {
        for basis in space {
            let overlap = dot(vector, basis);
            axpy(vector, -overlap, basis);
        }
    }
}

/// Eigenvalues (increasing) and eigenvectors of a small symmetric tridiagonal matrix.
fn tridiagonal_eigen(diagonal: &[f64], off_diagonal: &[f64]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = diagonal.len();
    let mut a = vec![vec![0.0; n]; n];
    for (i, value) in diagonal.iter().enumerate() {
        a[i][i] = *value;
    }
    for (i, value) in off_diagonal.iter().take(n - 1).enumerate() {
        a[i][i + 1] = *value;
        a[i + 1][i] = *value;
    }
    symmetric_eigen(a)
}

/// Eigenvalues (increasing) and eigenvectors of a small symmetric matrix, by Jacobi rotations.
pub(crate) fn symmetric_eigen(mut a: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = a.len();
    // Row r of `vectors` is the r-th eigenvector.
    let mut vectors: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    let size: f64 = a.iter().flatten().map(|x| x * x).sum();
    for _sweep in 0..60 {
        let off: f64 =
            (0..n).flat_map(|p| (0..p).map(move |q| (p, q))).map(|(p, q)| a[p][q] * a[p][q]).sum();
        if off <= 1e-30 * size {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] != 0.0 {
                    rotate(&mut a, &mut vectors, p, q);
                }
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[i][i].total_cmp(&a[j][j]));
    (order.iter().map(|&i| a[i][i]).collect(), order.iter().map(|&i| vectors[i].clone()).collect())
}

/// Rotates in the plane of the axes p and q so that the entry (p, q) of the matrix becomes 0.
fn rotate(a: &mut [Vec<f64>], vectors: &mut [Vec<f64>], p: usize, q: usize) {
    let tau = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let t = 1.0f64.copysign(tau) / (tau.abs() + (1.0 + tau * tau).sqrt());
    let c = 1.0 / (1.0 + t * t).sqrt();
    let s = t * c;
    let turned = |x: f64, y: f64| (c * x - s * y, s * x + c * y);
    for row in a.iter_mut() {
        (row[p], row[q]) = turned(row[p], row[q]);
    }
    for column in 0..a.len() {
        (a[p][column], a[q][column]) = turned(a[p][column], a[q][column]);
        (vectors[p][column], vectors[q][column]) = turned(vectors[p][column], vectors[q][column]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dense_product(matrix: &[Vec<f64>], v: &[f64]) -> Vec<f64> {
        matrix.iter().map(|row| dot(row, v)).collect()
    }

    proptest! {
        #[test]
        fn it_finds_the_largest_absolute_eigenvalue(
            values in prop::collection::vec(-2.0..2.0f64, 36),
            seed in 0..100u64,
        ) {
            let matrix: Vec<Vec<f64>> = (0..6)
                .map(|i| (0..6).map(|j| values[6 * i + j] + values[6 * j + i]).collect())
                .collect();
            let extreme =
                extreme_eigenpair(6, 1e-10, seed, |v| Ok(dense_product(&matrix, v))).unwrap();
            // Reference: repeated squaring of M², normalised in the Frobenius norm, gives |λ|max.
            let mut power: Vec<Vec<f64>> =
                matrix.iter().map(|row| dense_product(&matrix, row)).collect();
            let mut log_scale = 0.0;
            for _ in 0..40 {
                let norm = power.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
                power.iter_mut().flatten().for_each(|x| *x /= norm);
                log_scale = 2.0 * (log_scale + norm.ln());
                power = power.iter().map(|row| dense_product(&power, row)).collect();
            }
            let trace: f64 = (0..6).map(|i| power[i][i]).sum();
            let largest = ((trace.ln() + log_scale) / 2f64.powi(41)).exp();
            prop_assert!((extreme.value.abs() - largest).abs() < 1e-6 * largest, "{} {largest}", extreme.value);
            let product = dense_product(&matrix, &extreme.vector);
            let error: f64 = product
                .iter()
                .zip(&extreme.vector)
                .map(|(p, v)| (p - extreme.value * v).powi(2))
                .sum::<f64>()
                .sqrt();
            prop_assert!(error < 1e-7 * largest);
        }
    }

    #[test]
    fn a_spectrum_symmetric_about_zero_is_handled() {
        // The non-zero eigenvalues of [[0, B], [Bᵀ, 0]] are plus and minus the non-zero singular values of B.
        let n = 60;
        let b = |i: usize, j: usize| ((i * 7 + j * 13) % 11) as f64 - 5.0;
        let matrix: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                (0..n)
                    .map(|j| match (i < n / 2, j < n / 2) {
                        (true, false) => b(i, j - n / 2),
                        (false, true) => b(j, i - n / 2),
                        _ => 0.0,
                    })
                    .collect()
            })
            .collect();
        let extreme = extreme_eigenpair(n, 1e-8, 0, |v| Ok(dense_product(&matrix, v))).unwrap();
        let quadratic = dot(&extreme.vector, &dense_product(&matrix, &extreme.vector));
        assert!((quadratic - extreme.value).abs() < 1e-6 * extreme.value.abs());
        let length =
            dot(&dense_product(&matrix, &extreme.vector), &dense_product(&matrix, &extreme.vector))
                .sqrt();
        assert!((length - extreme.value.abs()).abs() < 1e-6 * length);
    }

    #[test]
    fn the_zero_matrix_has_the_value_zero() {
        let extreme = extreme_eigenpair(5, 1e-6, 0, |v| Ok(vec![0.0; v.len()])).unwrap();
        assert_eq!(extreme.value, 0.0);
        assert!((dot(&extreme.vector, &extreme.vector) - 1.0).abs() < 1e-12);
    }
}
