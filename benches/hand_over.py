"""Block descent, Newton's method, and solver="auto", which may change from one to the other.

    python benches/hand_over.py [tables] [--limit 10]
    python benches/hand_over.py --values [tables] [--limit 10]

The first command compares the solvers on tables of different kinds; the second fits tables with
five values of C, from .05 to 1000. Each fit runs on one thread to a relative gap of 1e-3 and
of 1e-6, or until `--limit` seconds of wall time. Seconds are processor time: the smallest of up to
five fits that take two seconds together. `newton` counts the epochs of Newton's method. Tables:
generated rows with columns of different scales, means or kinds; sets of scikit-learn; and, from the
folder DUALGAP_DATA, those of block_descent.py, also with values of C so large that block descent
stalls. Small generated sets replace missing files.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, fastest
from as_they_come import load as table_of
from as_they_come import noise, spread
from block_descent import load
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler

from dualgap import MulticlassSVC

SOLVERS = ("auto", "block-descent", "newton")
ENOUGH = 2.0
FILES = ("dna", "letter", "satimage", "segment", "vowel")


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


def noisy_classes(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Generate `n` normal rows of `d` columns; half of the variance of the scores is noise."""
    random = np.random.default_rng(0)
    X, W = random.normal(size=(n, d)), random.normal(size=(d, m))
    return X, (X @ W + np.sqrt(d) * random.normal(size=(n, m))).argmax(axis=1)


def standardised(table: tuple[Any, Any]) -> tuple[Any, Any]:
    return StandardScaler().fit_transform(table[0]), table[1]


VALUES = (0.05, 1.0, 10.0, 100.0, 1000.0)
TABLES_OF_VALUES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "600 x 8, 3 classes": lambda: noisy_classes(600, 8, 3),
    "2000 x 20, 5 classes": lambda: noisy_classes(2000, 20, 5),
    "20000 x 20, 4 classes": lambda: noisy_classes(20_000, 20, 4),
    "3000 x 10, 30 classes": lambda: noisy_classes(3000, 10, 30),
    "5000 x 50, 20 classes": lambda: noisy_classes(5000, 50, 20),
    "10000 x 100, 3 classes": lambda: noisy_classes(10_000, 100, 3),
    "2000 x 20, .25 to 4": lambda: spread(2000, 20, -0.6, 0.6),
    "noisy": lambda: tuple(part[:20_000] for part in load("noisy")),
    "digits": lambda: standardised(load_digits(return_X_y=True)),
    "breast cancer": lambda: standardised(load_breast_cancer(return_X_y=True)),
    **{name: functools.partial(load, name) for name in FILES},
}


def compare_values(name: str, limit: float) -> None:
    """Measure "auto" next to the better of the two methods for each C, to both gaps."""
    X, y = TABLES_OF_VALUES[name]()
    table = Table("hand-over-values", "data", "gap")
    for digit in (3, 6):
        row: dict[str, Any] = {}
        for place, C in enumerate(VALUES, 1):
            taken = {}
            for solver in SOLVERS:
                model = classifier(C, solver, digit, limit)
                elapsed = fastest(lambda model=model: model.fit(X, y), enough=ENOUGH)
                taken[solver] = elapsed if model.converged_ else np.nan
            best = np.fmin(taken["block-descent"], taken["newton"])
            row |= {f"{solver}_{place}": seconds for solver, seconds in taken.items()}
            row[f"ratio_{place}"] = taken["auto"] / best
        table.add(data=name, gap=f"1e-{digit}", **row)


def classifier(C: float, solver: str, digit: int, limit: float) -> MulticlassSVC:
    return MulticlassSVC(
        C=C, solver=solver, tol=10.0**-digit, max_iter=20_000, n_jobs=1, random_state=0,
        callback=lambda _, seconds, *__: seconds > limit,
    )  # fmt: skip


def measure(name: str, limit: float) -> None:
    make, C = TABLES[name]
    X, y = make()
    table = Table("hand-over", "data", "solver")
    for solver in SOLVERS:
        row: dict[str, Any] = {}
        for digit in (3, 6):
            model = classifier(C, solver, digit, limit)
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
    parser.add_argument("tables", nargs="*", metavar="table")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--limit", type=float, default=10.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = TABLES_OF_VALUES if arguments.values else TABLES
    if unknown := set(arguments.tables) - set(tables):
        parser.error(f"unknown tables: {', '.join(sorted(unknown))}; known: {', '.join(tables)}")
    for name in arguments.tables or tables:
        (compare_values if arguments.values else measure)(name, arguments.limit)


if __name__ == "__main__":
    main()
