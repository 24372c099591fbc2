//! What two threads that share visits tell each other: the scores by the columns of each, once a visit.
//!
//! Both know which visit is next and do the same with the sum of the two, so nothing else need be said.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::data::Real;

/// Words of a cache line.
const LINE: usize = 8;
/// Looks at a message that has not come before the thread lets others of its core go on, and before it gives the
/// processor a hint.
const EAGER: u32 = 1 << 8;
const PATIENT: u32 = 1 << 13;
/// Times that a thread may have let others go on in a pass: more say that the other thread lacks a core.
const STALLS: u32 = 64;
/// How long the first thread waits for the second at the beginning of a pass.
const ARRIVAL: Duration = Duration::from_micros(300);

const NOBODY: u8 = 0;
const ARRIVED: u8 = 1;
const ABANDONED: u8 = 2;

/// The turn and whether the sender leaves after it (one word), then the scores; it starts at a cache line.
#[derive(Debug)]
struct Message {
    words: Vec<AtomicU64>,
    start: usize,
}

impl Message {
    fn new(n_scores: usize) -> Self {
        let words: Vec<AtomicU64> = (0..n_scores + LINE).map(|_| AtomicU64::new(0)).collect();
        let start = words.as_ptr().align_offset(LINE * size_of::<u64>()).min(LINE - 1);
        Self { words, start }
    }

    #[inline(always)]
    fn parts(&self) -> (&AtomicU64, &[AtomicU64]) {
        (&self.words[self.start], &self.words[self.start + 1..])
    }
}

/// What both threads see in a pass.
#[derive(Debug)]
pub(super) struct Pair {
    /// Of each side, for odd and even turns: who writes the next but one has read the other's last.
    messages: [[Message; 2]; 2],
    arrival: AtomicU8,
    gone: AtomicBool,
}

impl Pair {
    /// For messages of so many scores at most.
    pub fn new(n_scores: usize) -> Self {
        let message = || Message::new(n_scores);
        Self {
            messages: [[message(), message()], [message(), message()]],
            arrival: AtomicU8::new(NOBODY),
            gone: AtomicBool::new(false),
        }
    }

    /// The place of the second thread, unless the first has not waited for it.
    pub fn arrive(&self) -> Option<Seat<'_>> {
        self.settle(ARRIVED).then(|| self.seat(1))
    }

    /// The place of the first thread, if the second comes soon.
    pub fn await_other(&self) -> Option<Seat<'_>> {
        let begin = Instant::now();
        while self.arrival.load(Ordering::Relaxed) == NOBODY && begin.elapsed() < ARRIVAL {
            std::hint::spin_loop();
        }
        (!self.settle(ABANDONED)).then(|| self.seat(0))
    }

    fn settle(&self, how: u8) -> bool {
        let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.arrival.compare_exchange(NOBODY, how, order, relaxed).is_ok()
    }

    fn seat(&self, side: usize) -> Seat<'_> {
        Seat { pair: self, side, turn: 0, stalls: 0, leaves: false, over: false }
    }
}

/// A thread's place.
#[derive(Debug)]
pub(super) struct Seat<'l> {
    pair: &'l Pair,
    side: usize,
    turn: u64,
    stalls: u32,
    leaves: bool,
    over: bool,
}

impl Seat<'_> {
    /// Which of the two.
    #[inline(always)]
    pub fn side(&self) -> usize {
        self.side
    }

    /// Asks for an end after the next visit; the first thread alone may.
    #[inline(always)]
    pub fn leave(&mut self) {
        self.leaves = true;
    }

    /// Whether the last visit was the last together.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Adds the other's scores.
    #[inline(always)]
    pub fn exchange<T: Real>(&mut self, scores: &mut [T]) {
        self.turn += 1;
        let parity = (self.turn & 1) as usize;
        let (turn, words) = self.pair.messages[self.side][parity].parts();
        for (word, score) in words.iter().zip(&*scores) {
            word.store(score.widen().to_bits(), Ordering::Relaxed);
        }
        let leaves = self.leaves;
        turn.store(self.turn << 1 | u64::from(leaves), Ordering::Release);
        let (turn, words) = self.pair.messages[1 - self.side][parity].parts();
        let mut seen = turn.load(Ordering::Acquire);
        if seen >> 1 != self.turn {
            seen = self.wait(turn);
        }
        self.over = leaves || seen & 1 == 1;
        for (score, word) in scores.iter_mut().zip(words) {
            *score = *score + T::narrow(f64::from_bits(word.load(Ordering::Relaxed)));
        }
    }

    /// Waits for the other's message of this turn; where the other is gone without one, says that all is over.
    #[inline(never)]
    fn wait(&mut self, turn: &AtomicU64) -> u64 {
        let mut looks = 0;
        loop {
            let gone = looks > PATIENT && self.pair.gone.load(Ordering::Acquire);
            let seen = turn.load(Ordering::Acquire);
            if seen >> 1 == self.turn {
                return seen;
            }
            looks += 1;
            if gone {
                return 1;
            }
            if looks > PATIENT {
                self.stalls += 1;
                self.leaves |= self.side == 0 && self.stalls > STALLS;
                std::thread::yield_now();
            } else if looks > EAGER {
                std::hint::spin_loop();
            }
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.pair.gone.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of so many turns, the first thread leaving after `last`.
    fn sums(mut seat: Seat<'_>, last: u64) -> Vec<f64> {
        let mut sums = Vec::new();
        while !seat.is_over() {
            if seat.side() == 0 && seat.turn + 1 == last {
                seat.leave();
            }
            let mut scores = [1.0 / (1.0 + seat.turn as f64), seat.side() as f64];
            seat.exchange(&mut scores);
            sums.extend(scores);
        }
        sums
    }

    #[test]
    fn both_see_the_same_sums_and_leave_together() {
        for last in [1, 2, 1001] {
            let pair = Pair::new(2);
            let (first, second) = std::thread::scope(|scope| {
                let second = scope.spawn(|| pair.arrive().map(|seat| sums(seat, last)));
                let first = pair.await_other().map(|seat| sums(seat, last));
                (first, second.join().unwrap())
            });
            // Whether the second came in time or not, both know of it.
            assert_eq!(first, second);
            if let Some(sums) = first {
                // Earlier where the second thread lacks a core.
                assert!(!sums.is_empty() && sums.len() as u64 <= 2 * last);
                assert_eq!((sums[0], sums[1]), (2.0, 1.0));
            }
        }
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let pair = Pair::new(1);
        assert!(pair.await_other().is_none());
        assert!(pair.arrive().is_none());
        // The other panicked.
        let pair = Pair::new(1);
        drop(pair.arrive());
        let mut seat = pair.await_other().unwrap();
        seat.exchange(&mut [1.0]);
        assert!(seat.is_over());
    }
}
