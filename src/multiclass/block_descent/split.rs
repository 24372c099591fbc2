//! Passes over sparse rows on two threads: each keeps the weights of a range of the columns and scores its part of
//! every row. Both have the dual point and do the rest of a visit by themselves, so that they meet once a visit.
//!
//! The ranges are the data's, and one thread adds up the scores of both in the same way: whether a pass is shared,
//! which its pace decides, changes not a bit.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::candidates::Candidates;
use super::dual_block::DualBlock;
use super::pair::{Pair, Seat};
use super::scorer::Scorer;
use super::state::State;
use super::visit::Buffers;
use super::visitor::{Held, Pass, Progress, Rules, Visitor};
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element};
use crate::polytope::Scratch;

/// Numbers read by a visit, and by a pass, from which threads are worth a meeting.
const WORTHWHILE: usize = 1 << 9;
const LONG: usize = 1 << 19;
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
    current: bool,
}

/// What passes have taken on one thread and on two.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Seconds for a number read; 0 before the first.
    seconds: [f64; 2],
    /// Passes since each was tried.
    since: [u32; 2],
}

impl Pace {
    /// Whether two threads are worth trying for the next pass.
    fn pays(&self) -> bool {
        let [one, two] = self.seconds;
        match (one > 0.0, two > 0.0) {
            (_, false) => true,
            (false, true) => false,
            _ if two < one => self.since[0] < TRIAL,
            _ => self.since[1] >= TRIAL,
        }
    }

    fn note(&mut self, shared: bool, work: usize, time: Duration) {
        let way = usize::from(shared);
        self.seconds[way] = time.as_secs_f64() / work.max(1) as f64;
        self.since[1 - way] += 1;
        self.since[way] = 0;
    }
}

impl<M: Scorer> State<'_, M> {
    /// Visits the first `n_active` examples once; those that cannot move are put behind the others. Returns
    /// by how much the dual rose (in units of λ), and the numbers read.
    pub(super) fn pass(
        &mut self,
        due: &mut [u32],
        n_active: &mut usize,
        weights: &mut Aligned<M::Value>,
        interrupt: &Interrupt,
    ) -> (f64, usize) {
        let bounds = self.bounds();
        let rules = Rules { bounds, resting: self.alone, mean_gain: self.mean_gain };
        let mut progress = Progress { n_active: *n_active, ..Progress::default() };
        let begin = Instant::now();
        let shared = self.is_long(&due[..*n_active])
            && self.begin_in_two(rules, due, &mut progress, weights, interrupt);
        if !shared {
            self.double.iter_mut().for_each(|double| double.current = false);
        }
        let visitor = Visitor {
            problem: self.problem,
            model: &self.model,
            rules,
            weights: Held::All(weights),
            duals: &mut self.duals,
            betas: &mut self.betas,
            few: &mut self.work.few,
            row: &mut self.work.row,
            scratch: &mut self.work.scratch,
        };
        let interrupt = Some(interrupt);
        M::Value::dispatch(Pass { visitor, due, progress: &mut progress, interrupt });
        self.pace.note(shared, progress.work, begin.elapsed());
        *n_active = progress.n_active;
        self.mean_gain = progress.gain / f64::from(progress.n_visits.max(1));
        (progress.gain, progress.work)
    }

    /// Whether a pass is worth two threads.
    fn is_long(&self, due: &[u32]) -> bool {
        if self.model.cut().is_none() || rayon::current_num_threads() < 2 || due.is_empty() {
            return false;
        }
        match std::env::var("SPLIT").as_deref() {
            Ok("0") => return false,
            Ok("1") => return true,
            _ => {}
        }
        let sample = || due.iter().step_by(1 + due.len() / 64);
        let numbers = |at: &u32| {
            let n_classes = self.betas.row(*at as usize).0.len() + 1;
            2 * n_classes * self.model.n_stored(self.duals[*at as usize].example as usize)
        };
        let mean = sample().map(numbers).sum::<usize>() / sample().count();
        mean >= WORTHWHILE && mean * due.len() >= LONG && self.pace.pays()
    }

    /// Makes a pass on two threads, or its beginning where they are interrupted or too slow. Returns whether there
    /// was a second thread.
    fn begin_in_two(
        &mut self,
        rules: Rules,
        due: &mut [u32],
        progress: &mut Progress,
        weights: &mut Aligned<M::Value>,
        interrupt: &Interrupt,
    ) -> bool {
        let Some(cut) = self.model.cut() else { return false };
        let m = self.problem.n_classes();
        let double = self.double.get_or_insert_with(|| Box::new(Double::new(m)));
        double.follow(&self.duals, &self.betas, due);
        let (problem, model) = (self.problem, &self.model);
        let (low, high) = weights.split_at_mut(cut);
        let (pair, high, second) = (Pair::new(m + 1), Mutex::new(Some(high)), Mutex::new(double));
        let mut shared = false;
        rayon::in_place_scope(|scope| {
            let (start, pair) = (*progress, &pair);
            let (high, second) = (&high, &second);
            scope.spawn(move |_| {
                let Some(seat) = pair.arrive() else { return };
                let mut high = high.lock().unwrap_or_else(PoisonError::into_inner);
                let mut second = second.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(high) = high.take() else { return };
                second.pass(problem, model, rules, (high, seat), start);
            });
            let Some(seat) = pair.await_other() else { return };
            shared = true;
            let visitor = Visitor {
                problem,
                model,
                rules,
                weights: Held::Range(low, seat),
                duals: &mut self.duals,
                betas: &mut self.betas,
                few: &mut self.work.few,
                row: &mut self.work.row,
                scratch: &mut self.work.scratch,
            };
            M::Value::dispatch(Pass { visitor, due, progress, interrupt: Some(interrupt) });
        });
        let double = second.into_inner().unwrap_or_else(PoisonError::into_inner);
        double.current = shared && progress.place == progress.n_active;
        shared
    }
}

impl<T: Element> Double<T> {
    fn new(n_classes: usize) -> Self {
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

    /// Notes that the dual point of the first thread has changed otherwise than by shared passes.
    pub fn fall_behind(&mut self) {
        self.current = false;
    }

    fn follow(&mut self, duals: &[DualBlock], betas: &Candidates<T>, due: &[u32]) {
        self.due.clear();
        self.due.extend_from_slice(due);
        if !self.current {
            self.duals.clear();
            self.duals.extend_from_slice(duals);
            self.betas.follow(betas);
        }
    }

    fn pass<M: Scorer<Value = T>>(
        &mut self,
        problem: &crate::multiclass::MarginProblem<'_>,
        model: &M,
        rules: Rules,
        (weights, seat): (&mut [T], Seat<'_>),
        mut progress: Progress,
    ) {
        let Self { duals, betas, few, row, scratch, due, .. } = self;
        let weights = Held::Range(weights, seat);
        let visitor =
            Visitor { problem, model, rules, weights, duals, betas, few, row, scratch };
        T::dispatch(Pass { visitor, due, progress: &mut progress, interrupt: None });
    }
}
