//! The best items of many users at once: scores of all items in single precision, and the largest of them.
//!
//! A score is a weighted sum of parts. Items lie in panels of [`PANEL`], factor by factor, so that one load
//! of a panel serves a tile of rows of the users, and nothing is added up across a register.

use std::cmp::Ordering;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::arch;

/// Items of a panel.
const PANEL: usize = 16;

/// Rows of users in a tile.
const ROWS: usize = 8;

/// Users of one task, and items whose scores are kept at a time.
const USERS: usize = 16;

/// How a part makes a score of its outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// The only output itself.
    Identity,
    /// Σ_c weight_c (1 − 1/(1 + exp(−o_c))): an expected level above the lowest one.
    Levels(Vec<f32>),
}

/// One part of the scores: o_c = ⟨row of user u and output c, vector of item i⟩ + offset of item i and
/// output c.
#[derive(Debug)]
pub struct Part {
    link: Link,
    /// Factors of a row, then the user's own offset.
    width: usize,
    n_outputs: usize,
    rows: Vec<f32>,
    panels: Vec<f32>,
    weight: f32,
}

impl Part {
    /// `users`: for each user and output the `width` factors and the user's offset; `items`: for each item
    /// the `width` factors and an offset for each output. The part counts `weight` times.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for lengths that do not fit together.
    pub fn new(
        link: Link,
        (width, weight): (usize, f32),
        (users, n_users): (&[f32], usize),
        (items, n_items): (&[f32], usize),
    ) -> Result<Self> {
        let n_outputs = match &link {
            Link::Identity => 1,
            Link::Levels(weights) => weights.len(),
        };
        let stride = width + n_outputs;
        if users.len() != n_users * n_outputs * (width + 1) || items.len() != n_items * stride {
            return Err(Error::argument("model", "its arrays do not fit together"));
        }
        let mut panels = vec![0.0; n_items.div_ceil(PANEL) * PANEL * stride];
        for (item, vector) in items.chunks_exact(stride).enumerate() {
            let panel = &mut panels[item / PANEL * PANEL * stride..];
            for (r, value) in vector.iter().enumerate() {
                panel[r * PANEL + item % PANEL] = *value;
            }
        }
        Ok(Self { link, width, n_outputs, rows: users.to_vec(), panels, weight })
    }
}

/// Items that a user is not to get.
#[derive(Debug, Clone, Copy)]
pub struct Excluded<'a> {
    /// Where the items of each user start in `items`, and where the last one's end.
    pub offsets: &'a [i64],
    /// The items.
    pub items: &'a [i32],
    /// Whether an item may be recommended at all; all may if it is empty.
    pub allowed: &'a [bool],
}

/// The largest scores of each user, best first, ties in the order of the items: n items and scores for each,
/// with the item −1 where there are no more.
///
/// # Errors
/// [`Error::InvalidArgument`] for arrays that do not fit together; [`Error::Interrupted`].
pub fn best_items(
    parts: &[Part],
    (n_users, n_items): (usize, usize),
    excluded: Excluded<'_>,
    n: usize,
    interrupt: &Interrupt,
) -> Result<(Vec<i64>, Vec<f32>)> {
    check(parts, (n_users, n_items), excluded)?;
    let (mut items, mut scores) = (vec![-1i64; n_users * n], vec![0.0f32; n_users * n]);
    if n == 0 {
        return Ok((items, scores));
    }
    items
        .par_chunks_mut(USERS * n)
        .zip(scores.par_chunks_mut(USERS * n))
        .enumerate()
        .for_each_init(
            || Scratch::new(n_items),
            |scratch, (task, (items, scores))| {
                if interrupt.is_raised() {
                    return;
                }
                let users = task * USERS..(task * USERS + items.len() / n);
                for part in parts {
                    arch().dispatch(Score { part, users: (users.start, users.len()), scratch });
                }
                let rows = items.chunks_exact_mut(n).zip(scores.chunks_exact_mut(n));
                for ((user, (items, scores)), row) in
                    users.zip(rows).zip(scratch.scores.chunks_exact_mut(scratch.stride))
                {
                    let row = &mut row[..n_items];
                    let range =
                        excluded.offsets[user] as usize..excluded.offsets[user + 1] as usize;
                    for &item in &excluded.items[range] {
                        row[item as usize] = f32::NEG_INFINITY;
                    }
                    for (score, _) in row.iter_mut().zip(excluded.allowed).filter(|(_, ok)| !**ok) {
                        *score = f32::NEG_INFINITY;
                    }
                    largest(row, n, &mut scratch.candidates);
                    for ((item, score), best) in
                        items.iter_mut().zip(scores).zip(&scratch.candidates)
                    {
                        (*item, *score) = (i64::from(best.1), best.0);
                    }
                }
                scratch.scores.fill(0.0);
            },
        );
    interrupt.check()?;
    Ok((items, scores))
}

fn check(parts: &[Part], (n_users, n_items): (usize, usize), excluded: Excluded<'_>) -> Result<()> {
    let good = parts.iter().all(|part| {
        part.rows.len() == n_users * part.n_outputs * (part.width + 1)
            && part.panels.len() == n_items.div_ceil(PANEL) * PANEL * (part.width + part.n_outputs)
    });
    let Excluded { offsets, items, allowed } = excluded;
    let lists = offsets.len() == n_users + 1
        && offsets[0] == 0
        && offsets.windows(2).all(|ends| ends[0] <= ends[1])
        && offsets[n_users] as usize == items.len()
        && items.iter().all(|&item| item >= 0 && (item as usize) < n_items)
        && (allowed.is_empty() || allowed.len() == n_items);
    if !good || !lists {
        return Err(Error::argument("model", "its arrays do not fit together"));
    }
    Ok(())
}

struct Scratch {
    stride: usize,
    scores: Vec<f32>,
    candidates: Vec<(f32, u32)>,
}

impl Scratch {
    fn new(n_items: usize) -> Self {
        let stride = n_items.div_ceil(PANEL) * PANEL;
        Self { stride, scores: vec![0.0; USERS * stride], candidates: Vec::new() }
    }
}

/// Better scores first, then earlier items.
fn order(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The n largest scores above −∞ and their places, best first.
fn largest(scores: &[f32], n: usize, best: &mut Vec<(f32, u32)>) {
    best.clear();
    let (room, mut limit) = (4 * n, f32::NEG_INFINITY);
    for (panel, scores) in scores.chunks(PANEL).enumerate() {
        // A whole panel at a time: after the first few hardly one holds a candidate.
        if !scores.iter().fold(false, |any, score| any | (*score > limit)) {
            continue;
        }
        for (at, &score) in scores.iter().enumerate().filter(|(_, score)| **score > limit) {
            best.push((score, (panel * PANEL + at) as u32));
        }
        if best.len() >= room {
            best.select_nth_unstable_by(n - 1, order);
            best.truncate(n);
            limit = best[n - 1].0;
        }
    }
    best.sort_unstable_by(order);
    best.truncate(n);
}

/// Adds a part to the scores of a few users, from `users.0` on.
struct Score<'a> {
    part: &'a Part,
    users: (usize, usize),
    scratch: &'a mut Scratch,
}

impl WithSimd for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { part, users: (first, count), scratch } = self;
        let (width, m) = (part.width, part.n_outputs);
        let rows = &part.rows[first * m * (width + 1)..(first + count) * m * (width + 1)];
        let n_rows = count * m;
        let mut outputs = vec![[0.0f32; PANEL]; n_rows.div_ceil(ROWS) * ROWS];
        for (at, panel) in part.panels.chunks_exact((width + m) * PANEL).enumerate() {
            let (factors, offsets) = panel.split_at(width * PANEL);
            for (tile, outputs) in outputs.chunks_exact_mut(ROWS).enumerate() {
                // The last tile repeats its last row.
                let row = |j: usize| (tile * ROWS + j).min(n_rows - 1) * (width + 1);
                let rows: [&[f32]; ROWS] =
                    std::array::from_fn(|j| &rows[row(j)..row(j) + width + 1]);
                products(simd, rows, factors, outputs);
            }
            for (user, outputs) in outputs[..n_rows].chunks_exact(m).enumerate() {
                let from = user * scratch.stride + at * PANEL;
                let scores = &mut scratch.scores[from..from + PANEL];
                add_scores(part, outputs, offsets, scores);
            }
        }
    }
}

/// The outputs of a tile of rows for a panel of items.
#[inline(always)]
fn products<S: Simd>(simd: S, rows: [&[f32]; ROWS], factors: &[f32], out: &mut [[f32; PANEL]]) {
    let width = factors.len() / PANEL;
    let per_panel = S::as_simd_f32s(&[0.0f32; PANEL]).0.len();
    let vectors = S::as_simd_f32s(factors).0;
    // Plain loops throughout: a closure that is not inlined would be compiled without the vectors.
    for vector in 0..per_panel {
        let mut sums = [simd.splat_f32s(0.0); ROWS];
        for j in 0..ROWS {
            sums[j] = simd.splat_f32s(rows[j][width]);
        }
        for r in 0..width {
            let values = vectors[r * per_panel + vector];
            for j in 0..ROWS {
                sums[j] = simd.mul_add_f32s(simd.splat_f32s(rows[j][r]), values, sums[j]);
            }
        }
        for j in 0..ROWS {
            S::as_mut_simd_f32s(&mut out[j]).0[vector] = sums[j];
        }
    }
}

#[inline(always)]
fn add_scores(part: &Part, outputs: &[[f32; PANEL]], offsets: &[f32], scores: &mut [f32]) {
    let scale = part.weight;
    for (c, (outputs, offsets)) in outputs.iter().zip(offsets.as_chunks::<PANEL>().0).enumerate() {
        match &part.link {
            Link::Identity => {
                for ((score, output), offset) in scores.iter_mut().zip(outputs).zip(offsets) {
                    *score += scale * (output + offset);
                }
            }
            Link::Levels(weights) => {
                let weight = scale * weights[c];
                for ((score, output), offset) in scores.iter_mut().zip(outputs).zip(offsets) {
                    *score += weight / (1.0 + exponential(output + offset));
                }
            }
        }
    }
}

/// exp(x) to about 2e-7, relative; clamped to where it is a normal number.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    // exp(x) = 2^n 2^f with |f| ≤ ½, and 2^f by its series.
    let t = (x * std::f32::consts::LOG2_E).clamp(-125.0, 125.0);
    let shifted = t + 12_582_912.0; // 1.5 · 2²³: the sum has the nearest integer in its last bits
    let f = t - (shifted - 12_582_912.0);
    let series = 1.0
        + f * (std::f32::consts::LN_2
            + f * (0.240_226_5
                + f * (0.055_504_11
                    + f * (0.009_618_129 + f * (0.001_333_355 + f * 1.540_353e-4)))));
    let power = (shifted.to_bits() << 23).wrapping_add(127 << 23);
    series * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_the_library() {
        for step in -8000..8000 {
            let x = step as f32 * 0.01;
            let (found, expected) = (f64::from(exponential(x)), f64::from(x).exp());
            assert!((found / expected - 1.0).abs() < 1e-5, "{x}: {found} {expected}");
        }
        assert!(exponential(1e9).is_finite() && exponential(-1e9) >= 0.0);
    }

    #[test]
    fn the_largest_come_in_order() {
        let scores: Vec<f32> = (0..500u32).map(|at| (at * 7919 % 101) as f32).collect();
        for n in [1, 3, 20, 499, 600] {
            let mut best = Vec::new();
            largest(&scores, n, &mut best);
            let mut all: Vec<(f32, u32)> = scores.iter().copied().zip(0..).collect();
            all.sort_by(order);
            all.truncate(n);
            assert_eq!(best, all);
        }
        let mut best = Vec::new();
        largest(&[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY], 2, &mut best);
        assert_eq!(best, vec![(1.0, 1)], "what is excluded is never among them");
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let (n_users, n_items, width, m) = (19, 37, 3, 2);
        let value = |seed: usize| ((seed * 37 % 29) as f32 - 14.0) * 0.1;
        let users: Vec<f32> = (0..n_users * m * (width + 1)).map(value).collect();
        let items: Vec<f32> = (0..n_items * (width + m)).map(|at| value(at + 5)).collect();
        let link = Link::Levels(vec![1.0, 0.5]);
        let part = Part::new(link, (width, 2.0), (&users, n_users), (&items, n_items)).unwrap();
        let offsets: Vec<i64> = (0..=n_users as i64).collect();
        let seen: Vec<i32> = (0..n_users as i32).collect();
        let mut allowed = vec![true; n_items];
        allowed[30] = false;
        let excluded = Excluded { offsets: &offsets, items: &seen, allowed: &allowed };
        let (best, scores) =
            best_items(&[part], (n_users, n_items), excluded, 5, &Interrupt::default()).unwrap();
        for user in 0..n_users {
            let score = |item: usize| -> f32 {
                (0..m)
                    .map(|c| {
                        let row = &users[(user * m + c) * (width + 1)..][..=width];
                        let vector = &items[item * (width + m)..][..width + m];
                        let o: f32 = (0..width).map(|r| row[r] * vector[r]).sum::<f32>()
                            + row[width]
                            + vector[width + c];
                        2.0 * [1.0, 0.5][c] * (1.0 - 1.0 / (1.0 + (-o).exp()))
                    })
                    .sum()
            };
            let mut all: Vec<(f32, u32)> = (0..n_items)
                .filter(|&item| item != user && item != 30)
                .map(|item| (score(item), item as u32))
                .collect();
            all.sort_by(order);
            for (rank, (expected, _)) in all.iter().take(5).enumerate() {
                let at = user * 5 + rank;
                assert!((scores[at] - expected).abs() < 1e-5);
                assert!((score(best[at] as usize) - expected).abs() < 1e-5);
            }
        }
    }
}
