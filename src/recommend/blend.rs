//! Scores of click models: a weighted sum of the scores of the factors and of item-item models. For each user, the
//! scores of the factors and of each item-item model are first divided by their standard deviation over all items.
//!
//! An item-item model has no scores for users without clicks, nor for items that it does not know, such as items with
//! features but no clicks. The scores of the factors are used instead.

use std::sync::Arc;

use super::scorer::{Lists, Scorer, USERS};
use super::scores::{PANEL, Part, Products, add_scores};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::memory::require;
use crate::parallel::map_items_with;

/// An item-item model: row j holds the amounts that a click on item j adds to the scores.
#[derive(Debug)]
pub enum ItemModel<'a> {
    /// The entries of each row.
    Sparse(Lists<'a>),
    /// All values of each row.
    Dense(Arc<DenseWeights>),
}

/// An item-item model as a dense matrix, for models with few zeros. Scores have the same bits as those of the sparse
/// matrix, but adding a row needs no look-up of indices.
#[derive(Debug)]
pub struct DenseWeights {
    values: Vec<f32>,
    /// For each row of the sparse matrix, whether it had entries.
    used: Vec<bool>,
}

impl DenseWeights {
    /// Converts a sparse n × n matrix to a dense matrix.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the arrays do not match; [`Error::Memory`].
    pub fn new(lists: Lists<'_>, n: usize) -> Result<Self> {
        if !lists.fits(n, n) {
            return Err(Error::argument("model", "the shapes of its arrays do not match"));
        }
        let what = || format!("an item-item model of {n} items");
        require(4 * n as u128 * n as u128, what, "recommend on a larger machine")?;
        let mut values = vec![0.0; n * n];
        for (row, to) in values.chunks_exact_mut(n.max(1)).enumerate() {
            lists.row(row).for_each(|(column, value)| to[column] += value);
        }
        let used = lists.offsets.windows(2).map(|ends| ends[0] < ends[1]).collect();
        Ok(Self { values, used })
    }
}

impl ItemModel<'_> {
    /// Whether this is a valid matrix of n × n items. Checks only the rows that `used` marks, because checking all
    /// rows would take longer than scoring one user.
    fn fits(&self, n: usize, used: &[bool]) -> bool {
        match self {
            Self::Sparse(lists) => lists.fits_in(n, n, |row| used[row]),
            Self::Dense(weights) => weights.used.len() == n,
        }
    }

    /// Adds `value` times the row of `item` to `scores`.
    fn add_row(&self, item: usize, value: f32, scores: &mut [f32]) {
        match self {
            Self::Sparse(lists) => {
                lists.row(item).for_each(|(other, weight)| scores[other] += value * weight);
            }
            Self::Dense(weights) => add(scores, value, &weights.values[item * scores.len()..]),
        }
    }

    /// Replaces the scores of items without entries by those of `factors`.
    fn fill(&self, scores: &mut [f32], factors: &[f32]) {
        let known = |item: usize| match self {
            Self::Sparse(lists) => lists.offsets[item] < lists.offsets[item + 1],
            Self::Dense(weights) => weights.used[item],
        };
        for (item, (score, factor)) in scores.iter_mut().zip(factors).enumerate() {
            if !known(item) {
                *score = *factor;
            }
        }
    }
}

/// A weighted sum of scorers.
#[derive(Debug)]
pub struct Blend<'a> {
    /// The factors of the users and of all items.
    pub factors: Part,
    /// Item-item models.
    pub models: Vec<ItemModel<'a>>,
    /// The clicks of the users.
    pub history: Lists<'a>,
    /// The weight of the factors, then the weight of each model.
    pub weights: Vec<f32>,
    /// Number of items.
    pub n_items: usize,
}

impl Blend<'_> {
    fn check(&self, n_users: usize) -> Result<()> {
        let n = self.n_items;
        // Only the model rows of the items in the users' histories are read.
        let mut used = vec![false; n];
        let good = self.factors.fits(n_users, n)
            && self.history.fits(n_users, n)
            && self.weights.len() == self.models.len() + 1;
        if good {
            self.history.columns.iter().for_each(|&item| used[item as usize] = true);
        }
        if good && self.models.iter().all(|model| model.fits(n, &used)) {
            Ok(())
        } else {
            Err(Error::argument("model", "the shapes of its arrays do not match"))
        }
    }

    /// Calls `take(user, index of the scorer, scores)` for each user and each scorer whose weight is not 0.
    fn for_each(
        &self,
        users: std::ops::Range<usize>,
        scratch: &mut BlendScratch,
        mut take: impl FnMut(usize, usize, &[f32]),
    ) {
        let stride = self.n_items.div_ceil(PANEL) * PANEL;
        let BlendScratch { rows, row, products } = scratch;
        rows.clear();
        rows.resize(users.len() * stride, 0.0);
        add_scores(&self.factors, (users.start, users.len()), rows, products);
        for (user, factors) in users.zip(rows.chunks_exact_mut(stride)) {
            let factors = &mut factors[..self.n_items];
            standardise(factors);
            if self.weights[0] != 0.0 {
                take(user, 0, factors);
            }
            for (at, model) in self.models.iter().enumerate() {
                if self.weights[at + 1] != 0.0 {
                    self.score(user, model, factors, row);
                    take(user, at + 1, row);
                }
            }
        }
    }

    /// Writes a user's scores under an item-item model to `row`. If the model has no score for the
    /// user or for an item, copies that score from `factors`.
    fn score(&self, user: usize, model: &ItemModel<'_>, factors: &[f32], row: &mut Vec<f32>) {
        row.clear();
        if self.history.offsets[user] == self.history.offsets[user + 1] {
            row.extend_from_slice(factors);
            return;
        }
        row.resize(self.n_items, 0.0);
        for (item, value) in self.history.row(user) {
            model.add_row(item, value, row);
        }
        standardise(row);
        model.fill(row, factors);
    }

    /// The scores of all users and items, with one row per user.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the arrays do not match; [`Error::Interrupted`].
    pub fn scores(&self, n_users: usize, interrupt: &Interrupt) -> Result<Vec<f32>> {
        self.check(n_users)?;
        let n = self.n_items;
        let mut scores = vec![0.0f32; n_users * n];
        map_items_with(
            scores.chunks_mut(n.max(1)).enumerate(),
            1,
            BlendScratch::default,
            |scratch, (user, to)| {
                if !interrupt.is_raised() {
                    self.for_each(user..user + 1, scratch, |_, at, row| {
                        add(to, self.weights[at], row);
                    });
                }
            },
        );
        interrupt.check()?;
        Ok(scores)
    }

    /// Returns the recall of each weighting: the fraction of the held-out items that are among the first 10, 20 and
    /// 50 items outside the user's history, averaged over the three depths and over users.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the arrays do not match; [`Error::Interrupted`].
    pub fn compare(
        &self,
        held_out: Lists<'_>,
        weightings: &[Vec<f32>],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>> {
        let n_users = held_out.offsets.len().saturating_sub(1);
        self.check(n_users)?;
        let lengths = weightings.iter().all(|weights| weights.len() == self.weights.len());
        if !held_out.fits(n_users, self.n_items) || !lengths {
            return Err(Error::argument("held_out", "its arrays do not match the model"));
        }
        let found: Vec<Vec<f64>> = map_items_with(
            0..n_users,
            1,
            || (BlendScratch::default(), vec![Vec::new(); self.weights.len()], Vec::new()),
            |(scratch, parts, blended), user| {
                if interrupt.is_raised() {
                    return Vec::new();
                }
                self.for_each(user..user + 1, scratch, |_, at, row| {
                    parts[at].clear();
                    parts[at].extend_from_slice(row);
                });
                let score = |weights: &Vec<f32>| {
                    blended.clear();
                    blended.resize(self.n_items, 0.0);
                    for (weight, part) in weights.iter().zip(&*parts) {
                        add(blended, *weight, part);
                    }
                    self.history.row(user).for_each(|(item, _)| blended[item] = f32::MIN);
                    hits(blended, held_out.row(user).map(|(item, _)| item))
                };
                weightings.iter().map(score).collect()
            },
        );
        interrupt.check()?;
        let mean = |at| found.iter().map(|row| row[at]).sum::<f64>() / n_users.max(1) as f64;
        Ok((0..weightings.len()).map(mean).collect())
    }
}

impl Scorer for Blend<'_> {
    type Scratch = BlendScratch;

    fn check(&self, n_users: usize, n_items: usize) -> Result<()> {
        if n_items != self.n_items {
            return Err(Error::argument("model", "the shapes of its arrays do not match"));
        }
        Blend::check(self, n_users)
    }

    fn add(&self, users: std::ops::Range<usize>, scores: &mut [f32], scratch: &mut BlendScratch) {
        let (first, stride) = (users.start, scores.len() / USERS);
        self.for_each(users, scratch, |user, at, row| {
            add(&mut scores[(user - first) * stride..][..self.n_items], self.weights[at], row);
        });
    }
}

/// Buffers for the scores of a few users.
#[derive(Debug, Default)]
pub struct BlendScratch {
    rows: Vec<f32>,
    row: Vec<f32>,
    products: Products,
}

fn add(to: &mut [f32], weight: f32, row: &[f32]) {
    if weight != 0.0 {
        arch().dispatch(|| to.iter_mut().zip(row).for_each(|(to, value)| *to += weight * value));
    }
}

/// Divides scores by their standard deviation. If all scores are equal, sets them to 0.
fn standardise(row: &mut [f32]) {
    let (mut sums, mut squares) = ([0.0f64; PANEL], [0.0f64; PANEL]);
    for values in row.chunks(PANEL) {
        for ((sum, square), value) in sums.iter_mut().zip(&mut squares).zip(values) {
            let value = f64::from(*value);
            *sum += value;
            *square += value * value;
        }
    }
    let n = row.len().max(1) as f64;
    let (mean, square) = (sums.iter().sum::<f64>() / n, squares.iter().sum::<f64>() / n);
    let variance = square - mean * mean;
    let scale = if variance > 1e-12 * square { (1.0 / variance.sqrt()) as f32 } else { 0.0 };
    row.iter_mut().for_each(|value| *value *= scale);
}

/// Returns the fraction of the held-out items that are among the first 10, 20 and 50, averaged over the three depths. A
/// held-out item ranks after all other items with the same score.
fn hits(scores: &[f32], held_out: impl Iterator<Item = usize>) -> f64 {
    let (mut total, mut n) = (0.0, 0.0);
    for item in held_out {
        let own = scores[item];
        let mut better = 0usize;
        for values in scores.chunks(1024) {
            better += values.iter().map(|value| u32::from(*value >= own)).sum::<u32>() as usize;
        }
        // `better` also counts the item itself.
        total += [10, 20, 50].iter().filter(|depth| better <= **depth).count() as f64 / 3.0;
        n += 1.0;
    }
    if n > 0.0 { total / n } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::scores::{ItemPanels, LinkFunction};
    use super::*;

    const N: usize = 37;

    /// A blend of factors and one item-item model. The factors score item i in proportion to i mod 5. In the item-item
    /// model, a click on item j adds to the score of item j + 1.
    fn blend<'a>(weights: &[f32], next: &'a (Vec<i64>, Vec<i32>)) -> Blend<'a> {
        let items: Vec<f32> = (0..N).flat_map(|item| [(item % 5) as f32, 0.0]).collect();
        let items = Arc::new(ItemPanels::new(&items, N, 2).unwrap());
        let users = [1.0, 0.0, -2.0, 0.0];
        Blend {
            factors: Part::new(LinkFunction::Identity, (1, 1.0), (&users, 2), items).unwrap(),
            models: vec![ItemModel::Sparse(lists(next))],
            history: Lists { offsets: &[0, 2, 3], columns: &[4, 8, 20], values: &[1.0, 0.5, 1.0] },
            weights: weights.to_vec(),
            n_items: N,
        }
    }

    fn lists(next: &(Vec<i64>, Vec<i32>)) -> Lists<'_> {
        Lists { offsets: &next.0, columns: &next.1, values: &[] }
    }

    fn next() -> (Vec<i64>, Vec<i32>) {
        let offsets = (0..=N as i64).map(|row| row.min(N as i64 - 1)).collect();
        (offsets, (1..N as i32).collect())
    }

    #[test]
    fn scores_are_divided_by_their_standard_deviation() {
        let next = next();
        let scores =
            |weights: &[f32]| blend(weights, &next).scores(2, &Interrupt::default()).unwrap();
        let (factors, model, both) =
            (scores(&[1.0, 0.0]), scores(&[0.0, 1.0]), scores(&[2.0, 3.0]));
        // The last item has no neighbours, so it gets the score of the factors.
        let mut spread = model.clone();
        spread.iter_mut().skip(N - 1).step_by(N).for_each(|score| *score = 0.0);
        for part in [&factors, &spread] {
            for row in part.chunks(N) {
                let mean = row.iter().sum::<f32>() / N as f32;
                let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / N as f32;
                assert!((variance - 1.0).abs() < 1e-4, "{variance}");
            }
        }
        assert_eq!(
            model[5],
            2.0 * model[9],
            "the contribution of a click is proportional to its value"
        );
        assert!(model[N + 21] > 0.0 && model[N + 20] == 0.0);
        for ((a, b), sum) in factors.iter().zip(&model).zip(&both) {
            assert!((2.0 * a + 3.0 * b - sum).abs() < 1e-4);
        }
    }

    #[test]
    fn scores_missing_from_a_model_come_from_the_factors() {
        let (mut offsets, columns) = next();
        // In the item-item model, the last two items appear in no row, and the rows of these two
        // items are empty.
        offsets[N - 2..].fill(N as i64 - 3);
        let next = (offsets, columns[..N - 3].to_vec());
        let scores = |weights: &[f32], history: &'static [i64]| {
            let mut blend = blend(weights, &next);
            blend.history = Lists { offsets: history, ..blend.history };
            blend.scores(2, &Interrupt::default()).unwrap()
        };
        let (factors, model) = (scores(&[1.0, 0.0], &[0, 2, 3]), scores(&[0.0, 1.0], &[0, 2, 3]));
        assert_eq!(model[N - 2..N], factors[N - 2..N]);
        assert_ne!(model[..N - 2], factors[..N - 2]);
        let without_clicks = scores(&[0.0, 1.0], &[0, 3, 3]);
        assert_eq!(without_clicks[N..], factors[N..]);
    }

    #[test]
    fn dense_models_give_the_same_bits_as_sparse_models() {
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..N {
            // Row 8 is empty, although a user has clicked on item 8.
            let entries = (0..N).filter(|column| row != 8 && (row * 7 + column * 5) % 11 > 2);
            for column in entries {
                columns.push(column as i32);
                values.push(((row * 37 + column * 11) % 23) as f32 * 0.37 - 3.0);
            }
            offsets.push(columns.len() as i64);
        }
        let matrix = Lists { offsets: &offsets, columns: &columns, values: &values };
        let next = next();
        let scores = |model| {
            let mut blend = blend(&[0.3, 0.7], &next);
            blend.models = vec![model];
            blend.scores(2, &Interrupt::default()).unwrap()
        };
        let dense = DenseWeights::new(matrix, N).unwrap();
        assert_eq!(scores(ItemModel::Dense(Arc::new(dense))), scores(ItemModel::Sparse(matrix)));
        assert!(DenseWeights::new(matrix, N + 1).is_err());
        let small = DenseWeights::new(Lists { offsets: &[0, 0], ..lists(&(vec![], vec![])) }, 1);
        let mut blend = blend(&[0.3, 0.7], &next);
        blend.models = vec![ItemModel::Dense(Arc::new(small.unwrap()))];
        assert!(blend.scores(2, &Interrupt::default()).is_err());
    }

    #[test]
    fn the_weighting_that_ranks_held_out_items_best_is_chosen() {
        let next = next();
        let blend = blend(&[1.0, 1.0], &next);
        let held_out = Lists { offsets: &[0, 1, 2], columns: &[5, 21], values: &[] };
        let weightings = [vec![1.0, 0.0], vec![0.0, 1.0]];
        let found = blend.compare(held_out, &weightings, &Interrupt::default()).unwrap();
        assert_eq!(found[1], 1.0);
        assert!(found[0] < 1.0);
        let beyond = Lists { offsets: &[0, 1, 2], columns: &[5, 37], values: &[] };
        assert!(blend.compare(beyond, &weightings, &Interrupt::default()).is_err());
    }
}
