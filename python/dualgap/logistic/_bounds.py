"""Bounds on predictions and scores of the exact optimum of a logistic regression, from its gap.

The derivations are in docs/mathematics/logistic.md ("Scores of the optimum"). Norms, means and
bounds are enlarged by a relative `_ROUNDING`, which is far above their rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_softmax

from dualgap._records import InterceptCurvature
from dualgap._validation import FloatArray
from dualgap.multiclass._rows import distances, optimum_radius, undecided

__all__ = ["NO_BOUNDS", "OptimumBall"]

NO_BOUNDS: dict[str, float] = {"lower": -np.inf, "upper": np.inf}

_ROUNDING = 1e-9
# Bound on the relative error of sums of up to 1024 products in single precision.
_SINGLE = 1e-3
_BISECTIONS = 60


@dataclass(frozen=True)
class OptimumBall:
    """Bounds on the distance of a model from the optimum, in the weights and in the intercepts."""

    radius: float
    """Bound on the distance of the weights in the Frobenius norm."""
    spread: float
    """Bound on the change of the difference of two scores of a row, without intercepts, per unit of
    the row's distance from the centre."""
    centre: FloatArray
    offsets: FloatArray
    """For each pair of classes, a bound on the change of the difference of their scores at the
    centre; infinite if no bound is known."""

    @classmethod
    def of(cls, model: Any) -> OptimumBall:
        """Return the ball of a fitted model."""
        radius = optimum_radius(model.duality_gap_, model._lambda) * (1.0 + _ROUNDING)
        n_classes, n_features = len(model.classes_), model.coef_.shape[1]
        spread = radius * (1.0 if len(model.coef_) == 1 else np.sqrt(2.0))
        if not model.fit_intercept:
            offsets = np.zeros((n_classes, n_classes))
            return cls(radius, spread, np.zeros(n_features), offsets)
        found = _offsets(model.duality_gap_, spread, model._curvature)
        if found is None:
            found = np.full((n_classes, n_classes), np.inf)
        return cls(radius, spread, model._curvature["centre"], found)

    def prediction_may_change(
        self, model: Any, X: Any, predicted: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows for which the optimum may predict a different class.

        `predicted` has the index of the predicted class of each row.
        """
        linear = (*model._both(), 0.0)
        radius = self.spread / np.sqrt(2.0)
        return undecided(X, linear, radius, predicted, (self.centre, self.offsets))

    def log_losses(self, model: Any, X: Any, codes: NDArray[np.intp]) -> tuple[float, float]:
        """Return bounds on the mean log loss of the optimum; `codes` index the model's classes."""
        offset = float(self.offsets.max())
        if not np.isfinite(offset):
            return 0.0, np.inf
        X = X.astype(np.float64)
        n_rows, own = len(codes), (np.arange(len(codes)), codes)
        logs = log_softmax(model._scores(X), axis=1)
        value, slopes = -float(logs[own].mean()), np.exp(logs)
        slopes[own] -= 1.0
        # With one weight vector for two classes, only the second class's slopes count.
        used = slopes[:, 1:] if len(model.coef_) == 1 else slopes
        # For CSR rows, the centre is 0. Unlike BLAS, einsum does not start threads; when folds run
        # in parallel, all cores are already busy.
        centred = X if sp.issparse(X) else X - self.centre
        gradient = centred.T @ used if sp.issparse(X) else np.einsum("ij,ik->jk", centred, used)
        change = self.spread * distances(X, self.centre) * (1.0 + _ROUNDING) + offset
        first = self.radius * float(np.sqrt((np.asarray(gradient) ** 2).sum())) / n_rows
        first += 0.5 * offset * float(np.abs(slopes.mean(axis=0)).sum())
        second, most = float((change**2).mean()) / 8.0, float(change.mean())
        slack = _ROUNDING * (1.0 + value + most)
        lower = value - min(first, most) - slack
        return max(lower, 0.0), value + min(first + second, most) + slack


def _resistances(matrix: FloatArray) -> tuple[FloatArray, float] | None:
    """Return (e_j - e_k)' B^-1 (e_j - e_k) for each pair of classes, and the trace of B.

    B is the curvature of the mean loss in the intercepts. Both results are rounded up. Returns None
    if B is not known, or may be singular on the vectors that sum to 0.
    """
    if matrix.size == 0:
        return None
    # The rows of B sum to 0, so the entries off the diagonal determine B, and their relative errors
    # change it by at most the same factor. With two classes, only the curvature in the second
    # intercept is known.
    two = len(matrix) == 1
    other = np.pad(matrix, ((1, 0), (0, 1))) if two else -matrix
    other = np.maximum(other, other.T)
    np.fill_diagonal(other, 0.0)
    other, n_classes = np.maximum(other, 0.0), len(other)
    trace = float(other.sum())
    # The vector of ones has the eigenvalue 0, and no effect on differences. The added matrix moves
    # this eigenvalue to the trace.
    values, vectors = np.linalg.eigh(np.diag(other.sum(axis=1)) - other + trace / n_classes)
    values = values * (1.0 - _SINGLE) - _ROUNDING * trace
    if not values[0] > 0.0:
        return None
    inverse = (vectors / values) @ vectors.T
    own = np.diag(inverse)
    found = np.add.outer(own, own) - 2.0 * inverse
    found = np.maximum(found, 0.0) + _ROUNDING * own.max()
    np.fill_diagonal(found, 0.0)
    return found, trace * (1.0 + _SINGLE)


def _offsets(gap: float, spread: float, curvature: InterceptCurvature) -> FloatArray | None:
    """Return the largest changes of the differences of two scores at the centre.

    They are proportional to the largest change of the scores at the centre, measured in the norm
    that the curvature defines. That change is the zero of an increasing function. Returns None if
    the function stays negative.
    """
    found = _resistances(curvature["matrix"])
    if found is None:
        return None
    resistances, trace = found
    most, root = float(np.sqrt(resistances.max())), float(np.sqrt(gap * (1.0 + _ROUNDING)))
    largest = curvature["largest_square"] * (1.0 + _ROUNDING)
    square = min(0.25 * curvature["mean_square"] * (1.0 + _ROUNDING), 0.5 * trace * largest)
    mean, longest = spread * float(np.sqrt(square)), spread * float(np.sqrt(largest))
    if not (most * root < 1.0 and np.isfinite(mean + longest)):
        return None

    def is_possible(change: float) -> bool:
        return change <= float(np.hypot(mean, root * _inverse_root(longest + most * change)))

    # The difference of both sides grows at least as fast as (1 - most * root) times the change.
    low, high = 0.0, (mean + root * (longest + np.sqrt(2.0))) / (1.0 - most * root)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_possible(middle) else (low, middle)
    return np.asarray(np.sqrt(resistances) * (high * (1.0 + _ROUNDING)))


def _inverse_root(change: float) -> float:
    """Return 1 / sqrt(h), where h is the integral of t exp(-t R) over t from 0 to 1.

    R is `change`, and h = (1 - (1 + R) exp(-R)) / R^2.
    """
    if change < 1e-4:
        # h >= 1/2 - R/3.
        return float(1.0 / np.sqrt(0.5 - change / 3.0))
    return float(change / np.sqrt(-np.expm1(-change) - change * np.exp(-change)))
