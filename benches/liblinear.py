"""Crammer-Singer models compared with LIBLINEAR at equal measured quality.

    python benches/liblinear.py [data sets] [--C 0.05 1 10] [--level 1e-4 1e-6] [--repeats 5]
                                [--peer-tol TOL]

Tolerances of different programs are not comparable. Each program therefore gets the loosest
tolerance, on a fine grid, for which its weights are good enough: their primal objective, computed
by the same function for all programs, is at most (1 + level) times a certified lower bound on the
optimum. Timed fits alternate between programs and include the conversion of the rows. Seconds are
medians; ratios are medians of the ratios of neighbouring fits. The rows "float64" and "float32" are
for the faster of one and two threads. With `--peer-tol`, LIBLINEAR's tolerance is known, and the
script only checks it and the next looser one. Data sets: those of block_descent.py; generated sets
replace missing files.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _record import Table, alternate, seconds
from block_descent import load, svm
from sklearn.svm import LinearSVC

NAMES = ["letter", "satimage", "dna", "news20"]
CS, LEVELS = [0.05, 1.0, 10.0], [1e-4, 1e-6]
# Grids of tolerances: absolute for LIBLINEAR, and multiples of the level for dualgap.
PEER_GRID = [2.0 * 0.7**step for step in range(60)]
OUR_GRID = [8.0 * 0.75**step for step in range(60)]
DTYPES = ("float64", "float32")
STRIDE = 4

Fit = Callable[[float], Any]


def primal(X: Any, y: Any, coef: Any, C: float) -> float:
    """Return LIBLINEAR's objective, ½‖W‖² + C Σ_i max(0, max over j ≠ y_i of (1 + s_ij - s_iy))."""
    codes, rows = np.unique(y, return_inverse=True)[1], np.arange(len(y))
    scores = np.asarray(X @ coef.T)
    margins = 1.0 + scores - scores[rows, codes][:, None]
    margins[rows, codes] = 0.0
    return float(0.5 * (coef**2).sum() + C * margins.max(axis=1).sum())


def programs(X: Any, y: Any, C: float) -> dict[str, Fit]:
    """Return the compared programs: functions that fit to a tolerance, by name."""

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


def loosest(
    fit: Fit, grid: list[float], excess: Callable[[Any], float], level: float
) -> tuple[float, Any] | None:
    """Return the loosest tolerance of the grid for which the model is good enough, and the model.

    First tries every STRIDE-th tolerance, then the tolerances between the first success and the
    failure before it. If every tolerance were tried, most of the time would go to fits of LIBLINEAR
    with unsuitable tolerances.
    """
    for last in range(STRIDE - 1, len(grid), STRIDE):
        if excess(fit(grid[last])) > level:
            continue
        for tol in grid[last + 1 - STRIDE : last + 1]:
            model = fit(tol)
            if excess(model) <= level:
                return tol, model
    return None


def known(fit: Fit, tol: float, excess: Callable[[Any], float], level: float) -> tuple[float, Any]:
    """Return the tolerance of LIBLINEAR's grid closest to `tol`, after a check, and the model."""
    place = int(np.argmin([abs(np.log(tol / other)) for other in PEER_GRID]))
    if place > 0 and excess(fit(PEER_GRID[place - 1])) <= level:
        raise SystemExit(f"--peer-tol: {PEER_GRID[place - 1]:g} is small enough")
    model = fit(PEER_GRID[place])
    if excess(model) > level:
        raise SystemExit(f"--peer-tol: {PEER_GRID[place]:g} is too large")
    return PEER_GRID[place], model


def compare(name: str, C: float, level: float, repeats: int, peer_tol: float | None) -> None:
    table = Table("liblinear", "data", "C", "level", "program")
    X, y = load(name)
    exact = svm("crammer-singer", C=C, tol=min(2e-7, 0.02 * level), max_iter=10**6).fit(X, y)
    bound = exact.dual_objective_ * C * len(y)

    def excess(model: Any) -> float:
        return primal(X, y, np.asarray(model.coef_, dtype=float), C) / bound - 1.0

    fits = programs(X, y, C)
    if peer_tol is None:
        peer = loosest(fits["liblinear"], PEER_GRID, excess, level)
    else:
        peer = known(fits["liblinear"], peer_tol, excess, level)
    if peer is None:
        raise SystemExit(f"LIBLINEAR does not reach {level:g} on {name} with C = {C:g}")
    chosen = {"liblinear": peer}
    grid = [level * factor for factor in OUR_GRID]
    for dtype in DTYPES:
        # With two threads, the model is the same, so the tolerance is also the same.
        found = loosest(fits[f"{dtype}-1"], grid, excess, level)
        if found is None:
            print(f"{name}, C = {C:g}: {dtype} rows do not reach {level:g}")
        else:
            chosen |= dict.fromkeys((f"{dtype}-1", f"{dtype}-2"), found)
    runs = [
        lambda fit=fits[program], tol=tol: seconds(lambda: fit(tol))
        for program, (tol, _) in chosen.items()
    ]
    times = dict(zip(chosen, alternate(*runs, repeats=repeats).T, strict=True))
    for dtype in DTYPES:
        if f"{dtype}-1" not in chosen:
            continue
        faster = min((f"{dtype}-1", f"{dtype}-2"), key=lambda which: np.median(times[which]))
        times[dtype], chosen[dtype] = times[faster], chosen[faster]
    for program, column in times.items():
        tol, model = chosen[program]
        table.add(
            data=name, C=C, level=level, program=program, tol=tol, excess=excess(model),
            epochs=int(np.max(model.n_iter_)), seconds=np.median(column),
            ratio=np.median(times["liblinear"] / column),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--C", type=float, nargs="+", default=CS)
    parser.add_argument("--level", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-tol", type=float)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, C, level in itertools.product(arguments.names, arguments.C, arguments.level):
        compare(name, C, level, arguments.repeats, arguments.peer_tol)


if __name__ == "__main__":
    main()
