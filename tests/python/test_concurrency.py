"""Concurrent fits: in threads, in processes, after a fork, in a sub-interpreter."""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from dualgap import (
    MulticlassSVC,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
)
from dualgap.datasets import synthetic_ratings
from dualgap.recommend import ConditionalGradient, OrdinalRecommender
from dualgap.structured import MulticlassModel, StructuredSVM

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, y = make_blobs(60, centers=4, cluster_std=3.0, random_state=0)
MODELS: list[Any] = [
    MulticlassSVC(random_state=0),
    MulticlassSVC("weston-watkins", random_state=1),
    MulticlassSVC(solver="block-frank-wolfe", max_iter=20, random_state=2),
    PolynomialNetworkClassifier(2, max_iter=3, random_state=3),
    StructuredSVM(MulticlassModel(), max_iter=10, random_state=4),
]


def fit_weights_as_bytes(number: int) -> bytes:
    """Return the bytes of a fit's weights."""
    model = clone(MODELS[number % len(MODELS)]).set_params(n_jobs=1 + number % 2).fit(X, y)
    arrays = [model.coef_, getattr(model, "components_", np.zeros(0))]
    return b"".join(array.tobytes() for array in arrays)


def test_fits_from_eight_threads_are_bit_identical() -> None:
    # benches/trials_concurrency.py runs 10,000 fits.
    alone = [fit_weights_as_bytes(number) for number in range(2 * len(MODELS))]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(fit_weights_as_bytes, range(400)))
    assert all(bits == alone[number % len(alone)] for number, bits in enumerate(found))


@pytest.mark.parametrize("name", ["cv", "recommender"])
def test_nested_fits_do_not_change_warning_filters(name: str) -> None:
    # Warning filters are global: changing them would suppress warnings of other threads.
    before, seen = list(warnings.filters), []

    def look(*_: float) -> None:
        seen.append(list(warnings.filters))

    def score(model: Any, rows: Any, labels: Any) -> float:
        look()
        return float(model.score(rows, labels))

    if name == "cv":
        PolynomialNetworkClassifierCV(
            [1.0], n_components=2, cv=2, scoring=score, n_jobs=2, callback=look
        ).fit(X, y)
    else:
        method = ConditionalGradient(reoptimize="output")
        recommender = OrdinalRecommender(2, method=method, random_state=0, callback=look)
        recommender.fit(synthetic_ratings(300, 30, 20))
    assert len(seen) > 1
    assert all(filters == before for filters in seen)


def test_fits_in_loky_workers_are_bit_identical() -> None:
    alone = [fit_weights_as_bytes(number) for number in range(4)]
    found = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(fit_weights_as_bytes)(number) for number in range(4)
    )
    assert found == alone


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_process_can_fit_after_its_parent() -> None:
    alone = [fit_weights_as_bytes(number) for number in range(4)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(fit_weights_as_bytes, range(4)).get(60) == alone


def threads_of_fits() -> set[str]:
    """Return the threads of fits, once there are three; threads start and end with a delay."""
    found: set[str] = set()
    end = time.monotonic() + 10.0
    while len(found) != 3 and time.monotonic() < end:
        found.clear()
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().startswith("dualgap-"):
                    found.add(task.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc")
def test_the_threads_of_a_fit_are_kept_for_the_next_fit() -> None:
    MulticlassSVC(n_jobs=3, random_state=0).fit(X, y)
    first = threads_of_fits()
    MulticlassSVC(n_jobs=3, random_state=1).fit(X, y)
    assert len(first) == 3
    assert threads_of_fits() == first


SUB_INTERPRETER = """
import sys
import dualgap.multiclass
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
found = interpreters.create()
try:
    error = run(found, "import dualgap.multiclass")
    error = getattr(error, "formatted", error)
except Exception as caught:
    error = caught
print(repr(error))
"""


def test_an_import_in_a_sub_interpreter_raises_and_does_not_crash() -> None:
    command = [sys.executable, "-c", SUB_INTERPRETER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    # The error comes from Python, PyO3 or NumPy. It is an ImportError and not a crash.
    assert "ImportError" in done.stdout or "subinterpreter" in done.stdout, done.stdout


def test_a_search_in_threads_has_the_scores_of_one_thread() -> None:
    # scikit-learn's issue 8410 shows LinearSVC(random_state=0) with varying scores.
    rows, labels = make_blobs(random_state=0, centers=2)
    search = GridSearchCV(MulticlassSVC(random_state=0), {"C": [0.1, 1, 10]}, cv=StratifiedKFold(3))
    alone = clone(search).fit(rows, labels).cv_results_
    for _ in range(5):
        with joblib.parallel_backend("threading", n_jobs=4):
            found = clone(search).fit(rows, labels).cv_results_
        for fold in range(3):
            name = f"split{fold}_test_score"
            np.testing.assert_array_equal(found[name], alone[name])
