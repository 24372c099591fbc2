"""Paths over C: intervals that one dual point certifies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from dualgap._tuning.path import Interval, intervals
from dualgap._validation import FloatArray
from dualgap.structured._arrays import Examples
from dualgap.structured._predictor import Predictor

__all__ = ["PathPiece"]


@dataclass(frozen=True, eq=False)
class PathPiece(Interval):
    """An interval of C on which one dual point is certified.

    Attributes
    ----------
    C_min, C_max : float
        The interval.
    coef : ndarray of shape (n_weights,)
        Weights at `C_min`; at another C of the interval they are ``coef * C / C_min``.
    duality_gap : float
        No model of the interval is farther from its optimum, in units of `StructuredSVM`'s
        objective.
    relative_gap : float
        The same in units of the model's own objective.
    n_iter : int
        Passes that it took.
    """

    C_min: float
    C_max: float
    coef: FloatArray
    duality_gap: float
    relative_gap: float
    n_iter: int
    _predictor: Predictor = field(repr=False)

    def predict(self, X: Examples) -> Any:
        """Label of the largest score for each example, the same for each C of the interval.

        Returns
        -------
        list or ndarray of length n_examples
            As `StructuredSVM.predict`.
        """
        return self._predictor.predict(X, self.coef)

    def score(self, X: Examples, y: Examples, sample_weight: ArrayLike | None = None) -> float:
        """One minus the share of the largest possible loss, as `StructuredSVM.score`."""
        return self._predictor.score(X, y, self.coef, sample_weight)


def path_pieces(
    pieces: Iterable[Any], interval: tuple[float, float], largest: float, predictor: Predictor
) -> list[PathPiece]:
    """Return the core's pieces, given in lambda from `largest` down, as intervals of C."""
    return [PathPiece(*piece, predictor) for piece in intervals(pieces, interval, largest)]
