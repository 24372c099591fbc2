//! The inverse of a Newton system with few active blocks, computed from a matrix over their parts (Woodbury identity).

use super::active::Active;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::Design;
use crate::linalg::cholesky::Factor;
use crate::linalg::outer::{PADDING, Strided, add_lower_gram};
use crate::linalg::vectors::{axpy, dot};
use crate::parallel::map_items_with;

/// The maximum total number of parts of the active blocks, which is the size of the factorised matrix.
const MAX_PARTS: usize = 2000;
/// The maximum total number of values in the active rows, which are stored densely.
const MAX_ROW_VALUES: usize = 1 << 22;

/// (I + B Bᵀ)⁻¹ = I − B (I + Bᵀ B)⁻¹ Bᵀ, where block i has the columns √c_i A_iᵀ J_i of B. If the J_i are projections,
/// then B Bᵀ = Σ_i c_i A_iᵀ J_i A_i.
///
/// The result only serves as a preconditioner for conjugate gradients: the subtraction loses digits if some columns of
/// the data are large, and the curvature of the entropy is not a projection.
pub(super) struct DualSystem {
    factor: Factor,
    /// The active rows, `width` values each.
    rows: Vec<f64>,
    width: usize,
    /// Number of features.
    n_features: usize,
    blocks: ScaledCurvatures,
}

/// √c_i J_i for each active block, restricted to the parts that have entries.
#[derive(Default)]
struct ScaledCurvatures {
    /// The index of each block's first part, followed by the total number of parts.
    starts: Vec<usize>,
    parts: Vec<u32>,
    /// Start of each block's matrix.
    places: Vec<usize>,
    matrices: Vec<f64>,
}

impl DualSystem {
    /// Computes the inverse; None if the matrix over the parts is too large.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn new(
        design: &Design<'_>,
        n_parts: usize,
        active: &Active,
        interrupt: &Interrupt,
    ) -> Result<Option<Self>> {
        let n_features = design.n_features();
        let width = n_features.next_multiple_of(PADDING);
        let n_rows = active.blocks.len();
        let Some(blocks) = ScaledCurvatures::of(active, n_parts) else { return Ok(None) };
        if n_rows.saturating_mul(width) > MAX_ROW_VALUES {
            return Ok(None);
        }
        let mut rows = Vec::new();
        design.append_rows(active.blocks.iter().map(|row| *row as usize), width, &mut rows);
        let gram = gram(&rows, width, n_rows);
        interrupt.check()?;
        let matrix = blocks.matrix(&gram, n_rows, n_parts);
        interrupt.check()?;
        let factor = Factor::new(matrix, blocks.parts.len(), interrupt)?;
        Ok(Some(Self { factor, rows, width, n_features, blocks }))
    }

    /// Replaces b by the inverse times b; b is ordered part by part.
    pub fn solve(&self, b: &mut [f64]) {
        let d = self.n_features;
        let row = |block: usize| &self.rows[block * self.width..][..d];
        let mut along = Vec::with_capacity(self.blocks.parts.len());
        let mut scores = Vec::new();
        for block in 0..self.blocks.starts.len() - 1 {
            let (parts, matrix) = self.blocks.of_block(block);
            let part = |part: &u32| dot(row(block), &b[*part as usize * d..][..d]);
            scores.clear();
            scores.extend(parts.iter().map(part));
            along.extend(matrix.chunks_exact(parts.len().max(1)).map(|j| dot(j, &scores)));
        }
        self.factor.solve(&mut along);
        for block in 0..self.blocks.starts.len() - 1 {
            let (parts, matrix) = self.blocks.of_block(block);
            let own = &along[self.blocks.starts[block]..][..parts.len()];
            for (part, j) in parts.iter().zip(matrix.chunks_exact(parts.len().max(1))) {
                axpy(&mut b[*part as usize * d..][..d], -dot(j, own), row(block));
            }
        }
    }
}

impl ScaledCurvatures {
    /// The matrices of all active blocks; None if these blocks have too many parts.
    fn of(active: &Active, n_parts: usize) -> Option<Self> {
        let (mut room, mut parts, mut matrix) = (vec![0; n_parts], Vec::new(), Vec::new());
        let mut blocks = Self { starts: vec![0], ..Self::default() };
        for (slot, scale) in active.scales.iter().enumerate() {
            active.curvatures.dense(slot, &mut room, &mut parts, &mut matrix);
            if blocks.parts.len() + parts.len() > MAX_PARTS {
                return None;
            }
            blocks.places.push(blocks.matrices.len());
            blocks.matrices.extend(matrix.iter().map(|value| scale.sqrt() * value));
            blocks.parts.extend_from_slice(&parts);
            blocks.starts.push(blocks.parts.len());
        }
        Some(blocks)
    }

    /// The parts of a block and its matrix, row by row.
    fn of_block(&self, block: usize) -> (&[u32], &[f64]) {
        let parts = &self.parts[self.starts[block]..self.starts[block + 1]];
        (parts, &self.matrices[self.places[block]..][..parts.len() * parts.len()])
    }

    /// The lower triangle of I + Bᵀ B: the entries of blocks i and k are ⟨x_i, x_k⟩ √c_i J_i J_k √c_k.
    fn matrix(&self, gram: &[f64], n_rows: usize, n_parts: usize) -> Vec<f64> {
        let stride = Factor::stride(self.parts.len());
        let gram_stride = Factor::stride(n_rows);
        let mut matrix = vec![0.0; self.parts.len() * stride];
        let places = (0..n_rows).flat_map(|block| {
            (0..self.starts[block + 1] - self.starts[block]).map(move |place| (block, place))
        });
        let places: Vec<(usize, usize)> = places.collect();
        map_items_with(
            matrix.chunks_mut(stride).zip(&places).enumerate(),
            1,
            || vec![0.0; n_parts],
            |own, (at, (row, &(block, place)))| {
                let (parts, values) = self.of_block(block);
                own.fill(0.0);
                for (part, value) in parts.iter().zip(&values[place * parts.len()..]) {
                    own[*part as usize] = *value;
                }
                for other in 0..=block {
                    let product = gram[block * gram_stride + other];
                    let (parts, values) = self.of_block(other);
                    let row = &mut row[self.starts[other]..][..parts.len()];
                    // J is symmetric, so its rows can be read as columns.
                    for (entry, column) in
                        row.iter_mut().zip(values.chunks_exact(parts.len().max(1)))
                    {
                        let both = parts.iter().zip(column);
                        let sum: f64 = both.map(|(part, value)| own[*part as usize] * value).sum();
                        *entry = product * sum;
                    }
                }
                row[at] += 1.0;
            },
        );
        matrix
    }
}

/// The lower triangle of the products ⟨x_i, x_k⟩ of some rows.
fn gram(rows: &[f64], width: usize, n_rows: usize) -> Vec<f64> {
    let stride = Factor::stride(n_rows);
    let mut columns = vec![0.0; width * stride];
    for (row, values) in rows.chunks_exact(width).enumerate() {
        for (column, value) in values.iter().enumerate() {
            columns[column * stride + row] = *value;
        }
    }
    let mut gram = vec![0.0; n_rows * stride];
    add_lower_gram(&mut gram, stride, Strided { values: &columns, stride });
    gram
}
