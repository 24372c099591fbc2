"""Paths over C: intervals that a single dual point certifies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from dualgap._tuning.path import Interval, intervals
from dualgap._validation import FloatArray
from dualgap.structured._arrays import Examples
from dualgap.structured._predictor import Predictor

__all__ = ["StructuredPiece"]


@dataclass(frozen=True, eq=False)
class StructuredPiece(Interval):
    """An interval of C on which a single dual point certifies the model.

    Attributes
    ----------
    C_min, C_max : float
        The interval.
    coef : ndarray of shape (n_weights,)
        Weights at `C_min`; at another C of the interval they are ``coef * C / C_min``.
    duality_gap : float
        Largest distance from the optimum in the interval, in units of the objective of
        `StructuredSVM`.
    relative_gap : float
        The gap relative to the objective of the model.
    n_iter : int
        Number of passes.
    """

    C_min: float
    C_max: float
    coef: FloatArray = field(repr=False)
    duality_gap: float
    relative_gap: float
    n_iter: int
    _predictor: Predictor = field(repr=False)

    def predict(self, X: Examples) -> Any:
        """Return the highest-scoring labels, which are the same for each C of the interval.

        Returns
        -------
        list or ndarray of length n_examples
            As for `StructuredSVM.predict`.
        """
        return self._predictor.predict(X, self.coef)

    def score(self, X: Examples, y: Examples, sample_weight: ArrayLike | None = None) -> float:
        """Return one minus the relative loss of the predictions, as `StructuredSVM.score` does."""
        return self._predictor.score(X, y, self.coef, sample_weight)


def path_pieces(
    pieces: Iterable[Any], interval: tuple[float, float], largest: float, predictor: Predictor
) -> list[StructuredPiece]:
    """Convert the core's intervals of lambda, in descending order, to intervals of C."""
    return [StructuredPiece(*piece, predictor) for piece in intervals(pieces, interval, largest)]
