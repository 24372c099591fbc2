use std::ops::Range;

use rayon::prelude::*;

use super::FeatureMap;
use crate::data::{Csr, Data, Dense, Real, Rows};
use crate::for_data;
use num_traits::Zero;

use crate::linalg::{Aligned, Element, Panels, SparseRows, Sums, scatter, tile};

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
    tile: usize,
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

/// The map x ↦ (⟨w_j, x̃⟩)_j over the classes, x̃ being x with the constant feature `bias` appended
/// unless that is 0 (Psi = I ⊗ x̃; paper (2.27)).
pub fn linear<'a>(
    data: Data<'a>,
    n_classes: usize,
    bias: f64,
    order: Order,
) -> Box<dyn FeatureMap + 'a> {
    for_data!(data, rows => Box::new(Linear::new(rows, n_classes, bias, order)))
}

/// Weights that a thread adds up at a time.
const SPAN: usize = 1 << 14;

/// What [`Linear`] needs of rows beyond [`Rows`].
trait Kernels: Rows + Send {
    type Value: Element;
    /// Features in a tile of weights for batches.
    fn tile() -> usize;
    fn add_scores(&self, weights: &Panels<Self::Value>, rows: Range<usize>, scores: &mut [f64]);
    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        scratch: &mut Scratch<Self::Value>,
        image: &mut [f64],
    );
}

struct Linear<R: Kernels> {
    rows: R,
    bias: f64,
    layout: Layout,
    panels: Panels<R::Value>,
    /// Scores of the constant feature.
    offsets: Vec<f64>,
    scratch: Scratch<R::Value>,
}

/// What sums of images need.
struct Scratch<T> {
    /// Bounds of the stretches of features that threads add to on their own (sparse rows).
    cuts: Vec<usize>,
    /// A span's sum in single precision (dense rows in single precision).
    partial: Aligned<T>,
}

impl<T: Element> Default for Scratch<T> {
    fn default() -> Self {
        Self { cuts: Vec::new(), partial: Aligned::zeros(0) }
    }
}

impl<R: Kernels> Linear<R> {
    fn new(rows: R, n_classes: usize, bias: f64, order: Order) -> Self {
        let n_features = rows.n_cols() + usize::from(bias != 0.0);
        let tile = match order {
            Order::Batches => R::tile().min(n_features).max(1),
            Order::Examples => 1,
        };
        let panels = Panels::new(rows.n_cols(), n_classes);
        let layout = Layout { n_classes, n_features, tile };
        Self {
            rows,
            bias,
            layout,
            panels,
            offsets: vec![0.0; n_classes],
            scratch: Scratch::default(),
        }
    }

    /// Index of the first weight of the constant feature, and the step to the next class's.
    fn bias_weights(&self) -> impl Fn(usize) -> usize + use<R> {
        let (layout, feature) = (self.layout, self.rows.n_cols());
        move |class| layout.index(feature, class)
    }
}

impl<R: Kernels> FeatureMap for Linear<R> {
    fn n_examples(&self) -> usize {
        self.rows.n_rows()
    }

    fn n_parts(&self) -> usize {
        self.layout.n_classes
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn load(&mut self, weights: &[f64]) {
        let layout = self.layout;
        self.panels.pack(weights, |feature| layout.index(feature, 0), layout.tile);
        if self.bias != 0.0 {
            let index = self.bias_weights();
            for (class, offset) in self.offsets.iter_mut().enumerate() {
                *offset = self.bias * weights[index(class)];
            }
        }
    }

    fn scores(&self, examples: Range<usize>, scores: &mut [f64]) {
        for scores in scores.chunks_exact_mut(self.layout.n_classes) {
            scores.copy_from_slice(&self.offsets);
        }
        self.rows.add_scores(&self.panels, examples, scores);
    }

    fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]) {
        self.rows.add_images(duals, self.layout, &mut self.scratch, image);
        if self.bias != 0.0 {
            let index = self.bias_weights();
            for &(class, value) in duals.entries() {
                image[index(class as usize)] += self.bias * value;
            }
        }
    }

    fn end_span(&mut self, image: &mut [f64]) {
        let partial = &mut self.scratch.partial;
        image.par_chunks_mut(SPAN).zip(partial.par_chunks_mut(SPAN)).for_each(
            |(image, partial)| {
                for (image, partial) in image.iter_mut().zip(partial) {
                    *image += partial.widen();
                    *partial = R::Value::zero();
                }
            },
        );
    }

    fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let n_classes = self.layout.n_classes;
        scores.fill(0.0);
        let mut add = |feature: usize, value: f64| {
            let weights = &weights[feature * n_classes..][..n_classes];
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += value * weight;
            }
        };
        self.rows.visit_row(example, &mut add);
        if self.bias != 0.0 {
            add(self.rows.n_cols(), self.bias);
        }
    }

    fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]) {
        let n_classes = self.layout.n_classes;
        let mut add = |feature: usize, value: f64| {
            let weights = &mut weights[feature * n_classes..][..n_classes];
            for &(class, coefficient) in dual {
                weights[class as usize] += value * coefficient;
            }
        };
        self.rows.visit_row(example, &mut add);
        if self.bias != 0.0 {
            add(self.rows.n_cols(), self.bias);
        }
    }

    fn squared_norm(&self, example: usize) -> f64 {
        let mut norm = self.bias * self.bias;
        self.rows.visit_row(example, |_, value| norm += value * value);
        norm
    }

    fn cost(&self) -> usize {
        self.rows.n_stored().saturating_mul(self.layout.n_classes)
    }
}

impl<T: Sums> Kernels for Dense<'_, T> {
    type Value = T;

    fn tile() -> usize {
        tile::<T>()
    }

    fn add_scores(&self, weights: &Panels<T>, rows: Range<usize>, scores: &mut [f64]) {
        weights.add_scores(self.block(rows.start, rows.end), scores);
    }

    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        scratch: &mut Scratch<T>,
        image: &mut [f64],
    ) {
        let (n_cols, tile) = (self.n_cols(), layout.tile);
        let rows = self.block(duals.first, duals.first + duals.len());
        let image = T::in_place(image).unwrap_or_else(|| {
            if scratch.partial.is_empty() {
                scratch.partial = Aligned::zeros(layout.len());
            }
            &mut scratch.partial
        });
        image.par_chunks_mut(tile * layout.n_classes).enumerate().for_each(|(index, image)| {
            scatter(rows, n_cols, index * tile, duals, image, tile);
        });
    }
}

impl<T: Element> Kernels for Csr<'_, T> {
    type Value = T;

    fn tile() -> usize {
        1
    }

    fn add_scores(&self, weights: &Panels<T>, rows: Range<usize>, scores: &mut [f64]) {
        let n_classes = scores.len() / rows.len().max(1);
        for (row, scores) in rows.zip(scores.chunks_exact_mut(n_classes)) {
            let (columns, values) = self.row(row);
            weights.add_sparse_scores(columns, values, scores);
        }
    }

    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        scratch: &mut Scratch<T>,
        image: &mut [f64],
    ) {
        let cuts = &mut scratch.cuts;
        if cuts.is_empty() {
            *cuts = self.balanced_cuts(rayon::current_num_threads());
        }
        let n_classes = layout.n_classes;
        let mut stretches = Vec::with_capacity(cuts.len());
        let mut rest = image;
        for cut in cuts.windows(2) {
            let (stretch, others) = rest.split_at_mut((cut[1] - cut[0]) * n_classes);
            stretches.push((cut[0] as i32..cut[1] as i32, stretch));
            rest = others;
        }
        stretches.into_par_iter().for_each(|(stretch, image)| {
            for (row, dual) in duals.rows().enumerate().filter(|(_, dual)| !dual.is_empty()) {
                let (columns, values) = self.row(duals.first + row);
                let start = columns.partition_point(|column| *column < stretch.start);
                let end = columns.partition_point(|column| *column < stretch.end);
                for (column, value) in columns[start..end].iter().zip(&values[start..end]) {
                    let image = &mut image[(column - stretch.start) as usize * n_classes..];
                    for &(class, coefficient) in dual {
                        image[class as usize] += coefficient * value.widen();
                    }
                }
            }
        });
    }
}

impl<T: Element> Csr<'_, T> {
    /// Bounds of at most two stretches of columns per thread, each with about as many stored entries.
    fn balanced_cuts(&self, n_threads: usize) -> Vec<usize> {
        let mut counts = vec![0usize; self.n_cols()];
        for row in 0..self.n_rows() {
            self.row(row).0.iter().for_each(|&column| counts[column as usize] += 1);
        }
        let n_stretches = if n_threads > 1 { 2 * n_threads } else { 1 };
        let share = self.n_stored() / n_stretches + 1;
        let (mut cuts, mut sum) = (vec![0], 0);
        for (column, count) in counts.iter().enumerate() {
            sum += count;
            if sum > share * cuts.len() {
                cuts.push(column + 1);
            }
        }
        if cuts.last() != Some(&self.n_cols()) {
            cuts.push(self.n_cols());
        }
        cuts
    }
}
