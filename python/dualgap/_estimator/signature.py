"""The order of parameters in signatures, the same for every estimator."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

__all__ = ["ordered", "rank"]

ORDER = (
    # The model.
    "estimator",
    "model",
    "class_features",
    "combine",
    "classes",
    "radii",
    "n_components",
    "loss",
    "C",
    "task",
    "method",
    # The choice of a parameter by cross-validation.
    "Cs",
    "cv",
    "scoring",
    "rule",
    "bounds",
    "cv_tol",
    "refit",
    # The problem.
    "penalty",
    "l1_ratio",
    "radius",
    "alpha",
    "linear",
    "reoptimize",
    "smoothing",
    "features",
    "transitions",
    "invalid",
    "boundaries",
    "pairs",
    "transition_features",
    "min_count",
    "hash_bits",
    "history_features",
    "time_features",
    "interactions",
    "levels",
    "user_column",
    "item_column",
    "rating_column",
    "timestamp_column",
    "signs",
    "fit_intercept",
    "intercept_scaling",
    "class_weight",
    # The solver.
    "solver",
    "step",
    "sampling",
    "selection",
    "selection_tol",
    "cache",
    "averaging",
    "subsample",
    "projection",
    "verify_decoder",
    "exact_decoder",
    "rho",
    "adapt_rho",
    "relaxation",
    "n_partitions",
    "client",
    "max_passes",
    "validation_fraction",
    # The run.
    "tol",
    "max_iter",
    "warm_start",
    "checkpoint",
    "checkpoint_interval",
    "resume",
    "n_jobs",
    "random_state",
    "verbose",
    "callback",
)
"""The parameters whose position matters; see `rank`."""

_Class = TypeVar("_Class", bound=type)


def rank(name: str) -> float:
    """Return the position of a parameter.

    A parameter that `ORDER` does not list belongs to the problem: it precedes the solver's
    parameters.
    """
    return ORDER.index(name) if name in ORDER else ORDER.index("solver") - 0.5


def ordered(cls: _Class) -> _Class:
    """Show the keyword parameters of a dataclass in the order of `ORDER`.

    A dataclass lists the fields of its base classes first, so every signature would begin with the
    least important parameters. This changes only the signature, not the fields.
    """
    init: Any = vars(cls)["__init__"]
    signature = inspect.signature(init)

    def position(parameter: inspect.Parameter) -> tuple[bool, float]:
        keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        return keyword, rank(parameter.name) if keyword else 0

    parameters = sorted(signature.parameters.values(), key=position)
    init.__signature__ = signature.replace(parameters=parameters)
    return cls
