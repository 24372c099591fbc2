//! Half a sweep over clicks: updates the factors of one side by conjugate gradients, given the factors of the other
//! side.
//!
//! Row u solves (α Σ b bᵀ + ridge_u + Σ w b bᵀ) z = Σ w t b + ridge_u · mean_u, where b are the factors of the other
//! side. The sums with weights w run over the row's own pairs, and mean_u is the prior mean from the row's features.
//! Both sides are first rotated into the eigenbasis of Σ b bᵀ, which leaves ⟨a_u, b_i⟩ unchanged. In this basis every
//! term of the matrix except the last is diagonal. A step therefore costs one inner product and one vector update per
//! pair of the row, and a few steps from the previous sweep's factors suffice.

use pulp::{Simd, WithSimd};

use super::click_problem::InteractionSettings;
use super::click_rows::{ClickRows, RowPairs, gram};
use super::eigenbasis::eigenbasis;
use super::tiles::{PARTNERS, add_weighted, dots};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::arch;
use crate::linalg::vectors::padded_dot;
use crate::parallel::map_items_with;

/// Number of steps per row and sweep. With three, 15 sweeps rank as well as exact solutions on MovieLens 1M.
const STEPS: usize = 3;

/// A row has converged when its squared residual, in the norm of the preconditioner, is below this fraction of its
/// initial value.
const SMALL: f64 = 1e-20;

/// Number of rows that one task updates; small enough that tasks with long rows do not delay the end of the sweep.
const TASK: usize = 16;

/// Improves the factors of `own`. Returns the sum over rows of −z'Hz + 2h'z − ridge ‖mean‖², where H is the matrix and
/// h the right-hand side of the row's equations. This is Σ w t² minus the terms of the objective that depend on `own`.
pub(super) fn half_sweep(
    own: &mut ClickRows,
    other: &mut ClickRows,
    settings: &InteractionSettings,
    interrupt: &Interrupt,
) -> Result<f64> {
    let d = own.d;
    let (mut diagonal, basis) = eigenbasis(&gram(&other.factors, d), d, interrupt)?;
    diagonal.iter_mut().for_each(|value| *value *= settings.unobserved);
    other.rotate(&basis, interrupt)?;
    own.rotate(&basis, interrupt)?;
    let mut factors = std::mem::take(&mut own.factors);
    let (rows, table, n_other) = (&*own, &other.factors[..], other.n_ids);
    let explained: Vec<f64> = map_items_with(
        factors.chunks_mut(TASK * d).enumerate(),
        1,
        || Scratch::new(d),
        |scratch, (task, chunk)| {
            let mut explained = 0.0;
            for (row, z) in (task * TASK..).zip(chunk.chunks_exact_mut(d)) {
                if interrupt.is_raised() {
                    break;
                }
                let ridge = settings.ridge_of(rows.weight(row), n_other);
                for (to, value) in scratch.diagonal.iter_mut().zip(&diagonal) {
                    *to = value + ridge;
                }
                if let Some(mean) = rows.mean(row) {
                    for (pull, mean) in scratch.pull.iter_mut().zip(mean) {
                        *pull = ridge * mean;
                        explained -= *pull * mean;
                    }
                }
                let pairs = rows.pairs(row);
                explained += arch().dispatch(Solve { scratch, pairs, table, z });
            }
            explained
        },
    );
    own.factors = factors;
    interrupt.check()?;
    Ok(explained.iter().sum())
}

/// Vectors used by conjugate gradients.
struct Scratch {
    /// The diagonal part of the matrix.
    diagonal: Vec<f64>,
    /// The ridge times the prior mean.
    pull: Vec<f64>,
    /// Inverse of the diagonal of the whole matrix.
    inverse: Vec<f64>,
    residual: Vec<f64>,
    direction: Vec<f64>,
    /// The matrix times the direction.
    product: Vec<f64>,
}

impl Scratch {
    fn new(d: usize) -> Self {
        let zeros = || vec![0.0; d];
        Self {
            diagonal: zeros(),
            pull: zeros(),
            inverse: zeros(),
            residual: zeros(),
            direction: zeros(),
            product: zeros(),
        }
    }
}

/// Runs conjugate gradients for one row. Returns the row's part of the sum that [`half_sweep`]
/// returns, without the term −ridge ‖mean‖².
struct Solve<'a> {
    scratch: &'a mut Scratch,
    pairs: RowPairs<'a>,
    table: &'a [f64],
    z: &'a mut [f64],
}

impl WithSimd for Solve<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { scratch, pairs, table, z } = self;
        let Scratch { diagonal, pull, inverse, residual, direction, product } = scratch;
        for (((residual, diagonal), pull), z) in
            residual.iter_mut().zip(&*diagonal).zip(&*pull).zip(&*z)
        {
            *residual = pull - diagonal * z;
        }
        inverse.copy_from_slice(diagonal);
        let target = start(simd, pairs, table, (&*z, residual, inverse));
        inverse.iter_mut().for_each(|value| *value = 1.0 / *value);
        let mut explained = target + padded_dot(pull, z) + padded_dot(residual, z);
        for (to, (residual, inverse)) in direction.iter_mut().zip(residual.iter().zip(&*inverse)) {
            *to = residual * inverse;
        }
        let mut size = padded_dot(residual, direction);
        let enough = SMALL * size;
        for _ in 0..STEPS {
            if size <= enough {
                break;
            }
            for ((product, diagonal), value) in product.iter_mut().zip(&*diagonal).zip(&*direction)
            {
                *product = diagonal * value;
            }
            multiply(simd, pairs, table, (&*direction, product));
            let length = size / padded_dot(direction, product);
            explained += length * size;
            for (z, value) in z.iter_mut().zip(&*direction) {
                *z += length * value;
            }
            let mut next = 0.0;
            for ((residual, product), inverse) in residual.iter_mut().zip(&*product).zip(&*inverse)
            {
                *residual -= length * product;
                next += *residual * *residual * inverse;
            }
            let share = next / size;
            for ((to, residual), inverse) in direction.iter_mut().zip(&*residual).zip(&*inverse) {
                *to = residual * inverse + share * *to;
            }
            size = next;
        }
        explained
    }
}

/// Adds Σ w (t − ⟨b, z⟩) b to the residual and Σ w b² to the diagonal; returns Σ w t ⟨b, z⟩.
#[inline(always)]
fn start<S: Simd>(
    simd: S,
    pairs: RowPairs<'_>,
    table: &[f64],
    (z, residual, diagonal): (&[f64], &mut [f64], &mut [f64]),
) -> f64 {
    let d = z.len();
    let mut target = 0.0;
    for (tile, partners) in pairs.partners.chunks(PARTNERS).enumerate() {
        let four = four(table, partners, d);
        let [products] = dots(simd, [z], four);
        let (mut pulls, mut weights) = ([0.0; PARTNERS], [0.0; PARTNERS]);
        for (at, product) in products.iter().enumerate().take(partners.len()) {
            let (t, w) = pairs.pair(tile * PARTNERS + at);
            (pulls[at], weights[at]) = (w * (t - product), w);
            target += w * t * product;
        }
        add_weighted(simd, [&mut *residual], [&pulls], &four[..partners.len()]);
        for (b, w) in four.iter().zip(weights).take(partners.len()) {
            for (value, b) in diagonal.iter_mut().zip(*b) {
                *value += w * b * b;
            }
        }
    }
    target
}

/// Adds Σ w ⟨b, v⟩ b to the product.
#[inline(always)]
fn multiply<S: Simd>(
    simd: S,
    pairs: RowPairs<'_>,
    table: &[f64],
    (v, product): (&[f64], &mut [f64]),
) {
    let d = v.len();
    for (tile, partners) in pairs.partners.chunks(PARTNERS).enumerate() {
        let four = four(table, partners, d);
        let [mut sums] = dots(simd, [v], four);
        for (at, sum) in sums.iter_mut().enumerate().take(partners.len()) {
            *sum *= pairs.pair(tile * PARTNERS + at).1;
        }
        add_weighted(simd, [&mut *product], [&sums], &four[..partners.len()]);
    }
}

/// Returns the factors of up to four partners. If there are fewer than four, the first is repeated.
#[inline(always)]
fn four<'a>(table: &'a [f64], partners: &[u32], d: usize) -> [&'a [f64]; PARTNERS] {
    let mut four = [&table[..0]; PARTNERS];
    for (at, row) in four.iter_mut().enumerate() {
        let partner = if at < partners.len() { partners[at] } else { partners[0] };
        *row = &table[partner as usize * d..][..d];
    }
    four
}
