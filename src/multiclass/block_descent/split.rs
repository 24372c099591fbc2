//! Passes over sparse rows on two threads: each keeps the weights of a range of the columns and scores its part of
//! every row. Both have the dual point and do the rest of a visit by themselves, so that they meet once a visit.
//!
//! The ranges are the data's, and one thread adds up the scores of both in the same way: whether a pass is shared,
//! which its pace decides, changes not a bit.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::double::Double;
use super::pair::Pair;
use super::scorer::Scorer;
use super::state::State;
use super::visitor::{Held, Pass, Progress, Rules, Visitor};
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element};

/// Entries of a row, and of a pass's rows, from which threads are worth a meeting: some .3 μs a visit, .5 ms in all.
const LONG_ROW: usize = 1 << 6;
const LONG_PASS: usize = 1 << 17;
/// Rows by which they are estimated.
const SAMPLE: usize = 64;
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
        let (begin, eligible) = (Instant::now(), self.is_long(&due[..*n_active]));
        let tried = eligible && self.pace.pays();
        let shared = tried && self.begin_in_two(rules, due, &mut progress, weights, interrupt);
        if !shared {
            self.fall_behind();
        }
        self.pass_alone(rules, due, &mut progress, weights, interrupt);
        if tried && !shared {
            // The other threads have work of their own.
            self.pace.note(true, f64::INFINITY);
        } else if eligible {
            let seconds = begin.elapsed().as_secs_f64();
            self.pace.note(shared, seconds / f64::from(progress.n_visits.max(1)));
        }
        *n_active = progress.n_active;
        self.mean_gain = progress.gain / f64::from(progress.n_visits.max(1));
        (progress.gain, progress.work)
    }

    /// Notes that the dual point has changed otherwise than by shared passes.
    pub(super) fn fall_behind(&mut self) {
        self.double.iter_mut().for_each(|double| double.current = false);
    }

    /// Whether a pass is long enough for two threads.
    fn is_long(&self, due: &[u32]) -> bool {
        if self.model.cut().is_none() || rayon::current_num_threads() < 2 {
            return false;
        }
        let sample = due.iter().step_by(1 + due.len() / SAMPLE);
        let (n_rows, length) = sample.fold((0, 0), |(n_rows, length), at| {
            (n_rows + 1, length + self.model.n_stored(self.duals[*at as usize].example as usize))
        });
        length >= LONG_ROW * n_rows.max(1) && length * due.len() >= LONG_PASS * n_rows
    }

    /// Makes a pass, or the rest of one, on this thread.
    fn pass_alone(
        &mut self,
        rules: Rules,
        due: &mut [u32],
        progress: &mut Progress,
        weights: &mut Aligned<M::Value>,
        interrupt: &Interrupt,
    ) {
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
        M::Value::dispatch(Pass { visitor, due, progress, interrupt: Some(interrupt) });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Csr, Data};
    use crate::dual::Shares;
    use crate::multiclass::block_descent::sparse_scorer::SparseScorer;
    use crate::multiclass::block_descent::state::Options;
    use crate::multiclass::{Linear, MarginProblem, Order};
    use crate::polytope::MaxHinge;

    /// β, weights and what a first pass came to, on as many threads as share it.
    fn first_pass(share: bool) -> (Vec<f64>, Vec<f64>, Progress) {
        let (n, d, m) = (60, 90, 21);
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..n {
            for column in (0..d).filter(|column| (row * 7 + column * column) % 5 == 0) {
                columns.push(column as i32);
                values.push(1.0 / (1 + (row * column) % 11) as f64);
            }
            offsets.push(columns.len() as i64);
        }
        let rows = Csr::new(&offsets, &columns, &values, d).unwrap();
        let labels: Vec<u32> = (0..n as u32).map(|row| row % m as u32).collect();
        let map = Linear::new(Data::Csr64(rows), m, 1.0, Order::Examples);
        let shares = Shares::new(n, 0.01).unwrap();
        let problem = MarginProblem::new(map, &labels, Box::new(MaxHinge), shares).unwrap();
        let interrupt = Interrupt::default();
        let model = SparseScorer::<_, f64>::new(rows, 1.0, m);
        let mut state = State::new(&problem, model, Options::default());
        // The candidates of the first certificate are all classes.
        state.certificate(&interrupt).unwrap();
        let mut due = state.due.clone().unwrap();
        state.betas.begin_average();
        let mut weights = state.model.take_weights();
        let rules = Rules { bounds: state.bounds(), resting: false, mean_gain: 0.0 };
        let mut progress = Progress { n_active: due.len(), ..Progress::default() };
        if share {
            let mut attempts = (0..1000).map(|_| {
                state.begin_in_two(rules, &mut due, &mut progress, &mut weights, &interrupt)
            });
            assert!(attempts.any(|shared| shared));
        } else {
            state.pass_alone(rules, &mut due, &mut progress, &mut weights, &interrupt);
        }
        state.model.give_weights(weights);
        (state.betas(), state.coefficients(), progress)
    }

    #[test]
    fn a_shared_pass_has_the_bits_of_one_thread() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (alone, shared) = (first_pass(false), pool.install(|| first_pass(true)));
        assert!(alone.2.n_visits > 30 && alone.2.gain > 0.0);
        assert_eq!(alone, shared);
    }
}
