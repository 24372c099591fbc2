"""What every estimator shares: callbacks, progress, and what a run leaves on the estimator."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

Callback: TypeAlias = Callable[[int, float, float, float], object]
"""Called after each epoch with (epoch, seconds, primal, dual); a true value stops the fit."""

History: TypeAlias = dict[str, NDArray[Any]]


def progress(verbose: int | bool, callback: Callback | None) -> Callback | None:
    """Combine the user's callback with a line per epoch on stderr, at most five a second."""
    if not verbose:
        return callback
    last = -np.inf

    def report(epoch: int, seconds: float, primal: float, dual: float) -> object:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            line = f"epoch {epoch:5d}  {seconds:8.2f} s"
            if not np.isnan(primal):
                line += f"  objective {primal:.6g}"
            if not np.isnan(dual):
                line += f"  gap {primal - dual:.3g}"
            print(line, file=sys.stderr)
        return callback(epoch, seconds, primal, dual) if callback is not None else False

    return report


def store_run(estimator: Any, result: Any) -> None:
    """Store what every certified run reports, and warn if it did not get to ``tol``."""
    estimator.history_ = result["history"]
    estimator.n_iter_ = len(estimator.history_["epoch"])
    estimator.objective_ = result["primal"]
    estimator.dual_objective_ = result["dual"]
    estimator.duality_gap_ = result["primal"] - result["dual"]
    estimator.null_objective_ = result["null_objective"]
    estimator.converged_ = result["outcome"] == "converged"
    if not estimator.converged_ and result["outcome"] != "stopped":
        relative = estimator.duality_gap_ / estimator.null_objective_
        warnings.warn(
            f"stopped after {estimator.n_iter_} iterations at a duality gap of "
            f"{estimator.duality_gap_:.3g}, {relative:.2g} of the null model's objective "
            f"(tol={estimator.tol:.2g}); raise max_iter or tol, or scale the data",
            ConvergenceWarning,
            stacklevel=3,
        )
