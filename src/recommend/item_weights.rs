//! Item-item models of clicks: how much a click on one item adds to the score of another item.
//!
//! Both models score item i for a user by the sum of W_ji over the user's clicks j, and keep the largest entries of
//! each row of W:
//!
//! - the item graph, W = D^-½ R' E^-1 R D^-½, where R are the clicks, and the diagonal matrices D
//!   and E contain the numbers of clicks per item and per user. This is two steps on the graph of
//!   clicks, the linear filter of GF-CF (Shen et al., "How powerful is graph convolution for
//!   recommendation?", CIKM 2021);
//! - the item regression, W = I − P diag(P)^-1 with P = (R'R + Λ)^-1, Λ = λ + p/(1 − p) diag(R'R): each item is
//!   regressed on all others with a dropout of p (EDLAE; Steck, "Autoencoders that don't overfit towards the identity",
//!   NeurIPS 2020).

use super::by_row::ByRow;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;
use crate::memory::require;
use crate::parallel::{map_items, map_items_with};

/// Weights of pairs of items: row j holds the amounts that a click on item j adds to the scores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ItemWeights {
    /// Row j has the entries `offsets[j]..offsets[j + 1]`.
    pub offsets: Vec<i64>,
    /// The items of the entries, in increasing order within a row.
    pub items: Vec<i32>,
    /// The entries.
    pub values: Vec<f32>,
}

/// Clicks by user and by item.
#[derive(Debug)]
pub struct Clicks {
    by_user: Side,
    by_item: Side,
}

/// Values and partners of the clicks of each row.
#[derive(Debug)]
struct Side {
    offsets: Vec<usize>,
    partners: Vec<u32>,
    values: Vec<f32>,
}

impl Side {
    fn new(own: &[u32], other: &[u32], values: &[f32], n: usize) -> Self {
        let rows = ByRow::new(own, n);
        let (partners, values) = (rows.sorted(other), rows.sorted(values));
        Self { offsets: rows.offsets, partners, values }
    }

    fn n(&self) -> usize {
        self.offsets.len() - 1
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let range = self.offsets[row]..self.offsets[row + 1];
        let values = &self.values[range.clone()];
        self.partners[range].iter().zip(values).map(|(&partner, &value)| (partner as usize, value))
    }

    /// Number of clicks of each row.
    fn counts(&self) -> Vec<f32> {
        self.offsets.windows(2).map(|ends| (ends[1] - ends[0]) as f32).collect()
    }
}

impl Clicks {
    /// Stores the clicks twice, sorted by user and sorted by item. A click has a user, an item and a value.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the arrays differ in length, an id is out of range, or a value is not finite.
    pub fn new(
        users: &[u32],
        items: &[u32],
        values: &[f32],
        (n_users, n_items): (usize, usize),
    ) -> Result<Self> {
        let fits = users.len() == items.len()
            && users.len() == values.len()
            && users.iter().all(|&user| (user as usize) < n_users)
            && items.iter().all(|&item| (item as usize) < n_items)
            && values.iter().all(|value| value.is_finite());
        if !fits {
            return Err(Error::argument(
                "ratings",
                "users, items and values must have equal lengths, ids in range and finite values",
            ));
        }
        let by_user = Side::new(users, items, values, n_users);
        Ok(Self { by_user, by_item: Side::new(items, users, values, n_items) })
    }

    /// Adds Σ_u share(u) R_uj R_u to `sums`, where j is `item` and u runs over the users who clicked it. Appends the
    /// indices of nonzero sums to `touched`, possibly with repetitions.
    fn add_products(
        &self,
        item: usize,
        share: impl Fn(usize) -> f32,
        sums: &mut [f32],
        touched: &mut Vec<u32>,
    ) {
        for (user, value) in self.by_item.row(item) {
            let scale = value * share(user);
            for (other, value) in self.by_user.row(user) {
                if sums[other] == 0.0 {
                    touched.push(other as u32);
                }
                sums[other] += scale * value;
            }
        }
    }

    /// Computes the item graph, with at most `n_kept` entries per row.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn item_graph(&self, n_kept: usize, interrupt: &Interrupt) -> Result<ItemWeights> {
        let shares: Vec<f32> = self.by_user.counts().iter().map(|n| 1.0 / n.max(1.0)).collect();
        let scales: Vec<f32> =
            self.by_item.counts().iter().map(|n| 1.0 / n.max(1.0).sqrt()).collect();
        let n = self.by_item.n();
        let rows = map_items_with(
            0..n,
            1,
            || (vec![0.0f32; n], Vec::new(), Vec::new()),
            |(sums, touched, row), item| {
                if interrupt.is_raised() {
                    return Vec::new();
                }
                self.add_products(item, |user| shares[user], sums, touched);
                row.clear();
                for other in touched.drain(..) {
                    let sum = std::mem::take(&mut sums[other as usize]);
                    if sum != 0.0 {
                        row.push((other, sum * scales[item] * scales[other as usize]));
                    }
                }
                keep_largest(row, n_kept);
                row.clone()
            },
        );
        interrupt.check()?;
        Ok(ItemWeights::of(rows))
    }

    /// Computes the item regression among the items of `head`, with at most `n_kept` entries per row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for invalid settings; [`Error::Interrupted`].
    pub fn item_regression(
        &self,
        head: &[u32],
        (ridge, dropout): (f64, f64),
        n_kept: usize,
        interrupt: &Interrupt,
    ) -> Result<ItemWeights> {
        if !(ridge > 0.0 && ridge.is_finite() && (0.0..1.0).contains(&dropout)) {
            return Err(Error::argument("ridge", "must be positive, and dropout must be below 1"));
        }
        let (n, stride) = (head.len(), Factor::stride(head.len()));
        let what = || format!("the regression among {n} items");
        require(24 * (n * stride) as u128, what, "lower n_regressed")?;
        let mut gram = self.gram_of(head, stride, interrupt)?;
        for (at, row) in gram.chunks_exact_mut(stride).enumerate() {
            row[at] += ridge + dropout / (1.0 - dropout) * row[at];
        }
        let inverse = Factor::new(gram, n, interrupt)?.inverse(n, interrupt)?;
        let mut rows = vec![Vec::new(); self.by_item.n()];
        let found: Vec<Vec<(u32, f32)>> =
            map_items(inverse.chunks_exact(stride).enumerate(), 1, |(own, row)| {
                // P is symmetric, so a row of P equals the column with the same index.
                let weight = |other: usize| -row[other] / inverse[other * stride + other];
                let others = (0..n).filter(|other| *other != own);
                let mut row: Vec<_> =
                    others.map(|other| (head[other], weight(other) as f32)).collect();
                keep_largest(&mut row, n_kept);
                row
            });
        for (&item, row) in head.iter().zip(found) {
            rows[item as usize] = row;
        }
        Ok(ItemWeights::of(rows))
    }

    /// Returns R'R for the items of `head`. Consecutive rows are `stride` values apart.
    fn gram_of(&self, head: &[u32], stride: usize, interrupt: &Interrupt) -> Result<Vec<f64>> {
        let n_items = self.by_item.n();
        if head.iter().any(|&item| item as usize >= n_items) {
            return Err(Error::argument("head", "an item is out of range"));
        }
        let mut gram = vec![0.0; head.len() * stride];
        map_items_with(
            gram.chunks_exact_mut(stride).zip(head),
            1,
            || (vec![0.0f32; n_items], Vec::new()),
            |(sums, touched), (row, &item)| {
                if interrupt.is_raised() {
                    return;
                }
                self.add_products(item as usize, |_| 1.0, sums, touched);
                for (value, &other) in row.iter_mut().zip(head) {
                    *value = f64::from(sums[other as usize]);
                }
                touched.drain(..).for_each(|other| sums[other as usize] = 0.0);
            },
        );
        interrupt.check()?;
        Ok(gram)
    }
}

impl ItemWeights {
    fn of(rows: Vec<Vec<(u32, f32)>>) -> Self {
        let mut weights = Self { offsets: vec![0], ..Self::default() };
        for mut row in rows {
            row.sort_unstable_by_key(|entry| entry.0);
            weights.items.extend(row.iter().map(|entry| entry.0 as i32));
            weights.values.extend(row.iter().map(|entry| entry.1));
            weights.offsets.push(weights.items.len() as i64);
        }
        weights
    }
}

/// Keeps the n entries of largest absolute value. If entries have equal absolute values, the entries with the
/// lowest item indices are kept.
fn keep_largest(row: &mut Vec<(u32, f32)>, n: usize) {
    if row.len() > n {
        let order =
            |a: &(u32, f32), b: &(u32, f32)| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0));
        row.select_nth_unstable_by(n, order);
        row.truncate(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: (usize, usize) = (9, 7);

    fn clicks() -> (Clicks, Vec<Vec<f64>>) {
        let pairs: Vec<(u32, u32)> = (0..63u32)
            .filter(|at| at * 37 % 11 < 4 && at % 7 != 6)
            .map(|at| (at / 7, at % 7))
            .collect();
        let (users, items): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let values: Vec<f32> = (0..users.len()).map(|at| 1.0 - 0.1 * (at % 4) as f32).collect();
        let mut dense = vec![vec![0.0; SHAPE.1]; SHAPE.0];
        for ((u, i), value) in pairs.iter().zip(&values) {
            dense[*u as usize][*i as usize] = f64::from(*value);
        }
        (Clicks::new(&users, &items, &values, SHAPE).unwrap(), dense)
    }

    fn count(values: impl Iterator<Item = f64>) -> f64 {
        values.filter(|value| *value != 0.0).count().max(1) as f64
    }

    fn entry(weights: &ItemWeights, row: usize, column: usize) -> f64 {
        let range = weights.offsets[row] as usize..weights.offsets[row + 1] as usize;
        let found = weights.items[range.clone()].iter().position(|&item| item as usize == column);
        found.map_or(0.0, |at| f64::from(weights.values[range.start + at]))
    }

    #[test]
    fn the_graph_takes_two_steps_over_normalised_clicks() {
        let (clicks, dense) = clicks();
        let graph = clicks.item_graph(SHAPE.1, &Interrupt::default()).unwrap();
        let of_item = |i: usize| count(dense.iter().map(|row| row[i]));
        for j in 0..SHAPE.1 {
            for i in 0..SHAPE.1 {
                let sum: f64 =
                    dense.iter().map(|row| row[j] * row[i] / count(row.iter().copied())).sum();
                let expected = sum / (of_item(i) * of_item(j)).sqrt();
                assert!((entry(&graph, j, i) - expected).abs() < 1e-6, "{j}, {i}");
            }
        }
        let few = clicks.item_graph(2, &Interrupt::default()).unwrap();
        for j in 0..SHAPE.1 {
            let kept = few.offsets[j]..few.offsets[j + 1];
            assert!(kept.end - kept.start <= 2);
            let least = kept.map(|at| few.values[at as usize].abs()).fold(f32::MAX, f32::min);
            for i in (0..SHAPE.1).filter(|i| entry(&few, j, *i) == 0.0) {
                assert!(entry(&graph, j, i) <= f64::from(least));
            }
        }
    }

    #[test]
    fn the_regression_predicts_each_item_from_all_other_items() {
        let (clicks, dense) = clicks();
        let (head, ridge, dropout) = ([0, 1, 2, 4, 5], 0.7, 0.3);
        let find =
            |n_kept| clicks.item_regression(&head, (ridge, dropout), n_kept, &Interrupt::default());
        let weights = find(SHAPE.1).unwrap();
        let gram =
            |a: u32, b: u32| -> f64 { dense.iter().map(|r| r[a as usize] * r[b as usize]).sum() };
        // The gradient of ‖R_i − Σ_j R_j W_ji‖² + Σ_j Λ_j W_ji² in W_ji is 0 wherever j ≠ i.
        for i in head {
            for j in head.iter().copied().filter(|j| *j != i) {
                let w = |k: u32| entry(&weights, k as usize, i as usize);
                let fitted: f64 = head.iter().map(|&k| gram(j, k) * w(k)).sum();
                let penalty = ridge + dropout / (1.0 - dropout) * gram(j, j);
                assert!((gram(j, i) - fitted - penalty * w(j)).abs() < 1e-5, "{j}, {i}");
            }
            assert_eq!(entry(&weights, i as usize, i as usize), 0.0);
        }
        assert_eq!(
            weights.offsets[4] - weights.offsets[3],
            0,
            "an item outside the head has no entries"
        );
        assert!(find(2).unwrap().items.len() == 2 * head.len());
        let beyond = clicks.item_regression(&[7], (1.0, 0.0), 2, &Interrupt::default());
        assert!(beyond.is_err());
    }

    #[test]
    fn results_do_not_depend_on_threads_and_invalid_clicks_are_errors() {
        let (clicks, _) = clicks();
        let run = |n: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            pool.install(|| clicks.item_graph(3, &Interrupt::default()).unwrap())
        };
        assert_eq!(run(1), run(3));
        assert!(Clicks::new(&[9], &[0], &[1.0], SHAPE).is_err());
        assert!(Clicks::new(&[0], &[0], &[f32::NAN], SHAPE).is_err());
        assert!(Clicks::new(&[0, 1], &[0], &[1.0], SHAPE).is_err());
    }
}
