//! Weight vectors for sums that write only a few of their entries.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::simd::arch;

/// Number of weights per chunk, the unit that is cleared and read. One mark per chunk takes little
/// memory, and a chunk consists of a few full SIMD vectors.
const CHUNK_WEIGHTS: usize = 32;

/// A vector in weight space that remembers which chunks were written. Computing its norm, adding it
/// to the weights and clearing it therefore cost no more than the writes did.
#[derive(Debug, Clone, Default)]
pub struct TouchedVector {
    values: Vec<f64>,
    touched: Vec<u32>,
    marked: Vec<bool>,
}

impl TouchedVector {
    /// The zero vector.
    pub fn new(n_weights: usize) -> Self {
        let n_chunks = n_weights.div_ceil(CHUNK_WEIGHTS);
        Self { values: vec![0.0; n_weights], touched: Vec::new(), marked: vec![false; n_chunks] }
    }

    /// Sets every value to 0.
    pub fn clear(&mut self) {
        for chunk in self.touched.drain(..) {
            let start = chunk as usize * CHUNK_WEIGHTS;
            let end = (start + CHUNK_WEIGHTS).min(self.values.len());
            self.values[start..end].fill(0.0);
            self.marked[chunk as usize] = false;
        }
    }

    /// The `len` values that begin at `start`; marks them as written.
    #[inline]
    pub fn piece(&mut self, start: usize, len: usize) -> &mut [f64] {
        for chunk in start / CHUNK_WEIGHTS..(start + len).div_ceil(CHUNK_WEIGHTS) {
            if !self.marked[chunk] {
                self.marked[chunk] = true;
                self.touched.push(chunk as u32);
            }
        }
        &mut self.values[start..start + len]
    }

    /// Adds `value` to the value at `index`.
    pub fn add(&mut self, index: usize, value: f64) {
        self.piece(index, 1)[0] += value;
    }

    /// All values of the vector.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The squared norm of this vector.
    pub fn squared_norm(&self) -> f64 {
        arch().dispatch(SquaredNorm(self))
    }

    /// target += scale · this vector.
    pub fn add_to(&self, scale: f64, target: &mut [f64]) {
        arch().dispatch(AddTo { image: self, scale, target });
    }

    /// The index ranges of the chunks that were written.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> {
        self.touched.iter().map(|chunk| {
            let start = *chunk as usize * CHUNK_WEIGHTS;
            start..(start + CHUNK_WEIGHTS).min(self.values.len())
        })
    }
}

struct SquaredNorm<'a>(&'a TouchedVector);

impl WithSimd for SquaredNorm<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let (mut sums, mut rest) = (simd.splat_f64s(0.0), 0.0);
        for chunk in self.0.chunks() {
            let (values, tail) = S::as_simd_f64s(&self.0.values[chunk]);
            for value in values {
                sums = simd.mul_add_e_f64s(*value, *value, sums);
            }
            rest += tail.iter().map(|value| value * value).sum::<f64>();
        }
        simd.reduce_sum_f64s(sums) + rest
    }
}

struct AddTo<'a> {
    image: &'a TouchedVector,
    scale: f64,
    target: &'a mut [f64],
}

impl WithSimd for AddTo<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let scale = simd.splat_f64s(self.scale);
        for chunk in self.image.chunks() {
            let (values, tail) = S::as_simd_f64s(&self.image.values[chunk.clone()]);
            let (target, target_tail) = S::as_mut_simd_f64s(&mut self.target[chunk]);
            for (target, value) in target.iter_mut().zip(values) {
                *target = simd.mul_add_e_f64s(scale, *value, *target);
            }
            for (target, value) in target_tail.iter_mut().zip(tail) {
                *target += self.scale * value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touched_vector_matches_a_dense_vector() {
        let mut image = TouchedVector::new(70);
        image.piece(30, 4).copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        image.add(69, -1.0);
        image.add(31, 0.5);
        let mut target = vec![1.0; 70];
        image.add_to(2.0, &mut target);
        assert_eq!(&target[29..35], [1.0, 3.0, 6.0, 7.0, 9.0, 1.0]);
        assert_eq!((target[69], target.iter().sum::<f64>()), (-1.0, 70.0 + 2.0 * 9.5));
        assert_eq!(image.squared_norm(), 1.0 + 6.25 + 9.0 + 16.0 + 1.0);
        image.clear();
        assert!(image.values().iter().all(|value| *value == 0.0) && image.squared_norm() == 0.0);
        assert_eq!(image.piece(70, 0).len(), 0);
    }
}
