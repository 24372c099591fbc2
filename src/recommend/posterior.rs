//! The Gaussian of one block, given what its ratings add up to.

use ndarray::Array2;

use super::block::{BlockLayout, pairs};
use super::prior::inverse;
use super::row_sums::{PackedOutput, RowSums};
use super::sums::SweepSums;
use crate::error::Result;

/// The prior of one row: the precision, shared by all, and the precision times the row's mean.
#[derive(Clone, Copy)]
pub(super) struct RowPrior<'a> {
    pub precision: &'a Array2<f64>,
    pub pulled: &'a [f64],
}

/// The normal equations of one block, as scratch.
pub(super) struct Posterior {
    matrix: Array2<f64>,
    vector: Vec<f64>,
}

impl Posterior {
    pub fn new(layout: BlockLayout) -> Self {
        let d = layout.d();
        Self { matrix: Array2::zeros((d, d)), vector: vec![0.0; d] }
    }

    /// Solves for the block, N(z, S) with S = (prior precision + curvature)⁻¹, and adds its share of the
    /// output layer's quadratic.
    pub fn solve(
        &mut self,
        row: &RowSums,
        output: &PackedOutput<'_>,
        prior: RowPrior<'_>,
        block: &mut [f64],
        totals: &mut SweepSums,
    ) -> Result<()> {
        let layout = output.layout;
        let BlockLayout { k, m, k_pad, .. } = layout;
        self.assemble(row, output, prior);
        let posterior = inverse(&self.matrix)?;
        let (s, z) = (&posterior.matrix, posterior.matrix.dot(&ndarray::aview1(&self.vector)));
        for r in 0..k {
            block[r] = z[r];
        }
        for c in 0..m {
            block[layout.l().start + c] = z[k + c];
            block[layout.v().start + c] = s[(k + c, k + c)];
            for r in 0..k {
                block[layout.x().start + c * k_pad + r] = s[(k + c, r)];
            }
        }
        for (slot, (r, t)) in pairs(k).enumerate() {
            block[layout.e().start + slot] = z[r] * z[t] + s[(r, t)];
        }
        totals.covariance += s;
        totals.log_det -= posterior.log_det;
        add_output_sums(row, layout, block, totals);
        Ok(())
    }

    /// The prior's precision plus the curvature of the ratings' bounds, and their slopes.
    fn assemble(&mut self, row: &RowSums, output: &PackedOutput<'_>, prior: RowPrior<'_>) {
        let BlockLayout { k, m, k_pad, pairs: n_pairs, .. } = output.layout;
        self.matrix.assign(prior.precision);
        self.vector.copy_from_slice(prior.pulled);
        for c in 0..m {
            let u = &output.weights[c * k_pad..c * k_pad + k];
            let at = c * k_pad;
            for (slot, (r, s)) in pairs(k).enumerate() {
                let curvature = u[r] * u[s] * row.omega_e[c * n_pairs + slot];
                self.matrix[(r, s)] += curvature;
                if r != s {
                    self.matrix[(s, r)] += curvature;
                }
            }
            for (r, u) in u.iter().enumerate() {
                let cross = u * row.omega_q[at + r];
                self.matrix[(k + c, r)] += cross;
                self.matrix[(r, k + c)] += cross;
                self.vector[r] += u * (row.pull_q[at + r] - row.omega_x[at + r]);
            }
            self.matrix[(k + c, k + c)] += row.omega[c];
            self.vector[k + c] += row.pull[c];
        }
    }
}

/// The ratings' share of the quadratic in (U_c, b_c), at the curvatures just used (still a bound).
fn add_output_sums(row: &RowSums, layout: BlockLayout, block: &[f64], totals: &mut SweepSums) {
    let BlockLayout { k, m, k_pad, pairs, .. } = layout;
    let (p, l) = (&block[layout.p()], &block[layout.l()]);
    let (x, e) = (&block[layout.x()], &block[layout.e()]);
    for (c, l) in l.iter().enumerate().take(m) {
        let mut curvature = totals.curvature.row_mut(c);
        let mut slope = totals.slope.row_mut(c);
        for t in 0..pairs {
            curvature[t] += row.omega_e[c * pairs + t] * e[t];
        }
        for r in 0..k {
            let at = c * k_pad + r;
            curvature[pairs + r] += p[r] * row.omega_q[at];
            // κ − ω(l + l') = pull + ω b − ω l; the intercept is re-fitted with U.
            slope[r] += p[r] * (row.pull_q[at] - l * row.omega_q[at] - row.omega_x[at])
                - x[at] * row.omega_q[at];
        }
        curvature[pairs + k] += row.omega[c];
        slope[k] += row.pull[c] - l * row.omega[c];
    }
}
