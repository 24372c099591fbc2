//! Passes over all blocks at fixed weights. A pass runs in parallel over pieces, which are ranges of rows. The
//! division into pieces depends only on the data, not on the number of threads.

use super::blocks::{Blocks, Proximal, Summed};

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Design, SparseRows};
use crate::parallel::{for_items, map_items, sum_parts};
use crate::run::Certificate;

/// Number of rows whose scores are computed together.
pub(super) const CHUNK_ROWS: usize = 64;
/// A pass takes at least this many times as long as adding up the results of its pieces.
const WORTH: usize = 4;

/// Scores, maximisers and gradient of the inner problem at given weights.
pub(super) struct InnerEvaluation {
    /// Scores A_i w, block by block.
    pub scores: Vec<f64>,
    /// The maximisers u_i, block by block.
    pub points: Vec<f64>,
    /// w − w(u): the gradient of the inner problem divided by λ.
    pub residual: Vec<f64>,
}

impl InnerEvaluation {
    pub fn new(n_points: usize) -> Self {
        let zeros = vec![0.0; n_points];
        Self { scores: zeros.clone(), points: zeros, residual: Vec::new() }
    }
}

/// The split of a pass into pieces.
pub(super) struct Pass {
    /// Number of rows per piece.
    piece: usize,
    n_parts: usize,
}

/// Returns the number of rows per piece. About √n pieces of √n rows keep chains of additions short, but a pass has no
/// more pieces than are worth the cost of adding up their sums.
pub(super) fn piece_of(design: &Design<'_>, n_rows: usize, n_parts: usize) -> usize {
    let work = design.n_stored() / design.n_rows().max(1) * n_rows * n_parts;
    let most = work / (WORTH * design.image_len(n_parts)).max(1);
    n_rows.div_ceil(n_rows.isqrt().min(most).max(1)).max(1)
}

/// The result of one piece.
struct Part<T> {
    image: Vec<f64>,
    terms: T,
}

impl Pass {
    /// Prepares passes over the rows of a design with `n_parts` parts per block.
    pub fn new(design: &Design<'_>, n_parts: usize) -> Self {
        Self { piece: piece_of(design, design.n_rows(), n_parts), n_parts }
    }

    /// Computes scores, maximisers and the image of the maximisers; returns the result of [`Blocks::certificate`].
    /// Without a proximal term, the points are already the maximisers.
    pub fn evaluate<B: Blocks>(
        &self,
        blocks: &B,
        weights: &[f64],
        proximal: Option<Proximal<'_>>,
        at: &mut InnerEvaluation,
        interrupt: &Interrupt,
    ) -> Result<(Certificate, f64)> {
        let (design, m) = (blocks.design(), self.n_parts);
        let packed = design.pack(weights, m);
        let InnerEvaluation { scores, points, .. } = at;
        let visit = |(index, (scores, points)): (usize, (&mut [f64], &mut [f64]))| {
            let mut part =
                Part { image: vec![0.0; design.image_len(m)], terms: B::Terms::default() };
            let (mut buffer, mut duals) = (Vec::new(), SparseRows::default());
            let mut work = B::Work::default();
            let chunks = scores.chunks_mut(CHUNK_ROWS * m).zip(points.chunks_mut(CHUNK_ROWS * m));
            for (chunk, (scores, points)) in chunks.enumerate() {
                if interrupt.is_raised() {
                    break;
                }
                let first = index * self.piece + chunk * CHUNK_ROWS;
                let rows = first..first + scores.len() / m;
                let dense = design.scores(&packed, rows.clone(), &mut buffer, scores);
                duals.restart(first);
                let pairs = scores.chunks_exact(m).zip(points.chunks_exact_mut(m));
                for (block, (scores, point)) in (first..).zip(pairs) {
                    if let Some(proximal) = proximal {
                        blocks.maximise(block, scores, proximal.of(block, m), point, &mut work);
                    }
                    blocks.add_terms(block, scores, point, &mut part.terms, &mut work);
                    push(blocks, block, point, &mut duals);
                }
                design.add_images(rows, dense, (&duals, m), &mut part.image);
            }
            part
        };
        let length = self.piece * m;
        let pieces = scores.chunks_mut(length).zip(points.chunks_mut(length)).enumerate();
        let parts: Vec<Part<B::Terms>> = map_items(pieces, 1, visit);
        interrupt.check()?;
        let (images, terms): (Vec<_>, Vec<_>) =
            parts.into_iter().map(|part| (part.image, part.terms)).unzip();
        let image = design.by_part(&sum_parts(images), m);
        let summed = Summed { image: &image, n_sums: self.piece + terms.len() };
        let certified = blocks.certificate(&terms, weights, summed);
        at.residual = weights.iter().zip(&image).map(|(w, image)| w + image).collect();
        Ok(certified)
    }

    /// Computes −w(u) for given points u.
    pub fn image<B: Blocks>(
        &self,
        blocks: &B,
        points: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let (design, m) = (blocks.design(), self.n_parts);
        let add = |(index, points): (usize, &[f64])| {
            let mut image = vec![0.0; design.image_len(m)];
            let (mut buffer, mut duals) = (Vec::new(), SparseRows::default());
            for (chunk, points) in points.chunks(CHUNK_ROWS * m).enumerate() {
                if interrupt.is_raised() {
                    break;
                }
                let first = index * self.piece + chunk * CHUNK_ROWS;
                let rows = first..first + points.len() / m;
                let dense = design.dense(rows.clone(), &mut buffer);
                duals.restart(first);
                for (block, point) in (first..).zip(points.chunks_exact(m)) {
                    push(blocks, block, point, &mut duals);
                }
                design.add_images(rows, dense, (&duals, m), &mut image);
            }
            image
        };
        let images = map_items(points.chunks(self.piece * m).enumerate(), 1, add);
        interrupt.check()?;
        Ok(design.by_part(&sum_parts(images), m))
    }

    /// Prepares a line search: the losses of the inner problem along a direction.
    pub fn line<'l, B: Blocks>(
        &'l self,
        blocks: &'l B,
        proximal: Proximal<'l>,
        at: &'l InnerEvaluation,
        direction: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Line<'l, B>> {
        let (design, m) = (blocks.design(), self.n_parts);
        let packed = design.pack(direction, m);
        let mut changes = vec![0.0; at.scores.len()];
        for_items(changes.chunks_mut(self.piece * m).enumerate(), 1, |(index, changes)| {
            let mut buffer = Vec::new();
            for (chunk, changes) in changes.chunks_mut(CHUNK_ROWS * m).enumerate() {
                if interrupt.is_raised() {
                    break;
                }
                let first = index * self.piece + chunk * CHUNK_ROWS;
                let rows = first..first + changes.len() / m;
                design.scores(&packed, rows.clone(), &mut buffer, changes);
            }
        });
        interrupt.check()?;
        Ok(Line { blocks, proximal, at, changes, length: self.piece * m })
    }
}

/// The losses of the inner problem along a direction.
pub(super) struct Line<'l, B> {
    blocks: &'l B,
    proximal: Proximal<'l>,
    at: &'l InnerEvaluation,
    /// The changes of the scores along the direction, A_i times the direction, block by block.
    changes: Vec<f64>,
    /// Number of values per piece.
    length: usize,
}

impl<B: Blocks> Line<'_, B> {
    /// The derivative of the losses at a step, divided by λ. Also writes the maximisers at this step to `points`, for
    /// all blocks with a positive share.
    pub fn slope(&self, step: f64, points: &mut [f64], interrupt: &Interrupt) -> Result<f64> {
        let (m, shares) = (self.blocks.n_parts(), self.blocks.shares());
        let pieces = self.at.scores.chunks(self.length).zip(self.changes.chunks(self.length));
        let pieces = pieces.zip(points.chunks_mut(self.length)).enumerate();
        let slopes = map_items(pieces, 1, |(index, ((scores, changes), points))| {
            let mut moved = vec![0.0; m];
            let (mut work, mut sum) = (B::Work::default(), 0.0);
            let first = index * self.length / m;
            let pairs = scores.chunks_exact(m).zip(changes.chunks_exact(m));
            let pairs = pairs.zip(points.chunks_exact_mut(m));
            for (block, ((scores, changes), point)) in (first..).zip(pairs) {
                if block.is_multiple_of(CHUNK_ROWS) && interrupt.is_raised() {
                    break;
                }
                let share = shares.of(block);
                if share == 0.0 {
                    continue;
                }
                for (moved, (score, change)) in moved.iter_mut().zip(scores.iter().zip(changes)) {
                    *moved = score + step * change;
                }
                let own = self.proximal.of(block, m);
                self.blocks.maximise(block, &moved, own, point, &mut work);
                let along: f64 = point.iter().zip(changes).map(|(u, change)| u * change).sum();
                sum += share * along;
            }
            sum
        });
        interrupt.check()?;
        Ok(slopes.iter().sum::<f64>() / shares.lambda())
    }
}

/// Appends p_i/λ u_i, without zero entries.
fn push<B: Blocks>(blocks: &B, block: usize, point: &[f64], duals: &mut SparseRows) {
    let shares = blocks.shares();
    let scale = shares.of(block) / shares.lambda();
    let entries = (0..).zip(point).filter(|(_, u)| **u != 0.0 && scale != 0.0);
    duals.push(entries.map(|(part, u)| (part, scale * u)));
}
