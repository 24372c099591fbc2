//! Finds the best items for many users at once: scores all items in single precision and selects
//! the largest scores.

use std::cmp::Ordering;
use std::ops::Range;

use super::scorer::{Lists, Scorer, USERS};
use super::scores::{PANEL, Part, Products, add_scores};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::parallel::map_items_with;

/// For each user, the items that must not be recommended.
#[derive(Debug, Clone, Copy)]
pub struct Excluded<'a> {
    /// Start of each user's items in `items`, followed by the end of the last user's items.
    pub offsets: &'a [i64],
    /// The excluded items, user after user.
    pub items: &'a [i32],
    /// For each item, whether it may be recommended at all; empty if all items may.
    pub allowed: &'a [bool],
}

impl Scorer for &[Part] {
    type Scratch = Products;

    fn check(&self, n_users: usize, n_items: usize) -> Result<()> {
        if self.iter().all(|part| part.fits(n_users, n_items)) {
            return Ok(());
        }
        Err(Error::argument("model", "the shapes of its arrays do not match"))
    }

    fn add(&self, users: Range<usize>, scores: &mut [f32], scratch: &mut Products) {
        for part in *self {
            add_scores(part, (users.start, users.len()), scores, scratch);
        }
    }
}

/// Returns the n best items of each user and their scores, best first. Items with equal scores are sorted by index. If
/// fewer than n items may be recommended to a user, the remaining items are −1 and their scores 0.
///
/// # Errors
/// [`Error::InvalidArgument`] if the arrays do not match; [`Error::Interrupted`].
pub fn best_items<T: Scorer>(
    scorer: &T,
    (n_users, n_items): (usize, usize),
    excluded: Excluded<'_>,
    n: usize,
    interrupt: &Interrupt,
) -> Result<(Vec<i64>, Vec<f32>)> {
    scorer.check(n_users, n_items)?;
    let lists = Lists { offsets: excluded.offsets, columns: excluded.items, values: &[] };
    let allowed = excluded.allowed.len();
    if !lists.fits(n_users, n_items) || (allowed > 0 && allowed != n_items) {
        return Err(Error::argument("model", "the shapes of its arrays do not match"));
    }
    let (mut items, mut scores) = (vec![-1i64; n_users * n], vec![0.0f32; n_users * n]);
    if n == 0 || n_users == 0 {
        return Ok((items, scores));
    }
    let rank = |scratch: &mut Scratch<T::Scratch>, (task, (items, scores)): Task<'_>| {
        if interrupt.is_raised() {
            return;
        }
        let users = task * USERS..(task * USERS + items.len() / n);
        scorer.add(users.clone(), &mut scratch.scores, &mut scratch.own);
        let rows = items.chunks_exact_mut(n).zip(scores.chunks_exact_mut(n));
        for ((user, (items, scores)), row) in
            users.zip(rows).zip(scratch.scores.chunks_exact_mut(scratch.stride))
        {
            let row = &mut row[..n_items];
            let range = excluded.offsets[user] as usize..excluded.offsets[user + 1] as usize;
            for &item in &excluded.items[range] {
                row[item as usize] = f32::NEG_INFINITY;
            }
            for (score, _) in row.iter_mut().zip(excluded.allowed).filter(|(_, ok)| !**ok) {
                *score = f32::NEG_INFINITY;
            }
            largest(row, n, &mut scratch.candidates);
            for ((item, score), best) in items.iter_mut().zip(scores).zip(&scratch.candidates) {
                (*item, *score) = (i64::from(best.1), best.0);
            }
        }
        scratch.scores.fill(0.0);
    };
    let start = || Scratch::new(n_items);
    // Up to `USERS` users are a single task, which needs no thread pool.
    let tasks = items.chunks_mut(USERS * n).zip(scores.chunks_mut(USERS * n));
    map_items_with(tasks.enumerate(), 1, start, rank);
    interrupt.check()?;
    Ok((items, scores))
}

/// The index of a task, and the items and scores that the task writes.
type Task<'a> = (usize, (&'a mut [i64], &'a mut [f32]));

struct Scratch<T> {
    stride: usize,
    scores: Vec<f32>,
    own: T,
    candidates: Vec<(f32, u32)>,
}

impl<T: Default> Scratch<T> {
    fn new(n_items: usize) -> Self {
        let stride = n_items.div_ceil(PANEL) * PANEL;
        Self {
            stride,
            scores: vec![0.0; USERS * stride],
            own: T::default(),
            candidates: Vec::new(),
        }
    }
}

/// Orders (score, item) pairs by decreasing score, then by increasing item index.
fn order(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Stores the n largest scores above −∞ and their indices in `best`, largest first.
fn largest(scores: &[f32], n: usize, best: &mut Vec<(f32, u32)>) {
    best.clear();
    let (room, mut limit) = (4 * n, f32::NEG_INFINITY);
    for (panel, scores) in scores.chunks(PANEL).enumerate() {
        // Skips panels without a candidate. After the first few panels, almost all are skipped.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::scores::{ItemPanels, LinkFunction};
    use super::*;

    #[test]
    fn largest_scores_are_returned_in_order() {
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
        assert_eq!(best, vec![(1.0, 1)], "excluded items are never returned");
    }

    #[test]
    fn scores_match_the_formula() {
        let (n_users, n_items, width, m) = (19, 37, 3, 2);
        let value = |seed: usize| ((seed * 37 % 29) as f32 - 14.0) * 0.1;
        let users: Vec<f32> = (0..n_users * m * (width + 1)).map(value).collect();
        let items: Vec<f32> = (0..n_items * (width + m)).map(|at| value(at + 5)).collect();
        let link = LinkFunction::Levels(vec![1.0, 0.5]);
        let panels = Arc::new(ItemPanels::new(&items, n_items, width + m).unwrap());
        let part = Part::new(link, (width, 2.0), (&users, n_users), panels).unwrap();
        let offsets: Vec<i64> = (0..=n_users as i64).collect();
        let seen: Vec<i32> = (0..n_users as i32).collect();
        let mut allowed = vec![true; n_items];
        allowed[30] = false;
        let excluded = Excluded { offsets: &offsets, items: &seen, allowed: &allowed };
        let (best, scores) =
            best_items(&&[part][..], (n_users, n_items), excluded, 5, &Interrupt::default())
                .unwrap();
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
