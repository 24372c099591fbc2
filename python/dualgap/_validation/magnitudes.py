"""Sizes of numbers that fits can compute with."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def check_magnitude(name: str, X: Any, *, single: bool = False) -> None:
    """Refuse values whose squares add up to more than their precision can hold.

    Fits compute ``||x||^2`` of rows, and sums over rows of products with the weights: block descent
    in the precision of the rows, all other methods in float64. By the inequality of Cauchy and
    Schwarz, each sum of products ``x_i b_i`` with ``|b_i| <= 1`` has a square of at most n times
    ``sum_i ||x_i||^2``, so that the sum of all squares decides: about 1e19 is the largest norm of a
    matrix of float32, 1e154 that of one of float64. Squares of float16 cannot overflow in float32.

    Parameters
    ----------
    name : str
        Argument that the message names.
    X : ndarray or sparse matrix
        Values in C order. NaN and infinity are left to the check for them.
    single : bool, default=False
        Whether float32 is computed with in float32.

    Raises
    ------
    ValueError
        If the sum of squares overflows.
    """
    values = (X.data if sp.issparse(X) else np.asarray(X)).reshape(-1)
    if values.dtype not in (np.float64, np.float32 if single else np.float64) or not values.size:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.dot(values, values)
    if np.isfinite(square) or not np.isfinite(values).all():
        return
    largest = float(np.abs(values).max())
    remedy = "scale the data" if values.dtype == np.float64 else "scale the data or use float64"
    msg = (
        f"{name}: values up to {largest:.3g} are too large for {values.dtype}: the sum of their "
        f"squares overflows; {remedy}"
    )
    raise ValueError(msg)
