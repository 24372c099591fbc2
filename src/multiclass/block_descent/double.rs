//! The second thread of a shared pass: its copy of the dual point, and whether it is worth its while.

use super::candidates::Candidates;
use super::dual_block::DualBlock;
use super::pair::Seat;
use super::scorer::Scorer;
use super::visit::Buffers;
use super::visitor::{Held, Pass, Progress, Rules, Visitor};
use crate::linalg::Element;
use crate::multiclass::MarginProblem;
use crate::polytope::Scratch;

/// Passes after which the slower way is tried again.
const TRIAL: u32 = 24;

/// The dual point and buffers of the second thread.
pub(super) struct Double<T> {
    duals: Vec<DualBlock>,
    betas: Candidates<T>,
    few: Buffers<T>,
    row: Vec<T>,
    scratch: Scratch,
    due: Vec<u32>,
    /// Whether the dual point is that of the first.
    pub current: bool,
}

/// What passes have taken on one thread and on two: what pays depends on the machine and on its other work.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Seconds for a visit; 0 before the first pass.
    seconds: [f64; 2],
    /// Passes since each was tried.
    since: [u32; 2],
}

impl Pace {
    /// Whether two threads are worth trying for the next pass.
    pub fn pays(&self) -> bool {
        let [one, two] = self.seconds;
        if one == 0.0 || two == 0.0 {
            return two == 0.0;
        }
        if two < one { self.since[0] < TRIAL } else { self.since[1] >= TRIAL }
    }

    /// Notes the seconds for a visit that a pass took on one thread, or shared by two.
    pub fn note(&mut self, shared: bool, seconds: f64) {
        let way = usize::from(shared);
        self.seconds[way] = seconds;
        self.since[1 - way] += 1;
        self.since[way] = 0;
    }
}

impl<T: Element> Double<T> {
    /// For so many classes.
    pub fn new(n_classes: usize) -> Self {
        Self {
            duals: Vec::new(),
            betas: Candidates::new(0),
            few: Buffers::new(n_classes),
            row: Vec::new(),
            scratch: Scratch::default(),
            due: Vec::new(),
            current: false,
        }
    }

    /// Takes over the dual point and the order of the first thread.
    pub fn follow(&mut self, duals: &[DualBlock], betas: &Candidates<T>, due: &[u32]) {
        self.due.clear();
        self.due.extend_from_slice(due);
        if !self.current {
            self.duals.clear();
            self.duals.extend_from_slice(duals);
            self.betas.follow(betas);
        }
        self.current = false;
    }

    /// What the second thread does of a pass.
    pub fn pass<M: Scorer<Value = T>>(
        &mut self,
        problem: &MarginProblem<'_>,
        model: &M,
        rules: Rules,
        (weights, seat): (&mut [T], Seat<'_>),
        mut progress: Progress,
    ) {
        let Self { duals, betas, few, row, scratch, due, .. } = self;
        let weights = Held::Range(weights, seat);
        let visitor = Visitor { problem, model, rules, weights, duals, betas, few, row, scratch };
        T::dispatch(Pass { visitor, due, progress: &mut progress, interrupt: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_now_and_then() {
        let mut pace = Pace::default();
        let ways: Vec<bool> = (0..60)
            .map(|_| {
                let shared = pace.pays();
                pace.note(shared, if shared { 1.0 } else { 2.0 });
                shared
            })
            .collect();
        assert!(ways[0] && !ways[1] && ways[2]);
        assert_eq!(ways.iter().filter(|shared| !**shared).count(), 3);
        // Where nobody comes.
        pace.note(true, f64::INFINITY);
        assert!(!pace.pays());
    }
}
