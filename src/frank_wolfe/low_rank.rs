//! Matrix completion over a ball of the nuclear norm, with a point that is stored as factors.
//!
//! A step costs O(observed entries + rows + columns): the point is a list of rank-one matrices, and
//! value, gradient and slopes need only the observed entries.

use std::sync::Arc;

use rand_pcg::Pcg64Mcg;

use super::block_krylov::{
    VectorBlock, WIDTH, first_vector, leading_block, random_block, set_column,
};
use super::completion::MatrixCompletion;
use super::problem::{Direction, Problem, Weighted};
use super::rank_one::norm_above;
use super::residuals::{EntryResiduals, in_line_blocks};
use super::vertex::bounded_dot;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{dot, normalise, random_unit};
use crate::polynomial::spectral::spectrum::SLACKS;
use crate::polynomial::spectral_bounds::MAX_FACTORISED;

/// A rank-one matrix left rightᵀ.
#[derive(Debug)]
pub(super) struct RankOne {
    pub left: Vec<f64>,
    pub right: Vec<f64>,
}

impl RankOne {
    /// Returns the two factors: first the factor with an entry for each line of f, then the factor with an entry for
    /// each place.
    fn sides(&self, f: &MatrixCompletion) -> (&[f64], &[f64]) {
        if f.has_row_lines() { (&self.left, &self.right) } else { (&self.right, &self.left) }
    }
}

/// The squared error on the observed entries, with the current point Z. Only the observed entries of Z are stored, as
/// residuals.
pub(super) struct LowRankPoint<'a> {
    f: &'a MatrixCompletion,
    radius: f64,
    residuals: EntryResiduals<'a>,
    /// Buffer for the observed entries of a direction.
    direction: Vec<f64>,
    /// The vertex that the last search found, and its slope for the current residuals.
    found: Option<(Arc<RankOne>, f64)>,
    /// The leading singular vectors that the last search found, on the smaller side of the matrix.
    last: Option<VectorBlock>,
    /// The slope of the vertex that the last search found, or 0.
    last_slope: f64,
    /// Seed of the next search. Every search uses a new seed, because gradients can stay orthogonal to a start that is
    /// used again.
    seed: u64,
}

impl<'a> LowRankPoint<'a> {
    /// Starts at the vertex that minimises the slope for the gradient at 0. Also returns this vertex.
    pub fn new(
        f: &'a MatrixCompletion,
        radius: f64,
        interrupt: &Interrupt,
    ) -> Result<(Self, Arc<RankOne>)> {
        let values = f.values.iter().map(|value| -value).collect();
        let residuals = EntryResiduals::new(f, values);
        let direction = vec![0.0; f.n_observed()];
        let (found, last, last_slope, seed) = (None, None, 0.0, 0);
        let mut point = Self { f, radius, residuals, direction, found, last, last_slope, seed };
        let start = point.vertex(f64::INFINITY, interrupt)?;
        let weighted = [Weighted { atom: Arc::clone(&start), weight: 1.0 }];
        point.refresh(&weighted, interrupt)?;
        Ok((point, start))
    }

    /// Fills `direction` with the direction's observed entries. Returns the rate at which the value falls along the
    /// direction, and the squared norm of these entries.
    fn aim(&mut self, direction: &Direction<'_, Arc<RankOne>>) -> (f64, f64) {
        let mut buffer = std::mem::take(&mut self.direction);
        let (f, residuals) = (self.f, &self.residuals.values);
        let parts = in_line_blocks(f, &mut buffer, |lines, first, out| {
            let (mut slope, mut square) = (0.0, 0.0);
            for line in lines {
                let range = f.line(line);
                let out = &mut out[range.start - first..range.end - first];
                let (values, own) = (&f.values[range.clone()], &residuals[range.clone()]);
                let entries = f.places[range].iter().zip(values).zip(own).zip(out);
                let scaled = |atom: &RankOne| atom.sides(f).0[line];
                // The entry of Z is the residual plus the observed value.
                let (scale, atom, sign, other) = match direction {
                    Direction::Towards(to) => (scaled(to), to, -1.0, None),
                    Direction::Away(from) => (-scaled(from), from, 1.0, None),
                    Direction::Pairwise(to, from) => (scaled(to), to, 0.0, Some(*from)),
                };
                let across = atom.sides(f).1;
                let minus = other.map(|from| (scaled(from), from.sides(f).1));
                for (((place, value), residual), out) in entries {
                    let at = *place as usize;
                    let mut step = scale * across[at] + sign * (residual + value);
                    if let Some((scale, across)) = minus {
                        step -= scale * across[at];
                    }
                    *out = step;
                    slope -= residual * step;
                    square += step * step;
                }
            }
            (slope, square)
        });
        self.direction = buffer;
        parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    /// Returns the function value at the point that `active` describes, computed from its factors.
    pub fn value_of(
        &mut self,
        active: &[Weighted<Arc<RankOne>>],
        interrupt: &Interrupt,
    ) -> Result<f64> {
        self.refresh(active, interrupt)?;
        Ok(self.value())
    }

    /// Whether a factorisation bounds the largest singular value.
    fn is_factorised(&self) -> bool {
        self.f.shape().0.min(self.f.shape().1) <= MAX_FACTORISED
    }

    /// Returns the vertex defined by the leading singular vectors, for which the error of the squared singular value is
    /// about `tol`, relative to this square. The search starts from the singular vectors that the last search found,
    /// but a random vector replaces the last of them. Otherwise, the search could miss a singular vector that is
    /// orthogonal to all of them.
    fn search(&mut self, tol: f64, interrupt: &Interrupt) -> Result<Arc<RankOne>> {
        let (n_rows, n_cols) = self.f.shape();
        let size = n_rows.min(n_cols);
        let start = match self.last.take() {
            Some(mut block) => {
                set_column(&mut block, WIDTH - 1, &random_unit(size, self.seed));
                block
            }
            None => random_block(size, self.seed),
        };
        self.seed += WIDTH as u64;
        let residuals = &self.residuals;
        let single = tol >= SINGLE_FROM && residuals.fit_single();
        let block = leading_block(start, tol, |block| {
            if single {
                residuals.times_block_in_single(block, interrupt)
            } else {
                residuals.times_block(block, interrupt)
            }
        })?;
        let known = first_vector(&block);
        self.last = Some(block);
        let mut other = residuals.along(&known);
        let value = normalise(&mut other);
        if value == 0.0 {
            other[0] = 1.0;
        }
        let (mut left, right) = if n_cols <= n_rows { (other, known) } else { (known, other) };
        left.iter_mut().for_each(|value| *value *= -self.radius);
        let vertex = Arc::new(RankOne { left, right });
        self.last_slope = -self.radius * value;
        self.found = Some((Arc::clone(&vertex), self.last_slope));
        Ok(vertex)
    }
}

/// Limits of the relative error of the squared singular value that the search for a vertex requests.
const LEAST: f64 = 1e-7;
const MOST: f64 = 0.1;

/// Searches for at least this error use single precision.
const SINGLE_FROM: f64 = 5e-3;

/// Fraction of the gap by which the lower bound may be too low, if the bound is not computed by a factorisation.
const BOUND_SLACK: f64 = 0.05;

/// The same fraction if the bound is computed by a factorisation.
const FACTORISED_SLACK: f64 = 0.005;

/// Returns the size of an error relative to a slope, or 1 if it is unknown.
fn share_of(error: f64, slope: f64) -> f64 {
    if slope != 0.0 && error.is_finite() { (error / slope).abs() } else { 1.0 }
}

impl Problem for LowRankPoint<'_> {
    type Atom = Arc<RankOne>;

    fn refresh(&mut self, active: &[Weighted<Self::Atom>], interrupt: &Interrupt) -> Result<()> {
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
        let f = self.f;
        let along = gather(f.n_lines(), &|atom| atom.sides(f).0, true);
        let across = gather(f.shape().0.min(f.shape().1), &|atom| atom.sides(f).1, false);
        let mut values = std::mem::take(&mut self.residuals.values);
        in_line_blocks(f, &mut values, |lines, first, out| {
            for line in lines {
                for index in f.line(line) {
                    let place = f.places[index] as usize;
                    let entry = dot(&along[line * k..][..k], &across[place * k..][..k]);
                    out[index - first] = entry - f.values[index];
                }
            }
        });
        self.residuals = EntryResiduals::new(f, values);
        self.found = None;
        interrupt.check()
    }

    fn is_incremental(&self) -> bool {
        // The lower bound is valid for any residuals, so a certificate does not recompute them.
        false
    }

    fn value(&self) -> f64 {
        0.5 * self.residuals.square
    }

    fn slope_here(&self) -> f64 {
        self.residuals.square + self.residuals.with_values
    }

    fn slope(&self, atom: &Self::Atom) -> f64 {
        match &self.found {
            Some((vertex, slope)) if Arc::ptr_eq(vertex, atom) => *slope,
            _ => {
                let (along, across) = atom.sides(self.f);
                dot(along, &self.residuals.along(across))
            }
        }
    }

    fn vertex(&mut self, error: f64, interrupt: &Interrupt) -> Result<Self::Atom> {
        let tol = (2.0 * share_of(error, self.last_slope)).clamp(LEAST, MOST);
        let vertex = self.search(tol, interrupt)?;
        if self.slope(&vertex) < self.slope_here() {
            return Ok(vertex);
        }
        // The search may have found a singular vector other than the leading one.
        self.last = None;
        self.search(LEAST, interrupt)
    }

    fn sampled_vertex(&mut self, _: f64, _: &mut Pcg64Mcg) -> Option<Self::Atom> {
        None
    }

    fn lower_bound(&mut self, vertex: &Self::Atom, gap: f64, interrupt: &Interrupt) -> Result<f64> {
        // For φ(z) = ½‖z − m‖² on the observed entries and any z: φ >= φ(z) + ⟨∇φ(z), z' − z⟩, and
        // ⟨∇φ(z), z'⟩ >= −radius ‖∇φ(z)‖₂ for the entries z' of a matrix in the ball. With the
        // residuals r = z − m this is −½‖r‖² − ⟨r, m⟩ − radius ‖r‖₂.
        let slope = self.slope(vertex).abs();
        let share = share_of(gap, slope);
        let accuracy = (BOUND_SLACK * share).clamp(1e-9, BOUND_SLACK);
        let mut guess = slope / self.radius;
        if self.is_factorised() {
            // The bound on the square is the guess times the first 1 + s that is confirmed, for s in a list. The search
            // makes the guess so accurate that the largest s that is small enough for the gap suffices.
            let allowed = 2.0 * FACTORISED_SLACK * share;
            let slack = SLACKS.iter().rev().find(|slack| **slack <= allowed).unwrap_or(&SLACKS[0]);
            self.search(0.5 * slack, interrupt)?;
            guess = guess.max(self.last_slope.abs() / self.radius);
        }
        let norm = norm_above(&self.residuals, guess, accuracy, interrupt)?;
        let residuals = &self.residuals.values;
        let square = bounded_dot(residuals, residuals).upper();
        let linear = bounded_dot(residuals, &self.f.values).upper();
        let smallest = (-self.radius * norm).next_down();
        Ok(((smallest - linear).next_down() - 0.5 * square).next_down())
    }

    fn bounds_are_cheap(&self) -> bool {
        false
    }

    fn bound_slack(&self) -> f64 {
        if self.is_factorised() { FACTORISED_SLACK } else { BOUND_SLACK }
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
        self.residuals.add(step, &self.direction);
        self.found = None;
        Ok(step)
    }

    fn is_same(&self, a: &Self::Atom, b: &Self::Atom) -> bool {
        Arc::ptr_eq(a, b)
    }
}
