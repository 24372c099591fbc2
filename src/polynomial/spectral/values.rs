//! Lower bounds on the norms of several large symmetric matrices
//! (docs/mathematics/polynomial-networks.md#extreme-eigenvectors).

use super::side_by_side::{MatrixProducts, change, dots, kept, random_units};
use super::spectrum::tridiagonal_range;
use crate::error::Result;

/// Minimum and maximum number of steps of [`extreme_values`].
const VALUE_STEPS: (usize, usize) = (8, 96);

/// Lower bounds, with a relative error of about `tol`, on the largest |eigenvalue| of several
/// `size` × `size` matrices, one per seed. `product` multiplies interleaved vectors.
///
/// The Lanczos steps do not store the basis. The resulting loss of orthogonality only repeats
/// values that were already found, and moves no value out of the spectrum (Paige 1976).
pub(crate) fn extreme_values(
    size: usize,
    tol: f64,
    seeds: &[u64],
    product: &mut MatrixProducts<'_>,
) -> Result<Vec<f64>> {
    let mut values = vec![0.0_f64; seeds.len()];
    let mut now = random_units(size, seeds);
    let mut before = vec![0.0; now.len()];
    let mut active: Vec<usize> = (0..seeds.len()).collect();
    let mut entries = vec![(Vec::new(), Vec::new()); seeds.len()];
    for step in 1..=VALUE_STEPS.1.min(size) {
        let mut next = product(&active, &now)?;
        let diagonal = dots(&next, &now, active.len());
        let taken: Vec<[f64; 1]> = diagonal.iter().map(|a| [*a]).collect();
        change(&mut next, &now, &taken, |now, next, [a]| next - a * now);
        let coupled = |seed: usize| entries[seed].1.last().copied().unwrap_or(0.0);
        let taken: Vec<[f64; 1]> = active.iter().map(|at| [coupled(*at)]).collect();
        change(&mut next, &before, &taken, |before, next, [b]| next - b * before);
        let squares = dots(&next, &next, active.len());
        let mut keep = Vec::new();
        for ((at, diagonal), square) in active.iter().zip(diagonal).zip(squares) {
            let (own, beside): &mut (Vec<f64>, Vec<f64>) = &mut entries[*at];
            own.push(diagonal);
            let ends = step % 4 == 0 || square == 0.0 || !square.is_finite();
            let (low, high) = if ends { tridiagonal_range(own, beside) } else { (0.0, 0.0) };
            let value = high.max(-low);
            // A value has converged if it hardly grew since the last check.
            let converged = step >= VALUE_STEPS.0 && value <= values[*at] * (1.0 + 0.1 * tol);
            values[*at] = values[*at].max(value);
            keep.push(!(square == 0.0 || !square.is_finite() || ends && converged));
            beside.push(square.sqrt());
        }
        let inverse = |at: &usize| entries[*at].1.last().map_or([0.0], |b| [1.0 / b]);
        let scales: Vec<[f64; 1]> = active.iter().map(inverse).collect();
        change(&mut before, &next, &scales, |next, _, [scale]| scale * next);
        std::mem::swap(&mut before, &mut now);
        if keep.contains(&false) {
            (before, now) = (kept(&before, &keep), kept(&now, &keep));
            let mut keep = keep.into_iter();
            active.retain(|_| keep.next().unwrap_or(false));
        }
        if active.is_empty() {
            break;
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_matrices_at_once_give_the_values_of_single_matrices() {
        let size = 400;
        let spectrum = |c: usize| move |i: usize| ((i * 7 + c) % size) as f64 - 100.0 * c as f64;
        let mut product = |owners: &[usize], v: &[f64]| {
            let rows = v.chunks_exact(owners.len()).enumerate();
            let each =
                rows.flat_map(|(i, v)| v.iter().zip(owners).map(move |(v, c)| v * spectrum(*c)(i)));
            Ok(each.collect())
        };
        let found = extreme_values(size, 1e-3, &[3, 4, 5, 6], &mut product).unwrap();
        for (c, found) in found.into_iter().enumerate() {
            let wanted = (0..size).map(|i| spectrum(c)(i).abs()).fold(0.0, f64::max);
            assert!((0.99 * wanted..wanted * (1.0 + 1e-12)).contains(&found), "{found} {wanted}");
        }
        let mut zero = |_: &[usize], v: &[f64]| Ok(vec![0.0; v.len()]);
        assert_eq!(extreme_values(5, 1e-6, &[1, 2], &mut zero).unwrap(), [0.0, 0.0]);
    }
}
