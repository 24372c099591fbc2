//! The β_i of all examples. Each is stored only for the example's candidate classes.

use crate::data::Real;
use crate::error::Result;
use crate::linalg::Element;
use crate::memory::{check_growth, make_room, refused};

/// Number of classes that are copied at once.
const FEW: usize = 8;
/// Number of classes that are tested together. If none of them is a candidate, all are skipped.
const TOGETHER: usize = 16;

/// Maximum number of candidates that a full epoch adds to an example if there are more than 16 times this many classes.
/// At W = 0 all margins are equal, and without a limit nearly all (example, class) pairs would become candidates. Fits
/// with a thousand classes have no limit, because they would take more epochs with it.
pub(super) const MAX_NEW: usize = 64;

/// For each example, the classes that a visit reads, and their β: all classes with β ≠ 0, and the
/// classes for which raising β promised a gain when all classes were last tested. Most examples
/// have few of either kind.
#[derive(Debug)]
pub(super) struct Candidates<T> {
    starts: Vec<usize>,
    counts: Vec<u32>,
    classes: Vec<u32>,
    values: Vec<T>,
    /// Whether rows were left out because memory ran out.
    cut_short: bool,
}

impl<T: Element> Candidates<T> {
    /// Creates a store with β = 0 for `n_rows` examples, without candidates.
    pub fn new(n_rows: usize) -> Self {
        Self {
            starts: vec![0; n_rows],
            counts: vec![0; n_rows],
            classes: Vec::new(),
            values: Vec::new(),
            cut_short: false,
        }
    }

    /// Returns an error if rows were left out, or if there is no memory for four more copies of the
    /// current candidates: a pass writes them to new storage, which grows by doubling.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::error::Error::Memory).
    pub fn check_memory(&self, n_classes: usize) -> Result<()> {
        let entry = size_of::<u32>() + size_of::<T>();
        let bytes = 4 * entry * self.classes.len();
        let what = || {
            let (n, entries) = (self.starts.len(), self.classes.len());
            format!(
                "the dual variables that are not 0, {entries} so far for n = {n} rows and \
                 m = {n_classes} classes,"
            )
        };
        let remedy = "use fewer rows, fewer classes or a smaller C";
        if self.cut_short {
            return Err(refused(bytes, what, remedy));
        }
        check_growth(bytes, what, remedy)
    }

    /// Reserves memory for more candidates; returns whether that succeeded.
    fn make_room(&mut self, more: usize) -> bool {
        let room = make_room(&mut self.classes, more) && make_room(&mut self.values, more);
        self.cut_short |= !room;
        room
    }

    /// The candidates of a row and their β.
    #[inline]
    pub fn row(&self, at: usize) -> (&[u32], &[T]) {
        let (start, count) = (self.starts[at], self.counts[at] as usize);
        (&self.classes[start..start + count], &self.values[start..start + count])
    }

    /// Copies the candidates of a row; returns their number.
    #[inline(always)]
    pub fn copy_classes(&self, at: usize, out: &mut [u32]) -> usize {
        let (start, count) = (self.starts[at], self.counts[at] as usize);
        // Most rows have few candidates, and a copy of constant length is inlined.
        match (self.classes[start..].first_chunk::<FEW>(), out.first_chunk_mut::<FEW>()) {
            (Some(classes), Some(out)) if count <= FEW => *out = *classes,
            _ => out[..count].copy_from_slice(&self.classes[start..start + count]),
        }
        count
    }

    /// The candidates of a row, and their β, both mutable.
    #[inline]
    pub fn row_mut(&mut self, at: usize) -> (&mut [u32], &mut [T]) {
        let (start, count) = (self.starts[at], self.counts[at] as usize);
        (&mut self.classes[start..start + count], &mut self.values[start..start + count])
    }

    /// Keeps only the first `count` candidates of a row.
    pub fn truncate(&mut self, at: usize, count: usize) {
        self.counts[at] = count as u32;
    }

    /// Replaces a row by the given candidates, at most `n`, which are written at the end of the storage.
    pub fn replace(&mut self, at: usize, n: usize, candidates: impl Iterator<Item = (u32, T)>) {
        let start = self.classes.len();
        (self.starts[at], self.counts[at]) = (start, 0);
        if !self.make_room(n) {
            return;
        }
        for (class, value) in candidates {
            self.classes.push(class);
            self.values.push(value);
        }
        self.counts[at] = (self.classes.len() - start) as u32;
    }

    /// Appends the rows with the indices `places`, whose candidates are given one row after another.
    pub fn append(&mut self, places: &[u32], counts: &[u32], classes: &[u32], values: &[T]) {
        let mut start = self.classes.len();
        if !self.make_room(classes.len()) {
            return;
        }
        for (at, count) in places.iter().zip(counts) {
            (self.starts[*at as usize], self.counts[*at as usize]) = (start, *count);
            start += *count as usize;
        }
        self.classes.extend_from_slice(classes);
        self.values.extend_from_slice(values);
    }

    /// Copies a row of another storage to the end of this one.
    pub fn copy(&mut self, at: usize, other: &Self) {
        let (classes, values) = other.row(at);
        self.append(&[at as u32], &[classes.len() as u32], classes, values);
    }
}

/// Writes the classes whose value is not 0 or whose slope is above the threshold to `found`, in ascending order;
/// returns their number.
#[inline(always)]
pub(super) fn select<T: Real>(
    values: &[T],
    slopes: &[f64],
    threshold: f64,
    found: &mut [u32],
) -> usize {
    let is_found = |value: &T, slope: &f64| (*value != T::zero()) | (*slope > threshold);
    let mut count = 0;
    for (piece, values) in values.chunks(TOGETHER).enumerate() {
        let (first, slopes) = (piece * TOGETHER, &slopes[piece * TOGETHER..]);
        // With chunks of constant length, the compiler vectorises the comparison.
        if let (Some(values), Some(slopes)) =
            (values.first_chunk::<TOGETHER>(), slopes.first_chunk())
            && !values
                .iter()
                .zip::<&[f64; TOGETHER]>(slopes)
                .fold(false, |some, (value, slope)| some | is_found(value, slope))
        {
            continue;
        }
        for (class, (value, slope)) in (first as u32..).zip(values.iter().zip(slopes)) {
            // Written unconditionally, because a branch on the test would often be mispredicted.
            found[count] = class;
            count += usize::from(is_found(value, slope));
        }
    }
    count
}

/// If there are many classes, keeps only the classes in `found` with β > 0 and the [`MAX_NEW`] others with the largest
/// slopes. Moves these classes to the start of `found`, in ascending order, and returns their number. At W = 0 all
/// slopes are equal. Ties go to the classes that follow the label, so that the examples spread over all classes.
pub(super) fn limit_new<T: Element>(
    slopes: &[f64],
    beta: &[T],
    label: usize,
    found: &mut [u32],
) -> usize {
    if slopes.len() <= 16 * MAX_NEW {
        return found.len();
    }
    let rank = |class: u32| {
        (class as usize).checked_sub(label).unwrap_or(class as usize + slopes.len() - label)
    };
    let order = |one: &u32, other: &u32| {
        let slope = |class: u32| slopes[class as usize];
        slope(*other).total_cmp(&slope(*one)).then(rank(*one).cmp(&rank(*other)))
    };
    let mut n = 0;
    for place in 0..found.len() {
        if beta[found[place] as usize] != T::zero() {
            found.swap(n, place);
            n += 1;
        }
    }
    let new = &mut found[n..];
    if new.len() > MAX_NEW {
        new.select_nth_unstable_by(MAX_NEW - 1, order);
    }
    n += new.len().min(MAX_NEW);
    found[..n].sort_unstable();
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: usize = 17 * MAX_NEW;

    #[test]
    fn ties_follow_the_label() {
        let (mut slopes, mut beta) = (vec![1.0; M], vec![0.0; M]);
        (beta[0], slopes[0], slopes[5]) = (0.5, 0.1, 2.0);
        let label = M - 3;
        let mut found: Vec<u32> = (0..M as u32).filter(|class| *class as usize != label).collect();
        let n = limit_new(&slopes, &beta, label, &mut found);
        let last = MAX_NEW as u32 - 2;
        let expected: Vec<u32> = (0..=last).chain([M as u32 - 2, M as u32 - 1]).collect();
        assert_eq!(found[..n], expected);
        let mut few = [0, 3, 7];
        assert_eq!(limit_new(&slopes, &beta, label, &mut few), 3);
        assert_eq!(few, [0, 3, 7]);
        assert_eq!(limit_new(&slopes[1..=16 * MAX_NEW], &beta, 0, &mut found), M - 1);
    }

    #[test]
    fn the_largest_slopes_are_kept() {
        // Each slope occurs two or three times.
        let slopes: Vec<f64> = (0..M).map(|class| (class * 7919 % M / 3) as f64).collect();
        let mut beta = vec![0.0_f32; M];
        (0..M).step_by(100).for_each(|class| beta[class] = 0.1);
        for label in [0, 1, M / 2, M - 1] {
            let mut found: Vec<u32> = (0..M as u32).filter(|c| *c as usize != label).collect();
            let (old, mut new): (Vec<u32>, Vec<u32>) =
                found.iter().partition(|class| beta[**class as usize] > 0.0);
            new.sort_by_key(|class| (*class as usize + M - label) % M);
            new.sort_by(|a, b| slopes[*b as usize].total_cmp(&slopes[*a as usize]));
            let mut expected = [&old[..], &new[..MAX_NEW]].concat();
            expected.sort_unstable();
            let n = limit_new(&slopes, &beta, label, &mut found);
            assert_eq!(found[..n], expected);
        }
    }
}
