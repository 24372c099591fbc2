//! Matrix completion over a ball of the nuclear norm, with a point that is stored as factors.
//!
//! A step costs O(observed entries + rows + columns): the point is a list of rank-one matrices, and
//! value, gradient and slopes need only the observed entries.

use std::ops::Range;
use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use super::completion::MatrixCompletion;
use super::problem::{Direction, Problem, Weighted};
use super::rank_one::{MatrixOperator, SingularPair, leading_pair, norm_above};
use super::vertex::bounded_dot;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{axpy, dot, normalise, random_unit};

/// A rank-one matrix left rightᵀ.
#[derive(Debug)]
pub(super) struct RankOne {
    pub left: Vec<f64>,
    pub right: Vec<f64>,
}

/// The squared error on the observed entries, at a point Z of which only these entries are stored.
pub(super) struct LowRankPoint<'a> {
    f: &'a MatrixCompletion,
    radius: f64,
    residuals: Residuals<'a>,
    value: f64,
    /// Buffer for the observed entries of a direction.
    direction: Vec<f64>,
    /// The last singular vector on the smaller side.
    last: Vec<f64>,
    /// Seed of the next search. Each search has its own, because gradients can stay orthogonal to a
    /// start that is used again.
    seed: u64,
}

/// Share of a random vector in the start of a search, so that it cannot miss a singular vector that
/// is orthogonal to the last one.
const RANDOM_SHARE: f64 = 0.5;

impl<'a> LowRankPoint<'a> {
    /// Starts at the vertex that minimises the slope for the gradient at 0; also returns this
    /// vertex.
    pub fn new(
        f: &'a MatrixCompletion,
        radius: f64,
        interrupt: &Interrupt,
    ) -> Result<(Self, Arc<RankOne>)> {
        let values = f.values.iter().map(|value| -value).collect();
        let residuals = Residuals::new(f, values);
        let direction = vec![0.0; f.n_observed()];
        let value = residuals.half_square();
        let mut point = Self { f, radius, residuals, value, direction, last: Vec::new(), seed: 0 };
        let start = point.vertex(f64::INFINITY, interrupt)?;
        let weighted = [Weighted { atom: Arc::clone(&start), weight: 1.0 }];
        point.refresh(&weighted, interrupt)?;
        Ok((point, start))
    }

    /// The entry of Z at an observed position.
    fn entry(&self, place: usize) -> f64 {
        self.residuals.values[place] + self.f.values[place]
    }

    /// Fills `direction`, and returns its slope and its squared norm.
    fn aim(&mut self, direction: &Direction<'_, Arc<RankOne>>) -> (f64, f64) {
        let mut buffer = std::mem::take(&mut self.direction);
        let parts = in_row_blocks(self.f, &mut buffer, |rows, first, out| {
            let (mut slope, mut square) = (0.0, 0.0);
            for row in rows {
                for place in self.f.row(row) {
                    let column = self.f.columns[place] as usize;
                    let at = |atom: &RankOne| atom.left[row] * atom.right[column];
                    let step = match direction {
                        Direction::Towards(to) => at(to) - self.entry(place),
                        Direction::Away(from) => self.entry(place) - at(from),
                        Direction::Pairwise(to, from) => at(to) - at(from),
                    };
                    out[place - first] = step;
                    slope -= self.residuals.values[place] * step;
                    square += step * step;
                }
            }
            (slope, square)
        });
        self.direction = buffer;
        parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    /// The value at the point that `active` describes, computed from its factors.
    pub fn value_of(
        &mut self,
        active: &[Weighted<Arc<RankOne>>],
        interrupt: &Interrupt,
    ) -> Result<f64> {
        self.refresh(active, interrupt)?;
        Ok(self.value)
    }

    /// The vertex from the leading singular vectors, accurate to a residual `tol`. The search
    /// starts near the last ones.
    fn search(&mut self, tol: f64, interrupt: &Interrupt) -> Result<Arc<RankOne>> {
        let (n_rows, n_cols) = self.f.shape();
        let mut start = random_unit(n_rows.min(n_cols), self.seed);
        self.seed += 1;
        if !self.last.is_empty() {
            start.iter_mut().for_each(|value| *value *= RANDOM_SHARE);
            axpy(&mut start, 1.0, &self.last);
            normalise(&mut start);
        }
        let SingularPair { mut left, right } =
            leading_pair(&self.residuals, start, tol, interrupt)?;
        self.last.clone_from(if n_cols <= n_rows { &right } else { &left });
        left.iter_mut().for_each(|value| *value *= -self.radius);
        Ok(Arc::new(RankOne { left, right }))
    }
}

/// The smallest residual that a search requests, relative to the square of the singular value.
const LEAST: f64 = 1e-7;

/// The size of a gap relative to a slope; 1 if that is unknown.
fn share_of(gap: f64, slope: f64) -> f64 {
    if slope != 0.0 && gap.is_finite() { (gap / slope).abs() } else { 1.0 }
}

/// Rows that are processed together.
const BLOCK_ROWS: usize = 64;

/// Calls `fill(rows, first entry, entries)` for blocks of rows in parallel; returns the results in
/// order.
fn in_row_blocks<T: Send>(
    f: &MatrixCompletion,
    out: &mut [f64],
    fill: impl Fn(Range<usize>, usize, &mut [f64]) -> T + Sync,
) -> Vec<T> {
    let n_rows = f.shape().0;
    let mut rest = out;
    let mut blocks = Vec::with_capacity(n_rows.div_ceil(BLOCK_ROWS));
    for start in (0..n_rows).step_by(BLOCK_ROWS) {
        let end = (start + BLOCK_ROWS).min(n_rows);
        let (first, last) = (f.row_starts[start], f.row_starts[end]);
        let (own, others) = std::mem::take(&mut rest).split_at_mut(last - first);
        blocks.push((start..end, first, own));
        rest = others;
    }
    let per_block = f.n_observed() / blocks.len().max(1) + 1;
    let blocks = blocks.into_par_iter().with_min_len(crate::parallel::min_len(per_block));
    blocks.map(|(rows, first, own)| fill(rows, first, own)).collect()
}

impl Problem for LowRankPoint<'_> {
    type Atom = Arc<RankOne>;

    fn refresh(&mut self, active: &[Weighted<Self::Atom>], interrupt: &Interrupt) -> Result<()> {
        // Lower bounds are valid for any residuals, so the updated residuals are kept until the
        // end.
        interrupt.check()?;
        let k = active.len();
        let gather = |n: usize, part: &dyn Fn(&RankOne) -> &[f64], scaled: bool| {
            let mut rows = vec![0.0; n * k];
            for (index, each) in active.iter().enumerate() {
                let scale = if scaled { each.weight } else { 1.0 };
                let values = part(&each.atom).iter().enumerate();
                values.for_each(|(row, value)| rows[row * k + index] = scale * value);
            }
            rows
        };
        let (n_rows, n_cols) = self.f.shape();
        let left = gather(n_rows, &|atom| &atom.left, true);
        let right = gather(n_cols, &|atom| &atom.right, false);
        let mut values = std::mem::take(&mut self.residuals.values);
        let f = self.f;
        in_row_blocks(f, &mut values, |rows, first, out| {
            for row in rows {
                for place in f.row(row) {
                    let column = f.columns[place] as usize;
                    let entry = dot(&left[row * k..][..k], &right[column * k..][..k]);
                    out[place - first] = entry - f.values[place];
                }
            }
        });
        self.residuals = Residuals::new(f, values);
        self.value = self.residuals.half_square();
        interrupt.check()
    }

    fn is_incremental(&self) -> bool {
        false
    }

    fn value(&self) -> f64 {
        self.value
    }

    fn slope_here(&self) -> f64 {
        let residuals = &self.residuals.values;
        2.0 * self.value + dot(residuals, &self.f.values)
    }

    fn slope(&self, atom: &Self::Atom) -> f64 {
        dot(&atom.left, &self.residuals.times(&atom.right))
    }

    fn vertex(&mut self, gap: f64, interrupt: &Interrupt) -> Result<Self::Atom> {
        let here = self.slope_here();
        if gap == 0.0 {
            self.last.clear();
        }
        // The tolerance is small enough to hardly affect the gap.
        let tol = (0.1 * share_of(gap, here - gap)).clamp(LEAST, 1e-2);
        let vertex = self.search(tol, interrupt)?;
        if self.slope(&vertex) < here {
            return Ok(vertex);
        }
        // The search has found a singular vector that is not the leading one.
        self.last.clear();
        self.search(LEAST, interrupt)
    }

    fn sampled_vertex(&mut self, _: f64, _: &mut Pcg64Mcg) -> Option<Self::Atom> {
        None
    }

    fn lower_bound(&mut self, vertex: &Self::Atom, gap: f64, interrupt: &Interrupt) -> Result<f64> {
        // For φ(z) = ½‖z − m‖² on the observed entries and any z: φ >= φ(z) + ⟨∇φ(z), z' − z⟩, and
        // ⟨∇φ(z), z'⟩ >= −radius ‖∇φ(z)‖₂ for the entries z' of a matrix in the ball. With the
        // residuals r = z − m this is −½‖r‖² − ⟨r, m⟩ − radius ‖r‖₂.
        let slope = self.slope(vertex);
        let accuracy = (0.05 * share_of(gap, slope)).clamp(1e-9, 1e-2);
        let norm = norm_above(&self.residuals, slope.abs() / self.radius, accuracy, interrupt)?;
        let residuals = &self.residuals.values;
        let square = bounded_dot(residuals, residuals).upper();
        let linear = bounded_dot(residuals, &self.f.values).upper();
        let smallest = (-self.radius * norm).next_down();
        Ok(((smallest - linear).next_down() - 0.5 * square).next_down())
    }

    fn bounds_are_cheap(&self) -> bool {
        false
    }

    fn walk(
        &mut self,
        direction: &Direction<'_, Self::Atom>,
        longest: f64,
        fixed: Option<f64>,
        _: &Interrupt,
    ) -> Result<f64> {
        let (slope, square) = self.aim(direction);
        if slope <= 0.0 && fixed.is_none() {
            return Ok(0.0);
        }
        let best = if square > 0.0 { (slope / square).min(longest) } else { longest };
        let step = fixed.unwrap_or(best);
        let mut values = std::mem::take(&mut self.residuals.values);
        values.iter_mut().zip(&self.direction).for_each(|(r, d)| *r += step * d);
        self.residuals = Residuals::new(self.f, values);
        self.value = self.residuals.half_square();
        Ok(step)
    }

    fn is_same(&self, a: &Self::Atom, b: &Self::Atom) -> bool {
        Arc::ptr_eq(a, b)
    }
}

/// The gradient: a sparse matrix with the observed entries, by rows and by columns.
struct Residuals<'a> {
    f: &'a MatrixCompletion,
    values: Vec<f64>,
    by_column: Vec<f64>,
}

impl<'a> Residuals<'a> {
    fn new(f: &'a MatrixCompletion, values: Vec<f64>) -> Self {
        let by_column = f.places.par_iter().with_min_len(1 << 16);
        let by_column = by_column.map(|place| values[*place as usize]).collect();
        Self { f, values, by_column }
    }

    /// ½ Σ r².
    fn half_square(&self) -> f64 {
        0.5 * dot(&self.values, &self.values)
    }
}

/// Σ_k values_k v_{i_k} for the indices i_k, in four independent sums, which hides the latency of
/// additions.
fn gathered(values: &[f64], indices: &[u32], v: &[f64]) -> f64 {
    let ((head, rest), (places, others)) = (values.as_chunks::<4>(), indices.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (values, places) in head.iter().zip(places) {
        for lane in 0..4 {
            sums[lane] += values[lane] * v[places[lane] as usize];
        }
    }
    let rest: f64 = rest.iter().zip(others).map(|(value, at)| value * v[*at as usize]).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// ⟨row, v⟩ for every row of a sparse matrix, in parallel.
fn sparse_times(starts: &[usize], indices: &[u32], values: &[f64], v: &[f64]) -> Vec<f64> {
    let n_rows = starts.len() - 1;
    let rows = (0..n_rows).into_par_iter();
    rows.with_min_len(crate::parallel::min_len(values.len() / n_rows + 1))
        .map(|row| {
            let range = starts[row]..starts[row + 1];
            gathered(&values[range.clone()], &indices[range], v)
        })
        .collect()
}

impl MatrixOperator for Residuals<'_> {
    fn shape(&self) -> (usize, usize) {
        self.f.shape()
    }

    fn times(&self, v: &[f64]) -> Vec<f64> {
        sparse_times(&self.f.row_starts, &self.f.columns, &self.values, v)
    }

    fn transposed_times(&self, u: &[f64]) -> Vec<f64> {
        sparse_times(&self.f.column_starts, &self.f.rows, &self.by_column, u)
    }

    fn squared_frobenius(&self) -> f64 {
        2.0 * self.half_square()
    }
}
