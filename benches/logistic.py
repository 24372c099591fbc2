"""Logistic regression compared with scikit-learn's solvers at equal measured quality.

    python benches/logistic.py [data sets] [--C 0.1 1 10] [--level 1e-4 1e-6] [--repeats 5]

Each of scikit-learn's solvers gets the loosest tolerance of a grid with which its weights are good
enough: their primal objective, computed by the same function for all programs, is at most 1 + level
times a certified lower bound on the optimum. "scikit-learn" is the fastest of them. "certified" is
a fit of ours to a certified gap of `level`, "loosest" one to the loosest tolerance that is good
enough, and "defaults" are fits of both programs with default settings. Seconds are medians of
alternating fits, on two threads. Data sets: those of block_descent.py, and the generated "binary"
(100,000 x 50, two classes), "aloi" (12,811 x 384, 1000 classes) and "unscaled" and "shifted"
(columns whose scales and means differ by many powers of ten).
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, data_folder, in_turn, seconds
from block_descent import load
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression as Peer

from dualgap import LogisticRegression

NAMES = ["letter", "satimage", "dna", "segment", "news20", "binary", "aloi", "unscaled", "shifted"]
CS, LEVELS = [0.1, 1.0, 10.0], [1e-4, 1e-6]
SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "saga")
PEER_GRID = [0.3 * 0.3162**step for step in range(12)]
OUR_GRID = [300.0 * 0.7**step for step in range(40)]
# Fits of scikit-learn that take longer than this end the search for its solver.
LONGEST = 20.0

Fit = Callable[[float], Any]


def generated(name: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if name == "binary":
        X = rng.standard_normal((100_000, 50))
        return X, rng.random(len(X)) < 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(50) / 4.0))
    if name == "aloi":
        centres = rng.standard_normal((1000, 384))
        y = np.arange(12_811) % 1000
        X = centres[y] + 1.5 * rng.standard_normal((len(y), 384))
        return X / np.linalg.norm(X, axis=1, keepdims=True), y
    X = rng.standard_normal((5000, 12))
    scores = X @ rng.standard_normal((12, 4)) + rng.gumbel(size=(5000, 4))
    if name == "unscaled":
        return X * 10.0 ** np.linspace(-3.0, 3.0, 12), scores.argmax(axis=1)
    return X + 10.0 ** np.linspace(0.0, 3.0, 12), scores.argmax(axis=1)


def data(name: str) -> tuple[Any, Any]:
    known = name in ("binary", "aloi", "unscaled", "shifted")
    X, y = generated(name) if known else load(name)
    return X.astype(float), np.unique(y, return_inverse=True)[1]


def primal(model: Any, X: Any, y: Any) -> float:
    """Return 1/2 ||W||^2 + C sum of losses."""
    scores = np.asarray(X @ model.coef_.T) + model.intercept_
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
    return float(0.5 * (model.coef_**2).sum() + model.C * losses.sum())


def loosest(fit: Fit, grid: list[float], excess: Callable[[Any], float], level: float) -> Any:
    """Return the loosest tolerance of the grid with a good enough model, and that model."""
    for tol in grid:
        models: list[Any] = []
        spent = seconds(lambda tol=tol, models=models: models.append(fit(tol)))
        if excess(models[0]) <= level:
            return tol, models[0]
        if spent > LONGEST:
            break
    return None


def compare(name: str, C: float, level: float, intercept: bool, repeats: int) -> None:
    table = Table("logistic", "data", "C", "level", "intercept", "program")
    X, y = data(name)
    shared: dict[str, Any] = {"C": C, "fit_intercept": intercept}

    def ours(tol: float) -> Any:
        return LogisticRegression(**shared, tol=tol, random_state=0).fit(X, y)

    bound = ours(min(1e-8, 0.01 * level)).dual_objective_ * C * len(y)

    def excess(model: Any) -> float:
        return primal(model, X, y) / bound - 1.0

    chosen: dict[str, tuple[Fit, float, Any]] = {"certified": (ours, level, ours(level))}
    found = loosest(ours, [level * factor for factor in OUR_GRID], excess, level)
    if found is not None:
        chosen["loosest"] = (ours, *found)
    for solver in SOLVERS:
        if solver == "newton-cholesky" and (sp.issparse(X) or X.shape[1] * y.max() > 5000):
            continue

        def theirs(tol: float, solver: str = solver) -> Any:
            peer = Peer(**shared, solver=solver, tol=tol, max_iter=5000, random_state=0)
            return peer.fit(X, y)

        found = loosest(theirs, PEER_GRID, excess, level)
        if found is not None:
            chosen[solver] = (theirs, *found)
    runs = [lambda fit=fit, tol=tol: seconds(lambda: fit(tol)) for fit, tol, _ in chosen.values()]
    times = dict(zip(chosen, in_turn(*runs, repeats=repeats).T, strict=True))
    peers = [solver for solver in SOLVERS if solver in times]
    if peers:
        best = min(peers, key=lambda solver: np.median(times[solver]))
        times["scikit-learn"], chosen["scikit-learn"] = times[best], chosen[best]
    for program, column in times.items():
        _, tol, model = chosen[program]
        base = times.get("scikit-learn")
        table.add(
            data=name, C=C, level=level, intercept=intercept, program=program, tol=tol,
            solver=getattr(model, "solver", ""), excess=excess(model),
            gap=getattr(model, "relative_gap_", None), epochs=int(np.max(model.n_iter_)),
            seconds=np.median(column), ratio=None if base is None else np.median(base / column),
        )  # fmt: skip


def defaults(name: str, repeats: int) -> None:
    """Fit both programs with their default settings."""
    table = Table("logistic-defaults", "data", "program")
    X, y = data(name)
    programs = {"dualgap": LogisticRegression, "scikit-learn": Peer}
    runs = [lambda make=make: seconds(lambda: make().fit(X, y)) for make in programs.values()]
    times = in_turn(*runs, repeats=repeats).T
    for (program, make), column in zip(programs.items(), times, strict=True):
        model = make().fit(X, y)
        table.add(
            data=name, program=program, objective=primal(model, X, y) / len(y),
            seconds=np.median(column), ratio=np.median(times[1] / column),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--C", type=float, nargs="+", default=CS)
    parser.add_argument("--level", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--intercept", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if data_folder() is None:
        print("logistic.py: skipped; set DUALGAP_DATA to the folder of data sets")
        return
    warnings.simplefilter("ignore")
    for name in arguments.names:
        grid = itertools.product(arguments.C, arguments.level, arguments.intercept)
        for C, level, intercept in grid:
            compare(name, C, level, bool(intercept), arguments.repeats)
        defaults(name, arguments.repeats)


if __name__ == "__main__":
    main()
