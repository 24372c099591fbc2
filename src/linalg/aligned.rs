//! Buffers that start at a cache line.

use std::ops::{Deref, DerefMut};

use crate::data::Real;

/// Bytes of a cache line: the widest vectors are as wide, and cross lines unless aligned to it.
const LINE: usize = 64;

/// A buffer that starts at a cache line.
#[derive(Debug)]
pub(crate) struct Aligned<T> {
    values: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Real> Aligned<T> {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let values = vec![T::zero(); len + LINE / size_of::<T>()];
        let start = values.as_ptr().align_offset(LINE).min(values.len() - len);
        Self { values, start, len }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.start..self.start + self.len]
    }
}
