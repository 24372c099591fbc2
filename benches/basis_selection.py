"""Basis selection for l1/linf compared with the exact solution (Blondel et al. 2017, Figure 2).

    python benches/basis_selection.py [data sets]

The polynomial network is fitted to half of the rows, with exact selection and output refits. At
every step, the other methods select a basis vector for the same gradient. The multiplicative factor
nu of a method is the dual norm that its vector reaches, divided by the exact dual norm. Data sets
in the folder DUALGAP_DATA: vowel, segment, satimage.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _data import split
from _record import Table
from scipy.special import softmax

from dualgap import PolynomialNetworkClassifier, _core

METHODS = ["refined", "power", "random-refined", "initial", "random", "best-row"]
STEPS = 15
SEEDS = 3


def load(name: str, seed: int) -> tuple[Any, Any]:
    X_train, y_train, X_test, y_test = split(name)
    X = np.concatenate([X_train, X_test])
    y = np.unique(np.concatenate([y_train, y_test]), return_inverse=True)[1]
    half = np.random.default_rng(seed).permutation(len(y))[: len(y) // 2]
    return np.column_stack([X[half], np.ones(len(half))]), y[half]


def factors(X: Any, y: Any, seed: int) -> dict[str, list[float]]:
    """Compute nu of each method along one fit, which starts at the null model."""
    model = PolynomialNetworkClassifier(
        1, penalty="l1/linf", radius=100.0, reoptimize="output", linear=None, selection="exact",
        tol=0.0, max_iter=2, warm_start=True, random_state=seed, n_jobs=1,
    )  # fmt: skip
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    outputs = np.zeros((len(y), y.max() + 1))
    for step in range(STEPS):
        weights = np.eye(outputs.shape[1])[y] - softmax(outputs, axis=1)

        def reach(method: str, weights: Any = weights, step: int = step) -> float:
            _, gradient, _ = _core.select_basis(X, weights, {
                "kernel": "square", "penalty": "l1/linf", "selection": method,
                "tol": 1e-2, "seed": 1000 * seed + step, "n_threads": 1,
            })  # fmt: skip
            return float(np.abs(gradient).sum())

        best = reach("exact")
        for method in METHODS:
            found[method].append(reach(method) / best)
        model.set_params(n_components=step + 1).fit(X, y)
        outputs = model.decision_function(X)
    return found


def main() -> None:
    table = Table("basis-selection", "data", "selection")
    for name in sys.argv[1:] or ["vowel", "segment", "satimage"]:
        runs = [factors(*load(name, seed), seed) for seed in range(SEEDS)]
        for method in METHODS:
            values = np.concatenate([run[method] for run in runs])
            table.add(data=name, selection=method, mean=values.mean(), minimum=values.min())


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main()
