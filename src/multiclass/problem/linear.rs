//! The linear map of multi-category models: x ↦ (⟨w_j, x̃⟩)_j, and its adjoint.

use std::ops::Range;

use super::map::{RowSize, ScoreMap};
use super::row_stats::RowStats;
use super::{Layout, Order};
use crate::data::{Csr, Data, Real, Rows, read_in};
use crate::error::Result;
use crate::linalg::{Design, Element, Packed, SparseRows, TILE, scatter, sparse};
use crate::parallel::{for_items, min_len, split_at};

/// The map A_i w = (⟨w_j, x̃_i⟩)_j over the classes, and its adjoint. x̃ is x with the constant
/// feature `bias` appended, unless `bias` is 0. Weights are a flat vector in the order of
/// [`Linear::layout`].
pub struct Linear<'a> {
    design: Design<'a>,
    layout: Layout,
    /// The weights of [`ScoreMap::load`] in single precision, unless the rows are in double precision.
    singles: Option<Packed<f32>>,
    /// The weights of [`ScoreMap::load_exact`]; also those of [`ScoreMap::load`] if the rows are in double precision.
    doubles: Option<Packed<f64>>,
    buffers: ImageBuffers,
    stats: RowStats,
}

/// Buffers for sums of images.
#[derive(Default)]
struct ImageBuffers {
    /// For sparse rows: the bounds of the feature ranges, each of which is updated by one thread.
    cuts: Vec<usize>,
    /// For dense rows in half precision: the rows in double precision.
    rows: Vec<f64>,
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
        let design = Design { data, bias };
        let n_features = design.n_features();
        let has_tiles = order == Order::Batches && !data.is_sparse();
        let tile = if has_tiles { TILE.min(n_features).max(1) } else { 1 };
        let layout = Layout { n_classes, n_features, tile };
        let buffers = ImageBuffers::default();
        Self { design, layout, singles: None, doubles: None, buffers, stats }
    }

    /// Returns an error if the rows contain a number that is not finite.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::Error::InvalidArgument) naming the first such number.
    pub fn require_finite(&self) -> Result<()> {
        self.stats.broken.map_or(Ok(()), |row| Err(self.design.data.not_finite(row)))
    }

    /// `Data::digest` of the rows just before the map read them. None for sparse rows, and for a map that was not
    /// created by [`Linear::digested`].
    pub fn digest(&self) -> Option<u64> {
        self.stats.digest
    }

    /// The rows and their constant feature.
    pub fn design(&self) -> Design<'a> {
        self.design
    }

    /// The order of the weights.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether the rows are stored in double precision.
    fn is_double(&self) -> bool {
        matches!(self.design.data, Data::Dense64(_) | Data::Csr64(_))
    }
}

/// Packs weights in the order of a layout.
fn load<T: Element>(
    packed: &mut Option<Packed<T>>,
    (design, layout): (Design<'_>, Layout),
    weights: &[f64],
) {
    let packed = packed.get_or_insert_with(|| design.packed(layout.n_classes));
    design.load(packed, weights, |feature| layout.index(feature, 0), layout.tile);
}

/// Writes the scores of examples at packed weights, or 0 if none are packed.
fn score<T: Element>(
    packed: Option<&Packed<T>>,
    design: Design<'_>,
    examples: Range<usize>,
    buffer: &mut Vec<T>,
    scores: &mut [f64],
) {
    match packed {
        Some(packed) => _ = design.scores(packed, examples, buffer, scores),
        None => scores.fill(0.0),
    }
}

impl ScoreMap for Linear<'_> {
    fn n_examples(&self) -> usize {
        self.design.n_rows()
    }

    fn n_classes(&self) -> usize {
        self.layout.n_classes
    }

    fn n_weights(&self) -> usize {
        self.layout.len()
    }

    fn cost(&self) -> usize {
        self.design.n_stored().saturating_mul(self.layout.n_classes)
    }

    fn load(&mut self, weights: &[f64]) {
        if self.is_double() {
            return self.load_exact(weights);
        }
        load(&mut self.singles, (self.design, self.layout), weights);
    }

    fn load_exact(&mut self, weights: &[f64]) {
        load(&mut self.doubles, (self.design, self.layout), weights);
    }

    fn scores(&self, examples: Range<usize>, scores: &mut [f64]) {
        if self.is_double() {
            return self.exact_scores(examples, &mut Vec::new(), scores);
        }
        score(self.singles.as_ref(), self.design, examples, &mut Vec::new(), scores);
    }

    fn exact_scores(&self, examples: Range<usize>, buffer: &mut Vec<f64>, scores: &mut [f64]) {
        score(self.doubles.as_ref(), self.design, examples, buffer, scores);
    }

    fn epsilon(&self) -> f64 {
        if self.is_double() { f64::EPSILON } else { f64::from(f32::EPSILON) }
    }

    fn row_size(&self, example: usize) -> RowSize {
        self.stats.sizes[example]
    }

    fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]) {
        let (layout, Design { data, bias }) = (self.layout, self.design);
        let ImageBuffers { cuts, rows } = &mut self.buffers;
        let (start, end) = (duals.first, duals.first + duals.len());
        match data {
            Data::Dense16(x) => {
                let x = read_in::<_, f64>(x.block(start, end), rows);
                add_dense_images((x, data.n_cols()), duals, layout, image);
            }
            Data::Dense32(x) => {
                add_dense_images((x.block(start, end), x.n_cols()), duals, layout, image);
            }
            Data::Dense64(x) => {
                add_dense_images((x.block(start, end), x.n_cols()), duals, layout, image);
            }
            Data::Csr32(x) => add_sparse_images(x, duals, layout.n_classes, cuts, image),
            Data::Csr64(x) => add_sparse_images(x, duals, layout.n_classes, cuts, image),
        }
        if bias != 0.0 {
            let constant = data.n_cols();
            for &(class, value) in duals.entries() {
                image[layout.index(constant, class as usize)] += bias * value;
            }
        }
    }

    fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let Layout { n_classes, tile, .. } = self.layout;
        scores.fill(0.0);
        if tile == 1 {
            // This is the inner loop of block solvers, so it must not divide by the tile or check
            // each class.
            self.design.visit_row(example, |feature, value| {
                let weights = &weights[feature * n_classes..][..n_classes];
                scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w);
            });
        } else {
            self.design.visit_row(example, |feature, value| {
                let weights = weights[self.layout.index(feature, 0)..].iter().step_by(tile);
                scores.iter_mut().zip(weights).for_each(|(score, w)| *score += value * w);
            });
        }
    }

    fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]) {
        let Layout { n_classes, tile, .. } = self.layout;
        if tile == 1 {
            self.design.visit_row(example, |feature, value| {
                let weights = &mut weights[feature * n_classes..][..n_classes];
                for &(class, coefficient) in dual {
                    weights[class as usize] += value * coefficient;
                }
            });
        } else {
            self.design.visit_row(example, |feature, value| {
                let weights = &mut weights[self.layout.index(feature, 0)..];
                for &(class, coefficient) in dual {
                    weights[class as usize * tile] += value * coefficient;
                }
            });
        }
    }

    fn image_norm(&self, example: usize, dual: &[(u32, f64)]) -> f64 {
        self.design.squared_norm(example) * sparse::squared_norm(dual)
    }

    fn add_spread(&self, example: usize, dual: &[(u32, f64)], scores: &mut [f64]) {
        let square = self.design.squared_norm(example);
        dual.iter().for_each(|&(class, value)| scores[class as usize] += square * value);
    }
}

/// Adds the images of a block of dense rows, one tile of the image at a time. The sums are in double precision, because
/// sums in single precision would have too large an error bound for a useful certificate.
fn add_dense_images<T: Element>(
    (rows, n_cols): (&[T], usize),
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

/// Adds the images of consecutive sparse rows, in parallel over ranges of features, which begin at `cuts`.
fn add_sparse_images<T: Real>(
    rows: Csr<'_, T>,
    duals: &SparseRows,
    n_classes: usize,
    cuts: &mut Vec<usize>,
    image: &mut [f64],
) {
    if cuts.is_empty() {
        // Two tasks per thread, so that a thread that finishes early can start another task.
        let n_threads = rayon::current_num_threads();
        *cuts = rows.balanced_cuts(if n_threads > 1 { 2 * n_threads } else { 1 });
    }
    let stretches = split_at(image, n_classes, cuts);
    // Average number of values that a range changes.
    let per_entry = rows.n_stored() / rows.n_rows().max(1);
    let n_numbers = duals.entries().len() * per_entry / stretches.len().max(1);
    for_items(stretches, min_len(n_numbers), |(stretch, image)| {
        let stretch = stretch.start as i32..stretch.end as i32;
        for (row, dual) in duals.rows().enumerate().filter(|(_, dual)| !dual.is_empty()) {
            let (columns, values) = rows.row(duals.first + row);
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
