"""Suboptimality of multi-class SVM solvers over time, on the same problem.

    python benches/solvers.py [--data digits] [--loss crammer-singer] [--C 1] [--solver NAME ...]

As in benchopt, there are an objective, data sets and solvers. To add a solver, write a function
that takes (X, y, C, budget) and returns weights of shape (n_classes, n_features), with a decorator
that gives its name and the losses it minimises::

    @solver("my solver", losses=["crammer-singer"])
    def mine(X, y, C, budget):
        return fit_something(X, y, C, max_iter=budget)

The function is called with budgets 1, 2, 4, ... until a call takes `--seconds`, or until its
objective is within 1e-6 of a lower bound, which comes from a fit with `tol=1e-8`. The time includes
all steps from data to weights. The script computes the objective ``1/2 ||W||^2 + C sum_i loss_i``
for all solvers.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from _record import Table
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVC

Weights = NDArray[np.float64]
Run = Callable[[NDArray[np.float64], NDArray[np.int64], float, int], Weights]
LOSSES = ("crammer-singer", "weston-watkins")
NEAR = 1e-6


@dataclass(frozen=True)
class Solver:
    """A named solver and the losses that it supports."""

    name: str
    losses: tuple[str, ...]
    run: Callable[..., Weights]


SOLVERS: list[Solver] = []


def solver(
    name: str, losses: list[str]
) -> Callable[[Callable[..., Weights]], Callable[..., Weights]]:
    """Register a function as a solver."""

    def enter(run: Callable[..., Weights]) -> Callable[..., Weights]:
        SOLVERS.append(Solver(name, tuple(losses), run))
        return run

    return enter


def dualgap_solver(name: str, loss: str, **settings: Any) -> None:
    """Register a solver of this package."""

    def run(X: Any, y: Any, C: float, budget: int) -> Weights:
        model = MulticlassSVC(
            loss, C=C, fit_intercept=False, tol=0.0, max_iter=budget, random_state=0, **settings
        )
        return np.asarray(model.fit(X, y).coef_)

    SOLVERS.append(Solver(f"dualgap, {name}", (loss,), run))


for each in LOSSES:
    dualgap_solver("block descent", each)
    dualgap_solver("block Frank-Wolfe, pairwise", each, solver="block-frank-wolfe", step="pairwise")
    dualgap_solver("Frank-Wolfe", each, solver="frank-wolfe")


@solver("LIBLINEAR", losses=["crammer-singer"])
def liblinear(X: Any, y: Any, C: float, budget: int) -> Weights:
    """Run LIBLINEAR (Keerthi et al. 2008) via scikit-learn; the budget sets its tolerance."""
    model = LinearSVC(
        multi_class="crammer_singer",
        C=C,
        fit_intercept=False,
        tol=1.0 / budget,
        random_state=0,
    )
    return np.asarray(model.fit(X, y).coef_)


@solver("subgradient, 1/t", losses=list(LOSSES))
def subgradient(X: Any, y: Any, C: float, budget: int) -> Weights:
    """Run Pegasos on full batches in NumPy, as an example of a custom solver."""
    n, m = len(X), int(y.max()) + 1
    W = np.zeros((m, X.shape[1]))
    rows = np.arange(n)
    for t in range(1, budget + 1):
        margins = 1.0 + X @ W.T - (X * W[y]).sum(axis=1)[:, None]
        margins[rows, y] = 0.0
        taken = (margins > 0.0).astype(float)
        if SETTINGS["loss"] == "crammer-singer":
            taken = (margins == margins.max(axis=1, keepdims=True)) & (margins > 0.0)
            taken = taken / np.maximum(taken.sum(axis=1, keepdims=True), 1)
        taken[rows, y] = -taken.sum(axis=1)
        W -= (W + C * taken.T @ X) / (t + 1)
    return W


SETTINGS = {"loss": LOSSES[0]}

DATA: dict[str, Callable[[], tuple[Any, Any]]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "made": lambda: make_classification(
        3000, 50, n_informative=20, n_classes=20, n_clusters_per_class=1, random_state=0
    ),
}


def objective(W: Weights, X: Any, y: Any, C: float, loss: str) -> float:
    """Compute the objective."""
    margins = 1.0 + X @ W.T - (X * W[y]).sum(axis=1)[:, None]
    margins[np.arange(len(y)), y] = 0.0
    losses = margins.max(axis=1) if loss == "crammer-singer" else np.maximum(margins, 0).sum(axis=1)
    return float(0.5 * (W**2).sum() + C * losses.sum())


def curve(one: Solver, problem: tuple[Any, Any, float, str], bound: float, seconds: float) -> Any:
    """Yield (budget, seconds, objective) as the budget doubles."""
    X, y, C, loss = problem
    budget, spent = 1, 0.0
    while spent < seconds:
        start = time.perf_counter()
        W = one.run(X, y, C, budget)
        spent = time.perf_counter() - start
        value = objective(W, X, y, C, loss)
        yield budget, spent, value
        if value <= bound * (1.0 + NEAR):
            return
        budget *= 2


def compare(name: str, loss: str, C: float, chosen: list[str] | None, seconds: float) -> None:
    """Add a row for each solver of the loss."""
    X, y = DATA[name]()
    X = X / np.abs(X).max()
    SETTINGS["loss"] = loss
    exact = MulticlassSVC(loss, C=C, fit_intercept=False, tol=1e-8, max_iter=10**5, random_state=0)
    bound = exact.fit(X, y).dual_objective_ * C * len(y)
    table = Table("solvers", "data", "loss", "solver")
    for one in SOLVERS:
        if loss not in one.losses or (chosen and one.name not in chosen):
            continue
        points = list(curve(one, (X, y, C, loss), bound, seconds))
        row: dict[str, Any] = {"data": name, "loss": loss, "solver": one.name, "C": C}
        for share in (1e-2, 1e-4, NEAR):
            times = [spent for _, spent, value in points if value <= bound * (1.0 + share)]
            row[f"seconds_{-np.log10(share):.0f}"] = min(times, default=None)
        budget, _, value = min(points, key=lambda point: point[2])
        table.add(**row, best_excess=max(value / bound - 1.0, 0.0), budget=budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=DATA, nargs="*", default=["digits", "made"])
    parser.add_argument("--loss", choices=LOSSES, nargs="*", default=list(LOSSES))
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--solver", nargs="*", help="names of solvers; by default all")
    parser.add_argument("--seconds", type=float, default=2.0, help="maximum seconds of a run")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Ignore LIBLINEAR's convergence warnings, and the warning that scikit-learn deprecates an
    # option.
    warnings.simplefilter("ignore", FutureWarning)
    for name in chosen.data:
        for loss in chosen.loss:
            compare(name, loss, chosen.C, chosen.solver, chosen.seconds)


if __name__ == "__main__":
    main()
