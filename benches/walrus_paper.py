"""Tables and figures of Wang and Scott (2021).

    python benches/walrus_paper.py figure [data sets]   # Figure 2: ten C, three delta
    python benches/walrus_paper.py early [data sets]    # Table 7: delta 0.01 and 0.001 in CV
    python benches/walrus_paper.py subproblem           # Tables 8 and 9: Clarabel on (4)
    python benches/walrus_paper.py whole                # Clarabel on whole problems

Data sets are .npz files in the folder DUALGAP_DATA; "many" is generated (1000 classes).
Clarabel comes from PyPI (pip install clarabel).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, paired
from block_descent import load
from sklearn.model_selection import StratifiedKFold

from dualgap import MulticlassSVC
from dualgap.losses import Loss

CS = [2.0**k for k in range(-6, 4)]
DELTAS = ("0.1", "0.01", "0.001")
# Maximum number of rows, and maximum seconds of a run of the figure.
ROWS, LIMIT = 4000, 4


def data(name: str) -> tuple[Any, Any]:
    if name == "many":
        rng = np.random.default_rng(0)
        centres, y = rng.random((1000, 128)), np.arange(2000) % 1000
        X = np.abs(centres[y] + 0.35 * rng.normal(size=(2000, 128)))
    else:
        X, y = load(name)
        order = np.random.default_rng(0).permutation(len(y))[:ROWS]
        X, y = X[order], y[order]
    return X / np.abs(X).max(), np.unique(y, return_inverse=True)[1]


def figure(names: list[str]) -> None:
    """Measure seconds until the gap is delta times the first gap, with Walrus and with Shark."""
    table = Table("walrus-figure", "data", "C", "delta")
    build = ["cargo", "build", "--quiet", "--release", "--example", "shark"]
    subprocess.run(build, check=True)
    for name in names or ["vowel", "segment", "satimage", "dna", "letter", "news20", "many"]:
        X, y = data(name)
        with tempfile.TemporaryDirectory() as folder:
            files = _files(Path(folder), X, y)
            for C in CS:
                sizes = [str(X.shape[1]), str(y.max() + 1), str(C)]
                reached = {
                    inner: _shark([*files, *sizes, inner, str(LIMIT)])
                    for inner in ("walrus", "shark")
                }
                for delta in DELTAS:
                    walrus, shark = (reached[inner].get(delta) for inner in ("walrus", "shark"))
                    both = walrus is not None and shark is not None
                    ratio = walrus / shark if walrus and shark else None
                    table.add(
                        data=name,
                        C=C,
                        delta=delta,
                        rows=len(y),
                        classes=int(y.max()) + 1,
                        walrus=walrus,
                        shark=shark,
                        ratio=ratio if both else None,
                    )
    figure_summary()


def _files(folder: Path, X: Any, y: Any) -> list[str]:
    """Write rows (one file, or three if sparse) and labels in the format of the Rust example."""
    parts = {"X.f64": X.data, "columns.u32": X.indices, "bounds.u32": X.indptr}
    parts = parts if sp.issparse(X) else {"X.f64": X}
    for name, values in {**parts, "y.u32": y}.items():
        values.astype("<f8" if name.endswith("f64") else "<u4").tofile(folder / name)
    return [",".join(str(folder / name) for name in parts), str(folder / "y.u32")]


def figure_summary() -> None:
    """Record the medians over C of the ratios of Walrus's time to Shark's."""
    rows = Table("walrus-figure", "data", "C", "delta").read()
    table = Table("walrus-figure-medians", "data")
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        cells: dict[str, Any] = {}
        for delta in DELTAS:
            ratios = [float(r["ratio"]) for r in own if r["delta"] == delta and r["ratio"]]
            key = delta.replace("0.", "at_")
            cells[key] = float(np.median(ratios)) if ratios else None
            cells[f"{key}_reached"] = len(ratios)
        table.add(data=name, rows=own[0]["rows"], classes=own[0]["classes"], **cells)


def _shark(arguments: list[str]) -> dict[str, float]:
    command = ["target/release/examples/shark", *arguments]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: float(line.split()[1]) for line in out.splitlines()}


def early(names: list[str]) -> None:
    """Record the accuracy, over C, of fits that stop at delta times their first gap."""
    table = Table("walrus-early", "data", "delta")
    for name in names or ["vowel", "segment", "satimage", "dna"]:
        X, y = data(name)
        folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
        for delta in (0.01, 0.001):
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


def _stopped(X: Any, y: Any, C: float, delta: float) -> MulticlassSVC:
    first = []

    def stop(_: int, __: float, objective: float, dual: float) -> bool:
        first.append(objective - dual)
        return first[-1] <= delta * first[0]

    model = MulticlassSVC(
        "weston-watkins", C=C, fit_intercept=False, tol=0.0, callback=stop, random_state=0
    )
    return model.fit(X, y)


def subproblem(_: list[str]) -> None:
    """Solve min 1/2 b'(I + 11')b - v'b, 0 <= b <= 1, by Clarabel and by a fit of one row."""
    import clarabel

    table = Table("walrus-clarabel-subproblem", "k")
    ours = {row["k"]: float(row["search"]) for row in Table("walrus", "k").read()}
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
        own = ours.get(str(k))
        table.add(
            k=k, clarabel=clock, ours=own, ratio=clock / own if own else None, difference=worst
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


def _clarabel(P: Any, q: Any, A: Any, b: Any, cones: Any) -> tuple[float, float]:
    """Return the optimum and seconds, including set-up."""
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    start = time.perf_counter()
    solution = clarabel.DefaultSolver(sp.triu(P, format="csc"), q, A, b, cones, settings).solve()
    return float(solution.obj_val), time.perf_counter() - start


def main() -> None:
    commands = {"figure": figure, "early": early, "subproblem": subproblem, "whole": whole}
    wanted = sys.argv[1:2] or list(commands)
    for name in wanted:
        commands[name](sys.argv[2:])


if __name__ == "__main__":
    main()
