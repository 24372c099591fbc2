//! Scores of all items for a few users, in single precision.
//!
//! A score is a weighted sum of parts. Items are stored in panels of [`PANEL`], factor by factor. A panel is thus
//! loaded once per tile of user rows, and no sum runs across the lanes of a register.

use std::sync::Arc;

use pulp::{Simd, WithSimd};

use crate::error::{Error, Result};
use crate::linalg::arch;

/// Number of items per panel.
pub(super) const PANEL: usize = 16;

/// Number of user rows per tile.
const ROWS: usize = 8;

/// Function from a part's outputs to a score.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkFunction {
    /// The value of the only output.
    Identity,
    /// The sum Σ_c weight_c (1 − 1/(1 + exp(−o_c))): the expected level minus the lowest level.
    Levels(Vec<f32>),
}

/// Vectors of all items in panels, factor by factor.
#[derive(Debug)]
pub struct ItemPanels {
    n_items: usize,
    /// Number of values per item.
    length: usize,
    values: Vec<f32>,
}

impl ItemPanels {
    /// Packs `length` values of each item: factors, then an offset for each output.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there are `length` values for each of the `n_items` items.
    pub fn new(items: &[f32], n_items: usize, length: usize) -> Result<Self> {
        if length == 0 || items.len() != n_items * length {
            return Err(Error::argument("model", "the shapes of its arrays do not match"));
        }
        let mut values = vec![0.0; n_items.div_ceil(PANEL) * PANEL * length];
        for (item, vector) in items.chunks_exact(length).enumerate() {
            let panel = &mut values[item / PANEL * PANEL * length..];
            for (r, value) in vector.iter().enumerate() {
                panel[r * PANEL + item % PANEL] = *value;
            }
        }
        Ok(Self { n_items, length, values })
    }
}

/// One part of the scores: o_c = ⟨row of user u and output c, vector of item i⟩ + offset of item i and
/// output c.
#[derive(Debug)]
pub struct Part {
    link: LinkFunction,
    /// Number of factors of a row; the user's own offset follows them.
    width: usize,
    rows: Vec<f32>,
    items: Arc<ItemPanels>,
    /// Weight of each output.
    weights: Vec<f32>,
}

impl Part {
    /// Creates a part of the scores, which is multiplied by `weight`. `users` holds, for each user
    /// and output, `width` factors and the user's offset. `items` holds, for each item, `width`
    /// factors and an offset for each output.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for lengths that do not fit together.
    pub fn new(
        link: LinkFunction,
        (width, weight): (usize, f32),
        (users, n_users): (&[f32], usize),
        items: Arc<ItemPanels>,
    ) -> Result<Self> {
        let n_outputs = match &link {
            LinkFunction::Identity => 1,
            LinkFunction::Levels(weights) => weights.len(),
        };
        let length = width + n_outputs;
        if users.len() != n_users * n_outputs * (width + 1) || items.length != length {
            return Err(Error::argument("model", "the shapes of its arrays do not match"));
        }
        let weights = match &link {
            LinkFunction::Identity => vec![weight],
            LinkFunction::Levels(weights) => weights.iter().map(|each| each * weight).collect(),
        };
        Ok(Self { link, width, rows: users.to_vec(), items, weights })
    }

    /// Whether the arrays match these numbers of users and items.
    pub(super) fn fits(&self, n_users: usize, n_items: usize) -> bool {
        let (width, m) = (self.width, self.weights.len());
        self.rows.len() == n_users * m * (width + 1) && self.items.n_items == n_items
    }
}

/// Buffers for the products of factors.
#[derive(Debug, Default)]
pub struct Products {
    /// The users' rows in tiles, stored factor by factor, with the users' offsets last.
    tiles: Vec<[f32; ROWS]>,
    /// The outputs of the rows for one panel.
    outputs: Vec<[f32; PANEL]>,
}

impl Products {
    /// Copies rows of `length` values into tiles. If the last tile is incomplete, its last row is repeated.
    fn pack(&mut self, rows: &[f32], length: usize) {
        let n_rows = rows.len() / length;
        self.tiles.clear();
        for tile in 0..n_rows.div_ceil(ROWS) {
            let row = |j: usize| (tile * ROWS + j).min(n_rows - 1) * length;
            let line = |r: usize| std::array::from_fn(|j| rows[row(j) + r]);
            self.tiles.extend((0..length).map(line));
        }
        self.outputs.resize(n_rows.div_ceil(ROWS) * ROWS, [0.0; PANEL]);
    }
}

/// Adds a part to the scores of `count` users, starting with user `first`. The scores of each user are padded to whole
/// panels.
pub(super) fn add_scores(
    part: &Part,
    (first, count): (usize, usize),
    scores: &mut [f32],
    scratch: &mut Products,
) {
    let per_user = part.weights.len() * (part.width + 1);
    scratch.pack(&part.rows[first * per_user..(first + count) * per_user], part.width + 1);
    arch().dispatch(Score { part, count, scores, scratch });
}

struct Score<'a> {
    part: &'a Part,
    count: usize,
    scores: &'a mut [f32],
    scratch: &'a mut Products,
}

impl WithSimd for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { part, count, scores, scratch } = self;
        let Products { tiles, outputs } = scratch;
        let (width, m) = (part.width, part.weights.len());
        let panels = &part.items.values[..];
        let stride = panels.len() / (width + m);
        for (at, panel) in panels.chunks_exact((width + m) * PANEL).enumerate() {
            let (factors, offsets) = panel.split_at(width * PANEL);
            for tile in 0..outputs.len() / ROWS {
                let lines = &tiles[tile * (width + 1)..(tile + 1) * (width + 1)];
                products(simd, lines, factors, &mut outputs[tile * ROWS..(tile + 1) * ROWS]);
            }
            for user in 0..count {
                let outputs = outputs[user * m..(user + 1) * m].as_flattened();
                let from = user * stride + at * PANEL;
                let scores = &mut scores[from..from + PANEL];
                match &part.link {
                    LinkFunction::Identity => {
                        add_outputs(simd, part.weights[0], [outputs, offsets], scores)
                    }
                    LinkFunction::Levels(_) => {
                        add_levels(simd, &part.weights, [outputs, offsets], scores)
                    }
                }
            }
        }
    }
}

/// Computes the outputs of a tile of user rows for a panel of items, without the items' offsets.
#[inline(always)]
fn products<S: Simd>(simd: S, tile: &[[f32; ROWS]], factors: &[f32], out: &mut [[f32; PANEL]]) {
    let per_panel = PANEL / S::F32_LANES;
    let factors = S::as_simd_f32s(factors).0;
    let Some((offsets, lines)) = tile.split_last() else { return };
    // These are plain loops because an iterator that is not inlined would keep the sums in memory.
    for vector in 0..per_panel {
        let mut sums = [simd.splat_f32s(0.0); ROWS];
        for j in 0..ROWS {
            sums[j] = simd.splat_f32s(offsets[j]);
        }
        for r in 0..lines.len() {
            let (line, values) = (&lines[r], factors[r * per_panel + vector]);
            for j in 0..ROWS {
                sums[j] = simd.mul_add_e_f32s(simd.splat_f32s(line[j]), values, sums[j]);
            }
        }
        for j in 0..ROWS {
            S::as_mut_simd_f32s(&mut out[j]).0[vector] = sums[j];
        }
    }
}

/// Adds weight · (outputs + offsets) to the scores.
#[inline(always)]
fn add_outputs<S: Simd>(simd: S, weight: f32, terms: [&[f32]; 2], scores: &mut [f32]) {
    let weight = simd.splat_f32s(weight);
    let [outputs, offsets] = terms.map(|values| S::as_simd_f32s(values).0);
    let scores = S::as_mut_simd_f32s(scores).0;
    for ((score, output), offset) in scores.iter_mut().zip(outputs).zip(offsets) {
        *score = simd.mul_add_e_f32s(weight, simd.add_f32s(*output, *offset), *score);
    }
}

/// Adds Σ_c weight_c / (1 + exp(output_c + offset_c)) to the scores.
#[inline(always)]
fn add_levels<S: Simd>(simd: S, weights: &[f32], terms: [&[f32]; 2], scores: &mut [f32]) {
    let per_panel = PANEL / S::F32_LANES;
    let [outputs, offsets] = terms.map(|values| S::as_simd_f32s(values).0);
    let one = simd.splat_f32s(1.0);
    let scores = S::as_mut_simd_f32s(scores).0;
    let m = weights.len();
    let mut vector = 0;
    while vector < per_panel {
        let mut total = scores[vector];
        let mut c = 0;
        // Two outputs share one division, w/a + w'/b = (w b + w' a)/(a b), because a division costs as much as the rest
        // of the loop.
        while c + 2 <= m {
            let at = c * per_panel + vector;
            let first =
                simd.add_f32s(one, exponential(simd, simd.add_f32s(outputs[at], offsets[at])));
            let second = simd.add_f32s(
                one,
                exponential(simd, simd.add_f32s(outputs[at + per_panel], offsets[at + per_panel])),
            );
            let product = simd.mul_f32s(simd.splat_f32s(weights[c + 1]), first);
            let numerator = simd.mul_add_e_f32s(simd.splat_f32s(weights[c]), second, product);
            let denominator = simd.mul_f32s(first, second);
            total = simd.add_f32s(total, simd.div_f32s(numerator, denominator));
            c += 2;
        }
        if c < m {
            let at = c * per_panel + vector;
            let last =
                simd.add_f32s(one, exponential(simd, simd.add_f32s(outputs[at], offsets[at])));
            total = simd.add_f32s(total, simd.div_f32s(simd.splat_f32s(weights[c]), last));
        }
        scores[vector] = total;
        vector += 1;
    }
}

/// Returns exp(x) with a relative error of about 2e-7. The result is clamped, so a product of two
/// results neither overflows nor underflows in single precision.
#[inline(always)]
fn exponential<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let constant = |value: f32| simd.splat_f32s(value);
    // exp(x) = 2^n 2^f with |f| ≤ ½; 2^f is computed by its series.
    let t = simd.mul_f32s(x, constant(std::f32::consts::LOG2_E));
    let t = simd.min_f32s(simd.max_f32s(t, constant(-60.0)), constant(60.0));
    let round = constant(12_582_912.0); // 1.5 · 2²³: the sum has the nearest integer in its last bits
    let shifted = simd.add_f32s(t, round);
    let f = simd.sub_f32s(t, simd.sub_f32s(shifted, round));
    let mut series = constant(1.540_353e-4);
    series = simd.mul_add_e_f32s(series, f, constant(0.001_333_355));
    series = simd.mul_add_e_f32s(series, f, constant(0.009_618_129));
    series = simd.mul_add_e_f32s(series, f, constant(0.055_504_11));
    series = simd.mul_add_e_f32s(series, f, constant(0.240_226_5));
    series = simd.mul_add_e_f32s(series, f, constant(std::f32::consts::LN_2));
    series = simd.mul_add_e_f32s(series, f, constant(1.0));
    let bits = simd.transmute_u32s_f32s(shifted);
    let exponent = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
    let power = simd.add_u32s(exponent, simd.splat_u32s(127 << 23));
    simd.mul_f32s(series, simd.transmute_f32s_u32s(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces values by their exponentials.
    struct Exponentials<'a>(&'a mut [f32]);

    impl WithSimd for Exponentials<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for value in S::as_mut_simd_f32s(self.0).0 {
                *value = exponential(simd, *value);
            }
        }
    }

    #[test]
    fn exponential_matches_the_standard_library() {
        let given: Vec<f32> = (-2048..2048).map(|step| step as f32 * 0.02).collect();
        let mut found = given.clone();
        arch().dispatch(Exponentials(&mut found));
        for (x, found) in given.iter().zip(found) {
            let expected = f64::from(*x).exp();
            assert!((f64::from(found) / expected - 1.0).abs() < 1e-5, "{x}: {found} {expected}");
        }
        let mut extreme = [1e9, -1e9, f32::INFINITY, f32::NEG_INFINITY].repeat(4);
        arch().dispatch(Exponentials(&mut extreme));
        assert!(extreme.iter().all(|value| value.is_finite() && *value >= 0.0));
        let product = extreme[0] * extreme[0];
        assert!(product.is_finite(), "the product of two results must be finite");
    }
}
