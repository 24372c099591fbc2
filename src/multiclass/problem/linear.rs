//! The linear map of multi-category models: x ↦ (⟨w_j, x̃⟩)_j, and its adjoint.

use std::ops::Range;

use half::f16;

use super::map::{RowSize, ScoreMap};
use super::row_stats::RowStats;
use super::{Layout, Order};
use crate::data::{Csr, Data, Dense, Real, Rows};
use crate::error::Result;
use crate::for_data;
use crate::linalg::{Element, Panels, SparseRows, TILE, Widened, scatter, sparse};
use crate::parallel::{for_items, min_len, split_at};

/// The map A_i w = (⟨w_j, x̃_i⟩)_j over the classes, and its adjoint. x̃ is x with the constant
/// feature `bias` appended, unless `bias` is 0. Weights are a flat vector in the order of
/// [`Linear::layout`].
pub struct Linear<'a> {
    data: Data<'a>,
    bias: f64,
    layout: Layout,
    /// The scores of the constant feature at the loaded weights.
    offsets: Vec<f64>,
    kind: RowKind<'a>,
    /// The loaded weights in double precision, for rows below double precision.
    exact: Panels<f64>,
    stats: RowStats,
}

/// The rows in the form that their kernels read, and buffers.
enum RowKind<'a> {
    Dense16(Map<Dense<'a, f16>, f32>),
    Dense32(Map<Dense<'a, f32>, f32>),
    Dense64(Map<Dense<'a, f64>, f64>),
    Csr32(Map<Csr<'a, f32>, f32>),
    Csr64(Map<Csr<'a, f64>, f64>),
}

struct Map<R, T> {
    rows: R,
    panels: Panels<T>,
    scratch: ImageBuffers,
}

/// Evaluates `$body` with `$map` bound to the [`Map`] inside a [`RowKind`].
macro_rules! for_kind {
    ($kind:expr, $map:ident => $body:expr) => {
        match $kind {
            RowKind::Dense16($map) => $body,
            RowKind::Dense32($map) => $body,
            RowKind::Dense64($map) => $body,
            RowKind::Csr32($map) => $body,
            RowKind::Csr64($map) => $body,
        }
    };
}

/// The kernels of [`Linear`] for one type of rows.
trait Kernels<T>: Rows + Send {
    fn add_scores(&self, weights: &Panels<T>, rows: Range<usize>, scores: &mut [f64]);
    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        scratch: &mut ImageBuffers,
        image: &mut [f64],
    );
}

/// Buffers for sums of images.
#[derive(Default)]
struct ImageBuffers {
    /// For sparse rows: the bounds of the feature ranges, each of which is updated by one thread.
    cuts: Vec<usize>,
    /// For dense rows in half precision: the rows in double precision.
    rows: Vec<f64>,
}

impl<R: Rows, T: Element> Map<R, T> {
    fn new(rows: R, n_classes: usize) -> Self {
        let panels = Panels::new(rows.n_cols(), n_classes);
        Self { rows, panels, scratch: ImageBuffers::default() }
    }
}

impl<'a> Linear<'a> {
    /// Creates the map of the given rows, with its weights ordered for a kind of solver.
    pub fn new(data: Data<'a>, n_classes: usize, bias: f64, order: Order) -> Self {
        Self::with_stats(data, n_classes, order, bias, RowStats::of(&data, bias, false))
    }

    /// Creates a map that also has a [`Linear::digest`], which is computed in the same pass as the row statistics to
    /// save time.
    pub fn digested(data: Data<'a>, n_classes: usize, bias: f64, order: Order) -> Self {
        Self::with_stats(data, n_classes, order, bias, RowStats::of(&data, bias, true))
    }

    fn with_stats(
        data: Data<'a>,
        n_classes: usize,
        order: Order,
        bias: f64,
        stats: RowStats,
    ) -> Self {
        let kind = match data {
            Data::Dense16(rows) => RowKind::Dense16(Map::new(rows, n_classes)),
            Data::Dense32(rows) => RowKind::Dense32(Map::new(rows, n_classes)),
            Data::Dense64(rows) => RowKind::Dense64(Map::new(rows, n_classes)),
            Data::Csr32(rows) => RowKind::Csr32(Map::new(rows, n_classes)),
            Data::Csr64(rows) => RowKind::Csr64(Map::new(rows, n_classes)),
        };
        let n_features = data.n_cols() + usize::from(bias != 0.0);
        let tile = match (order, &data) {
            (Order::Batches, Data::Dense16(_) | Data::Dense32(_) | Data::Dense64(_)) => {
                TILE.min(n_features).max(1)
            }
            _ => 1,
        };
        let layout = Layout { n_classes, n_features, tile };
        let (exact, offsets) = (Panels::new(0, 0), vec![0.0; n_classes]);
        Self { data, bias, layout, offsets, kind, exact, stats }
    }

    /// Returns an error if the rows contain a number that is not finite.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) naming the first such number.
    pub fn require_finite(&self) -> Result<()> {
        self.stats.broken.map_or(Ok(()), |row| Err(self.data.not_finite(row)))
    }

    /// `Data::digest` of the rows just before the map read them. None for sparse rows, and for a map that was not
    /// created by [`Linear::digested`].
    pub fn digest(&self) -> Option<u64> {
        self.stats.digest
    }

    /// The rows, without the constant feature.
    pub fn data(&self) -> Data<'a> {
        self.data
    }

    /// The constant feature; 0 for none.
    pub fn bias(&self) -> f64 {
        self.bias
    }

    /// The order of the weights.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    fn load_offsets(&mut self, weights: &[f64]) {
        let layout = self.layout;
        if self.bias != 0.0 {
            let constant = self.data.n_cols();
            for (class, offset) in self.offsets.iter_mut().enumerate() {
                *offset = self.bias * weights[layout.index(constant, class)];
            }
        }
    }

    /// Appends x̃_i to `rows`, including zeros and the constant feature.
    pub fn append_row(&self, example: usize, rows: &mut Vec<f64>) {
        let start = rows.len();
        rows.resize(start + self.layout.n_features, 0.0);
        self.visit(example, |feature, value| rows[start + feature] += value);
    }

    /// ‖x̃_i‖². The squared norm ‖A_iᵀ δ‖² is this value times ‖δ‖².
    pub fn squared_norm(&self, example: usize) -> f64 {
        let mut norm = self.bias * self.bias;
        for_data!(self.data, rows => rows.visit_row(example, |_, value| norm += value * value));
        norm
    }

    /// Calls `visit(feature, value)` for the features of an example, the constant feature last.
    #[inline(always)]
    fn visit(&self, example: usize, mut visit: impl FnMut(usize, f64)) {
        for_data!(self.data, rows => rows.visit_row(example, &mut visit));
        if self.bias != 0.0 {
            visit(self.data.n_cols(), self.bias);
        }
    }
}

impl ScoreMap for Linear<'_> {
    fn n_examples(&self) -> usize {
        self.data.n_rows()
    }

    fn n_classes(&self) -> usize {
        self.layout.n_classes
    }

    fn n_weights(&self) -> usize {
        self.layout.len()
    }

    fn cost(&self) -> usize {
        for_data!(self.data, rows => rows.n_stored()).saturating_mul(self.layout.n_classes)
    }

    fn load(&mut self, weights: &[f64]) {
        let layout = self.layout;
        let start = |feature| layout.index(feature, 0);
        for_kind!(&mut self.kind, map => map.panels.pack(weights, start, layout.tile));
        self.load_offsets(weights);
    }

    fn load_exact(&mut self, weights: &[f64]) {
        if matches!(self.kind, RowKind::Dense64(_) | RowKind::Csr64(_)) {
            return self.load(weights);
        }
        let layout = self.layout;
        if self.exact.is_empty() {
            self.exact = Panels::new(self.data.n_cols(), layout.n_classes);
        }
        self.exact.pack(weights, |feature| layout.index(feature, 0), layout.tile);
        self.load_offsets(weights);
    }

    fn scores(&self, examples: Range<usize>, scores: &mut [f64]) {
        for scores in scores.chunks_exact_mut(self.layout.n_classes) {
            scores.copy_from_slice(&self.offsets);
        }
        for_kind!(&self.kind, map => map.rows.add_scores(&map.panels, examples, scores));
    }

    fn exact_scores(&self, examples: Range<usize>, buffer: &mut Vec<f64>, scores: &mut [f64]) {
        if let RowKind::Dense64(_) | RowKind::Csr64(_) = &self.kind {
            return self.scores(examples, scores);
        }
        let n_classes = self.layout.n_classes;
        for scores in scores.chunks_exact_mut(n_classes) {
            scores.copy_from_slice(&self.offsets);
        }
        match self.data {
            Data::Dense16(rows) => {
                copy_in(rows.block(examples.start, examples.end), buffer);
                self.exact.add_scores(buffer, scores);
            }
            Data::Dense32(rows) => {
                let rows = Widened::in_double(rows.block(examples.start, examples.end), buffer);
                self.exact.add_scores(rows, scores);
            }
            Data::Csr32(rows) => {
                for (row, scores) in examples.zip(scores.chunks_exact_mut(n_classes)) {
                    let (columns, values) = rows.row(row);
                    let values = Widened::in_double(values, buffer);
                    self.exact.add_sparse_scores(columns, values, scores);
                }
            }
            Data::Dense64(_) | Data::Csr64(_) => {}
        }
    }

    fn epsilon(&self) -> f64 {
        match self.kind {
            RowKind::Dense16(_) | RowKind::Dense32(_) | RowKind::Csr32(_) => {
                f64::from(f32::EPSILON)
            }
            RowKind::Dense64(_) | RowKind::Csr64(_) => f64::EPSILON,
        }
    }

    fn row_size(&self, example: usize) -> RowSize {
        self.stats.sizes[example]
    }

    fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]) {
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

    fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let Layout { n_classes, tile, .. } = self.layout;
        scores.fill(0.0);
        if tile == 1 {
            // This is the inner loop of block solvers, so it must not divide by the tile or check
            // each class.
            self.visit(example, |feature, value| {
                let weights = &weights[feature * n_classes..][..n_classes];
                scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w);
            });
        } else {
            self.visit(example, |feature, value| {
                let weights = weights[self.layout.index(feature, 0)..].iter().step_by(tile);
                scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w);
            });
        }
    }

    fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]) {
        let Layout { n_classes, tile, .. } = self.layout;
        if tile == 1 {
            self.visit(example, |feature, value| {
                let weights = &mut weights[feature * n_classes..][..n_classes];
                for &(class, coefficient) in dual {
                    weights[class as usize] += value * coefficient;
                }
            });
        } else {
            self.visit(example, |feature, value| {
                let weights = &mut weights[self.layout.index(feature, 0)..];
                for &(class, coefficient) in dual {
                    weights[class as usize * tile] += value * coefficient;
                }
            });
        }
    }

    fn image_norm(&self, example: usize, dual: &[(u32, f64)]) -> f64 {
        self.squared_norm(example) * sparse::squared_norm(dual)
    }

    fn add_spread(&self, example: usize, dual: &[(u32, f64)], scores: &mut [f64]) {
        let square = self.squared_norm(example);
        dual.iter().for_each(|&(class, value)| scores[class as usize] += square * value);
    }
}

impl<T: Widened> Kernels<T> for Dense<'_, T> {
    fn add_scores(&self, weights: &Panels<T>, rows: Range<usize>, scores: &mut [f64]) {
        weights.add_scores(self.block(rows.start, rows.end), scores);
    }

    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        _: &mut ImageBuffers,
        image: &mut [f64],
    ) {
        let rows = self.block(duals.first, duals.first + duals.len());
        scatter_tiles(rows, self.n_cols(), duals, layout, image);
    }
}

/// Adds the images of a block of dense rows, one tile of the image at a time. The sums are in double precision, because
/// sums in single precision would have too large an error bound for a useful certificate.
fn scatter_tiles<T: Element>(
    rows: &[T],
    n_cols: usize,
    duals: &SparseRows,
    layout: Layout,
    image: &mut [f64],
) {
    let tile = layout.tile;
    let tiles = image.chunks_mut(tile * layout.n_classes).enumerate();
    for_items(tiles, min_len(tile * duals.entries().len()), |(index, image)| {
        scatter(rows, n_cols, index * tile, duals, image, tile);
    });
}

/// Converts rows in half precision to precision T.
fn copy_in<T: Real>(values: &[f16], copied: &mut Vec<T>) {
    copied.clear();
    f16::append_to(values, copied);
}

impl Kernels<f32> for Dense<'_, f16> {
    fn add_scores(&self, weights: &Panels<f32>, rows: Range<usize>, scores: &mut [f64]) {
        let mut copied = Vec::new();
        copy_in(self.block(rows.start, rows.end), &mut copied);
        weights.add_scores(&copied, scores);
    }

    fn add_images(
        &self,
        duals: &SparseRows,
        layout: Layout,
        scratch: &mut ImageBuffers,
        image: &mut [f64],
    ) {
        copy_in(self.block(duals.first, duals.first + duals.len()), &mut scratch.rows);
        scatter_tiles(&scratch.rows, self.n_cols(), duals, layout, image);
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
        scratch: &mut ImageBuffers,
        image: &mut [f64],
    ) {
        let cuts = &mut scratch.cuts;
        if cuts.is_empty() {
            // Two tasks per thread, so that a thread that finishes early can start another task.
            let n_threads = rayon::current_num_threads();
            *cuts = self.balanced_cuts(if n_threads > 1 { 2 * n_threads } else { 1 });
        }
        let n_classes = layout.n_classes;
        let stretches = split_at(image, n_classes, cuts);
        // Average number of values that a range changes.
        let per_entry = self.n_stored() / self.n_rows().max(1);
        let n_numbers = duals.entries().len() * per_entry / stretches.len().max(1);
        for_items(stretches, min_len(n_numbers), |(stretch, image)| {
            let stretch = stretch.start as i32..stretch.end as i32;
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
