//! The order of the weights of a linear model.

/// Which solvers the weights are ordered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Solvers that read all examples and then change all weights.
    Batches,
    /// Solvers that change the weights of a few classes after each example.
    Examples,
}

/// Order of the weights: tiles of features, inside a tile class by class.
///
/// A tile of one feature is feature-major order, in which the classes of a feature are contiguous; wide
/// tiles let a sum of dense rows stay in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of classes.
    pub n_classes: usize,
    /// Number of features, the constant one included.
    pub n_features: usize,
    pub(super) tile: usize,
}

impl Layout {
    /// Length of a weight vector, padding included (always zero).
    pub fn len(&self) -> usize {
        self.n_features.next_multiple_of(self.tile) * self.n_classes
    }

    /// Whether there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the weight of a feature for a class is.
    pub fn index(&self, feature: usize, class: usize) -> usize {
        feature / self.tile * self.tile * self.n_classes + class * self.tile + feature % self.tile
    }

    /// Weights in this order from weights class after class.
    pub fn arrange(&self, by_class: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let (mut weights, mut by_class) = (vec![0.0; self.len()], by_class.into_iter());
        for class in 0..self.n_classes {
            for (feature, weight) in (0..self.n_features).zip(&mut by_class) {
                weights[self.index(feature, class)] = weight;
            }
        }
        weights
    }

    /// Weights class after class from weights in this order.
    pub fn by_class(&self, weights: &[f64]) -> impl Iterator<Item = f64> {
        (0..self.n_classes).flat_map(move |class| {
            (0..self.n_features).map(move |feature| weights[self.index(feature, class)])
        })
    }
}
