//! The order of the weights of a linear model.

use crate::linalg::transpose;

/// The kind of solver that the weights are ordered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Solvers that read all examples and then change all weights.
    Batches,
    /// Solvers that change the weights of a few classes after each example.
    Examples,
}

/// The order of the weights: tiles of features, stored class by class inside each tile.
///
/// Tiles of one feature give feature-major order, in which the classes of a feature are contiguous.
/// Wide tiles let sums of dense rows stay in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of classes.
    pub n_classes: usize,
    /// Number of features, including the constant feature.
    pub n_features: usize,
    pub(super) tile: usize,
}

impl Layout {
    /// Length of a weight vector, including padding, which is always zero.
    pub fn len(&self) -> usize {
        self.n_features.next_multiple_of(self.tile) * self.n_classes
    }

    /// Whether there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index of the weight of a feature for a class.
    pub fn index(&self, feature: usize, class: usize) -> usize {
        feature / self.tile * self.tile * self.n_classes + class * self.tile + feature % self.tile
    }

    /// Converts weights stored class by class to this order.
    pub fn arrange(&self, by_class: &[f64]) -> Vec<f64> {
        let mut weights = vec![0.0; self.len()];
        if self.tile == 1 {
            transpose(by_class, self.n_features, &mut weights, self.n_classes);
            return weights;
        }
        let tiles = weights.chunks_exact_mut(self.tile * self.n_classes);
        for (first, tile) in (0..self.n_features).step_by(self.tile).zip(tiles) {
            let width = self.tile.min(self.n_features - first);
            let classes = by_class.chunks_exact(self.n_features);
            for (own, weights) in tile.chunks_exact_mut(self.tile).zip(classes) {
                own[..width].copy_from_slice(&weights[first..first + width]);
            }
        }
        weights
    }

    /// Converts weights from this order to weights stored class by class.
    pub fn by_class(&self, weights: &[f64]) -> Vec<f64> {
        let mut by_class = vec![0.0; self.n_classes * self.n_features];
        if self.tile == 1 {
            transpose(weights, self.n_classes, &mut by_class, self.n_features);
            return by_class;
        }
        let tiles = weights.chunks_exact(self.tile * self.n_classes);
        for (first, tile) in (0..self.n_features).step_by(self.tile).zip(tiles) {
            let width = self.tile.min(self.n_features - first);
            let classes = by_class.chunks_exact_mut(self.n_features);
            for (own, weights) in tile.chunks_exact(self.tile).zip(classes) {
                weights[first..first + width].copy_from_slice(&own[..width]);
            }
        }
        by_class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_at_their_index_in_both_orders() {
        for (n_classes, n_features, tile) in [(3, 70, 1), (40, 33, 1), (3, 70, 32), (5, 7, 7)] {
            let layout = Layout { n_classes, n_features, tile };
            let by_class: Vec<f64> = (1..=n_classes * n_features).map(|i| i as f64).collect();
            let weights = layout.arrange(&by_class);
            assert_eq!(weights.len(), layout.len());
            for (at, weight) in by_class.iter().enumerate() {
                assert_eq!(weights[layout.index(at % n_features, at / n_features)], *weight);
            }
            assert_eq!(weights.iter().sum::<f64>(), by_class.iter().sum::<f64>());
            assert_eq!(layout.by_class(&weights), by_class);
        }
    }
}
