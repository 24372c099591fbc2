"""Tables and figures of Wang and Scott (2021).

    python benches/walrus_paper.py subproblem           # Tables 8 and 9: Clarabel on (4)
    python benches/walrus_paper.py whole                # Clarabel on whole problems
    python benches/walrus_paper.py figure [data sets]   # Figure 2: ten C, three delta; accuracy
    python benches/walrus_paper.py early [data sets]    # Table 7: delta 0.01 and 0.001 in CV
    python benches/walrus_paper.py program [data sets]  # the authors' program, if WALRUS names it

Without a command, all run. Data sets are .npz files in the folder DUALGAP_DATA; generated sets
replace missing files. "many" is always generated (1000 classes). "subproblem" and "whole" need
Clarabel from PyPI (pip install clarabel), and "subproblem" the results of cargo bench --bench
walrus and criterion.py. Otherwise, they are skipped.

For "program", the environment variable WALRUS is a command with the words {rows}, {C} and {delta}.
They are replaced by a file of training rows in LIBSVM's format, by C, and by the factor of the
first gap at which training ends. The last word that the command prints is the number of seconds.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from _data import split
from _record import Table, paired
from block_descent import load
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from support.textbook import INNER, Epochs, textbook

from dualgap import MulticlassSVC, _core
from dualgap.losses import Loss

CS = [2.0**k for k in range(-6, 4)]
DELTAS = (0.1, 0.01, 0.001)
SETS = ["vowel", "segment", "satimage", "dna", "letter", "news20", "mnist", "many"]
# Maximum seconds of training in a run of the figure, and maximum number of its repetitions.
LIMIT, REPEATS = 10.0, 5
# Repetitions end after this number of seconds.
ENOUGH = 1.0
# Maximum number of rows of the cross-validations.
ROWS = 10_000
Goal = Callable[[Epochs], np.ndarray]


def data(name: str) -> tuple[Any, Any, int]:
    """Return rows, labels and the number of test rows, which come last.

    A quarter of the training rows of MNIST and of the generated set "many" are the test rows.
    """
    if name in ("many", "mnist"):
        X, y = many() if name == "many" else load(name)
        order = np.random.default_rng(0).permutation(len(y))
        X, y, n_test = X[order], y[order], len(y) // 4
    else:
        X_train, y_train, X_test, y_test = split(name)
        stack = sp.vstack if sp.issparse(X_train) else np.concatenate
        X, y = stack([X_train, X_test]), np.concatenate([y_train, y_test])
        n_test = len(y_test)
    X = sp.csr_matrix(X) if sp.issparse(X) else X
    return X / np.abs(X).max(), np.unique(y, return_inverse=True)[1], n_test


def many() -> tuple[Any, Any]:
    """Generate 2668 rows of 1000 classes with 128 features."""
    rng = np.random.default_rng(0)
    centres, y = rng.random((1000, 128)), np.arange(2668) % 1000
    return np.abs(centres[y] + 0.35 * rng.normal(size=(2668, 128))), y


def figure(names: list[str]) -> None:
    """Measure seconds until the gap is delta times the first gap, with Walrus and with Shark.

    Also measure seconds until the test accuracy is at most a thousandth below the lower one of the
    two last accuracies.
    """
    table = Table("walrus-figure", "data", "C", "until")
    for name in names or SETS:
        X, y, n_test = data(name)
        with textbook(X, y) as run:
            for C in CS:
                walrus, shark = (repeated(run, C, inner, n_test) for inner in INNER)
                last = min(walrus[0].accuracies[-1], shark[0].accuracies[-1])
                goals: dict[str, Goal] = {
                    f"gap {delta:g}": lambda run, delta=delta: run.gaps <= delta * run.gaps[0]
                    for delta in DELTAS
                }
                goals["accuracy"] = lambda run, last=last: run.accuracies >= last - 1e-3
                for until, goal in goals.items():
                    seconds, epochs = median_time(walrus, goal)
                    shark_seconds, shark_epochs = median_time(shark, goal)
                    both = seconds is not None and shark_seconds is not None
                    table.add(
                        data=name,
                        C=C,
                        until=until,
                        rows=len(y) - n_test,
                        classes=int(y.max()) + 1,
                        walrus=seconds,
                        shark=shark_seconds,
                        ratio=seconds / shark_seconds if both else None,
                        walrus_epochs=epochs,
                        shark_epochs=shark_epochs,
                        first_gap_ratio=walrus[0].gaps[0] / shark[0].gaps[0],
                        walrus_accuracy=100 * walrus[0].accuracies[-1],
                        shark_accuracy=100 * shark[0].accuracies[-1],
                    )
    figure_summary(names or SETS)


def repeated(run: Any, C: float, inner: str, n_test: int) -> list[Epochs]:
    """Repeat a short run. All repetitions have the same gaps and accuracies."""
    runs: list[Epochs] = []
    while len(runs) < REPEATS and sum(own.seconds[-1] for own in runs) < ENOUGH:
        runs.append(run(C, inner, LIMIT, n_test))
    return runs


def median_time(runs: list[Epochs], goal: Goal) -> tuple[float | None, int | None]:
    """Return the median seconds and the number of epochs until a goal is reached."""
    found = [own.first(goal(own)) for own in runs]
    seconds = [own for own, _ in found if own is not None]
    return (float(np.median(seconds)) if seconds else None), found[0][1]


def figure_summary(names: list[str]) -> None:
    """Record the medians over C of Walrus's time / Shark's, for the present instruction set."""
    rows = Table("walrus-figure", "data", "C", "until").read()
    rows = [row for row in rows if row["simd"] == _core.SIMD]
    table = Table("walrus-figure-medians", "data")
    for name in names:
        own = [row for row in rows if row["data"] == name]
        ratios_of_gaps = [float(row["first_gap_ratio"]) for row in own]
        cells: dict[str, Any] = {
            "first_gap_ratio_min": min(ratios_of_gaps),
            "first_gap_ratio_max": max(ratios_of_gaps),
        }
        for until in dict.fromkeys(row["until"] for row in own):
            ratios = [float(r["ratio"]) for r in own if r["until"] == until and r["ratio"]]
            key = until.replace("gap 0.", "at_")
            cells[key] = float(np.median(ratios)) if ratios else None
            cells[f"{key}_reached"] = len(ratios)
        table.add(data=name, rows=own[0]["rows"], classes=own[0]["classes"], **cells)


def early(names: list[str]) -> None:
    """Record the accuracy, over C, of fits that stop at delta times their first gap."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    table = Table("walrus-early", "data", "delta")
    for name in names or SETS[:-1]:
        X, y, n_test = data(name)
        kept = np.random.default_rng(0).permutation(len(y) - n_test)[:ROWS]
        X, y = X[kept], y[kept]
        folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
        for delta in DELTAS[1:]:
            start, means = time.perf_counter(), []
            for C in CS:
                scores = [
                    _stopped(X[train], y[train], C, delta).score(X[test], y[test])
                    for train, test in folds
                ]
                means.append(float(np.mean(scores)))
            best = int(np.argmax(means))
            table.add(
                data=name,
                delta=delta,
                rows=len(y),
                C=CS[best],
                accuracy=100 * means[best],
                worst_C=100 * min(means),
                seconds=time.perf_counter() - start,
            )


def _stopped(X: Any, y: Any, C: float, delta: float, **options: Any) -> MulticlassSVC:
    """Fit until the gap is delta times the gap after one epoch from W = 0."""
    options |= {"fit_intercept": False, "max_iter": 1, "random_state": 0}
    model = MulticlassSVC("weston-watkins", C=C, **options)
    first = model.fit(X, y).duality_gap_

    def stop(_: int, __: float, objective: float, dual: float) -> bool:
        return objective - dual <= delta * first

    # A fit with a large C may first solve for smaller C, as far as `tol` requires.
    tol = delta * first / model.objective_
    return model.set_params(max_iter=1000, tol=tol, callback=stop).fit(X, y)


def subproblem(_: list[str]) -> None:
    """Solve min 1/2 b'(I + 11')b - v'b, 0 <= b <= 1, by Clarabel and by a fit of one row."""
    import clarabel

    table = Table("walrus-clarabel-subproblem", "k")
    rows = Table("walrus", "k").read()
    ours = {row["k"]: row for row in rows if row["simd"] == _core.SIMD}
    if not ours:
        print("subproblem: skipped; run cargo bench --bench walrus and criterion.py first")
        return
    for k in (10, 100, 1000):
        m, times, worst = k - 1, [], 0.0
        for seed in range(5):
            v = np.random.default_rng(seed).uniform(0, 2, m)
            # The sum is a separate variable, which keeps the Hessian sparse.
            P = sp.csc_matrix(sp.diags(np.ones(k)))
            sums = sp.csc_matrix(np.r_[np.ones(m), -1.0][None])
            bounds = sp.hstack([sp.vstack([-sp.eye(m), sp.eye(m)]), sp.csc_matrix((2 * m, 1))])
            A = sp.csc_matrix(sp.vstack([sums, bounds]))
            b = np.r_[0.0, np.zeros(m), np.ones(m)]
            cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * m)]
            found, seconds = _clarabel(P, np.r_[-v, 0.0], A, b, cones)
            times.append(seconds)
            costs = np.r_[0.0, v][None]
            loss = Loss("weston-watkins", costs=np.vstack([costs, np.zeros((m, k))]), per_row=True)
            model = MulticlassSVC(loss, C=1.0, fit_intercept=False, tol=1e-12)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                weights = np.r_[1.0, np.zeros(m)]
                model.fit(np.ones((k, 1)), np.arange(k), sample_weight=weights)
            value = -model.dual_objective_
            worst = max(worst, abs(found - value) / abs(value))
        clock = float(np.median(times))
        search, sweep = (float(ours[str(k)][name]) for name in ("search", "sorted_sweep"))
        table.add(
            k=k,
            clarabel=clock,
            ours=search,
            ratio=clock / search,
            sorted_sweep=sweep,
            ratio_sweep=clock / sweep,
            difference=worst,
        )


def whole(_: list[str]) -> None:
    """Solve Weston-Watkins problems by Clarabel, and by block descent to the same accuracy."""
    import clarabel

    table = Table("walrus-clarabel", "rows", "classes")
    for n, d, k in ((50, 10, 5), (200, 10, 5), (200, 20, 20), (500, 20, 20)):
        rng = np.random.default_rng(0)
        y = np.arange(n) % k
        X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
        slack, weights = n * (k - 1), k * d
        others = np.array([[j for j in range(k) if j != label] for label in y])
        row = np.repeat(np.arange(slack), d)
        example = np.repeat(np.arange(n), k - 1)
        at = np.arange(d)
        right = (y[example][:, None] * d + at).ravel()
        wrong = (others.ravel()[:, None] * d + at).ravel()
        values = X[example].ravel()
        margins = sp.csc_matrix((-values, (row, right)), shape=(slack, weights))
        margins += sp.csc_matrix((values, (row, wrong)), shape=(slack, weights))
        eye = sp.eye(slack)
        A = sp.bmat([[margins, -eye], [None, -eye]], format="csc")
        b = np.r_[-np.ones(slack), np.zeros(slack)]
        P = sp.csc_matrix(sp.block_diag([sp.eye(weights), sp.csc_matrix((slack, slack))]))
        q = np.r_[np.zeros(weights), np.ones(slack)]
        cones = [clarabel.NonnegativeConeT(2 * slack)]
        model = MulticlassSVC("weston-watkins", fit_intercept=False, tol=1e-6, random_state=0)
        optima: list[float] = []

        def theirs(
            P: Any = P, q: Any = q, A: Any = A, b: Any = b, cones: Any = cones, optima: Any = optima
        ) -> float:
            value, seconds = _clarabel(P, q, A, b, cones)
            optima.append(value)
            return seconds

        def ours(X: Any = X, y: Any = y, model: Any = model) -> float:
            return float(model.fit(X, y).history_["seconds"][-1])

        mine, clock, ratio = paired(ours, theirs, repeats=3)
        table.add(
            rows=n,
            classes=k,
            features=d,
            ours=mine,
            clarabel=clock,
            ratio=ratio,
            gap=model.relative_gap_,
            difference=n * model.objective_ / optima[0] - 1.0,
        )


def program(names: list[str]) -> None:
    """Compare with the authors' program: seconds of one thread until delta times the first gap."""
    table = Table("walrus-program", "data", "C", "delta")
    for name in names or SETS:
        X, y, n_test = data(name)
        X, y = X[: len(y) - n_test], y[: len(y) - n_test]
        with tempfile.NamedTemporaryFile(suffix=".svm") as file:
            dump_svmlight_file(X, y + 1, file.name, zero_based=False)
            for C in (2.0**-6, 1.0, 8.0):
                for delta in DELTAS[1:]:
                    words = {"{rows}": file.name, "{C}": f"{C:g}", "{delta}": f"{delta:g}"}
                    command = [words.get(w, w) for w in shlex.split(os.environ["WALRUS"])]
                    text = subprocess.run(command, check=True, capture_output=True, text=True)
                    theirs = float(text.stdout.split()[-1])
                    cells = {}
                    for dtype in ("float64", "float32"):
                        model = _stopped(X.astype(dtype), y, C, delta, n_jobs=1)
                        cells[dtype] = model.history_["seconds"][-1]
                        cells[f"{dtype}_ratio"] = theirs / cells[dtype]
                    table.add(data=name, C=C, delta=delta, program=theirs, **cells)


def _clarabel(P: Any, q: Any, A: Any, b: Any, cones: Any) -> tuple[float, float]:
    """Return the optimum and seconds, including set-up."""
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    start = time.perf_counter()
    solution = clarabel.DefaultSolver(sp.triu(P, format="csc"), q, A, b, cones, settings).solve()
    return float(solution.obj_val), time.perf_counter() - start


def main() -> None:
    # After a generated set, all results go elsewhere, so the commands without data sets come first.
    commands = {
        command.__name__: command for command in (subproblem, whole, figure, early, program)
    }
    for name in sys.argv[1:2] or commands:
        if name in ("subproblem", "whole") and importlib.util.find_spec("clarabel") is None:
            print(f"{name}: skipped; it needs Clarabel (pip install clarabel)")
        elif name == "program" and "WALRUS" not in os.environ:
            print("program: skipped; set WALRUS to a command for the authors' program")
        else:
            commands[name](sys.argv[2:])


if __name__ == "__main__":
    main()
