"""Test errors of Frank-Wolfe and projected gradient (Tajima et al. 2020, Table 1).

    python benches/recognition.py [data sets] [--halves N] [--max-iter N]

The script follows the paper's protocol. It trains on a random half of the rows and tests on the
other half, 20 times (five times on letter and larger sets, three times on "mnist-random"). Each
method makes 1000 iterations with the weighted Usunier loss. For each method, two-fold
cross-validation on the first half chooses the C = 1/(n lambda) with the lowest top-1 error, and all
halves use this C. "optimum" is block descent to a gap of 1e-4, with C chosen in the same way.

Data sets: those of block_descent.py; "fashion", Fashion-MNIST; "ocr", the letters of the OCR words;
and "mnist-random", 4,096 random features of a Gaussian kernel on MNIST, in place of the paper's
features from deep networks. A small generated set replaces a missing file. Image sets are reduced
to 10,000 random rows, "mnist-random" to 3,000. Rows of images and news20 have unit length.

`p_value` compares a method's top-1 errors with the errors of LSFW on the same halves. Halves
overlap, so the variance of the mean difference is estimated as in Nadeau and Bengio (2003): as
(1/halves + 1) times the variance over the halves.
"""

from __future__ import annotations

import argparse
import gzip
import warnings
from typing import Any

import numpy as np
from _data import generated_words, path_of
from _record import Table
from block_descent import load
from multiclass import RANKS, falling, top_errors
from scipy.stats import t
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import normalize

from dualgap import MulticlassSVC
from dualgap.losses import WeightedUsunier

IMAGE_SETS = ("mnist", "mnist-random", "ocr", "fashion")
NAMES = ["vowel", "segment", "dna", "satimage", "letter", "news20", *IMAGE_SETS]
IMAGES, RANDOM_IMAGES, FEATURES = 10_000, 3_000, 4096
HALVES = {"letter": 5, "news20": 5, "mnist": 5, "ocr": 5, "fashion": 5, "mnist-random": 3}
CS = np.logspace(-2, 3, 6)
METHODS: dict[str, dict[str, Any]] = {
    "PG": {"solver": "projected-gradient", "tol": 0.0, "max_iter": 1000},
    "StdFW": {"solver": "frank-wolfe", "step": "scheduled", "tol": 0.0, "max_iter": 1000},
    "LSFW": {"solver": "frank-wolfe", "tol": 0.0, "max_iter": 1000},
    "optimum": {"tol": 1e-4, "max_iter": 2000},
}


def rows_of(name: str) -> tuple[Any, Any]:
    folder = path_of(name) if name == "fashion" else None
    if folder is not None:
        images, labels = (
            gzip.decompress((folder / f"train-{kind}-ubyte.gz").read_bytes())
            for kind in ("images-idx3", "labels-idx1")
        )
        X = np.frombuffer(images[16:], np.uint8).reshape(-1, 784).astype(np.float32)
        y = np.frombuffer(labels[8:], np.uint8)
    elif name == "ocr":
        path = path_of("ocr_letters")
        words = generated_words() if path is None else np.load(path)
        X, y = words["pixels"].astype(np.float32), words["labels"]
    else:
        X, y = load(name.removesuffix("-random"))
    if name in IMAGE_SETS:
        kept = RANDOM_IMAGES if name.endswith("-random") else IMAGES
        chosen = np.random.default_rng(0).permutation(len(y))[:kept]
        X, y = X[chosen], y[chosen]
    X = normalize(X) if name in (*IMAGE_SETS, "news20") else X
    if name.endswith("-random"):
        X = RBFSampler(gamma=1.0, n_components=FEATURES, random_state=0).fit_transform(X)
    return X, y


def fitted(X: Any, y: Any, C: float, method: str) -> MulticlassSVC:
    loss = WeightedUsunier(falling(len(np.unique(y))))
    settings = {"fit_intercept": False, "random_state": 0, **METHODS[method]}
    return MulticlassSVC(loss, C=C, **settings).fit(X, y)


def best_parameter(X: Any, y: Any, method: str) -> float:
    """Choose the C with the lowest top-1 error in two folds; the smallest in a tie."""
    folds = np.arange(len(y)) % 2
    errors = [
        sum(
            top_errors(
                fitted(X[folds != k], y[folds != k], C, method), X[folds == k], y[folds == k]
            )[0]
            for k in (0, 1)
        )
        for C in CS
    ]
    return float(CS[int(np.argmin(errors))])


def p_value(errors: Any, others: Any) -> float | None:
    """Return the two-sided p-value of equal mean errors on overlapping halves."""
    differences = np.subtract(errors, others)
    n, deviation = len(differences), float(np.std(differences, ddof=1))
    # Equal differences may differ by rounding errors.
    if deviation <= 1e-9 * np.abs(differences).max():
        return None
    statistic = differences.mean() / (deviation * np.sqrt(1.0 / n + 1.0))
    return float(2.0 * t.sf(abs(statistic), n - 1))


def recognition(name: str, n_halves: int) -> None:
    X, y = rows_of(name)
    halves = [np.random.default_rng(half).permutation(len(y)) for half in range(n_halves)]
    table = Table("recognition", "data", "method")
    chosen, errors = {}, {}
    for method in METHODS:
        first = halves[0][: len(y) // 2]
        chosen[method] = best_parameter(X[first], y[first], method)
        errors[method] = []
        for order in halves:
            train, test = np.split(order, [len(y) // 2])
            model = fitted(X[train], y[train], chosen[method], method)
            errors[method].append(top_errors(model, X[test], y[test]))
    for method, found in errors.items():
        cells: dict[str, Any] = {}
        means, deviations = 100 * np.mean(found, axis=0), 100 * np.std(found, axis=0)
        for k, mean, deviation in zip(RANKS, means, deviations, strict=True):
            cells |= {f"top_{k}": mean, f"top_{k}_deviation": deviation}
        if method != "LSFW" and n_halves > 1:
            reference = np.array(errors["LSFW"])[:, 0]
            cells["p_value"] = p_value(np.array(found)[:, 0], reference)
        table.add(data=name, method=method, halves=n_halves, C=chosen[method], **cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--halves", type=int, help="number of halves, instead of those above")
    parser.add_argument("--max-iter", type=int, help="number of iterations, for trials")
    arguments = parser.parse_args()
    if arguments.max_iter:
        METHODS.update({name: options | {"max_iter": arguments.max_iter}
                        for name, options in METHODS.items()})  # fmt: skip
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in arguments.names:
        recognition(name, arguments.halves or HALVES.get(name, 20))


if __name__ == "__main__":
    main()
