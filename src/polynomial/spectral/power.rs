//! The power method for a symmetric matrix that is given by its products
//! (docs/mathematics/polynomial-networks.md#extreme-eigenvectors).

use super::lanczos::Extreme;
use crate::error::Result;
use crate::linalg::vectors::{axpy, dot, norm, normalise, random_unit};

/// Maximum number of products, after which the current pair is returned.
const MAX_PRODUCTS: usize = 1000;

/// The eigenpair of largest |eigenvalue| of the `size` × `size` matrix M behind `product`.
///
/// Each iteration takes two products, v ← M² v / ‖M² v‖. One product is not enough because M may be
/// indefinite: if its largest and smallest eigenvalues differ only in sign, M v alternates between
/// mixtures of both eigenvectors (docs/mathematics/errata.md#power-method-on-indefinite-matrices).
/// Each iteration computes the Ritz pair of larger |value| in the plane of v and M v. Stops when
/// the residual is below `tol` · |value|. `seed` fixes the random start.
pub fn power_eigenpair(
    size: usize,
    tol: f64,
    seed: u64,
    mut product: impl FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<Extreme> {
    let mut v = random_unit(size, seed);
    let mut image = product(&v)?;
    let mut n_products = 1;
    loop {
        let square = product(&image)?;
        let next = pair_in_plane(&v, &image, &square);
        n_products += 2;
        if next.residual <= tol * next.value.abs() || n_products > MAX_PRODUCTS {
            return Ok(next);
        }
        v = square;
        if normalise(&mut v) == 0.0 {
            return Ok(next);
        }
        image = product(&v)?;
    }
}

/// The Ritz pair of larger |value| in the plane of a unit vector v and M v.
fn pair_in_plane(v: &[f64], image: &[f64], square: &[f64]) -> Extreme {
    // An orthonormal basis v, q of the plane, with M q = (M² v − a M v)/b.
    let a = dot(v, image);
    let mut q = image.to_vec();
    axpy(&mut q, -a, v);
    let b = norm(&q);
    if b <= f64::EPSILON * a.abs() || b == 0.0 {
        return Extreme { value: a, vector: v.to_vec(), residual: b };
    }
    q.iter_mut().for_each(|q| *q /= b);
    let mut image_q = square.to_vec();
    axpy(&mut image_q, -a, image);
    image_q.iter_mut().for_each(|image| *image /= b);
    let c = dot(&q, &image_q);
    let (mean, half) = (0.5 * (a + c), 0.5 * (a - c));
    let value = mean + half.hypot(b).copysign(mean);
    // Uses the row of the eigenvector equation in which nothing cancels.
    let (x, y) = if half * mean >= 0.0 { (value - c, b) } else { (b, value - a) };
    let length = x.hypot(y);
    let mut vector: Vec<f64> = v.iter().map(|v| x / length * v).collect();
    axpy(&mut vector, y / length, &q);
    let mut rest: Vec<f64> = image.iter().map(|image| x / length * image).collect();
    axpy(&mut rest, y / length, &image_q);
    axpy(&mut rest, -value, &vector);
    Extreme { value, vector, residual: norm(&rest) }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::linalg::products::matrix_vector;
    use crate::polynomial::spectral::lanczos::extreme_eigenpair;

    fn matrix(size: usize, seed: u64) -> Vec<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut matrix = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..=i {
                let entry = rng.random::<f64>() - 0.5;
                (matrix[i * size + j], matrix[j * size + i]) = (entry, entry);
            }
        }
        matrix
    }

    #[test]
    fn finds_the_pair_that_lanczos_finds() {
        for seed in 0..20 {
            let matrix = matrix(12, seed);
            let product = |v: &[f64]| Ok(matrix_vector(&matrix, v));
            let found = power_eigenpair(12, 1e-9, seed, product).unwrap();
            let other = extreme_eigenpair(12, 1e-12, seed, product).unwrap();
            assert!((found.value.abs() - other.value.abs()).abs() < 1e-8, "seed {seed}");
            let mut rest = matrix_vector(&matrix, &found.vector);
            axpy(&mut rest, -found.value, &found.vector);
            assert!(norm(&rest) <= 1e-8, "seed {seed}: {}", norm(&rest));
            assert!((norm(&found.vector) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn eigenvalues_that_differ_only_in_sign_are_distinguished() {
        // The spectrum of a bipartite factorization machine is symmetric about 0.
        let matrix = [0.0, 0.0, 3.0, 0.0, 0.0, 1.0, 3.0, 1.0, 0.0];
        let product = |v: &[f64]| Ok(matrix_vector(&matrix, v));
        let found = power_eigenpair(3, 1e-10, 1, product).unwrap();
        assert!((found.value.abs() - 10f64.sqrt()).abs() < 1e-9);
        assert!(found.residual < 1e-9);
    }

    #[test]
    fn a_matrix_of_zeros_has_the_eigenvalue_zero() {
        let found = power_eigenpair(4, 1e-6, 0, |v| Ok(vec![0.0; v.len()])).unwrap();
        assert_eq!((found.value, found.residual), (0.0, 0.0));
    }
}
