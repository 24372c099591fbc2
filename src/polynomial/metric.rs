//! The curvature of the objective in U and W, up to a constant factor, used as a metric for steps in these layers
//! (docs/mathematics/polynomial-networks.md#metric-of-the-convex-refit).

use std::ops::Range;

use ndarray::{Array2, ArrayView2, Axis, s};

use super::evaluation::PackedLayers;
use super::model::PolynomialModel;
use super::problem::PolynomialProblem;
use super::row_block::{BLOCK_ROWS, OuterSum, RowBlock, row_blocks};
use crate::data::Rows;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::invert;
use crate::parallel::sum_rows;

/// Maximum number of activations plus features for which the metric is formed. At this size it
/// costs about as much as a few evaluations.
const MAX_SIZE: usize = 192;

/// Amount added to the diagonal, relative to the mean of the diagonal, because activations may be
/// linearly dependent.
const DIAGONAL_RAISE: f64 = 1e-9;

/// Maximum absolute value of an entry. Larger entries occur if the rows have huge values; the metric then has no
/// accurate digits and is not used.
const MAX_ENTRY: f64 = 1e50;

/// Whether the number of activations and features is small enough for a metric.
pub(super) fn fits_metric<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &PolynomialModel,
) -> bool {
    let linear = if model.linear.is_some() { problem.linear_rows().n_cols() } else { 0 };
    model.n_bases > 0 && model.n_bases + linear <= MAX_SIZE
}

/// The metric P = L Σ_i s_i f_i f_iᵀ, plus α on the diagonal of the linear part, with f = (z −
/// Aᵀ[x, 1], [x, 1]). Here A holds the coefficients of a regression of the activations z on the
/// features. If W + A U replaces the linear weights W, the metric does not couple the two layers.
pub(super) struct Metric {
    /// A, (d + 1) × k; None without linear terms.
    pub explained: Option<Array2<f64>>,
    matrix: Array2<f64>,
    inverse: Array2<f64>,
}

impl Metric {
    /// Computes the metric for the basis of `model`; None if it is not usable.
    pub fn new<R: Rows + Copy>(
        problem: &PolynomialProblem<'_, R>,
        model: &PolynomialModel,
        scales: &[f64],
        interrupt: &Interrupt,
    ) -> Result<Option<Self>> {
        let (k, size) = (model.n_bases, scales.len());
        let mut matrix = gram(problem, model, size, interrupt)?;
        matrix *= problem.objective.loss.smoothness(model.n_outputs);
        let ridge = problem.objective.ridge.unwrap_or(0.0);
        matrix.slice_mut(s![k.., k..]).diag_mut().mapv_inplace(|entry| entry + ridge);
        let mut explained = None;
        if size > k {
            let Some(inverse) = invert(&matrix.slice(s![k.., k..]).to_owned()) else {
                return Ok(None);
            };
            let shared = matrix.slice(s![k.., ..k]).to_owned();
            let found = inverse.matrix.dot(&shared);
            let mut own = matrix.slice_mut(s![..k, ..k]);
            own -= &shared.t().dot(&found);
            matrix.slice_mut(s![k.., ..k]).fill(0.0);
            matrix.slice_mut(s![..k, k..]).fill(0.0);
            explained = Some(found);
        }
        for (i, mut row) in matrix.axis_iter_mut(Axis(0)).enumerate() {
            row.iter_mut().zip(scales).for_each(|(entry, scale)| *entry /= scale * scales[i]);
        }
        let raised = DIAGONAL_RAISE * matrix.diag().sum() / size as f64;
        matrix.diag_mut().mapv_inplace(|entry| entry + raised);
        let inverse = invert(&matrix).map(|inverse| inverse.matrix);
        let metric = inverse.map(|inverse| Self { explained, matrix, inverse });
        Ok(metric.filter(Self::is_moderate))
    }

    /// Whether the entries are so small that products with weights stay far from overflow.
    fn is_moderate(&self) -> bool {
        let arrays = [Some(&self.matrix), Some(&self.inverse), self.explained.as_ref()];
        arrays.into_iter().flatten().flatten().all(|entry| entry.abs() < MAX_ENTRY)
    }

    /// Returns P V, where V has a row for each activation and feature.
    pub fn product(&self, v: &[f64]) -> Vec<f64> {
        times(&self.matrix, v)
    }

    /// Returns P⁻¹ v, where P is the metric.
    pub fn solve(&self, v: &[f64]) -> Vec<f64> {
        times(&self.inverse, v)
    }
}

fn times(matrix: &Array2<f64>, v: &[f64]) -> Vec<f64> {
    let size = matrix.nrows();
    match ArrayView2::from_shape((size, v.len() / size), v) {
        Ok(v) => matrix.dot(&v).into_iter().collect(),
        Err(_) => unreachable!("points have a row for each activation and feature"),
    }
}

/// Computes Σ_i s_i f_i f_iᵀ with f = (z, x, 1) if `size` includes the features, and with f = z
/// otherwise.
fn gram<R: Rows + Copy>(
    problem: &PolynomialProblem<'_, R>,
    model: &PolynomialModel,
    size: usize,
    interrupt: &Interrupt,
) -> Result<Array2<f64>> {
    let layers = PackedLayers::<f64>::new(model);
    let (k, m) = (model.n_bases, model.n_outputs);
    let rows = &problem.rows;
    let sums = sum_rows(rows.n_rows(), size * size, interrupt, |range: Range<usize>, sums| {
        let mut sum = OuterSum::new(sums, size);
        let (mut block, mut values) = (RowBlock::new(rows), Default::default());
        let (mut outputs, mut features) = (vec![0.0; BLOCK_ROWS * m], Vec::new());
        for range in row_blocks(range) {
            block.load(rows, range.clone());
            layers.forward(&block, &mut values, &mut outputs[..range.len() * m]);
            features.clear();
            features.resize(range.len() * size, 0.0);
            let each = features.chunks_exact_mut(size).zip(values.activations.chunks_exact(k));
            for (row, (features, activations)) in range.clone().zip(each) {
                features[..k].copy_from_slice(activations);
                if let Some(constant) = features[k..].last_mut() {
                    *constant = 1.0;
                    rows.visit_row(row, |column, value| features[k + column] = value);
                }
            }
            sum.add_dense(&features, size, |row, out| {
                let weight = problem.weight(range.start + row);
                let features = &features[row * size..][..size];
                out.iter_mut().zip(features).for_each(|(out, f)| *out = weight * f);
            });
        }
    })?;
    match Array2::from_shape_vec((size, size), sums) {
        Ok(sums) => Ok(sums),
        Err(_) => unreachable!("there is one sum for each pair"),
    }
}
