"""Settings of fits: the parameters of an estimator in the format of the core.

The functions return records of the core (`_core.pyi`), or combine them into the settings of a kind
of fit. They read parameters from the estimator; values that a fit computes are arguments.
`check_numbers` checks numeric parameters before a fit reads its data.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core, _records
from dualgap._validation import (
    FloatArray,
    Rows,
    check_bool,
    check_positive,
    regularization_of,
    resolve_seed,
    resolve_threads,
)

__all__ = [
    "check_numbers",
    "class_feature_settings",
    "linear_settings",
    "logistic_path_settings",
    "logistic_settings",
    "margin_record",
    "multiclass_settings",
    "newton_settings",
    "polynomial_settings",
    "round_settings",
    "run_record",
    "search_settings",
    "sequence_settings",
    "shares_record",
    "structured_settings",
]


_POSITIVE = (
    "C",
    "alpha",
    "intercept_scaling",
    "radius",
    "relaxation",
    "rho",
    "selection_tol",
    "subsample",
)
_NOT_NEGATIVE = ("bounds", "checkpoint_interval", "cv_tol", "smoothing", "tol")
_COUNTS = ("hash_bits", "max_iter", "max_passes", "min_count", "n_components", "n_partitions")
# Upper limits that differ from 2**63 - 1.
_MOST = {"min_count": 2**32 - 1}


# Upper limit of parameters whose square or product with data could overflow.
_LARGEST = 1e100
_LIMITED = ("smoothing", "intercept_scaling")


def check_numbers(estimator: Any) -> None:
    """Raise a ValueError for a parameter of the wrong kind or range.

    None is valid if it is the default.
    """
    parameters = type(estimator).__dataclass_fields__
    for names in (_POSITIVE, _NOT_NEGATIVE, _COUNTS):
        for name in names:
            if name not in parameters:
                continue
            value = getattr(estimator, name)
            if value is not None or parameters[name].default is not None:
                zero, integer = names is _NOT_NEGATIVE, names is _COUNTS
                most = _MOST.get(name, 2**63 - 1)
                check_positive(name, value, zero=zero, integer=integer, most=most)
    for parameter in fields(estimator):
        value = getattr(estimator, parameter.name) if parameter.init else None
        if parameter.init and parameter.type == "bool":
            check_bool(parameter.name, value)
    for name in _LIMITED:
        if getattr(estimator, name, 0.0) > _LARGEST:
            msg = f"{name}: must be at most {_LARGEST:g}, got {getattr(estimator, name)!r}"
            raise ValueError(msg)


def run_record(estimator: Any) -> _core._RunRecord:
    """Return the stopping rule and the number of threads."""
    return {
        "tol": float(estimator.tol),
        "max_iter": int(estimator.max_iter),
        "n_threads": resolve_threads(estimator.n_jobs),
        "callback": None,
    }


def shares_record(
    name: str, C: float, weights: FloatArray | None, n_rows: int
) -> _core._SharesRecord:
    """Return the regularisation and the row weights.

    ``name`` is the argument with the value ``C``.
    """
    regularization = regularization_of(name, C, weights, n_rows)
    return {"regularization": regularization, "sample_weight": weights}


def _method_record(estimator: Any) -> _core._MethodRecord:
    return {
        "solver": estimator.solver,
        "step": estimator.step,
        "sampling": estimator.sampling,
        "seed": resolve_seed(estimator.random_state),
    }


def margin_record(estimator: Any, loss: _core._Loss) -> _core._MarginRecord:
    """Return the description of a problem with a margin loss, without rows."""
    scaling = float(estimator.intercept_scaling)
    return {
        **loss,
        "n_classes": len(estimator.classes_),
        "smoothing": float(estimator.smoothing),
        "bias": scaling if estimator.fit_intercept else 0.0,
    }


def linear_settings(
    estimator: Any, loss: _core._Loss, shares: _core._SharesRecord
) -> _core._LinearSettings:
    """Return the settings shared by all fits with a margin loss; a path needs only these."""
    return {
        **margin_record(estimator, loss),
        **shares,
        **_method_record(estimator),
        **run_record(estimator),
    }


def multiclass_settings(
    estimator: Any, loss: _core._Loss, shares: _core._SharesRecord
) -> _core._MulticlassSettings:
    """Return the settings of a linear model, except for its starting point."""
    settings = linear_settings(estimator, loss, shares)
    return {**settings, "keep_dual": bool(estimator.warm_start), "start": None}


def class_feature_settings(
    estimator: Any, loss: _core._Loss, shares: _core._SharesRecord, features: Rows | None
) -> _core._ClassFeatureSettings:
    """Return the settings of a model with features of rows and classes."""
    return {**linear_settings(estimator, loss, shares), "class_features": features}


def logistic_settings(
    estimator: Any, weights: FloatArray | None, n_classes: int
) -> _core._LogisticSettings:
    """Return the settings of a logistic regression that starts at 0."""
    parameters = _logistic_parameters(estimator, weights, n_classes)
    return {**run_record(estimator), **parameters, "C": float(estimator.C), "start": None}


def logistic_path_settings(
    estimator: Any, weights: FloatArray | None, n_classes: int, Cs: list[float]
) -> _core._LogisticPathSettings:
    """Return the settings of logistic regressions with the values `Cs` of C."""
    parameters = _logistic_parameters(estimator, weights, n_classes)
    return {**run_record(estimator), **parameters, "Cs": Cs}


def _logistic_parameters(
    estimator: Any, weights: FloatArray | None, n_classes: int
) -> _records.LogisticParameters:
    return {
        "n_classes": n_classes,
        "sample_weight": weights,
        "intercept": bool(estimator.fit_intercept),
        "solver": estimator.solver,
        "seed": resolve_seed(estimator.random_state),
    }


def search_settings(
    estimator: Any, loss: _core._Loss, Cs: FloatArray, scoring: dict[str, Any]
) -> _core._SearchSettings:
    """Return the settings of a cross-validation; the caller adds the folds."""
    bounds = estimator.bounds
    return {
        **margin_record(estimator, loss),
        **run_record(estimator),
        "tol": float(estimator.cv_tol),
        "Cs": Cs.tolist(),
        "fold_weights": np.empty((0, 0)),
        "held_out": [],
        "measure": scoring["measure"],
        "top_k": scoring["top_k"],
        "score": scoring["score"],
        "width": None if bounds is None else float(bounds),
        "seed": resolve_seed(estimator.random_state),
    }


def round_settings(
    problem: _core._MarginRecord, shares: _core._SharesRecord, size: int
) -> _core._RoundSettings:
    """Return the settings of a partition in the first round, with zero weights."""
    return {
        **problem,
        **shares,
        "consensus": np.zeros(size),
        "multiplier": np.zeros(size),
        "rho": 0.0,
        "beta": None,
        "check_beta": False,
        "gap": np.inf,
        "relative_gap": 0.0,
        "tol": 0.0,
        "max_iter": 1,
        "solver": "block-descent",
        "seed": 0,
        "n_threads": 1,
        "callback": None,
    }


def newton_settings(
    problem: _core._MarginRecord, shares: _core._SharesRecord
) -> _core._NewtonSettings:
    """Return the settings of a partition in a Newton round; weights and dual point are empty."""
    return {
        **problem,
        **shares,
        "consensus": np.zeros(0),
        "beta": np.zeros(0),
        "width": 1.0,
        "n_threads": 1,
        "callback": None,
    }


def structured_settings(
    estimator: Any, shares: _core._SharesRecord, signs: NDArray[np.int8] | None
) -> _core._StructuredSettings:
    """Return the settings of a structured model without a warm start."""
    radius = estimator.radius
    return {
        **shares,
        **_method_record(estimator),
        **run_record(estimator),
        "cache": bool(estimator.cache),
        "averaging": bool(estimator.averaging),
        "subsample": float(estimator.subsample),
        "projection": estimator.projection,
        "radius": None if radius is None else float(radius),
        "signs": signs,
        "exact": bool(estimator.exact_decoder),
        "keep_dual": bool(estimator.warm_start),
        "start": None,
    }


def sequence_settings(estimator: Any, shares: _core._SharesRecord) -> _core._SequenceSettings:
    """Return the settings of a tagger without a warm start."""
    ratios = {"l2": 0.0, "l1": 1.0, "elastic-net": estimator.l1_ratio}
    return {
        **shares,
        **run_record(estimator),
        "sampling": estimator.sampling,
        "seed": resolve_seed(estimator.random_state),
        "l1_ratio": float(ratios[estimator.penalty]),
        "start": None,
        "keep_point": bool(estimator.warm_start),
    }


def polynomial_settings(
    estimator: Any, kernel: str, loss: str, n_outputs: int
) -> _core._PolynomialRecord:
    """Return the settings of a polynomial model; the caller adds those of the data."""
    explicit = estimator.linear == "explicit"
    return {
        **run_record(estimator),
        "n_outputs": n_outputs,
        "kernel": kernel,
        "augmented": estimator.linear == "augment",
        "alpha": float(estimator.alpha) if explicit else None,
        "loss": loss,
        "penalty": estimator.penalty,
        "radius": 0.0,
        "n_components": int(estimator.n_components),
        "reoptimize": estimator.reoptimize,
        "selection": estimator.selection,
        "selection_tol": float(estimator.selection_tol),
        "seed": resolve_seed(estimator.random_state),
        "sample_weight": None,
        "target_means": None,
        "init": None,
        "validation": None,
    }
