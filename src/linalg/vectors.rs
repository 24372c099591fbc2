//! Products and norms of dense vectors.
//!
//! A floating-point sum depends on the order of its terms, and every model depends on these sums.
//! Each function therefore fixes one order:
//!
//! | function | order |
//! |---|---|
//! | [`dot`], [`norm`], [`normalise`] | eight parallel sums, added in order, then the remainder |
//! | [`padded_dot`] | eight parallel sums, added up in pairs; no remainder |
//! | [`dot_in_order`], [`squared_norm_in_order`] | one sum, term by term |
//! | [`fused_dot`], [`fused_dot_in_two`] | vectors of this machine's width, fused multiply-adds if it has them |
//! | [`long_dot`] | [`dot`] of each piece of [`PIECE_VALUES`] values, pieces in parallel |
//! | [`squared_norm`], [`along_difference`] | one sum for each piece of [`PIECE_VALUES`] values, pieces in parallel |
//!
//! [`axpy`], [`long_axpy`] and [`blend`] do not sum: replacing a loop `y[i] += a * x[i]` by `axpy`
//! does not change a bit of the result.

use pulp::Simd;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Lane;
use crate::data::Real;
use crate::parallel::{for_items, map_items, min_len};

/// Number of values per piece of a sum over weights.
pub(crate) const PIECE_VALUES: usize = 1 << 14;

/// γ_n = n u / (1 − n u), which bounds the relative error of n successive roundings (Higham 2002,
/// Lemma 3.1).
pub(crate) fn higham_gamma(n: usize) -> f64 {
    let error = n as f64 * (0.5 * f64::EPSILON);
    error / (1.0 - error)
}

/// Number of doubles processed together: one AVX-512 register, or two AVX2 registers.
const LANES: usize = 8;

/// ⟨a, b⟩ in [`LANES`] partial sums, which the compiler can keep in vectors.
#[inline]
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    wide_dot(a, b)
}

/// [`dot`] of vectors of any precision, summed in double precision.
#[inline]
fn wide_dot<A: Real, B: Real>(a: &[A], b: &[B]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a.widen() * b.widen();
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a.widen() * b.widen()).sum();
    sums.into_iter().sum::<f64>() + rest
}

/// ‖v‖.
pub(crate) fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

/// Scales v to unit length and returns its former length; leaves the zero vector unchanged.
pub(crate) fn normalise(v: &mut [f64]) -> f64 {
    let length = norm(v);
    if length > 0.0 {
        v.iter_mut().for_each(|v| *v /= length);
    }
    length
}

/// Returns a random unit vector, which `seed` determines.
pub(crate) fn random_unit(size: usize, seed: u64) -> Vec<f64> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut vector: Vec<f64> = (0..size).map(|_| rng.random::<f64>() - 0.5).collect();
    if normalise(&mut vector) == 0.0 {
        vector[0] = 1.0;
    }
    vector
}

/// y += scale x.
#[inline(always)]
pub(crate) fn axpy(y: &mut [f64], scale: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += scale * x;
    }
}

/// Returns the larger of two numbers; NaN if either is NaN.
#[inline(always)]
pub(crate) fn larger_or_nan(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// ⟨a, b⟩ summed term by term, for vectors too short to gain from several partial sums.
#[inline(always)]
pub(crate) fn dot_in_order(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// ‖v‖² summed term by term.
#[inline(always)]
pub(crate) fn squared_norm_in_order(v: &[f64]) -> f64 {
    dot_in_order(v, v)
}

/// ‖w‖², summed in double precision over fixed pieces, on all threads. The pieces do not depend on
/// the number of threads.
pub(crate) fn squared_norm<T: Real>(weights: &[T]) -> f64 {
    let square = |piece: &[T]| piece.iter().map(|weight| weight.widen().powi(2)).sum::<f64>();
    map_items(weights.chunks(PIECE_VALUES), min_len(PIECE_VALUES), square).iter().sum()
}

/// ⟨a, a − b⟩ and ‖a − b‖², summed in the same pieces as [`squared_norm`].
pub(crate) fn along_difference(a: &[f64], b: &[f64]) -> (f64, f64) {
    let pieces = map_items(pieces_of(a, b), min_len(PIECE_VALUES), |(a, b)| {
        a.iter().zip(b).fold((0.0, 0.0), |(along, squared), (a, b)| {
            let difference = a - b;
            (along + a * difference, squared + difference * difference)
        })
    });
    pieces.iter().fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1))
}

/// ⟨a, b⟩ on all threads, in double precision; identical to [`dot`] for at most [`PIECE_VALUES`] values.
pub(crate) fn long_dot<A: Real, B: Real>(a: &[A], b: &[B]) -> f64 {
    if a.len() <= PIECE_VALUES {
        return wide_dot(a, b);
    }
    let product = |(a, b): (&[A], &[B])| wide_dot(a, b);
    map_items(pieces_of(a, b), min_len(PIECE_VALUES), product).iter().sum()
}

/// Corresponding pieces of two vectors.
fn pieces_of<'a, A, B>(a: &'a [A], b: &'a [B]) -> impl Iterator<Item = (&'a [A], &'a [B])> {
    a.chunks(PIECE_VALUES).zip(b.chunks(PIECE_VALUES))
}

/// y += scale x on all threads.
pub(crate) fn long_axpy<T: Real>(y: &mut [T], scale: f64, x: &[T]) {
    long_update(y, x, |y, x| y + scale * x);
}

/// y = f(y, x) for each entry, in double precision, on all threads.
pub(crate) fn long_update<Y: Real, X: Real>(
    y: &mut [Y],
    x: &[X],
    f: impl Fn(f64, f64) -> f64 + Sync,
) {
    let pieces = y.chunks_mut(PIECE_VALUES).zip(x.chunks(PIECE_VALUES));
    for_items(pieces, min_len(PIECE_VALUES), |(y, x)| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = Y::narrow(f(y.widen(), x.widen())));
    });
}

/// y = a y + b x on all threads.
pub(crate) fn blend(y: &mut [f64], (a, b): (f64, f64), x: &[f64]) {
    long_update(y, x, |y, x| a * y + b * x);
}

/// ⟨a, b⟩ in four vectors of partial sums; inlined into kernels compiled for this machine.
#[inline(always)]
pub(crate) fn fused_dot<S: Simd, T: Lane<S>>(simd: S, a: &[T], b: &[T]) -> T {
    const PARTS: usize = 4;
    let ((a, a_left), (b, b_left)) = (T::vectors(a), T::vectors(b));
    // With a single sum, each multiply-add would wait for the previous multiply-add; four sums hide that
    // latency.
    let mut sums = [T::splat(simd, T::zero()); PARTS];
    let ((a, a_last), (b, b_last)) = (a.as_chunks::<PARTS>(), b.as_chunks::<PARTS>());
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum = T::fused(simd, *a, *b, *sum);
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_last.iter().zip(b_last)) {
        *sum = T::fused(simd, *a, *b, *sum);
    }
    let [a, b, c, d] = sums;
    let head = T::total(simd, T::plus(simd, T::plus(simd, a, b), T::plus(simd, c, d)));
    a_left.iter().zip(b_left).fold(head, |sum, (a, b)| a.mul_add(*b, sum))
}

/// ⟨a, b⟩ over the length of a, in two vectors of partial sums; b may be longer. For rows of a few dozen features, four
/// vectors would be mostly empty.
#[inline(always)]
pub(crate) fn fused_dot_in_two<S: Simd>(simd: S, a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = S::as_simd_f64s(a);
    let (whole, b_rest) = b.split_at(a.len() * S::F64_LANES);
    let mut sums = [simd.splat_f64s(0.0); 2];
    for (at, (a, b)) in a.iter().zip(S::as_simd_f64s(whole).0).enumerate() {
        sums[at % 2] = simd.mul_add_e_f64s(*a, *b, sums[at % 2]);
    }
    simd.reduce_sum_f64s(simd.add_f64s(sums[0], sums[1])) + dot_in_order(a_rest, b_rest)
}

/// The smallest multiple of [`LANES`] that holds `length` values.
pub(crate) const fn padded(length: usize) -> usize {
    length.div_ceil(LANES) * LANES
}

/// ⟨a, b⟩ for slices that are padded with zeros to a multiple of [`LANES`], so that the loop has no
/// remainder.
#[inline(always)]
pub(crate) fn padded_dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in lanes(a).iter().zip(lanes(b)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    in_pairs(sums)
}

/// y += scale x for padded slices.
#[inline(always)]
pub(crate) fn padded_axpy(y: &mut [f64], scale: f64, x: &[f64]) {
    for (y, x) in y.as_chunks_mut::<LANES>().0.iter_mut().zip(lanes(x)) {
        // A copy of y tells the compiler that x and y do not overlap.
        let mut sum = *y;
        for lane in 0..LANES {
            sum[lane] += scale * x[lane];
        }
        *y = sum;
    }
}

#[inline(always)]
fn lanes(values: &[f64]) -> &[[f64; LANES]] {
    values.as_chunks().0
}

/// Sums a register in the same order as vector instructions: adds its two halves, then the two halves of the result,
/// and so on.
#[inline(always)]
fn in_pairs([a, b, c, d, e, f, g, h]: [f64; LANES]) -> f64 {
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;

    fn vectors(n: usize) -> (Vec<f64>, Vec<f64>, f64) {
        let a: Vec<f64> = (0..n as u32).map(f64::from).collect();
        let b: Vec<f64> = a.iter().map(|i| 1.0 / (1.0 + i)).collect();
        let expected = (0..n).map(|i| a[i] * b[i]).sum();
        (a, b, expected)
    }

    struct Fused<'a>(&'a [f64], &'a [f64]);

    impl WithSimd for Fused<'_> {
        type Output = [f64; 2];
        fn with_simd<S: Simd>(self, simd: S) -> [f64; 2] {
            [fused_dot(simd, self.0, self.1), fused_dot_in_two(simd, self.0, self.1)]
        }
    }

    #[test]
    fn every_order_sums_the_same_terms() {
        for n in [0, 1, 7, 8, 24, 53, 131] {
            let (a, b, expected) = vectors(n);
            let [fused, fused_in_two] = crate::linalg::arch().dispatch(Fused(&a, &b));
            for sum in [dot(&a, &b), dot_in_order(&a, &b), fused, fused_in_two] {
                assert!((sum - expected).abs() < 1e-12, "{n}: {sum} {expected}");
            }
            let squares = dot_in_order(&a, &a);
            for sum in [squared_norm(&a), squared_norm_in_order(&a), norm(&a).powi(2)] {
                assert!((sum - squares).abs() <= 1e-12 * squares, "{n}: {sum} {squares}");
            }
        }
    }

    #[test]
    fn padded_sums_match_plain_sums() {
        let (a, b, expected) = vectors(padded(20));
        assert_eq!(a.len(), 24);
        assert!((padded_dot(&a, &b) - expected).abs() < 1e-12);
        let (mut y, mut plain) = (b.clone(), b.clone());
        padded_axpy(&mut y, 2.0, &a);
        axpy(&mut plain, 2.0, &a);
        assert_eq!(y, plain);
        assert_eq!(y[5], b[5] + 10.0);
    }

    #[test]
    fn long_vectors_are_blended_and_compared() {
        let (a, mut b) = (vec![2.0; 40_000], vec![0.5; 40_000]);
        assert_eq!(along_difference(&a, &b), (120_000.0, 90_000.0));
        blend(&mut b, (0.5, 0.25), &a);
        assert!(b.iter().all(|b| *b == 0.75));
    }

    #[test]
    fn normalising_leaves_the_zero_vector_unchanged() {
        let mut v = vec![3.0, 4.0];
        assert_eq!((normalise(&mut v), &v[..]), (5.0, &[0.6, 0.8][..]));
        let mut zero = vec![0.0; 3];
        assert_eq!((normalise(&mut zero), &zero[..]), (0.0, &[0.0; 3][..]));
    }
}
