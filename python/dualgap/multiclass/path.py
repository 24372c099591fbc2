"""Paths of linear classifiers over C: intervals, each certified by a single dual point."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike, NDArray

from dualgap._estimator import ScoringClassifier
from dualgap._tuning.path import Interval, intervals
from dualgap._validation import FloatArray, MatrixLike

__all__ = ["LinearPiece"]


@dataclass(frozen=True, eq=False)
class LinearPiece(Interval):
    """An interval of C on which one model, scaled with C, is certified.

    Attributes
    ----------
    C_min, C_max : float
        The interval.
    coef : ndarray of shape (n_classes, n_features)
        Weights at `C_min`; at another C of the interval they are ``coef * C / C_min``.
    intercept : ndarray of shape (n_classes,)
        Intercepts at `C_min`.
    duality_gap : float
        Largest distance from the optimum in the interval, in units of the objective of
        `MulticlassSVC`.
    relative_gap : float
        The gap relative to the objective of the model.
    n_iter : int
        Number of passes.
    """

    C_min: float
    C_max: float
    coef: FloatArray = field(repr=False)
    intercept: FloatArray = field(repr=False)
    duality_gap: float
    relative_gap: float
    n_iter: int
    _model: ScoringClassifier = field(repr=False)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the class with the largest score, the same for each C of the interval.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._model.predict(X)

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy, which is the same for each C of the interval."""
        return float(self._model.score(X, y, sample_weight))


def linear_pieces(
    pieces: Iterable[Any],
    interval: tuple[float, float],
    largest: float,
    fitted: Callable[[FloatArray], Any],
) -> list[LinearPiece]:
    """Convert the core's intervals of lambda, in descending order, to intervals of C."""
    found = []
    for start, end, weights, gap, relative, n_iter in intervals(pieces, interval, largest):
        model = fitted(weights)
        shown = (model.coef_, model.intercept_)
        found.append(LinearPiece(start, end, *shown, gap, relative, n_iter, model))
    return found
