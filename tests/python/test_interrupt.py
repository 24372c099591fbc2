"""A fit can be interrupted by Ctrl-C and by its callback, and lets other threads run."""

from __future__ import annotations

import _thread
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dualgap import (
    FactorizationMachineClassifier,
    MulticlassSVC,
    MulticlassSVCCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)
from dualgap._estimator import Stopper
from dualgap.distributed import ConsensusSVC
from dualgap.sequence import SequenceTagger
from dualgap.structured import MatchingModel, MulticlassModel, StructuredSVM


def data(n: int, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, rng.integers(0, 4, size=n)


def small(**parameters: Any) -> Any:
    return FactorizationMachineClassifier(
        6, random_state=0, n_jobs=1, radius=50.0, tol=0.0, **parameters
    )


# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class UnrelatedError(Exception):
    """An exception class that the package does not know."""


def test_the_callback_sees_every_iteration() -> None:
    X, y = data(60, 5)
    seen: list[tuple[Any, ...]] = []
    model = small(callback=lambda *values: seen.append(values)).fit(X, y)
    assert [values[0] for values in seen] == list(range(1, model.n_iter_ + 1))
    for column, name in enumerate(("epoch", "seconds", "objective", "dual_objective")):
        assert [values[column] for values in seen] == model.history_[name].tolist()


@pytest.mark.parametrize("error", [UnrelatedError("a"), KeyboardInterrupt("b"), SystemExit(3)])
def test_exceptions_of_the_callback_propagate(error: BaseException) -> None:
    X, y = data(60, 5)

    def callback(epoch: int, *_: float) -> None:
        if epoch == 2:
            raise error

    with pytest.raises(type(error)) as caught:
        small(callback=callback).fit(X, y)
    assert caught.value is error
    assert small().fit(X, y).n_iter_ > 2


def test_a_callback_that_returns_true_stops_the_fit() -> None:
    X, y = data(60, 5)
    model = small(callback=lambda epoch, *_: epoch == 3).fit(X, y)
    assert model.n_iter_ == 3
    assert len(model.components_) <= 2
    assert model.predict(X).shape == (60,)
    # None does not stop the fit.
    assert small(callback=lambda *_: None).fit(X, y).n_iter_ > 3


def change_labels(targets: Any) -> Any:
    """Return the labels with each class replaced by another class."""
    return [label + 5 for label in targets] if isinstance(targets, list) else targets + 5


def stop(epoch: int, *_: float) -> None:
    """Interrupt a fit."""
    if epoch == 2:
        raise KeyboardInterrupt


WORDS = [[["a"], ["b"]], [["b"], ["a"]]]


MODELS = [
    (small(), data(60, 5)),
    (MulticlassSVC(n_jobs=1, tol=0.0), data(60, 5)),
    (MulticlassSVC(solver="frank-wolfe", n_jobs=1, tol=0.0), data(60, 5)),
    (ConsensusSVC(n_partitions=2, n_jobs=1, tol=0.0), data(60, 5)),
    (StructuredSVM(MulticlassModel(), n_jobs=1, tol=0.0), data(60, 5)),
    (SequenceTagger(n_jobs=1, tol=0.0), (WORDS, [[1, 2], [2, 1]])),
]


@pytest.mark.parametrize(("model", "first"), MODELS, ids=lambda model: type(model).__name__)
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(model: Any, first: Any) -> None:
    model = clone(model).set_params(callback=stop)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(*first)
    assert vars(model) == before
    model.set_params(callback=None, max_iter=5).fit(*first)
    before = dict(vars(model))
    model.set_params(callback=stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(first[0], [change_labels(targets) for targets in first[1]])
    after = {**vars(model), "callback": None}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def test_a_callback_may_fit_another_model() -> None:
    X, y = data(60, 5)
    inner: list[Any] = []
    outer = small(callback=lambda *_: inner.append(small().fit(X, y)) or len(inner) > 2).fit(X, y)
    assert len(inner) == 3
    assert np.array_equal(inner[0].output_, inner[2].output_)
    assert outer.n_iter_ == 3


LONG_FIT = """
import sys, time
import numpy as np
import scipy.sparse as sp
import dualgap.multiclass
import dualgap.polynomial

rng = np.random.default_rng(0)
{rows}
for model in {models}:
    model = eval(model)
    print("ready", flush=True)
    try:
        model.fit(X, y)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        sys.exit("the fit ended before it could be interrupted")
few = X[:200, :20]
small = dualgap.PolynomialNetworkClassifier(2, n_jobs=2).fit(few, y[:200])
print("usable", small.predict(few[:5]).shape, flush=True)
"""

DENSE = "X, y = rng.normal(size=(40_000, 60)), rng.integers(0, 10, size=40_000)"

# Two threads share the visits to these rows, with 2000 entries and many candidate classes.
LONG_ROWS = """
columns = 10 * np.arange(2000) + rng.integers(10, size=(2000, 1))
arrays = rng.normal(size=columns.size), columns.ravel(), 2000 * np.arange(2001)
X, y = sp.csr_array(arrays, shape=(2000, 20_000)), rng.integers(0, 100, size=2000)
"""


def check_control_c(rows: str, models: list[str], delays: tuple[float, ...]) -> None:
    """Interrupt fits after each delay, on one and two threads; then fit again in that process."""
    runs = list(itertools.product(models, (1, 2), delays))
    calls = [f"dualgap.{model}, tol=0.0, n_jobs={n_jobs})" for model, n_jobs, _ in runs]
    script = textwrap.dedent(LONG_FIT).format(rows=rows, models=calls)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seconds = []
        for run in runs:
            if process.stdout.readline() != "ready\n":
                break
            # A short delay interrupts the first reduction, and a longer delay a refit.
            time.sleep(run[-1])
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            if process.stdout.readline() == "interrupted\n":
                seconds.append(time.monotonic() - start)
        rest, errors = process.communicate(timeout=250)
    assert len(seconds) == len(runs), (runs[len(seconds)], errors)
    # On an idle machine, each fit ends within one second.
    assert max(seconds) < 3.0, runs[np.argmax(seconds)]
    assert rest == "usable (5,)\n", errors
    assert process.returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
def test_control_c_ends_a_fit_to_long_sparse_rows() -> None:
    model = 'MulticlassSVC("weston-watkins", C=10.0, max_iter=10**6'
    check_control_c(LONG_ROWS, [model], (0.2, 1.0, 3.0))


# All fits run in one process, because starting a process takes longer than most of them.
LONG_FITS = [
    "PolynomialNetworkClassifier(200, radius=1000.0",
    "PolynomialNetworkClassifierCV([100.0, 1000.0], n_components=200, cv=2",
    'MulticlassSVC(solver="frank-wolfe", max_iter=10**6',
    'MulticlassSVC("weston-watkins", smoothing=0.1, C=100.0, max_iter=10**6',
    'MulticlassSVC("weston-watkins", solver="block-frank-wolfe", smoothing=0.1, max_iter=10**6',
    'MulticlassSVC(solver="subgradient", max_iter=10**6',
]


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
def test_control_c_ends_a_long_fit() -> None:
    check_control_c(DENSE, LONG_FITS, (0.2, 1.0))


@pytest.mark.parametrize("method", ["fit", "path"])
def test_control_c_ends_the_decoding_of_a_long_example(method: str) -> None:
    size = 2000
    X = [np.random.default_rng(0).normal(size=(size, size, 1))]
    y = [np.stack(2 * [np.arange(size)], axis=1)]
    svm = StructuredSVM(MatchingModel(), tol=1e-9, n_jobs=1)
    arguments = (X, y) if method == "fit" else (X, y, 0.1, 0.2)
    with interrupt_after_a_second() as ended, pytest.raises(KeyboardInterrupt):
        getattr(svm, method)(*arguments)
    # On an idle machine, the fit ends within a fraction of a second. The limit allows for a busy
    # machine.
    assert ended() < 4.0


@pytest.mark.parametrize(
    "model",
    [
        PolynomialNetworkClassifierCV([1000.0], n_components=200, cv=2, tol=0.0, n_jobs=1),
        MulticlassSVCCV(Cs=[100.0], cv=2, tol=0.0, max_iter=10**6, n_jobs=2),
        ConsensusSVC(n_partitions=2, tol=0.0, max_iter=10**6, n_jobs=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_signal_ends_the_wait_for_other_threads(model: Any) -> None:
    """Python cannot end a wait that begins just after a signal."""
    with interrupt_after_a_second() as ended, pytest.raises(KeyboardInterrupt):
        model.fit(*data(20_000, 60))
    assert ended() < 4.0


class WithinEpochs(Stopper):
    """A stopper that does not end a run after an epoch."""

    def __call__(self, *_: object) -> bool:
        return False


@pytest.mark.parametrize(
    "model",
    [
        PolynomialNetworkClassifier(200, radius=1000.0, tol=0.0),
        MulticlassSVC("weston-watkins", C=100.0, tol=0.0, max_iter=10**6),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_stopper_ends_a_run_within_an_epoch(model: Any) -> None:
    """A run on another thread sees no signals."""
    start = time.monotonic()
    stopper = WithinEpochs(lambda: time.monotonic() - start > 0.3)
    with pytest.raises(RuntimeError, match="interrupted"):
        model.set_params(callback=stopper, verbose=0).fit(*data(20_000, 60))
    assert time.monotonic() - start < 4.0


@contextmanager
def interrupt_after_a_second() -> Iterator[Callable[[], float]]:
    """Interrupt the main thread after a second; yield a function that returns the time since
    then."""
    at: list[float] = []

    def interrupt() -> None:
        at.append(time.monotonic())
        _thread.interrupt_main()

    timer = threading.Timer(1.0, interrupt)
    timer.start()
    yield lambda: time.monotonic() - at[0]
    timer.join()


def test_other_threads_run_during_a_fit() -> None:
    X, y = data(20_000, 30)
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.01):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    try:
        small(callback=lambda *_: time.monotonic() - start > 0.5).fit(X, y)
    finally:
        done.set()
        thread.join()
    assert ticks >= 5, "the GIL was held during the fit"


def test_concurrent_fits_equal_consecutive_fits() -> None:
    X, y = data(400, 8)
    alone = small().fit(X, y)
    models: list[Any] = [small(), small()]
    threads = [threading.Thread(target=model.fit, args=(X, y)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in models:
        assert np.array_equal(model.output_, alone.output_)
        assert np.array_equal(model.components_, alone.components_)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(("model", "rows"), MODELS, ids=lambda model: type(model).__name__)
def test_a_forked_child_can_fit(model: Any, rows: Any) -> None:
    """A child must not wait for the threads of its parent's last fit, which it does not have."""

    def objective() -> float:
        own = clone(model).set_params(n_jobs=2, max_iter=3, random_state=0)
        return float(own.fit(*rows).objective_)

    expected = objective()
    with warnings.catch_warnings():
        # Python 3.12 warns about forks of processes with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if objective() == expected else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the fit in the child did not end")


def test_progress_is_printed_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data(50, 4)
    PolynomialNetworkRegressor(3, n_jobs=1, verbose=1).fit(X, y.astype(float))
    captured = capsys.readouterr()
    assert "epoch     1" in captured.err
    assert "gap" in captured.err
    assert captured.out == ""
