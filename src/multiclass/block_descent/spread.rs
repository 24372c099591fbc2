//! Passes over the members of a face on all threads, with the bits of one thread's.
//!
//! A member's scores depend on the weights alone, so any thread may compute them. Each weight gathers what the
//! members add to it in their order, so threads share out the weights: whole classes, as dense data keep them.

use num_traits::Zero;
use rayon::prelude::*;

use super::face::{Face, Member};
use super::row::RowBuffer;
use super::scorer::Scorer;
use super::state::State;
use crate::data::Real;

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
    pub(super) fn scores(&self, face: &Face, weights: &[M::Value]) -> Vec<f64> {
        let mut all = vec![0.0; face.places.len()];
        let mut pieces = Vec::with_capacity(face.members.len().div_ceil(PIECE));
        let mut rest = &mut all[..];
        for (index, members) in face.members.chunks(PIECE).enumerate() {
            let n_places = members[members.len() - 1].end - members[0].first;
            let (own, later) = std::mem::take(&mut rest).split_at_mut(n_places);
            pieces.push((index * PIECE, own));
            rest = later;
        }
        let most = self.problem.n_classes() + 1;
        let buffers = || (RowBuffer::new(), vec![M::Value::zero(); most]);
        let score = |(row, scores): &mut (_, Vec<_>), (first, out): (usize, &mut [f64])| {
            let mut out = out.iter_mut();
            let last = face.members.len().min(first + PIECE);
            for (member, classes) in (first..last).map(|index| face.member(index)) {
                let row = self.model.row(self.duals[member.at].example as usize, row);
                let scores = &mut scores[..classes.len()];
                self.model.score_few(weights, row, classes, scores);
                let own = scores[classes.len() - 1].widen();
                for (score, out) in scores[..classes.len() - 1].iter().zip(&mut out) {
                    *out = score.widen() - own;
                }
            }
        };
        if Self::n_threads(face) > 1 {
            pieces.into_par_iter().for_each_init(buffers, score);
        } else {
            let mut buffers = buffers();
            pieces.into_iter().for_each(|piece| score(&mut buffers, piece));
        }
        all
    }

    /// image += the weights that belong to a direction.
    pub(super) fn add_image(&self, face: &Face, direction: &[f64], image: &mut [M::Value]) {
        let m = self.problem.n_classes();
        let stride = self.model.class_stride();
        let n_parts = stride.map_or(1, |_| Self::n_threads(face).min(m));
        if n_parts == 1 {
            return self.add_part(face, direction, (0, m), image);
        }
        let cuts = face.balanced_classes(m, n_parts);
        let mut parts = Vec::with_capacity(n_parts);
        let mut rest = image;
        for cut in cuts.windows(2) {
            let length = (cut[1] - cut[0]) * stride.unwrap_or(0);
            let (own, later) = std::mem::take(&mut rest).split_at_mut(length);
            parts.push(((cut[0], cut[1]), own));
            rest = later;
        }
        parts.into_par_iter().for_each(|(classes, image)| {
            self.add_part(face, direction, classes, image);
        });
    }

    /// The same for the weights of the classes `first..end` alone.
    fn add_part(
        &self,
        face: &Face,
        direction: &[f64],
        (first, end): (usize, usize),
        image: &mut [M::Value],
    ) {
        let most = self.problem.n_classes() + 1;
        let (mut own, mut change) = (vec![0; most], vec![M::Value::zero(); most]);
        let mut row = RowBuffer::new();
        for (member, classes) in (0..face.members.len()).map(|index| face.member(index)) {
            let Member { at, first: start, end: stop, .. } = *member;
            let (dual, direction) = (&self.duals[at], &direction[start..stop]);
            if direction.iter().all(|value| *value == 0.0) {
                continue;
            }
            // The label's class comes last, and gains what the others lose.
            let total = -direction.iter().sum::<f64>();
            let mut n_own = 0;
            for (class, value) in classes.iter().zip(direction.iter().chain([&total])) {
                if (first..end).contains(&(*class as usize)) {
                    own[n_own] = class - first as u32;
                    change[n_own] = M::Value::narrow(-dual.weight * value);
                    n_own += 1;
                }
            }
            if n_own > 0 {
                let row = self.model.row(dual.example as usize, &mut row);
                self.model.add_few(image, row, &own[..n_own], &change[..n_own]);
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
