"""Measurements that test theorems on polynomial networks, and seconds of refits.

    python benches/polynomial_theory.py rate
    python benches/polynomial_theory.py refits [data sets]

"rate" compares the error of Algorithm 1 with the bound of Theorem 1. The bound uses the factor nu
that basis selection guarantees. "refits" compares full and output refits over time. Data sets in
the folder DUALGAP_DATA: vowel, satimage, letter.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from _data import split
from _record import Table

from dualgap import PolynomialNetworkClassifier

RADII = {"vowel": 100.0, "satimage": 100.0, "letter": 3000.0}


def load(name: str) -> tuple[Any, Any, Any, Any]:
    return split(name)


def rate() -> None:
    """Compare the error with its bound 8 beta tau^2 / (t + 2).

    The error is relative to the best objective for the radius nu tau.
    """
    X, y = load("vowel")[:2]
    m, radius = len(np.unique(y)), 1.0
    factors = {"l1": 1.0, "l1/l2": m**-0.5, "l1/linf": 1.0 / m}
    table = Table("polynomial-rate", "penalty")
    for penalty, factor in factors.items():
        parameters: dict[str, Any] = {
            "penalty": penalty, "linear": None, "reoptimize": "output",
            "random_state": 0, "n_jobs": 2,
        }  # fmt: skip
        best = PolynomialNetworkClassifier(80, radius=factor * radius, tol=1e-4, **parameters)
        fit = PolynomialNetworkClassifier(40, radius=radius, tol=0.0, **parameters).fit(X, y)
        errors = fit.history_["objective"] - best.fit(X, y).dual_objective_
        times = m if penalty == "l1/linf" else 1
        smoothness = 0.5 * times * (np.linalg.norm(X, axis=1) ** 4).sum()
        bounds = 8.0 * smoothness * radius**2 / (np.arange(len(errors)) + 2)
        own = fit.history_["objective"] - fit.history_["objective"][-1]
        # If a fit ends early, all further errors are 0.
        steps = [(t, min(t, len(own) - 1)) for t in (1, 5, 10, 20)]
        row = {f"own_{t}": own[at] for t, at in steps}
        row |= {f"bound_{t}": bounds[at] for t, at in steps}
        table.add(penalty=penalty, nu=factor, within=bool(np.all(errors <= bounds)), **row)


def refits(names: list[str]) -> None:
    """Record seconds, objective and test accuracy for each number of bases, for both refits."""
    table = Table("polynomial-convergence", "data", "refit", "bases")
    for name in names:
        X, y, X_test, y_test = load(name)
        for refit in ("output", "full"):
            for bases in (5, 10, 20, 40):
                model = PolynomialNetworkClassifier(
                    bases,
                    radius=RADII[name],
                    reoptimize=refit,
                    random_state=0,
                    n_jobs=2,
                    max_iter=100,
                ).fit(X, y)
                table.add(
                    data=name,
                    refit=refit,
                    bases=bases,
                    seconds=model.history_["seconds"][-1],
                    objective=model.objective_,
                    relative_gap=model.relative_gap_,
                    accuracy=100 * model.score(X_test, y_test),
                )


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["rate"]:
        rate()
    else:
        refits(sys.argv[2:] or ["vowel", "satimage", "letter"])


if __name__ == "__main__":
    main()
