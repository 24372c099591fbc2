"""Errors for class probabilities of models whose loss does not model them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["MarginScores", "PartScores", "no_probabilities"]


def no_probabilities(instead: str) -> str:
    """Return the sentence of all these errors.

    Parameters
    ----------
    instead : str
        The model or option to use instead.
    """
    return (
        f"this loss does not model probabilities: use {instead}, or fit a temperature to the "
        'scores of held-out rows: sklearn.calibration.CalibratedClassifierCV(method="temperature")'
    )


class _WithoutProbabilities:
    """Mixin for models without `predict_proba`: its error says what to use."""

    _probabilities: ClassVar[str]

    if not TYPE_CHECKING:  # A type checker that sees this method accepts misspelt attributes.

        def __getattr__(self, name: str) -> Any:
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("predict_proba", "predict_log_proba"):
                msg += f"; {self._probabilities}"
            raise AttributeError(msg, name=name, obj=self)


class MarginScores(_WithoutProbabilities):
    """Mixin for classifiers with a margin loss."""

    _probabilities = no_probabilities("dualgap.LogisticRegression")


class PartScores(_WithoutProbabilities):
    """Mixin for models whose labels are made of parts."""

    _probabilities = (
        "a structured hinge loss does not model probabilities; for sequences, use "
        'dualgap.SequenceTagger(loss="logistic") and its method predict_marginals'
    )
