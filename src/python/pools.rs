//! The thread pools of sessions. Starting a thread takes about 0.1 ms, and the smallest fits take less than 1 ms, so
//! the last pool is kept for the next session.

use std::process;
use std::sync::Mutex;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// A pool that no session uses; its threads sleep.
struct IdlePool {
    pool: ThreadPool,
    /// The process that started the threads.
    process: u32,
    /// Number of cores that the process could use at that time.
    n_cores: usize,
}

static IDLE: Mutex<Option<IdlePool>> = Mutex::new(None);

/// Returns a pool that no other session uses. Its threads have called `start`, perhaps for an earlier session.
pub(super) fn take_pool(
    n_threads: usize,
    n_cores: usize,
    start: impl Fn() + Send + Sync + 'static,
) -> Result<ThreadPool, ThreadPoolBuildError> {
    idle_pool(n_threads, n_cores).map_or_else(|| new_pool(n_threads, start), Ok)
}

/// Starts a pool. Each of its threads calls `start`.
pub(super) fn new_pool(
    n_threads: usize,
    start: impl Fn() + Send + Sync + 'static,
) -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .start_handler(move |_| start())
        .num_threads(n_threads)
        .thread_name(|index| format!("dualgap-{index}"))
        .build()
}

/// Keeps a pool for a later session, in place of the pool that was kept before.
pub(super) fn keep_pool(pool: ThreadPool, n_cores: usize) {
    if let Ok(mut idle) = IDLE.try_lock() {
        let last = idle.replace(IdlePool { pool, process: process::id(), n_cores });
        drop(idle);
        drop(last);
    }
}

/// Returns the idle pool if it has this number of threads. Threads keep the cores on which they may run, so a pool that
/// was started with other cores is not used.
fn idle_pool(n_threads: usize, n_cores: usize) -> Option<ThreadPool> {
    // In a child process, the lock stays locked if another thread of the parent held it during the fork.
    let idle = IDLE.try_lock().ok()?.take()?;
    if idle.process != process::id() {
        // A child process does not have the threads, so nothing may wait for them.
        std::mem::forget(idle.pool);
        return None;
    }
    let fits = idle.pool.current_num_threads() == n_threads && idle.n_cores == n_cores;
    fits.then_some(idle.pool)
}
