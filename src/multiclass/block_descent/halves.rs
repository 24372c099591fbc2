//! Long sparse rows on two threads, each with half of the row's features.
//!
//! The halves are the same on one thread, so that the bits do not depend on how many there are.

use std::sync::{Arc, Mutex};

use rayon::join;

use super::row::Row;
use crate::data::{Csr, Data, Real, Rows};
use crate::linalg::Element;
use crate::partner::Partner;

/// Bytes of weights that a row reads from which it is treated in two halves, on two threads where there are two: a
/// microsecond of work, against .12 to hand over half of it.
const HALVED: usize = 1 << 14;

/// Whether a row is treated in two halves, given the bytes of weights it reads. That decides on the order in which
/// scores are added up, and so must not depend on the number of threads.
#[inline(always)]
pub(super) fn is_halved(n_bytes: usize) -> bool {
    n_bytes >= HALVED
}

/// Whether two threads share long rows: those make up half of the entries or more. For rare ones a second thread would
/// wait in vain.
pub fn shares_visits(data: &Data<'_>, n_classes: usize) -> bool {
    match data {
        Data::Csr32(rows) => are_long::<_, f32>(rows, n_classes),
        Data::Csr64(rows) => are_long::<_, f64>(rows, n_classes),
        _ => false,
    }
}

fn are_long<R: Real, T: Element>(rows: &Csr<'_, R>, n_classes: usize) -> bool {
    let n_bytes = n_classes.next_multiple_of(T::lanes()) * size_of::<T>();
    let (mut n_all, mut n_long) = (0, 0);
    for row in 0..rows.n_rows() {
        let n_entries = rows.row(row).0.len();
        n_all += n_entries;
        n_long += if is_halved(n_entries * n_bytes) { n_entries } else { 0 };
    }
    n_long > 0 && 2 * n_long >= n_all
}

/// Does both, on two threads where there are two.
#[inline(always)]
pub(super) fn on_two(first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    if rayon::current_num_threads() > 1 {
        join(first, second);
    } else {
        first();
        second();
    }
}

/// The weights of neighbouring features, one feature after the other.
pub(super) struct Features<'w, T> {
    pub weights: &'w mut [T],
    /// The first feature.
    pub first: usize,
    /// Classes with the padding.
    pub padded: usize,
}

impl<T> Features<'_, T> {
    /// The features before and from `cut`.
    pub fn split(self, cut: usize) -> [Self; 2] {
        let Self { weights, first, padded } = self;
        let (before, after) = weights.split_at_mut((cut - first) * padded);
        [Self { weights: before, first, padded }, Self { weights: after, first: cut, padded }]
    }

    /// The feature behind the last of them.
    #[inline(always)]
    pub fn end(&self) -> usize {
        self.first + self.weights.len() / self.padded
    }
}

/// How the halves of long rows are treated.
#[derive(Debug)]
pub(super) struct Halves<T> {
    /// Who shares them, where that is worth having.
    partner: Option<Arc<Partner>>,
    /// Scores of the second half.
    spare: Mutex<Vec<T>>,
}

impl<T: Element> Halves<T> {
    /// Those of some rows.
    pub fn of<R: Real>(rows: &Csr<'_, R>, n_classes: usize) -> Self {
        Self::new(are_long::<R, T>(rows, n_classes))
    }

    /// Shared by two threads or not.
    pub fn new(shared: bool) -> Self {
        Self { partner: shared.then(Arc::default), spare: Mutex::default() }
    }

    /// The place where another thread may stand by to share them.
    pub fn partner(&self) -> Option<Arc<Partner>> {
        self.partner.clone()
    }

    fn run(&self, first: impl FnOnce(), second: impl FnOnce() + Send) {
        if let Some(partner) = &self.partner {
            partner.join(first, second);
        } else {
            first();
            second();
        }
    }

    /// Scores of a row by what `score` writes for each half of it.
    #[inline(never)]
    pub fn score(
        &self,
        row: Row<'_, T>,
        scores: &mut [T],
        score: impl Fn(Row<'_, T>, &mut [T]) + Sync,
    ) {
        let (mut lock, mut own) = (self.spare.try_lock(), Vec::new());
        // Where several rows are scored at once, the room is another's.
        let spare = lock.as_deref_mut().unwrap_or(&mut own);
        spare.resize(scores.len().max(spare.len()), T::zero());
        let others = &mut spare[..scores.len()];
        let [row, rest] = row.halves();
        self.run(|| score(row, scores), || score(rest, others));
        for (score, other) in scores.iter_mut().zip(others) {
            *score = *score + *other;
        }
    }

    /// Calls `add` with each half of a row and the features that it is in.
    #[inline(never)]
    pub fn add(
        &self,
        features: Features<'_, T>,
        row: Row<'_, T>,
        add: impl Fn(Features<'_, T>, Row<'_, T>) + Sync,
    ) {
        let [row, rest] = row.halves();
        // Columns rise strictly.
        let [before, after] = features.split(rest.columns[0] as usize);
        self.run(|| add(before, row), || add(after, rest));
    }
}

#[cfg(test)]
mod tests {
    use super::super::sparse_kernels::{AddFewSparse, ScoreFewSparse};
    use super::*;

    /// Scores of all classes after two visits, in halves and not, for rows with a constant feature.
    fn check<T: Element>(n_classes: usize) {
        let padded = n_classes.next_multiple_of(T::lanes());
        let columns: Vec<i32> = (0..700).map(|at| 3 * at + 1).collect();
        let values: Vec<T> = (0..700).map(|at| T::narrow((at % 5) as f64 - 2.0)).collect();
        let constant = [T::narrow(3.0)];
        let row = Row { values: &values, columns: &columns, rest: &[], constant: &constant };
        let classes: Vec<u32> = (0..n_classes as u32).rev().collect();
        let (classes, n) = (&classes[..], n_classes);
        let change: Vec<T> = (0..n).map(|at| T::narrow((at % 4) as f64)).collect();
        let square: f64 = values.iter().map(|x| x.widen() * x.widen()).sum::<f64>() + 9.0;
        let mut weights = vec![T::zero(); 2101 * padded];
        let add = |features: Features<'_, T>, row: Row<'_, T>| {
            T::dispatch(AddFewSparse { features, row, classes, change: &change });
        };
        let halves = Halves::new(true);
        halves.add(Features { weights: &mut weights, first: 0, padded }, row, add);
        add(Features { weights: &mut weights, first: 0, padded }, row);
        let mut scores = vec![T::one(); n];
        let weights = &weights[..];
        halves.score(row, &mut scores, |row, scores| {
            T::dispatch(ScoreFewSparse { weights, padded, row, classes, scores });
        });
        for (score, change) in scores.iter().zip(&change) {
            assert_eq!(score.widen(), 2.0 * square * change.widen(), "{n} classes");
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
