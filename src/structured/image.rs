//! Sums in weight space that touch few of many weights.

/// Weights that are cleared and read together.
const CHUNK: usize = 32;

/// A vector in weight space that remembers which pieces of it were written, so that its norm, its sum
/// with the weights and its clearing cost as much as the writing did.
#[derive(Debug, Clone, Default)]
pub struct Image {
    values: Vec<f64>,
    touched: Vec<u32>,
    marked: Vec<bool>,
}

impl Image {
    /// The zero vector.
    pub fn new(n_weights: usize) -> Self {
        let n_chunks = n_weights.div_ceil(CHUNK);
        Self { values: vec![0.0; n_weights], touched: Vec::new(), marked: vec![false; n_chunks] }
    }

    /// Sets every value to 0.
    pub fn clear(&mut self) {
        for chunk in self.touched.drain(..) {
            let start = chunk as usize * CHUNK;
            let end = (start + CHUNK).min(self.values.len());
            self.values[start..end].fill(0.0);
            self.marked[chunk as usize] = false;
        }
    }

    /// The values from `start` on, to be written.
    pub fn piece(&mut self, start: usize, len: usize) -> &mut [f64] {
        if len > 0 {
            for chunk in start / CHUNK..=(start + len - 1) / CHUNK {
                if !self.marked[chunk] {
                    self.marked[chunk] = true;
                    self.touched.push(chunk as u32);
                }
            }
        }
        &mut self.values[start..start + len]
    }

    /// Adds to one value.
    pub fn add(&mut self, index: usize, value: f64) {
        self.piece(index, 1)[0] += value;
    }

    /// The whole vector.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// ‖image‖².
    pub fn squared_norm(&self) -> f64 {
        self.chunks().map(|(_, chunk)| chunk.iter().map(|value| value * value).sum::<f64>()).sum()
    }

    /// target += scale image.
    pub fn add_to(&self, scale: f64, target: &mut [f64]) {
        for (start, chunk) in self.chunks() {
            for (target, value) in target[start..].iter_mut().zip(chunk) {
                *target += scale * value;
            }
        }
    }

    /// The pieces that were written, with the index of their first value.
    fn chunks(&self) -> impl Iterator<Item = (usize, &[f64])> {
        self.touched.iter().map(|chunk| {
            let start = *chunk as usize * CHUNK;
            (start, &self.values[start..(start + CHUNK).min(self.values.len())])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_its_dense_vector() {
        let mut image = Image::new(70);
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
