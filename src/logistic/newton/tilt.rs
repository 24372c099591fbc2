//! Certificates computed from passes. With an intercept, the probabilities of a pass violate the dual constraint and
//! are corrected ("tilted").

use pulp::{Simd, WithSimd};

use super::layout::RowBlocks;
use super::softmax::BlockSums;
use super::store::{BlockSample, Lines, Store};
use super::tiles::add_products;
use crate::dual::rounding::{Bounded, Sum, TINY, gamma};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::logistic::certificate::{VIOLATED, tilt_of};
use crate::logistic::certificate_pass::SOLVED;
use crate::logistic::terms::{EXPONENTIAL, RESCALED, Terms};
use crate::logistic::{LogisticModel, LogisticTotals};
use crate::run::Certificate;

/// Upper limit on twice the largest entry of a tilt, which bounds the relative changes of probabilities.
const LARGEST: f64 = 0.4;
/// An upper bound on exp(−500), which replaces all smaller exponentials.
const SMALLEST: f64 = 1e-217;
/// Relative error of the single-precision probabilities from which tilts are computed.
const SINGLE: f64 = 1e-6;

/// The sums from which the certificate of a model was computed.
pub(super) struct CertifiedSums {
    terms: Terms,
    /// The changes by the tilt, with a bound on the relative changes of probabilities.
    tilt: Option<(Moved, f64)>,
    /// A bound on the error of each score.
    error: f64,
    /// The intercepts for centred columns.
    intercepts: Vec<f64>,
}

impl CertifiedSums {
    /// Computes the sums after an exact pass at scaled weights; `gradient` is the gradient of the losses. The tilt
    /// changes the probabilities of the rows of `sample` only.
    pub fn new(
        (store, sample): (&mut Store<'_>, BlockSample),
        scaled: &[f64],
        (totals, gradient): (BlockSums, &[f64]),
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let problem = store.problem().clone();
        let error = score_error(store, scaled);
        let constant = |line: &[f64]| line[problem.n_features()];
        let intercepts = match problem.intercept() {
            true => scaled.chunks_exact(store.layout.width()).map(constant).collect(),
            false => Vec::new(),
        };
        let terms = terms(store, totals, gradient, error);
        let mut sums = Self { terms, tilt: None, error, intercepts };
        let residual = &sums.terms.residual;
        let violation = residual.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        if !problem.intercept() || violation <= VIOLATED * problem.total() {
            return Ok(sums);
        }
        let tilt = tilt_of(problem.class_totals(), residual, moments(store, sample, interrupt)?);
        let size = |tilt: &Vec<f64>| tilt.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        if let Some(tilt) = tilt.filter(|tilt| size(tilt) <= 0.5 * LARGEST) {
            sums.tilt = Some((moved((store, sample), &tilt, interrupt)?, 4.0 * size(&tilt)));
        }
        Ok(sums)
    }

    /// Multiplies all c_i by a factor. The sums are linear in the c_i, and the tilt does not depend on the factor.
    pub fn rescale(&mut self, factor: f64) {
        self.terms.rescale(factor);
        if let Some((moved, _)) = &mut self.tilt {
            let sums = moved.image.iter_mut().chain(&mut moved.residual);
            sums.for_each(|sum| *sum *= factor);
            moved.size *= factor * (1.0 + gamma(RESCALED));
            moved.curved *= factor * (1.0 + gamma(RESCALED));
        }
    }

    #[cfg(test)]
    pub fn has_tilt(&self) -> bool {
        self.tilt.is_some()
    }

    /// Returns objective and dual value of the model.
    pub fn certificate(&self, store: &Store<'_>, model: &LogisticModel) -> Certificate {
        // Centring does not change the image of distributions that meet the intercept's constraint.
        let column_sizes = store.layout.sizes.clone();
        let totals = LogisticTotals { column_sizes, ..store.problem().totals().clone() };
        let own = self.terms.certificate(&totals, model);
        let Some((moved, relative)) = &self.tilt else { return own };
        let centred = (&model.weights[..], &self.intercepts[..]);
        let tilted = tilted(store, (&self.terms, centred), (moved, *relative, self.error));
        let dual = tilted.certificate(&totals, model).dual;
        Certificate { primal: own.primal, dual: own.dual.max(dual) }
    }
}

/// A bound on the error of each score, including the error of the model's intercepts, which are b − W μ for the centres
/// μ. The scaled values of the rows are at most 1.
fn score_error(store: &Store<'_>, scaled: &[f64]) -> f64 {
    let RowBlocks { centres, inverse_units, .. } = &store.layout;
    let columns = || centres.iter().zip(inverse_units);
    let size_of = |line: &[f64]| -> f64 {
        let own = line.iter().zip(columns());
        own.map(|(u, (centre, inverse))| u.abs() * (1.0 + (centre * inverse).abs())).sum()
    };
    let width = store.layout.width();
    let size = scaled.chunks_exact(width.max(1)).map(size_of).fold(0.0, f64::max);
    2.0 * gamma(width + 6) * size + (width + 2) as f64 * (1.0 + size) * TINY
}

/// The sums of a certificate.
fn terms(store: &Store<'_>, totals: BlockSums, gradient: &[f64], error: f64) -> Terms {
    let (problem, width) = (store.problem(), store.layout.width());
    let (depth, d) = (store.depth(), problem.n_features());
    let rounded = EXPONENTIAL + gamma(problem.n_classes() + depth + 8);
    let slope = if error < 0.1 { totals.slope } else { problem.total() };
    let moved = 2.0 * error * slope * (1.0 + rounded);
    let replaced = problem.total() * problem.n_classes() as f64 * SMALLEST;
    let mut terms = Terms::zeros(problem.n_outputs());
    terms.loss = Sum::default();
    terms.loss.add(Bounded::new(totals.loss, rounded * totals.loss + moved + replaced));
    terms.entropy = totals.entropy * (1.0 - rounded);
    terms.distance = totals.distance * (1.0 + rounded);
    terms.depth = depth;
    for (line, residual) in gradient.chunks_exact(width.max(1)).zip(&mut terms.residual) {
        let (own, constant) = line.split_at(d);
        terms.image.extend(own.iter().zip(&store.layout.units).map(|(g, unit)| -g * unit));
        *residual = constant.first().map_or(0.0, |constant| -constant);
    }
    terms
}

/// Σ c_i (diag p_i − p_i p_iᵀ) over the outputs, for the rows of a sample; empty if there are too many outputs.
pub(super) fn moments(
    store: &mut Store<'_>,
    sample: BlockSample,
    interrupt: &Interrupt,
) -> Result<Vec<f64>> {
    let n = store.problem().n_outputs();
    if n > SOLVED {
        return Ok(Vec::new());
    }
    let add = |layout: &RowBlocks<'_>, lines: Lines<'_>, sums: &mut [f64]| {
        let n_rows = layout.block_rows;
        let mut weighted = Vec::new();
        for (class, line) in lines.shares.chunks_exact(n_rows).enumerate() {
            let own = line.iter().zip(lines.weights).map(|(share, weight)| -share * weight);
            let start = weighted.len();
            weighted.extend(own);
            sums[class * (n + 1)] -= f64::from(weighted[start..].iter().sum::<f32>());
        }
        // With two classes there is one output (n = 1), and its shares already hold p (1 − p), so no product is
        // subtracted.
        if n > 1 {
            add_products((&weighted[..], lines.shares, n_rows), (sums, n), false);
        }
    };
    store.sums_of_shares(BlockSample { factor: 1.0, ..sample }, (n * n, interrupt), add)
}

/// Sums of the changes c_i γ_i over the rows of a sample, where γ_ik = p_ik (δ_k − ⟨p_i, δ⟩ / Σ p_i).
struct Moved {
    /// Σ c_i γ_i x_iᵀ in single precision, output after output, with columns in their units.
    image: Vec<f64>,
    /// Σ c_i γ_i.
    residual: Vec<f64>,
    /// Σ c_i |γ_i|.
    size: f64,
    /// ½ Σ c_i γ_ik² / p_ik.
    curved: f64,
}

fn moved(
    (store, sample): (&mut Store<'_>, BlockSample),
    tilt: &[f64],
    interrupt: &Interrupt,
) -> Result<Moved> {
    let (n, n_outputs) = (store.len(), store.problem().n_outputs());
    // With two classes, `lines.shares` has one line, which holds p (1 − p), the derivative of the second class's
    // probability p. Only the second entry of the tilt is needed, because the first is 0.
    let own = if n_outputs == 1 { &tilt[1..] } else { tilt };
    let add = |layout: &RowBlocks<'_>, lines: Lines<'_>, sums: &mut [f64]| {
        let n_rows = layout.block_rows;
        let mut changes = vec![0.0_f32; n_outputs * n_rows];
        let (image, totals) = sums.split_at_mut(n);
        arch().dispatch(Move { lines, tilt: own, changes: &mut changes, totals });
        add_products((&changes[..], lines.rows, n_rows), (image, layout.width()), false);
    };
    let sample = BlockSample { factor: 1.0, ..sample };
    let mut sums = store.sums(sample, (n + n_outputs + 2, interrupt), add)?;
    let (size, curved) = (sums[n + n_outputs], sums[n + n_outputs + 1]);
    sums.truncate(n + n_outputs);
    let residual = sums.split_off(n);
    // With two classes, the other class changes by the same amount.
    let factor = if n_outputs == 1 { 2.0 } else { 1.0 };
    Ok(Moved { image: sums, residual, size: factor * size, curved })
}

/// Number of rows that are processed together; the compiler vectorises loops of this length.
const LANES: usize = 16;

/// Writes the changes c_i γ_i of a block, and adds their sum for each output, the sum of their absolute values, and ½ Σ
/// c_i γ_ik² / p_ik to the totals.
struct Move<'a> {
    lines: Lines<'a>,
    tilt: &'a [f64],
    changes: &'a mut [f32],
    totals: &'a mut [f64],
}

impl WithSimd for Move<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { lines: Lines { shares, weights, .. }, tilt, changes, totals } = self;
        let (n_rows, n_outputs) = (weights.len(), tilt.len());
        let (residual, totals) = totals.split_at_mut(n_outputs);
        let (mut sizes, mut curved) = ([0.0; LANES], [0.0; LANES]);
        for row in (0..n_rows).step_by(LANES) {
            let lanes = row..row + LANES;
            let mut mean = [0.0; LANES];
            if n_outputs > 1 {
                let mut sum = [0.0; LANES];
                for (shares, tilt) in shares.chunks_exact(n_rows).zip(tilt) {
                    for ((share, sum), mean) in
                        shares[lanes.clone()].iter().zip(&mut sum).zip(&mut mean)
                    {
                        let share = f64::from(*share);
                        *sum += share;
                        *mean += share * tilt;
                    }
                }
                mean.iter_mut().zip(sum).for_each(|(mean, sum)| *mean /= sum);
            }
            let outputs = shares.chunks_exact(n_rows).zip(changes.chunks_exact_mut(n_rows));
            for ((shares, changes), (tilt, residual)) in
                outputs.zip(tilt.iter().zip(residual.iter_mut()))
            {
                let (shares, changes) = (&shares[lanes.clone()], &mut changes[lanes.clone()]);
                let weights = &weights[lanes.clone()];
                let mut sum = [0.0; LANES];
                for lane in 0..LANES {
                    let by = tilt - mean[lane];
                    let change = f64::from(weights[lane]) * f64::from(shares[lane]) * by;
                    changes[lane] = change as f32;
                    sum[lane] = change;
                    sizes[lane] += change.abs();
                    curved[lane] += change * by;
                }
                *residual += sum.iter().sum::<f64>();
            }
        }
        totals[0] += sizes.iter().sum::<f64>();
        totals[1] += 0.5 * curved.iter().sum::<f64>();
    }
}

/// The sums of the distributions α_i + γ_i, with a lower bound on the entropy that includes the effect of the change.
///
/// H(α + γ) ≥ H(α) − ⟨γ, log α⟩ − ½ Σ γ²/α / (1 − max |γ/α|), and log α_i is W x_i + b up to a constant. The error e of
/// the image changes the dual value by ⟨v − W, e⟩ − ½‖e‖².
fn tilted(
    store: &Store<'_>,
    (terms, (weights, intercepts)): (&Terms, (&[f64], &[f64])),
    (moved, relative, error): (&Moved, f64, f64),
) -> Terms {
    let (width, d) = (store.layout.width(), store.problem().n_features());
    let mut terms = terms.clone();
    let lines = moved.image.chunks_exact(width.max(1)).map(|line| &line[..d]);
    let single = (store.layout.block_rows + 16) as f64 * f64::from(f32::EPSILON) * moved.size;
    let (mut first, mut size, mut squares) = (0.0, 0.0, vec![0.0; d]);
    for (line, (image, weights)) in
        lines.zip(terms.image.chunks_exact_mut(d.max(1)).zip(weights.chunks_exact(d.max(1))))
    {
        for (column, (moved, (v, w))) in line.iter().zip(image.iter_mut().zip(weights)).enumerate()
        {
            let moved = moved * store.layout.units[column];
            *v -= moved;
            first += moved * w;
            size += (moved * w).abs();
            squares[column] += (*v - w) * (*v - w);
        }
    }
    for (moved, b) in moved.residual.iter().zip(intercepts) {
        first += moved * b;
        size += (moved * b).abs();
    }
    let lost = squares.iter().zip(&store.layout.units).map(|(square, unit)| {
        let own = single * unit;
        square.sqrt() * own + own * own
    });
    let rounded = gamma(terms.image.len() + terms.depth + 8);
    let wrong = lost.sum::<f64>() * (1.0 + SINGLE)
        + rounded * size
        + 2.0 * (error + EXPONENTIAL) * moved.size;
    let curved = moved.curved * (1.0 + SINGLE) / (1.0 - relative);
    terms.entropy -= first + curved + wrong;
    for (residual, moved) in terms.residual.iter_mut().zip(&moved.residual) {
        *residual -= moved;
    }
    // The rounding errors of the changes have the same bounds as the rounding errors of the
    // distributions.
    terms.distance += moved.size;
    terms
}
