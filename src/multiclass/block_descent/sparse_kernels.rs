//! The inner loops of visits to sparse rows, whose weights are stored feature after feature.

use pulp::Simd;

use super::row::Row;
use crate::linalg::{Element, Kernel, Lane};

/// Vectors of classes up to which a sparse row is scored in whole vectors: reading neighbours is then faster than
/// picking single weights.
const WHOLE: usize = 4;
/// The most classes in so many vectors.
const MOST: usize = 64;

/// The vectors of classes that a visit needs.
#[derive(Debug, Clone, Copy, Default)]
struct Picks {
    places: [usize; WHOLE],
    count: usize,
}

impl Picks {
    /// Those in which some of the classes are.
    #[inline(always)]
    fn of(classes: impl Iterator<Item = u32>, lanes: usize) -> Self {
        let mut picks = Self::default();
        let needed = classes.fold(0u32, |needed, class| needed | 1 << (class as usize / lanes));
        for place in 0..WHOLE {
            picks.places[picks.count.min(WHOLE - 1)] = place;
            picks.count += (needed >> place & 1) as usize;
        }
        picks
    }

    /// The first of them.
    #[inline(always)]
    fn first<const N: usize>(&self) -> [usize; N] {
        std::array::from_fn(|at| self.places[at])
    }
}

/// Scores of a sparse row for some classes.
pub(super) struct ScoreFewSparse<'a, T> {
    pub weights: &'a [T],
    /// Classes with the padding.
    pub padded: usize,
    pub row: Row<'a, T>,
    pub classes: &'a [u32],
    pub scores: &'a mut [T],
}

impl<T: Element> Kernel<T> for ScoreFewSparse<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        if self.padded / <T as Lane<S>>::LANES > WHOLE {
            return self.single();
        }
        let picks = Picks::of(self.classes.iter().copied(), <T as Lane<S>>::LANES);
        match picks.count {
            0 => {}
            1 => self.whole::<S, 1>(simd, picks.first()),
            2 => self.whole::<S, 2>(simd, picks.first()),
            3 => self.whole::<S, 3>(simd, picks.first()),
            _ => self.whole::<S, WHOLE>(simd, picks.first()),
        }
    }
}

impl<T: Element> ScoreFewSparse<'_, T> {
    #[inline(always)]
    fn whole<S: Simd, const V: usize>(self, simd: S, picks: [usize; V])
    where
        T: Lane<S>,
    {
        let (weights, n_vectors) = (T::vectors(self.weights).0, self.padded / T::LANES);
        let mut sums = [T::splat(simd, T::zero()); V];
        for (feature, x) in self.row.entries(weights.len() / n_vectors) {
            let x = T::splat(simd, x);
            let own = &weights[feature * n_vectors..][..n_vectors];
            for (sum, pick) in sums.iter_mut().zip(picks) {
                *sum = T::fused(simd, x, own[pick], *sum);
            }
        }
        let mut all = [T::zero(); MOST];
        let stored = T::vectors_mut(&mut all).0;
        for (sum, pick) in sums.into_iter().zip(picks) {
            stored[pick] = sum;
        }
        for (score, class) in self.scores.iter_mut().zip(self.classes) {
            *score = all[*class as usize];
        }
    }

    #[inline(always)]
    fn single(self) {
        self.scores.fill(T::zero());
        for (feature, x) in self.row.entries(self.weights.len() / self.padded) {
            let weights = &self.weights[feature * self.padded..][..self.padded];
            for (score, class) in self.scores.iter_mut().zip(self.classes) {
                *score = x.mul_add(weights[*class as usize], *score);
            }
        }
    }
}

/// Adds multiples of a sparse row to the weights of some classes.
pub(super) struct AddFewSparse<'a, T> {
    pub weights: &'a mut [T],
    /// Classes with the padding.
    pub padded: usize,
    pub row: Row<'a, T>,
    pub classes: &'a [u32],
    pub change: &'a [T],
}

impl<T: Element> Kernel<T> for AddFewSparse<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        if self.padded / <T as Lane<S>>::LANES > WHOLE {
            return self.single();
        }
        let changed = self.classes.iter().zip(self.change);
        let changed = changed.filter(|(_, change)| **change != T::zero()).map(|(class, _)| *class);
        let picks = Picks::of(changed, <T as Lane<S>>::LANES);
        match picks.count {
            0 => {}
            1 => self.whole::<S, 1>(simd, picks.first()),
            2 => self.whole::<S, 2>(simd, picks.first()),
            3 => self.whole::<S, 3>(simd, picks.first()),
            _ => self.whole::<S, WHOLE>(simd, picks.first()),
        }
    }
}

impl<T: Element> AddFewSparse<'_, T> {
    #[inline(always)]
    fn whole<S: Simd, const V: usize>(self, simd: S, picks: [usize; V])
    where
        T: Lane<S>,
    {
        let mut all = [T::zero(); MOST];
        for (class, change) in self.classes.iter().zip(self.change) {
            all[*class as usize] = *change;
        }
        let all = T::vectors(&all).0;
        let changes: [_; V] = std::array::from_fn(|at| all[picks[at]]);
        let n_vectors = self.padded / T::LANES;
        let weights = T::vectors_mut(self.weights).0;
        for (feature, x) in self.row.entries(weights.len() / n_vectors) {
            let x = T::splat(simd, x);
            let own = &mut weights[feature * n_vectors..][..n_vectors];
            for (pick, change) in picks.into_iter().zip(changes) {
                own[pick] = T::fused(simd, x, change, own[pick]);
            }
        }
    }

    #[inline(always)]
    fn single(self) {
        for (feature, x) in self.row.entries(self.weights.len() / self.padded) {
            let weights = &mut self.weights[feature * self.padded..][..self.padded];
            for (class, change) in self.classes.iter().zip(self.change) {
                let weight = &mut weights[*class as usize];
                *weight = change.mul_add(x, *weight);
            }
        }
    }
}
