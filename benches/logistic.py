"""Logistic regression compared with scikit-learn's solvers and cyanure at equal measured quality.

    python benches/logistic.py speed [data sets] [--C 0.1 1 10] [--again]
    python benches/logistic.py defaults [data sets] [--again]
    python benches/logistic.py busy [data sets] [--again]
    python benches/logistic.py {search,bounds} [data sets] [--again]

Each other program gets the loosest tolerance, on a grid, for which its weights are good enough:
their primal objective, computed by the same function for all programs, is at most (1 + level) times
a certified lower bound on the optimum. `other` is the fastest of the other programs. "certified" is
a fit of dualgap to a certified gap of `level`, "loosest" a fit of dualgap with the loosest
tolerance that is good enough. "defaults" compares fits with default settings. "busy" measures a fit
again while one other process per core keeps the machine busy. "search" chooses C among 13 values by
the accuracy in five folds, with the `LogisticRegressionCV` of both packages, on all cores. "bounds"
measures the bounds on the scores of this search for several `cv_tol`.

The programs alternate, on all cores. In "speed" and "defaults", each program pauses and then fits
twice. Only the second fit counts, so that waiting threads and cold caches left by the previous
program do not slow it down. If all programs take more than a second, there is only one fit. Seconds
are medians, and ratios are medians of the ratios of neighbouring fits.

A measurement whose row exists for this commit and instruction set is skipped, so an interrupted run
continues where it stopped; --again repeats it. A second run with another DUALGAP_SIMD takes the
tolerances of the other programs from the first run. cyanure takes part if it is installed.

Data sets: those of block_descent.py, and the generated "binary" (100,000 x 50, two classes),
"wide" (4000 x 1000, two classes), "indicators" (30,000 sparse rows of ten categorical columns with
30 values each, four classes), "thousand" (12,811 x 384, 1000 classes), "pixels" (60,000 x 784, ten
classes), "unscaled" (2000 x 20, five classes, columns of scales from 1e-3 to 1e5) and "wine" (the
set of scikit-learn with one more column, of mean 5e4 and standard deviation 2e4). Generated sets
replace missing files.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, alternate, formatted, origin, seconds
from block_descent import load
from scipy.ndimage import gaussian_filter
from scipy.special import logsumexp
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression as Peer
from sklearn.linear_model import LogisticRegressionCV as PeerSearch

from dualgap import LogisticRegression, LogisticRegressionCV

try:
    from cyanure.estimators import Classifier
except ImportError:
    Classifier = None

REAL = ["letter", "satimage", "dna", "segment", "news20"]
GENERATED = ["unscaled", "wine", "binary", "wide", "indicators", "thousand", "pixels"]
CS = [0.1, 1.0, 10.0]
# Pairs of a level (the relative excess over the lower bound) and whether fits have an intercept.
CASES = [(level, intercept) for intercept in (False, True) for level in (1e-4, 1e-6)]
COMMANDS = ["speed", "defaults", "busy", "search", "bounds"]
# newton-cholesky is first because it is fast on badly scaled columns. Its time limits that of the
# other solvers, which need seconds to minutes there.
SOLVERS = ["newton-cholesky", "newton-cg", "lbfgs", "saga", "cyanure"]
OTHER_GRID = [0.3 * 0.3162**step for step in range(14)]
OUR_GRID = [300.0 * 0.7**step for step in range(40)]
# The search for a tolerance of a program ends if a fit takes LONGEST seconds, or SLOWER times as
# long as the fastest program so far: the program cannot be the fastest.
LONGEST, SLOWER = 60.0, 3.0
# Programs within this factor of the fastest program are timed again, alternating with dualgap.
CLOSE = 1.5
# Seconds of all fits of a comparison together, above which there are fewer repeats.
BUDGET = 60.0
REPEATS = 7
# Seconds of the pause before the fits of a program. Waiting threads of the previous program occupy
# the cores (those of OpenBLAS for about 0.1 s).
PAUSE = 0.15
# If the fastest program takes more than WARM seconds, the fits of a comparison have no warm-up.
WARM = 1.0

Fit = Callable[[float], Any]


@functools.lru_cache(maxsize=1)
def data(name: str) -> tuple[Any, Any]:
    X, y = generated(name) if name in GENERATED else load(name)
    return X.astype(float), np.unique(y, return_inverse=True)[1]


def generated(name: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if name == "binary":
        X = rng.standard_normal((100_000, 50))
        return X, rng.random(len(X)) < 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(50) / 4.0))
    if name == "wide":
        X = rng.standard_normal((4000, 100)) @ rng.standard_normal((100, 1000)) / 10.0
        X += rng.standard_normal(X.shape)
        return X, X @ rng.standard_normal(1000) / 20.0 + rng.logistic(size=len(X)) > 0.0
    if name == "indicators":
        # Ten categorical columns with 30 values each, the first of which are frequent.
        values = np.minimum(rng.geometric(0.15, (30_000, 10)) - 1, 29) + 30 * np.arange(10)
        X = sp.csr_matrix((np.ones(values.size), values.ravel(), np.arange(0, values.size + 1, 10)))
        scores = X @ rng.standard_normal((X.shape[1], 4)) + rng.gumbel(size=(len(values), 4))
        return X, scores.argmax(axis=1)
    if name == "thousand":
        centres = rng.standard_normal((1000, 384))
        y = np.arange(12_811) % 1000
        X = centres[y] + 1.5 * rng.standard_normal((len(y), 384))
        return X / np.linalg.norm(X, axis=1, keepdims=True), y
    if name == "pixels":
        # Images of 28 x 28 pixels: five smooth patterns per class, noise, and zeros at the edges.
        patterns = gaussian_filter(rng.standard_normal((50, 28, 28)), (0, 2.5, 2.5)).reshape(50, -1)
        own = rng.integers(50, size=60_000)
        X = 6.0 * patterns[own] + 0.5 * rng.standard_normal((len(own), 784), dtype=np.float32)
        edge = np.pad(np.ones((22, 22)), 3).ravel()
        return np.clip(X, 0.0, 1.0) * edge, own % 10
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        return np.hstack([X, rng.normal(5e4, 2e4, (len(X), 1))]), y
    X = rng.standard_normal((2000, 20))
    scores = X @ rng.standard_normal((20, 5)) + rng.gumbel(size=(2000, 5))
    return X * 10.0 ** np.linspace(-3.0, 5.0, 20), scores.argmax(axis=1)


def primal(model: Any, X: Any, y: Any, C: float) -> float:
    """Return 1/2 ||W||^2 + C sum of losses."""
    coef = model.coef_ if isinstance(model, LogisticRegression | Peer) else model.coef_.T
    coef = coef.reshape(-1, X.shape[1])
    # Without an intercept, models of cyanure do not have this attribute.
    scores = np.asarray(X @ coef.T) + getattr(model, "intercept_", 0.0)
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
    value = float(0.5 * (coef**2).sum() + C * losses.sum())
    return value if np.isfinite(value) else np.inf


def fits(X: Any, y: Any, C: float, intercept: bool) -> dict[str, Fit]:
    """Return the compared programs: functions that fit to a tolerance, by name."""

    def ours(tol: float) -> Any:
        model = LogisticRegression(C, fit_intercept=intercept, tol=tol, random_state=0)
        return model.fit(X, y)

    def sklearn(solver: str) -> Fit:
        parameters: dict[str, Any] = {"C": C, "fit_intercept": intercept, "solver": solver}
        parameters |= {"max_iter": 10_000, "random_state": 0}
        return lambda tol: Peer(**parameters, tol=tol).fit(X, y)

    def cyanure(tol: float) -> Any:
        loss = "logistic" if y.max() == 1 else "multiclass-logistic"
        model = Classifier(
            loss=loss, penalty="l2", lambda_1=1.0 / (C * len(y)), fit_intercept=intercept, tol=tol,
            max_iter=10_000, verbose=False,
        )  # fmt: skip
        return model.fit(X, y)

    found: dict[str, Fit] = {"dualgap": ours}
    found |= {solver: sklearn(solver) for solver in SOLVERS[:-1]}
    if sp.issparse(X) or X.shape[1] * (y.max() + 1) > 10_000:
        # This solver is left out because its Hessian would take gigabytes.
        del found["newton-cholesky"]
    return found if Classifier is None else {**found, "cyanure": cyanure}


def good_enough(
    fit: Fit, grid: list[float], accept: Callable[[Any], bool], longest: float
) -> tuple[float, Any, float] | None:
    """Return the loosest tolerance that is good enough, the model, and the seconds of the fit."""
    for tol in grid:
        models: list[Any] = []
        spent = seconds(lambda tol=tol, models=models: models.append(fit(tol)))
        if accept(models[0]):
            return tol, models[0], spent
        if spent > longest:
            return None
    return None


def others(
    case: dict[str, Any], programs: dict[str, Fit], excess: Callable[[Any], float], again: bool
) -> dict[str, float]:
    """Return the fastest other programs and their tolerances, from recorded rows or new fits."""
    table = Table("logistic-others", *case, "program")
    rows = [] if again else matching(table, case)
    if not rows:
        best = LONGEST / SLOWER
        for name in SOLVERS:
            if name not in programs:
                continue
            found = good_enough(
                programs[name],
                OTHER_GRID,
                lambda model: excess(model) <= case["level"],
                SLOWER * best,
            )
            if found is None:
                continue
            tol, model, spent = found
            # The first fit of a program may load libraries, so the faster of two fits counts.
            spent = min(spent, seconds(lambda name=name, tol=tol: programs[name](tol)))
            best = min(best, spent)
            table.add(
                **case, program=name, tol=tol, excess=excess(model),
                iterations=int(np.max(model.n_iter_)), seconds=spent, simd="",
            )  # fmt: skip
        rows = matching(table, case)
    rows = [row for row in rows if row["program"] in programs]
    best = min((float(row["seconds"]) for row in rows), default=0.0)
    # Single fits are not precise, so `compare` times all programs near the fastest one again.
    near = [row for row in rows if float(row["seconds"]) <= CLOSE * best]
    return {row["program"]: float(row["tol"]) for row in near}


def matching(table: Table, case: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a case for this commit and instruction set."""
    wanted = {name: formatted(value) for name, value in case.items()}
    wanted["commit"] = origin()["commit"]
    return [
        row
        for row in table.read()
        if all(row[name] == value for name, value in wanted.items())
        and row["simd"] in ("", origin()["simd"])
    ]


def compare(case: dict[str, Any], again: bool) -> None:
    """Compare dualgap with the fastest other program."""
    table = Table("logistic", *case, "program")
    if not again and matching(table, case):
        return
    X, y = data(case["data"])
    C, level = case["C"], case["level"]
    programs = fits(X, y, C, case["intercept"])
    ours = programs["dualgap"]
    bound = ours(min(1e-8, 0.01 * level)).dual_objective_ * C * len(y)

    def excess(model: Any) -> float:
        return primal(model, X, y, C) / bound - 1.0

    rivals = others(case, programs, excess, again)
    loosest = good_enough(
        ours, [level * factor for factor in OUR_GRID], lambda model: excess(model) <= level, np.inf
    )
    chosen: dict[str, tuple[Fit, float]] = {"certified": (ours, level)}
    if loosest is not None:
        chosen["loosest"] = (ours, loosest[0])
    chosen |= {name: (programs[name], tol) for name, tol in rivals.items()}
    times, models = timed(chosen)
    other = min(rivals, key=lambda name: np.median(times[name]), default=None)
    paired = None if other is None else times[other]
    for program in [name for name in chosen if name not in rivals]:
        model, own = models[program], times[program]
        table.add(
            **case, program=program, tol=chosen[program][1], excess=excess(model),
            gap=model.relative_gap_, epochs=model.n_iter_, seconds=np.median(own), other=other,
            other_seconds=None if paired is None else np.median(paired),
            ratio=None if paired is None else np.median(paired / own),
        )  # fmt: skip


def timed(chosen: dict[str, tuple[Fit, float]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the seconds of alternating fits, each after a warm-up, and the models, by name."""
    models: dict[str, Any] = {}

    def fit_once(name: str) -> float:
        fit, tol = chosen[name]
        return seconds(lambda: models.__setitem__(name, fit(tol)))

    first = [fit_once(name) for name in chosen]
    is_warmed = min(first) <= WARM

    def run(name: str) -> float:
        time.sleep(PAUSE)
        if is_warmed:
            fit_once(name)
        return fit_once(name)

    repeats = int(np.clip(BUDGET / ((1 + is_warmed) * sum(first)), 1, REPEATS))
    runs = [functools.partial(run, name) for name in chosen]
    return dict(zip(chosen, alternate(*runs, repeats=repeats).T, strict=True)), models


def defaults(name: str, again: bool) -> None:
    """Fit dualgap and scikit-learn with their default settings."""
    table = Table("logistic-defaults", "data")
    if not again and matching(table, {"data": name}):
        return
    X, y = data(name)
    chosen: dict[str, tuple[Fit, float]] = {
        "dualgap": (lambda _: LogisticRegression().fit(X, y), 0.0),
        "scikit-learn": (lambda _: Peer().fit(X, y), 0.0),
    }
    times, models = timed(chosen)
    bound = LogisticRegression(tol=1e-8).fit(X, y).dual_objective_ * len(y)
    ours, theirs = times["dualgap"], times["scikit-learn"]
    table.add(
        data=name, seconds=np.median(ours), excess=primal(models["dualgap"], X, y, 1.0) / bound - 1,
        other_seconds=np.median(theirs), ratio=np.median(theirs / ours),
        other_excess=primal(models["scikit-learn"], X, y, 1.0) / bound - 1,
    )  # fmt: skip


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with one process."""
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def busy(name: str, again: bool) -> None:
    """Compare how long a fit takes on a quiet machine and on a busy one."""
    table = Table("logistic-busy", "data")
    if not again and matching(table, {"data": name}):
        return
    X, y = data(name)

    def run() -> float:
        return seconds(lambda: LogisticRegression(tol=1e-4, random_state=0).fit(X, y))

    repeats = int(np.clip(10.0 / run(), 3, 200))
    quiet = np.array([run() for _ in range(repeats)])
    with busy_cores():
        loaded = np.array([run() for _ in range(repeats)])
    table.add(
        data=name, fits=repeats, quiet=np.median(quiet), busy=np.median(loaded),
        ratio=np.median(loaded) / np.median(quiet), worst=loaded.max(),
    )  # fmt: skip


def search(name: str, again: bool) -> None:
    """Compare the searches for C of dualgap and scikit-learn on the same folds."""
    table = Table("logistic-search", "data")
    if not again and matching(table, {"data": name}):
        return
    X, y = data(name)
    Cs = np.logspace(-3.0, 3.0, 13)
    ours, theirs = LogisticRegressionCV(Cs=Cs), PeerSearch(Cs=Cs, cv=5, n_jobs=-1)
    runs = (lambda: seconds(lambda: ours.fit(X, y)), lambda: seconds(lambda: theirs.fit(X, y)))
    times = alternate(*runs, repeats=1)
    if times.sum() < BUDGET / 4.0:
        times = alternate(*runs, repeats=3)
    scores: Any = theirs.scores_
    scores = np.squeeze(next(iter(scores.values())) if isinstance(scores, dict) else scores)
    own, other = np.median(times, axis=0)
    table.add(
        data=name, seconds=own, score=ours.best_score_, C=ours.C_, other_seconds=other,
        other_score=scores.mean(axis=0).max(), other_C=float(np.ravel(theirs.C_)[0]),
        ratio=np.median(times[:, 1] / times[:, 0]),
    )  # fmt: skip


def bounds(name: str, again: bool) -> None:
    """Measure how `cv_tol` changes the bounds of a search for C, and its processor time."""
    table = Table("logistic-bounds", "data", "cv_tol")
    if not again and matching(table, {"data": name}):
        return
    X, y = data(name)
    reference = 0.0
    for cv_tol in (2e-3, 1e-4, 1e-6):
        times = []
        for _ in range(3):
            start = time.process_time()
            found = LogisticRegressionCV(cv_tol=cv_tol, refit=False, n_jobs=1).fit(X, y)
            times.append(time.process_time() - start)
        reference = reference or min(times)
        losses = LogisticRegressionCV(
            cv_tol=cv_tol, refit=False, scoring="neg_log_loss", Cs=found.Cs_
        ).fit(X, y)
        widths, loss_widths = (np.diff(each.mean_score_bounds_).ravel() for each in (found, losses))
        best, least = (int(np.argmax(each.mean_score_)) for each in (found, losses))
        table.add(
            data=name, cv_tol=cv_tol, width=widths[best], narrow=int((widths <= 0.1).sum()),
            C=found.Cs_[best], loss_width=loss_widths[least], loss_C=found.Cs_[least],
            time=min(times) / reference,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=COMMANDS)
    parser.add_argument("names", nargs="*", default=GENERATED + REAL)
    parser.add_argument("--C", type=float, nargs="+", default=CS)
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.names:
        if arguments.command in (None, "speed"):
            for C in arguments.C:
                for level, intercept in CASES:
                    case = {"data": name, "C": C, "level": level, "intercept": intercept}
                    compare(case, arguments.again)
        if arguments.command in (None, "defaults"):
            defaults(name, arguments.again)
        if arguments.command in (None, "busy"):
            busy(name, arguments.again)
        if arguments.command == "search":
            search(name, arguments.again)
        if arguments.command == "bounds":
            bounds(name, arguments.again)


if __name__ == "__main__":
    main()
