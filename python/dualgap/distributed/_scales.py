"""Column scales, which make one penalty suit the weights of all columns.

With columns of very different scales, no single penalty suits all weights. The columns are
therefore divided by powers of two s, which is exact, and their weights are multiplied by s. The
penalty compensates for the change of the regulariser: with the weights v = s w, the sum of lambda/2
||v/s||^2 and penalty_j/2 (v_j - v_bar_j)^2 has the curvature lambda + rho in every coordinate, as
in a plain subproblem.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._validation import FloatArray
from dualgap.distributed._partition import Summary

__all__ = ["column_scales", "divided", "penalty", "widened"]

_LARGEST = 32.0
"""Rows are scaled only if the root mean square of a column exceeds this value."""


def column_scales(
    summaries: list[Summary], n_features: int, bias: float, rho: float
) -> FloatArray | None:
    """Return a power of two, at least 1, for each column; None if the rows need no scaling.

    The scale is near the root mean square of the column. Columns with a root mean square below 1
    are not scaled, because the regulariser dominates there. If there is a constant feature, its
    scale comes last. A single partition has no penalty and needs no scaling.
    """
    squares = np.zeros(n_features)
    for summary in summaries:
        columns = slice(None) if summary.columns is None else summary.columns
        if summary.n_rows:
            squares[columns] += summary.squares
    n_rows = sum(summary.n_rows for summary in summaries)
    sizes = np.sqrt(squares / max(n_rows, 1))
    if bias:
        sizes = np.append(sizes, abs(bias))
    # A later check reports rows that are not finite.
    if rho == 0.0 or not np.isfinite(sizes).all() or sizes.max(initial=0.0) <= _LARGEST:
        return None
    return np.exp2(np.rint(np.log2(np.maximum(sizes, 1.0))))


def penalty(scales: FloatArray | None, lam: float, rho: float, n_classes: int) -> Any:
    """Return the penalty of each weight or, if columns are not scaled, `rho` itself."""
    if scales is None:
        return rho
    return np.tile(rho + lam * (1.0 - scales**-2.0), n_classes)


def divided(rows: Any, scales: FloatArray) -> Any:
    """Return rows divided by scales, in double precision so that no float32 value underflows."""
    scales = scales[: rows.shape[1]]
    if not sp.issparse(rows):
        return rows.astype(np.float64) / scales
    values = rows.data.astype(np.float64) / scales[rows.indices]
    return sp.csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)


def widened(rows: sp.csr_matrix, columns: NDArray[Any], n_features: int) -> sp.csr_matrix:
    """Return sparse rows with all columns of the problem, given the index of each stored column."""
    indices = columns[rows.indices].astype(rows.indices.dtype)
    return sp.csr_matrix((rows.data, indices, rows.indptr), shape=(rows.shape[0], n_features))
