//! The inner loops over classes and features of block descent, written once for all vectors.

use std::array::from_fn;

use pulp::Simd;

use super::row::Row;
use crate::data::Real;
use crate::linalg::vectors::fused_dot;
use crate::linalg::{Element, Kernel, Lane};

/// Vectors summed in registers at a time.
const VECTORS: usize = 8;

/// The lower triangle of X Xᵀ.
pub(super) struct InnerProducts<'a, T> {
    pub rows: &'a [T],
    pub n_features: usize,
    pub products: &'a mut [T],
}

impl<T: Element> Kernel<T> for InnerProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let n = self.rows.len() / self.n_features;
        let row = |i: usize| &self.rows[i * self.n_features..][..self.n_features];
        for i in 0..n {
            for j in 0..=i {
                self.products[i * n + j] = fused_dot(simd, row(i), row(j));
            }
        }
    }
}

/// Where the scores of a row of a block are: in panels of classes, each row by row.
#[derive(Clone, Copy)]
pub(super) struct RowScores<'a, T> {
    pub scores: &'a [T],
    pub row: usize,
    pub n_rows: usize,
    /// Number of classes with the padding.
    pub padded: usize,
    /// Classes of a panel; the last one's may be fewer.
    pub width: usize,
}

impl<'a, T: Real> RowScores<'a, T> {
    /// The row's scores from a panel on.
    #[inline(always)]
    fn panel(self, panel: usize) -> &'a [T] {
        let first = panel * self.width;
        &self.scores[first * self.n_rows + self.row * self.width.min(self.padded - first)..]
    }
}

/// Margins v_j = Δ_j + s_j − s_y of a row of a block, 0 at the label. Returns the largest.
pub(super) struct Margins<'a, T> {
    pub place: RowScores<'a, T>,
    /// Δ; 1 off the label where there are none.
    pub costs: Option<&'a [f64]>,
    pub label: usize,
    pub margins: &'a mut [f64],
}

impl<T: Element> Kernel<T> for Margins<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn compute<S: Simd>(self, _: S) -> f64
    where
        T: Lane<S>,
    {
        let Self { place, costs, label, margins } = self;
        let own = place.panel(label / place.width)[label % place.width].widen();
        for (panel, margins) in margins.chunks_mut(place.width).enumerate() {
            let scores = &place.panel(panel)[..margins.len()];
            match costs {
                None => {
                    let shift = 1.0 - own;
                    for (margin, score) in margins.iter_mut().zip(scores) {
                        *margin = score.widen() + shift;
                    }
                }
                Some(costs) => {
                    let numbers = scores.iter().zip(&costs[panel * place.width..]);
                    for (margin, (score, cost)) in margins.iter_mut().zip(numbers) {
                        *margin = score.widen() + (cost - own);
                    }
                }
            }
        }
        margins[label] = 0.0;
        // The label's is 0, so none is below it.
        let (mut largest, mut lanes) = (0.0, [0.0; VECTORS]);
        let (whole, rest) = margins.as_chunks::<VECTORS>();
        for margins in whole {
            for (lane, &margin) in lanes.iter_mut().zip(margins) {
                *lane = if margin > *lane { margin } else { *lane };
            }
        }
        for &margin in lanes.iter().chain(rest) {
            largest = if margin > largest { margin } else { largest };
        }
        largest
    }
}

/// Rows of a block whose scores are corrected together: what an earlier row changed is then read once for all of them.
pub(super) const TOGETHER: usize = 8;

/// Scores of some rows of a block as they stand before the first of them: those from before the block, from panels
/// to contiguous rows, plus what the rows before changed, Σ_j ⟨x_i, x_j⟩ δ_j.
pub(super) struct EarlierChanges<'a, T> {
    /// The first row.
    pub place: RowScores<'a, T>,
    /// Inner products of the rows with all of the block, row by row.
    pub gram: &'a [T],
    /// δ_j, one padded row each.
    pub changes: &'a [T],
    /// The rows that changed, j.
    pub changed: &'a [usize],
    /// Contiguous scores, row by row.
    pub out: &'a mut [T],
}

impl<T: Element> Kernel<T> for EarlierChanges<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(mut self, simd: S)
    where
        T: Lane<S>,
    {
        let RowScores { padded, width, .. } = self.place;
        for first in (0..padded).step_by(width) {
            let width = width.min(padded - first);
            // Sparse rows have one panel of all classes.
            for start in (0..width).step_by(WIDE * T::LANES) {
                let n_vectors = (width - start) / T::LANES;
                if n_vectors >= WIDE {
                    self.rows::<S, WIDE>(simd, (first, start));
                } else {
                    for place in 0..n_vectors {
                        self.rows::<S, 1>(simd, (first, start + place * T::LANES));
                    }
                }
            }
        }
    }
}

/// Vectors of a tile, beside each other.
const WIDE: usize = 3;

impl<T: Element> EarlierChanges<'_, T> {
    /// V vectors of all rows, from a place in the panel that begins with the class `first`.
    #[inline(always)]
    fn rows<S: Simd, const V: usize>(&mut self, simd: S, (first, start): (usize, usize))
    where
        T: Lane<S>,
    {
        let (n, mut row) = (self.out.len() / self.place.padded, 0);
        if S::REGISTER_COUNT >= 32 {
            while row + 8 <= n {
                self.tile::<S, V, 8>(simd, (first, start), row);
                row += 8;
            }
        } else {
            while row + 4 <= n {
                self.tile::<S, V, 4>(simd, (first, start), row);
                row += 4;
            }
        }
        while row < n {
            self.tile::<S, V, 1>(simd, (first, start), row);
            row += 1;
        }
    }

    /// R rows of them.
    #[inline(always)]
    fn tile<S: Simd, const V: usize, const R: usize>(
        &mut self,
        simd: S,
        (first, start): (usize, usize),
        row: usize,
    ) where
        T: Lane<S>,
    {
        let Self { place, gram, changes, changed, out } = self;
        let (padded, n_rows) = (place.padded, place.n_rows);
        let mut sums = [[T::splat(simd, T::zero()); V]; R];
        for (at, sums) in sums.iter_mut().enumerate() {
            let place = RowScores { row: place.row + row + at, ..*place };
            let scores = &place.panel(first / place.width)[start..][..V * T::LANES];
            sums.copy_from_slice(&T::vectors(scores).0[..V]);
        }
        let first = first + start;
        // Blocks of one row, as sparse data have them, come without products.
        let gram: [&[T]; R] = match changed.is_empty() {
            true => [&[]; R],
            false => from_fn(|at| &gram[(row + at) * n_rows..][..n_rows]),
        };
        for &other in *changed {
            let change = &T::vectors(&changes[other * padded + first..][..V * T::LANES]).0[..V];
            for (sums, gram) in sums.iter_mut().zip(&gram) {
                let product = T::splat(simd, gram[other]);
                for (sum, change) in sums.iter_mut().zip(change) {
                    *sum = T::fused(simd, product, *change, *sum);
                }
            }
        }
        for (at, sums) in sums.iter().enumerate() {
            let out = &mut out[(row + at) * padded + first..][..V * T::LANES];
            T::vectors_mut(out).0.copy_from_slice(sums);
        }
    }
}

/// Adds what rows changed to the scores of another, Σ_j ⟨x_i, x_j⟩ δ_j.
pub(super) struct LateChanges<'a, T> {
    /// ⟨x_i, x_j⟩ for all rows of the block.
    pub gram: &'a [T],
    /// δ_j, one padded row each.
    pub changes: &'a [T],
    /// The rows that changed, j.
    pub changed: &'a [usize],
    pub scores: &'a mut [T],
}

impl<T: Element> Kernel<T> for LateChanges<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { gram, changes, changed, scores } = self;
        let stride = scores.len() / T::LANES;
        let (scores, changes) = (T::vectors_mut(scores).0, T::vectors(changes).0);
        let mut first = 0;
        let (wide, rest) = scores.as_chunks_mut::<VECTORS>();
        for scores in wide {
            correct(simd, changes, (stride, first), (gram, changed), scores);
            first += VECTORS;
        }
        for scores in rest.as_chunks_mut::<1>().0 {
            correct(simd, changes, (stride, first), (gram, changed), scores);
            first += 1;
        }
    }
}

#[inline(always)]
fn correct<S: Simd, T: Lane<S>, const V: usize>(
    simd: S,
    changes: &[T::Vector],
    (stride, first): (usize, usize),
    (gram, changed): (&[T], &[usize]),
    out: &mut [T::Vector; V],
) {
    let mut sums = *out;
    for &row in changed {
        let product = T::splat(simd, gram[row]);
        let Some(change) = changes[row * stride + first..].first_chunk::<V>() else { return };
        for (sum, change) in sums.iter_mut().zip(change) {
            *sum = T::fused(simd, product, *change, *sum);
        }
    }
    *out = sums;
}

/// u_j = (Δ_j + s_j − s_y + a (β_j + 1ᵀβ)) / h: what the block step projects.
pub(super) struct ProjectionTarget<'a, T> {
    pub scores: &'a [T],
    pub beta: &'a [T],
    /// Δ; 1 off the label where there are none.
    pub costs: Option<&'a [f64]>,
    pub label: usize,
    /// a.
    pub curvature: f64,
    /// 1ᵀβ.
    pub sum: f64,
    /// 1/h.
    pub scale: f64,
    pub out: &'a mut [f64],
}

impl<T: Element> Kernel<T> for ProjectionTarget<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, _: S)
    where
        T: Lane<S>,
    {
        let Self { scores, beta, costs, label, curvature, sum, scale, out } = self;
        let shift = curvature * sum - scores[label].widen();
        let known = out.iter_mut().zip(scores).zip(beta);
        match costs {
            None => known.for_each(
                #[inline(always)]
                |((out, score), beta)| {
                    *out = (1.0 + shift + score.widen() + curvature * beta.widen()) * scale;
                },
            ),
            Some(costs) => known.zip(costs).for_each(
                #[inline(always)]
                |(((out, score), beta), cost)| {
                    *out = (cost + shift + score.widen() + curvature * beta.widen()) * scale;
                },
            ),
        }
        out[label] = 0.0;
    }
}

/// Moves β to its new value, rounded as it is stored, and writes −C times the difference.
pub(super) struct Move<'a, T> {
    /// u.
    pub aim: &'a [f64],
    /// The new β; the difference d afterwards.
    pub target: &'a mut [f64],
    pub beta: &'a mut [T],
    pub change: &'a mut [T],
    /// C.
    pub weight: f64,
}

/// What a move of β by d came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    /// Coordinates that changed.
    pub n_changed: usize,
    /// 1ᵀd.
    pub sum: f64,
    /// (u − β)ᵀd.
    pub along: f64,
    /// ‖d‖².
    pub squares: f64,
}

impl<T: Element> Kernel<T> for Move<'_, T> {
    type Output = Moved;

    #[inline(always)]
    fn compute<S: Simd>(self, _: S) -> Moved
    where
        T: Lane<S>,
    {
        let Self { aim, target, beta, change, weight } = self;
        let mut n_changed = 0;
        for ((target, beta), change) in target.iter_mut().zip(&mut *beta).zip(change) {
            let new = T::narrow(*target);
            let difference = new.widen() - beta.widen();
            *change = T::narrow(-weight * difference);
            *beta = new;
            *target = difference;
            n_changed += u32::from(difference != 0.0);
        }
        let mut moved = Moved { n_changed: n_changed as usize, ..Moved::default() };
        if n_changed > 0 {
            let (differences, aims, betas) =
                (target.as_chunks::<8>(), aim.as_chunks::<8>(), beta.as_chunks::<8>());
            // Several sums of each kind, so that they do not wait for each other.
            let (mut sums, mut along, mut squares) = ([0.0; 8], [0.0; 8], [0.0; 8]);
            for ((differences, aims), betas) in differences.0.iter().zip(aims.0).zip(betas.0) {
                for place in 0..8 {
                    let difference = differences[place];
                    sums[place] += difference;
                    along[place] += (aims[place] - betas[place].widen()) * difference;
                    squares[place] += difference * difference;
                }
            }
            for ((difference, aim), beta) in differences.1.iter().zip(aims.1).zip(betas.1) {
                sums[0] += difference;
                along[0] += (aim - beta.widen()) * difference;
                squares[0] += difference * difference;
            }
            moved.sum = sums.iter().sum();
            moved.squares = squares.iter().sum();
            // Of the new β, and so the old.
            moved.along = along.iter().sum::<f64>() + moved.squares;
        }
        moved
    }
}

/// Scores of a dense row for some classes, whose weights are stored class after class, each padded to whole
/// vectors.
pub(super) struct ScoreFew<'a, T> {
    pub weights: &'a [T],
    pub row: Row<'a, T>,
    pub classes: &'a [u32],
    pub scores: &'a mut [T],
}

impl<T: Element> Kernel<T> for ScoreFew<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, row, classes, scores } = self;
        let (whole, tail) = (T::vectors(row.values).0, row.tail(simd));
        let weights = T::vectors(weights).0;
        let stride = whole.len() + usize::from(tail.is_some());
        for (score, class) in scores.iter_mut().zip(classes) {
            let own = &weights[*class as usize * stride..][..stride];
            let (own, last) = own.split_at(whole.len());
            let mut sums = [T::splat(simd, T::zero()); 2];
            let (pairs, own_pairs) = (whole.as_chunks::<2>(), own.as_chunks::<2>());
            for (weights, x) in own_pairs.0.iter().zip(pairs.0) {
                sums[0] = T::fused(simd, weights[0], x[0], sums[0]);
                sums[1] = T::fused(simd, weights[1], x[1], sums[1]);
            }
            for (weight, x) in own_pairs.1.iter().zip(pairs.1) {
                sums[0] = T::fused(simd, *weight, *x, sums[0]);
            }
            if let (Some(weight), Some(x)) = (last.first(), tail) {
                sums[1] = T::fused(simd, *weight, x, sums[1]);
            }
            *score = T::total(simd, T::plus(simd, sums[0], sums[1]));
        }
    }
}

/// Adds multiples of a dense row to the weights of some classes.
pub(super) struct AddFew<'a, T> {
    pub weights: &'a mut [T],
    pub row: Row<'a, T>,
    pub classes: &'a [u32],
    pub change: &'a [T],
}

impl<T: Element> Kernel<T> for AddFew<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { weights, row, classes, change } = self;
        let (whole, tail) = (T::vectors(row.values).0, row.tail(simd));
        let weights = T::vectors_mut(weights).0;
        let stride = whole.len() + usize::from(tail.is_some());
        for (change, class) in change.iter().zip(classes) {
            let change = T::splat(simd, *change);
            let weights = &mut weights[*class as usize * stride..][..stride];
            let (own, last) = weights.split_at_mut(whole.len());
            for (weight, x) in own.iter_mut().zip(whole) {
                *weight = T::fused(simd, change, *x, *weight);
            }
            if let (Some(weight), Some(x)) = (last.first_mut(), tail) {
                *weight = T::fused(simd, change, x, *weight);
            }
        }
    }
}
