"""Limits on the magnitude of values, so that fits do not overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def check_magnitude(name: str, X: Any, *, single: bool = False) -> None:
    """Raise a ValueError if the sum of the squares of the values overflows.

    Fits compute ``||x_i||^2`` of each row, and sums ``sum_i x_i b_i`` with ``|b_i| <= 1``. Block
    descent computes them in the precision of the rows, and all other methods in float64. By the
    Cauchy-Schwarz inequality, the square of such a sum is at most n times ``sum_i ||x_i||^2``, so a
    bound on the sum of all squares suffices. It allows norms of a matrix
    up to about 1e19 in float32 and 1e154 in float64. Squares of float16 cannot overflow in float32.

    Parameters
    ----------
    name : str
        Name of the argument, for the error message.
    X : ndarray or sparse matrix
        Values in C order. NaN and infinity are left to another check.
    single : bool, default=False
        Whether fits use float32 arithmetic for float32 rows.

    Raises
    ------
    ValueError
        If the sum of squares overflows.
    """
    values = (X.data if sp.issparse(X) else np.asarray(X)).reshape(-1)
    if values.dtype not in (np.float64, np.float32 if single else np.float64) or not values.size:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # Not np.dot: its threads wait actively, so on a busy machine it takes longer than a small
        # fit.
        square = np.einsum("i,i->", values, values)
    if np.isfinite(square) or not np.isfinite(values).all():
        return
    largest = float(np.abs(values).max())
    remedy = "scale the data" if values.dtype == np.float64 else "scale the data or use float64"
    msg = (
        f"{name}: values up to {largest:.3g} are too large for {values.dtype}: the sum of their "
        f"squares overflows; {remedy}"
    )
    raise ValueError(msg)
