//! The sum of the Euclidean norms of the rows.

use ndarray::ArrayViewMut2;

use super::{Penalty, Refinement, soft_threshold_level};
use crate::error::{Error, Result};
use crate::linalg::vectors::squared_norm_in_order;

/// Ω(U) = Σ_r ‖u_r‖₂ (Blondel et al. 2017, Table 1).
#[derive(Debug, Clone, Copy)]
pub struct L1L2;

fn norm(row: &[f64]) -> f64 {
    squared_norm_in_order(row).sqrt()
}

impl Penalty for L1L2 {
    fn row_norm(&self, row: &[f64]) -> f64 {
        norm(row)
    }

    fn dual_row_norm(&self, row: &[f64]) -> f64 {
        norm(row)
    }

    fn atom_row(&self, gradient: &[f64], atom: &mut [f64]) {
        let length = norm(gradient);
        if length == 0.0 {
            atom.fill(0.0);
            atom[0] = 1.0;
            return;
        }
        for (a, g) in atom.iter_mut().zip(gradient) {
            *a = g / length;
        }
    }

    fn project(&self, mut output: ArrayViewMut2<'_, f64>, radius: f64) {
        let norms: Vec<f64> = output.rows().into_iter().map(|row| row.dot(&row).sqrt()).collect();
        if norms.iter().sum::<f64>() <= radius {
            return;
        }
        let level = soft_threshold_level(&mut norms.clone(), radius);
        for (mut row, length) in output.rows_mut().into_iter().zip(norms) {
            let scale = if length > level { (length - level) / length } else { 0.0 };
            row *= scale;
        }
    }

    fn refinement(&self, _start_gradient: &[f64]) -> Refinement {
        Refinement::Ascent { smoothing: 0.0 }
    }

    fn half_of_vertices(&self, _n_outputs: usize) -> Result<Vec<Vec<f64>>> {
        let message = "\"exact\" supports only the penalties l1 and l1/linf";
        Err(Error::argument("selection", message))
    }

    fn smoothed_dual(&self, gradient: &[f64], _smoothing: f64, weights: &mut [f64]) -> f64 {
        // The norm is smooth everywhere except at 0, so it needs no smoothing.
        self.atom_row(gradient, weights);
        norm(gradient)
    }
}
