//! Loops over rows, split so that no result depends on the number of threads.
//!
//! The split into pieces depends only on the data, and partial results are combined in order.

use std::mem::replace;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::prelude::*;

use crate::error::Result;
use crate::interrupt::Interrupt;

/// Number of rows in one piece of a loop. It is small because interrupts are checked once per piece.
const BLOCK_ROWS: usize = 1024;

/// Maximum number of partial results of a reduction: enough for 16 threads, and few enough that
/// adding them up stays cheap.
const MAX_PARTS: usize = 16;

/// Minimum number of rows per partial result, before the number of partial results is rounded up to a power of two.
const MIN_PART: usize = 2048;

/// Number of values that one thread reads in about 30 μs. Waking a sleeping thread takes up to 40
/// μs, so loops over fewer values stay on the caller's thread.
const MIN_SHARED: usize = 1 << 17;

/// The minimum number of items per thread in a loop whose items read `n_numbers` numbers each.
pub(crate) fn min_len(n_numbers: usize) -> usize {
    MIN_SHARED.div_ceil(2 * n_numbers.max(1))
}

/// Whether a second thread is available, and reading `n_numbers` numbers takes long enough to
/// justify waking it.
pub(crate) fn is_worth_sharing(n_numbers: usize) -> bool {
    n_numbers >= MIN_SHARED && rayon::current_num_threads() > 1
}

/// Splits a matrix of `width` values per row before each of the rows in `cuts`, which begin with 0 and end with the
/// number of rows. Returns the rows of each part and their values.
pub(crate) fn split_at<'a>(
    mut matrix: &'a mut [f64],
    width: usize,
    cuts: &[usize],
) -> Vec<(Range<usize>, &'a mut [f64])> {
    let part = |cut: &[usize]| {
        let (values, rest) = std::mem::take(&mut matrix).split_at_mut((cut[1] - cut[0]) * width);
        matrix = rest;
        (cut[0]..cut[1], values)
    };
    cuts.windows(2).map(part).collect()
}

/// Fills the rows of `out` (`width` values each); calls `fill(row, values)` once per row.
pub fn fill_rows<F>(out: &mut [f64], width: usize, interrupt: &Interrupt, fill: F) -> Result<()>
where
    F: Fn(usize, &mut [f64]) + Sync,
{
    fill_blocks(out, width, interrupt, |rows, values| {
        for (row, values) in rows.zip(values.chunks_exact_mut(width)) {
            fill(row, values);
        }
    })
}

/// Like [`fill_rows`], but each call of `fill` fills several rows.
pub fn fill_blocks<F>(out: &mut [f64], width: usize, interrupt: &Interrupt, fill: F) -> Result<()>
where
    F: Fn(Range<usize>, &mut [f64]) + Sync,
{
    if width > 0 {
        for_items(out.chunks_mut(BLOCK_ROWS * width).enumerate(), 1, |(block, values)| {
            if !interrupt.is_raised() {
                fill(block * BLOCK_ROWS..block * BLOCK_ROWS + values.len() / width, values);
            }
        });
    }
    interrupt.check()
}

/// Adds up `size` values over all rows. Calls `add(rows, partial)` for each part of the rows, with a partial result
/// that starts at zero, and adds the partial results in the order of the rows.
pub fn sum_rows<F>(n_rows: usize, size: usize, interrupt: &Interrupt, add: F) -> Result<Vec<f64>>
where
    F: Fn(Range<usize>, &mut [f64]) + Sync,
{
    fill_and_sum(&mut [], (n_rows, 0), size, interrupt, |rows, _, partial| add(rows, partial))
}

/// Does the same as [`sum_rows`], and also fills `out`, which has `width` values for each of `n_rows` rows. Calls
/// `add(rows, values, partial)`.
pub fn fill_and_sum<F>(
    out: &mut [f64],
    (n_rows, width): (usize, usize),
    size: usize,
    interrupt: &Interrupt,
    add: F,
) -> Result<Vec<f64>>
where
    F: Fn(Range<usize>, &mut [f64], &mut [f64]) + Sync,
{
    share_and_sum(out, (n_rows, width), size, interrupt, &add)
}

/// Adds up a range of rows: `add(rows, values, partial)`.
type AddRows<'a> = dyn Fn(Range<usize>, &mut [f64], &mut [f64]) + Sync + 'a;

/// [`fill_and_sum`], compiled once for all closures.
fn share_and_sum(
    out: &mut [f64],
    (n_rows, width): (usize, usize),
    size: usize,
    interrupt: &Interrupt,
    add: &AddRows<'_>,
) -> Result<Vec<f64>> {
    let mut rest = out;
    let parts = parts(n_rows).into_iter().map(|rows| {
        let (values, others) = std::mem::take(&mut rest).split_at_mut(rows.len() * width);
        rest = others;
        (rows, values)
    });
    let parts = map_items(parts, 1, |(rows, values)| {
        let mut partial = vec![0.0; size];
        for start in rows.clone().step_by(BLOCK_ROWS) {
            if interrupt.is_raised() {
                break;
            }
            let range = start..(start + BLOCK_ROWS).min(rows.end);
            let from = (start - rows.start) * width;
            add(range.clone(), &mut values[from..from + range.len() * width], &mut partial);
        }
        partial
    });
    interrupt.check()?;
    Ok(sum_parts(parts))
}

/// Adds up partial results, in order. Without partial results, the sum is empty.
pub(crate) fn sum_parts(parts: Vec<Vec<f64>>) -> Vec<f64> {
    let mut parts = parts.into_iter();
    let mut total = parts.next().unwrap_or_default();
    let rest: Vec<Vec<f64>> = parts.collect();
    for_items(total.chunks_mut(4096).enumerate(), 1, |(piece, total)| {
        for part in &rest {
            total.iter_mut().zip(&part[piece * 4096..]).for_each(|(total, value)| *total += value);
        }
    });
    total
}

/// Maps items on the threads of the pool, and returns the results in order. A job has at least `min_len` items. If
/// there are too few items for two jobs, the calling thread maps them, without a pool.
pub(crate) fn map_items<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    min_len: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    map_items_with(items, min_len, || (), |(), item| work(item))
}

/// Calls `work` on each item, on the threads of the pool; splits them as [`map_items`] does.
pub(crate) fn for_items<T: Send>(
    items: impl IntoIterator<Item = T>,
    min_len: usize,
    work: impl Fn(T) + Sync,
) {
    map_items(items, min_len, work);
}

/// Like [`map_items`]. Each job calls `start` once, and passes the result to every call of `work`.
pub(crate) fn map_items_with<T: Send, S, R: Send>(
    items: impl IntoIterator<Item = T>,
    min_len: usize,
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T) -> R + Sync,
) -> Vec<R> {
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Slot::Item(item))).collect();
    let job = |range: Range<usize>| {
        let mut state = start();
        for slot in &items[range] {
            // The lock is released before `work`, which may take long.
            let item = replace(&mut *locked(slot), Slot::Taken);
            if let Slot::Item(item) = item {
                let result = work(&mut state, item);
                *locked(slot) = Slot::Result(result);
            }
        }
    };
    share_range(items.len(), min_len, &job);
    let results = items.into_iter().filter_map(|slot| match slot.into_inner() {
        Ok(Slot::Result(result)) => Some(result),
        // Does not occur, because a panic in `work` ends this function.
        _ => None,
    });
    results.collect()
}

/// An item of [`map_items`], which is later replaced by its result.
enum Slot<T, R> {
    Item(T),
    Taken,
    Result(R),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `job` for disjoint ranges that cover `0..n`, at least `min_len` long. Rayon adds much code to a loop, so the
/// loop is compiled once for all closures.
fn share_range(n: usize, min_len: usize, job: &(dyn Fn(Range<usize>) + Sync)) {
    // Rayon splits a loop only if both halves have at least the minimum length. Otherwise, no pool is needed.
    if n < 2 * min_len.max(1) {
        return job(0..n);
    }
    let ranges = (0..n).into_par_iter().with_min_len(min_len);
    let ranges = ranges
        .fold(|| 0..0, |range, at| if range.is_empty() { at..at + 1 } else { range.start..at + 1 });
    ranges.filter(|range| !range.is_empty()).for_each(job);
}

/// Runs tasks of different lengths and returns their results in order. One task runs per thread;
/// the next starts when one ends, which bounds the memory of the tasks. Idle threads help with
/// loops inside the running tasks.
///
/// # Errors
/// The error of the first task that fails, in the order of the tasks. Later tasks may have been skipped.
pub fn run_tasks<T: Send + Sync>(
    n_tasks: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let results: Vec<OnceLock<Result<T>>> = (0..n_tasks).map(|_| OnceLock::new()).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let lane = || {
        while !failed.load(Ordering::Relaxed) {
            let task = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = results.get(task) else { return };
            let result = work(task);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            // Each slot is written once, so this cannot fail.
            let _ = slot.set(result);
        }
    };
    rayon::scope(|scope| {
        for _ in 0..rayon::current_num_threads().min(n_tasks) {
            scope.spawn(|_| lane());
        }
    });
    // Tasks start in order, so tasks without a result come after the task that failed.
    results.into_iter().map_while(OnceLock::into_inner).collect()
}

/// The number of partial results of [`sum_rows`]: a power of two, which two or four threads share
/// evenly.
pub(crate) fn n_parts(n_rows: usize) -> usize {
    (n_rows / MIN_PART).min(MAX_PARTS).next_power_of_two()
}

/// Splits the rows into parts; each part has its own partial result.
pub(crate) fn parts(n_rows: usize) -> Vec<Range<usize>> {
    let count = n_parts(n_rows);
    (0..count).map(|part| part * n_rows / count..(part + 1) * n_rows / count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn parts_cover_the_rows_once() {
        for n_rows in [0, 1, 2047, 2048, 4097, 1_000_003] {
            let parts = parts(n_rows);
            assert_eq!(parts[0].start, 0);
            assert_eq!(parts[parts.len() - 1].end, n_rows);
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    fn pool_of(n_threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap()
    }

    #[test]
    fn short_loops_stay_on_one_thread() {
        let n_jobs = |n_items: usize, n_numbers: usize| {
            let jobs = AtomicUsize::new(0);
            let begin = || jobs.fetch_add(1, Ordering::Relaxed);
            let map = || map_items_with(0..n_items, min_len(n_numbers), begin, |_, _| ());
            pool_of(4).install(map);
            jobs.into_inner()
        };
        assert_eq!(n_jobs(100, 1000), 1);
        assert_eq!(n_jobs(3, 0), 1);
        assert!(n_jobs(100, 10_000) > 1);
        assert_eq!(n_jobs(2, MIN_SHARED), 2);
        let is_shared = |n_numbers| pool_of(4).install(|| is_worth_sharing(n_numbers));
        assert!(is_shared(MIN_SHARED) && !is_shared(MIN_SHARED - 1));
        assert!(!pool_of(1).install(|| is_worth_sharing(MIN_SHARED)));
    }

    #[test]
    fn sums_do_not_depend_on_the_threads() {
        let sum = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| {
                sum_rows(100_000, 3, &Interrupt::default(), |rows, partial| {
                    for row in rows {
                        for (slot, value) in partial.iter_mut().enumerate() {
                            *value += 1.0 / (1.0 + row as f64 + slot as f64);
                        }
                    }
                })
                .unwrap()
            })
        };
        assert_eq!(sum(1), sum(3));
        assert!((sum(2)[0] - 12.090146129863428).abs() < 1e-9);
    }

    #[test]
    fn a_single_task_needs_no_pool() {
        assert_eq!(map_items([()], 1, |()| rayon::current_thread_index()), [None]);
        let doubled = pool_of(2).install(|| map_items([1, 2, 3], 1, |item| 2 * item));
        assert_eq!(doubled, [2, 4, 6]);
    }

    #[test]
    fn results_keep_the_order_of_tasks_and_the_first_error_is_returned() {
        for n_threads in [1, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            let squares = pool.install(|| run_tasks(20, |task| Ok(task * task))).unwrap();
            assert_eq!(squares, (0..20).map(|task| task * task).collect::<Vec<_>>());
            let failing = |task| if task == 3 { Err(Error::Interrupted) } else { Ok(task) };
            assert_eq!(pool.install(|| run_tasks(20, failing)), Err(Error::Interrupted));
            assert_eq!(pool.install(|| run_tasks(0, Ok)), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_raised_interrupt_ends_the_loop() {
        let interrupt = Interrupt::default();
        interrupt.raise();
        assert!(fill_rows(&mut [0.0; 10], 1, &interrupt, |_, _| panic!("not reached")).is_err());
        assert!(sum_rows(10, 1, &interrupt, |_, _| panic!("not reached")).is_err());
    }
}
