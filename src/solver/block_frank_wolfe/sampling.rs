//! Random sampling of blocks.

/// A list of numbers from which an index can be drawn with a probability proportional to its number. The list is stored
/// as a complete binary tree of sums, in which changing a number and drawing an index take O(log n) time each.
#[derive(Debug, Clone)]
pub struct SumTree {
    leaves: usize,
    sums: Vec<f64>,
}

impl SumTree {
    /// A list of `len` zeros.
    pub fn new(len: usize) -> Self {
        let leaves = len.next_power_of_two().max(1);
        Self { leaves, sums: vec![0.0; 2 * leaves] }
    }

    /// The sum of all numbers.
    pub fn total(&self) -> f64 {
        self.sums[1]
    }

    /// The number at `index`.
    pub fn get(&self, index: usize) -> f64 {
        self.sums[self.leaves + index]
    }

    /// Sets the number at `index`, which must not be negative.
    pub fn set(&mut self, index: usize, value: f64) {
        let mut node = self.leaves + index;
        self.sums[node] = value;
        while node > 1 {
            node /= 2;
            // Sums are recomputed rather than adjusted, so that rounding errors do not accumulate.
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1];
        }
    }

    /// The first index at which the running sum exceeds `share` of the total, with 0 ≤ share < 1.
    /// None if all numbers are 0.
    pub fn find(&self, share: f64) -> Option<usize> {
        let total = self.total();
        if total <= 0.0 {
            return None;
        }
        let mut rest = share * total;
        let mut node = 1;
        while node < self.leaves {
            let left = self.sums[2 * node];
            // Never enter a branch whose sum is 0: rounding could lead there.
            let go_left = rest < left || self.sums[2 * node + 1] <= 0.0;
            if !go_left {
                rest -= left;
            }
            node = 2 * node + usize::from(!go_left);
        }
        Some(node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_proportional_to_the_numbers() {
        let mut tree = SumTree::new(5);
        assert_eq!(tree.find(0.5), None);
        let values = [1.0, 0.0, 2.0, 4.0, 1.0];
        for (index, value) in values.iter().enumerate() {
            tree.set(index, *value);
        }
        let mut counts = [0; 5];
        for draw in 0..80 {
            counts[tree.find(f64::from(draw) / 80.0).unwrap()] += 1;
        }
        assert_eq!(counts, [10, 0, 20, 40, 10]);
        assert_eq!(tree.find(1.0 - f64::EPSILON), Some(4));
        tree.set(4, 0.0);
        assert_eq!((tree.total(), tree.get(3)), (7.0, 4.0));
    }
}
