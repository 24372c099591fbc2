"""Results of a minimisation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._validation import FloatArray


@dataclass(frozen=True, eq=False)
class LowRankMatrix:
    """The matrix ``left.T @ right``.

    Parameters
    ----------
    left : ndarray of shape (rank, n_rows)
        Left factors, multiplied by the weights of the vertices.
    right : ndarray of shape (rank, n_columns)
        Right factors of unit length.
    """

    left: FloatArray = field(repr=False)
    right: FloatArray = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix."""
        return (self.left.shape[1], self.right.shape[1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the dense matrix."""
        return (self.left.T @ self.right).astype(dtype or np.float64, copy=False)

    def entries(self, rows: NDArray[Any], columns: NDArray[Any]) -> FloatArray:
        """Return the entries at the given rows and columns.

        Parameters
        ----------
        rows, columns : ndarray of int of shape (n,)
            Indices.

        Returns
        -------
        ndarray of shape (n,)
        """
        total = np.zeros(len(rows))
        for left, right in zip(self.left, self.right, strict=True):
            total += left[rows] * right[columns]
        return total


@dataclass(frozen=True, eq=False)
class Minimum:
    """The result of `minimize`.

    Attributes
    ----------
    x : ndarray or LowRankMatrix
        The final point, in the shape of the points of the set.
    objective : float
        ``f(x)``.
    gap : float
        Upper bound on ``f(x)`` minus the minimum over the set; in the units of `f`.
    lower_bound : float
        Lower bound on the minimum, ``objective - gap``.
    converged : bool
        Whether the gap reached the tolerance.
    certificate : str
        The guarantee and its conditions, as text.
    n_iter : int
        Number of iterations.
    history : dict of str to ndarray
        Arrays `epoch`, `seconds`, `objective`, `dual_objective` and `gap` with one value per
        iteration; NaN for values that were not evaluated.
    weights : ndarray of shape (n_active,)
        Weights of the active vertices, which sum to 1 up to rounding; empty for method
        "frank-wolfe" over a set of vectors.
    vertices : list of ndarray
        The active vertices, in the shape of `x`; empty for a `LowRankMatrix`, whose factors
        describe them.
    method : str
        The method that was used.
    """

    x: Any = field(repr=False)
    objective: float
    gap: float
    lower_bound: float
    converged: bool
    certificate: str
    n_iter: int
    history: Mapping[str, NDArray[Any]] = field(repr=False)
    weights: FloatArray = field(repr=False)
    vertices: list[FloatArray] = field(repr=False)
    method: str


def dense_vertex(vertex: tuple[Any, FloatArray], shape: tuple[int, ...]) -> FloatArray:
    """Convert a vertex from the core to an array."""
    indices, values = vertex
    if indices is None:
        return values.reshape(shape)
    dense = np.zeros(math.prod(shape))
    dense[indices] = values
    return dense.reshape(shape)
