//! The β_i of all examples. Each is stored only for the example's candidate classes.

use pulp::Simd;

use crate::error::Result;
use crate::linalg::{Element, Kernel, Lane};
use crate::memory::{check_growth, make_room, refused};

/// Number of classes that are copied at once.
const FEW: usize = 8;
/// Number of classes that are tested together. If none of them is a candidate, all are skipped.
const TOGETHER: usize = 16;

/// The classes that a visit to each example reads, and their β: all classes with β ≠ 0, and the classes for which
/// raising β promised a gain when all classes were last tested. Most examples have few of either kind.
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

    /// Returns an error if rows were left out, or if there is no memory for two more copies of the current candidates:
    /// a pass writes them to new storage, which grows by doubling.
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

    /// The index in the storage at which a row starts, for [`Candidates::value`] and the like.
    pub fn start(&self, at: usize) -> usize {
        self.starts[at]
    }

    /// The β at an index of the storage.
    pub fn value(&self, place: usize) -> T {
        self.values[place]
    }

    /// The class at an index of the storage.
    pub fn class(&self, place: usize) -> u32 {
        self.classes[place]
    }

    /// Sets the β at an index of the storage.
    pub fn set(&mut self, place: usize, value: T) {
        self.values[place] = value;
    }

    /// Keeps only the first `count` candidates of a row.
    pub fn truncate(&mut self, at: usize, count: usize) {
        self.counts[at] = count as u32;
    }

    /// Writes a row's β into a dense row of zeros.
    pub fn scatter(&self, at: usize, dense: &mut [T]) {
        let (classes, values) = self.row(at);
        for (class, value) in classes.iter().zip(values) {
            dense[*class as usize] = *value;
        }
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

/// Writes the classes whose value is not 0 or whose target is above the threshold, in ascending order; returns their
/// number.
pub(super) struct Select<'a, T> {
    pub values: &'a [T],
    pub targets: &'a [f64],
    pub threshold: f64,
    /// Room for all classes.
    pub found: &'a mut [u32],
}

impl<T: Element> Kernel<T> for Select<'_, T> {
    type Output = usize;

    #[inline(always)]
    fn compute<S: Simd>(self, _: S) -> usize
    where
        T: Lane<S>,
    {
        let Self { values, targets, threshold, found } = self;
        let is_found = |value: &T, target: &f64| (*value != T::zero()) | (*target > threshold);
        let mut count = 0;
        for (piece, values) in values.chunks(TOGETHER).enumerate() {
            let first = piece * TOGETHER;
            let targets = &targets[first..];
            if let (Some(values), Some(targets)) =
                (values.first_chunk::<TOGETHER>(), targets.first_chunk::<TOGETHER>())
                && !values
                    .iter()
                    .zip(targets)
                    .fold(false, |some, (value, target)| some | is_found(value, target))
            {
                continue;
            }
            for (class, (value, target)) in (first as u32..).zip(values.iter().zip(targets)) {
                // Written unconditionally, because a branch on the test would often be mispredicted.
                found[count] = class;
                count += usize::from(is_found(value, target));
            }
        }
        count
    }
}
