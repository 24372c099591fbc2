"""Fits for benches/compare_builds.py, each run in a new process.

Fits end at a relative gap, or after a number of steps that mean the same in all versions.

    python build_cases.py         # names
    python build_cases.py NAME    # {"seconds": ..., "cpu_seconds": ..., "megabytes": ...}

This file uses only names and parameters that all versions share.
"""

from __future__ import annotations

import inspect
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

Case = Callable[[], Callable[[], Any]]


def classes(n: int, d: int, m: int, dtype: Any = np.float64) -> tuple[Any, Any]:
    """Generate rows around the centres of m classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(m, size=n)
    X = 0.4 * rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
    return (X / np.sqrt(d)).astype(dtype), y


def sparse(n: int, d: int, per_row: int) -> Any:
    """Generate rows with `per_row` entries, one in each of `per_row` groups of columns."""
    rng = np.random.default_rng(0)
    indices = rng.integers(d // per_row, size=(n, per_row)) + np.arange(per_row) * (d // per_row)
    indptr = np.arange(n + 1) * per_row
    return sp.csr_matrix((rng.random(n * per_row), indices.ravel(), indptr), shape=(n, d))


def margin(dtype: Any = np.float64, loss: str = "max-hinge", **parameters: Any) -> Case:
    def prepare() -> Callable[[], Any]:
        from dualgap import MulticlassSVC

        X, y = classes(10_000, 64, 26, dtype)
        model = MulticlassSVC(loss, random_state=0, n_jobs=2, **parameters)
        return lambda: model.fit(X, y)

    return prepare


def large_c() -> Callable[[], Any]:
    """Fit many rows of overlapping classes to a gap of 1e-4."""
    from dualgap import MulticlassSVC

    X, y = classes(10_000, 16, 12)
    model = MulticlassSVC(C=1000.0, random_state=0, tol=1e-4, max_iter=10_000, n_jobs=2)
    return lambda: model.fit(X, y)


def sparse_margin() -> Callable[[], Any]:
    from dualgap import MulticlassSVC

    X = sparse(10_000, 20_000, 80)
    y = np.random.default_rng(0).integers(20, size=10_000)
    model = MulticlassSVC(random_state=0, tol=1e-4, n_jobs=2)
    return lambda: model.fit(X, y)


def consensus() -> Callable[[], Any]:
    from dualgap.distributed import ConsensusSVC

    X, y = classes(10_000, 64, 20)
    model = ConsensusSVC(C=0.05, tol=1e-3, n_partitions=4, n_jobs=2)
    return lambda: model.fit(X, y)


def chains(**parameters: Any) -> Case:
    def prepare() -> Callable[[], Any]:
        from dualgap.structured import ChainModel, StructuredSVM

        rng = np.random.default_rng(0)
        Y = [rng.integers(20, size=8) for _ in range(1500)]
        centres = rng.normal(size=(20, 100))
        X = [centres[y] + 2.0 * rng.normal(size=(8, 100)) for y in Y]
        model = StructuredSVM(ChainModel(), random_state=0, n_jobs=2, **parameters)
        return lambda: model.fit(X, Y)

    return prepare


def matchings() -> Callable[[], Any]:
    from dualgap.structured import MatchingModel, StructuredSVM

    rng = np.random.default_rng(0)
    X = [rng.normal(size=(15, 15, 12)) for _ in range(300)]
    Y = [np.column_stack([np.arange(10), rng.permutation(15)[:10]]) for _ in X]
    model = StructuredSVM(MatchingModel(), random_state=0, tol=1e-2, n_jobs=2)
    return lambda: model.fit(X, Y)


def polynomial(kind: Any, n_components: int, refit: str, **parameters: Any) -> Any:
    """Create a polynomial model. In old versions, `reoptimize` has the name `refit`."""
    name = "reoptimize" if "reoptimize" in inspect.signature(kind).parameters else "refit"
    common: dict[str, Any] = {"radius": 100.0, "random_state": 0, "tol": 0.0, "n_jobs": 2}
    return kind(n_components, **{name: refit}, **common, **parameters)


def network(refit: str) -> Case:
    def prepare() -> Callable[[], Any]:
        from dualgap import PolynomialNetworkClassifier

        X, y = classes(4000, 20, 8)
        model = polynomial(PolynomialNetworkClassifier, 12, refit, max_iter=12)
        return lambda: model.fit(X, y)

    return prepare


def factorization() -> Callable[[], Any]:
    from dualgap import FactorizationMachineRegressor

    X = sparse(20_000, 2000, 10)
    y = np.random.default_rng(0).normal(size=20_000)
    model = polynomial(FactorizationMachineRegressor, 3, "output")
    return lambda: model.fit(X, y)


def recommender() -> Callable[[], Any]:
    from dualgap.datasets import synthetic_ratings
    from dualgap.recommend import OrdinalRecommender

    ratings = synthetic_ratings(50_000, 1000, 1500, random_state=0)
    model = OrdinalRecommender(random_state=0, n_jobs=2)
    return lambda: model.fit(ratings)


def tagging() -> Callable[[], Any]:
    """Predict 3000 sequences, which includes stacking and decoding them."""
    from dualgap.structured import ChainModel, StructuredSVM

    rng = np.random.default_rng(0)
    Y = [rng.integers(10, size=12) for _ in range(3000)]
    X = [rng.normal(size=(12, 60)) for _ in Y]
    model = StructuredSVM(ChainModel(), random_state=0, max_iter=2, n_jobs=2).fit(X[:200], Y[:200])
    return lambda: model.predict(X)


CASES: dict[str, Case] = {
    "block descent, float64": margin(tol=1e-6),
    "block descent, Weston-Watkins, float32": margin(np.float32, "weston-watkins", tol=1e-4),
    "block descent, C = 1000": large_c,
    "block descent, CSR": sparse_margin,
    "Frank-Wolfe": margin(solver="frank-wolfe", tol=0.0, max_iter=100),
    "block Frank-Wolfe, smoothed": margin(solver="block-frank-wolfe", tol=1e-3, smoothing=0.1),
    "consensus": consensus,
    "chains, block Frank-Wolfe": chains(tol=0.05),
    "chains, pairwise steps, gap sampling": chains(tol=0.05, step="pairwise", sampling="gap"),
    "chains, extragradient": chains(tol=0.0, max_iter=2, solver="extragradient"),
    "matchings, block Frank-Wolfe": matchings,
    "prediction of chains": tagging,
    "polynomial network, full refit": network("full"),
    "polynomial network, output refit": network("output"),
    "factorization machine, CSR": factorization,
    "recommender": recommender,
}


def main() -> None:
    if len(sys.argv) == 1:
        print(*CASES, sep="\n")
        return
    warnings.simplefilter("ignore")
    run = CASES[sys.argv[1]]()
    walls, processors = [], []
    while len(walls) < 3 or sum(walls) < 2.0:
        start, used = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - start)
        processors.append(time.process_time() - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"seconds": min(walls), "cpu_seconds": min(processors), "megabytes": peak}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
