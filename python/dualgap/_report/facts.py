"""Contents of a report: certificate, record, data, search and parameters of a fitted model."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["certificate_sentence", "classes", "parameters", "record", "search"]

# Maximum number of list entries that are shown, and of characters of a parameter.
_MOST_NAMES = 20
_MOST_CHARACTERS = 300
# Maximum number of elements of an array that is shown in full.
_MOST_ELEMENTS = 16


def certificate_sentence(model: Any) -> str:
    """State the largest possible distance of a fitted model from its optimum."""
    scope = str(model.certificate_)
    gap = _exact_gap(model)
    if gap is None:
        reason = scope.removeprefix("none").lstrip(": ")
        return (
            "This fit has no certificate: nothing is known about its distance from the optimum"
            + (f" ({reason})." if reason else ".")
        )
    objective = abs(Fraction(float(model.objective_)))
    share = f" ({_rounded_up(100 * gap / objective)} % of the objective)" if objective else ""
    optimum = scope if "optimum" in scope else f"optimum: {scope}"
    return f"The objective is at most {_rounded_up(gap)}{share} above the {optimum}."


def _exact_gap(model: Any) -> Fraction | None:
    """Return the difference of the objectives, without rounding; None without a certificate."""
    if str(model.certificate_).startswith("none") or model.dual_objective_ is None:
        return None
    objective, dual = float(model.objective_), float(model.dual_objective_)
    if not (math.isfinite(objective) and math.isfinite(dual)):
        return None
    return max(Fraction(objective) - Fraction(dual), Fraction(0))


def _rounded_up(value: Fraction) -> str:
    """Return three significant digits, rounded up: a bound must not look tighter than it is."""
    context = Context(prec=3, rounding=ROUND_CEILING)
    shown = context.divide(value.numerator, value.denominator)
    return f"{float(shown):.3g}"


def record(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the record of a fit."""
    yield "objective", _value(model.objective_)
    yield "dual objective (lower bound)", _value(getattr(model, "dual_objective_", None))
    yield "duality gap", _value(getattr(model, "duality_gap_", None))
    yield "relative gap", _value(getattr(model, "relative_gap_", None))
    yield "certificate", str(model.certificate_)
    yield "objective of the zero model", _value(getattr(model, "null_objective_", None))
    converged = getattr(model, "converged_", None)
    yield "converged to tol", "unknown" if converged is None else "yes" if converged else "no"
    yield "epochs", str(model.n_iter_)


def _value(number: Any) -> str:
    """Return a number with all its digits."""
    return "unknown" if number is None or math.isnan(number) else repr(float(number))


def classes(model: Any) -> list[tuple[str, str]]:
    """Return facts about the training data that are stored in the model."""
    rows = []
    if hasattr(model, "n_features_in_"):
        rows.append(("features", str(model.n_features_in_)))
    for label, name in (
        ("feature names", "feature_names_in_"),
        ("classes", "classes_"),
        ("users", "user_ids_"),
        ("items", "item_ids_"),
        ("levels", "levels_"),
    ):
        found = getattr(model, name, None)
        if found is not None:
            rows.append((label, _listed(found)))
    return rows


def _listed(names: Any) -> str:
    shown = ", ".join(str(name) for name in names[:_MOST_NAMES])
    more = ", \N{HORIZONTAL ELLIPSIS}" if len(names) > _MOST_NAMES else ""
    return f"{len(names)}: {shown}{more}"


def search(estimator: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and rows of a search's table of scores; both are empty without a search."""
    if hasattr(estimator, "cv_scores_"):
        means = estimator.cv_scores_.mean(axis=2).max(axis=1)
        values, chosen, columns = estimator.radii_, estimator.radius_, [means]
        head: tuple[str, ...] = ("radius", "best mean score over the numbers of basis vectors")
    elif hasattr(estimator, "mean_score_"):
        values, chosen = estimator.Cs_, estimator.C_
        columns = [estimator.mean_score_, estimator.std_score_]
        head = ("C", "mean score", "standard deviation")
        if hasattr(estimator, "mean_score_bounds_"):
            columns += list(estimator.mean_score_bounds_.T)
            head = (*head, "lower bound", "upper bound")
    else:
        return (), []
    return head, [
        (f"{value:.6g}{' (chosen)' if value == chosen else ''}", *(f"{cell:.6g}" for cell in row))
        for value, *row in zip(values, *columns, strict=True)
    ]


def parameters(estimator: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and default of each parameter, in the order of the signature."""
    for name, parameter in inspect.signature(type(estimator)).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        default = "required" if required else _shown(parameter.default)
        yield name, _shown(getattr(estimator, name)), default


def _shown(value: Any) -> str:
    """Return a value as text without memory addresses: the text does not depend on the process."""
    if np.ndim(value) and np.size(value) > _MOST_ELEMENTS:
        return f"<array of shape {np.shape(value)}>"
    if inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
