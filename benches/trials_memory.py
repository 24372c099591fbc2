"""Fits under a limit of memory: what was tried, and how often the process was ended.

    python benches/trials_memory.py

Each fit is tried in a process of its own with less and less memory to spare (RLIMIT_AS, so that an
allocation fails rather than the system runs out). It fails unless the fit ends, or raises
MemoryError or RuntimeError (a thread that cannot start).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC
from dualgap.polynomial import FactorizationMachineClassifier, PolynomialNetworkRegressor
from dualgap.recommend import OrdinalRecommender
from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)

SPARE = [2**k for k in range(12, 21)]
"""Kilobytes that a fit may take."""

RANDOM = np.random.default_rng(0)


def classes(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Dense rows of many classes."""
    return RANDOM.normal(size=(n, d)), np.arange(n) % m


def wide(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Rows of ten entries among many features."""
    columns = RANDOM.integers(0, d, 10 * n)
    offsets = np.arange(0, 10 * n + 1, 10)
    X = sp.csr_matrix((np.ones(10 * n), columns, offsets), shape=(n, d))
    X.sum_duplicates()
    return X, np.arange(n) % m


def words(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Chains of three positions."""
    X, y = wide(3 * n, d, m)
    return [X[3 * i : 3 * i + 3] for i in range(n)], [y[3 * i : 3 * i + 3] for i in range(n)]


def fits() -> dict[str, Callable[[], Any]]:
    """Every kind of fit, on data whose buffers take tens of megabytes."""
    found: dict[str, Callable[[], Any]] = {}

    def add(name: str, model: Any, *data: Any) -> None:
        found[name] = lambda: model.fit(*data)

    one: dict[str, Any] = {"max_iter": 2, "n_jobs": 2, "random_state": 0}
    rows, features = classes(20000, 50, 100), wide(2000, 50000, 50)
    for solver in ("block-descent", "block-frank-wolfe", "frank-wolfe", "subgradient"):
        add(f"linear, rows, {solver}", MulticlassSVC(solver=solver, **one), *rows)
        add(f"linear, features, {solver}", MulticlassSVC(solver=solver, **one), *features)
    smooth = MulticlassSVC(solver="frank-wolfe", smoothing=0.1, **one)
    add("linear, rows, frank-wolfe, smoothed", smooth, *rows)
    add("linear, rows, away-frank-wolfe", MulticlassSVC(solver="away-frank-wolfe", **one), *rows)
    add("consensus", ConsensusSVC(n_partitions=2, **one), *rows)
    structured = {
        "classes": (MulticlassModel(), *features),
        "chain": (ChainModel(), *words(500, 50000, 30)),
        "labels": (MultilabelModel("tree"), features[0], np.eye(50, dtype=int)[features[1]]),
    }
    for kind, (model, *data) in structured.items():
        for solver in (
            "block-frank-wolfe",
            "frank-wolfe",
            "away-frank-wolfe",
            "subgradient",
            "extragradient",
        ):
            svm = StructuredSVM(model, solver=solver, **one)
            add(f"structured, {kind}, {solver}", svm, *data)
    pairs = [RANDOM.normal(size=(20, 20, 100)) for _ in range(100)]
    links = [np.stack([np.arange(20), np.arange(20)], axis=1)] * 100
    for solver in ("block-frank-wolfe", "extragradient"):
        svm = StructuredSVM(MatchingModel(), solver=solver, **one)
        add(f"structured, matching, {solver}", svm, pairs, links)
    for refit in ("full", "output"):
        machine = FactorizationMachineClassifier(2, refit=refit, **one)
        add(f"factorization machine, {refit}", machine, *classes(5000, 20, 10))
        network = PolynomialNetworkRegressor(2, refit=refit, **one)
        add(f"network, features, {refit}", network, features[0], RANDOM.normal(size=(2000, 5)))
    users, items = RANDOM.integers(0, 20000, (2, 50000))
    _, kept = np.unique(users * 20000 + items, return_index=True)
    ratings = (users[kept], items[kept], RANDOM.integers(1, 6, len(kept)).astype(float))
    add("recommender", OrdinalRecommender(n_jobs=2, random_state=0), ratings)
    return found


def limited(fit: Callable[[], Any], kilobytes: int) -> int:
    """Fit in a process with so much memory more than there is now; 0 if it ended as it may."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with open("/proc/self/statm", encoding="ascii") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + 1024 * kilobytes,) * 2)
            warnings.simplefilter("ignore")
            fit()
        except (MemoryError, RuntimeError, ImportError) as error:
            code = 3 if "a bug in dualgap" in str(error) else 1
        except BaseException:
            code = 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return -os.WTERMSIG(status)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    table = Table("trials-memory", "fit")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name, fit in fits().items():
        if len(sys.argv) > 1 and not any(part in name for part in sys.argv[1:]):
            continue
        ended = [(spare, limited(fit, spare)) for spare in SPARE]
        wrong = {spare: code for spare, code in ended if code not in (0, 1)}
        if wrong:
            shown = {
                f"{spare} KB": signal.Signals(-code).name if code < 0 else f"code {code}"
                for spare, code in wrong.items()
            }
            print(f"{name}: {shown}", file=sys.stderr)
        refused = sum(code == 1 for _, code in ended)
        table.add(fit=name, tried=len(ended), refused=refused, failed=len(wrong))


if __name__ == "__main__":
    main()
