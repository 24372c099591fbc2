//! One visit to a sparse row on two threads, each with half of the classes' weights.
//!
//! A class's score and weights do not depend on where the other classes are treated, so that the bits do not depend on
//! the number of threads. Rayon hands the second half over, or does it itself where no other thread is free: on a busy
//! machine nothing waits for a thread that has not begun.

use std::sync::Mutex;

use pulp::Simd;

use super::row::Row;
use super::sparse_kernels::{AddFewSparse, ScoreFewSparse};
use crate::linalg::{Element, Half, Kernel, Lane, SHARED};

/// Whether a visit to some classes is worth two threads, the second of which would have so many classes to choose from.
#[inline(always)]
fn is_worth_it<T: Element>(width: usize, row: Row<'_, T>, classes: &[u32]) -> bool {
    // At most a vector for each class.
    let n_bytes = size_of::<T>() * width.min(classes.len() * 64 / size_of::<T>() / 2);
    row.len() * n_bytes >= SHARED && rayon::current_num_threads() > 1
}

/// Scores of a row for some classes.
#[inline(always)]
pub(super) fn score<S: Simd, T: Element + Lane<S>>(
    simd: S,
    halves: [Half<&[T]>; 2],
    row: Row<'_, T>,
    classes: &[u32],
    scores: &mut [T],
    spare: &Mutex<Vec<T>>,
) {
    let [first, second] = halves;
    if is_worth_it(second.width, row, classes)
        && let Ok(mut spare) = spare.try_lock()
    {
        return score_on_two(halves, row, classes, scores, &mut spare);
    }
    ScoreFewSparse { half: first, row, classes, scores }.compute(simd);
    if second.width > 0 {
        ScoreFewSparse { half: second, row, classes, scores }.compute(simd);
    }
}

#[inline(never)]
fn score_on_two<T: Element>(
    [first, second]: [Half<&[T]>; 2],
    row: Row<'_, T>,
    classes: &[u32],
    scores: &mut [T],
    spare: &mut Vec<T>,
) {
    spare.resize(classes.len().max(spare.len()), T::zero());
    let others = &mut spare[..classes.len()];
    rayon::join(
        || T::dispatch(ScoreFewSparse { half: first, row, classes, scores }),
        || T::dispatch(ScoreFewSparse { half: second, row, classes, scores: others }),
    );
    for ((score, other), class) in scores.iter_mut().zip(others).zip(classes) {
        if *class as usize >= second.first {
            *score = *other;
        }
    }
}

/// Adds `change` times a row to the weights of some classes.
#[inline(always)]
pub(super) fn add<S: Simd, T: Element + Lane<S>>(
    simd: S,
    halves: [Half<&mut [T]>; 2],
    row: Row<'_, T>,
    classes: &[u32],
    change: &[T],
) {
    let [first, second] = halves;
    if is_worth_it(second.width, row, classes) {
        return add_on_two([first, second], row, classes, change);
    }
    AddFewSparse { half: first, row, classes, change }.compute(simd);
    if second.width > 0 {
        AddFewSparse { half: second, row, classes, change }.compute(simd);
    }
}

#[inline(never)]
fn add_on_two<T: Element>(
    [first, second]: [Half<&mut [T]>; 2],
    row: Row<'_, T>,
    classes: &[u32],
    change: &[T],
) {
    rayon::join(
        || T::dispatch(AddFewSparse { half: first, row, classes, change }),
        || T::dispatch(AddFewSparse { half: second, row, classes, change }),
    );
}
