"""Count fits whose model changes if seven other threads run fits at the same time.

    python benches/trials_concurrency.py [--fits 10000]

The last rows reproduce scikit-learn's issue 8410: a threaded grid search whose scores should be the
same in every run.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
from _record import Table
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVC, PolynomialNetworkClassifier
from dualgap.structured import MulticlassModel, StructuredSVM

THREADS = 8
X, y = make_blobs(60, centers=4, cluster_std=3.0, random_state=0)
MODELS: dict[str, Any] = {
    "MulticlassSVC, block descent": MulticlassSVC(random_state=0),
    "MulticlassSVC, Weston-Watkins": MulticlassSVC("weston-watkins", random_state=1),
    "MulticlassSVC, block Frank-Wolfe": MulticlassSVC(
        solver="block-frank-wolfe", max_iter=20, random_state=2
    ),
    "PolynomialNetworkClassifier": PolynomialNetworkClassifier(2, max_iter=3, random_state=3),
    "StructuredSVM": StructuredSVM(MulticlassModel(), max_iter=10, random_state=4),
    # For comparison only: in LIBLINEAR, all threads share one random generator.
    "LinearSVC of scikit-learn": LinearSVC(dual=True, random_state=0),
}


def bits(model: Any) -> bytes:
    """Return the bytes of the weights of a fit."""
    fitted = clone(model).fit(X, y)
    arrays = [fitted.coef_, getattr(fitted, "components_", np.zeros(0))]
    return b"".join(array.tobytes() for array in arrays)


# Each fit uses one thread, because the fits themselves run concurrently.
for each in MODELS.values():
    if "n_jobs" in each.get_params():
        each.set_params(n_jobs=1)


def differing(work: Callable[[], bytes], n_runs: int) -> int:
    """Count concurrent runs whose result differs from the result of a single run."""
    alone = work()
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda _: work(), range(n_runs)))
    return sum(each != alone for each in found)


def searched(model: Any) -> list[float]:
    """Return the scores of a threaded grid search (the script of issue 8410)."""
    rows, labels = make_blobs(random_state=0, centers=2)
    search = GridSearchCV(model, {"C": [0.1, 1, 10]}, scoring="accuracy", cv=StratifiedKFold(3))
    with joblib.parallel_backend("threading", n_jobs=THREADS):
        results = search.fit(rows, labels).cv_results_
    return [float(score) for name in sorted(results) if "split" in name for score in results[name]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=10_000)
    n_fits = parser.parse_args().fits
    warnings.simplefilter("ignore", ConvergenceWarning)
    table = Table("trials-concurrency", "what")
    each = n_fits // (len(MODELS) - 1)
    for name, model in MODELS.items():
        wrong = differing(lambda model=model: bits(model), each)  # type: ignore[misc]
        table.add(what=name, threads=THREADS, runs=each, differing=wrong)
    n_searches = max(1, n_fits // 50)
    for model in (MulticlassSVC(random_state=0), LinearSVC(dual=True, random_state=0)):
        alone = searched(clone(model))
        wrong = sum(searched(clone(model)) != alone for _ in range(n_searches))
        name = f"search in threads (issue 8410), {type(model).__name__}"
        table.add(what=name, threads=THREADS, runs=n_searches, differing=wrong)


if __name__ == "__main__":
    main()
