//! One visit to a long sparse row on two threads, each with half of the row's features.
//!
//! Rayon hands the second half over, or does it itself where no other thread is free: on a busy machine nothing waits
//! for a thread that has not begun. The halves are the same on one thread, so that the bits do not depend on how many
//! there are.

use std::sync::Mutex;

use pulp::Simd;

use super::row::Row;
use super::sparse_kernels::{AddFewSparse, ScoreFewSparse};
use crate::linalg::{Element, Kernel, Lane, is_halved, on_two};

/// Whether a visit to so many classes is made in halves; whole vectors are read, at most one for each class.
#[inline(always)]
fn is_long<S: Simd, T: Lane<S>>(row: Row<'_, T>, n_classes: usize, padded: usize) -> bool {
    is_halved(row.columns.len() * padded.min(n_classes * T::LANES) * size_of::<T>())
}

/// Scores of a row for some classes.
#[inline(always)]
pub(super) fn score<S: Simd, T: Element + Lane<S>>(
    simd: S,
    (weights, padded): (&[T], usize),
    row: Row<'_, T>,
    classes: &[u32],
    scores: &mut [T],
    spare: &Mutex<Vec<T>>,
) {
    if is_long(row, classes.len(), padded) {
        let mut own = Vec::new();
        match spare.try_lock() {
            Ok(mut spare) => score_halves((weights, padded), row, classes, scores, &mut spare),
            // Several rows are scored at once.
            Err(_) => score_halves((weights, padded), row, classes, scores, &mut own),
        }
    } else {
        ScoreFewSparse { weights, padded, row, classes, scores }.compute(simd);
    }
}

#[inline(never)]
fn score_halves<T: Element>(
    (weights, padded): (&[T], usize),
    row: Row<'_, T>,
    classes: &[u32],
    scores: &mut [T],
    spare: &mut Vec<T>,
) {
    spare.resize(classes.len().max(spare.len()), T::zero());
    let others = &mut spare[..classes.len()];
    let [row, rest] = row.halves();
    on_two(
        || T::dispatch(ScoreFewSparse { weights, padded, row, classes, scores }),
        || T::dispatch(ScoreFewSparse { weights, padded, row: rest, classes, scores: others }),
    );
    for (score, other) in scores.iter_mut().zip(&*spare) {
        *score = *score + *other;
    }
}

/// Adds `change` times a row to the weights of some classes.
#[inline(always)]
pub(super) fn add<S: Simd, T: Element + Lane<S>>(
    simd: S,
    (weights, padded): (&mut [T], usize),
    row: Row<'_, T>,
    classes: &[u32],
    change: &[T],
) {
    if is_long(row, classes.len(), padded) {
        add_halves((weights, padded), row, classes, change);
    } else {
        AddFewSparse { weights, first: 0, padded, row, classes, change }.compute(simd);
    }
}

#[inline(never)]
fn add_halves<T: Element>(
    (weights, padded): (&mut [T], usize),
    row: Row<'_, T>,
    classes: &[u32],
    change: &[T],
) {
    let [row, rest] = row.halves();
    // Columns rise strictly.
    let first = rest.columns[0] as usize;
    let (weights, others) = weights.split_at_mut(first * padded);
    let after = AddFewSparse { weights: others, first, padded, row: rest, classes, change };
    let before = AddFewSparse { weights, first: 0, padded, row, classes, change };
    on_two(|| T::dispatch(before), || T::dispatch(after));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores of all classes after two visits, in halves and not, for rows with a constant feature.
    fn check<T: Element>(n_classes: usize) {
        let padded = n_classes.next_multiple_of(T::lanes());
        let columns: Vec<i32> = (0..700).map(|at| 3 * at + 1).collect();
        let values: Vec<T> = (0..700).map(|at| T::narrow((at % 5) as f64 - 2.0)).collect();
        let constant = [T::narrow(3.0)];
        let row = Row { values: &values, columns: &columns, rest: &[], constant: &constant };
        let classes: Vec<u32> = (0..n_classes as u32).rev().collect();
        let change: Vec<T> = (0..n_classes).map(|at| T::narrow((at % 4) as f64)).collect();
        let square: f64 = values.iter().map(|x| x.widen() * x.widen()).sum::<f64>() + 9.0;
        let mut weights = vec![T::zero(); 2101 * padded];
        add_halves((&mut weights, padded), row, &classes, &change);
        let whole = &mut weights[..];
        T::dispatch(AddFewSparse {
            weights: whole,
            first: 0,
            padded,
            row,
            classes: &classes,
            change: &change,
        });
        let mut scores = vec![T::one(); n_classes];
        score_halves((&weights, padded), row, &classes, &mut scores, &mut Vec::new());
        for (score, change) in scores.iter().zip(&change) {
            assert_eq!(score.widen(), 2.0 * square * change.widen(), "{n_classes} classes");
        }
    }

    #[test]
    fn halves_of_long_rows_come_to_the_whole() {
        for n_classes in [3, 20, 30, 70, 210] {
            check::<f32>(n_classes);
            check::<f64>(n_classes);
        }
    }
}
