//! The sum of the absolute values of all entries.

use ndarray::{ArrayView2, ArrayViewMut2};

use super::{Penalty, Refinement, soft_threshold_level};
use crate::error::Result;

/// Ω(U) = Σ_{r,c} |u_rc| (Blondel et al. 2017, Table 1).
#[derive(Debug, Clone, Copy)]
pub struct L1;

impl Penalty for L1 {
    fn row_norm(&self, row: &[f64]) -> f64 {
        row.iter().map(|u| u.abs()).sum()
    }

    fn dual_row_norm(&self, row: &[f64]) -> f64 {
        row.iter().map(|g| g.abs()).fold(0.0, f64::max)
    }

    fn atom_row(&self, gradient: &[f64], atom: &mut [f64]) {
        let mut largest = 0;
        for (output, g) in gradient.iter().enumerate() {
            if g.abs() > gradient[largest].abs() {
                largest = output;
            }
        }
        atom.fill(0.0);
        atom[largest] = 1.0f64.copysign(gradient[largest]);
    }

    fn project(&self, mut output: ArrayViewMut2<'_, f64>, radius: f64) {
        if self.value(output.view()) <= radius {
            return;
        }
        let mut sizes: Vec<f64> = output.iter().map(|u| u.abs()).collect();
        let level = soft_threshold_level(&mut sizes, radius);
        output.mapv_inplace(|u| (u.abs() - level).max(0.0).copysign(u));
    }

    fn refinement(&self, _start_gradient: &[f64]) -> Refinement {
        Refinement::None
    }

    fn half_of_vertices(&self, n_outputs: usize) -> Result<Vec<Vec<f64>>> {
        let unit = |c: usize| (0..n_outputs).map(|o| f64::from(u8::from(o == c))).collect();
        Ok((0..n_outputs).map(unit).collect())
    }

    fn smoothed_dual(&self, gradient: &[f64], _smoothing: f64, weights: &mut [f64]) -> f64 {
        self.atom_row(gradient, weights);
        self.dual_row_norm(gradient)
    }

    fn value(&self, output: ArrayView2<'_, f64>) -> f64 {
        output.iter().map(|u| u.abs()).sum()
    }
}
