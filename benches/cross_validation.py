"""Choice of C: MulticlassSVCCV, GridSearchCV over LIBLINEAR, and LogisticRegressionCV.

    python benches/cross_validation.py compare [data sets] [--programs dualgap,liblinear,logistic]
        [--limit 900]
    python benches/cross_validation.py scores [data sets] [--up-to 1000]
    python benches/cross_validation.py bounds [data sets] [--alone]
    python benches/cross_validation.py trials [--count 1000]

`compare` searches 13 values of C from 1e-3 to 1e3 with the same five stratified folds, without
intercept. Programs use two threads or processes, which start before the measurement. Times include
the final fit. Other programs run with max_iter=1000, which LIBLINEAR reaches at large C. `seconds`
is wall time; `cpu`, the processor time of all processes, is less affected by other work on the
machine. A program is stopped after `--limit` processor seconds; its row then has ">" and the limit.
Data sets: those of block_descent.py, with only the first 10,000 rows of mnist; generated sets
replace missing files.

`scores` records LIBLINEAR's mean score for each C up to `--up-to`, in one process and without a
limit; it skips scores that are already recorded.

`bounds` records the width of the bounds at the chosen C. With `--alone`, it fits only the C that an
earlier `bounds` run recorded for the data set.

`trials` checks bounds on scores, and rows whose class is reported as certain, on small random
problems, by fits to a gap of 1e-11.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from _data import FILES, path_of
from _record import Table
from block_descent import load
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVCCV
from dualgap._tuning.search import choose

NAMES = ["dna", "satimage", "news20", "letter", "mnist"]
CS = np.logspace(-3, 3, 13)
REPEATS = {"dualgap": 3, "liblinear": 1, "logistic": 1}

# The best C, and the mean score for each C.
Found = tuple[float, Any]


def rows_of(name: str) -> tuple[Any, Any, list[Any]]:
    X, y = load(name)
    X, y = X[:10_000] if name == "mnist" else X, y[:10_000] if name == "mnist" else y
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(np.zeros(len(y)), y)
    return X, y, list(folds)


def dualgap(X: Any, y: Any, folds: Any) -> Found:
    model = MulticlassSVCCV(Cs=CS, cv=folds, fit_intercept=False, random_state=0, n_jobs=2)
    model.fit(X, y)
    return model.C_, model.mean_score_


def liblinear(X: Any, y: Any, folds: Any) -> Found:
    svm = LinearSVC(multi_class="crammer_singer", fit_intercept=False, random_state=0)
    search = GridSearchCV(svm, {"C": CS}, cv=folds, n_jobs=2).fit(X, y)
    return search.best_params_["C"], search.cv_results_["mean_test_score"]


def logistic(X: Any, y: Any, folds: Any) -> Found:
    model = LogisticRegressionCV(
        Cs=CS, cv=folds, fit_intercept=False, max_iter=1000, random_state=0, n_jobs=2
    ).fit(X, y)
    scores = next(iter(model.scores_.values()))
    return float(np.ravel(model.C_)[0]), scores.mean(axis=0)


PROGRAMS: dict[str, Callable[[Any, Any, Any], Found]] = {
    "dualgap": dualgap,
    "liblinear": liblinear,
    "logistic": logistic,
}


def timed(work: Callable[[Any, Any, Any], Found], *data: Any) -> tuple[float, float, Found]:
    """Return seconds, processor seconds and result of a search; the workers start before it."""
    Parallel(n_jobs=2)(delayed(time.sleep)(0.5) for _ in range(2))

    def processor() -> float:
        usages = [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    began, start = processor(), time.perf_counter()
    found = work(*data)
    seconds = time.perf_counter() - start
    get_reusable_executor().shutdown(wait=True)
    return seconds, processor() - began, found


def limited(name: str, program: str, limit: float) -> dict[str, Any]:
    """Run a search in a separate process, and stop it at the limit of processor seconds."""
    command = [sys.executable, __file__, "run", name, "--programs", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            time.sleep(1.0)
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [process, *process.children(recursive=True)]
                times = [member.cpu_times() for member in family]
                used = sum(t.user + t.system for t in times)
                if used > limit:
                    for member in reversed(family):
                        member.kill()
                    return {"cpu": f"> {limit:.0f}"}
        assert child.stdout is not None
        found: dict[str, Any] = json.loads(child.stdout.read().splitlines()[-1])
        return found


def run(name: str, program: str) -> None:
    X, y, folds = rows_of(name)
    runs = [timed(PROGRAMS[program], X, y, folds) for _ in range(REPEATS[program])]
    (C, scores), clocks = runs[0][2], np.array([run[:2] for run in runs])
    seconds, cpu = np.median(clocks, axis=0)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "C": C, "score": float(np.max(scores))}))


def compare(names: list[str], programs: list[str], limit: float) -> None:
    table = Table("cross-validation", "data", "program")
    for name in names:
        if name in FILES:
            path_of(name)  # if there is no file, results go elsewhere
        for program in programs:
            found = limited(name, program, limit)
            if program != "dualgap":
                found["simd"] = ""
            table.add(data=name, program=program, **found)


def scores(names: list[str], up_to: float) -> None:
    """Record LIBLINEAR's score for each C, and how many fits reached the limit of epochs."""
    table = Table("cross-validation-scores", "data", "C")
    for name in names:
        X, y, folds = rows_of(name)
        done = {float(row["C"]) for row in table.read() if row["data"] == name}
        for C in CS[up_to >= CS]:
            if not np.isclose(C, list(done), rtol=1e-4).any():
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always", ConvergenceWarning)
                    svm = LinearSVC(
                        C=C, multi_class="crammer_singer", fit_intercept=False, random_state=0
                    )
                    found = cross_val_score(svm, X, y, cv=folds, n_jobs=1)
                table.add(data=name, C=C, score=found.mean(), unfinished=len(said))


def bounds(names: list[str], alone: bool) -> None:
    """Record the width of the bounds at the chosen C, by default and with `bounds`."""
    table = Table("cross-validation-bounds", "data", "asked")
    for name in names:
        data = rows_of(name)
        if alone:
            known = [row for row in table.read() if row["data"] == name]
            if not known:
                raise SystemExit(f"{name}: run bounds without --alone first")
            found = bounded(name, data, 0.01, [float(known[0]["C"])])
            table.add(data=name, asked="0.01 at C alone", **found)
            continue
        for asked in (None, 0.01):
            row = bounded(name, data, asked, CS)
            table.add(data=name, asked=asked or "as they come", **row)


def bounded(name: str, data: Any, asked: float | None, Cs: Any) -> dict[str, Any]:
    """Run one search, and return its bounds at the chosen C."""
    X, y, folds = data
    start = time.perf_counter()
    model = MulticlassSVCCV(
        Cs=Cs, cv=folds, bounds=asked, fit_intercept=False, max_iter=LIMITS.get(name, 300),
        refit=False, random_state=0, n_jobs=2,
    ).fit(X, y)  # fmt: skip
    seconds = time.perf_counter() - start
    at = int(np.searchsorted(model.Cs_, model.C_))
    simple = choose(model.scores_, "one-standard-error")
    lower, upper = model.mean_score_bounds_.T
    results = model.cv_results_
    gaps = (results["objective"] - results["dual_objective"]) / results["objective"]
    return {
        "seconds": seconds, "C": model.C_, "score": model.best_score_,
        "lower": lower[at], "upper": upper[at], "width": upper[at] - lower[at],
        "gap": gaps[:, at].mean(), "possible": int((upper >= lower.max()).sum()),
        "narrow": int((upper - lower <= 0.01).sum()),
        "undecided": results["n_undecided"][:, at].sum() / len(y),
        "simple_C": model.Cs_[simple], "simple_width": upper[simple] - lower[simple],
    }  # fmt: skip


# Maximum number of epochs with `bounds`.
LIMITS = {"satimage": 1000, "dna": 1000, "news20": 25}


def trials(count: int) -> None:
    """Check the bounds on random problems whose optimum is known."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python/multiclass"))
    from score_trials import trial

    outcomes = [trial(seed) for seed in range(count)]
    sums = np.array(outcomes).sum(axis=0)
    names = ("scores", "outside", "rows", "decided", "changed")
    table = Table("cross-validation-trials", "trials")
    table.add(trials=count, **dict(zip(names, map(int, sums), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ["compare", "run", "scores", "bounds", "trials"]
    parser.add_argument("what", nargs="?", default="trials", choices=parts)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=900)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--up-to", type=float, default=1e3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "trials":
        return trials(arguments.count)
    if arguments.what == "compare":
        return compare(arguments.names, arguments.programs.split(","), arguments.limit)
    if arguments.what == "run":
        return run(arguments.names[0], arguments.programs)
    if arguments.what == "scores":
        return scores(arguments.names, arguments.up_to)
    return bounds(arguments.names, arguments.alone)


if __name__ == "__main__":
    main()
