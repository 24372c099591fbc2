"""Crammer-Singer models beside LIBLINEAR, both stopped at the same measured quality.

    python benches/liblinear.py [data sets] [--level 1e-4] [--C 1.0] [--repeats 5]

A tolerance means something else in each program. So each gets about the loosest one at which the
primal objective of its own weights, computed here in the same way for all, is within a factor
1 + level of a certified lower bound of the optimum; with that it is timed, all in turn, conversion
of the rows included. Data sets: those of block_descent.py.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _record import Table, data_folder, in_turn, seconds
from block_descent import load, svm
from sklearn.svm import LinearSVC

NAMES = ["letter", "satimage", "dna", "news20"]
# From the loosest tolerance that means anything, in steps of a fifth.
TOLERANCES = [0.8**step for step in range(100)]
# How many are taken at once at first.
STRIDE = 5
DTYPES = ("float64", "float32")

Fit = Callable[[float], Any]


def primal(X: Any, y: Any, coef: Any, C: float) -> float:
    """LIBLINEAR's objective, ½‖W‖² + C Σ_i max(0, max over j ≠ y_i of (1 + s_ij - s_iy))."""
    codes, rows = np.unique(y, return_inverse=True)[1], np.arange(len(y))
    scores = np.asarray(X @ coef.T)
    margins = 1.0 + scores - scores[rows, codes][:, None]
    margins[rows, codes] = 0.0
    return float(0.5 * (coef**2).sum() + C * margins.max(axis=1).sum())


def programs(X: Any, y: Any, C: float) -> dict[str, Fit]:
    """What is compared: name -> fit to a tolerance."""

    def liblinear(tol: float) -> Any:
        peer = LinearSVC(
            multi_class="crammer_singer", C=C, fit_intercept=False, tol=tol, max_iter=10**6,
            random_state=0,
        )  # fmt: skip
        return peer.fit(X, y)

    def ours(rows: Any, n_jobs: int) -> Fit:
        settings = {"C": C, "max_iter": 10**6, "n_jobs": n_jobs}
        return lambda tol: svm("crammer-singer", tol=tol, **settings).fit(rows, y)

    found: dict[str, Fit] = {"liblinear": liblinear}
    for dtype in DTYPES:
        rows = X.astype(dtype)
        found |= {f"{dtype}-{n_jobs}": ours(rows, n_jobs) for n_jobs in (1, 2)}
    return found


def loosest(fit: Fit, excess: Callable[[Any], float], level: float) -> tuple[float, Any]:
    """A loose tolerance whose model is good enough, and that model.

    The tolerances after each STRIDE steps are tried until one will do, then all after the one
    before. A looser one that is good by chance may be passed over, whichever the program.
    """
    first = 0
    for start in range(STRIDE, len(TOLERANCES), STRIDE):
        if excess(fit(TOLERANCES[start])) <= level:
            break
        first = start + 1
    for tol in TOLERANCES[first:]:
        model = fit(tol)
        if excess(model) <= level:
            return tol, model
    raise SystemExit("no tolerance is tight enough")


def compare(name: str, C: float, level: float, repeats: int) -> None:
    table = Table("liblinear", "data", "C", "level", "program")
    X, y = load(name)
    exact = svm("crammer-singer", C=C, tol=2e-3 * level, max_iter=10**6).fit(X, y)
    bound = exact.dual_objective_ * C * len(y)

    def excess(model: Any) -> float:
        return primal(X, y, np.asarray(model.coef_, dtype=float), C) / bound - 1.0

    fits = programs(X, y, C)
    chosen = {}
    for one in ("liblinear", *(f"{dtype}-1" for dtype in DTYPES)):
        chosen[one] = loosest(fits[one], excess, level)
    # Two threads have the same model.
    chosen |= {f"{dtype}-2": chosen[f"{dtype}-1"] for dtype in DTYPES}
    runs = [
        lambda fit=fit, tol=chosen[program][0]: seconds(lambda: fit(tol))
        for program, fit in fits.items()
    ]
    times = in_turn(*runs, repeats=repeats)
    for column, program in zip(times.T, fits, strict=True):
        tol, model = chosen[program]
        table.add(
            data=name, C=C, level=level, program=program, tol=tol, excess=excess(model),
            epochs=int(np.max(model.n_iter_)), seconds=np.median(column),
            ratio=np.median(times[:, 0] / column),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--level", type=float, default=1e-4)
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if data_folder() is None:
        print("liblinear.py: DUALGAP_DATA must name a folder of data sets; skipped")
        return
    warnings.simplefilter("ignore")
    for name in arguments.names:
        compare(name, arguments.C, arguments.level, arguments.repeats)


if __name__ == "__main__":
    main()
