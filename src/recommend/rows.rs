//! The update of one side's blocks, given the other's: the sweep's inner loops.

use ndarray::Array2;
use rayon::prelude::*;

use super::lanes::{axpy, dot, triple_dot};
use super::prior::positive_definite;
use super::side::{Layout, Side, pairs};
use super::{Likelihood, OutputLayer};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::exp_minus;

/// Ratings whose moments are taken together.
const PIECE: usize = 64;

/// What a half sweep adds up over all ratings.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// The likelihood's bound before the update.
    pub bound: f64,
    /// Σ E\[(y − o)²\] before the update (Gaussian).
    pub squares: f64,
    /// Per output, the quadratic model of (U_c, b_c): Σ ω E\[(p∘q)(p∘q)ᵀ\] packed, Σ ω E\[p∘q\], Σ ω.
    pub curvature: Array2<f64>,
    /// Its linear term, m × (k + 1).
    pub slope: Array2<f64>,
    covariance: Array2<f64>,
    log_det: f64,
}

impl Sums {
    fn new(layout: Layout) -> Self {
        let Layout { k, m, pairs, .. } = layout;
        Self {
            bound: 0.0,
            squares: 0.0,
            curvature: Array2::zeros((m, pairs + k + 1)),
            slope: Array2::zeros((m, k + 1)),
            covariance: Array2::zeros((k + m, k + m)),
            log_det: 0.0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.bound += other.bound;
        self.squares += other.squares;
        self.curvature += &other.curvature;
        self.slope += &other.slope;
        self.covariance += &other.covariance;
        self.log_det += other.log_det;
    }
}

/// Updates every block of `own` given `other` (step 1 of the sweep).
pub(super) fn update_rows(
    own: &mut Side<'_>,
    other: &Side<'_>,
    output: &OutputLayer,
    likelihood: &Likelihood,
    interrupt: &Interrupt,
) -> Result<Sums> {
    let layout = own.layout;
    let precision = own.prior.precision()?;
    let pulled = own.prior.mean.dot(&precision.inverse);
    let shared = Shared::new(layout, output, likelihood);
    let mut rest = own.blocks.as_mut_slice();
    let mut tasks = Vec::with_capacity(own.parts.len());
    for rows in &own.parts {
        let (blocks, tail) = rest.split_at_mut(rows.len() * layout.stride());
        rest = tail;
        tasks.push((rows.clone(), blocks));
    }
    let (offsets, partners, values) = (&own.offsets, &own.partners, &own.values);
    let sums: Vec<Result<Sums>> = tasks
        .into_par_iter()
        .map(|(rows, blocks)| {
            let mut sums = Sums::new(layout);
            let mut work = Work::new(layout);
            let simd = pulp::Arch::new();
            for (row, block) in rows.zip(blocks.chunks_exact_mut(layout.stride())) {
                if interrupt.is_raised() {
                    break;
                }
                let range = offsets[row]..offsets[row + 1];
                let (partners, values) = (&partners[range.clone()], &values[range]);
                simd.dispatch(Gather {
                    work: &mut work,
                    shared: &shared,
                    block,
                    partners,
                    values,
                    others: &other.blocks,
                    sums: &mut sums,
                });
                let pulled = pulled.row(row);
                work.solve(&shared, &precision.inverse, pulled.as_slice(), block, &mut sums)?;
            }
            Ok(sums)
        })
        .collect();
    interrupt.check()?;
    let mut total = Sums::new(layout);
    for sums in sums {
        total.add(&sums?);
    }
    own.covariance_sum = total.covariance.clone();
    own.log_det_sum = total.log_det;
    Ok(total)
}

/// The output layer in the form that the inner loops want.
struct Shared<'a> {
    layout: Layout,
    likelihood: &'a Likelihood,
    precision: f64,
    intercept: &'a [f64],
    /// U by outputs, each row padded.
    weights: Vec<f64>,
    /// U_cr U_cs packed, off-diagonal entries doubled.
    products: Vec<f64>,
}

impl<'a> Shared<'a> {
    fn new(layout: Layout, output: &'a OutputLayer, likelihood: &'a Likelihood) -> Self {
        let mut weights = vec![0.0; layout.m * layout.k_pad];
        let mut products = vec![0.0; layout.m * layout.pairs];
        for c in 0..layout.m {
            let u = output.weights.row(c);
            for r in 0..layout.k {
                weights[c * layout.k_pad + r] = u[r];
            }
            for (slot, (r, s)) in pairs(layout.k).enumerate() {
                let twice = if r == s { 1.0 } else { 2.0 };
                products[c * layout.pairs + slot] = twice * u[r] * u[s];
            }
        }
        let OutputLayer { intercept, precision, .. } = output;
        Self { layout, likelihood, precision: *precision, intercept, weights, products }
    }
}

/// Sums over the ratings of one row; everything the update and the output layer need follows from them.
struct Work {
    /// U_c ∘ p, m × k.
    up: Vec<f64>,
    /// U_c ∘ x_c, m × k.
    ux: Vec<f64>,
    /// U_c U_cᵀ ∘ E\[p pᵀ\], m × pairs.
    ue: Vec<f64>,
    /// E o, then κ; and Var o, then ω; for each output and rating of a piece.
    mean: Vec<f64>,
    variance: Vec<f64>,
    /// Σ ω per output.
    omega: Vec<f64>,
    /// Σ g per output, g = κ − ω (b + l of the partner).
    pull: Vec<f64>,
    /// Σ ω q, Σ g q, Σ ω x of the partner; m × k each.
    omega_q: Vec<f64>,
    pull_q: Vec<f64>,
    omega_x: Vec<f64>,
    /// Σ ω E\[q qᵀ\], m × pairs.
    omega_e: Vec<f64>,
    matrix: Array2<f64>,
    vector: Vec<f64>,
}

impl Work {
    fn new(layout: Layout) -> Self {
        let (wide, long) = (layout.m * layout.k_pad, layout.m * layout.pairs);
        Self {
            up: vec![0.0; wide],
            ux: vec![0.0; wide],
            ue: vec![0.0; long],
            mean: vec![0.0; layout.m * PIECE],
            variance: vec![0.0; layout.m * PIECE],
            omega: vec![0.0; layout.m],
            pull: vec![0.0; layout.m],
            omega_q: vec![0.0; wide],
            pull_q: vec![0.0; wide],
            omega_x: vec![0.0; wide],
            omega_e: vec![0.0; long],
            matrix: Array2::zeros((layout.d(), layout.d())),
            vector: vec![0.0; layout.d()],
        }
    }

    /// Solves for the block, N(z, S) with S = (prior precision + curvature)⁻¹, and adds its share of the
    /// output layer's quadratic.
    fn solve(
        &mut self,
        shared: &Shared<'_>,
        prior: &Array2<f64>,
        pulled: Option<&[f64]>,
        block: &mut [f64],
        sums: &mut Sums,
    ) -> Result<()> {
        let layout = shared.layout;
        let Layout { k, m, k_pad, pairs: n_pairs, .. } = layout;
        self.matrix.assign(prior);
        self.vector.copy_from_slice(pulled.unwrap_or(&[]));
        for c in 0..m {
            let u = &shared.weights[c * k_pad..c * k_pad + k];
            let at = c * k_pad;
            for (slot, (r, s)) in pairs(k).enumerate() {
                let curvature = u[r] * u[s] * self.omega_e[c * n_pairs + slot];
                self.matrix[(r, s)] += curvature;
                if r != s {
                    self.matrix[(s, r)] += curvature;
                }
            }
            for (r, u) in u.iter().enumerate() {
                let cross = u * self.omega_q[at + r];
                self.matrix[(k + c, r)] += cross;
                self.matrix[(r, k + c)] += cross;
                self.vector[r] += u * (self.pull_q[at + r] - self.omega_x[at + r]);
            }
            self.matrix[(k + c, k + c)] += self.omega[c];
            self.vector[k + c] += self.pull[c];
        }
        let posterior = positive_definite(&self.matrix)?;
        let (s, z) = (&posterior.inverse, posterior.inverse.dot(&ndarray::aview1(&self.vector)));
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
        sums.covariance += s;
        sums.log_det -= posterior.log_det;
        self.add_output_sums(layout, block, sums);
        Ok(())
    }

    /// The ratings' share of the quadratic in (U_c, b_c), at the curvatures just used (still a bound).
    fn add_output_sums(&self, layout: Layout, block: &[f64], sums: &mut Sums) {
        let Layout { k, m, k_pad, pairs, .. } = layout;
        let (p, l) = (&block[layout.p()], &block[layout.l()]);
        let (x, e) = (&block[layout.x()], &block[layout.e()]);
        for (c, l) in l.iter().enumerate().take(m) {
            let mut curvature = sums.curvature.row_mut(c);
            let mut slope = sums.slope.row_mut(c);
            for t in 0..pairs {
                curvature[t] += self.omega_e[c * pairs + t] * e[t];
            }
            for r in 0..k {
                let at = c * k_pad + r;
                curvature[pairs + r] += p[r] * self.omega_q[at];
                // κ − ω(l + l') = pull + ω b − ω l; the intercept is re-fitted with U.
                slope[r] += p[r] * (self.pull_q[at] - l * self.omega_q[at] - self.omega_x[at])
                    - x[at] * self.omega_q[at];
            }
            curvature[pairs + k] += self.omega[c];
            slope[k] += self.pull[c] - l * self.omega[c];
        }
    }
}

/// Adds up one row's ratings. With s_c = Σ_r U_cr p_r q_r,
/// E\[o_c²\] = (E o_c)² + v + v' + 2⟨U_c, q∘x_c + p∘x'_c⟩ + ⟨U_cU_cᵀ, E\[ppᵀ\]∘E\[qqᵀ\]⟩ − s_c².
///
/// A type of its own, since only an inlined body is compiled for the processor at hand.
struct Gather<'a> {
    work: &'a mut Work,
    shared: &'a Shared<'a>,
    block: &'a [f64],
    partners: &'a [u32],
    values: &'a [f64],
    others: &'a [f64],
    sums: &'a mut Sums,
}

impl pulp::WithSimd for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _simd: S) {
        let Self { work, shared, block, partners, values, others, sums } = self;
        let layout = shared.layout;
        let Layout { m, k_pad, pairs, .. } = layout;
        let (p, x, e) = (&block[layout.p()], &block[layout.x()], &block[layout.e()]);
        for c in 0..m {
            let u = &shared.weights[c * k_pad..(c + 1) * k_pad];
            for r in 0..k_pad {
                work.up[c * k_pad + r] = u[r] * p[r];
                work.ux[c * k_pad + r] = u[r] * x[c * k_pad + r];
            }
            let products = &shared.products[c * pairs..(c + 1) * pairs];
            let ue = &mut work.ue[c * pairs..(c + 1) * pairs];
            for ((ue, product), e) in ue.iter_mut().zip(products).zip(e) {
                *ue = product * e;
            }
        }
        for sum in [
            &mut work.omega,
            &mut work.pull,
            &mut work.omega_q,
            &mut work.pull_q,
            &mut work.omega_x,
            &mut work.omega_e,
        ] {
            sum.fill(0.0);
        }
        let (l, v) = (&block[layout.l()], &block[layout.v()]);
        let stride = layout.stride();
        let of = |partner: u32| &others[partner as usize * stride..(partner as usize + 1) * stride];
        // In pieces: moments, then curvatures (a loop that vectorises over ratings), then sums.
        for (partners, values) in partners.chunks(PIECE).zip(values.chunks(PIECE)) {
            let count = partners.len();
            for (slot, &partner) in partners.iter().enumerate() {
                let other = of(partner);
                let (q, e2) = (&other[layout.p()], &other[layout.e()]);
                let (l2, v2, x2) = (&other[layout.l()], &other[layout.v()], &other[layout.x()]);
                for c in 0..m {
                    let (wide, long) = (c * k_pad..(c + 1) * k_pad, c * pairs..(c + 1) * pairs);
                    let up = &work.up[wide.clone()];
                    let s = dot(up, q);
                    let second = triple_dot(
                        (&work.ue[long], e2),
                        (&work.ux[wide.clone()], q),
                        (up, &x2[wide]),
                    );
                    work.mean[c * PIECE + slot] = shared.intercept[c] + l[c] + l2[c] + s;
                    work.variance[c * PIECE + slot] = v[c] + v2[c] + second - s * s;
                }
            }
            for c in 0..m {
                let range = c * PIECE..c * PIECE + count;
                let (means, variances) = (&mut work.mean[range.clone()], &mut work.variance[range]);
                match shared.likelihood {
                    Likelihood::Ordinal(tempering) => {
                        sums.bound +=
                            logistic_curvatures(tempering[c], c as f64, values, means, variances);
                    }
                    Likelihood::Gaussian => {
                        for ((mean, variance), y) in means.iter_mut().zip(variances).zip(values) {
                            let square = (y - *mean) * (y - *mean) + variance.max(0.0);
                            sums.squares += square;
                            sums.bound += 0.5 * (shared.precision * square - shared.precision.ln());
                            *variance = shared.precision;
                            *mean = shared.precision * y;
                        }
                    }
                }
            }
            for (slot, &partner) in partners.iter().enumerate() {
                let other = of(partner);
                let (q, e2) = (&other[layout.p()], &other[layout.e()]);
                let (l2, x2) = (&other[layout.l()], &other[layout.x()]);
                for (c, l2) in l2.iter().enumerate() {
                    let (wide, long) = (c * k_pad..(c + 1) * k_pad, c * pairs..(c + 1) * pairs);
                    let omega = work.variance[c * PIECE + slot];
                    let pull = work.mean[c * PIECE + slot] - omega * (shared.intercept[c] + l2);
                    work.omega[c] += omega;
                    work.pull[c] += pull;
                    axpy(&mut work.omega_q[wide.clone()], omega, q);
                    axpy(&mut work.pull_q[wide.clone()], pull, q);
                    axpy(&mut work.omega_x[wide.clone()], omega, &x2[wide]);
                    axpy(&mut work.omega_e[long], omega, e2);
                }
            }
        }
    }
}

/// Turns means and variances of one output into κ and ω = tanh(ξ/2)/(2ξ), both tempered, where
/// ξ² = E\[o²\]; returns the bound Σ ξ/2 + log(1 + exp(−ξ)) − (y − ½) E o, tempered.
#[inline(always)]
fn logistic_curvatures(
    tempering: f64,
    level: f64,
    values: &[f64],
    means: &mut [f64],
    variances: &mut [f64],
) -> f64 {
    let mut small = [0.0; PIECE];
    let (mut linear, mut product) = (0.0, 1.0);
    for ((mean, variance), small) in means.iter().zip(variances.iter_mut()).zip(&mut small) {
        let xi = (mean * mean + variance.max(0.0) + 1e-8).sqrt();
        *small = exp_minus(xi);
        *variance = xi;
    }
    for (((mean, variance), small), y) in means.iter_mut().zip(variances).zip(&small).zip(values) {
        let xi = *variance;
        let sign = if *y <= level { 0.5 } else { -0.5 };
        linear += 0.5 * xi - sign * *mean;
        // At most 2 to the PIECE: one logarithm serves them all.
        product *= 1.0 + small;
        *variance = tempering * (1.0 - small) / ((1.0 + small) * 2.0 * xi);
        *mean = tempering * sign;
    }
    tempering * (linear + product.ln())
}
