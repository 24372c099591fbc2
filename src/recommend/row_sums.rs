//! The inner loops of a sweep: sums over the ratings of one row.
//!
//! With s_c = Σ_r U_cr p_r q_r, the second moment of an output is
//!
//! ```text
//! E[o_c²] = (E o_c)² + v_c + v'_c + 2⟨U_c, q∘x_c + p∘x'_c⟩ + ⟨U_c U_cᵀ, E[ppᵀ]∘E[qqᵀ]⟩ − s_c²
//! ```
//!
//! Letters (a prime or `other` marks the partner: the item if the row is a user, the user if it is an item):
//!
//! | letter | in the code | meaning |
//! |---|---|---|
//! | p, q | `p`, `q` | mean factors of the row and of the partner, k |
//! | l, l' | `l`, `l2` | mean linear weights, m |
//! | v, v' | `v`, `v2` | Var(l_c), m |
//! | x, x' | `x`, `x2` | Cov(l_c, p), m × k |
//! | e, e' | `e` | E\[ppᵀ\], E\[qqᵀ\], lower triangles packed, after p and q |
//! | U, b | `weights`, `intercept` | the output layer |
//! | κ, ω | `mean`, `variance` (overwritten) | slope and curvature of a rating's bound |
//! | g | `pull` | κ − ω (b + l') |
//! | `wide`, `long` | index ranges | the k padded values of output c; these values and the pairs of output c |

use pulp::{Simd, WithSimd};

use super::block::{BlockLayout, pairs};
use super::output::OutputLayer;
use super::problem::Likelihood;
use super::sums::SweepSums;
use super::tiles::{OUTPUTS, PARTNERS, add_weighted, dots};
use crate::linalg::vectors::{padded_axpy, padded_dot};
use crate::linalg::{arch, exp_minus};

/// Number of ratings whose moments are computed together. The loop for their curvatures then runs over contiguous
/// values, so it vectorises, and computes only one logarithm for the whole group.
const GROUP: usize = 64;

/// The output layer, stored in the order in which the inner loops read it.
pub(super) struct PackedOutput<'a> {
    pub layout: BlockLayout,
    likelihood: &'a Likelihood,
    pub precision: f64,
    intercept: &'a [f64],
    /// Output weights U, with one padded row per output.
    pub weights: Vec<f64>,
    /// Products U_cr U_cs of each output c, as packed triangles with doubled off-diagonal entries.
    products: Vec<f64>,
}

impl<'a> PackedOutput<'a> {
    pub fn new(layout: BlockLayout, output: &'a OutputLayer, likelihood: &'a Likelihood) -> Self {
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

/// Sums over the ratings of one row. The block and the output layer are updated from these sums.
pub(super) struct RowSums {
    /// Elementwise products of the row's factors p with the weights U_c of each output, m × k.
    up: Vec<f64>,
    /// 2 U_c ∘ x_c, then U_c U_cᵀ ∘ E\[p pᵀ\], m × (k + pairs): the coefficients of q and E\[q qᵀ\].
    second: Vec<f64>,
    /// For each output and rating of a group: `mean` holds E o, later κ, then g; `variance` holds Var o, later ω.
    mean: Vec<f64>,
    variance: Vec<f64>,
    /// Sum of the ratings' curvatures ω, one per output.
    pub omega: Vec<f64>,
    /// Sum of the ratings' pulls g, one per output.
    pub pull: Vec<f64>,
    /// Σ ω q, then Σ ω E\[q qᵀ\], m × (k + pairs).
    pub omega_moments: Vec<f64>,
    /// Sum of the pulls g times the partners' factors q, m × k.
    pub pull_q: Vec<f64>,
    /// Sum of the curvatures ω times the partners' covariances x', m × k.
    pub omega_x: Vec<f64>,
}

/// One row and its ratings.
#[derive(Clone, Copy)]
pub(super) struct RatedRow<'a> {
    pub block: &'a [f64],
    pub partners: &'a [u32],
    pub values: &'a [f64],
    /// The weight of each rating; empty if all have the same weight.
    pub weights: &'a [f64],
    /// The blocks of all partners.
    pub others: &'a [f64],
    /// Means and variances that groups add to each rating's outputs, n × m; empty without groups.
    pub shifts: (&'a [f64], &'a [f64]),
}

impl RatedRow<'_> {
    /// Mean and variance of the term that the groups add to one output of a rating.
    #[inline(always)]
    fn shift(&self, rating: usize, c: usize, m: usize) -> (f64, f64) {
        let (means, variances) = self.shifts;
        if means.is_empty() {
            return (0.0, 0.0);
        }
        (means[rating * m + c], variances[rating * m + c])
    }
}

/// The expected output E o and the parameters κ and ω of its bound, for each rating and output of a row.
pub(super) struct RatingBounds<'a> {
    pub outputs: &'a mut Vec<f64>,
    pub kappa: &'a mut Vec<f64>,
    pub omega: &'a mut Vec<f64>,
}

impl RowSums {
    pub fn new(layout: BlockLayout) -> Self {
        let (wide, long) = (layout.m * layout.k_pad, layout.m * layout.moments());
        Self {
            up: vec![0.0; wide],
            second: vec![0.0; long],
            mean: vec![0.0; layout.m * GROUP],
            variance: vec![0.0; layout.m * GROUP],
            omega: vec![0.0; layout.m],
            pull: vec![0.0; layout.m],
            omega_moments: vec![0.0; long],
            pull_q: vec![0.0; wide],
            omega_x: vec![0.0; wide],
        }
    }

    /// Computes the sums over the ratings of `row`, and adds the ratings' terms of the bound to `totals`.
    pub fn gather(&mut self, output: &PackedOutput<'_>, row: RatedRow<'_>, totals: &mut SweepSums) {
        arch().dispatch(Gather { sums: self, output, row, totals, from: 0, bounds: None });
    }

    /// Stores E o, κ and ω of a row's ratings in `bounds`, and sets the sums to 0. `totals` does not change.
    pub fn record(
        &mut self,
        output: &PackedOutput<'_>,
        row: RatedRow<'_>,
        bounds: RatingBounds<'_>,
        totals: &mut SweepSums,
    ) {
        let RatingBounds { outputs, kappa, omega } = bounds;
        for values in [&mut *outputs, &mut *kappa, &mut *omega] {
            values.clear();
        }
        let bounds = Some(RatingBounds { outputs, kappa, omega });
        // The bound is added to `totals` later, after the groups have been updated.
        let before = (totals.bound, totals.squares);
        arch().dispatch(Gather { sums: self, output, row, totals, from: 0, bounds });
        (totals.bound, totals.squares) = before;
    }

    /// Returns Σ ω E\[o²\] − 2 κ E\[o\] over the row's ratings, evaluated at `block`, without the
    /// terms that do not depend on the block.
    pub fn quadratic(&self, output: &PackedOutput<'_>, block: &[f64]) -> f64 {
        let layout = output.layout;
        let BlockLayout { k, m, k_pad, pairs, .. } = layout;
        let (p, l, v) = (&block[layout.p()], &block[layout.l()], &block[layout.v()]);
        let (x, e) = (&block[layout.x()], &block[layout.e()]);
        let mut sum = 0.0;
        for c in 0..m {
            let moments = &self.omega_moments[c * layout.moments()..(c + 1) * layout.moments()];
            let (omega_q, omega_e) = moments.split_at(k_pad);
            let products = &output.products[c * pairs..(c + 1) * pairs];
            for ((product, omega_e), e) in products.iter().zip(omega_e).zip(e) {
                sum += product * omega_e * e;
            }
            for r in 0..k {
                let (u, at) = (output.weights[c * k_pad + r], c * k_pad + r);
                sum += 2.0 * u * omega_q[r] * (p[r] * l[c] + x[at]);
                sum -= 2.0 * u * p[r] * (self.pull_q[at] - self.omega_x[at]);
            }
            sum += self.omega[c] * (l[c] * l[c] + v[c]) - 2.0 * self.pull[c] * l[c];
        }
        sum
    }
}

/// The loops of [`RowSums::gather`]. A type rather than a function, because only code inlined into its `with_simd` is
/// compiled for the vector instructions of this processor.
struct Gather<'a> {
    sums: &'a mut RowSums,
    output: &'a PackedOutput<'a>,
    row: RatedRow<'a>,
    totals: &'a mut SweepSums,
    /// The first rating of the current group.
    from: usize,
    /// If present, the pass writes the bounds here and computes no sums.
    bounds: Option<RatingBounds<'a>>,
}

impl WithSimd for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        self.start();
        let RatedRow { partners, values, weights, .. } = self.row;
        for (group, (partners, values)) in
            partners.chunks(GROUP).zip(values.chunks(GROUP)).enumerate()
        {
            self.from = group * GROUP;
            self.moments(simd, partners);
            if let Some(bounds) = &mut self.bounds {
                by_ratings(&self.sums.mean, partners.len(), bounds.outputs);
            }
            let from = self.from.min(weights.len());
            self.curvatures(values, &weights[from..(from + GROUP).min(weights.len())]);
            if let Some(bounds) = &mut self.bounds {
                by_ratings(&self.sums.mean, partners.len(), bounds.kappa);
                by_ratings(&self.sums.variance, partners.len(), bounds.omega);
            } else {
                self.add(simd, partners);
            }
        }
    }
}

impl Gather<'_> {
    /// Computes the products of the output layer with the row's own moments, and sets the sums to 0.
    #[inline(always)]
    fn start(&mut self) {
        let Self { sums, output, row, .. } = self;
        let layout = output.layout;
        let BlockLayout { m, k_pad, pairs, .. } = layout;
        let (p, x) = (&row.block[layout.p()], &row.block[layout.x()]);
        let e = &row.block[layout.e()];
        for c in 0..m {
            let u = &output.weights[c * k_pad..(c + 1) * k_pad];
            let second = &mut sums.second[c * layout.moments()..(c + 1) * layout.moments()];
            for r in 0..k_pad {
                sums.up[c * k_pad + r] = u[r] * p[r];
                second[r] = 2.0 * u[r] * x[c * k_pad + r];
            }
            let products = &output.products[c * pairs..(c + 1) * pairs];
            for ((ue, product), e) in second[k_pad..].iter_mut().zip(products).zip(e) {
                *ue = product * e;
            }
        }
        for sum in [
            &mut sums.omega,
            &mut sums.pull,
            &mut sums.omega_moments,
            &mut sums.pull_q,
            &mut sums.omega_x,
        ] {
            sum.fill(0.0);
        }
    }

    /// Computes E o and Var o of each output for a group of ratings.
    #[inline(always)]
    fn moments<S: Simd>(&mut self, simd: S, partners: &[u32]) {
        let m = self.output.layout.m;
        for (tile, four) in partners.chunks(PARTNERS).enumerate() {
            // If the last tile has fewer partners, its first partner is repeated and the extra results are ignored.
            let at: [u32; PARTNERS] =
                std::array::from_fn(|n| four.get(n).copied().unwrap_or(four[0]));
            let slot = tile * PARTNERS;
            let mut c = 0;
            while c + OUTPUTS <= m {
                self.moments_of::<S, OUTPUTS>(simd, c, slot, at, four.len());
                c += OUTPUTS;
            }
            while c < m {
                self.moments_of::<S, 1>(simd, c, slot, at, four.len());
                c += 1;
            }
        }
    }

    /// Computes the moments of M outputs, starting at `first`, for one tile of ratings.
    #[inline(always)]
    fn moments_of<S: Simd, const M: usize>(
        &mut self,
        simd: S,
        first: usize,
        slot: usize,
        partners: [u32; PARTNERS],
        count: usize,
    ) {
        let Self { sums, output, row, .. } = self;
        let layout = output.layout;
        let (k_pad, long) = (layout.k_pad, layout.moments());
        let others = partners.map(|partner| layout.block(row.others, partner));
        let up: [&[f64]; M] =
            std::array::from_fn(|c| &sums.up[(first + c) * k_pad..(first + c + 1) * k_pad]);
        let second: [&[f64]; M] =
            std::array::from_fn(|c| &sums.second[(first + c) * long..(first + c + 1) * long]);
        let s = dots(simd, up, others.map(|other| &other[layout.p()]));
        let second = dots(simd, second, others.map(|other| &other[layout.p_and_e()]));
        for c in 0..M {
            let output_c = first + c;
            let constant = output.intercept[output_c] + row.block[layout.l()][output_c];
            let v = row.block[layout.v()][output_c];
            let wide = output_c * k_pad..(output_c + 1) * k_pad;
            for (n, other) in others.iter().enumerate().take(count) {
                let cross = padded_dot(up[c], &other[layout.x()][wide.clone()]);
                let (s, at) = (s[c][n], output_c * GROUP + slot + n);
                let (shift, spread) = row.shift(self.from + slot + n, output_c, layout.m);
                sums.mean[at] = constant + shift + other[layout.l()][output_c] + s;
                sums.variance[at] =
                    v + spread + other[layout.v()][output_c] + second[c][n] + 2.0 * cross - s * s;
            }
        }
    }

    /// Replaces the moments of each output by κ and ω, for a group of ratings.
    #[inline(always)]
    fn curvatures(&mut self, values: &[f64], weights: &[f64]) {
        let Self { sums, output, totals, .. } = self;
        for c in 0..output.layout.m {
            let range = c * GROUP..c * GROUP + values.len();
            let (means, variances) = (&mut sums.mean[range.clone()], &mut sums.variance[range]);
            match output.likelihood {
                Likelihood::Ordinal(tempering) => {
                    let (tempering, level) = (tempering[c], c as f64);
                    if weights.is_empty() {
                        totals.bound +=
                            logistic_curvatures(tempering, level, values, means, variances);
                        continue;
                    }
                    // With weights, ratings are processed one by one: each logarithm has its own factor, so one
                    // logarithm of a product cannot replace them.
                    for (at, weight) in weights.iter().enumerate() {
                        let one = at..at + 1;
                        let (mean, variance) = (&mut means[one.clone()], &mut variances[one]);
                        let y = &values[at..=at];
                        totals.bound +=
                            logistic_curvatures(tempering * weight, level, y, mean, variance);
                    }
                }
                Likelihood::Gaussian => {
                    let precision = output.precision;
                    let moments = means.iter_mut().zip(variances).zip(values);
                    for (at, ((mean, variance), y)) in moments.enumerate() {
                        let weight = weights.get(at).copied().unwrap_or(1.0);
                        let square = (y - *mean) * (y - *mean) + variance.max(0.0);
                        totals.squares += weight * square;
                        totals.bound += 0.5 * weight * (precision * square - precision.ln());
                        *variance = weight * precision;
                        *mean = weight * precision * y;
                    }
                }
            }
        }
    }

    /// Adds a group of ratings to the sums.
    #[inline(always)]
    fn add<S: Simd>(&mut self, simd: S, partners: &[u32]) {
        let Self { sums, output, row, .. } = self;
        let layout = output.layout;
        let (m, k_pad) = (layout.m, layout.k_pad);
        for (slot, &partner) in partners.iter().enumerate() {
            let other = layout.block(row.others, partner);
            let (l2, x2) = (&other[layout.l()], &other[layout.x()]);
            for (c, l2) in l2.iter().enumerate() {
                let (wide, at) = (c * k_pad..(c + 1) * k_pad, c * GROUP + slot);
                let omega = sums.variance[at];
                let (shift, _) = row.shift(self.from + slot, c, m);
                let pull = sums.mean[at] - omega * (output.intercept[c] + l2 + shift);
                sums.mean[at] = pull;
                sums.omega[c] += omega;
                sums.pull[c] += pull;
                padded_axpy(&mut sums.omega_x[wide.clone()], omega, &x2[wide]);
            }
        }
        for (tile, few) in partners.chunks(BLOCKS).enumerate() {
            let mut blocks = [&row.others[..0]; BLOCKS];
            for (block, &partner) in blocks.iter_mut().zip(few) {
                *block = &layout.block(row.others, partner)[layout.p_and_e()];
            }
            let (blocks, slot) = (&blocks[..few.len()], tile * BLOCKS);
            let mut c = 0;
            while c + OUTPUTS <= m {
                add_blocks::<S, OUTPUTS>(simd, sums, layout, (c, slot), blocks);
                c += OUTPUTS;
            }
            while c < m {
                add_blocks::<S, 1>(simd, sums, layout, (c, slot), blocks);
                c += 1;
            }
        }
    }
}

/// Reads values that are stored output by output, with [`GROUP`] values for each output, and appends them to `to`
/// rating by rating.
fn by_ratings(values: &[f64], count: usize, to: &mut Vec<f64>) {
    to.extend((0..count).flat_map(|slot| values[slot..].iter().step_by(GROUP)));
}

/// Number of partners whose blocks are added together, small enough that these blocks stay in the L1 cache.
const BLOCKS: usize = 16;

/// Adds q and E\[q qᵀ\] of a few partners to the sums of M outputs.
#[inline(always)]
fn add_blocks<S: Simd, const M: usize>(
    simd: S,
    sums: &mut RowSums,
    layout: BlockLayout,
    (first, slot): (usize, usize),
    blocks: &[&[f64]],
) {
    let from = |c: usize| (first + c) * GROUP + slot;
    let omega: [&[f64]; M] = std::array::from_fn(|c| &sums.variance[from(c)..]);
    let pull: [&[f64]; M] = std::array::from_fn(|c| &sums.mean[from(c)..]);
    let omega_moments = rows_mut::<M>(&mut sums.omega_moments, first, layout.moments());
    add_weighted(simd, omega_moments, omega, blocks);
    let mut factors = [&blocks[0][..0]; BLOCKS];
    for (factors, block) in factors.iter_mut().zip(blocks) {
        *factors = &block[..layout.k_pad];
    }
    let pull_q = rows_mut::<M>(&mut sums.pull_q, first, layout.k_pad);
    add_weighted(simd, pull_q, pull, &factors[..blocks.len()]);
}

/// M rows of `width` values, starting with row `first`.
#[inline(always)]
fn rows_mut<const M: usize>(values: &mut [f64], first: usize, width: usize) -> [&mut [f64]; M] {
    let mut rows = values[first * width..(first + M) * width].chunks_exact_mut(width);
    std::array::from_fn(|_| rows.next().unwrap_or_default())
}

/// Replaces the means and variances of one output by κ (½ for values up to `level`, −½ for higher values) and
/// ω = tanh(ξ/2)/(2ξ), where ξ² = E\[o²\]. Returns the bound Σ (ξ/2 + log(1 + exp(−ξ)) − κ E o). κ, ω and the bound are
/// multiplied by `tempering`.
#[inline(always)]
fn logistic_curvatures(
    tempering: f64,
    level: f64,
    values: &[f64],
    means: &mut [f64],
    variances: &mut [f64],
) -> f64 {
    let mut small = [0.0; GROUP];
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
        // The product is at most 2 to the power of GROUP, so it cannot overflow, and one logarithm is enough.
        product *= 1.0 + small;
        *variance = tempering * (1.0 - small) / ((1.0 + small) * 2.0 * xi);
        *mean = tempering * sign;
    }
    tempering * (linear + product.ln())
}
