"""Seconds and memory of models with a thousand classes.

    python benches/many_classes.py probe [--rows 12811] [--dtypes float32 float64 float16]
    python benches/many_classes.py epochs
    python benches/many_classes.py wide

`probe` fits a linear probe of image features: 384 features and 1000 classes. A row is the centre of
its class plus .35 times normal noise, scaled to unit length. A Crammer-Singer model is fitted to a
relative gap of 1e-3 in a separate process. Memory is the increase of the peak resident size during
the fit; the row also has the estimate that `verbose=1` prints before the fit.

`epochs` fits Weston-Watkins and the top-5 hinge to 1000 classes (the generated data set "aloi" of
block_descent.py). It measures the seconds per epoch, and the seconds until the relative gap falls
to 0.01 times its value after the first epoch.

`wide` compares one and two threads on wide sparse rows: 20,000 rows, 200,000 columns, 60 entries in
a row, 200 classes. Fits of one epoch alternate between one and two threads.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, paired
from block_descent import core_seconds, load, svm

from dualgap import MulticlassSVC, _core
from dualgap._validation import core_rows
from dualgap.losses import TopK

FEATURES, CLASSES = 384, 1000


def features(n_rows: int, dtype: str) -> tuple[Any, Any]:
    """Generate the rows of the probe in blocks, to avoid a copy of all rows in another type."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True) / np.sqrt(FEATURES)
    y = np.arange(n_rows) % CLASSES
    X = np.empty((n_rows, FEATURES), dtype)
    for start in range(0, n_rows, 2000):
        block = slice(start, start + 2000)
        noise = rng.normal(size=(len(y[block]), FEATURES)).astype(np.float32)
        rows = centres[y[block]] + np.float32(0.35) * noise
        X[block] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return X, y


def megabytes() -> float:
    """Return the peak resident size of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def fit_alone(n_rows: int, dtype: str, n_jobs: int) -> None:
    """Fit in this process and print a row of the table."""
    X, y = features(n_rows, dtype)
    model = MulticlassSVC(
        "crammer-singer", fit_intercept=False, tol=1e-3, random_state=0, n_jobs=n_jobs
    )
    model.set_params(max_iter=1).fit(X[:100], y[:100])  # warm-up: loads libraries and fills caches
    model.set_params(max_iter=1000)
    settings, _ = model._settings(X, y.astype(np.uint32), None)
    plan = _core.plan_multiclass(core_rows(X), {**settings, "n_classes": CLASSES})
    _, weights, duals = plan
    before = megabytes()
    model.fit(X, y)
    row = {
        "rows": n_rows,
        "dtype": dtype,
        "threads": n_jobs,
        "data_mb": X.nbytes / 1e6,
        "estimate_mb": (weights + duals) / 1e6,
        "taken_mb": megabytes() - before,
        "seconds": model.history_["seconds"][-1],
        "epochs": model.n_iter_,
        "relative_gap": model.relative_gap_,
    }
    print(json.dumps(row))


def probe(n_rows: int, dtypes: list[str], repeats: int) -> None:
    table = Table("many-classes-probe", "rows", "dtype", "threads")
    for dtype in dtypes:
        for n_jobs in (1, 2):
            command = [sys.executable, __file__, "alone", str(n_rows), dtype, str(n_jobs)]
            runs = []
            for _ in range(repeats):
                ended = subprocess.run(command, capture_output=True, text=True, check=True)
                runs.append(json.loads(ended.stdout.splitlines()[-1]))
            runs.sort(key=lambda row: row["seconds"])
            table.add(**runs[len(runs) // 2])


def epochs() -> None:
    table = Table("many-classes-epochs", "loss", "dtype")
    X, y = load("aloi")
    for name, loss in (("weston-watkins", "weston-watkins"), ("top-5", TopK(5))):
        for dtype in ("float64", "float32"):
            rows = X.astype(dtype)
            first = svm(loss, max_iter=1, tol=0.0).fit(rows, y)
            tol = 0.01 * first.duality_gap_ / first.objective_
            row: dict[str, Any] = {}
            for n_jobs in (1, 2):
                seconds, model = core_seconds(
                    rows, y, loss=loss, tol=tol, max_iter=1000, n_jobs=n_jobs
                )
                row[f"seconds_{n_jobs}"] = seconds
                row[f"epoch_{n_jobs}"] = seconds / model.n_iter_
            table.add(loss=name, dtype=dtype, epochs=model.n_iter_, **row)


def wide() -> None:
    table = Table("many-classes-wide", "dtype")
    rng = np.random.default_rng(0)
    n_rows, n_columns, n_entries, n_classes = 20_000, 200_000, 60, 200
    y = np.arange(n_rows) % n_classes
    # Half of the entries are in the columns of the row's class.
    own = y[:, None] * 1000 + rng.integers(0, 1000, (n_rows, n_entries // 2))
    columns = np.hstack([own, rng.integers(0, n_columns, (n_rows, n_entries // 2))])
    places = np.repeat(np.arange(n_rows), n_entries), columns.ravel()
    X = sp.csr_array((rng.random(columns.size), places), shape=(n_rows, n_columns))
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)

        def run(n_jobs: int, rows: Any = rows) -> float:
            model = svm("crammer-singer", C=0.1, max_iter=1, n_jobs=n_jobs).fit(rows, y)
            return float(model.history_["seconds"][-1])

        run(1)
        one, two, ratio = paired(lambda: run(1), lambda: run(2))
        table.add(dtype=dtype, seconds_1=one, seconds_2=two, ratio=ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["probe", "epochs", "wide", "alone"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rows", type=int, default=12_811)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64", "float16"])
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.what == "alone":
        n_rows, dtype, n_jobs = chosen.arguments
        fit_alone(int(n_rows), dtype, int(n_jobs))
    elif chosen.what == "probe":
        probe(chosen.rows, chosen.dtypes, chosen.repeats)
    elif chosen.what == "wide":
        wide()
    else:
        epochs()


if __name__ == "__main__":
    main()
