"""Scores of a linear classifier, and the predictions that its certificate leaves undecided."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import safe_sparse_dot

from dualgap._validation import FloatArray

# Number of rows to score at a time.
_BLOCK = 4096
_SMALLEST = float(np.nextafter(0.0, 1.0))


def linear_scores(X: Any, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    """Return the scores of checked rows, computed in their precision (float32 for float16).

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        Checked rows.
    coef : ndarray of shape (n_classes, n_features)
        Weights.
    intercept : ndarray of shape (n_classes,)
        Intercepts.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    if X.dtype == np.float16:
        # Convert blocks of rows, because a float32 copy of all rows would take twice their memory.
        weights = coef.T.astype(np.float32)
        scores = np.empty((X.shape[0], len(coef)))
        for start in range(0, X.shape[0], _BLOCK):
            block = slice(start, start + _BLOCK)
            scores[block] = X[block].astype(np.float32) @ weights
        return scores + intercept
    # The weights take the precision of the rows, which are the larger operand.
    scores = safe_sparse_dot(X, coef.T.astype(X.dtype, copy=False), dense_output=True)
    return np.asarray(scores + intercept, dtype=np.float64)


def squared_row_norms(rows: Any) -> FloatArray:
    """Return the squared norm of each row of a float64 matrix."""
    if sp.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def distances(rows: Any, centre: FloatArray) -> FloatArray:
    """Return the distance of each row of a float64 matrix from a point.

    For dense rows, the relative rounding errors are as large as those of norms. For CSR rows, the
    point is not subtracted, because that would make them dense; the result is rounded up instead.
    """
    if not sp.issparse(rows):
        return np.asarray(np.sqrt(squared_row_norms(rows - centre)))
    squares, square = squared_row_norms(rows), float(centre @ centre)
    if square > 0.0:
        error = (4.0 * len(centre) + 32.0) * float(np.finfo(np.float64).eps)
        squares = squares - 2.0 * np.asarray(rows @ centre) + square + error * (squares + square)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def optimum_radius(gap: float, lambda_: float) -> float:
    """Return a bound on the distance of weights from the optimum.

    The objective is strongly convex with modulus `lambda_`, so its excess over the optimum, which
    is at most the duality gap, is at least ``lambda_ / 2`` times the squared distance.
    """
    # Adding the smallest positive double avoids a radius of 0 after an underflow.
    return float(np.sqrt(2.0 * gap / lambda_ + 5e-324))


def undecided(
    X: Any,
    model: tuple[FloatArray, FloatArray, float],
    radius: float,
    predicted: NDArray[np.intp],
    around: tuple[FloatArray, FloatArray] | None = None,
) -> NDArray[np.bool_]:
    """Return a mask of the rows whose class may differ in a model within `radius` of this model.

    The difference of two scores changes by at most ``sqrt(2) * norm(x) * radius`` or, with
    `around`, by at most ``sqrt(2) * norm(x - centre) * radius + offset``
    (docs/mathematics/cross-validation.md and logistic.md).

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        Checked rows.
    model : tuple
        Weights of shape (n_classes, n_features), intercepts, and the constant feature.
    radius : float
        Largest distance in the Frobenius norm, including the weights of the constant feature.
    predicted : ndarray of shape (n_samples,)
        Index of the predicted class of each row, computed in any precision.
    around : tuple, optional
        For intercepts that are not part of the radius: the centre, and for each pair of classes the
        largest change of the difference of their scores at the centre.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        True also for rows with a score or a bound that is not finite.
    """
    coef, intercept, bias = model
    epsilon, n_terms = float(np.finfo(np.float64).eps), coef.shape[1] + 8
    found = np.empty(len(predicted), dtype=bool)
    # A sum that overflows is infinite or NaN; such a row counts as undecided.
    with np.errstate(over="ignore", invalid="ignore"):
        own = intercept / bias if bias else intercept
        # The error of a product that underflows is smaller than the smallest positive number.
        square = (coef**2).sum() + (own**2).sum() + (coef.size + len(own)) * _SMALLEST
        norm = np.sqrt(square) * (1.0 + coef.size * epsilon)
        # A score is a sum of one product per feature. The bound is twice the largest rounding error
        # of a score.
        rounded = 2.0 * n_terms * epsilon * norm
        moved = radius * (1.0 + 16 * epsilon)
        for start in range(0, len(predicted), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = X[block].astype(np.float64, copy=False)
            scores = np.asarray(safe_sparse_dot(rows, coef.T, dense_output=True)) + intercept
            chosen = np.take_along_axis(scores, predicted[block, None], axis=1)
            others = scores.copy()
            np.put_along_axis(others, predicted[block, None], -np.inf, axis=1)
            norms = np.sqrt(squared_row_norms(rows) + bias**2 + n_terms * _SMALLEST)
            change = norms * (moved + rounded)
            if around is not None:
                centre, offsets = around
                away = distances(rows, centre) + np.sqrt(n_terms * _SMALLEST)
                change = away * moved + norms * rounded + 4.0 * epsilon * np.abs(intercept).max()
                others += offsets[predicted[block]]
            reach = np.sqrt(2.0) * change * (1.0 + n_terms * epsilon) + 2.0 * n_terms * _SMALLEST
            lead = chosen[:, 0] - others.max(axis=1)
            decided = np.isfinite(lead) & (lead > reach)
            found[block] = ~decided
    return found
