"""Test errors of Frank-Wolfe and projected gradient (Tajima et al. 2020, Table 1).

    python benches/recognition.py [data sets] [--halves 20]

The paper's protocol: train on a random half of the rows and test on the other, 20 times; 1000
iterations of each method; weighted Usunier loss; for each method, C = 1/(n lambda) is chosen by
two-fold cross-validation of the top-1 error on the first half, and used for all halves. "optimum"
is block descent to a gap of 1e-4, with C chosen in the same way. Data sets: those of
block_descent.py, and fashion, Fashion-MNIST (the .gz files of Debian's dataset-fashion-mnist in the
folder fashion). Image sets are reduced to 10,000 random rows. Rows of images and news20 have unit
length.
"""

from __future__ import annotations

import argparse
import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _record import Table, data_folder
from block_descent import load
from multiclass import RANKS, falling, top_errors
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from dualgap import MulticlassSVC
from dualgap.losses import WeightedUsunier

NAMES = ["vowel", "segment", "dna", "satimage", "letter", "mnist", "fashion"]
IMAGES = 10_000
CS = np.logspace(-2, 3, 6)
METHODS: dict[str, dict[str, Any]] = {
    "PG": {"solver": "projected-gradient", "tol": 0.0, "max_iter": 1000},
    "StdFW": {"solver": "frank-wolfe", "step": "scheduled", "tol": 0.0, "max_iter": 1000},
    "LSFW": {"solver": "frank-wolfe", "tol": 0.0, "max_iter": 1000},
    "optimum": {"tol": 1e-4, "max_iter": 2000},
}


def rows_of(name: str) -> tuple[Any, Any]:
    if name == "fashion":
        folder = data_folder() / name
        images, labels = (
            gzip.decompress((folder / f"train-{kind}-ubyte.gz").read_bytes())
            for kind in ("images-idx3", "labels-idx1")
        )
        X = np.frombuffer(images[16:], np.uint8).reshape(-1, 784).astype(np.float32)
        y = np.frombuffer(labels[8:], np.uint8)
    else:
        X, y = load(name)
    if name in ("mnist", "fashion"):
        chosen = np.random.default_rng(0).permutation(len(y))[:IMAGES]
        X, y = X[chosen], y[chosen]
    return (normalize(X) if name in ("mnist", "fashion", "news20") else X), y


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


def recognition(name: str, n_halves: int) -> None:
    X, y = rows_of(name)
    halves = [np.random.default_rng(half).permutation(len(y)) for half in range(n_halves)]
    table = Table("recognition", "data", "method")
    for method in METHODS:
        first = halves[0][: len(y) // 2]
        C = best_parameter(X[first], y[first], method)
        errors = []
        for order in halves:
            train, test = np.split(order, [len(y) // 2])
            errors.append(top_errors(fitted(X[train], y[train], C, method), X[test], y[test]))
        cells: dict[str, float] = {}
        means, deviations = 100 * np.mean(errors, axis=0), 100 * np.std(errors, axis=0)
        for k, mean, deviation in zip(RANKS, means, deviations, strict=True):
            cells |= {f"top_{k}": mean, f"top_{k}_deviation": deviation}
        table.add(data=name, method=method, halves=n_halves, C=C, **cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--halves", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in arguments.names:
        if name == "fashion" and not (data_folder() or Path()).joinpath(name).is_dir():
            print("fashion: skipped; the images of the Debian package dataset-fashion-mnist belong")
            print("into the folder `fashion` of DUALGAP_DATA")
            continue
        recognition(name, arguments.halves)


if __name__ == "__main__":
    main()
