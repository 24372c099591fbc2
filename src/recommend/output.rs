//! Fits the output layer for given blocks: min Σ_c ½ w_cᵀ Q_c w_c − h_cᵀ w_c over w_c = (U_c, b_c),
//! Ω(U) ≤ τ.

use ndarray::{Array1, Array2, s};

use super::block::pairs;
use super::prior::inverse;
use super::problem::VariationalSettings;
use super::sums::SweepSums;
use crate::error::Result;

/// Output weights U and intercepts b, with the precision of a Gaussian likelihood.
#[derive(Debug, Clone)]
pub(super) struct OutputLayer {
    /// Output weights U, outputs × factors.
    pub weights: Array2<f64>,
    /// Intercept b of each output.
    pub intercept: Vec<f64>,
    /// Precision 1/σ² of the Gaussian likelihood.
    pub precision: f64,
}

/// Number of projected gradient iterations; the problem has k + 1 unknowns per output.
const ITERATIONS: usize = 200;

/// Adapts the quadratic to bases that have been divided by `scale`.
pub(super) fn rescale(sums: &mut SweepSums, scale: &[f64]) {
    let k = scale.len();
    let n_pairs = sums.curvature.ncols() - k - 1;
    for mut curvature in sums.curvature.rows_mut() {
        for (slot, (r, s)) in pairs(k).enumerate() {
            curvature[slot] /= scale[r] * scale[s];
        }
        for (r, scale) in scale.iter().enumerate() {
            curvature[n_pairs + r] /= scale;
        }
    }
    for mut slope in sums.slope.rows_mut() {
        slope.iter_mut().zip(scale).for_each(|(slope, scale)| *slope /= scale);
    }
}

/// The quadratic ½ wᵀ Q w − hᵀ w of one output, w = (U_c, b_c).
struct Quadratic {
    q: Array2<f64>,
    h: Array1<f64>,
}

impl Quadratic {
    /// The quadratic of output c, with the ridge on U_c.
    fn new(c: usize, k: usize, intercept: f64, sums: &SweepSums, ridge: f64) -> Self {
        let curvature = sums.curvature.row(c);
        let n_pairs = curvature.len() - k - 1;
        let mut q = Array2::zeros((k + 1, k + 1));
        for (slot, (r, s)) in pairs(k).enumerate() {
            q[(r, s)] = curvature[slot];
            q[(s, r)] = curvature[slot];
        }
        for r in 0..k {
            q[(r, r)] += ridge;
            q[(r, k)] = curvature[n_pairs + r];
            q[(k, r)] = curvature[n_pairs + r];
        }
        q[(k, k)] = curvature[n_pairs + k];
        // The slopes contain −ω b for the current intercept b. Because b is fitted again, ω b is added back.
        let mut h: Array1<f64> = sums.slope.row(c).to_owned();
        for r in 0..=k {
            h[r] += intercept * curvature[n_pairs + r];
        }
        Self { q, h }
    }

    /// An upper bound on the curvature: the largest row sum of absolute values.
    fn lipschitz(&self) -> f64 {
        self.q.rows().into_iter().map(|row| row.mapv(f64::abs).sum()).fold(0.0, f64::max)
    }
}

/// Fits U and b: directly if the unconstrained solution is inside the ball, otherwise by FISTA with
/// the exact projection.
pub(super) fn fit_output(
    layer: &mut OutputLayer,
    sums: &SweepSums,
    settings: &VariationalSettings<'_>,
) -> Result<()> {
    let (m, k) = layer.weights.dim();
    let quadratics: Vec<Quadratic> = (0..m)
        .map(|c| Quadratic::new(c, k, layer.intercept[c], sums, settings.output_ridge))
        .collect();
    let mut free = Array2::zeros((m, k + 1));
    for (mut free, Quadratic { q, h }) in free.rows_mut().into_iter().zip(&quadratics) {
        free.assign(&inverse(q)?.matrix.dot(h));
    }
    let project = |w: &Array2<f64>| -> Array2<f64> {
        let mut output = w.slice(s![.., ..k]).t().as_standard_layout().into_owned();
        settings.penalty.project(output.view_mut(), settings.radius);
        let mut projected = w.clone();
        projected.slice_mut(s![.., ..k]).assign(&output.t());
        projected
    };
    let projected = project(&free);
    // Projecting a point that is inside the ball leaves it unchanged bit for bit.
    let solution =
        if projected == free { free } else { projected_gradient(&quadratics, projected, project) };
    layer.weights.assign(&solution.slice(s![.., ..k]));
    layer.intercept = solution.column(k).to_vec();
    Ok(())
}

/// FISTA on the sum of the quadratics. Starts from `w`, which has one row per output.
fn projected_gradient(
    quadratics: &[Quadratic],
    mut w: Array2<f64>,
    project: impl Fn(&Array2<f64>) -> Array2<f64>,
) -> Array2<f64> {
    let lipschitz = quadratics.iter().map(Quadratic::lipschitz).fold(f64::MIN_POSITIVE, f64::max);
    let (mut at, mut momentum) = (w.clone(), 1.0f64);
    for _ in 0..ITERATIONS {
        let mut next = at.clone();
        for (c, Quadratic { q, h }) in quadratics.iter().enumerate() {
            let step = (q.dot(&at.row(c)) - h) / lipschitz;
            next.row_mut(c).scaled_add(-1.0, &step);
        }
        let next = project(&next);
        let grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
        at = &next + &((&next - &w) * ((momentum - 1.0) / grown));
        (w, momentum) = (next, grown);
    }
    w
}
