"""Training of a tagger with the core."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dualgap import _core
from dualgap._estimator import EpochModels, warn_user, watch
from dualgap.sequence._defaults import StallCheck
from dualgap.sequence._held_out import SMALL_TOL, Validation
from dualgap.sequence._training import Problem


def train(
    tagger: Any,
    problem: Problem,
    settings: _core._SequenceSettings,
    data: tuple[Any, Any, Any] = (None, None, None),
    *,
    is_fit: bool = True,
    watcher: Validation | None = None,
    warns: bool = True,
) -> Any:
    """Fit a tagger to sentences that the core has already read; return the core's result.

    Without `warns`, the caller warns if the fit does not converge.
    """

    def store(model: Any, result: Any) -> None:
        model._point, model._digests = result.get("point"), problem.digests
        model._store(problem, result["weights"])
        if result["dual_objective"] is None:
            if result["outcome"] == "epoch_limit" and not model._quiet:
                passes = len(result["history"]["epoch"])
                advice = model._advice(problem, model._remedy)
                warn_user(f"stopped after {passes} passes, still improving; {advice}")
            result = {**result, "dual_objective": np.nan, "outcome": "stopped"}
        model._store_run(result, problem, warns=warns)
        if problem.is_partial:
            model.certificate_ = "none: some labels are unknown"

    def model_of_epoch(arrays: Any, n_first: int) -> dict[str, Any]:
        solver = "lbfgs" if tagger.loss == "logistic" else "block-frank-wolfe"
        return {"weights": arrays[0], "solver": (solver, n_first)}

    core = partial(_core.fit_sequences, problem.core)
    models = EpochModels(core, settings, store, model_of_epoch)
    if watcher is not None and tagger.tol is None:
        settings["tol"] = SMALL_TOL
    stopping = (settings["max_iter"], settings["tol"])
    with watch(tagger, stopping, data=data, models=models, is_fit=is_fit) as callback:
        if watcher is not None:
            callback = watcher.watching(callback)
        elif tagger.loss == "logistic" and (tagger.tol is None or problem.is_partial):
            callback = StallCheck(callback, tagger.tol, problem, settings["sample_weight"])
        result = core({**settings, "callback": callback})
        if watcher is not None:
            result = watcher.result(settings, result)
        store(tagger, result)
    return result
