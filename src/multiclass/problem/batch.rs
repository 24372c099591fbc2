//! Vertices of the whole dual domain of a multi-category problem, with their images in weight space.

use std::ops::Range;

use super::{BLOCK_EXAMPLES, MarginProblem, ScoreMap, Workspace};
use crate::dual::rounding::{Sum, norm_above};
use crate::dual::{Bounded, Sums};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::SparseRows;
use crate::parallel::{for_items, min_len};
use crate::polytope::lifted;

/// Number of row values that a thread processes at a time. They should stay in its caches until both scores and images
/// are computed. With half as many, waking the threads took up to a fifth of the time of a pass.
const CHUNK_VALUES: usize = 1 << 18;
/// Maximum number of blocks of `BLOCK_EXAMPLES` rows that a thread processes at a time.
const MAX_BLOCKS: usize = 64;

/// The result that a pass computes for every example.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// The vertices of [`BatchDual::batch_vertex`](crate::dual::BatchDual::batch_vertex).
    Vertex { step: f64, loss: bool },
    /// The points of [`BatchDual::batch_subgradient`](crate::dual::BatchDual::batch_subgradient).
    Subgradient,
}

/// State of the passes over all examples.
pub(super) struct Batch {
    chunk: Vec<RowBlock>,
    /// The dual point and the last vertex, one item per block of rows. The items are empty without
    /// smoothing.
    duals: Vec<DualBlock>,
    images: SparseRows,
}

/// Buffers for one block of rows.
#[derive(Default)]
struct RowBlock {
    scores: Vec<f64>,
    work: Workspace,
    images: SparseRows,
    sums: Sums,
}

#[derive(Default)]
struct DualBlock {
    beta: Vec<f64>,
    vertices: SparseRows,
}

impl Batch {
    /// Starts at the dual point `beta` (examples × classes), or at 0 if `beta` is empty. Only a smoothed problem keeps
    /// the point.
    pub fn new<M: ScoreMap>(problem: &MarginProblem<'_, M>, beta: &[f64]) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let width = problem.map().cost() / (n * m).max(1) + 1;
        let n_blocks = n.div_ceil(BLOCK_EXAMPLES);
        let per_thread = (CHUNK_VALUES / (width * BLOCK_EXAMPLES)).clamp(1, MAX_BLOCKS);
        let per_chunk = (per_thread * rayon::current_num_threads()).min(n_blocks);
        let smoothed = problem.shares().smoothing() > 0.0;
        let dual = |block: usize| {
            let range = block * BLOCK_EXAMPLES * m..((block + 1) * BLOCK_EXAMPLES).min(n) * m;
            let beta = match (smoothed, beta.is_empty()) {
                (false, _) => Vec::new(),
                (true, true) => vec![0.0; range.len()],
                (true, false) => beta[range].to_vec(),
            };
            DualBlock { beta, vertices: SparseRows::default() }
        };
        Self {
            chunk: (0..per_chunk).map(|_| RowBlock::default()).collect(),
            duals: (0..n_blocks).map(dual).collect(),
            images: SparseRows::default(),
        }
    }

    /// Returns the dual point (examples × classes) if it is kept. Otherwise returns an empty
    /// vector.
    pub fn into_point(self) -> Vec<f64> {
        self.duals.into_iter().flat_map(|block| block.beta).collect()
    }

    /// Computes the wanted points and their image in one pass over the rows, a chunk at a time. For each chunk, it
    /// first computes scores and points, in parallel over blocks of rows, and then adds the sparse images of the
    /// points, in parallel over the weights. Each weight is therefore summed in the order of the rows, for any number
    /// of threads.
    pub fn vertex<M: ScoreMap>(
        &mut self,
        problem: &mut MarginProblem<'_, M>,
        weights: &[f64],
        image: &mut [f64],
        wanted: Wanted,
        interrupt: &Interrupt,
    ) -> Result<Sums> {
        let Self { chunk, duals, images } = self;
        problem.map_mut().load(weights);
        image.fill(0.0);
        // Without smoothing, the value at the vertex is the loss.
        let (with_loss, step) = match wanted {
            Wanted::Vertex { step, loss } => (loss || problem.shares().smoothing() == 0.0, step),
            Wanted::Subgradient => (true, 0.0),
        };
        let norm = norm_above(weights);
        let mut sums = Sums { loss: with_loss.then_some(Bounded::default()), ..Sums::default() };
        let mut first = 0;
        for duals in duals.chunks_mut(chunk.len()) {
            let blocks = &mut chunk[..duals.len()];
            let shared: &MarginProblem<'_, M> = problem;
            let n_numbers = BLOCK_EXAMPLES * shared.map().cost() / shared.n_examples().max(1);
            let pairs = blocks.iter_mut().zip(duals).enumerate();
            for_items(pairs, min_len(n_numbers), |(index, (block, dual))| {
                let start = first + index * BLOCK_EXAMPLES;
                let end = (start + BLOCK_EXAMPLES).min(shared.n_examples());
                if !interrupt.is_raised() {
                    dual.follow(step, shared.n_classes());
                    let norm = with_loss.then_some(norm);
                    block.visit(shared, start..end, dual, wanted, norm);
                }
            });
            interrupt.check()?;
            images.restart(first);
            for block in blocks.iter() {
                images.append(&block.images);
                sums.add(&block.sums);
            }
            first += images.len();
            problem.map_mut().add_images(images, image);
        }
        Ok(sums)
    }
}

impl RowBlock {
    /// Computes the scores, losses and vertices of a block of examples, and the images' coefficients p_i α_i / λ.
    fn visit<M: ScoreMap>(
        &mut self,
        problem: &MarginProblem<'_, M>,
        examples: Range<usize>,
        dual: &mut DualBlock,
        wanted: Wanted,
        norm: Option<f64>,
    ) {
        let (m, smoothing) = (problem.n_classes(), problem.shares().smoothing());
        let lambda = problem.shares().lambda();
        let mut loss = Sum::default();
        self.sums = Sums::default();
        self.images.restart(examples.start);
        dual.vertices.restart(examples.start);
        self.scores.resize(examples.len() * m, 0.0);
        problem.map().scores(examples.clone(), &mut self.scores);
        for (offset, example) in examples.enumerate() {
            let share = problem.shares().of(example);
            if share == 0.0 {
                self.images.push([]);
                dual.vertices.push([]);
                continue;
            }
            let margins = &mut self.scores[offset * m..][..m];
            problem.margins(example, margins);
            let (size, epsilon) = (problem.map().row_size(example), problem.map().epsilon());
            let mut add = |value: f64, norm: f64| {
                let error = problem.loss_error(example, size, norm, epsilon);
                loss.add(Bounded::new(value, error) * Bounded::exact(share));
            };
            if smoothing == 0.0 {
                let value = problem.vertex(example, margins, &mut self.work);
                norm.iter().for_each(|norm| add(value, *norm));
            } else if matches!(wanted, Wanted::Subgradient) {
                let value = problem.subgradient(example, margins, &mut self.work);
                norm.iter().for_each(|norm| add(value, *norm));
                self.sums.add_point(problem, example, &self.work.vertex);
                dual.vertices.push([]);
            } else {
                if let Some(norm) = norm {
                    add(problem.loss(example, margins, &mut self.work), norm);
                }
                let beta = &dual.beta[offset * m..][..m];
                let sum = lifted::shift(margins, beta, problem.label(example), smoothing);
                problem.vertex(example, margins, &mut self.work);
                let (cross, square) = lifted::products(beta, sum, &self.work.vertex);
                self.sums.cross += share * cross;
                self.sums.square += share * square;
                dual.vertices.push(self.work.vertex.iter().copied());
            }
            let vertex = &self.work.vertex;
            self.sums.sizes.add(share, problem.scales(example, size), vertex);
            self.sums.linear += share * problem.linear_term(example, vertex);
            let label = problem.label(example);
            self.images.push(lifted::scaled_entries(vertex, label, share / lambda));
        }
        self.sums.loss = norm.map(|_| loss.total());
    }
}

impl Sums {
    /// Adds the terms that are needed only if a point is not a vertex: its squared norm, and its distance from the
    /// polytope.
    fn add_point<M: ScoreMap>(
        &mut self,
        problem: &MarginProblem<'_, M>,
        example: usize,
        point: &[(u32, f64)],
    ) {
        let (label, share) = (problem.label(example), problem.shares().of(example));
        let outside = problem.polytope().distance(point, label, problem.n_classes());
        let scales = problem.scales(example, problem.map().row_size(example));
        // ‖α + δ‖ ≤ ‖α‖ + √2 ‖δ‖₁.
        let norm = lifted::squared_norm_of(point).sqrt() + 1.5 * outside;
        self.square += share * norm * norm;
        self.outside[0] += share * scales.feature * outside;
        self.outside[1] += share * scales.cost * outside;
    }
}

impl DualBlock {
    /// Moves the dual point towards the vertex u: β ← (1 − step) β + step u.
    fn follow(&mut self, step: f64, n_classes: usize) {
        if step == 0.0 {
            return;
        }
        for (beta, vertex) in self.beta.chunks_exact_mut(n_classes).zip(self.vertices.rows()) {
            beta.iter_mut().for_each(|beta| *beta *= 1.0 - step);
            for &(class, weight) in vertex {
                beta[class as usize] += step * weight;
            }
        }
    }
}
