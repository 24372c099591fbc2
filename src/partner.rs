//! A second thread that stands by for short pieces of work.
//!
//! Rayon hands over work in .6 μs to a thread that looks for some, and in 40 once that sleeps. A thread that looks at one
//! place alone takes .12 μs (measured, there and back), so that work of a microsecond can be shared. It is one of rayon's,
//! for as long as its caller keeps it; until one is free the caller does everything itself.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;

use crate::parallel::is_in_task;

/// Looks between two offers of the processor to other threads.
const LOOKS: usize = 1 << 10;

/// What is with the work that is on offer.
const NONE: u8 = 0;
const WRITTEN: u8 = 1;
const OFFERED: u8 = 2;
const TAKEN: u8 = 3;
const DONE: u8 = 4;

/// A place where a thread may stand by.
#[derive(Debug)]
pub(crate) struct Partner {
    offer: Offer,
    is_here: AtomicBool,
    is_over: AtomicBool,
}

/// What is read and written at each piece of work, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Offer {
    state: AtomicU8,
    /// Written by the thread that set `WRITTEN`, and read by the one that set `TAKEN`.
    call: UnsafeCell<Call>,
}

/// A piece of work whose type is not known any more.
#[derive(Debug, Clone, Copy)]
struct Call {
    run: unsafe fn(*const ()),
    work: *const (),
}

/// A piece of work, and what it panicked with.
struct Work<F> {
    todo: UnsafeCell<Option<F>>,
    panic: UnsafeCell<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `call` is accessed only as its comment says: `WRITTEN` is set by an exchange from `NONE` and `TAKEN` by one
// from `OFFERED`, so that at any time at most one thread has either right, and each exchange acquires what the store
// before it released (`NONE` as well). The pointer in it is used by the thread that set `TAKEN` alone, before it sets `DONE`.
unsafe impl Sync for Offer {}
// SAFETY: the pointer is only used as above, whichever thread holds the offer.
unsafe impl Send for Offer {}

/// Does `work`, a thread standing by with the partner if there is one.
pub(crate) fn standing_by<R: Send>(
    partner: Option<&Partner>,
    work: impl FnOnce() -> R + Send,
) -> R {
    let (mut work, mut result) = (Some(work), None);
    // Behind a pointer it is compiled once, and so is what follows from it.
    let once: &mut (dyn FnMut() + Send) = &mut || result = work.take().map(|work| work());
    match partner {
        Some(partner) => partner.stand_by(once),
        None => once(),
    }
    result.unwrap_or_else(|| unreachable!("work is done once"))
}

impl Default for Partner {
    fn default() -> Self {
        let call = UnsafeCell::new(Call { run: |_| {}, work: std::ptr::null() });
        Self {
            offer: Offer { state: AtomicU8::new(NONE), call },
            is_here: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }
}

impl Partner {
    /// Does `work` while another thread of rayon stands by, as soon as one is free; for one caller at a time.
    ///
    /// Not in a task among others, whose threads have something better to do, and which would wait for one that stands by
    /// elsewhere.
    fn stand_by(&self, work: &mut (dyn FnMut() + Send)) {
        if rayon::current_num_threads() == 1 || is_in_task() {
            return work();
        }
        self.is_over.store(false, Ordering::Relaxed);
        let owner = AtomicUsize::new(usize::MAX);
        let me = || rayon::current_thread_index().unwrap_or_default();
        let with_end = || {
            owner.store(me(), Ordering::Relaxed);
            let _end = End(self);
            work();
        };
        let serve = || {
            // Where the owner comes here, as it waits for other work, it would wait for itself.
            if owner.load(Ordering::Relaxed) != me() {
                self.serve();
            }
        };
        rayon::join(with_end, serve);
    }

    /// Does both, the second on the thread that stands by, if one does.
    #[inline]
    pub fn join(&self, first: impl FnOnce(), second: impl FnOnce() + Send) {
        if self.is_here.load(Ordering::Relaxed) {
            self.share(first, second);
        } else {
            first();
            second();
        }
    }

    #[inline(never)]
    fn share<F: FnOnce() + Send>(&self, first: impl FnOnce(), second: F) {
        let state = &self.offer.state;
        if state.compare_exchange(NONE, WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // The partner has something to do.
            first();
            return second();
        }
        let work = Work { todo: UnsafeCell::new(Some(second)), panic: UnsafeCell::new(None) };
        let call = Call { run: run::<F>, work: (&raw const work).cast() };
        // SAFETY: this thread has set `WRITTEN`.
        unsafe { *self.offer.call.get() = call };
        state.store(OFFERED, Ordering::Release);
        let waiting = Waiting(&self.offer);
        first();
        drop(waiting);
        // Done by now, or taken back.
        let Work { todo, panic } = work;
        if let Some(panic) = panic.into_inner() {
            resume_unwind(panic);
        }
        if let Some(second) = todo.into_inner() {
            second();
        }
    }

    /// Does what is offered until the owner has finished.
    fn serve(&self) {
        self.is_here.store(true, Ordering::Relaxed);
        let mut n_looks = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if self.offer.take() {
                n_looks = 0;
            } else {
                n_looks += 1;
                pause(n_looks);
            }
        }
        self.is_here.store(false, Ordering::Relaxed);
    }
}

impl Offer {
    /// Does what is offered, if anything is.
    fn take(&self) -> bool {
        let taken = self.state.load(Ordering::Relaxed) == OFFERED
            && self
                .state
                .compare_exchange(OFFERED, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if taken {
            // SAFETY: this thread has set `TAKEN`.
            let Call { run, work } = unsafe { *self.call.get() };
            // SAFETY: `run` belongs to the type of `work`, which lives until `DONE` is set, since `Waiting` waits for that.
            unsafe { run(work) };
            self.state.store(DONE, Ordering::Release);
        }
        taken
    }
}

/// Does a piece of work.
///
/// # Safety
/// `work` points to a `Work<F>` that no other thread accesses.
unsafe fn run<F: FnOnce() + Send>(work: *const ()) {
    // SAFETY: by this function's contract.
    let work = unsafe { &*work.cast::<Work<F>>() };
    // SAFETY: by this function's contract there is no other reference to what the cells hold.
    let todo = unsafe { (*work.todo.get()).take() };
    if let Some(todo) = todo
        && let Err(panic) = catch_unwind(AssertUnwindSafe(todo))
    {
        // SAFETY: likewise.
        unsafe { *work.panic.get() = Some(panic) };
    }
}

/// Takes an offer back when dropped, or waits until it is done, also while a panic unwinds: the work is on the stack.
struct Waiting<'a>(&'a Offer);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let state = &self.0.state;
        let taken_back =
            state.compare_exchange(OFFERED, NONE, Ordering::Release, Ordering::Relaxed).is_ok();
        if !taken_back {
            let mut n_looks = 0;
            while state.load(Ordering::Acquire) != DONE {
                n_looks += 1;
                pause(n_looks);
            }
            state.store(NONE, Ordering::Release);
        }
    }
}

/// Lets the partner go when dropped.
struct End<'a>(&'a Partner);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Waits a moment; now and then it lets other threads have the processor.
fn pause(n_looks: usize) {
    if n_looks.is_multiple_of(LOOKS) {
        thread::yield_now();
    } else {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn on_threads<R: Send>(n_threads: usize, work: impl FnOnce() -> R + Send) -> R {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(work)
    }

    fn with_partner<R: Send>(work: impl FnOnce(&Partner) -> R + Send) -> R {
        let partner = Partner::default();
        standing_by(Some(&partner), || work(&partner))
    }

    #[test]
    fn both_are_done_each_time() {
        for n_threads in [1, 2, 4] {
            let (first, second) = on_threads(n_threads, || {
                with_partner(|partner| {
                    let (mut first, mut second) = (0, 0);
                    for step in 0..20_000 {
                        partner.join(|| first += step, || second += 2 * step);
                    }
                    (first, second)
                })
            });
            assert_eq!((first, second), (199_990_000, 399_980_000));
        }
    }

    #[test]
    fn a_partner_takes_work() {
        let me = |id: &mut Option<thread::ThreadId>| *id = Some(thread::current().id());
        let begin = Instant::now();
        let differ = on_threads(2, || {
            with_partner(|partner| {
                while begin.elapsed() < Duration::from_secs(60) {
                    let (mut first, mut second) = (None, None);
                    partner.join(|| me(&mut first), || me(&mut second));
                    if first != second {
                        return true;
                    }
                    thread::yield_now();
                }
                false
            })
        });
        assert!(differ);
    }

    #[test]
    fn work_inside_work_is_done_as_well() {
        let mut count = [0; 4];
        let [a, b, c, d] = &mut count;
        on_threads(2, || {
            with_partner(|partner| {
                for _ in 0..10_000 {
                    partner.join(
                        || partner.join(|| *a += 1, || *b += 1),
                        || partner.join(|| *c += 1, || *d += 1),
                    );
                }
            });
        });
        assert_eq!(count, [10_000; 4]);
    }

    #[test]
    fn other_parallel_work_does_not_wait_for_the_partner() {
        let sums = on_threads(2, || {
            with_partner(|partner| {
                let mut sums = Vec::new();
                for step in 0..200 {
                    let (mut a, mut b) = (0, 0);
                    rayon::join(|| a += step, || b += step);
                    partner.join(|| a += 1, || b += 1);
                    sums.push(a + b);
                }
                sums
            })
        });
        assert!(sums.iter().enumerate().all(|(step, sum)| *sum == 2 * step + 2));
    }

    #[test]
    fn panics_arrive() {
        on_threads(2, || {
            with_partner(|partner| {
                for _ in 0..200 {
                    let mut done = false;
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        partner.join(|| done = true, || panic!("of the second"));
                    }));
                    assert!(caught.is_err() && done);
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        partner.join(|| panic!("of the first"), || {});
                    }));
                    assert!(caught.is_err());
                }
            });
        });
    }
}
