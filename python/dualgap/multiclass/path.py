"""Paths of linear classifiers over C: intervals that one dual point certifies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualgap._estimator import ScoringClassifier
from dualgap._validation import FloatArray, MatrixLike, check_positive

__all__ = ["LinearPiece"]


@dataclass(frozen=True, eq=False)
class LinearPiece:
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
        No model of the interval is farther from its optimum, in units of `MulticlassSVC`'s
        objective.
    relative_gap : float
        The same in units of the model's own objective.
    n_iter : int
        Passes that it took.
    """

    C_min: float
    C_max: float
    coef: FloatArray
    intercept: FloatArray
    duality_gap: float
    relative_gap: float
    n_iter: int
    _model: ScoringClassifier = field(repr=False)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Class with the largest score, the same for each C of the interval.

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
        """Accuracy, the same for each C of the interval."""
        return float(self._model.score(X, y, sample_weight))

    def coef_at(self, C: float) -> FloatArray:
        """Weights of the certified model for a C of the interval.

        Raises
        ------
        ValueError
            If C is not in the interval.
        """
        if not self.C_min <= C <= self.C_max:
            msg = f"C: {C} is not between {self.C_min} and {self.C_max}"
            raise ValueError(msg)
        return np.asarray(self.coef * (C / self.C_min))


def check_interval(C_min: float, C_max: float) -> None:
    """Refuse an interval of C that is none."""
    check_positive("C_min", C_min)
    check_positive("C_max", C_max)
    if C_min > C_max:
        msg = f"C_max: must not be less than C_min={C_min}, got {C_max}"
        raise ValueError(msg)


def linear_pieces(
    pieces: Iterable[Any],
    interval: tuple[float, float],
    largest: float,
    fitted: Callable[[FloatArray], Any],
) -> list[LinearPiece]:
    """Return the core's pieces, given in lambda from `largest` down, as intervals of C."""
    found = []
    start, last = map(float, interval)
    for _, until, weights, gap, relative, n_iter in pieces:
        # Rounding must not leave a crack between two pieces, or at the end.
        end = min(last, interval[0] * largest / until)
        end = last if end > last * (1 - 1e-12) else end
        model = fitted(weights)
        shown = (model.coef_, model.intercept_)
        found.append(LinearPiece(start, end, *shown, gap, relative, n_iter, model))
        start = end
    return found
