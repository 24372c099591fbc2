"""Paths of logistic regression over C: intervals on which a single model is certified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualgap._validation import FloatArray, MatrixLike
from dualgap.logistic._model import LogisticClassifier
from dualgap.multiclass._rows import optimum_radius

__all__ = ["LogisticPiece"]

# Length of a step (in the logarithm of C) relative to the distance that the last model covered.
_STEP = 0.95
# Factor by which a step is shortened if its interval does not reach the previous interval.
_SHORTER = 0.7
# Number of bisections that find the end of an interval, to a relative precision of 2^-40.
_BISECTIONS = 40
# Relative rounding error of a bound that is computed from a handful of numbers.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class LogisticPiece:
    """An interval of C on which one model is certified.

    Attributes
    ----------
    C_min, C_max : float
        The interval.
    coef : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights, the same for each C of the interval.
    intercept : ndarray of shape (n_classes,), or (1,) for two classes
        Intercepts.
    duality_gap : float
        Largest distance from the optimum in the interval, in units of the objective of
        `LogisticRegression`.
    relative_gap : float
        Largest gap relative to the objective of the model.
    n_iter : int
        Number of iterations.
    """

    C_min: float
    C_max: float
    coef: FloatArray = field(repr=False)
    intercept: FloatArray = field(repr=False)
    duality_gap: float
    relative_gap: float
    n_iter: int
    _model: LogisticClassifier = field(repr=False)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the class with the largest probability.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._model.predict(X)

    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._model.predict_proba(X)

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy."""
        return float(self._model.score(X, y, sample_weight))


@dataclass(frozen=True)
class _Reach:
    """Gaps of one model and one dual point for all values of C.

    With lambda' = lambda C / C', the model's objective changes by (lambda' - lambda)/2 ||W||^2, and
    the dual value of the same distributions by lambda/2 ||V||^2 (1 - lambda / lambda'). V differs
    from W by at most sqrt(2 gap / lambda) (docs/mathematics/logistic.md).
    """

    C: float
    objective: float
    gap: float
    square: float
    """lambda/2 ||W||^2."""
    distance: float
    """Bound on sqrt(lambda/2) ||V - W||."""

    @classmethod
    def of(cls, model: Any) -> _Reach:
        half = 0.5 * model._lambda
        square = half * float((model.coef_**2).sum()) * (1.0 + model.coef_.size * _ROUNDING)
        distance = np.sqrt(half) * optimum_radius(model.duality_gap_, model._lambda)
        return cls(model.C, model.objective_, model.duality_gap_, square, float(distance))

    def gaps(self, C: float) -> tuple[float, float]:
        """Return bounds on the gap at another C: absolute, and relative to the objective."""
        scale = self.C / C
        objective = self.objective + (scale - 1.0) * self.square
        root = self.square**0.5
        nearest = root + self.distance if scale < 1.0 else max(root - self.distance, 0.0)
        gap = self.gap + (scale - 1.0) * (self.square - nearest**2 / scale)
        gap += _ROUNDING * (objective + (1.0 + 1.0 / scale) * nearest**2)
        if objective > 0.0:
            return gap, gap / objective
        return gap, np.inf if gap > 0.0 else 0.0

    def end(self, limit: float, allowed: float) -> float:
        """Return the last C towards `limit` at which the relative gap is at most `allowed`.

        The values of C with such a gap form an interval (docs/mathematics/logistic.md).
        """
        if self.gaps(limit)[1] <= allowed:
            return limit
        good, bad = np.log(self.C), np.log(limit)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (good + bad)
            if self.gaps(float(np.exp(middle)))[1] <= allowed:
                good = middle
            else:
                bad = middle
        found = float(np.exp(good))
        # exp and log may round to a C beyond that of the model.
        return max(found, self.C) if limit > self.C else min(found, self.C)


def logistic_pieces(
    fit: Callable[[float], Any], interval: tuple[float, float], tol: float
) -> Iterator[LogisticPiece]:
    """Yield pieces from `C_min` to `C_max`, each with a relative gap of at most `tol`.

    Parameters
    ----------
    fit : callable
        Returns a model for a C, trained to half of `tol`, or None to end the path.
    interval : tuple (C_min, C_max)
        The interval.
    tol : float
        Largest relative gap. The gap of a piece is larger if its fit did not converge.
    """
    start, last = map(float, interval)
    step, complete = 0.0, False
    while not complete:
        while True:
            C = min(start * float(np.exp(step)), last)
            model = fit(C)
            if model is None:
                return
            reach = _Reach.of(model)
            allowed = max(tol, 2.0 * reach.gaps(C)[1])
            if start >= C or reach.end(start, allowed) <= start:
                break
            step = _SHORTER * step if step > 1e-9 else 0.0
        end = reach.end(last, allowed)
        complete = end >= last
        if not complete:
            # Rounding must not stop the path.
            end = max(end, float(np.nextafter(start, np.inf)))
        gap, relative = map(max, zip(*(reach.gaps(C) for C in (start, C, end)), strict=True))
        shown = (model.coef_, model.intercept_)
        yield LogisticPiece(start, end, *shown, gap, relative, model.n_iter_, model)
        step = _STEP * float(np.log(end / C)) if end > C else step
        start = end
