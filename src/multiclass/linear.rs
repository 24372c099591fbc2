//! The linear map of multi-category models: x ↦ (⟨w_j, x̃⟩)_j, and its adjoint.

use std::ops::Range;

use rayon::prelude::*;

use super::{Layout, Order};
use crate::data::{Csr, Data, Dense, Rows};
use crate::for_data;
use crate::linalg::{Aligned, Element, Panels, SparseRows, Sums, scatter, tile};

/// The map A_i w = (⟨w_j, x̃_i⟩)_j over the classes, x̃ being x with the constant feature `bias` appended
/// unless that is 0, and its adjoint. Weights are a flat vector in the order of [`Linear::layout`].
pub struct Linear<'a> {
    data: Data<'a>,
    bias: f64,
    layout: Layout,
    /// The scores of the constant feature at the loaded weights.
    offsets: Vec<f64>,
    kind: Kind<'a>,
}

/// The rows as their kernels take them, with the scratch memory of those.
enum Kind<'a> {
    Dense32(Map<Dense<'a, f32>, f32>),
    Dense64(Map<Dense<'a, f64>, f64>),
    Csr32(Map<Csr<'a, f32>, f32>),
    Csr64(Map<Csr<'a, f64>, f64>),
}

struct Map<R, T> {
    rows: R,
    panels: Panels<T>,
    scratch: Scratch<T>,
}

/// Evaluates `$body` with `$map` bound to the [`Map`] inside a [`Kind`].
macro_rules! for_kind {
    ($kind:expr, $map:ident => $body:expr) => {
        match $kind {
            Kind::Dense32($map) => $body,
            Kind::Dense64($map) => $body,
            Kind::Csr32($map) => $body,
            Kind::Csr64($map) => $body,
        }
    };
}

/// Weights that a thread adds up at a time.
const SPAN: usize = 1 << 14;

/// What [`Linear`] needs of rows beyond [`Rows`].
trait Kernels<T>: Rows + Send {
    fn add_scores(&self, weights: &Panels<T>, rows: Range<usize>, scores: &mut [f64]);
    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        scratch: &mut Scratch<T>,
        image: &mut [f64],
    );
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

impl<R: Rows, T: Element> Map<R, T> {
    fn new(rows: R, n_classes: usize) -> Self {
        let panels = Panels::new(rows.n_cols(), n_classes);
        Self { rows, panels, scratch: Scratch::default() }
    }
}

impl<'a> Linear<'a> {
    /// The map of the given rows, its weights ordered for a kind of solvers.
    pub fn new(data: Data<'a>, n_classes: usize, bias: f64, order: Order) -> Self {
        let kind = match data {
            Data::Dense32(rows) => Kind::Dense32(Map::new(rows, n_classes)),
            Data::Dense64(rows) => Kind::Dense64(Map::new(rows, n_classes)),
            Data::Csr32(rows) => Kind::Csr32(Map::new(rows, n_classes)),
            Data::Csr64(rows) => Kind::Csr64(Map::new(rows, n_classes)),
        };
        let n_features = data.n_cols() + usize::from(bias != 0.0);
        let tile = match (order, &data) {
            (Order::Batches, Data::Dense32(_)) => tile::<f32>().min(n_features).max(1),
            (Order::Batches, Data::Dense64(_)) => tile::<f64>().min(n_features).max(1),
            _ => 1,
        };
        let layout = Layout { n_classes, n_features, tile };
        Self { data, bias, layout, offsets: vec![0.0; n_classes], kind }
    }

    /// The rows, without the constant feature.
    pub fn data(&self) -> Data<'a> {
        self.data
    }

    /// The constant feature; 0 is none.
    pub fn bias(&self) -> f64 {
        self.bias
    }

    /// Number of examples.
    pub fn n_examples(&self) -> usize {
        self.data.n_rows()
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        self.layout.n_classes
    }

    /// How weights are ordered.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Multiplications of one pass of scores.
    pub fn cost(&self) -> usize {
        for_data!(self.data, rows => rows.n_stored()).saturating_mul(self.layout.n_classes)
    }

    /// Takes a copy of the weights in the form that [`Linear::scores`] reads.
    pub fn load(&mut self, weights: &[f64]) {
        let layout = self.layout;
        let start = |feature| layout.index(feature, 0);
        for_kind!(&mut self.kind, map => map.panels.pack(weights, start, layout.tile));
        if self.bias != 0.0 {
            let constant = self.data.n_cols();
            for (class, offset) in self.offsets.iter_mut().enumerate() {
                *offset = self.bias * weights[layout.index(constant, class)];
            }
        }
    }

    /// A_i w of the loaded weights for each of the examples, one row each.
    pub fn scores(&self, examples: Range<usize>, scores: &mut [f64]) {
        for scores in scores.chunks_exact_mut(self.layout.n_classes) {
            scores.copy_from_slice(&self.offsets);
        }
        for_kind!(&self.kind, map => map.rows.add_scores(&map.panels, examples, scores));
    }

    /// image += Σ_i A_iᵀ δ_i over a run of examples, in parallel over the weights. The sum is complete
    /// after [`Linear::end_span`].
    pub fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]) {
        let layout = self.layout;
        for_kind!(&mut self.kind, map => {
            map.rows.add_images(duals, layout, &mut map.scratch, image)
        });
        if self.bias != 0.0 {
            let constant = self.data.n_cols();
            for &(class, value) in duals.entries() {
                image[layout.index(constant, class as usize)] += self.bias * value;
            }
        }
    }

    /// Ends a span of examples whose images may have been summed in single precision.
    pub fn end_span(&mut self, image: &mut [f64]) {
        for_kind!(&mut self.kind, map => map.scratch.flush(image));
    }

    /// A_i w of one example for the given weights.
    pub fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let layout = self.layout;
        scores.fill(0.0);
        self.visit(example, |feature, value| {
            let weights = &weights[layout.index(feature, 0)..];
            match layout.tile {
                1 => scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w),
                tile => {
                    let weights = weights.iter().step_by(tile);
                    scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w);
                }
            }
        });
    }

    /// weights += A_iᵀ δ for one example, δ as (class, value) pairs.
    pub fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]) {
        let layout = self.layout;
        self.visit(example, |feature, value| {
            let weights = &mut weights[layout.index(feature, 0)..];
            for &(class, coefficient) in dual {
                weights[class as usize * layout.tile] += value * coefficient;
            }
        });
    }

    /// ‖x̃_i‖²: ‖A_iᵀ δ‖² is this times ‖δ‖².
    pub fn squared_norm(&self, example: usize) -> f64 {
        let mut norm = self.bias * self.bias;
        for_data!(self.data, rows => rows.visit_row(example, |_, value| norm += value * value));
        norm
    }

    /// Calls `visit(feature, value)` for the features of an example, the constant one last.
    #[inline(always)]
    fn visit(&self, example: usize, mut visit: impl FnMut(usize, f64)) {
        for_data!(self.data, rows => rows.visit_row(example, &mut visit));
        if self.bias != 0.0 {
            visit(self.data.n_cols(), self.bias);
        }
    }
}

impl<T: Element> Scratch<T> {
    /// Adds the sum in single precision to the image, and starts a new one.
    fn flush(&mut self, image: &mut [f64]) {
        let partial = &mut self.partial;
        image.par_chunks_mut(SPAN).zip(partial.par_chunks_mut(SPAN)).for_each(
            |(image, partial)| {
                for (image, partial) in image.iter_mut().zip(partial) {
                    *image += partial.widen();
                    *partial = T::zero();
                }
            },
        );
    }
}

impl<T: Sums> Kernels<T> for Dense<'_, T> {
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

impl<T: Element> Kernels<T> for Csr<'_, T> {
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
