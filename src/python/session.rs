//! Runs computations that Python calls: on a separate thread pool, without the GIL, while the calling
//! thread polls for signals.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use numpy::PyArray1;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRecursionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::pools::{keep_pool, new_pool, take_pool};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::interrupt::{EpochModel, Interrupt};
use crate::memory::{needed, ran_out, reserve, set_needed};
use crate::run::Epoch;

/// An epoch, with the arrays of its model if the callback wants them.
type Event = (Epoch, Option<EpochModel>);

/// Interval at which the calling thread checks for signals during a computation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidArgument { .. } => PyValueError::new_err(error.to_string()),
            Error::Memory(_) | Error::MemoryRanOut => PyMemoryError::new_err(error.to_string()),
            Error::Interrupted | Error::Numerical(_) => PyRuntimeError::new_err(error.to_string()),
            Error::File(_) => PyOSError::new_err(error.to_string()),
        }
    }
}

/// Calls `body`, and turns a panic into a RuntimeError. PyO3 alone would raise a `BaseException`,
/// which `except Exception` does not catch. A panic is always a bug in this crate. During the call,
/// allocations that fail can use the memory reserve.
pub(super) fn guarded<T>(body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    if !reserve::fill() {
        let text = "less than 138 MB of memory is left, the reserve that lets a call raise an error \
                    when memory runs out";
        return Err(PyMemoryError::new_err(text));
    }
    set_needed(String::new());
    caught(body)
}

fn caught<T>(body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Err(PyRuntimeError::new_err(format!("a bug in dualgap, please report it: {text}")))
    })
}

/// Runs `fit`, which reads arrays in place, and returns its result. If the arrays have changed
/// meanwhile, raises an error that says so, even if the change made the fit panic or produce
/// infinite numbers.
pub(super) fn unchanged<T>(
    py: Python<'_>,
    borrowed: &[Data<'_>],
    fit: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let before = digests(py, borrowed)?;
    unchanged_since(py, (borrowed, &before), fit)
}

/// Like [`unchanged`], but for arrays whose digests were computed earlier.
pub(super) fn unchanged_since<T>(
    py: Python<'_>,
    (borrowed, before): (&[Data<'_>], &[u64]),
    fit: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let known = Digests { before: OnceLock::from(before.to_vec()), ..Digests::default() };
    unchanged_between(py, (borrowed, &known), fit)
}

/// Digests of the arrays, which a fit computes itself on its own threads.
#[derive(Default)]
pub(super) struct Digests {
    /// Digests from before the fit reads the arrays.
    pub before: OnceLock<Vec<u64>>,
    /// Digests from after the fit.
    pub after: OnceLock<Vec<u64>>,
}

/// Like [`unchanged`], but for a fit that computes the digests itself.
pub(super) fn unchanged_between<T>(
    py: Python<'_>,
    (borrowed, known): (&[Data<'_>], &Digests),
    fit: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let ended = caught(fit);
    let raised = ended.as_ref().is_err_and(|error| !error.is_instance_of::<PyRuntimeError>(py));
    let Some(before) = known.before.get() else { return ended };
    if raised {
        return ended;
    }
    let after = match known.after.get() {
        Some(after) => after.clone(),
        None => digests(py, borrowed)?,
    };
    if after == *before {
        return ended;
    }
    let text = "X changed during the fit, or another array passed to it did: a callback or another thread \
                has written to the array; fit a copy";
    let error = PyRuntimeError::new_err(text);
    error.set_cause(py, ended.err());
    Err(error)
}

/// Computes the digests of the arrays, and checks for signals meanwhile.
pub(super) fn digests(py: Python<'_>, borrowed: &[Data<'_>]) -> PyResult<Vec<u64>> {
    let mut go_on = || Python::attach(|py| py.check_signals());
    py.detach(|| borrowed.iter().map(|data| data.digest(&mut go_on)).collect())
}

/// Maximum number of threads of a call for each core that this process may use. More threads than
/// cores are never faster. A few more are allowed, so that users can check that results do not
/// depend on the number of threads. Hundreds of threads per core would exhaust the system.
pub(super) const THREADS_PER_CORE: usize = 4;

/// The part of a session that the computation uses.
pub(super) struct Session<'a> {
    /// Set when the user interrupts the call.
    pub interrupt: &'a Interrupt,
    report: &'a (dyn Fn(&Epoch, Option<EpochModel>) -> ControlFlow<()> + Sync),
}

impl Session<'_> {
    /// Passes an epoch to the user's callback, and waits for the callback's result.
    pub fn observe(&self, epoch: &Epoch) -> ControlFlow<()> {
        (self.report)(epoch, self.interrupt.take_model())
    }

    /// Passes an epoch to the user's callback, after reordering the arrays of its model.
    pub fn observe_in_order(
        &self,
        epoch: &Epoch,
        order: impl FnMut(Vec<f64>) -> Vec<f64>,
    ) -> ControlFlow<()> {
        let model = self.interrupt.take_model().map(|model| EpochModel {
            arrays: model.arrays.into_iter().map(order).collect(),
            ..model
        });
        (self.report)(epoch, model)
    }
}

/// Maximum number of nested fits. A callback may fit another model, but a callback that fits its
/// own model again would start ever more threads.
const MAX_NESTING: usize = 8;

thread_local! {
    /// Number of nested sessions in which this thread runs.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Counts a session for as long as it exists. Sessions may be nested.
struct Nesting {
    depth: usize,
}

impl Nesting {
    fn enter() -> PyResult<Self> {
        let depth = DEPTH.get() + 1;
        if depth > MAX_NESTING {
            let message = format!(
                "fits may be nested at most {MAX_NESTING} deep; a callback or a model starts its own fit \
                 again"
            );
            return Err(PyRecursionError::new_err(message));
        }
        DEPTH.set(depth);
        Ok(Self { depth })
    }
}

impl Drop for Nesting {
    fn drop(&mut self) {
        DEPTH.set(self.depth - 1);
    }
}

/// Runs `kernel` on a pool of `n_threads` threads, while this thread polls for signals and runs
/// callbacks.
///
/// `callback(epoch, seconds, objective, dual_objective)` is called after each epoch, while the computation waits.
/// Values that were not evaluated are NaN. If the callback returns a true value, the run stops. Exceptions of the
/// callback and `KeyboardInterrupt` end the computation, and are raised unchanged. Signals reach only the main thread.
/// If a callback has a method `_is_stopped`, the run therefore also ends, with [`Error::Interrupted`], soon after this
/// method returns true, even in the middle of an epoch. A callback with a true attribute `_wants_model` gets a further
/// argument: a list of the model's arrays and the number of epochs before Newton's method took over, or None if there
/// is no current model.
pub(super) fn run_session<T: Send>(
    py: Python<'_>,
    n_threads: usize,
    callback: Option<&Py<PyAny>>,
    kernel: impl FnOnce(&Session<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let (mut kernel, mut result) = (Some(kernel), None);
    let mut run = |session: &Session<'_>| {
        result = kernel.take().map(|kernel| explained(kernel(session)));
    };
    run_on_pool(py, n_threads, callback, &mut run)?;
    match result {
        Some(result) => Ok(result?),
        None => Err(PyRuntimeError::new_err("the kernel ended without a result")),
    }
}

/// Adds to an out-of-memory error the purpose for which this thread needed the memory.
fn explained<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| if error == Error::MemoryRanOut { ran_out() } else { error })
}

/// [`run_session`], compiled once for all kernels.
fn run_on_pool(
    py: Python<'_>,
    n_threads: usize,
    callback: Option<&Py<PyAny>>,
    kernel: &mut (dyn FnMut(&Session<'_>) + Send),
) -> PyResult<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let nesting = Nesting::enter()?;
    let depth = nesting.depth;
    let n_threads = n_threads.clamp(1, THREADS_PER_CORE * cores);
    // Only sessions that are not nested share pools, because all threads of a pool have one depth.
    let start = move || DEPTH.set(depth);
    let pool =
        if depth == 1 { take_pool(n_threads, cores, start) } else { new_pool(n_threads, start) };
    let pool =
        pool.map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let wants = |callback: &Py<PyAny>| -> PyResult<bool> {
        let wants = callback.bind(py).getattr_opt("_wants_model")?;
        Ok(wants.is_some_and(|wants| wants.is(PyBool::new(py, true))))
    };
    let shows = callback.map(wants).transpose()?.unwrap_or(false);
    let is_stopped = |callback: &Py<PyAny>| callback.bind(py).getattr_opt("_is_stopped");
    let is_stopped = callback.map(is_stopped).transpose()?.flatten().map(Bound::unbind);
    let interrupt = if shows { Interrupt::showing() } else { Interrupt::default() };
    let known = needed();
    let raised = py.detach(|| {
        let (events, inbox) = sync_channel::<Event>(0);
        let (answers, outbox) = sync_channel::<ControlFlow<()>>(0);
        let outbox = std::sync::Mutex::new(outbox);
        let (interrupt, watched) = (&interrupt, callback.is_some());
        pool.in_place_scope(|scope| {
            scope.spawn(move |_| {
                let report = |epoch: &Epoch, model: Option<EpochModel>| {
                    let outbox = outbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    if !watched {
                        ControlFlow::Continue(())
                    } else if events.send((*epoch, model)).is_ok() {
                        outbox.recv().unwrap_or(ControlFlow::Break(()))
                    } else {
                        // `send` fails only if the receiver is gone, so stop.
                        ControlFlow::Break(())
                    }
                };
                set_needed(known);
                kernel(&Session { interrupt, report: &report });
                // Dropping `events` here ends the loop in `watch`.
            });
            watch(&inbox, &answers, interrupt, (callback, is_stopped.as_ref()))
        })
    });
    if depth == 1 {
        keep_pool(pool, cores);
    }
    raised.map_or(Ok(()), Err)
}

/// Number of items that a request for one user ranks in a few milliseconds. Larger requests check for signals.
const MAX_BRIEF: usize = 1 << 16;

/// The size of a request that folds in one user with `n_ratings`, in the units of [`run_request`].
pub(super) fn fold_in_size(n_ratings: usize) -> usize {
    64 * n_ratings
}

/// Runs a kernel for `n_users` (or items), each of which takes as long as ranking `size` items. For a single user and
/// few items, the kernel runs on the calling thread and must not use a pool, because starting a pool could take
/// longer. Otherwise, does the same as [`run_session`].
pub(super) fn run_request<T: Send>(
    py: Python<'_>,
    (n_users, size): (usize, usize),
    n_threads: usize,
    kernel: impl FnOnce(&Interrupt) -> Result<T> + Send,
) -> PyResult<T> {
    if n_users > 1 || size > MAX_BRIEF {
        return run_session(py, n_threads, None, |session: &Session<'_>| kernel(session.interrupt));
    }
    Ok(py.detach(|| explained(kernel(&Interrupt::default())))?)
}

/// Polls for signals and stops, and passes epochs to the callback, until the computation has ended.
/// Returns the exception that was raised, if any.
fn watch(
    inbox: &Receiver<Event>,
    answers: &SyncSender<ControlFlow<()>>,
    interrupt: &Interrupt,
    (callback, is_stopped): (Option<&Py<PyAny>>, Option<&Py<PyAny>>),
) -> Option<PyErr> {
    let mut raised: Option<PyErr> = None;
    loop {
        let event = inbox.recv_timeout(POLL_INTERVAL);
        if let Err(RecvTimeoutError::Disconnected) = event {
            return raised;
        }
        let is_epoch = event.is_ok();
        let answer = if raised.is_some() {
            Ok(true)
        } else {
            Python::attach(|py| {
                py.check_signals()?;
                if let (Ok(event), Some(callback)) = (event, callback) {
                    return call(py, callback, event, interrupt.shows());
                }
                if let Some(is_stopped) = is_stopped
                    && is_stopped.call0(py)?.is_truthy(py)?
                {
                    interrupt.raise();
                }
                Ok(false)
            })
        };
        let stop = answer.unwrap_or_else(|error| {
            interrupt.raise();
            raised = Some(error);
            true
        });
        if is_epoch {
            let flow = if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            // The receiver is gone if the computation has ended meanwhile.
            let _ = answers.send(flow);
        }
    }
}

fn call(
    py: Python<'_>,
    callback: &Py<PyAny>,
    (epoch, model): Event,
    shows: bool,
) -> PyResult<bool> {
    let primal = epoch.objective.unwrap_or(f64::NAN);
    let dual = epoch.certificate.map_or(f64::NAN, |certificate| certificate.dual);
    let Epoch { epoch, seconds, .. } = epoch;
    let answer = if shows {
        let model = model.map(|EpochModel { arrays, n_first }| {
            let arrays = arrays.into_iter().map(|array| PyArray1::from_vec(py, array));
            (arrays.collect::<Vec<_>>(), n_first)
        });
        callback.call1(py, (epoch, seconds, primal, dual, model))
    } else {
        callback.call1(py, (epoch, seconds, primal, dual))
    };
    answer?.is_truthy(py)
}
