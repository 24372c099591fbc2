"""Block descent, Newton's method, and solver="auto", which may change from one to the other.

    python benches/hand_over.py [tables] [--limit 10]

Each fit runs on one thread to a relative gap of 1e-3 and of 1e-6, or until `--limit` seconds of
wall time. Seconds are processor time: the smallest of up to five fits that take two seconds
together. `newton` counts the epochs of Newton's method. Tables: generated rows with columns of
different scales, means or kinds; sets of scikit-learn; and, from the folder DUALGAP_DATA, those of
block_descent.py, also with values of C so large that block descent stalls. Small generated sets
replace missing files.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, fastest
from as_they_come import load as table_of
from as_they_come import noise, spread
from block_descent import load

from dualgap import MulticlassSVC

SOLVERS = ("auto", "block-descent", "newton")
ENOUGH = 2.0


def one_hot() -> tuple[Any, Any]:
    """Generate 8000 rows of 1800 indicators, and four columns of other scales."""
    random = np.random.default_rng(0)
    codes = 600 * np.arange(3) + random.integers(600, size=(8000, 3))
    indicators = sp.csr_array((np.ones(24_000), codes.ravel(), range(0, 24_001, 3)))
    others = random.normal(size=(8000, 4)) * [1.0, 10.0, 100.0, 1000.0]
    weights = random.normal(size=(1804, 4))
    weights[1800:] /= [[1.0], [10.0], [100.0], [1000.0]]
    X = sp.csr_array(sp.hstack([indicators, others]))
    return X, (X @ weights + random.normal(size=(8000, 4))).argmax(axis=1)


def shifted() -> tuple[Any, Any]:
    """Generate 300 rows of 500 columns of mean 100 and deviation 1, in twelve classes."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 500))
    return X + 100.0, (X[:, :12] + random.normal(size=(300, 12))).argmax(axis=1)


def pixels() -> tuple[Any, Any]:
    X, y = load("mnist")
    return X[:5000] * (255.0 if X.max() <= 1.0 else 1.0), y[:5000]


# Tables without a file come first, because all results after a missing file go elsewhere.
TABLES: dict[str, tuple[Callable[[], tuple[Any, Any]], float]] = {
    "2000 x 20, .25 to 4": (lambda: spread(2000, 20, -0.6, 0.6), 100.0),
    "3000 x 300, .1 to 10": (lambda: spread(3000, 300, -1, 1, 10), 1.0),
    "random labels x 1e3": (lambda: noise(300, 4, 1e3), 1.0),
    "mean 100": (shifted, 1.0),
    "indicators": (one_hot, 1.0),
    "iris x 1e4": (lambda: table_of("iris x 1e4"), 1.0),
    "wine": (lambda: table_of("wine"), 1.0),
    "breast cancer": (lambda: table_of("breast cancer"), 1.0),
    "segment": (lambda: load("segment"), 1000.0),
    "vowel": (lambda: load("vowel"), 10_000.0),
    "satimage, C = 1": (lambda: load("satimage"), 1.0),
    "satimage, C = 100": (lambda: load("satimage"), 100.0),
    "letter": (lambda: load("letter"), 1.0),
    "dna": (lambda: load("dna"), 0.05),
    "news20": (lambda: load("news20"), 1.0),
    "raw pixels": (pixels, 1.0),
}


def measure(name: str, limit: float) -> None:
    make, C = TABLES[name]
    X, y = make()
    table = Table("hand-over", "data", "solver")
    for solver in SOLVERS:
        row: dict[str, Any] = {}
        for digit in (3, 6):
            model = MulticlassSVC(
                C=C, solver=solver, tol=10.0**-digit, max_iter=20_000, n_jobs=1, random_state=0,
                callback=lambda _, seconds, *__: seconds > limit,
            )  # fmt: skip
            elapsed = fastest(lambda model=model: model.fit(X, y), enough=ENOUGH)
            row |= {
                f"to_1e_{digit}": elapsed if model.converged_ else None,
                f"gap_{digit}": model.relative_gap_,
                f"epochs_{digit}": model.n_iter_,
                f"newton_{digit}": int((model.history_["solver"] == "newton").sum()),
            }
        table.add(data=name, solver=solver, C=C, **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], metavar="table")
    parser.add_argument("--limit", type=float, default=10.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.tables or TABLES:
        measure(name, arguments.limit)


if __name__ == "__main__":
    main()
