//! Products of a sparse row with weights that are stored feature by feature, and updates of these weights by multiples
//! of the row.

use pulp::Simd;

use crate::linalg::{Lane, prefetch};

/// Prefetch distance: number of features between the current feature and the feature whose weights are prefetched.
const AHEAD: usize = 24;
/// Number of features of the next row whose weights are prefetched.
const FIRST: usize = 32;
/// Number of SIMD vectors of outputs that are kept in registers, with two sums each.
const VECTORS: usize = 6;

/// Prefetches the first weights of the next row.
#[inline(always)]
pub(super) fn fetch_first<T>(columns: &[i32], weights: &[T], padded: usize) {
    for column in columns.iter().take(FIRST) {
        for line in (0..padded).step_by(64 / size_of::<T>()) {
            prefetch(weights, *column as usize * padded + line);
        }
    }
}

/// s = W x + b.
#[inline(always)]
pub(super) fn score<S: Simd, T: Lane<S>>(
    simd: S,
    weights: &[T::Vector],
    stride: usize,
    row: (&[i32], &[T]),
    intercepts: &[T::Vector],
    scores: &mut [T::Vector],
) {
    let mut first = 0;
    while first < stride {
        let weights = (weights, stride, first);
        match stride - first {
            1 => stretch::<S, T, 1>(simd, weights, row, intercepts, scores),
            2 => stretch::<S, T, 2>(simd, weights, row, intercepts, scores),
            3 => stretch::<S, T, 3>(simd, weights, row, intercepts, scores),
            4 => stretch::<S, T, 4>(simd, weights, row, intercepts, scores),
            5 => stretch::<S, T, 5>(simd, weights, row, intercepts, scores),
            _ => stretch::<S, T, VECTORS>(simd, weights, row, intercepts, scores),
        }
        first += VECTORS;
    }
}

#[inline(always)]
fn stretch<S: Simd, T: Lane<S>, const V: usize>(
    simd: S,
    (weights, stride, first): (&[T::Vector], usize, usize),
    (columns, values): (&[i32], &[T]),
    intercepts: &[T::Vector],
    scores: &mut [T::Vector],
) {
    assert!(first + V <= stride);
    let mut sums = [T::splat(simd, T::zero()); V];
    sums.copy_from_slice(&intercepts[first..][..V]);
    let mut others = [T::splat(simd, T::zero()); V];
    let lanes = <T as Lane<S>>::LANES;
    let line = (64 / (size_of::<T>() * lanes)).max(1);
    let add = |sums: &mut [T::Vector; V], column: i32, value: T| {
        let x = T::splat(simd, value);
        let weights = &weights[column as usize * stride..][..stride];
        for v in 0..V {
            sums[v] = T::fused(simd, x, weights[first + v], sums[v]);
        }
    };
    let (pairs, rest) = columns.as_chunks::<2>();
    let (value_pairs, last) = values.as_chunks::<2>();
    for (at, (columns2, values2)) in pairs.iter().zip(value_pairs).enumerate() {
        for ahead in 0..2 {
            if let Some(column) = columns.get(2 * at + AHEAD + ahead) {
                for v in (0..V).step_by(line) {
                    prefetch(weights, *column as usize * stride + first + v);
                }
            }
        }
        add(&mut sums, columns2[0], values2[0]);
        add(&mut others, columns2[1], values2[1]);
    }
    if let ([column], [value]) = (rest, last) {
        add(&mut sums, *column, *value);
    }
    for v in 0..V {
        scores[first + v] = T::plus(simd, sums[v], others[v]);
    }
}

/// W += change xᵀ, where `weights` starts at a given column. `FETCH` prefetches the weights of later columns; it is not
/// needed if they have just been read.
#[inline(always)]
pub(super) fn add<S: Simd, T: Lane<S>, const FETCH: bool>(
    simd: S,
    (weights, stride, first): (&mut [T::Vector], usize, usize),
    (columns, values): (&[i32], &[T]),
    change: &[T::Vector],
) {
    let line = (64 / (size_of::<T>() * <T as Lane<S>>::LANES)).max(1);
    for (at, (column, value)) in columns.iter().zip(values).enumerate() {
        if FETCH && let Some(ahead) = columns.get(at + AHEAD) {
            for v in (0..stride).step_by(line) {
                prefetch(weights, (*ahead as usize - first) * stride + v);
            }
        }
        let x = T::splat(simd, *value);
        let weights = &mut weights[(*column as usize - first) * stride..][..stride];
        for (weight, change) in weights.iter_mut().zip(change) {
            *weight = T::fused(simd, x, *change, *weight);
        }
    }
}
