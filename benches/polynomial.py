"""Polynomial networks as classifiers: Table 2 and Figure 3 of the paper, fits, predictions.

    python benches/polynomial.py table [data sets] [--seeds 5] [--methods substring]
    python benches/polynomial.py figure [data sets] [--seeds 5]
    python benches/polynomial.py seconds
    python benches/polynomial.py refits
    python benches/polynomial.py memory
    python benches/polynomial.py predict
    python benches/polynomial.py speed [letter satimage]
    python benches/polynomial.py wide

Data sets in the folder DUALGAP_DATA (`<name>.npz`): vowel, segment, satimage, letter, and
news20_tfidf for "wide". Training and test rows are joined, then split at random: 50/25/25 % for
training, validation and test. First, networks of 50 bases are fitted for four radii, half a decade
apart, and the validation rows choose the radius. Then the validation rows choose the number of
bases at this radius, up to 150.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _data import split
from _record import Table, anonymous_memory, sampled_memory
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC, LinearSVC
from support.projected_gradient import RandomStart

from dualgap import Chunks, FactorizationMachineClassifier, PolynomialNetworkClassifier

NAMES = ["vowel", "segment", "satimage", "letter"]
PENALTIES = ["l1", "l1/l2", "l1/linf"]
RADII = [30.0, 100.0, 300.0, 1000.0]
COSTS = [1.0, 10.0, 100.0, 1000.0]
FEW, BASES = 50, 150


def load(name: str, seed: int) -> list[tuple[Any, Any]]:
    """Split the rows into training, validation and test rows."""
    X_train, y_train, X_test, y_test = split(name)
    X = np.concatenate([X_train, X_test])
    y = np.unique(np.concatenate([y_train, y_test]), return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(y))
    bounds = len(y) // 2, len(y) * 3 // 4
    return [(X[part], y[part]) for part in np.split(order, bounds)]


def network(**parameters: Any) -> PolynomialNetworkClassifier:
    defaults = {"linear": "augment", "random_state": 0, "max_iter": 100, "tol": 1e-3}
    return PolynomialNetworkClassifier(**{**defaults, **parameters})


def radii(name: str) -> list[float]:
    return [300.0, 1000.0, 3000.0, 10000.0] if name == "letter" else RADII


def best(models: list[Any], held_out: tuple[Any, Any]) -> Any:
    return max(models, key=lambda model: model.score(*held_out))


@functools.cache
def chosen_radius(name: str, seed: int, penalty: str, refit: str) -> float:
    """Return the radius whose network of few bases is best on the validation rows."""
    train, held_out, _ = load(name, seed)
    models = [
        network(n_components=FEW, penalty=penalty, reoptimize=refit, radius=radius).fit(
            *train, validation_data=held_out
        )
        for radius in radii(name)
    ]
    return float(best(models, held_out).radius)


def multi_output(name: str, seed: int, penalty: str, refit: str, watch: int = 1) -> Any:
    """Fit a network at the chosen radius; keep the number of bases that is best on part `watch`.

    Part 1 holds the validation rows, part 2 the test rows. They do not change the steps of the fit.
    """
    rows = load(name, seed)
    shared = {"n_components": BASES, "max_iter": BASES, "penalty": penalty, "reoptimize": refit}
    model = network(radius=chosen_radius(name, seed, penalty, refit), **shared)
    return model.fit(*rows[0], validation_data=rows[watch])


def sized(name: str, seed: int, penalty: str, refit: str) -> tuple[float, int]:
    model = multi_output(name, seed, penalty, refit)
    return model.score(*load(name, seed)[2]), len(model.components_)


def one_vs_rest(name: str, seed: int, refit: str) -> tuple[float, int]:
    """Fit a single-output network for each class, all with one radius.

    The networks of all classes together have as many bases as the multi-output network may have.
    The validation rows choose the number for each class.
    """
    (X, y), held_out, test = load(name, seed)
    n_classes = int(y.max()) + 1
    shared: dict[str, Any] = {"loss": "binary-logistic", "reoptimize": refit}
    shared["n_components"] = round(BASES / n_classes)
    fits = [
        [
            network(radius=radius, random_state=c, **shared).fit(
                X, y == c, validation_data=(held_out[0], held_out[1] == c)
            )
            for c in range(n_classes)
        ]
        for radius in radii(name)
    ]

    def score(models: list[Any], rows: tuple[Any, Any]) -> float:
        outputs = np.column_stack([model.decision_function(rows[0]) for model in models])
        return float((outputs.argmax(axis=1) == rows[1]).mean())

    models = max(fits, key=lambda models: score(models, held_out))
    return score(models, test), sum(len(model.components_) for model in models)


def random_start(name: str, seed: int) -> tuple[float, int]:
    """Run projected gradient (FISTA) from a random basis, with a fixed number of bases."""
    (X, y), held_out, test = load(name, seed)
    models = [RandomStart(FEW, radius).fit(X, y) for radius in radii(name)]
    return best(models, held_out).score(*test), FEW


def other(make: Callable[[float], Any], name: str, seed: int) -> tuple[float, int]:
    train, held_out, test = load(name, seed)
    model = best([make(cost).fit(*train) for cost in COSTS], held_out)
    size = len(model.support_) if isinstance(model, SVC) else 0
    return model.score(*test), size


def logistic(cost: float) -> Any:
    return LogisticRegression(C=cost, max_iter=300)


def quadratic(cost: float) -> SVC:
    return SVC(C=cost, kernel="poly", degree=2, gamma=1.0, coef0=1.0)


def nystroem(cost: float, size: int = FEW) -> Any:
    features = Nystroem("poly", degree=2, gamma=1.0, coef0=1.0, n_components=size, random_state=0)
    return make_pipeline(features, logistic(cost))


Method = Callable[[str, int], tuple[float, int]]


def methods() -> dict[str, Method]:
    """Map the name of each method to a function of a data set and a seed."""
    table: dict[str, Method] = {}
    for refit in ["output", "full"]:
        for penalty in PENALTIES:
            table[f"{penalty}, {refit} refit"] = functools.partial(
                sized, penalty=penalty, refit=refit
            )
    table["projected gradient, random start"] = random_start
    for refit in ["output", "full"]:
        table[f"one-vs-rest, {refit} refit"] = functools.partial(one_vs_rest, refit=refit)
    table["linear logistic regression"] = functools.partial(other, logistic)
    table["quadratic-kernel SVM"] = functools.partial(other, quadratic)
    for size in (FEW, BASES):
        make = functools.partial(nystroem, size=size)
        table[f"Nyström, {size}"] = lambda name, seed, make=make, size=size: (
            other(make, name, seed)[0],
            size,
        )
    return table


def table(names: list[str], seeds: int, chosen: str) -> None:
    results = Table("polynomial-table", "data", "method")
    for name in names:
        for method, run in methods().items():
            if chosen not in method:
                continue
            start = time.perf_counter()
            accuracy, size = np.array([run(name, seed) for seed in range(seeds)]).T
            seconds = (time.perf_counter() - start) / seeds
            error = accuracy.std(ddof=1) / seeds**0.5 if seeds > 1 else np.nan
            results.add(
                data=name,
                method=method,
                splits=seeds,
                accuracy=100 * accuracy.mean(),
                error=100 * error,
                bases=size.mean(),
                seconds=seconds,
            )


def curve(name: str, seed: int, penalty: str) -> Any:
    """Return the test accuracy for each number of bases."""
    history = multi_output(name, seed, penalty, "output", watch=2).history_
    sizes = np.maximum.accumulate(history["n_components"])
    first = np.searchsorted(sizes, range(1, BASES + 1))
    return history["validation_score"][np.minimum(first, len(sizes) - 1)]


def figure(names: list[str], seeds: int) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    results = Table("polynomial-figure", "data", "penalty")
    _, axes = pyplot.subplots(1, len(names), figsize=(5 * len(names), 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for penalty in PENALTIES:
            curves = 100 * np.array([curve(name, seed, penalty) for seed in range(seeds)])
            accuracy = curves.mean(axis=0)
            errors = curves.std(axis=0, ddof=1) / seeds**0.5 if seeds > 1 else 0 * accuracy
            axis.plot(range(1, BASES + 1), accuracy, label=penalty)
            shown = {}
            for k in (5, 10, 20, 50, 75, 100, 150):
                shown |= {f"bases_{k}": accuracy[k - 1], f"error_{k}": errors[k - 1]}
            results.add(data=name, penalty=penalty, splits=seeds, **shown)
        for label, make, style in [
            ("quadratic-kernel SVM", quadratic, "--"),
            (f"Nyström, {FEW}", nystroem, "-."),
            ("linear", logistic, ":"),
        ]:
            level = np.mean([other(make, name, seed)[0] for seed in range(seeds)])
            axis.axhline(100 * level, color="gray", linestyle=style, label=label)
        axis.set(title=name, xlabel="maximum number of basis vectors", ylabel="test accuracy (%)")
    axes[0, 0].legend()
    pyplot.tight_layout()
    pyplot.savefig(Path(__file__).with_suffix(".png"), dpi=80)


def seconds() -> None:
    """Time fits of 10,000 rows of letter (settings chosen on 5,000 other rows) and predictions."""
    (X, y), held_out, test = load("letter", 0)
    many = np.tile(X, (100, 1))

    def products(cost: float) -> Any:
        return make_pipeline(PolynomialFeatures(2), LinearSVC(C=cost, dual=False))

    results = Table("polynomial-seconds", "model")
    for name, make, choices in [
        (
            "PolynomialNetworkClassifier(50, reoptimize='output')",
            lambda radius: network(n_components=50, radius=radius, reoptimize="output"),
            radii("letter"),
        ),
        (
            "PolynomialNetworkClassifier(50, reoptimize='full')",
            lambda radius: network(n_components=50, radius=radius, reoptimize="full"),
            radii("letter"),
        ),
        ("LinearSVC on PolynomialFeatures", products, COSTS[:2]),
        ("LogisticRegression", logistic, COSTS),
        ("SVC, quadratic kernel", quadratic, COSTS),
    ]:
        choice = max(choices, key=lambda choice: make(choice).fit(X, y).score(*held_out))
        model = make(choice)
        start = time.perf_counter()
        model.fit(X, y)
        fitted = time.perf_counter()
        # The kernel SVM gets fewer rows, because it is slow.
        rows = many[:10_000] if isinstance(model, SVC) else many[:1_000_000]
        model.predict(rows)
        rate = len(rows) / (time.perf_counter() - fitted)
        sizes = {"components_": "bases", "support_": "support vectors"}
        size = [
            f"{len(getattr(model, kind))} {of}"
            for kind, of in sizes.items()
            if hasattr(model, kind)
        ]
        results.add(
            model=name,
            setting=f"{choice:g}",
            seconds=fitted - start,
            accuracy=100 * model.score(*test),
            size=" ".join(size),
            rows_per_second=rate,
        )


def refits() -> None:
    """Record seconds and objective of single fits, to compare implementations of refits."""
    results = Table("polynomial-refits", "data", "refit")
    for name, refit, bases, radius in [
        ("vowel", "full", 30, 100.0),
        ("satimage", "full", 20, 100.0),
        ("satimage", "output", 20, 100.0),
        ("letter", "output", 15, 1000.0),
    ]:
        X, y = load(name, 0)[0]
        model = network(n_components=bases, radius=radius, reoptimize=refit, n_jobs=1)
        start = time.perf_counter()
        model.fit(X, y)
        passed = time.perf_counter() - start
        results.add(
            data=name,
            refit=refit,
            bases=bases,
            radius=f"{radius:g}",
            seconds=passed,
            objective=model.objective_,
        )


def wide() -> None:
    """Fit news20: 11,314 sparse rows, 56,438 features, 20 classes, three bases, both refits."""
    X, y, *held_out = split("news20")
    results = Table("polynomial-wide", "bases", "refit")
    for refit in ("output", "full"):
        model = PolynomialNetworkClassifier(3, reoptimize=refit, random_state=0, n_jobs=2)
        start = time.perf_counter()
        model.fit(X, y)
        results.add(
            bases=3,
            refit=refit,
            seconds=time.perf_counter() - start,
            objective=model.objective_,
            relative_gap=model.relative_gap_,
            accuracy=100 * model.score(*held_out),
        )


def speed(names: list[str]) -> None:
    """Record seconds and test accuracy, with the radius chosen on a fifth of the training rows.

    If modern-fm is installed, also fit its factorization machine with about the same number of
    parameters.
    """
    results = Table("polynomial-speed", "data", "model")
    for name in names:
        X, y, *test = split(name)
        order = np.random.default_rng(1).permutation(len(y))
        inside, outside = np.split(order, [len(y) * 4 // 5])
        bases = 50 if name == "letter" else 20
        for model, make in speed_models(bases, X.shape[1], len(np.unique(y))).items():
            choices = [(make(radius), radius) for radius in [*RADII[1:], 3000.0]]
            if model == "modern-fm":
                choices = choices[:1]
            scores = [m.fit(X[inside], y[inside]).score(X[outside], y[outside]) for m, _ in choices]
            chosen, radius = choices[int(np.argmax(scores))]
            start = time.perf_counter()
            chosen.fit(X, y)
            passed = time.perf_counter() - start
            results.add(
                data=name,
                model=model,
                radius=None if model == "modern-fm" else f"{radius:g}",
                seconds=passed,
                accuracy=chosen.score(*test),
                relative_gap=getattr(chosen, "relative_gap_", None),
            )


def speed_models(bases: int, d: int, m: int) -> dict[str, Callable[[float], Any]]:
    """Map the name of each model to a function that creates it for a radius."""
    models: dict[str, Callable[[float], Any]] = {}
    for short, kind in [
        ("factorization machine", FactorizationMachineClassifier),
        ("network", PolynomialNetworkClassifier),
    ]:
        for refit in ("full", "output"):
            models[f"{short}, {refit} refit"] = lambda radius, kind=kind, refit=refit: kind(
                bases, radius=radius, reoptimize=refit, random_state=0, n_jobs=2
            )
    try:
        from modern_fm import FMClassifier
    except ImportError:
        return models
    factors = round(bases * (d + m) / (d * m))
    models["modern-fm"] = lambda _: FMClassifier(
        n_factors=factors, random_state=0, n_jobs=1, dtype="float32"
    )
    return models


def memory(n: int = 2_000_000) -> None:
    """Measure the peak anonymous memory of a fit on rows in temporary files."""
    rng = np.random.default_rng(0)

    def chunks() -> Iterator[tuple[Any, Any]]:
        for _ in range(20):
            X = rng.normal(size=(n // 20, 50))
            yield X, (X[:, 0] * X[:, 1] > 0) + (X[:, 2] * X[:, 3] > 0)

    with tempfile.TemporaryDirectory() as folder:
        network().fit(
            rng.normal(size=(100, 50)), np.arange(100) % 3
        )  # warm-up: threads and imports
        before = anonymous_memory()
        rows, y = Chunks.from_pairs(chunks(), spill=folder)
        with sampled_memory() as samples:
            network(n_components=5, reoptimize="output", max_iter=6).fit(rows, y)
        size = sum(chunk.nbytes for chunk in rows.chunks)
        Table("polynomial-memory").add(
            rows_mb=size / 1e6, peak_mb=(max(samples) - before) / 1e3, doubles_mb=8 * 3 * n / 1e6
        )


def predict() -> None:
    """Measure predicted rows per second of a model with 50 bases and 26 classes."""
    rng = np.random.default_rng(0)
    results = Table("polynomial-predict", "rows", "dtype")
    for kind, d, density in [("dense", 16, 1.0), ("CSR", 1000, 0.02)]:
        for dtype in (np.float64, np.float32):
            X: Any = rng.normal(size=(200_000, d)) if density == 1.0 else None
            if X is None:
                X = sp.random_array((200_000, d), density=density, random_state=0, format="csr")
            X = X.astype(dtype)
            y = np.arange(520) % 26
            model = network(n_components=50, reoptimize="output", max_iter=1).fit(X[:520], y)
            width = model.components_.shape[1]
            model.components_ = rng.normal(size=(50, width)) / width**0.5
            model.output_ = rng.normal(size=(50, 26))
            rates = []
            for threads in (1, 2):
                model.set_params(n_jobs=threads)
                times = []
                for _ in range(3):
                    start = time.perf_counter()
                    model.predict(X)
                    times.append(time.perf_counter() - start)
                rates.append(X.shape[0] / np.median(times))
            results.add(
                rows=f"{kind}, {d} features",
                dtype=np.dtype(dtype).name,
                rows_per_second_1=rates[0],
                rows_per_second_2=rates[1],
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = ["table", "figure", "seconds", "refits", "memory", "predict", "speed", "wide"]
    parser.add_argument("command", nargs="?", choices=commands, default="predict")
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default="", help="part of the methods' names")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.command == "table":
        table(arguments.names, arguments.seeds, arguments.methods)
    elif arguments.command == "figure":
        figure(arguments.names, arguments.seeds)
    elif arguments.command == "speed":
        speed([name for name in arguments.names if name in ("letter", "satimage")])
    else:
        {"seconds": seconds, "refits": refits, "memory": memory, "predict": predict, "wide": wide}[
            arguments.command
        ]()


if __name__ == "__main__":
    main()
