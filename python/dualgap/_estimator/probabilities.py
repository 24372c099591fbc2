"""Error messages for `predict_proba` of models whose loss does not model probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["MARGIN_ADVICE", "STRUCTURED_ADVICE", "no_probabilities", "without_probabilities"]

_Class = TypeVar("_Class", bound=type)


def no_probabilities(instead: str) -> str:
    """Return the part of the message that gives the reason and the alternatives.

    Parameters
    ----------
    instead : str
        The model or option to use instead.
    """
    return (
        f"this loss does not model probabilities: use {instead}, or fit a temperature to the "
        "scores of held-out rows: "
        'sklearn.calibration.CalibratedClassifierCV(method="temperature"), with scikit-learn 1.8 '
        "or later"
    )


MARGIN_ADVICE = no_probabilities("dualgap.LogisticRegression")
STRUCTURED_ADVICE = (
    "a structured hinge loss does not model probabilities; for sequences, use "
    'dualgap.SequenceTagger(loss="logistic") and its method predict_marginals'
)


def without_probabilities(advice: str) -> Callable[[_Class], _Class]:
    """Return a class decorator that adds the advice to the error for a missing `predict_proba`."""

    def missing(self: Any, name: str) -> Any:
        msg = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in ("predict_proba", "predict_log_proba"):
            msg += f"; {advice}"
        raise AttributeError(msg, name=name, obj=self)

    def decorate(cls: _Class) -> _Class:
        # Assigned here, because a type checker that sees the method in a class accepts misspelt
        # attributes.
        cls.__getattr__ = missing  # type: ignore[attr-defined]
        return cls

    return decorate
