//! Linear maximisation over the whole dual domain, with its image in weight space.

use std::ops::Range;

use rayon::prelude::*;

use super::{BLOCK, Problem, Workspace};
use crate::dual::{DualOracle, Vertex};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::SparseRows;

/// Values of the rows that a thread takes at a time: they ought to stay in its second-level cache
/// between the scores and the images.
const CHUNK_VALUES: usize = 1 << 17;
/// Most blocks of such rows.
const MAX_BLOCKS: usize = 64;

/// Blocks whose images are summed in the precision of the rows before they go to double precision.
const SPAN_BLOCKS: usize = 64;

/// The oracle of a [`Problem`]: one pass over the rows, a chunk at a time; in each chunk first scores
/// and vertices, parallel over blocks of rows, then the sparse sum of the vertices' images, parallel
/// over the weights. Each number is thus summed in the order of the rows, for any number of threads.
pub struct MarginOracle<'p, 'a> {
    problem: &'p mut Problem<'a>,
    blocks: Vec<Block>,
    /// The dual point and the last vertex, block by block (empty without smoothing).
    duals: Vec<DualBlock>,
    /// Step to the last vertex that the dual point has not made yet.
    pending: f64,
    images: SparseRows,
}

/// Work space of one block of rows.
#[derive(Default)]
struct Block {
    scores: Vec<f64>,
    work: Workspace,
    images: SparseRows,
    sums: Vertex,
}

#[derive(Default)]
struct DualBlock {
    beta: Vec<f64>,
    vertices: SparseRows,
}

impl<'p, 'a> MarginOracle<'p, 'a> {
    /// The oracle at the dual point `beta` (examples × classes), or at 0 if that is empty; only a
    /// smoothed problem keeps it.
    pub fn new(problem: &'p mut Problem<'a>, beta: &[f64]) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let width = problem.features.cost() / (n * m).max(1) + 1;
        let n_blocks = n.div_ceil(BLOCK);
        let per_thread = (CHUNK_VALUES / (width * BLOCK)).clamp(1, MAX_BLOCKS);
        let per_chunk = (per_thread * rayon::current_num_threads()).min(n_blocks);
        let blocks = (0..per_chunk).map(|_| Block::default()).collect();
        let smoothed = problem.smoothing > 0.0;
        let dual = |block: usize| {
            let range = block * BLOCK * m..((block + 1) * BLOCK).min(n) * m;
            let beta = match (smoothed, beta.is_empty()) {
                (false, _) => Vec::new(),
                (true, true) => vec![0.0; range.len()],
                (true, false) => beta[range].to_vec(),
            };
            DualBlock { beta, vertices: SparseRows::default() }
        };
        let duals = (0..n_blocks).map(dual).collect();
        Self { problem, blocks, duals, pending: 0.0, images: SparseRows::default() }
    }

    /// The dual point of a smoothed problem (examples × classes).
    pub fn into_dual(self) -> Vec<f64> {
        self.duals.into_iter().flat_map(|block| block.beta).collect()
    }
}

impl DualOracle for MarginOracle<'_, '_> {
    fn n_weights(&self) -> usize {
        self.problem.features.layout().len()
    }

    fn regularization(&self) -> (f64, f64) {
        (self.problem.lambda, self.problem.smoothing)
    }

    fn vertex(
        &mut self,
        weights: &[f64],
        image: &mut [f64],
        want_loss: bool,
        interrupt: &Interrupt,
    ) -> Result<Vertex> {
        self.problem.features.load(weights);
        image.fill(0.0);
        // Without smoothing the loss is the vertex's own value.
        let with_loss = want_loss || self.problem.smoothing == 0.0;
        let mut sums = Vertex { loss: with_loss.then_some(0.0), ..Vertex::default() };
        let (mut first, step) = (0, self.pending);
        for span in self.duals.chunks_mut(SPAN_BLOCKS) {
            for duals in span.chunks_mut(self.blocks.len()) {
                let problem: &Problem<'_> = self.problem;
                let blocks = &mut self.blocks[..duals.len()];
                blocks.par_iter_mut().zip(duals).enumerate().for_each(|(index, (block, dual))| {
                    let start = first + index * BLOCK;
                    let end = (start + BLOCK).min(problem.n_examples());
                    if !interrupt.is_raised() {
                        dual.follow(step, problem.n_classes());
                        block.visit(problem, start..end, dual, with_loss);
                    }
                });
                interrupt.check()?;
                self.images.restart(first);
                for block in blocks.iter() {
                    self.images.append(&block.images);
                    sums.add(&block.sums);
                }
                first += self.images.len();
                self.problem.features.add_images(&self.images, image);
            }
            self.problem.features.end_span(image);
        }
        self.pending = 0.0;
        Ok(sums)
    }

    fn follow(&mut self, step: f64) {
        self.pending = step;
    }
}

impl Block {
    /// Scores, losses and vertices of a block of examples; the images' coefficients are p_i α_i / λ.
    fn visit(
        &mut self,
        problem: &Problem<'_>,
        examples: Range<usize>,
        dual: &mut DualBlock,
        with_loss: bool,
    ) {
        let m = problem.n_classes();
        let mut loss = 0.0;
        self.sums = Vertex::default();
        self.images.restart(examples.start);
        dual.vertices.restart(examples.start);
        self.scores.resize(examples.len() * m, 0.0);
        problem.features.scores(examples.clone(), &mut self.scores);
        for (offset, example) in examples.enumerate() {
            let share = problem.importance(example);
            if share == 0.0 {
                self.images.push([]);
                dual.vertices.push([]);
                continue;
            }
            let margins = &mut self.scores[offset * m..][..m];
            problem.margins(example, margins);
            if problem.smoothing == 0.0 {
                loss += share * problem.vertex(example, margins, &mut self.work);
            } else {
                if with_loss {
                    loss += share * problem.loss(example, margins, &mut self.work);
                }
                let beta = &dual.beta[offset * m..][..m];
                let sum = shift(margins, beta, problem.label(example), problem.smoothing);
                problem.vertex(example, margins, &mut self.work);
                let (cross, square) = lifted_products(beta, sum, &self.work.vertex);
                self.sums.cross += share * cross;
                self.sums.square += share * square;
                dual.vertices.push(self.work.vertex.iter().copied());
            }
            let vertex = &self.work.vertex;
            self.sums.linear += share * problem.linear_term(example, vertex);
            self.images.push(problem.dual(example, vertex, share / problem.lambda));
        }
        self.sums.loss = with_loss.then_some(loss);
    }
}

impl DualBlock {
    /// β ← (1 − step) β + step u.
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

/// Margins of the shifted scores s + γα (E0.1: the print has the sign wrong): v − γ(β + 1ᵀβ) off the
/// label. Returns 1ᵀβ.
pub(super) fn shift(margins: &mut [f64], beta: &[f64], label: usize, smoothing: f64) -> f64 {
    let sum: f64 = beta.iter().sum();
    for (margin, beta) in margins.iter_mut().zip(beta) {
        *margin -= smoothing * (beta + sum);
    }
    margins[label] = 0.0;
    sum
}

/// ⟨α, u⟩ and ‖u‖² in dual coordinates, for β with the given sum and a vertex.
fn lifted_products(beta: &[f64], sum: f64, vertex: &[(u32, f64)]) -> (f64, f64) {
    let (mut cross, mut square, mut total) = (0.0, 0.0, 0.0);
    for &(class, weight) in vertex {
        cross += weight * beta[class as usize];
        square += weight * weight;
        total += weight;
    }
    (cross + sum * total, square + total * total)
}
