"""Basis selection for l1/linf compared with the exact solution (Blondel et al. 2017, Figure 2).

    python benches/basis_selection.py [data sets]
    python benches/basis_selection.py steps [data sets]

The polynomial network is fitted to half of the rows, with exact selection and output refits. At
every step, the other methods select a basis vector for the same gradient. The multiplicative factor
nu of a method is the dual norm that its vector reaches, divided by the exact dual norm.

"steps" runs the paper's refinement (16) in NumPy for the gradients of such fits, and counts the
steps for which the Armijo rule accepts gamma = 1 at once. Data sets in the folder DUALGAP_DATA:
vowel, segment, satimage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from _data import split
from _record import Table
from scipy.special import softmax

from dualgap import PolynomialNetworkClassifier, _core

METHODS = ["refined", "power", "random-refined", "initial", "random", "best-row"]
NAMES = ["vowel", "segment", "satimage"]
STEPS = 15
SEEDS = 3
# Armijo's constant and the maximum number of steps, as in dualgap.
ARMIJO = 1e-4
MAX_REFINEMENTS = 100


def load(name: str, seed: int) -> tuple[Any, Any]:
    X_train, y_train, X_test, y_test = split(name)
    X = np.concatenate([X_train, X_test])
    y = np.unique(np.concatenate([y_train, y_test]), return_inverse=True)[1]
    half = np.random.default_rng(seed).permutation(len(y))[: len(y) // 2]
    return np.column_stack([X[half], np.ones(len(half))]), y[half]


def along_fit(X: Any, y: Any, seed: int) -> Iterator[Any]:
    """Yield the weights of the gradient at each step of a fit, which starts at the null model."""
    model = PolynomialNetworkClassifier(
        1, penalty="l1/linf", radius=100.0, reoptimize="output", linear=None, selection="exact",
        tol=0.0, max_iter=2, warm_start=True, random_state=seed, n_jobs=1,
    )  # fmt: skip
    outputs = np.zeros((len(y), y.max() + 1))
    for step in range(STEPS):
        yield np.eye(outputs.shape[1])[y] - softmax(outputs, axis=1)
        model.set_params(n_components=step + 1).fit(X, y)
        outputs = model.decision_function(X)


def factors(X: Any, y: Any, seed: int) -> dict[str, list[float]]:
    """Compute nu of each method along one fit."""
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    for step, weights in enumerate(along_fit(X, y, seed)):

        def reach(method: str, weights: Any = weights, step: int = step) -> float:
            _, gradient, _ = _core.select_basis(X, weights, {
                "kernel": "square", "penalty": "l1/linf", "selection": method,
                "tol": 1e-2, "seed": 1000 * seed + step, "n_threads": 1,
            })  # fmt: skip
            return float(np.abs(gradient).sum())

        best = reach("exact")
        for method in METHODS:
            found[method].append(reach(method) / best)
    return found


def dual_norm(g: Any, penalty: str, width: float) -> tuple[float, Any]:
    """Return the dual norm of g, smoothed as by Huber for l1/linf, and its gradient."""
    if penalty == "l1/l2":
        norm = float(np.linalg.norm(g))
        return norm, g / norm
    size = np.abs(g)
    values = np.where(size <= width, 0.5 * (g * g / width + width), size)
    return float(values.sum()), np.clip(g / width, -1.0, 1.0)


def refine(X: Any, weights: Any, penalty: str) -> list[float]:
    """Refine the best extreme eigenvector by (16); return the accepted values of gamma."""

    def product(h: Any) -> Any:
        return np.square(X @ h) @ weights

    matrices = [X.T @ (X * column[:, None]) for column in weights.T]
    values, vectors = np.linalg.eigh(matrices)
    output, at = np.unravel_index(np.argmax(np.abs(values)), values.shape)
    h = vectors[output, :, at]
    width, accepted = 1e-3 * float(np.abs(product(h)).max()), []
    for _ in range(MAX_REFINEMENTS):
        value, slopes = dual_norm(product(h), penalty, width)
        ascent = 2.0 * X.T @ ((X @ h) * (weights @ slopes))
        target = ascent / np.linalg.norm(ascent)
        slope, gamma = float(ascent @ (target - h)), 1.0
        if slope <= 1e-9 * value:
            break
        while gamma > 1e-10:
            moved = h + gamma * (target - h)
            reached = dual_norm(product(moved), penalty, width)[0]
            if reached >= value + ARMIJO * gamma * slope:
                break
            gamma *= 0.5
        accepted.append(gamma)
        h = moved / np.linalg.norm(moved)
        if dual_norm(product(h), penalty, width)[0] <= value * (1.0 + 1e-6):
            break
    return accepted


def steps(names: list[str]) -> None:
    """Record the share of refinement steps with gamma = 1, for both group penalties."""
    table = Table("basis-steps", "data", "penalty")
    for name in names:
        fits = [(X, list(along_fit(X, y, s))) for s in range(SEEDS) for X, y in [load(name, s)]]
        for penalty in ("l1/l2", "l1/linf"):
            accepted = [refine(X, weights, penalty) for X, found in fits for weights in found]
            gammas = np.concatenate(accepted)
            table.add(
                data=name, penalty=penalty, refinements=len(accepted), steps=len(gammas),
                ones=float(np.mean(gammas == 1.0)), smallest=gammas.min(),
            )  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["steps"]:
        return steps(sys.argv[2:] or NAMES)
    table = Table("basis-selection", "data", "selection")
    for name in sys.argv[1:] or NAMES:
        runs = [factors(*load(name, seed), seed) for seed in range(SEEDS)]
        for method in METHODS:
            values = np.concatenate([run[method] for run in runs])
            table.add(data=name, selection=method, mean=values.mean(), minimum=values.min())
    return None


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main()
