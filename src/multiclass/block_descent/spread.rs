//! Passes over the members of a face on all threads, with the bits of one thread's.
//!
//! A member's scores depend on the weights alone, so any thread may compute them. Each weight gathers what the
//! members add to it in their order, so threads share out the weights: whole classes, as dense data keep them.

use std::ops::Range;

use num_traits::Zero;
use pulp::Simd;
use rayon::prelude::*;

use super::face::Face;
use super::scorer::Scorer;
use super::state::State;
use crate::data::Real;
use crate::linalg::{Element, Kernel, Lane};

/// Members that a thread scores at a time.
const PIECE: usize = 256;
/// Numbers of a pass from which threads are worth waking: some 30 μs of work.
const WORTHWHILE: usize = 1 << 17;

impl<M: Scorer> State<'_, M> {
    /// Threads for a pass over a face.
    fn n_threads(face: &Face) -> usize {
        if face.n_numbers < WORTHWHILE { 1 } else { rayon::current_num_threads() }
    }

    /// s_j − s_y for the free candidates.
    pub(super) fn scores(&self, face: &Face, weights: &[M::Value], out: &mut [f64]) {
        if Self::n_threads(face) == 1 {
            let members = 0..face.members.len();
            return M::Value::dispatch(FaceScores { state: self, face, members, weights, out });
        }
        let mut pieces = Vec::with_capacity(face.members.len().div_ceil(PIECE));
        let mut rest = out;
        for (index, members) in face.members.chunks(PIECE).enumerate() {
            let n_places = members[members.len() - 1].end - members[0].first;
            let (own, later) = std::mem::take(&mut rest).split_at_mut(n_places);
            pieces.push((index * PIECE, own));
            rest = later;
        }
        pieces.into_par_iter().for_each(|(first, out)| {
            let members = first..face.members.len().min(first + PIECE);
            M::Value::dispatch(FaceScores { state: self, face, members, weights, out });
        });
    }

    /// image += the weights that belong to a direction.
    pub(super) fn add_image(&self, face: &Face, direction: &[f64], image: &mut [M::Value]) {
        let m = self.problem.n_classes();
        let stride = self.model.class_stride();
        let n_parts = stride.map_or(1, |_| Self::n_threads(face).min(m));
        if n_parts == 1 {
            let own = None;
            return M::Value::dispatch(FaceImage { state: self, face, direction, own, image });
        }
        let cuts = face.balanced_classes(m, n_parts);
        let mut parts = Vec::with_capacity(n_parts);
        let mut rest = image;
        for cut in cuts.windows(2) {
            let length = (cut[1] - cut[0]) * stride.unwrap_or(0);
            let (own, later) = std::mem::take(&mut rest).split_at_mut(length);
            parts.push((cut[0]..cut[1], own));
            rest = later;
        }
        parts.into_par_iter().for_each(|(own, image)| {
            let own = Some(own);
            M::Value::dispatch(FaceImage { state: self, face, direction, own, image });
        });
    }
}

/// [`State::scores`] of some members, compiled as a whole for the vectors of this machine.
struct FaceScores<'a, 'p, M: Scorer> {
    state: &'a State<'p, M>,
    face: &'a Face,
    members: Range<usize>,
    weights: &'a [M::Value],
    out: &'a mut [f64],
}

impl<M: Scorer> Kernel<M::Value> for FaceScores<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        M::Value: Lane<S>,
    {
        let Self { state, face, members, weights, out } = self;
        let (mut row, mut done) = (Vec::new(), 0);
        let mut scores = vec![M::Value::zero(); state.problem.n_classes() + 1];
        for (member, classes) in members.map(|index| face.member(index)) {
            let row = state.model.row(member.example, &mut row);
            let scores = &mut scores[..classes.len()];
            state.model.score_few(simd, weights, row, classes, scores);
            let own = scores[classes.len() - 1].widen();
            for (out, score) in out[done..].iter_mut().zip(&scores[..classes.len() - 1]) {
                *out = score.widen() - own;
            }
            done += classes.len() - 1;
        }
    }
}

/// [`State::add_image`], likewise, of all classes or of some.
struct FaceImage<'a, 'p, M: Scorer> {
    state: &'a State<'p, M>,
    face: &'a Face,
    direction: &'a [f64],
    /// The classes of `image`.
    own: Option<Range<usize>>,
    image: &'a mut [M::Value],
}

impl<M: Scorer> Kernel<M::Value> for FaceImage<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        M::Value: Lane<S>,
    {
        let Self { state, face, direction, own, image } = self;
        let most = state.problem.n_classes() + 1;
        let (mut among, mut change) = (vec![0; most], vec![M::Value::zero(); most]);
        let mut row = Vec::new();
        for (member, classes) in (0..face.members.len()).map(|index| face.member(index)) {
            let direction = &direction[member.first..member.end];
            let (n, mut sum) = (direction.len(), 0.0);
            for (change, value) in change.iter_mut().zip(direction) {
                *change = M::Value::narrow(-member.weight * value);
                sum += value;
            }
            change[n] = M::Value::narrow(member.weight * sum);
            let (mut classes, mut n_own) = (classes, n + 1);
            if let Some(own) = &own {
                n_own = 0;
                for (at, class) in classes.iter().enumerate() {
                    if own.contains(&(*class as usize)) {
                        (among[n_own], change[n_own]) = (class - own.start as u32, change[at]);
                        n_own += 1;
                    }
                }
                classes = &among[..n_own];
            }
            if n_own > 0 {
                let row = state.model.row(member.example, &mut row);
                state.model.add_few(simd, image, row, classes, &change[..n_own]);
            }
        }
    }
}

impl Face {
    /// Cuts of the classes into parts that are named about as often.
    fn balanced_classes(&self, n_classes: usize, n_parts: usize) -> Vec<usize> {
        let mut named = vec![0usize; n_classes];
        self.classes.iter().for_each(|class| named[*class as usize] += 1);
        let (mut cuts, mut so_far) = (vec![0], 0);
        for (class, count) in named.iter().enumerate() {
            so_far += count;
            if cuts.len() < n_parts && so_far * n_parts >= cuts.len() * self.classes.len() {
                cuts.push(class + 1);
            }
        }
        if cuts[cuts.len() - 1] < n_classes {
            cuts.push(n_classes);
        }
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_all_classes_once() {
        for (classes, n_classes) in [(vec![0, 0, 0, 5], 6), (vec![2; 9], 3), (vec![0, 1, 2, 3], 4)]
        {
            let face = Face { classes, ..Face::default() };
            for n_parts in 1..9 {
                let cuts = face.balanced_classes(n_classes, n_parts);
                assert!(cuts[0] == 0 && cuts[cuts.len() - 1] == n_classes);
                assert!(cuts.len() <= n_parts + 1 && cuts.windows(2).all(|cut| cut[0] < cut[1]));
            }
        }
    }
}
