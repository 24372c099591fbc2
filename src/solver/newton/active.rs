//! The blocks with nonzero curvature, and products with the matrix of a Newton system.

use super::blocks::Blocks;
use super::passes::{CHUNK_ROWS, piece_of};
use crate::dual::Curvatures;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Design, SparseRows};
use crate::parallel::{map_items, sum_parts};

/// The blocks with nonzero curvature, with their curvatures and factors.
#[derive(Default)]
pub(super) struct Active {
    /// The indices of the blocks.
    pub blocks: Vec<u32>,
    /// Curvatures J_i of these blocks.
    pub curvatures: Curvatures,
    /// Scales c_i of these blocks.
    pub scales: Vec<f64>,
}

/// Finds the blocks that have nonzero curvature at their points.
pub(super) fn active<B: Blocks>(
    blocks: &B,
    points: &[f64],
    curvature: f64,
    interrupt: &Interrupt,
) -> Result<Active> {
    let (m, shares) = (blocks.n_parts(), blocks.shares());
    let visit = |(chunk, points): (usize, &[f64])| {
        let mut found = Active::default();
        let mut work = B::Work::default();
        for (block, point) in (chunk * CHUNK_ROWS * CHUNK_ROWS..).zip(points.chunks_exact(m)) {
            let share = shares.of(block);
            if share == 0.0 || interrupt.is_raised() {
                continue;
            }
            blocks.curvature(block, point, &mut found.curvatures, &mut work);
            if found.curvatures.end_block() {
                found.blocks.push(block as u32);
                found.scales.push(share / (shares.lambda() * curvature));
            } else {
                found.curvatures.pop_block();
            }
        }
        found
    };
    let chunks = points.chunks(CHUNK_ROWS * CHUNK_ROWS * m).enumerate();
    let found: Vec<Active> = map_items(chunks, 1, visit);
    interrupt.check()?;
    let mut active = Active::default();
    for found in found {
        active.blocks.extend(found.blocks);
        active.scales.extend(found.scales);
        active.curvatures.append(&found.curvatures);
    }
    Ok(active)
}

impl Active {
    /// Number of multiplications in a call of [`Active::product`].
    pub fn product_cost(&self, design: &Design<'_>, n_parts: usize) -> f64 {
        let density = design.n_stored() as f64 / design.n_rows().max(1) as f64;
        2.0 * self.blocks.len() as f64 * density * n_parts as f64
    }

    /// Computes (I + Σ c_i A_iᵀ J_i A_i) v.
    pub fn product(
        &self,
        design: &Design<'_>,
        n_parts: usize,
        vector: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let packed = design.pack(vector, n_parts);
        let piece = piece_of(design, self.blocks.len(), n_parts);
        let add = |(index, rows): (usize, &[u32])| {
            let mut image = vec![0.0; design.image_len(n_parts)];
            let (mut buffer, mut duals) = (Vec::new(), SparseRows::default());
            let (mut scores, mut product) = (vec![0.0; CHUNK_ROWS * n_parts], vec![0.0; n_parts]);
            for (chunk, rows) in rows.chunks(CHUNK_ROWS).enumerate() {
                if interrupt.is_raised() {
                    break;
                }
                let first = index * piece + chunk * CHUNK_ROWS;
                let scores = &mut scores[..rows.len() * n_parts];
                let rows = rows.iter().map(|row| *row as usize);
                let dense = design.scores(&packed, rows.clone(), &mut buffer, scores);
                duals.restart(first);
                for (slot, scores) in (first..).zip(scores.chunks_exact_mut(n_parts)) {
                    self.curvatures.apply(slot, scores, &mut product);
                    let scale = self.scales[slot];
                    let entries = (0..).zip(&*scores).filter(|(_, value)| **value != 0.0);
                    duals.push(entries.map(|(part, value)| (part, scale * value)));
                }
                design.add_images(rows, dense, (&duals, n_parts), &mut image);
            }
            image
        };
        let images = map_items(self.blocks.chunks(piece).enumerate(), 1, add);
        interrupt.check()?;
        let mut product = vector.to_vec();
        if !images.is_empty() {
            let image = design.by_part(&sum_parts(images), n_parts);
            product.iter_mut().zip(image).for_each(|(product, image)| *product += image);
        }
        Ok(product)
    }

    /// The diagonal of I + Σ c_i A_iᵀ J_i A_i.
    pub fn diagonal(
        &self,
        design: &Design<'_>,
        n_parts: usize,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let n_unknowns = design.n_features() * n_parts;
        let piece = piece_of(design, self.blocks.len(), n_parts);
        let add = |(index, rows): (usize, &[u32])| {
            let (mut squares, mut own) = (vec![0.0; n_unknowns], vec![0.0; n_parts]);
            for (slot, row) in (index * piece..).zip(rows) {
                if slot.is_multiple_of(CHUNK_ROWS) && interrupt.is_raised() {
                    break;
                }
                own.fill(0.0);
                self.curvatures.add_diagonal_of(slot, self.scales[slot], &mut own);
                design.visit_row(*row as usize, |feature, value| {
                    let places = squares.iter_mut().skip(feature).step_by(design.n_features());
                    places.zip(&own).for_each(|(place, own)| *place += own * (value * value));
                });
            }
            squares
        };
        let parts = map_items(self.blocks.chunks(piece).enumerate(), 1, add);
        interrupt.check()?;
        let mut diagonal = sum_parts(parts);
        diagonal.resize(n_unknowns, 0.0);
        diagonal.iter_mut().for_each(|value| *value += 1.0);
        Ok(diagonal)
    }
}
