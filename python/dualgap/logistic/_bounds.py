"""Bounds on scores of the exact optimum of a logistic regression, from its duality gap.

The derivations are in docs/mathematics/logistic.md ("Scores of the optimum"). Norms and means are
enlarged by a relative `_ROUNDING`, which is far above their rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from dualgap._validation import FloatArray
from dualgap.multiclass._rows import optimum_radius, squared_row_norms, undecided

__all__ = ["NO_BOUNDS", "OptimumBall", "TrainingRows"]

NO_BOUNDS: dict[str, float] = {"lower": -np.inf, "upper": np.inf}

_ROUNDING = 1e-9
# Bound on the relative error of sums of up to 1024 products in single precision.
_SINGLE = 1e-3
_BISECTIONS = 60
# Number of rows whose probabilities are in memory at a time.
_BLOCK = 4096


def row_norms(X: Any) -> FloatArray:
    """Return the Euclidean norm of each row, rounded up."""
    sums = squared_row_norms(X.astype(np.float64, copy=False))
    return np.asarray(np.sqrt(sums) * (1.0 + _ROUNDING))


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a fit, with their shares of the total weight and their norms."""

    X: Any
    shares: FloatArray
    norms: FloatArray
    curvature: FloatArray | None = None
    """Curvature of the mean loss in the intercepts at a model, if it is known."""

    @classmethod
    def of(cls, X: Any, weights: FloatArray | None) -> TrainingRows:
        """Compute the norms; `weights` includes class weights."""
        weights = np.ones(X.shape[0]) if weights is None else weights
        return cls(X, weights / weights.sum(), row_norms(X))

    def least_curvature(self, model: Any) -> float:
        """Return a lower bound on the curvature of the mean loss in the intercepts.

        It is the smallest eigenvalue of the mean of diag(p) - p p' on vectors that sum to 0.
        """
        if self.curvature is None:
            mean, rounding = self._mean_curvature(model), _ROUNDING
        else:
            # The rows of the matrix sum to 0, and a relative error of its other entries changes the
            # eigenvalue by at most the same factor. With two classes, only the curvature in the
            # second intercept is known.
            two = len(self.curvature) == 1
            other = np.pad(self.curvature, ((1, 0), (0, 1))) if two else -self.curvature
            other = np.maximum(other, other.T)
            np.fill_diagonal(other, 0.0)
            mean, rounding = np.diag(other.sum(axis=1)) - other, _SINGLE
        # The vector of ones has the eigenvalue 0. The added matrix moves this eigenvalue above all
        # other eigenvalues.
        values = np.linalg.eigvalsh(mean + 1.0 / len(mean))
        return float(values[0] * (1.0 - rounding) - _ROUNDING)

    def _mean_curvature(self, model: Any) -> FloatArray:
        n_classes = len(model.classes_)
        mean = np.zeros((n_classes, n_classes))
        for start in range(0, len(self.shares), _BLOCK):
            block = slice(start, start + _BLOCK)
            p = softmax(model._scores(self.X[block].astype(np.float64)), axis=1)
            weighted = p * self.shares[block, None]
            # einsum does not start threads of BLAS; when folds run in parallel, all cores are
            # already busy.
            mean -= np.einsum("ij,ik->jk", weighted, p)
            mean[np.diag_indices(n_classes)] += weighted.sum(axis=0)
        return mean


@dataclass(frozen=True)
class OptimumBall:
    """Bounds on the distances between the weights and intercepts of the optimum and of a model."""

    radius: float
    """Bound on the distance of the weights in the Frobenius norm."""
    offset: float
    """Bound on the change of the difference of two intercepts; infinite if no bound is known."""
    spread: float
    """Bound on the change of the difference of two scores of a row, as a factor of its norm."""

    @classmethod
    def of(cls, model: Any, rows: TrainingRows) -> OptimumBall:
        """Return the ball of a model that was fitted on these rows."""
        radius = optimum_radius(model.duality_gap_, model._lambda) * (1.0 + _ROUNDING)
        spread = radius * (1.0 if len(model.coef_) == 1 else np.sqrt(2.0))
        offset = 0.0
        if model.fit_intercept:
            curvature = rows.least_curvature(model)
            offset = _largest_offset(model.duality_gap_, curvature, spread, rows)
        return cls(radius, offset, spread)

    def prediction_may_change(
        self, model: Any, X: Any, predicted: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows for which the optimum may predict a different class.

        `predicted` has the index of the predicted class of each row.
        """
        if not np.isfinite(self.offset):
            return np.ones(X.shape[0], dtype=bool)
        linear = (*model._both(), 0.0)
        return undecided(X, linear, self.radius, predicted, self.offset)

    def log_losses(self, model: Any, X: Any, codes: NDArray[np.intp]) -> tuple[float, float]:
        """Return bounds on the mean log loss of the optimum; `codes` index the model's classes."""
        if not np.isfinite(self.offset):
            return 0.0, np.inf
        X = X.astype(np.float64)
        n_rows, own = len(codes), (np.arange(len(codes)), codes)
        logs = log_softmax(model._scores(X), axis=1)
        value, slopes = -float(logs[own].mean()), np.exp(logs)
        slopes[own] -= 1.0
        # With one weight vector for two classes, only the second class's slopes count.
        used = slopes[:, 1:] if len(model.coef_) == 1 else slopes
        gradient = np.asarray((X.T @ used) if sp.issparse(X) else np.einsum("ij,ik->jk", X, used))
        change = self.spread * row_norms(X) + self.offset
        first = self.radius * float(np.sqrt((gradient**2).sum())) / n_rows
        first += 0.5 * self.offset * float(np.abs(slopes.mean(axis=0)).sum())
        second, most = float((change**2).mean()) / 8.0, float(change.mean())
        slack = _ROUNDING * (1.0 + value + most)
        lower = value - min(first, most) - slack
        return max(lower, 0.0), value + min(first + second, most) + slack


def _largest_offset(gap: float, curvature: float, spread: float, rows: TrainingRows) -> float:
    """Return the largest change of the difference of two intercepts.

    It is the zero of an increasing function, and infinite if that function stays negative.
    """
    counted = rows.norms[rows.shares > 0.0]
    longest = spread * float(counted.max(initial=0.0))
    mean = spread * float(np.sqrt((rows.shares * rows.norms**2).sum()))
    slope, root = np.sqrt(max(0.5 * curvature, 0.0)), np.sqrt(gap)
    if not slope > root:
        return np.inf

    def is_possible(offset: float) -> bool:
        return bool(slope * offset <= 0.5 * mean + root * _inverse_root(longest + offset))

    # The function grows at least as fast as (slope - root) times the offset.
    low, high = 0.0, (0.5 * mean + root * (longest + np.sqrt(2.0))) / (slope - root)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_possible(middle) else (low, middle)
    return float(high * (1.0 + _ROUNDING))


def _inverse_root(change: float) -> float:
    """Return 1 / sqrt(h), h = (1 - (1 + R) exp(-R)) / R^2: the integral of t exp(-t R), t < 1."""
    if change < 1e-4:
        # h >= 1/2 - R/3.
        return float(1.0 / np.sqrt(0.5 - change / 3.0))
    return float(change / np.sqrt(-np.expm1(-change) - change * np.exp(-change)))
