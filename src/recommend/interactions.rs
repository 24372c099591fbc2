//! Who takes up what: least squares over all pairs of users and items, observed or not.
//!
//! An observed pair has a target t (1 for a like, less for another rating), every other pair the target 0
//! with a small weight α (Hu, Koren and Volinsky 2008; in the form of Rendle, Krichene, Zhang and Koren
//! 2022, "Revisiting the performance of iALS on item recommendation benchmarks"):
//!
//! ```text
//! min Σ_observed w (t − ⟨a_u, b_i⟩)² + α Σ_all ⟨a_u, b_i⟩² + λ Σ_u (w_u + α n_items)^½ ‖a_u‖²
//!     + λ Σ_i (w_i + α n_users)^½ ‖b_i‖²
//! ```
//!
//! with w_u and w_i the weights of a user's and an item's observed pairs. (Rendle et al. tune the exponent;
//! with ½ one λ serves data of different sizes.) Given one side the other is an
//! exact solution, row by row, so that the objective falls with each half sweep.

use ndarray::{Array2, ArrayView2};
use pulp::{Simd, WithSimd};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use super::counting_sort::ByRow;
use super::tiles::{OUTPUTS, add_weighted};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::linalg::cholesky::solve_semidefinite;
use crate::linalg::vectors::{padded, padded_axpy, padded_dot};
use crate::memory::require;
use crate::run::{Certificate, Progress, Solver};

/// Observed pairs.
#[derive(Debug, Clone, Copy)]
pub struct Interactions<'a> {
    /// User of each pair, below `n_users`.
    pub users: &'a [u32],
    /// Item of each pair, below `n_items`.
    pub items: &'a [u32],
    /// Target t of each pair.
    pub targets: &'a [f64],
    /// Weight w of each pair.
    pub weights: &'a [f64],
    /// Number of users.
    pub n_users: usize,
    /// Number of items.
    pub n_items: usize,
}

/// Settings of the fit.
#[derive(Debug, Clone, Copy)]
pub struct InteractionSettings {
    /// Number of factors.
    pub n_components: usize,
    /// Weight α of a pair that was not observed.
    pub unobserved: f64,
    /// Ridge λ.
    pub ridge: f64,
    /// Share of the objective below which a sweep's gain ends the fit.
    pub tol: f64,
    /// Seed of the random start.
    pub seed: u64,
}

impl InteractionSettings {
    fn check(&self) -> Result<()> {
        if self.n_components == 0 {
            return Err(Error::argument("n_components", "must be at least 1"));
        }
        for (name, value) in [("unobserved", self.unobserved), ("ridge", self.ridge)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::argument(name, "must be a positive number"));
            }
        }
        Ok(())
    }
}

/// Alternating least squares; one epoch is one sweep over both sides.
#[derive(Debug)]
pub struct InteractionFit {
    settings: InteractionSettings,
    users: Rows,
    items: Rows,
    /// Σ w t² over all pairs.
    squares: f64,
    objective: f64,
}

impl InteractionFit {
    /// Checks the pairs and starts from random factors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming what cannot be used.
    pub fn new(pairs: Interactions<'_>, settings: InteractionSettings) -> Result<Self> {
        settings.check()?;
        check(&pairs)?;
        let d = padded(settings.n_components);
        let bytes = 8 * d as u128 * (pairs.n_users + pairs.n_items) as u128;
        let what = || format!("the interaction factors of {d} components");
        require(bytes, what, "lower n_components")?;
        let mut users = Rows::new(pairs.users, pairs.items, &pairs, (pairs.n_users, d));
        let mut items = Rows::new(pairs.items, pairs.users, &pairs, (pairs.n_items, d));
        let mut rng = Pcg64Mcg::seed_from_u64(settings.seed);
        let scale = 0.1 / (settings.n_components as f64).sqrt();
        for rows in [&mut users, &mut items] {
            for &row in &rows.used {
                for value in &mut rows.factors[row as usize * d..][..settings.n_components] {
                    *value = scale * ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0);
                }
            }
        }
        let squares = pairs.targets.iter().zip(pairs.weights).map(|(t, w)| w * t * t).sum();
        Ok(Self { settings, users, items, squares, objective: f64::INFINITY })
    }

    /// The factors of users and items, a row for each.
    pub fn factors(&self) -> (Array2<f64>, Array2<f64>) {
        let of = |rows: &Rows| {
            Array2::from_shape_fn((rows.n(), self.settings.n_components), |(row, r)| {
                rows.factors[row * rows.d + r]
            })
        };
        (of(&self.users), of(&self.items))
    }
}

impl Solver for InteractionFit {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let Self { settings, users, items, .. } = self;
        update(users, items, settings, interrupt)?;
        let user_ridge = users.ridge_of(settings, items.n());
        // At the minimum over the items the terms with b_i add up to −⟨h_i, b_i⟩.
        let explained = update(items, users, settings, interrupt)?;
        let objective = self.squares - explained + user_ridge;
        let settled = self.objective - objective <= settings.tol * objective.abs();
        self.objective = objective;
        Ok(if settled { Progress::Settled(objective) } else { Progress::Objective(objective) })
    }

    fn certify(&mut self, _interrupt: &Interrupt) -> Result<Certificate> {
        Err(Error::argument("max_iter", "must be at least 1"))
    }
}

/// Factors of new users, n_new × d, from the factors of the items: the same least squares.
///
/// `pairs.n_items` must be the rows of `items`.
///
/// # Errors
/// [`Error::InvalidArgument`] naming what cannot be used; [`Error::Interrupted`].
pub fn fold_in_interactions(
    pairs: Interactions<'_>,
    items: ArrayView2<'_, f64>,
    settings: &InteractionSettings,
    interrupt: &Interrupt,
) -> Result<Array2<f64>> {
    settings.check()?;
    check(&pairs)?;
    if items.dim() != (pairs.n_items, settings.n_components) {
        return Err(Error::argument("model", "its arrays do not fit together"));
    }
    let d = padded(settings.n_components);
    let mut others = Rows::new(&[], &[], &pairs, (pairs.n_items, d));
    others.used = (0..pairs.n_items as u32).collect();
    for (padded, row) in others.factors.chunks_exact_mut(d).zip(items.rows()) {
        padded.iter_mut().zip(row).for_each(|(value, given)| *value = *given);
    }
    let mut own = Rows::new(pairs.users, pairs.items, &pairs, (pairs.n_users, d));
    update(&mut own, &others, settings, interrupt)?;
    let factors = &own.factors;
    Ok(Array2::from_shape_fn((pairs.n_users, settings.n_components), |(row, r)| {
        factors[row * d + r]
    }))
}

fn check(pairs: &Interactions<'_>) -> Result<()> {
    let fail = |message: &str| Err(Error::argument("ratings", message));
    let n = pairs.users.len();
    if [pairs.items.len(), pairs.targets.len(), pairs.weights.len()] != [n; 3] {
        return fail("users, items, targets and weights must be equally many");
    }
    if pairs.users.iter().any(|&user| user as usize >= pairs.n_users)
        || pairs.items.iter().any(|&item| item as usize >= pairs.n_items)
    {
        return fail("an id is out of range");
    }
    let good = |(t, w): (&f64, &f64)| t.is_finite() && w.is_finite() && *w > 0.0;
    if !pairs.targets.iter().zip(pairs.weights).all(good) {
        return fail("targets must be finite and weights positive");
    }
    Ok(())
}

/// One side: its factors, and its pairs sorted by rows.
#[derive(Debug)]
struct Rows {
    /// Number of factors, padded.
    d: usize,
    offsets: Vec<usize>,
    /// Rows whose factors may differ from 0: those with pairs, in a fit. The others take no work.
    used: Vec<u32>,
    partners: Vec<u32>,
    targets: Vec<f64>,
    weights: Vec<f64>,
    factors: Vec<f64>,
}

impl Rows {
    fn new(
        rows: &[u32],
        partners: &[u32],
        pairs: &Interactions<'_>,
        (n, d): (usize, usize),
    ) -> Self {
        let by_row = ByRow::new(rows, n);
        let has_pairs =
            |row: &u32| by_row.offsets[*row as usize] < by_row.offsets[*row as usize + 1];
        Self {
            d,
            used: (0..n as u32).filter(has_pairs).collect(),
            partners: by_row.sorted(partners),
            targets: by_row.sorted(pairs.targets),
            weights: by_row.sorted(pairs.weights),
            offsets: by_row.offsets,
            factors: vec![0.0; n * d],
        }
    }

    fn n(&self) -> usize {
        self.offsets.len() - 1
    }

    /// λ (w + α n_other)^½ of one row.
    fn ridge(&self, row: usize, settings: &InteractionSettings, n_other: usize) -> f64 {
        let weight: f64 = self.weights[self.offsets[row]..self.offsets[row + 1]].iter().sum();
        settings.ridge * (weight + settings.unobserved * n_other as f64).sqrt()
    }

    /// The ridge's share of the objective.
    fn ridge_of(&self, settings: &InteractionSettings, n_other: usize) -> f64 {
        let share = |&row: &u32| {
            let z = self.row(row);
            self.ridge(row as usize, settings, n_other) * padded_dot(z, z)
        };
        self.used.iter().map(share).sum()
    }

    /// The factors of one row.
    fn row(&self, row: u32) -> &[f64] {
        &self.factors[row as usize * self.d..][..self.d]
    }

    /// α Σ z zᵀ over all rows, summed in fixed pieces.
    fn gram(&self, unobserved: f64) -> Vec<f64> {
        let d = self.d;
        let pieces: Vec<Vec<f64>> = self
            .used
            .par_chunks(PIECE)
            .map(|piece| {
                let mut gram = vec![0.0; d * d];
                let rows: Vec<&[f64]> = piece.iter().map(|row| self.row(*row)).collect();
                let weights = vec![unobserved; rows.len()];
                let mut scratch = Vec::new();
                add_outer(&mut gram, &rows, &weights, &mut scratch);
                gram
            })
            .collect();
        let mut total = vec![0.0; d * d];
        for piece in pieces {
            total.iter_mut().zip(piece).for_each(|(total, value)| *total += value);
        }
        total
    }
}

/// Rows whose products are summed together.
const PIECE: usize = 256;

/// Rows that one task updates: few enough that the longest do not hold up the others.
const TASK: usize = 16;

/// The best factors of one side given the other's; returns Σ ⟨h, z⟩.
fn update(
    own: &mut Rows,
    other: &Rows,
    settings: &InteractionSettings,
    interrupt: &Interrupt,
) -> Result<f64> {
    let d = own.d;
    let gram = other.gram(settings.unobserved);
    let mut factors = std::mem::take(&mut own.factors);
    let rows = &*own;
    let explained: Vec<f64> = factors
        .par_chunks_mut(TASK * d)
        .enumerate()
        .map_init(
            || Scratch::new(d),
            |scratch, (task, chunk)| {
                let mut explained = 0.0;
                for (row, z) in (task * TASK..).zip(chunk.chunks_exact_mut(d)) {
                    if interrupt.is_raised() {
                        break;
                    }
                    // A row without pairs has the factors 0.
                    if rows.offsets[row] < rows.offsets[row + 1] {
                        explained += scratch.solve(rows, row, other, &gram, settings, z);
                    }
                }
                explained
            },
        )
        .collect();
    own.factors = factors;
    interrupt.check()?;
    Ok(explained.iter().sum())
}

/// The normal equations of one row.
struct Scratch {
    matrix: Vec<f64>,
    vector: Vec<f64>,
    columns: Vec<f64>,
}

impl Scratch {
    fn new(d: usize) -> Self {
        Self { matrix: vec![0.0; d * d], vector: vec![0.0; d], columns: Vec::new() }
    }

    /// Replaces z by the solution of (α Σ bbᵀ + Σ w bbᵀ + ridge) z = h = Σ w t b and returns ⟨h, z⟩.
    fn solve(
        &mut self,
        rows: &Rows,
        row: usize,
        other: &Rows,
        gram: &[f64],
        settings: &InteractionSettings,
        z: &mut [f64],
    ) -> f64 {
        let d = rows.d;
        let range = rows.offsets[row]..rows.offsets[row + 1];
        self.matrix.copy_from_slice(gram);
        self.vector.fill(0.0);
        let (partners, weights) = (&rows.partners[range.clone()], &rows.weights[range.clone()]);
        let targets = &rows.targets[range];
        let mut few: Vec<&[f64]> = Vec::with_capacity(PIECE);
        for ((partners, weights), targets) in
            partners.chunks(PIECE).zip(weights.chunks(PIECE)).zip(targets.chunks(PIECE))
        {
            few.clear();
            few.extend(partners.iter().map(|&at| &other.factors[at as usize * d..][..d]));
            add_outer(&mut self.matrix, &few, weights, &mut self.columns);
            for ((b, w), t) in few.iter().zip(weights).zip(targets) {
                padded_axpy(&mut self.vector, w * t, b);
            }
        }
        let ridge = rows.ridge(row, settings, other.n());
        for at in 0..d {
            // What pads the factors is 0 everywhere: with a ridge it stays so.
            self.matrix[at * d + at] += ridge;
        }
        z.copy_from_slice(&self.vector);
        arch().dispatch(Solve { matrix: &mut self.matrix, right: z });
        padded_dot(&self.vector, z)
    }
}

struct Solve<'a> {
    matrix: &'a mut [f64],
    right: &'a mut [f64],
}

impl WithSimd for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        solve_semidefinite(self.matrix, self.right);
    }
}

/// matrix += Σ_n weights_n b_n b_nᵀ, its upper triangle at least; `columns` is scratch.
fn add_outer(matrix: &mut [f64], rows: &[&[f64]], weights: &[f64], columns: &mut Vec<f64>) {
    if !rows.is_empty() {
        arch().dispatch(Outer { matrix, rows, weights, columns });
    }
}

struct Outer<'a> {
    matrix: &'a mut [f64],
    rows: &'a [&'a [f64]],
    weights: &'a [f64],
    columns: &'a mut Vec<f64>,
}

/// Rows whose outer products are added together: few enough to stay in the first cache.
const BLOCK: usize = 32;

impl WithSimd for Outer<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrix, rows, weights, columns } = self;
        let d = rows[0].len();
        columns.resize(d * BLOCK, 0.0);
        for (rows, weights) in rows.chunks(BLOCK).zip(weights.chunks(BLOCK)) {
            for (n, (row, weight)) in rows.iter().zip(weights).enumerate() {
                for (r, value) in row.iter().enumerate() {
                    columns[r * BLOCK + n] = weight * value;
                }
            }
            for (tile, four) in matrix.chunks_exact_mut(OUTPUTS * d).enumerate() {
                // Columns before the tile's first lane lie below the diagonal.
                let from = tile * OUTPUTS / LANES * LANES;
                let mut right = [&rows[0][..0]; BLOCK];
                right.iter_mut().zip(rows).for_each(|(right, row)| *right = &row[from..]);
                let mut lines = four.chunks_exact_mut(d);
                let sums: [&mut [f64]; OUTPUTS] =
                    std::array::from_fn(|_| &mut lines.next().unwrap_or_default()[from..]);
                let coefficients: [&[f64]; OUTPUTS] =
                    std::array::from_fn(|r| &columns[(tile * OUTPUTS + r) * BLOCK..][..BLOCK]);
                add_weighted(simd, sums, coefficients, &right[..rows.len()]);
            }
        }
    }
}

/// What rows are padded to.
const LANES: usize = padded(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_pairs_take_no_work() {
        let n = 100_000;
        let settings =
            InteractionSettings { n_components: 3, unobserved: 0.1, ridge: 0.1, tol: 0.0, seed: 1 };
        let (users, items) = (&[0, 2, 2][..], &[7, 99_999, 7][..]);
        let (targets, weights) = (&[1.0, 0.5, 1.0][..], &[1.0; 3][..]);
        let pairs = Interactions { users, items, targets, weights, n_users: 3, n_items: n };
        let mut fit = InteractionFit::new(pairs, settings).unwrap();
        assert_eq!((&fit.users.used[..], &fit.items.used[..]), (&[0, 2][..], &[7, 99_999][..]));
        for _ in 0..3 {
            let before = fit.objective;
            fit.advance(&Interrupt::default()).unwrap();
            assert!(fit.objective < before);
        }
        let rows = fit.items.factors.chunks(fit.items.d).enumerate();
        let used = rows.filter(|(_, z)| z.iter().any(|value| *value != 0.0)).map(|(row, _)| row);
        assert_eq!(used.collect::<Vec<_>>(), [7, 99_999]);
    }
}
