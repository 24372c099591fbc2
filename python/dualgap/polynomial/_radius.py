"""The default radius of polynomial models."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dualgap._validation import FloatArray
from dualgap.chunks import Chunks

__all__ = ["default_radius"]

# Chosen by the scores of held-out rows on sixteen tables with 4 to 180 features, and on wider
# tables: scenes, indicators and words (56,438 features).
_PER_ROW = 3.0
_SMALLEST, _LARGEST = 1.0, 100.0
_WIDE = 100
_OF_DEVIATION = 0.05


def default_radius(X: Any, weights: FloatArray | None, deviation: float | None) -> float:
    """Return the default radius for these rows, their weights, and the deviation of the targets.

    The deviation is None for classes. A model of d features has d^2 products of features. For n
    rows of features with a mean square of 1, the radius is therefore 3 n / d^2, but at most 100 and
    at least 1 (for more than 100 features, 100 / d). Outputs are proportional to the radius and to
    squares of features, so the radius is divided by the mean square of the features and, for a
    regressor, proportional to the deviation.
    """
    unit = 1.0 if deviation is None else _OF_DEVIATION * deviation
    n, d = (float(X.shape[0]) if weights is None else float(weights.sum())), X.shape[1]
    chunks = X.chunks if isinstance(X, Chunks) else [X]
    largest = max((_largest(rows) for rows in chunks), default=0.0)
    if not (largest > 0.0 and n > 0.0 and unit > 0.0):
        return _SMALLEST
    # Summed over all rows at once, so that chunks of the rows give the same bits.
    squares = np.concatenate([_squares(rows, largest) for rows in chunks])
    total = float((squares if weights is None else weights * squares).sum())
    smallest = min(_SMALLEST, _WIDE / d)
    share = float(np.clip(_PER_ROW * n / d**2, smallest, _LARGEST))
    with np.errstate(all="ignore"):
        radius = np.float64(share * n * d) / total * unit / largest / largest
    limits = np.finfo(np.float64)
    return float(np.clip(radius, limits.tiny, limits.max))


def _largest(rows: Any) -> float:
    """Return the largest absolute value."""
    values = rows.data if sp.issparse(rows) else rows
    return float(max(values.max(), -values.min())) if values.size else 0.0


def _squares(rows: Any, unit: float) -> FloatArray:
    """Return the squared norm of each row in multiples of the square of `unit`."""
    if sp.issparse(rows):
        scaled = sp.csr_array((rows.data / unit, rows.indices, rows.indptr), shape=rows.shape)
        return np.asarray(scaled.multiply(scaled).sum(axis=1), dtype=np.float64).ravel()
    scaled = rows / unit
    return np.asarray(np.einsum("ij,ij->i", scaled, scaled), dtype=np.float64)
