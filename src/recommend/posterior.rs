//! The Gaussian posterior of one block, given the sums over its ratings.

use ndarray::Array2;

use super::block::BlockLayout;
use super::prior::indefinite;
use super::row_sums::{PackedOutput, RowSums};
use super::sums::SweepSums;
use crate::error::Result;
use crate::linalg::cholesky::invert_in_place;
use crate::linalg::vectors::dot_in_order;

/// The prior of one row: the precision, which all rows share, and the precision times the row's prior mean.
#[derive(Clone, Copy)]
pub(super) struct RowPrior<'a> {
    pub precision: &'a Array2<f64>,
    pub pulled: &'a [f64],
}

/// Scratch memory for the normal equations of one block and for their solution.
pub(super) struct Posterior {
    /// The precision; after solving, the covariance. Stored by rows.
    matrix: Vec<f64>,
    vector: Vec<f64>,
    mean: Vec<f64>,
}

impl Posterior {
    pub fn new(layout: BlockLayout) -> Self {
        let d = layout.d();
        Self { matrix: vec![0.0; d * d], vector: vec![0.0; d], mean: vec![0.0; d] }
    }

    /// Computes the block's distribution N(z, S), with S = (prior precision + curvature)⁻¹, and
    /// adds the block's terms of the output layer's quadratic to `totals`.
    pub fn solve(
        &mut self,
        row: &RowSums,
        output: &PackedOutput<'_>,
        prior: RowPrior<'_>,
        block: &mut [f64],
        totals: &mut SweepSums,
    ) -> Result<()> {
        let layout = output.layout;
        self.assemble(row, output, prior);
        totals.log_det -= invert_in_place(&mut self.matrix, layout.d()).ok_or_else(indefinite)?;
        for (z, s) in self.mean.iter_mut().zip(self.matrix.chunks_exact(layout.d())) {
            *z = dot_in_order(s, &self.vector);
        }
        self.write(layout, block);
        let covariance = totals.covariance.as_slice_mut().unwrap_or_default();
        covariance.iter_mut().zip(&self.matrix).for_each(|(sum, s)| *sum += s);
        add_output_sums(row, layout, block, totals);
        Ok(())
    }

    /// Writes the mean and the covariance to the block.
    fn write(&self, layout: BlockLayout, block: &mut [f64]) {
        let BlockLayout { k, m, k_pad, .. } = layout;
        let (z, d) = (&self.mean, layout.d());
        block[layout.p()][..k].copy_from_slice(&z[..k]);
        block[layout.l()].copy_from_slice(&z[k..]);
        for c in 0..m {
            let s = &self.matrix[(k + c) * d..(k + c + 1) * d];
            block[layout.v()][c] = s[k + c];
            block[layout.x()][c * k_pad..c * k_pad + k].copy_from_slice(&s[..k]);
        }
        let mut e = block[layout.e()].iter_mut();
        for r in 0..k {
            let s = &self.matrix[r * d..r * d + r + 1];
            for (t, (s, e)) in s.iter().zip(&mut e).enumerate() {
                *e = z[r] * z[t] + s;
            }
        }
    }

    /// Assembles the normal equations: the prior plus the curvature and the slopes of the ratings'
    /// bounds.
    fn assemble(&mut self, row: &RowSums, output: &PackedOutput<'_>, prior: RowPrior<'_>) {
        let BlockLayout { k, m, k_pad, .. } = output.layout;
        let (d, long) = (output.layout.d(), output.layout.moments());
        self.matrix.copy_from_slice(prior.precision.as_slice().unwrap_or_default());
        self.vector.copy_from_slice(prior.pulled);
        for c in 0..m {
            let u = &output.weights[c * k_pad..c * k_pad + k];
            let (omega_q, omega_e) = row.omega_moments[c * long..(c + 1) * long].split_at(k_pad);
            let mut omega_e = omega_e.iter();
            for r in 0..k {
                let entries = &mut self.matrix[r * d..r * d + r + 1];
                for ((entry, u_s), omega_e) in entries.iter_mut().zip(u).zip(&mut omega_e) {
                    *entry += u[r] * u_s * omega_e;
                }
            }
            let cross = &mut self.matrix[(k + c) * d..(k + c + 1) * d];
            for (r, u) in u.iter().enumerate() {
                cross[r] += u * omega_q[r];
                self.vector[r] += u * (row.pull_q[c * k_pad + r] - row.omega_x[c * k_pad + r]);
            }
            cross[k + c] += row.omega[c];
            self.vector[k + c] += row.pull[c];
        }
        for r in 0..d {
            for s in 0..r {
                self.matrix[s * d + r] = self.matrix[r * d + s];
            }
        }
    }
}

/// Adds the ratings' terms of the quadratic in (U_c, b_c). Its curvatures ω are those of the block update, so the
/// quadratic still bounds the negative log-likelihood.
fn add_output_sums(row: &RowSums, layout: BlockLayout, block: &[f64], totals: &mut SweepSums) {
    let BlockLayout { k, m, k_pad, pairs, .. } = layout;
    let (p, l) = (&block[layout.p()], &block[layout.l()]);
    let (x, e) = (&block[layout.x()], &block[layout.e()]);
    let long = layout.moments();
    let curvature = totals.curvature.as_slice_mut().unwrap_or_default();
    let slope = totals.slope.as_slice_mut().unwrap_or_default();
    let rows = curvature.chunks_exact_mut(pairs + k + 1).zip(slope.chunks_exact_mut(k + 1));
    for ((c, (curvature, slope)), l) in rows.enumerate().take(m).zip(l) {
        let (omega_q, omega_e) = row.omega_moments[c * long..(c + 1) * long].split_at(k_pad);
        for ((sum, omega_e), e) in curvature.iter_mut().zip(omega_e).zip(e) {
            *sum += omega_e * e;
        }
        for r in 0..k {
            let at = c * k_pad + r;
            curvature[pairs + r] += p[r] * omega_q[r];
            // The slope needs κ − ω(l + l') = pull + ω b − ω l. The output layer's fit adds the term ω b.
            slope[r] +=
                p[r] * (row.pull_q[at] - l * omega_q[r] - row.omega_x[at]) - x[at] * omega_q[r];
        }
        curvature[pairs + k] += row.omega[c];
        slope[k] += row.pull[c] - l * row.omega[c];
    }
}
