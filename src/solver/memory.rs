//! The memory of L-BFGS: recent steps, each with the change of the gradient along it (Liu and Nocedal 1989).

use std::collections::VecDeque;

use crate::data::Real;
use crate::linalg::vectors::{long_axpy, long_dot};

/// The function counts as convex along a step if the cosine of the angle between the step and the
/// change of the gradient is at least this.
const MIN_COSINE: f64 = 1e-10;

/// A step s and the change y of the gradient along it.
pub(crate) struct Pair<T = f64> {
    /// The step s.
    pub step: Vec<T>,
    /// The change y of the gradient.
    pub change: Vec<T>,
    /// The inner product ⟨s, y⟩, which is positive.
    pub curvature: f64,
}

/// The last pairs, from the oldest to the newest.
pub(crate) struct Memory<T = f64> {
    pairs: VecDeque<Pair<T>>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { pairs: VecDeque::new() }
    }
}

impl<T: Real> Memory<T> {
    /// Adds a pair if the function is convex along it; beyond `capacity` pairs, drops the oldest.
    /// Returns whether the pair was added.
    pub fn push(&mut self, step: Vec<T>, change: Vec<T>, capacity: usize) -> bool {
        let curvature = long_dot(&step, &change);
        let squares = long_dot(&step, &step) * long_dot(&change, &change);
        let is_convex = curvature > MIN_COSINE * squares.sqrt();
        if is_convex {
            self.pairs.push_back(Pair { step, change, curvature });
            if self.pairs.len() > capacity {
                self.pairs.pop_front();
            }
        }
        is_convex
    }

    /// Drops the oldest pairs until there is room for another pair.
    pub fn make_room(&mut self, capacity: usize) {
        while self.pairs.len() >= capacity.max(1) {
            self.pairs.pop_front();
        }
    }

    /// The pairs, from the oldest to the newest.
    pub fn pairs(&self) -> &VecDeque<Pair<T>> {
        &self.pairs
    }

    /// The pairs, from the oldest to the newest.
    pub fn into_pairs(self) -> VecDeque<Pair<T>> {
        self.pairs
    }

    /// Removes all pairs.
    pub fn clear(&mut self) {
        self.pairs.clear();
    }

    /// Updates the memory for the function plus `curvature`/2 ‖·‖², and removes the pairs along
    /// which this sum is not convex.
    pub fn add_square(&mut self, curvature: f64) {
        for pair in &mut self.pairs {
            long_axpy(&mut pair.change, curvature, &pair.step);
            pair.curvature = long_dot(&pair.step, &pair.change);
        }
        let is_usable = |inverse: f64| inverse > 0.0 && inverse.is_finite();
        self.pairs.retain(|pair| is_usable(1.0 / pair.curvature));
    }

    /// Computes H v by the two-loop recursion, where H is the inverse of the Hessian approximation. `first` multiplies
    /// by the inverse of the initial Hessian approximation. `divide` divides its two arguments, rounded as the caller
    /// requires.
    pub fn multiply_inverse(
        &self,
        mut v: Vec<T>,
        divide: impl Fn(f64, f64) -> f64,
        first: impl FnOnce(Vec<T>) -> Vec<T>,
    ) -> Vec<T> {
        let mut shares = Vec::with_capacity(self.pairs.len());
        for pair in self.pairs.iter().rev() {
            let share = divide(long_dot(&pair.step, &v), pair.curvature);
            long_axpy(&mut v, -share, &pair.change);
            shares.push(share);
        }
        let mut product = first(v);
        for (pair, share) in self.pairs.iter().zip(shares.into_iter().rev()) {
            let other = divide(long_dot(&pair.change, &product), pair.curvature);
            long_axpy(&mut product, share - other, &pair.step);
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient of the test function Σ (i + 1) x_i² / 2.
    fn bent(x: &[f64]) -> Vec<f64> {
        x.iter().zip(1..).map(|(x, factor)| x * f64::from(factor)).collect()
    }

    fn multiply(memory: &Memory, v: Vec<f64>) -> Vec<f64> {
        memory.multiply_inverse(v, |product, curvature| product / curvature, |v| v)
    }

    #[test]
    fn the_inverse_maps_the_newest_change_to_its_step() {
        let mut memory = Memory::default();
        assert_eq!(multiply(&memory, vec![1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
        let steps = [[1.0, 2.0, -1.0], [0.5, -1.0, 0.25], [3.0, 0.0, 1.0]];
        for (n_pushed, step) in (1..).zip(steps) {
            assert!(memory.push(step.to_vec(), bent(&step), 2));
            assert_eq!(memory.pairs().len(), n_pushed.min(2));
            let found = multiply(&memory, bent(&step));
            assert!(found.iter().zip(step).all(|(f, s)| (f - s).abs() < 1e-12), "{found:?}");
        }
        assert_eq!(memory.pairs()[0].step, steps[1]);
    }

    #[test]
    fn pairs_without_curvature_are_left_out() {
        let mut memory = Memory::default();
        for change in [[-1.0, 0.0], [0.0, 1.0], [f64::NAN, 0.0]] {
            assert!(!memory.push(vec![1.0, 0.0], change.to_vec(), 5));
        }
        assert!(memory.pairs().is_empty());
    }

    #[test]
    fn a_square_changes_the_gradients() {
        let mut memory = Memory::default();
        assert!(memory.push(vec![1.0, 0.0], vec![1.0, 1.0], 5));
        assert!(memory.push(vec![0.0, 2.0], vec![0.0, 6.0], 5));
        memory.add_square(-1.0);
        assert_eq!(memory.pairs().len(), 1);
        assert_eq!(memory.pairs()[0].change, [0.0, 4.0]);
        assert_eq!(memory.pairs()[0].curvature, 8.0);
    }
}
